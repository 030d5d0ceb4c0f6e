"""The way out: proxies that let through what was granted, each behind a unix socket.

Above: ``sandbox.py`` binds the socket into the sandbox, where a relay leads to it from loopback.
Below: ``net.destination`` decides. It speaks just enough HTTP: CONNECT, and requests with a whole
URL, one to a connection. It refuses to know what is sent, and never looks into it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import select
import shutil
import socket
import struct
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from toolpost import incarnation
from toolpost.net.destination import Granted, Refused

_HEAD: Final = 32 * 1024
_PATIENCE: Final = 20.0
_LINGER: Final = 60.0
_LOOK: Final = 0.5
_CHUNK: Final = 64 * 1024
_OURS: Final = "toolpost-"
_LIFE: Final = "life"
"""The file that says whose a folder of sockets is."""
_DESCRIPTORS: Final = 4096
"""As if this process could have no more open than these."""


class _Origin(NamedTuple):
    """Whose a connection is: a sandbox has one set of destinations."""

    egress: tuple[str, ...]
    sandbox: int


class _Wanted(NamedTuple):
    host: str
    port: int
    forward: bytes
    """What goes to the other side first; nothing after CONNECT."""
    answer: bytes
    """What the tool hears first."""


def sweep() -> None:
    """Take away the folders of sockets that processes left which were killed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_OURS}*/{_LIFE}"):
        with contextlib.suppress(OSError, ValueError):
            folder = left.parent
            owned = folder.lstat().st_uid == left.lstat().st_uid == os.geteuid()
            if owned and incarnation.ended(left.read_text()):
                shutil.rmtree(folder)


class Proxies:
    """One proxy for each set of destinations."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._servers: dict[tuple[str, ...], tuple[asyncio.Server, str]] = {}
        self._open: dict[asyncio.Task[None], _Origin | None] = {}
        """None for one that is told to go."""
        self._making = asyncio.Lock()

    async def socket(self, egress: tuple[str, ...]) -> str:
        """The path of the socket behind which exactly this is granted."""
        async with self._making:
            if egress not in self._servers:
                self._servers[egress] = await self._serve(egress)
        return self._servers[egress][1]

    async def close(self) -> None:
        for server, _ in self._servers.values():
            server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        for server, _ in self._servers.values():
            await server.wait_closed()
        self._servers.clear()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _serve(self, egress: tuple[str, ...]) -> tuple[asyncio.Server, str]:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=_OURS))
            (self._folder / _LIFE).write_text(incarnation.mine())
        granted = Granted(egress)
        path = str(self._folder / f"{len(self._servers)}.sock")

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            origin = _Origin(egress, _sandbox(_peer(writer)))
            full = self._full(origin)
            self._open[task] = None if full else origin
            task.add_done_callback(self._open.pop)
            with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                if full:
                    await _answer(writer, "503 Service Unavailable", full)
                else:
                    await _attend(reader, writer, granted)
            writer.close()

        server = await asyncio.start_unix_server(connected, path, limit=_HEAD)
        os.chmod(path, 0o666)  # noqa: PTH101, S103 - for the sandbox's user; the folder is closed
        return server, path

    def _full(self, origin: _Origin) -> str:
        """Why there is no room for one more, if so. Each takes two descriptors, and half of all are
        for others; whoever has one grant shares half of the rest, and a sandbox has half of that.
        """
        most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _DESCRIPTORS) // 4
        found = [one for one in self._open.values() if one is not None]
        if found.count(origin) >= most // 4:
            return f"{most // 4} connections are open, and no more may be: close one, and try again"
        if sum(one.egress == origin.egress for one in found) >= most // 2:
            return f"others with the same grant have {most // 2} connections open: try again later"
        if len(found) >= most:
            return f"all tools together have {most} connections open: try again later"
        return ""


def _peer(writer: asyncio.StreamWriter) -> int:
    """The process that has connected."""
    asked = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("3i", asked)[0])


def _sandbox(process: int) -> int:
    """The child of ours that a process is below: which of them has connected is the tool's to
    choose, and what that is below is not. 0 where it has gone already.
    """
    us, above = os.getpid(), process
    with contextlib.suppress(OSError):
        while above > 0:
            above = _parent(process)
            if above == us:
                return process
            process = above
    return 0


def _parent(process: int) -> int:
    told = Path(f"/proc/{process}/stat").read_bytes()
    return int(told.rpartition(b")")[2].split()[1])


async def _attend(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, granted: Granted
) -> None:
    try:
        async with asyncio.timeout(_PATIENCE):
            wanted = _understood(await _head(reader))
            addresses = await granted.addresses(wanted.host, wanted.port)
            far_reader, far_writer = await connect(addresses, wanted.port)
    except Refused as fault:
        await _answer(writer, "403 Forbidden", str(fault))
        return
    except (OSError, TimeoutError) as fault:
        await _answer(writer, "502 Bad Gateway", f"no connection ({type(fault).__name__})")
        return
    try:
        writer.write(wanted.answer)
        far_writer.write(wanted.forward)
        back = _carry(far_reader, writer) if wanted.answer else _last(far_reader, writer)
        await _joined(_carry(reader, far_writer), back, near=writer)
    finally:
        far_writer.close()


async def connect(
    addresses: Sequence[str], port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the first that answers: a host may have several, and not be reached by all of them."""
    for address in addresses[:-1]:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection(address, port)
    return await asyncio.open_connection(addresses[-1], port)


