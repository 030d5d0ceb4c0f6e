"""Where a connection may lead: whatever it is called, and whatever its name resolves to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from toolpost.net.destination import Granted, Refused, Unresolved, is_public, literal_from

pytestmark = pytest.mark.anyio


class Names:
    """A resolver whose answers are given: no test has a name server of its own."""

    def __init__(self, **answers: list[str]) -> None:
        self.answers = {name.replace("_", "."): found for name, found in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.answers:
            raise OSError("there is no such name")
        return self.answers[host]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[::ffff:127.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::]",
        "[64:ff9b:1::7f00:1]",
        "[::ffff:0:127.0.0.1]",
        "[2001:0:7f00:1::]",
        "[fec0::1]",
        "[5f00::1]",
        "[ff02::1]",
        "[fe80::1%lo]",
        "[2606:2800:220:1::1%lo]",
        "2606:2800:220:1::1%25lo",
        "[::127.0.0.1]",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "0x7f.1",
        "127.0.0.1.",
        "0x7F.0.0.1",
        "127.0.0.0x1",
        "00000177.0.0.1",
        "017700000001",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "1.1.1.1 &@127.0.0.1",
        "user@127.0.0.1",
        "localhost",
        "api.localhost",
        "LOCALHOST.",
        "a b",
        "a\tb",
        "",
        "ex%61mple.com",
        "１２７.0.0.1",
    ],
)
async def test_any_public_address_means_a_public_one_however_it_is_spelled(host: str) -> None:
    with pytest.raises(Refused):
        await Granted(("*",)).addresses(host, 80)


async def test_a_public_address_is_connected_to_as_it_was_looked_at() -> None:
    granted = Granted(("*",))
    assert await granted.addresses("93.184.216.34", 443) == ["93.184.216.34"]
    assert await granted.addresses("[2606:2800:220:1::1]", 443) == ["2606:2800:220:1::1"]


async def test_a_grant_is_for_one_port_and_one_name() -> None:
    granted = Granted(("10.0.0.8:5432", "[fd00::8]:5432"))
    assert await granted.addresses("10.0.0.8", 5432) == ["10.0.0.8"]
    assert await granted.addresses("[fd00::8]", 5432) == ["fd00::8"]
    for host, port in (("10.0.0.8", 5433), ("10.0.0.9", 5432), ("8.8.8.8", 5432)):
        with pytest.raises(Refused):
            await granted.addresses(host, port)


async def test_what_must_be_public_is_granted_by_its_name_and_nothing_else_is() -> None:
    names = Names(api_test=["93.184.216.34"], other_test=["93.184.216.34"])
    granted = Granted((), public=("api.test:443",), resolve=names)
    assert await granted.addresses("api.test", 443) == ["93.184.216.34"]
    for host, port in (("api.test", 80), ("other.test", 443)):
        with pytest.raises(Refused, match="not granted"):
            await granted.addresses(host, port)
    names.answers["api.test"] = ["10.0.0.1"]
    with pytest.raises(Refused, match="not public"):
        await granted.addresses("api.test", 443)


async def test_a_private_host_that_is_named_is_reached_and_a_public_one_may_not_turn_private() -> (
    None
):
    names = Names(inside_test=["10.0.0.1"], outside_test=["93.184.216.34"])
    granted = Granted(("inside.test:80", "outside.test:80"), resolve=names)
    assert await granted.addresses("inside.test", 80) == ["10.0.0.1"]
    assert await granted.addresses("Outside.Test", 80) == ["93.184.216.34"]
    names.answers["outside.test"] = ["10.0.0.1"]
    with pytest.raises(Refused):
        await granted.addresses("outside.test", 80)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1%eth0",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
    ],
)
async def test_no_name_leads_to_this_machine_or_to_its_link(address: str) -> None:
    names = Names(trick_test=["93.184.216.34", address])
    for egress in (("trick.test:80",), ("*",)):
        with pytest.raises(Refused):
            await Granted(egress, resolve=names).addresses("trick.test", 80)


async def test_a_name_is_looked_up_once_and_every_address_is_looked_at() -> None:
    names = Names(api_test=["93.184.216.34", "2606:2800:220:1::1", "93.184.216.34"])
    granted = Granted(("*",), resolve=names)
    assert await granted.addresses("api.test", 443) == ["93.184.216.34", "2606:2800:220:1::1"]
    assert names.asked == ["api.test"]


async def test_a_name_that_nobody_knows_is_told_apart_from_one_that_may_not_be_used() -> None:
    for names in (Names(), Names(no_test=[])):
        with pytest.raises(Unresolved, match="cannot be found"):
            await Granted(("*",), resolve=names).addresses("no.test", 443)


def test_a_long_name_that_is_none_is_refused_at_once() -> None:
    began = time.perf_counter()
    for host in ("a" * 250 + "!", "a-" * 120 + "!", ".".join("a" * 100) + "!", "a" * 64):
        with pytest.raises(Refused):
            literal_from(host)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"],
)
def test_a_public_address_stays_public_in_any_wrapping(address: str) -> None:
    assert is_public(ip_address(address))
