"""A thread that does what it is handed, each time as much as has gathered meanwhile.

Above: a store whose work would block the event loop. Below: the standard library. It refuses to
know what the work is; it only carries it over and the outcome back, to whichever loop asked.
What was handed over is done, even if nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

from toolpost.errors import Unavailable

C = TypeVar("C")
T = TypeVar("T")
Do = Callable[[C], Any]
Run = Callable[[Sequence[Do[C]]], Sequence[Any]]
"""Does a batch; gives the outcome of each, where an exception is a failure."""
_Job = tuple[Do[C], asyncio.AbstractEventLoop, asyncio.Future[Any]]
AT_ONCE: Final = 1000


class Lane(Generic[C]):
    """Jobs in, outcomes out; ``end`` is the last thing that its thread does."""

    def __init__(self, name: str, run: Run[C], end: Callable[[], None]) -> None:
        self._run, self._end = run, end
        self._jobs: SimpleQueue[_Job[C] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._taking = True
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def do(self, job: Callable[[C], T]) -> T:
        """The outcome of the job."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:  # nothing gets in behind the end
            if not self._taking:
                raise Unavailable("The store is closed.")
            self._jobs.put((job, loop, future))
        return await future

    async def stop(self) -> None:
        """Do what was handed over, then end."""
        with self._lock:
            if self._taking:
                self._taking = False
                self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        going = True
        while going:
            batch, going = self._gathered()
            if batch:
                _tell(batch, self._outcomes([do for do, _, _ in batch]))
        self._end()

    def _gathered(self) -> tuple[list[_Job[C]], bool]:
        batch: list[_Job[C]] = []
        job = self._jobs.get()
        while job is not None:
            batch.append(job)
            if len(batch) == AT_ONCE:
                return batch, True
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return batch, True
        return batch, False

    def _outcomes(self, batch: Sequence[Do[C]]) -> Sequence[Any]:
        try:
            return self._run(batch)
        except Exception as fault:  # noqa: BLE001 - a bug in a job must not leave others waiting
            return [fault] * len(batch)


def _tell(batch: Sequence[_Job[C]], outcomes: Sequence[Any]) -> None:
    """One wake-up for each loop, however many of its tasks wait."""
    told = defaultdict(list)
    for (_, loop, future), outcome in zip(batch, outcomes, strict=True):
        told[loop].append((future, outcome))
    for loop, settled in told.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in settled:
        if future.done():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
