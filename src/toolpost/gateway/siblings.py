"""Requests that are another process's: handed over to it, and its answer back.

Above: ``mcp/app.py``, which sees whose a request is, and ``rest/running.py``, which asks them all.
Below: a socket in the state folder for each of several server processes, which its owner alone may
use. What lives in one process, such as a session or a call that waits for an answer, has that
process's name at the end of its own, for a request for it may arrive anywhere. It is handed over as
it came, and whoever gets it asks again who calls: there is nothing to be had here that is not to be
had at the front.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Self

import httptools

from toolpost.errors import Unavailable
from toolpost.gateway.bodies import Scope, Send

HANDED: Final = b"toolpost-handed"
"""The header of a request that was handed over: it is not handed on."""
_NAME: Final = re.compile(r"[0-9a-f]{16}")
_OWN: Final = frozenset(
    (b"connection", b"content-length", b"transfer-encoding", b"keep-alive", b"expect", HANDED)
)
"""Headers that are about one connection."""
_LONGEST: Final = 100
"""Bytes that the path of a socket may have."""
_PIECE: Final = 65_536
_PATIENCE: Final = 5.0
"""Seconds that all others have to say what they know."""


class Siblings:
    """``async with`` it: from then on others find this process by its name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = token_hex(8)
        self.number = 0
        """Which of them it is: one that replaces another has its number."""
        self._fd = -1

    async def __aenter__(self) -> Self:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for other in self._folder.glob("serve-*.sock"):
            await self._forget_dead(other.stem.removeprefix("serve-"))
        return self

    async def __aexit__(self, *exc: object) -> None:
        with suppress(FileNotFoundError):
            os.unlink(_file(self.name), dir_fd=self._fd)
        os.close(self._fd)

    async def listen(self, protocol: Callable[[], asyncio.Protocol]) -> asyncio.Server:
        """Be there for the others, who are to see it only once it listens: else they would take it
        for one that has been left behind.
        """
        place, file = socket.socket(socket.AF_UNIX), _file(self.name)
        try:
            place.bind(self._path(f"{file}.new"))
            os.chmod(f"{file}.new", 0o600, dir_fd=self._fd)
            place.listen()
            os.rename(f"{file}.new", file, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            return await asyncio.get_running_loop().create_unix_server(protocol, sock=place)
        except BaseException:
            place.close()
            raise

    def marked(self, name: str) -> str:
        """The name of something that lives in this process."""
        return f"{name}.{self.name}"

    def split(self, marked: str) -> tuple[str, str | None]:
        """A name as its process knows it; and that process, if it is another."""
        name, _, process = marked.rpartition(".")
        if not name or not _NAME.fullmatch(process):
            return marked, None
        return name, None if process == self.name else process

    async def hand_over(self, process: str, scope: Scope, body: bytes, send: Send) -> bool:
        """Have the other answer; ``False``: it is not there any more."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._path(_file(process)))
        except OSError:
            return False
        try:
            writer.write(_request(scope, body))
            await _answered(reader, send)
        finally:
            writer.transport.abort()  # who asked has gone, or has the answer
        return True

    async def everywhere(
        self, scope: Scope, *, patience: float = _PATIENCE
    ) -> list[tuple[int, bytes]]:
        """What each of the others answers to a request without a body; one that is gone, or does
        not answer in time, has nothing to say. One that was handed over asks nobody.
        """
        if any(name == HANDED for name, _ in scope["headers"]):
            return []
        found = await asyncio.gather(*(self._said(one, scope, patience) for one in self._others()))
        return [one for one in found if one is not None]

    def _others(self) -> list[str]:
        names = (one.stem.removeprefix("serve-") for one in self._folder.glob("serve-*.sock"))
        return [name for name in names if _NAME.fullmatch(name) and name != self.name]

    async def _said(self, process: str, scope: Scope, patience: float) -> tuple[int, bytes] | None:
        status, pieces, more = 0, list[bytes](), True

        async def send(message: Any) -> None:
            nonlocal status, more
            status, more = message.get("status", status), message.get("more_body", True)
            pieces.append(message.get("body", b""))

        try:
            async with asyncio.timeout(patience):
                there = await self.hand_over(process, scope, b"", send)
        except (TimeoutError, Unavailable):
            return None
        return (status, b"".join(pieces)) if there and not more else None

    async def _forget_dead(self, process: str) -> None:
        try:
            _, writer = await asyncio.open_unix_connection(self._path(_file(process)))
            writer.close()
        except ConnectionRefusedError:
            with suppress(FileNotFoundError):
                os.unlink(_file(process), dir_fd=self._fd)
        except OSError:
            pass  # it is none of ours, or was faster

    def _path(self, file: str) -> str:
        path = str(self._folder / file)
        if len(os.fsencode(path)) <= _LONGEST:
            return path
        return f"/proc/self/fd/{self._fd}/{file}"


def _file(process: str) -> str:
    return f"serve-{process}.sock"


def _request(scope: Scope, body: bytes) -> bytes:
    query: bytes = scope["query_string"]
    target: bytes = scope["raw_path"] + (b"?" + query if query else b"")
    method: bytes = scope["method"].encode()
    own = [(b"connection", b"close"), (b"content-length", b"%d" % len(body)), (HANDED, b"1")]
    headers = [*(one for one in scope["headers"] if one[0] not in _OWN), *own]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return method + b" " + target + b" HTTP/1.1\r\n" + lines + b"\r\n" + body


class _Answer:
    """What a parser has found since the last look, as messages of ASGI."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.over = False
        self.parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if (name := name.lower()) not in _OWN or name == b"content-length":
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        self.messages.append(
            {"type": "http.response.start", "status": status, "headers": self._headers}
        )

    def on_body(self, body: bytes) -> None:
        self.messages.append({"type": "http.response.body", "body": body, "more_body": True})

    def on_message_complete(self) -> None:
        self.messages.append({"type": "http.response.body", "body": b"", "more_body": False})
        self.over = True


async def _answered(reader: asyncio.StreamReader, send: Send) -> None:
    """As it comes. If the other ends in the middle, so does the answer: who waits for it sees a
    connection that was cut off.
    """
    answer, begun = _Answer(), False
    while not answer.over:
        data = await _read(reader)
        if not data and begun:
            return
        if not data:
            raise Unavailable("The server process that had this request has ended: make it anew.")
        begun = True
        answer.parser.feed_data(data)
        for message in answer.messages:
            await send(message)
        answer.messages.clear()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(_PIECE)
    except ConnectionError:
        return b""
