"""Sandboxes started ahead, each for one description and for one use.

Above: ``sandbox.py`` asks for one and fills up behind it. Below: a stem that has become a sandbox
in which ``_inner.py`` waits. It refuses to know which layers there are.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Final

from toolpost.process import Child
from toolpost.sandbox.plan import TALK, Plan
from toolpost.sandbox.stem import Stem, heard, send

_EXIT: Final = re.compile(rb"exit (\d{1,6}) (\d{1,12})")


class Warm:
    """A sandbox that waits for its program."""

    def __init__(self, stem: Stem, talk: socket.socket, paths: Sequence[str]) -> None:
        self.child: Child = stem.child
        self._talk = talk
        self._seen = [(path, _identity(path)) for path in paths]

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
        return made

    @property
    def usable(self) -> bool:
        """It lives, and the host's paths are still those that it shows."""
        if self.child.exited.done():
            return False
        return all(_identity(path) == seen for path, seen in self._seen)

    async def become(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        folder: str,
        fds: Sequence[tuple[int, int]],
    ) -> Child:
        """The program, in the place of what waits; raises ``OSError`` as ``exec`` does.

        ``fds`` says which of our descriptors gets which number inside, in pairs.
        """
        message = (list(argv), dict(env), folder, [target for _, target in fds])
        try:
            await send(self._talk, message, [ours for ours, _ in fds])
            await heard(self._talk, expected=b"started")
        except BaseException:
            self.child.kill_soon()
            self._talk.close()
            raise
        self._listen()
        return self.child

    def _listen(self) -> None:
        """From inside we hear earlier, and more exactly, how the program ended."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._talk.fileno(), self._told, loop)
        self.child.exited.add_done_callback(lambda _: self._hang_up(loop))

    def _told(self, loop: asyncio.AbstractEventLoop) -> None:
        found = _EXIT.fullmatch(self._talk.recv(64))
        if found is not None:
            self.child.has_ended(int(found[1]), max_rss=int(found[2]) * 1024)
        self._hang_up(loop)

    def _hang_up(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._talk.fileno() >= 0:
            loop.remove_reader(self._talk.fileno())
            self._talk.close()

    async def discard(self) -> None:
        self._talk.close()
        await self.child.kill()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        about = os.stat(path)  # noqa: PTH116 - hot: once for every path and call
    except OSError:
        return None
    return about.st_dev, about.st_ino
