"""What a service, a name server or a caller does to make a tool reach what it must not: no
connection is made that was not looked at, and no secret goes where it is not for.

How an address can be spelled is in ``net/test_destination.py``, what a value can do to a request in
``test_requests.py``.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.backends.http.service import (
    Asked,
    Reply,
    Writer,
    call,
    forever,
    head,
    http,
    schema,
    serving,
)
from toolpost import Caller, Executor, Registry, ToolSpec
from toolpost.backends.http.backend import HttpBackend
from toolpost.backends.http.binding import verify
from toolpost.contracts import Services
from toolpost.errors import InvalidSpec

pytestmark = pytest.mark.anyio
TOKEN = "tok-4f9a8b7c6d5e"
OURSELVES = [
    "127.0.0.1:{port}",
    "127.0.0.1.:{port}",
    "127.1:{port}",
    "127.0.0.2:{port}",
    "0.0.0.0:{port}",
    "0:{port}",
    "2130706433:{port}",
    "0x7f000001:{port}",
    "0x7f.0.0.1:{port}",
    "017700000001:{port}",
    "0177.0.0.1:{port}",
    "localhost:{port}",
    "LOCALHOST.:{port}",
    "x.localhost:{port}",
    "[::1]:{port}",
    "[::]:{port}",
    "[0:0:0:0:0:0:0:1]:{port}",
    "[::ffff:127.0.0.1]:{port}",
    "[::ffff:7f00:1]:{port}",
    "[::127.0.0.1]:{port}",
    "[64:ff9b::7f00:1]:{port}",
    "[64:ff9b:1::7f00:1]:{port}",
    "[2002:7f00:1::]:{port}",
    "[fe80::1%25lo]:{port}",
    "\u2460\u2461\u2466.0.0.1:{port}",
    "127\u30020\u30020\u30021:{port}",
    "api.test@127.0.0.1:{port}",
    "api.test:80@127.0.0.1:{port}",
    "127.0.0.1:{port}\\@api.test",
    "api.test\\.127.0.0.1:{port}",
]


class Trap:
    """Counts who connects to this machine, on all of its addresses."""

    def __init__(self) -> None:
        self.connections = 0

    async def attend(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()


async def trapped(attack: Callable[[Trap, int], Any]) -> int:
    """How many connections an attack brought about."""
    trap = Trap()
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    listening = socket.create_server(("", 0), family=family, dualstack_ipv6=both)
    async with await asyncio.start_server(trap.attend, sock=listening):
        await attack(trap, listening.getsockname()[1])
    return trap.connections


@pytest.mark.parametrize("spelled", OURSELVES)
async def test_attack_a_spec_spells_this_machine_in_another_way(spelled: str) -> None:
    async def attack(trap: Trap, port: int) -> None:
        with pytest.raises(InvalidSpec):
            verify(http(f"http://{spelled.format(port=port)}/"))

    assert await trapped(attack) == 0


@pytest.mark.parametrize("location", ["http://{}/", "//{}/", "http:\t//{}/", "HTTP://{}/latest"])
@pytest.mark.parametrize("spelled", OURSELVES)
async def test_attack_a_service_redirects_to_this_machine(spelled: str, location: str) -> None:
    async def attack(trap: Trap, port: int) -> None:
        target = location.format(spelled.format(port=port))
        async with serving(lambda _: Reply("", 302, headers={"Location": target})) as service:
            spec = http(service.url, egress=(service.authority, "*"))
            error = (await call(spec, {})).error
            assert error is not None
            assert error.code == "POLICY_DENIED", error
            assert len(service.asked) == 1

    assert await trapped(attack) == 0


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/latest/meta-data/",
        "http://100.100.100.200/latest/meta-data/",
        "http://192.168.0.1/",
        "http://10.0.0.1/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_FLUSHALL",
        "http://public.test/",
    ],
)
async def test_attack_a_service_redirects_to_metadata_or_to_a_host_that_is_not_granted(
    location: str,
) -> None:
    async with serving(lambda _: Reply("", 307, headers={"Location": location})) as service:
        error = (await call(http(service.url, service), {})).error
        assert error is not None
        assert (error.code, error.effects) == ("POLICY_DENIED", "none")
        several = http(service.url, service, redirects=20)
        assert (await call(several, {})).error.code == "POLICY_DENIED"


@pytest.mark.parametrize(
    "answers",
    [
        [["127.0.0.1"]],
        [["93.184.216.34", "127.0.0.1"]],
        [["::1", "2606:2800:220:1::1"]],
        [["169.254.169.254"]],
        [["::ffff:127.0.0.1"]],
        [["10.0.0.1"]],
        [["0.0.0.0"]],
    ],
)
async def test_attack_a_public_name_leads_to_this_machine(answers: list[list[str]]) -> None:
    async def attack(trap: Trap, port: int) -> None:
        async def resolve(host: str, _: int) -> Sequence[str]:
            return answers[0]

        backend = HttpBackend(Services(), resolve=resolve)
        for spec in (
            http(f"http://rebound.test:{port}/"),
            http(f"http://rebound.test:{port}/", egress=("*",)),
            http(f"http://rebound.test:{port}/", egress=("other.test:80",)),
        ):
            result = await call(spec, {}, backends={"http": backend})
            assert result.error.code == "POLICY_DENIED"
            assert result.error.effects == "none"

    assert await trapped(attack) == 0


async def test_attack_a_name_changes_its_mind_between_the_check_and_the_connection() -> None:
    """The first answer is the harmless one, all later ones are the trap."""
    asked: list[str] = []

    async def attack(trap: Trap, port: int) -> None:
        async with serving(host="127.0.0.3") as service:

            async def resolve(host: str, _: int) -> Sequence[str]:
                asked.append(host)
                return ["127.0.0.3"] if len(asked) == 1 else ["127.0.0.1"]

            backend = HttpBackend(Services(), resolve=resolve)
            spec = http(f"http://localhost:{service.port}", egress=(f"localhost:{service.port}",))
            assert (await call(spec, {}, backends={"http": backend})).success
            assert service.connections == 1

    assert await trapped(attack) == 0
    assert asked == ["localhost"]


async def test_attack_a_service_sends_the_credentials_on_to_another_host() -> None:
    def elsewhere(asked: Asked) -> Reply:
        return Reply("", 302, headers={"Location": f"{service.url}/back"})

    def answers(asked: Asked) -> Reply:
        if asked.target.startswith("/back"):
            return Reply('"back"')
        return Reply("", 302, headers={"Location": f"{other.url}/x?a=1&key={TOKEN}&b=2"})

    async with serving(answers) as service, serving(elsewhere, host="127.0.0.2") as other:
        spec = http(
            service.url + "/first",
            service,
            other,
            input_schema=schema("trace"),
            headers={"X-Trace": "{trace}", "Accept": "text/plain"},
            cookies={"lang": "en"},
            query={},
            auth=[
                {"bearer": "TOKEN"},
                {"api_key": {"secret": "TOKEN", "name": "X-Key"}},
                {"api_key": {"secret": "TOKEN", "name": "key", "in": "query"}},
                {"api_key": {"secret": "TOKEN", "name": "sid", "in": "cookie"}},
            ],
        )
        result = await call(spec, {"trace": "private"}, secrets={"TOKEN": TOKEN})
        assert result.output == "back", result.error
    first, back = service.asked
    assert str(first).count(TOKEN) == 4
    assert str(other.asked).count(TOKEN) == 0
    assert other.asked[0].target == "/x?a=1&b=2"
    assert {name for name, _ in other.asked[0].headers} == {
        "host", "accept", "user-agent", "accept-encoding",
    }  # fmt: skip
    assert TOKEN not in str(back), "what another host asks for is not signed"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_attack_a_service_sends_the_arguments_on_to_another_host(status: int) -> None:
    async with serving(host="127.0.0.2") as other:
        redirect = Reply("", status, headers={"Location": f"{other.url}/x"})
        async with serving(lambda _: redirect) as service:
            spec = http(service.url, service, other, method="POST")
            result = await call(spec, {"note": "private"})
    assert "private" not in str(other.asked)
    assert result.success == (status in (301, 302, 303))


async def test_attack_a_small_answer_unpacks_to_a_great_one() -> None:
    bomb = gzip.compress(b'"' + b"0" * (50 * 1024 * 1024) + b'"')
    assert len(bomb) < 100_000
    async with serving(lambda _: Reply(bomb, headers={"Content-Encoding": "gzip"})) as service:
        error = (await call(http(service.url, service), {})).error
        assert (error.code, error.effects) == ("OUTPUT_TOO_LARGE", "done")
        small = http(service.url, service, response={"max_bytes": 1000})
        assert (await call(small, {})).error.details == {"limit": 1000}


async def test_attack_an_error_is_a_bomb_or_never_ends() -> None:
    bomb = gzip.compress(b'{"message": "' + b"0" * (50 * 1024 * 1024))
    reply = Reply(bomb, status=400, headers={"Content-Encoding": "gzip"})
    async with serving(lambda _: reply) as service:
        error = (await call(http(service.url, service), {})).error
        assert error.code == "VALIDATION_ERROR"
        assert len(error.message) < 1000

    async def dribbles(writer: Writer) -> None:
        writer.write(head(401, {"Content-Length": "1000", "Content-Type": "text/plain"}))
        writer.write(b"Go away.")
        await writer.drain()
        await forever(writer)

    async with serving(lambda _: dribbles) as service:
        error = (await call(http(service.url, service), {})).error
        assert error.message == "127.0.0.1 answered 401 (Unauthorized): Go away."
        await asyncio.wait_for(service.gone.wait(), 20)


async def test_attack_what_a_caller_holds_is_never_passed_on() -> None:
    """Tokens of the caller stay here, and so does what a service said to somebody else."""
    reply = Reply("{}", headers={"Set-Cookie": "session=of-ann; Path=/"})
    async with serving(lambda _: reply) as service:
        spec = http(service.url, service, auth={"bearer": "TOKEN"})
        own = "Bearer users-own-token"
        async with Executor(Registry([spec]), secret={"TOKEN": TOKEN}.get) as executor:
            for who in ("ann", "bob"):
                metadata = {"authorization": own, "Authorization": own, "cookie": own}
                result = await executor.execute("it", caller=Caller(who), metadata=metadata)
                assert result.success
    for asked in service.asked:
        assert asked.header("Authorization") == f"Bearer {TOKEN}"
        assert asked.header("Cookie") is None
        assert "users-own-token" not in str(asked)
        assert "ann" not in str(asked.headers)


def test_attack_a_spec_passes_a_token_of_the_caller_through() -> None:
    for headers in ({"Authorization": "{token}"}, {"proxy-authorization": "{token}"}):
        with pytest.raises(InvalidSpec, match="'auth'"):
            verify(http("https://api.test", input_schema=schema("token"), headers=headers))


async def test_attack_a_secret_is_looked_for_wherever_something_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def echoes(asked: Asked) -> Reply:
        return Reply(f'{{"message": "you sent {asked.target} {asked.headers}"}}', 500)

    caplog.set_level(logging.DEBUG)
    auth = [
        {"basic": {"user": "me", "password": "TOKEN"}},
        {"api_key": {"secret": "TOKEN", "name": "key", "in": "query"}},
    ]
    async with serving(echoes) as service:
        spec = http(service.url + "/x", service, auth=auth)
        failed = await call(spec, {}, secrets={"TOKEN": TOKEN})
        planned = await call(spec, {}, secrets={"TOKEN": TOKEN}, dry_run=True)
    refused = await call(spec, {}, secrets={"TOKEN": TOKEN})
    packed = (service.asked[0].header("Authorization") or "").removeprefix("Basic ")
    for said in (failed, planned, refused, spec.to_dict(), caplog.text):
        assert TOKEN not in str(said)
        assert packed not in str(said)
    assert failed.error.code == "EXECUTION_ERROR"
    assert refused.error.code == "UNAVAILABLE"


async def test_attack_a_binding_is_changed_and_the_digest_shows_it() -> None:
    spec = http("https://api.test/v1", auth={"bearer": "TOKEN"})
    for change in (
        {"url": "https://evil.test/v1"},
        {"auth": {"bearer": "OTHER"}},
        {"redirects": 20},
    ):
        changed = ToolSpec.from_dict({**spec.to_dict(), "binding": {**spec.binding, **change}})
        assert changed.digest != spec.digest
        assert changed.public_digest == spec.public_digest


def test_the_trap_is_real() -> None:
    """An attack that nobody stops is counted."""

    async def attack(trap: Trap, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.wait_for(reader.read(), 20)
        writer.close()

    assert asyncio.run(trapped(attack)) == 1
