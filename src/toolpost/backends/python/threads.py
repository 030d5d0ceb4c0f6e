"""Threads for synchronous tools: the event loop never waits, but a thread cannot be killed.

A call that is given up while its thread still runs leaves the thread *stranded*: it is counted, it
may see ``call.cancelled``, and when too many are stranded new calls are refused until some come
back. The threads are daemons, so a stranded one does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from toolpost.deadline import not_begun
from toolpost.errors import Unavailable

Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Threads:
    """Runs functions in threads; ``stranded`` is how many were given up and still run."""

    def __init__(self, *, most: int = 64, most_stranded: int = 16) -> None:
        self._room = asyncio.Semaphore(most)
        self._most_stranded = most_stranded
        self._idle: list[_Thread] = []
        self._closed = False
        self.stranded = 0

    async def run(self, function: Callable[[], Any]) -> Any:
        if self.stranded >= self._most_stranded:
            raise Unavailable(
                f"{self.stranded} earlier calls were stopped but their threads still run. "
                "Try again later; use isolation: process for tools that hang.",
                effects="none",
            )
        try:
            await self._room.acquire()
        except asyncio.CancelledError:
            raise not_begun() from None
        try:
            thread = self._idle.pop() if self._idle else _Thread(self)
            done = asyncio.get_running_loop().create_future()
            context = contextvars.copy_context()
            thread.inbox.put((lambda: context.run(function), done, done.get_loop()))
            try:
                return await done
            except asyncio.CancelledError:
                if done.cancelled():  # else the thread is back: its tool raised this itself
                    thread.strand()
                raise
        finally:
            self._room.release()

    def close(self) -> None:
        """End the threads: the idle ones now, the others when they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().inbox.put(None)

    def back(self, thread: _Thread, stranded: bool) -> None:
        if stranded:
            self.stranded -= 1
        if self._closed:
            thread.inbox.put(None)
        else:
            self._idle.append(thread)


class _Thread:
    def __init__(self, pool: Threads) -> None:
        self._pool = pool
        self._stranded = False
        self.inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="toolpost-tool", daemon=True).start()

    def strand(self) -> None:
        """Called in the loop's thread, as ``_settle`` is: the two never overlap."""
        self._stranded = True
        self._pool.stranded += 1

    def _work(self) -> None:
        while (job := self.inbox.get()) is not None:
            function, done, loop = job
            try:
                value, failed = function(), None
            except BaseException as exc:  # noqa: BLE001 - carried over to the loop, whatever it is
                value, failed = None, exc
            try:
                loop.call_soon_threadsafe(self._settle, done, value, failed)
            except RuntimeError:  # the loop is closed: nobody waits for this any more
                return
            del job, function, done, value, failed

    def _settle(self, done: asyncio.Future[Any], value: Any, failed: BaseException | None) -> None:
        self._pool.back(self, self._stranded)
        self._stranded = False
        if done.cancelled():
            return
        if failed is None:
            done.set_result(value)
        elif isinstance(failed, Exception) and not isinstance(failed, StopIteration):
            done.set_exception(failed)
        else:  # what the loop would take for its own end is only the tool's
            error = RuntimeError(f"the tool raised {type(failed).__name__}")
            error.__cause__ = failed
            done.set_exception(error)
