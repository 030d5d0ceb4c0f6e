"""A job that this process runs, or is about to: written only as long as it is ours.

Above: ``running``. Below: ``board``. What a tool tells while it runs goes to those who follow the
job here at once, and into the store now and then. It refuses to know how a job is run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from toolpost.call import Progress
from toolpost.errors import CallError
from toolpost.jobs.board import Board
from toolpost.jobs.values import Job, State, told
from toolpost.result import Result

_log = logging.getLogger("toolpost.jobs")
_TELL: Final = 0.3
"""Seconds between two reports that the store is told of."""
_replace = msgspec.structs.replace


class Held:
    """A job that is ours, and the version that says so."""

    def __init__(self, board: Board, holder: str, job: Job, version: int) -> None:
        self._board, self.holder, self.job, self.version = board, holder, job, version
        self.task: asyncio.Task[None] | None = None
        self.stopped = False
        """Somebody wants it to be."""
        self.outcome: Result | None = None
        """What has come of its attempt, until that is kept."""
        self.settled = False
        self.outages = 0
        """How often its turn was put off because the store was away."""
        self._since = board.monotonic()
        self.turn = asyncio.Lock()
        self.listeners: set[asyncio.Queue[Progress | None]] = set()
        self._telling: asyncio.Task[None] | None = None
        self._report: Progress | None = None

    def waited(self) -> float:
        """Seconds since it is ours, whatever the clock on the wall does."""
        return self._board.monotonic() - self._since

    async def take(self) -> bool:
        """Make it ours; ``False``: somebody else was faster."""
        job = _replace(self.job, holder=self.holder)
        if (version := await self._board.change(job, self.version)) is not None:
            self.job, self.version = job, version
        return version is not None

    async def write(self, job: Job) -> bool:
        """Make it so in the store; ``False``: it is ours no more."""
        async with self.turn:
            return await self._written(job)

    async def _written(self, job: Job) -> bool:
        version = await self._board.change(job, self.version)
        if version is None and await self._still_ours():
            version = await self._board.change(job, self.version)
        if version is None:
            return False
        self.job, self.version = job, version
        return True

    async def end(self, result: Result, state: State) -> bool:
        async with self.turn:
            ended = await self._board.end(self.job, self.version, result, state=state)
            if ended is None and await self._still_ours():
                ended = await self._board.end(self.job, self.version, result, state=state)
            return ended is not None

    async def _still_ours(self) -> bool:
        """Whether it was us who wrote last, and did not hear of it: the store was away, or we were
        stopped meanwhile.
        """
        there = await self._board.found(self.job.id)
        if there is None or there[0].over or there[0].holder != self.holder:
            return False
        self.job, self.version = there
        return True

    def hearing(self, loop: asyncio.AbstractEventLoop) -> Callable[[Progress], None]:
        """What a tool tells its reports, from whichever thread."""

        def hear(report: Progress) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody listens
                loop.call_soon_threadsafe(self._heard, report)

        return hear

    def tell(self, report: Progress | None) -> None:
        for listener in self.listeners:
            if listener.full():
                listener.get_nowait()
            listener.put_nowait(report)

    def _heard(self, report: Progress) -> None:
        self.tell(report)
        if (report.done, report.total, report.message) != (None, None, None):
            self._report = told(report)
            if self._telling is None or self._telling.done():
                self._telling = asyncio.get_running_loop().create_task(self._tell_store())

    async def _tell_store(self) -> None:
        """The last report, a few times a second at most."""
        await asyncio.sleep(_TELL)
        async with self.turn:  # whoever had it before us may have let the job go
            report, self._report = self._report, None
            if self.task is None or self.job.state != "running":
                return
            try:
                await self._written(_replace(self.job, progress=report))
            except CallError as fault:
                _log.warning("the progress of %s cannot be kept: %s", self.job.id, fault)
