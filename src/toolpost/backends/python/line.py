"""Frames over one socket to a worker: four bytes of length and as many of JSON.

``worker.py`` has one for each process that it talks to. What arrives is bounded here and read
there.
"""

from __future__ import annotations

import array
import asyncio
import socket
from collections.abc import Sequence
from typing import Final, Protocol

_CHUNK: Final = 16 * 1024


class Listener(Protocol):
    """Who hears a line: whole frames, one that is too large, and that the other side has closed."""

    def heard(self, line: Line, body: bytes) -> None: ...

    def heard_too_much(self, line: Line) -> None: ...

    def cut_off(self, line: Line) -> None: ...


class Line:
    """Our end of a socket pair, on the running loop; ``most`` bytes may be in a frame."""

    __slots__ = ("_incoming", "_listener", "_loop", "_most", "_outgoing", "_sock")

    def __init__(self, sock: socket.socket, listener: Listener, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._listener = listener
        self._most = most
        self._incoming = bytearray()
        self._outgoing = memoryview(b"")
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self.read)

    @property
    def is_open(self) -> bool:
        return self._sock.fileno() >= 0

    def send(self, body: bytes, fds: Sequence[int] = ()) -> bool:
        """False if nobody is there any more to read it. ``fds`` are handed over with it."""
        frame = len(body).to_bytes(4, "big") + body
        try:
            if fds:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
                sent = self._sock.sendmsg([frame], [rights])
            else:
                sent = self._sock.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        if sent < len(frame):
            self._outgoing = memoryview(frame)[sent:]
            self._loop.add_writer(self._sock.fileno(), self._write)
        return True

    def read(self) -> bool:
        """Take in what has arrived; False if nothing has."""
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._listener.cut_off(self)
        elif not self._incoming and int.from_bytes(data[:4], "big") + 4 == len(data):
            self._listener.heard(self, data[4:])  # the usual case: one whole frame
        else:
            self._incoming += data
            self._take_frames()
        return bool(data)

    def mute(self) -> None:
        """Hear nothing more, and leave the line open: the other side does not notice."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self.mute()
            self._sock.close()

    def _write(self) -> None:
        try:
            sent = self._sock.send(self._outgoing)
        except BlockingIOError:
            return
        except OSError:
            self._listener.cut_off(self)
            return
        self._outgoing = self._outgoing[sent:]
        if not self._outgoing:
            self._loop.remove_writer(self._sock.fileno())

    def _take_frames(self) -> None:
        buffer = self._incoming
        while len(buffer) >= 4 and self.is_open:
            end = int.from_bytes(buffer[:4], "big") + 4
            if end - 4 > self._most:
                self._listener.heard_too_much(self)
            elif len(buffer) < end:
                return
            else:
                body = bytes(buffer[4:end])
                del buffer[:end]
                self._listener.heard(self, body)
        if not self.is_open:
            buffer.clear()
