"""A lane: jobs that wait their turn, and so many at a time that run.

Above: ``running``, which has one for what runs here and one for what runs elsewhere. Principals
take turns, and the jobs of each are first in, first out. A job whose tool has as many jobs running
as it has slots waits here and leaves its place to a job of another tool. It refuses to know what
running a job is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from toolpost.approvals.values import principal
from toolpost.jobs.held import Held

_log = logging.getLogger("toolpost.jobs")


class Lane:
    """``wanted`` says whether a job is still to be run when its turn has come, ``at_once`` how many
    jobs of a tool may run at the same time; ``None``: any number.
    """

    def __init__(
        self,
        run: Callable[[Held], Coroutine[Any, Any, None]],
        *,
        most: int,
        wanted: Callable[[Held], bool],
        at_once: Callable[[str], int | None],
    ) -> None:
        self._run, self._most = run, most
        self._wanted, self._at_once = wanted, at_once
        self._waiting: dict[str, dict[str, deque[Held]]] = {}
        """By principal, whose turn is next is the first; and then by tool."""
        self._ready: set[Held] = set()
        self._tools: Counter[str] = Counter()
        """How many jobs of each tool run."""
        self.tasks: set[asyncio.Task[None]] = set()

    def __contains__(self, held: object) -> bool:
        """Whether it waits its turn."""
        return held in self._ready

    def put(self, held: Held) -> None:
        tools = self._waiting.setdefault(principal(held.job.caller), {})
        tools.setdefault(held.job.tool, deque()).append(held)
        self._ready.add(held)
        self._fill()

    def clear(self) -> None:
        """Nobody else has a turn."""
        self._waiting.clear()
        self._ready.clear()

    def _fill(self) -> None:
        while len(self.tasks) < self._most and (held := self._next()) is not None:
            if self._wanted(held) and held.task is None:
                tool = held.job.tool
                held.task = asyncio.create_task(self._run(held))
                self.tasks.add(held.task)
                self._tools[tool] += 1
                held.task.add_done_callback(partial(self._ended, tool))

    def _next(self) -> Held | None:
        """The next job that may run; then the other principals have their turns."""
        for who, tools in self._waiting.items():
            for tool, jobs in tools.items():
                if self._has_room(tool):
                    held = jobs.popleft()
                    self._ready.discard(held)
                    del tools[tool], self._waiting[who]
                    if jobs:
                        tools[tool] = jobs
                    if tools:
                        self._waiting[who] = tools
                    return held
        return None

    def _has_room(self, tool: str) -> bool:
        most = self._at_once(tool)
        return most is None or self._tools[tool] < most

    def _ended(self, tool: str, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._tools[tool] -= 1
        if not self._tools[tool]:
            del self._tools[tool]
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.error("a job cannot be run", exc_info=fault)
        self._fill()
