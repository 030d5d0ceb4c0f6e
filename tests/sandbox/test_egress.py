"""A tool reaches the hosts it was granted, through the proxy, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolpost.errors import SetupError
from toolpost.sandbox import Confinement, Sandbox
from toolpost.sandbox.egress import Proxies, connect

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


async def test_a_host_with_several_addresses_is_reached_by_the_one_that_answers(web: Web) -> None:
    async with asyncio.timeout(FENCE):
        for addresses in (["127.0.0.2", "127.0.0.1"], ["127.0.0.1", "127.0.0.2"]):
            _, writer = await connect(addresses, web.port)  # nobody is at 127.0.0.2
            assert writer.get_extra_info("peername") == ("127.0.0.1", web.port)
            writer.close()
        with pytest.raises(ConnectionRefusedError):
            await connect(["127.0.0.2", "127.0.0.3"], web.port)


@pytest.mark.req("NA-11")
@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\nKeep-Alive: timeout=9\nContent-Length: 2\n\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
    ],
)
async def test_a_server_that_keeps_its_connection_does_not_get_the_next_request(
    head: bytes,
) -> None:
    """It may be meant for another host: whoever asks is told to take another connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"hi")
        await reader.read()
        writer.close()

    proxies = Proxies()
    async with asyncio.timeout(FENCE), await asyncio.start_server(answer, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        path = await proxies.socket((f"127.0.0.1:{port}",))
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())
        said = await reader.readuntil(b"hi")
        writer.close()
        await proxies.close()
    assert said.endswith(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")


@pytest.mark.parametrize("said", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nA: " + b"a" * 200_000])
async def test_what_is_no_answer_is_not_passed_on(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    proxies = Proxies()
    async with asyncio.timeout(FENCE), await asyncio.start_server(answer, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        path = await proxies.socket((f"127.0.0.1:{port}",))
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 502")
        writer.close()
        await proxies.close()
