"""Several server processes on one address, and one that watches over them.

Above: the command line. Below: the operating system. The sockets are bound once and handed down, so
that a connection is taken by whichever process is free; what must be shared is in the store. A
process that dies is replaced, after a pause that grows if it keeps dying. If the watcher dies, the
others see its end of a line close, and stop in good order.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

_log = logging.getLogger("toolpost.gateway")
_READY: Final = b"r"
_STARTS_IN: Final = 120.0
_LATER: Final = 15.0
"""Seconds beyond the drain that a process may take to end."""
_SOON, _LATEST = 0.2, 30.0
"""Seconds until a process that died is replaced, at first and at most."""
_LONG: Final = 10.0
"""One that has lived so many seconds is not one that keeps dying."""


class Watcher:
    """Runs ``command`` so many times with the sockets and a line to here, by their numbers, and
    which of them it is: one that replaces another has its number.
    """

    def __init__(
        self,
        command: Callable[[str, str, int], Sequence[str]],
        sockets: Sequence[socket.socket],
        *,
        count: int,
        drain: float,
    ) -> None:
        self._command, self._sockets = command, sockets
        self._count, self._drain = count, drain
        self._children: set[asyncio.subprocess.Process] = set()
        self._stop = asyncio.Event()
        self._starting = count
        self._all_ready = asyncio.Event()
        self._failed = 0

    async def run(self, ready: Callable[[], None]) -> int:
        """Until a signal; the exit code of one that could not even start, as a shell has it."""
        loop = asyncio.get_running_loop()
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, self._stop.set)
        keeping = [asyncio.create_task(self._keep(number)) for number in range(self._count)]
        starting = asyncio.create_task(self._told(ready))
        try:
            await self._stop.wait()
        finally:
            starting.cancel()
            await self._end(keeping)
        return self._failed

    async def _told(self, ready: Callable[[], None]) -> None:
        await self._all_ready.wait()
        ready()

    async def _keep(self, number: int) -> None:
        """One process after the other, as long as they are wanted."""
        pause, first = _SOON, True
        while not self._stop.is_set():
            began = asyncio.get_running_loop().time()
            served, end = await self._one(number, first=first)
            if self._stop.is_set():
                return
            if first and not served:
                _log.error("%s while it was starting: all of them stop", end)
                self._failed = end.code  # what is wrong now is wrong with the next one, too
                self._stop.set()
                return
            first = False
            lived = asyncio.get_running_loop().time() - began
            pause = _SOON if lived > _LONG else min(pause * 2, _LATEST)
            _log.error("%s; another one starts in %.1f s", end, pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stop.wait()

    async def _one(self, number: int, *, first: bool) -> tuple[bool, _End]:
        """A process, to its end: whether it ever served, and what that end was."""
        here, there = socket.socketpair()
        fds = [one.fileno() for one in self._sockets]
        words = self._command(",".join(map(str, fds)), str(there.fileno()), number)
        with here, there:
            child = await asyncio.create_subprocess_exec(
                sys.executable, *words, pass_fds=(*fds, there.fileno())
            )
            there.close()
            self._children.add(child)
            if self._stop.is_set():
                _send({child}, signal.SIGTERM)  # the others have been told already
            try:
                served = await _is_ready(here)
                if served and first:
                    self._starting -= 1
                    if not self._starting:
                        self._all_ready.set()
                code = await child.wait()
            finally:
                self._children.discard(child)
        return served, _End(child.pid, code)

    async def _end(self, keeping: Sequence[asyncio.Task[None]]) -> None:
        """Ask all to stop, wait as long as they may take, and no longer."""
        self._stop.set()
        _send(self._children, signal.SIGTERM)
        for one in self._sockets:
            one.close()  # whoever comes now is refused, and does not wait for nobody
        _, late = await asyncio.wait(keeping, timeout=self._drain + _LATER)
        if late:
            _log.error("%d server processes did not stop in time, and are killed", len(late))
            _send(self._children, signal.SIGKILL)
            await asyncio.wait(late)


class _End:
    """How a process ended; ``code`` is its exit code, never that of success."""

    def __init__(self, pid: int, code: int) -> None:
        self._pid, self._code = pid, code
        self.code = 128 - code if code < 0 else code or 1

    def __str__(self) -> str:
        who = f"server process {self._pid}"
        if self._code >= 0:
            return f"{who} ended with exit code {self._code}"
        try:
            name = signal.Signals(-self._code).name
        except ValueError:
            name = f"signal {-self._code}"
        return f"{who} was ended by {name}"


async def _is_ready(line: socket.socket) -> bool:
    """Whether the process at the other end says that it serves, before it ends."""
    line.setblocking(False)
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(_STARTS_IN):
            return await asyncio.get_running_loop().sock_recv(line, 1) == _READY
    return False


def _send(children: set[asyncio.subprocess.Process], which: signal.Signals) -> None:
    for child in tuple(children):
        with suppress(ProcessLookupError):
            child.send_signal(which)


class Line:
    """The other end, in a server process: it tells that it serves, and stops with the watcher."""

    def __init__(self, number: int) -> None:
        self._line = socket.socket(fileno=number)
        self._line.setblocking(False)
        os.set_inheritable(number, False)

    def tell_ready(self) -> None:
        with suppress(OSError):
            self._line.send(_READY)

    def watch(self, gone: Callable[[], None]) -> None:
        """Call this when the watcher has ended."""
        loop = asyncio.get_running_loop()

        def look() -> None:
            with suppress(BlockingIOError):
                try:
                    if self._line.recv(1):
                        return
                except ConnectionError:
                    pass
                loop.remove_reader(self._line)
                gone()

        loop.add_reader(self._line, look)


def inherited(numbers: str) -> list[socket.socket]:
    """The sockets that were handed down, by their numbers."""
    sockets = []
    for number in map(int, numbers.split(",")):
        os.set_inheritable(number, False)
        sockets.append(socket.socket(fileno=number))
    return sockets
