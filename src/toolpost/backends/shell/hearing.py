"""Hearing a program out: what it writes is kept up to a bound, told while it runs, and at the bound
the program is ended.

Above: ``backend.py``. Below: ``process.py``, whose child it is, and ``telling.py``. It refuses to
know what the output means.
"""

from __future__ import annotations

import asyncio
import os
from typing import Self

from toolpost.call import Call
from toolpost.process import Child, Drain, Exit, unhurried
from toolpost.sandbox.cold import unbegun
from toolpost.telling import Telling


class Heard:
    """One run of a program; ``flooded`` names the stream that went over ``most`` bytes.

    The pipes are made before the program is there, so that nothing of what it writes is missed:
    ``stdout`` and ``stderr`` are its ends of them.
    """

    def __init__(self, call: Call, *, most: int) -> None:
        self._most = most
        self._child: Child | None = None
        self._told = None if call.on_progress is None else Telling(call)
        self.output = bytearray()
        self.flooded: str | None = None
        self._drains: list[Drain] = []
        self._ends: list[int] = []
        self.stdout, self.stderr = self._pipe("stdout"), self._pipe("stderr")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()
        for drain in self._drains:
            drain.close()

    async def out(self, child: Child) -> Exit:
        """Wait for the end of the program and of all it started, unless that is attended to; a
        cancellation brings it about. ``OSError`` says that it never began.
        """
        self._child = child
        self._let_go()
        if self.flooded is not None:
            child.kill_soon()
        try:
            ending = await (child.ended() if child.attended else child.wait())
        except asyncio.CancelledError:
            child.kill_soon()
            await unhurried(child.exited)
            raise
        if ending.code == 1 and not child.sure:
            await child.wait()
        for drain in self._drains:
            drain.read_now()
        if not child.begun and (fault := unbegun(child, ending, self.last_words)) is not None:
            raise fault
        return ending

    @property
    def last_words(self) -> bytes:
        """The end of what it wrote to standard error, or else to standard output."""
        output, errors = self._drains
        return errors.tail.strip() or output.tail.strip()

    def _pipe(self, name: str) -> int:
        reading, writing = os.pipe()
        self._ends.append(writing)
        drain = Drain(reading, asyncio.get_running_loop())
        self._drains.append(drain)

        def hear(data: bytes) -> None:
            if self.flooded is not None or not data:
                return
            if name == "stdout":
                self.output += data[: self._most - len(self.output)]
            if drain.total > self._most:
                self.flooded = name
                if self._child is not None:
                    self._child.kill_soon()
            if self._told is not None:
                self._told.hear(data, is_output=name == "stdout")

        drain.on_data = hear
        return writing

    def _let_go(self) -> None:
        """Close the program's ends here: theirs is the only one that counts."""
        while self._ends:
            os.close(self._ends.pop())
