"""A tool reaches the hosts it was granted, through the proxy, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolpost.errors import SetupError
from toolpost.sandbox import Confinement, Sandbox
from toolpost.sandbox.confinement import Level
from toolpost.sandbox.egress import Proxies, connect
from toolpost.sandbox.view import interpreter

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


KNOCKS = """
import socket, sys
port, times, tunnel = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
ways, heard = [], []
for _ in range(times):
    way = socket.create_connection(("127.0.0.1", port), 20)
    way.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\n\\r\\n" % tunnel)
    ways.append(way)
def said(way):
    try:
        return way.recv(100)[9:12].decode() or "-"
    except ConnectionError:  # it was hung up before we had asked
        return "-"
heard = [said(way) for way in ways]
for way, word in zip(ways, heard):
    if word == "200":
        way.sendall(b"GET /%d HTTP/1.1\\r\\n\\r\\n" % way.fileno())
heard += [said(way) for way, word in zip(ways, heard) if word == "200"]
print(*heard)
"""


async def knocks(sandbox: Sandbox, confinement: Confinement, times: int, web: Web) -> list[str]:
    """The first word on each of so many connections at once, and the answer on each that stands."""
    argv = [interpreter()[0], "-I", "-S", "-c", KNOCKS, "3128", str(times), str(web.port)]
    child = await sandbox.spawn(argv, confinement)
    async with asyncio.timeout(FENCE):
        ending = await child.wait()
    assert child.stdout is not None
    assert child.stderr is not None
    assert ending.code == 0, child.stderr.tail.decode()
    return child.stdout.tail.decode().split()


@pytest.mark.parametrize("level", ["I3", "I2"])
async def test_a_tool_has_more_connections_than_processes(web: Web, level: Level) -> None:
    confinement = Confinement(egress=(f"127.0.0.1:{web.port}",), processes=2, file_size=2**16)
    async with await Sandbox.open() as sandbox:
        other = await sandbox.lesser(level)
        try:
            assert await knocks(other or sandbox, confinement, 40, web) == ["200"] * 80
        finally:
            if other is not None:
                await other.close()
    assert len(web.heads) == 40


async def test_a_connection_for_which_there_is_no_room_is_not_kept_waiting(web: Web) -> None:
    confinement = Confinement(egress=(f"127.0.0.1:{web.port}",), open_files=256)
    async with await Sandbox.open() as sandbox:
        heard = await knocks(sandbox, confinement, 200, web)
        assert set(heard) <= {"200", "503", "-"}
        assert len(heard) == 200 + len(web.heads)
        assert heard.count("200") == 2 * len(web.heads) >= 2 * 32


async def test_where_the_proxy_is_gone_a_connection_is_hung_up(web: Web) -> None:
    confinement = Confinement(egress=(f"127.0.0.1:{web.port}",))
    async with await Sandbox.open() as sandbox:
        await sandbox.warm_up(confinement)
        await sandbox._ready._proxies.close()
        assert await knocks(sandbox, confinement, 3, web) == ["-"] * 3


TUNNEL = """
import socket, sys
way = socket.create_connection(("127.0.0.1", 3128), 20)
way.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\n\\r\\n" % int(sys.argv[1]))
assert way.recv(39, socket.MSG_WAITALL) == b"HTTP/1.1 200 Connection established\\r\\n\\r\\n"
def heard():
    parts = []
    while part := way.recv(100_000):
        parts.append(part)
    return b"".join(parts)
"""
SPEAKS = """
way.sendall(bytes(range(250)) * 20_000)
way.shutdown(socket.SHUT_WR)
print(heard() == bytes(range(250)) * 20_000)
"""
LISTENS = """
first = heard()
way.sendall(first)
way.shutdown(socket.SHUT_WR)
print(len(first))
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("who", "told"), [(SPEAKS, "True"), (LISTENS, "5000000")], ids=("tool", "server")
)
async def test_the_end_of_one_way_is_passed_on_and_the_other_goes_on(who: str, told: str) -> None:
    """And no side is read from faster than the other takes it: all arrives, in its order."""
    heard = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if who is LISTENS:
            writer.write(b"a" * 5_000_000)
            writer.write_eof()
        said = await reader.read(-1)
        if who is SPEAKS:
            writer.write(said)
        heard.set_result(len(said))
        writer.close()

    async with (
        asyncio.timeout(FENCE),
        await asyncio.start_server(answer, "127.0.0.1") as server,
        await Sandbox.open() as sandbox,
    ):
        port = server.sockets[0].getsockname()[1]
        argv = [interpreter()[0], "-I", "-S", "-c", TUNNEL + who, str(port)]
        theirs, ours = os.pipe()
        confinement = Confinement(egress=(f"127.0.0.1:{port}",))
        child = await sandbox.spawn(argv, confinement, stdin=theirs)
        os.close(theirs)
        assert await heard == 5_000_000
        os.close(ours)  # with its program a sandbox ends, whatever is on its way
        await child.wait()
        assert child.stdout is not None
        assert child.stdout.tail.decode().strip() == told


