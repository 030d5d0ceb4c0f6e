"""The calls that run in a worker now: each says that it does, and can be told to stop.

Above: ``worker.py``. Below: the bus. What a call is, is not known here.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from toolpost.bus.connection import Bus
from toolpost.bus.large import Large
from toolpost.bus.wire import ALIVE, PROGRESS, said
from toolpost.call import Progress

_log = logging.getLogger("toolpost.worker")
BEAT: Final = 0.5
_MOST_REPORTS: Final = 1000
_MOST_EARLY: Final = 1000
_LAST: Final = 2.0
T = TypeVar("T")


def begun(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task that has run to its first pause already, where Python can do that: most have ended."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)
    return asyncio.create_task(work)


class Run:
    """One call, from when it arrives. Once its ticket was read it has a ``nonce``, by which it can
    be cancelled; ``report`` is told how far it is.
    """

    def __init__(self, reply: str) -> None:
        self.reply, self.nonce, self.call_id = reply, "", ""
        self.heard = self.cancelled = False
        self.reports: deque[Progress]
        self.news: asyncio.Event
        self.task: asyncio.Task[Any] | None = None
        self.telling: asyncio.Task[None] | None = None

    def report(self, progress: Progress) -> None:
        if len(self.reports) >= _MOST_REPORTS:  # a flood: of how far it is, the newest will do
            for place, old in enumerate(self.reports):
                if old.partial is None:
                    del self.reports[place]
                    break
            else:
                return
        self.reports.append(progress)
        self.news.set()


class Runs:
    """All of them."""

    def __init__(self, bus: Bus, large: Large) -> None:
        self._bus, self._large = bus, large
        self._runs: set[Run] = set()
        self._beating: asyncio.Task[None] | None = None
        self._early: dict[str, None] = {}
        """The nonces that were to be cancelled and were not here, the oldest first: of calls that
        others have, and of some that come yet, for a cancellation may overtake its call.
        """

    def __len__(self) -> int:
        return len(self._runs)

    def begin(self, run: Run) -> None:
        """The task that this is called in runs it from now on."""
        self._runs.add(run)
        run.task = asyncio.current_task()
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._beat())

    async def told(self, run: Run) -> None:
        """It reports nothing more; what it has reported is on the bus when this returns."""
        if run.telling is not None:
            run.heard = False
            run.news.set()
            with suppress(Exception):  # it is only how far it was
                await asyncio.wait_for(run.telling, _LAST)

    def over(self, run: Run) -> None:
        """It has ended, and been answered: nothing more is said of it."""
        self._runs.discard(run)
        if run.telling is not None:
            run.heard = False
            run.news.set()

    def hear(self, run: Run) -> None:
        """From now on, what it reports is told."""
        run.heard, run.reports, run.news = True, deque(), asyncio.Event()
        run.telling = asyncio.create_task(self._tell(run))

    def named(self, run: Run, nonce: str) -> None:
        """By this it can be cancelled from now on, or has been."""
        run.nonce = nonce
        if nonce in self._early:
            del self._early[nonce]
            run.cancelled = True
            raise asyncio.CancelledError

    def cancel(self, nonce: str) -> None:
        for run in self._runs:
            if run.nonce == nonce and run.task is not None:
                run.cancelled = True
                run.task.cancel()
                return
        self._early[nonce] = None
        if len(self._early) > _MOST_EARLY:
            del self._early[next(iter(self._early))]

    async def end(self, seconds: float) -> None:
        """Wait for those that run, for so long; then stop them."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while self._runs and (left := ends - loop.time()) > 0:
            tasks = [run.task for run in self._runs if run.task is not None]
            await asyncio.wait(tasks, timeout=left)
        for run in tuple(self._runs):
            if run.task is not None:
                run.task.cancel()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])

    async def _beat(self) -> None:
        while True:  # first a pause: most calls have ended by then
            await asyncio.sleep(BEAT)
            if not self._runs:
                return
            for run in tuple(self._runs):
                await self._send(run, ALIVE, None)

    async def _tell(self, run: Run) -> None:
        while run.heard or run.reports:
            await run.news.wait()
            run.news.clear()
            while run.reports:
                await self._send(run, PROGRESS, run.reports.popleft())

    async def _send(self, run: Run, kind: str, payload: Any) -> None:
        body = said(kind, payload, source=self._bus.name, number=run.call_id, answers=run.call_id)
        try:
            client = await self._bus.client()
            sent, headers = await self._large.packed(client, body)
            await client.publish(run.reply, sent, headers=headers or None)
        except Exception as fault:  # noqa: BLE001 - the call goes on, whoever can be told of it
            _log.debug("a word about a call could not be sent: %r", fault)
