"""Sandboxes started ahead, each for one description and for one use.

Above: ``sandbox.py`` asks for one and fills up behind it. Below: a stem that has become a sandbox
in which ``_inner.py`` waits. It refuses to know which layers there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Sequence
from typing import Any, Final

from toolpost.process import Child
from toolpost.sandbox.plan import TALK, Plan
from toolpost.sandbox.stem import Lost, Stem, heard, send

_WORD: Final = re.compile(rb"(started|failed|exit)(?: (\d{1,6}))?(?: (\d{1,12}))?")
_MOST: Final = 256


class Warm:
    """A sandbox that waits for its program."""

    def __init__(self, stem: Stem, talk: socket.socket, paths: Sequence[str]) -> None:
        self.child: Child = stem.child
        self._talk = talk
        self._seen = [(path, _identity(path)) for path in paths]
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._ordered = False
        self._folder = ""

    @classmethod
    async def start(cls, stem: Stem, plan: Plan, paths: Sequence[str]) -> Warm:
        """``paths`` are what it shows; it is stale once one of them is another."""
        assert plan.data["fds"] == [TALK]
        talk, far_end = socket.socketpair()
        talk.setblocking(False)
        try:
            made = cls(stem, talk, paths)
            await stem.follow(plan, [far_end.fileno()])
            far_end.close()
            await heard(talk, expected=b"+")
        except BaseException:
            far_end.close()
            talk.close()
            await stem.discard()
            raise
        made._listen()
        return made

    @property
    def usable(self) -> bool:
        """It lives, and the host's paths are still those that it shows."""
        if self._started.done() or self.child.exited.done() or self._talk.fileno() < 0:
            return False
        return all(_identity(path) == seen for path, seen in self._seen)

    async def become(
        self,
        argv: Sequence[str],
        *,
        env: dict[str, str],
        folder: str,
        fds: Sequence[tuple[int, int]],
    ) -> Child:
        """The program, in the place of what waits; raises ``OSError`` as ``exec`` does, with the
        folder as its ``filename`` if that cannot be entered, or ``Lost``.

        ``fds`` says which of our descriptors gets which number inside, in pairs.
        """
        message = (list(argv), env, folder, [target for _, target in fds])
        self._folder = folder
        try:
            await self._order(message, [ours for ours, _ in fds])
            await self._started  # its death is heard of; for how long to wait is the caller's
        except BaseException:
            self.child.kill_soon()
            self._hang_up()
            raise
        return self.child

    async def _order(self, message: Any, fds: Sequence[int]) -> None:
        if self._talk.fileno() < 0:
            raise Lost("the sandbox ended before it had an order")
        try:
            await send(self._talk, message, fds)
        except OSError as fault:
            if isinstance(fault, ConnectionError) or self._talk.fileno() < 0:
                raise Lost("the sandbox ended before it had its order") from fault
            raise
        self._ordered = True

    def _listen(self) -> None:
        """From inside we hear earlier, and more exactly, how the program ended."""
        self._loop.add_reader(self._talk.fileno(), self._told)
        self.child.exited.add_done_callback(self._gone)

    def _told(self) -> None:
        """What comes from inside may come from the tool: no more of it is believed than it could
        bring about anyway. That its order was left unread, the kernel says.
        """
        try:
            said = self._talk.recv(_MOST)
        except BlockingIOError:
            return
        except ConnectionResetError:
            said = b""
            self._fail(Lost("the sandbox ended before it had read its order"))
        except OSError:
            said = b""
        found = [_WORD.fullmatch(word) for word in said.splitlines()]
        try:
            for one in found:
                if one is None:
                    raise ValueError("no word that is known here")
                self._hear(one[1], int(one[2] or 0), int(one[3] or 0))
        except ValueError:  # an end that no process can have is not a word either
            self.child.kill_soon()
            self._hang_up()
        if not found:
            self._hang_up()
            if self.child.on_leaving is not None:  # it ought to be
                self.child.on_leaving(self.child)
        if self.child.exited.done():
            self._gone(None)

    def _hear(self, word: bytes, number: int, more: int) -> None:
        if word == b"exit":
            self.child.has_ended(number, max_rss=more * 1024)
            self._loop.call_soon(self._hang_up)  # it rests until then; behind those who wait
        elif not self._started.done():
            if word == b"failed":
                about = (self._folder,) if more else ()
                self._started.set_exception(OSError(number, os.strerror(number), *about))
            else:
                self._started.set_result(None)

    def _gone(self, _: object) -> None:
        """After the order, what has ended may have begun before: its end says how."""
        if self._ordered and not self._started.done():
            if self._talk.fileno() >= 0:
                self._told()  # it may never have read it; if that is not clear yet, it will be
                return
            self._started.set_result(None)
        self._fail(ChildProcessError("the sandbox ended before its program had begun"))
        self._hang_up()

    def _fail(self, fault: ChildProcessError) -> None:
        if not self._started.done():
            self._started.set_exception(fault)
            self._started.exception()  # there may be nobody who waits for it

    def _hang_up(self) -> None:
        if self._talk.fileno() >= 0:
            self._loop.remove_reader(self._talk.fileno())
            with contextlib.suppress(OSError):
                self._talk.shutdown(socket.SHUT_RDWR)  # somebody may have forked us
            self._talk.close()

    async def discard(self) -> None:
        self._hang_up()
        await self.child.kill()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        about = os.stat(path)  # noqa: PTH116 - hot: once for every path and call
    except OSError:
        return None
    return about.st_dev, about.st_ino
