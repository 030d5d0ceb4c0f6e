"""One program in a sandbox, heard to its end: what it wrote, up to a bound, and how it ended.

Above: ``tools.py``. Below: the sandbox, and ``process.py``, whose child it is. It refuses to know
which program it is, and why.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from toolpost.contracts import Confines
from toolpost.errors import ResourceLimit
from toolpost.process import Child, Drain, unhurried
from toolpost.sandbox import Confinement
from toolpost.sandbox.cold import unbegun

_EXCEEDED: Final = {
    "memory": "The program needed more memory than it may use. Ask for less at a time.",
    "processes": "The program wanted to start more processes than it may.",
}


class Ran(msgspec.Struct, frozen=True):
    """A signal that ended it is told as a shell does: 128 and its number."""

    exit_code: int
    stdout: str
    stderr: str
    truncated: bool


async def ran(
    sandbox: Confines,
    argv: Sequence[str],
    confinement: Confinement,
    *,
    most: int,
    begun: Callable[[], None],
) -> Ran:
    """Run it to its end, or to ``most`` bytes of output; a cancellation ends it with all it began.
    ``begun`` is called once it runs.

    ``OSError`` says that it could not be started, ``SetupError`` that it cannot be confined.
    """
    with _stream(most) as out, _stream(most) as err:
        child = await sandbox.spawn(argv, confinement, stdout=out.theirs, stderr=err.theirs)
        for stream in (out, err):
            stream.begins(child)
        begun()
        try:
            ending = await (child.ended() if child.attended else child.wait())
        except asyncio.CancelledError:
            child.kill_soon()
            await unhurried(child.exited)
            raise
        if ending.code == 1 and not child.sure:
            await child.wait()
        for stream in (out, err):
            stream.drain.read_now()
        if (fault := unbegun(child, ending, err.drain.tail)) is not None:
            raise fault
        flooded = out.flooded or err.flooded
        if ending.code != 0 and not flooded:
            for bound in sandbox.exceeded(child):
                raise ResourceLimit(_EXCEEDED[bound], details={"limit": bound})
            if ending.signal == signal.SIGKILL:
                raise ResourceLimit("The program was killed from outside.")
        status = ending.code if ending.signal is None else 128 + ending.signal
        return Ran(status or 0, out.text(), err.text(), flooded)


class _Stream:
    """A pipe, read as it is filled; whoever writes more than a bound into it is ended."""

    def __init__(self, most: int) -> None:
        ours, self.theirs = os.pipe()
        self._most = most
        self._heard = bytearray()
        self._child: Child | None = None
        self.flooded = False
        self.drain = Drain(ours, asyncio.get_running_loop())
        self.drain.on_data = self._hear

    def begins(self, child: Child) -> None:
        """Its end is the program's alone from here on."""
        self.close_theirs()
        self._child = child
        if self.flooded:
            child.kill_soon()

    def text(self) -> str:
        return self._heard.decode("utf-8", "replace")

    def close_theirs(self) -> None:
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def _hear(self, data: bytes) -> None:
        self._heard += data[: self._most - len(self._heard)]
        if self.drain.total > self._most and not self.flooded:
            self.flooded = True
            if self._child is not None:
                self._child.kill_soon()


@contextlib.contextmanager
def _stream(most: int) -> Iterator[_Stream]:
    made = _Stream(most)
    try:
        yield made
    finally:
        made.close_theirs()
        made.drain.close()