HOLDS = """
import contextlib, socket, sys
ways = []
for _ in range(int(sys.argv[2])):
    way = socket.socket(socket.AF_UNIX)
    way.connect(sys.argv[1])
    with contextlib.suppress(BrokenPipeError):  # it has its answer already
        way.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\n\\r\\n" % int(sys.argv[3]))
    ways.append(way)
print(" ".join(way.recv(100)[9:12].decode() for way in ways), flush=True)
sys.stdin.read()
"""
FORKS = """
import contextlib, os, socket, sys
near, far = socket.socketpair()
heard = []
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        way = socket.socket(socket.AF_UNIX)
        way.connect(sys.argv[1])
        with contextlib.suppress(BrokenPipeError):
            way.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\n\\r\\n" % int(sys.argv[3]))
        far.send(way.recv(100)[9:12])
        sys.stdin.read()
        os._exit(0)
    heard.append(near.recv(3).decode())
print(*heard, flush=True)
sys.stdin.read()
"""


async def held(
    path: str, times: int, port: int, program: str = HOLDS
) -> tuple[asyncio.subprocess.Process, list[str]]:
    """A process that has so many connections and keeps them, and what it heard on each."""
    argv = [sys.executable, "-I", "-S", "-c", program, path, str(times), str(port)]
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    return process, (await process.stdout.readline()).decode().split()


async def test_who_has_too_many_connections_shuts_out_nobody_else(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.sandbox.egress._DESCRIPTORS", 256)
    proxies = Proxies()
    one = await proxies.socket((f"127.0.0.1:{web.port}",))
    other = await proxies.socket((f"127.0.0.1:{web.port}", "127.0.0.1:1"))
    holding: list[asyncio.subprocess.Process] = []
    try:
        async with asyncio.timeout(FENCE):
            for path, times, expected in (
                (one, 20, ["200"] * 16 + ["503"] * 4),  # as many as a sandbox may have
                (one, 20, ["200"] * 16 + ["503"] * 4),
                (one, 1, ["503"]),  # as many as there may be with that grant
                (other, 20, ["200"] * 16 + ["503"] * 4),
            ):
                process, heard = await held(path, times, web.port)
                holding.append(process)
                assert heard == expected
            reader, writer = await asyncio.open_unix_connection(one)
            said = (await reader.read()).decode()
            writer.close()
    finally:
        for process in holding:
            await process.communicate(b"")
        await proxies.close()
    assert said.startswith("HTTP/1.1 503 Service Unavailable\r\n")
    assert said.endswith("others with the same grant have 32 connections open: try again later\n")


async def test_processes_of_one_sandbox_share_what_it_may_have(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.sandbox.egress._DESCRIPTORS", 256)
    proxies = Proxies()
    path = await proxies.socket((f"127.0.0.1:{web.port}",))
    try:
        async with asyncio.timeout(FENCE):
            process, heard = await held(path, 20, web.port, FORKS)
            await process.communicate(b"")
    finally:
        await proxies.close()
    assert heard == ["200"] * 16 + ["503"] * 4


async def test_what_a_sandbox_had_open_ends_with_it() -> None:
    """Though the far end goes on as if somebody listened."""
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"more")
                await writer.drain()
                await asyncio.sleep(0.05)
        ended.set()

    async with (
        asyncio.timeout(FENCE),
        await asyncio.start_server(answer, "127.0.0.1") as server,
        await Sandbox.open() as sandbox,
    ):
        port = server.sockets[0].getsockname()[1]
        argv = [interpreter()[0], "-I", "-S", "-c", TUNNEL, str(port)]
        child = await sandbox.spawn(argv, Confinement(egress=(f"127.0.0.1:{port}",)))
        assert (await child.wait()).code == 0
        await ended.wait()
        proxies = sandbox._ready._proxies
        while proxies._open:
            await asyncio.sleep(0.01)


async def test_who_has_said_all_is_still_answered(web: Web) -> None:
    proxies = Proxies()
    path = await proxies.socket((f"127.0.0.1:{web.port}",))
    async with asyncio.timeout(FENCE):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(f"GET http://127.0.0.1:{web.port}/ HTTP/1.1\r\n\r\n".encode())
        writer.write_eof()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        await proxies.close()
