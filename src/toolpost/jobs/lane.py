"""A lane: jobs that wait their turn, and so many at a time that run.

Above: ``running``, which has one for what runs here and one for what runs elsewhere. It refuses to
know what running a job is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from toolpost.jobs.held import Held

_log = logging.getLogger("toolpost.jobs")


class Lane:
    """``wanted`` says whether a job is still to be run when its turn has come."""

    def __init__(
        self,
        run: Callable[[Held], Coroutine[Any, Any, None]],
        *,
        most: int,
        wanted: Callable[[Held], bool],
    ) -> None:
        self._run, self._most, self._wanted = run, most, wanted
        self._ready: deque[Held] = deque()
        self.tasks: set[asyncio.Task[None]] = set()

    def __contains__(self, held: object) -> bool:
        """Whether it waits its turn."""
        return held in self._ready

    def put(self, held: Held) -> None:
        self._ready.append(held)
        self._fill()

    def clear(self) -> None:
        """Nobody else has a turn."""
        self._ready.clear()

    def _fill(self) -> None:
        while self._ready and len(self.tasks) < self._most:
            held = self._ready.popleft()
            if self._wanted(held) and held.task is None:
                held.task = asyncio.create_task(self._run(held))
                self.tasks.add(held.task)
                held.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.error("a job cannot be run", exc_info=fault)
        self._fill()
