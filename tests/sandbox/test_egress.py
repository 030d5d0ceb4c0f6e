"""A tool reaches the hosts it was granted, through the proxy, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolpost.errors import SetupError
from toolpost.sandbox import Confinement, Sandbox
from toolpost.sandbox.destination import Granted, Refused
from toolpost.sandbox.egress import Proxies

pytestmark = pytest.mark.anyio
FENCE = 30


class Web:
    """A server on loopback that answers with the request line it got."""

    def __init__(self) -> None:
        self.port = 0
        self.heads: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            body = head.split(b"\r\n")[0]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
        writer.close()


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    made = Web()
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


async def curl(sandbox: Sandbox, confinement: Confinement, *arguments: str) -> str:
    child = await sandbox.spawn(["curl", "-sS", "-m", "20", *arguments], confinement)
    async with asyncio.timeout(FENCE):
        await child.wait()
    assert child.stdout is not None
    assert child.stderr is not None
    return (child.stdout.tail + child.stderr.tail).decode()


@pytest.mark.req("NA-11")
async def test_a_granted_host_is_reached_by_request_and_by_tunnel(web: Web) -> None:
    confinement = Confinement(egress=(f"127.0.0.1:{web.port}",))
    async with await Sandbox.open() as sandbox:
        for tunnel in ([], ["--proxytunnel"]):
            url = f"http://127.0.0.1:{web.port}/a?b=c"
            assert await curl(sandbox, confinement, *tunnel, url) == "GET /a?b=c HTTP/1.1"
    assert all(f"Host: 127.0.0.1:{web.port}".encode() in head for head in web.heads)
    assert not any(b"proxy" in head.lower() for head in web.heads)


@pytest.mark.req("NA-11")
async def test_nothing_else_is_reached_and_the_answer_says_so(web: Web) -> None:
    confinement = Confinement(egress=("127.0.0.1:1",))
    async with await Sandbox.open() as sandbox:
        url = f"http://127.0.0.1:{web.port}/"
        assert "is not granted" in await curl(sandbox, confinement, url)
        assert "is not granted" in await curl(sandbox, confinement, "http://169.254.169.254/")
        assert "onnect" in await curl(sandbox, confinement, "--noproxy", "*", url)
        assert "403" in await curl(sandbox, confinement, "--proxytunnel", url)
    assert web.heads == []


async def test_without_a_grant_there_is_no_proxy(web: Web) -> None:
    async with await Sandbox.open() as sandbox:
        url = f"http://127.0.0.1:{web.port}/"
        assert "onnect" in await curl(sandbox, Confinement(), url)
    assert web.heads == []


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
        "[::127.0.0.1]",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "0x7f.1",
        "127.0.0.1.",
        "localhost",
        "a b",
        "a\tb",
        "",
        "ex%61mple.com",
        "１２７.0.0.1",
    ],
)
async def test_any_public_address_means_a_public_one_however_it_is_spelled(host: str) -> None:
    with pytest.raises(Refused):
        await Granted(("*",)).address(host, 80)


async def test_a_public_address_is_connected_to_as_it_was_looked_at() -> None:
    assert await Granted(("*",)).address("93.184.216.34", 443) == "93.184.216.34"
    assert await Granted(("*",)).address("[2606:2800:220:1::1]", 443) == "2606:2800:220:1::1"


async def test_a_grant_is_for_one_port_and_one_name() -> None:
    granted = Granted(("10.0.0.8:5432", "[fd00::8]:5432"))
    assert await granted.address("10.0.0.8", 5432) == "10.0.0.8"
    assert await granted.address("[fd00::8]", 5432) == "fd00::8"
    for host, port in (("10.0.0.8", 5433), ("10.0.0.9", 5432), ("8.8.8.8", 5432)):
        with pytest.raises(Refused):
            await granted.address(host, port)


class Names:
    """A resolver whose answers are given: no test has a name server of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, list[str]] = {}
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "getaddrinfo", self.look_up)

    async def look_up(self, host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        family = socket.AF_INET
        return [(family, 1, 6, "", (one, port)) for one in self.answers[host]]


async def test_a_private_host_that_is_named_is_reached_and_a_public_one_may_not_turn_private(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = Names(monkeypatch)
    granted = Granted(("inside.test:80", "outside.test:80"))
    names.answers = {"inside.test": ["10.0.0.1"], "outside.test": ["93.184.216.34"]}
    assert await granted.address("inside.test", 80) == "10.0.0.1"
    assert await granted.address("Outside.Test", 80) == "93.184.216.34"
    names.answers["outside.test"] = ["10.0.0.1"]
    with pytest.raises(Refused):
        await granted.address("outside.test", 80)


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1"])
async def test_no_name_leads_to_this_machine_or_to_its_link(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    names = Names(monkeypatch)
    names.answers = {"trick.test": ["93.184.216.34", address]}
    for egress in (("trick.test:80",), ("*",)):
        with pytest.raises(Refused):
            await Granted(egress).address("trick.test", 80)


async def test_what_is_no_request_is_refused_and_the_proxy_lives_on(
    web: Web, tmp_path: Path
) -> None:
    proxies = Proxies()
    path = await proxies.socket((f"127.0.0.1:{web.port}",))
    asked = [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET https://example.com/ HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n",
        b"CONNECT user@127.0.0.1:80 HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1:99999 HTTP/1.1\r\n\r\n",
        b"\xff\xfe x y\r\n\r\n",
        b"x" * 40_000,
    ]
    async with asyncio.timeout(FENCE):
        for request in asked:
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(request)
            assert (await reader.readline()).startswith(b"HTTP/1.1 403")
            writer.close()
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(f"GET http://127.0.0.1:{web.port}/ HTTP/1.1\r\n\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        await proxies.close()


@pytest.mark.parametrize(
    "egress", ["example.com", "example.com:0", "example.com:70000", "*:443", "a b:1", "http://x:1"]
)
async def test_a_grant_that_cannot_be_meant_is_refused(egress: str) -> None:
    async with await Sandbox.open() as sandbox:
        with pytest.raises(SetupError):
            sandbox.check(Confinement(egress=(egress,)))
