"""Hearing a program out: what it writes is kept up to a bound, told while it runs, and at the bound
the program is ended.

Above: shell tools and the built-in commands. Below: ``process.py``, whose child it is, and
``cold.py``, which knows whether it ever began. It refuses to know what the output means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal

from toolpost.process import Child, Exit, unhurried
from toolpost.sandbox.cold import certain, unbegun

Stream = Literal["stdout", "stderr"]
_WORDS: Final = 65536


class Heard:
    """One run of a program; ``flooded`` names the stream that went over ``most`` bytes.

    Whoever starts the program is given ``on_stdout`` and ``on_stderr``, so that nothing of what it
    writes is missed.
    """

    def __init__(self, *, most: int, tell: Callable[[Stream, bytes], None] | None = None) -> None:
        self._most = most
        self._tell = tell
        self._child: Child | None = None
        self.stdout, self.stderr = bytearray(), bytearray()
        self.flooded: Stream | None = None

    def on_stdout(self, data: bytes) -> None:
        self._hear("stdout", self.stdout, data)

    def on_stderr(self, data: bytes) -> None:
        self._hear("stderr", self.stderr, data)

    async def out(self, child: Child) -> Exit:
        """Wait for the end of the program and of all it started, unless that is attended to; a
        cancellation brings it about. ``OSError`` says that it never began.
        """
        self._child = child
        if self.flooded is not None:
            child.kill_soon()
        try:
            ending = await (child.ended() if child.attended else child.wait())
            await certain(child, ending)
        except asyncio.CancelledError:
            child.kill_soon()
            await unhurried(child.exited)
            raise
        child.hear(None, None)  # what is left of it has nothing to say
        if not child.begun and (fault := unbegun(child, ending, self.last_words)) is not None:
            raise fault
        return ending

    @property
    def last_words(self) -> bytes:
        """The end of what it wrote to standard error, or else to standard output."""
        return bytes(self.stderr[-_WORDS:].strip() or self.stdout[-_WORDS:].strip())

    def _hear(self, name: Stream, kept: bytearray, data: bytes) -> None:
        if self.flooded is not None or not data:
            return
        room = self._most - len(kept)
        kept += data[:room]
        if len(data) > room:
            self.flooded = name
            if self._child is not None:
                self._child.kill_soon()
        if self._tell is not None:
            self._tell(name, data)
