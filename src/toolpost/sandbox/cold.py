"""A sandbox made for one call, where none waits: its end is heard from bubblewrap itself, and, at
the end, that there was no beginning.

Above: ``sandbox.py``. Below: a stem, and the plan for it. That all of it is gone is told by the
keeper, as always, a good while later.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
from collections.abc import Sequence
from typing import Final

from toolpost.process import Child, Exit
from toolpost.sandbox.plan import Plan
from toolpost.sandbox.stem import Stem

_ENDED: Final = re.compile(rb'"exit-code": (\d{1,3})\b')
_MOST: Final = 4096
_WHY: Final = re.compile(rb"bwrap: (?:(?:Can't chdir to|execvp) (.+)|.+): ([^:\n]+)\Z", re.DOTALL)
_NUMBERS: Final = {os.strerror(number): number for number in errno.errorcode}


async def certain(child: Child, ending: Exit) -> None:
    """Wait until it is known whether it began, if that is in doubt: a keeper may be heard first."""
    if ending.code == 1 and child.before_gone is not None:
        await child.wait()


def unbegun(child: Child, ending: Exit, said: bytes) -> OSError | None:
    """Why a program that has ended never began, if so: what it ``said`` is then bubblewrap's own.
    The ``filename`` is what could not be entered or started.
    """
    if child.begun or ending.killed or ending.code != 1:
        return None
    found = _WHY.search(said.strip())
    if found is None or found[2].decode() not in _NUMBERS:
        return ChildProcessError(said.decode(errors="replace").strip())
    why = found[2].decode()
    return OSError(_NUMBERS[why], why, *(() if found[1] is None else (os.fsdecode(found[1]),)))


async def become(stem: Stem, plan: Plan, fds: Sequence[int]) -> Child:
    """The program of a direct plan; ``OSError`` says what could not be done."""
    ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        await stem.follow(plan, [*fds, theirs])
    except BaseException:
        os.close(ours)
        await stem.discard()
        raise
    finally:
        os.close(theirs)
    _Ear(stem.child, ours)
    return stem.child


class _Ear:
    """Hears the end of one program; nothing inside the sandbox can reach the other side."""

    def __init__(self, child: Child, fd: int) -> None:
        self._child = child
        self._fd = fd
        self._heard = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._hear)
        child.before_gone = self._hear_out
        if child.exited.done():  # so soon
            self._hear_out()

    def _hear_out(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._fd >= 0:
                self._hear()
        self._close()

    def _hear(self) -> None:
        said = os.read(self._fd, _MOST)
        self._heard = (self._heard + said)[-_MOST:]
        ended = _ENDED.search(self._heard)
        if ended is not None:
            self._child.has_ended(int(ended[1]) << 8, max_rss=0)
        elif not said:
            self._child.begun = False
        if ended is not None or not said:
            self._close()

    def _close(self) -> None:
        self._child.before_gone = None
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