async def _joined(*ways: Coroutine[None, None, None], near: asyncio.StreamWriter) -> None:
    """Both ways; once one of them has ended the other has some time left, while there is still
    somebody at the near end.
    """
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        left = _LINGER
        while left > 0 and not _is_gone(near) and (await asyncio.wait(tasks, timeout=_LOOK))[1]:
            left -= _LOOK
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_gone(near: asyncio.StreamWriter) -> bool:
    """Whether the other end is closed both ways: who has nothing more to say may still listen."""
    if near.is_closing():
        return True
    looking = select.poll()
    looking.register(near.get_extra_info("socket"), 0)
    return any(event & select.POLLHUP for _, event in looking.poll(0))


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise Refused("that is not a request") from None


def _understood(head: bytes) -> _Wanted:
    first, _, rest = head.partition(b"\r\n")
    try:
        method, target, version = first.decode("ascii").split(" ")
        if method == "CONNECT":
            about = urlsplit(f"//{target}")
            good = about.port is not None and target == about.netloc
        else:
            about = urlsplit(target)
            good = about.scheme == "http"
        host, port = about.hostname, about.port or 80
    except ValueError:
        good = False
    if not good or not host or "@" in about.netloc:
        raise Refused("the proxy takes CONNECT host:port and http:// requests only")
    if method == "CONNECT":
        return _Wanted(host, port, b"", b"HTTP/1.1 200 Connection established\r\n\r\n")
    path = "/" + about._replace(scheme="", netloc="", fragment="").geturl().removeprefix("/")
    lines = [f"{method} {path} {version}".encode(), b"Host: " + about.netloc.encode()]
    dropped = (b"host:", b"connection:", b"proxy-")
    lines += [ln for ln in rest.split(b"\r\n") if ln and not ln.lower().startswith(dropped)]
    lines += [b"Connection: close", b"", b""]
    return _Wanted(host, port, b"\r\n".join(lines), b"")


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


async def _last(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An answer, said to be the last of its connection: the next request on it may be meant for
    another host, and must not be answered by this one, whatever it would like.
    """
    try:
        while True:
            first, *rest = await _lines(reader)
            status = re.match(rb"HTTP/1\.[01] (\d{3})", first)
            if status is None:
                raise ValueError("no answer")
            last = not status[1].startswith(b"1") or status[1] == b"101"
            lines = [first, b"Connection: close", *rest] if last else [first, *rest]
            writer.write(b"\r\n".join([*lines, b"", b""]))
            if last:
                break
    except ValueError:  # or longer than any head is
        await _answer(writer, "502 Bad Gateway", "that is not an answer")
        return
    await _carry(reader, writer)


async def _lines(reader: asyncio.StreamReader) -> list[bytes]:
    """The lines of a head, without what says how its connection goes on."""
    lines: list[bytes] = []
    size = 0
    while line := (await reader.readline()).strip(b"\r\n"):
        size += len(line)
        if size > _HEAD * 4:
            raise ValueError("too long")
        if not line.lower().startswith((b"connection:", b"keep-alive:", b"proxy-connection:")):
            lines.append(line)
    return lines or [b""]


async def _answer(writer: asyncio.StreamWriter, status: str, why: str) -> None:
    body = f"toolpost: {why}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Proxy-Status: toolpost\r\nConnection: close\r\n\r\n" + body)
    await writer.drain()
