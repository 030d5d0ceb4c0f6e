"""The calls that are running through this door, so that whoever made one can stop it.

Above: the routes. Below: asyncio. A call is its id, its caller and the task that waits for it; what
runs behind the task is stopped by cancelling it, as a closed connection does. One caller has so
many at once, and the others room beside them; the owner of the machine has as many as they like. It
refuses to know jobs, which outlive their requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import time
from typing import Any, NamedTuple

from toolpost.call import Caller
from toolpost.errors import Cancelled, RateLimited, Unavailable
from toolpost.failure import failure
from toolpost.result import Metadata, Result
from toolpost.spec import Effects


class Running(NamedTuple):
    """One call on its way."""

    tool: str
    caller: Caller
    task: asyncio.Task[Any]
    since: float


class InFlight:
    """``each``: how many one caller may have; ``None``: any number."""

    def __init__(self, each: int | None = None) -> None:
        self._running: dict[str, tuple[str, Caller, asyncio.Task[Any], float]] = {}
        self._each = each
        self._counts: dict[str, int] = {}
        """Of callers who are bounded, by their principals: how many they have."""
        self._stopped: set[str] = set()
        self.stopping = False
        """Whether the server has been told to stop, and only finishes what it has."""

    async def carried(
        self,
        call_id: str,
        tool: str,
        caller: Caller,
        task: asyncio.Task[Any],
        execute: Callable[[], Awaitable[Result]],
    ) -> Result:
        """The result, also of a call that its caller has stopped by its id; ``task`` is what then
        is cancelled.
        """
        self.enter(call_id, tool, caller, task)
        try:
            return await execute()
        except asyncio.CancelledError:
            if not self.was_stopped(call_id, task):
                raise
            return stopped(tool, call_id)
        finally:
            self.leave(call_id, caller)

    def was_stopped(self, call_id: str, task: asyncio.Task[Any]) -> bool:
        """Whether its caller has stopped a call that was cancelled."""
        if call_id not in self._stopped:
            return False
        task.uncancel()  # it was meant for the call, and that has ended
        return True

    def enter(self, call_id: str, tool: str, caller: Caller, task: asyncio.Task[Any]) -> None:
        if self._each is not None and not caller.owner:
            who = caller.principal
            count = self._counts.get(who, 0)
            if count >= self._each:
                raise RateLimited(
                    f"{count} calls of yours are running: wait until one of them has ended.",
                    retry_after=1.0,
                )
            self._counts[who] = count + 1
        self._running[call_id] = (tool, caller, task, time())

    def leave(self, call_id: str, caller: Caller) -> None:
        del self._running[call_id]
        if self._stopped:
            self._stopped.discard(call_id)
        if not self._counts:
            return
        who = caller.principal
        if (left := self._counts.get(who)) is not None:
            if left > 1:
                self._counts[who] = left - 1
            else:
                del self._counts[who]

    def __len__(self) -> int:
        return len(self._running)

    def of(self, caller: Caller) -> Sequence[tuple[str, Running]]:
        """The calls of one caller, the oldest first."""
        running = [(call_id, Running(*one)) for call_id, one in self._running.items()]
        return [(call_id, one) for call_id, one in running if _same(one.caller, caller)]

    def stop(self, call_id: str, caller: Caller) -> bool:
        """Cancel a call, if it is this caller's; another's is not there."""
        if (found := self._running.get(call_id)) is None:
            return False
        one = Running(*found)
        if not _same(one.caller, caller):
            return False
        self._stopped.add(call_id)
        one.task.cancel()
        return True

    def another_s(self, call_id: str, caller: Caller) -> Running | None:
        """The call of this id, if somebody else has made it."""
        found = self._running.get(call_id)
        return None if found is None or _same(found[1], caller) else Running(*found)


def this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None, "requests are tasks"
    return task


def stopped(tool: str, call_id: str) -> Result:
    fault = Cancelled("The call was stopped by its caller.")
    error = failure(fault, tool=tool, call_id=call_id, effects="once")
    return Result(error=error, metadata=Metadata(call_id))


def cut_off(effects: Effects) -> Unavailable:
    """What is said of a call that the end of the server has stopped; ``effects``: its tool's."""
    if effects == "once":
        return Unavailable(
            "The gateway is being stopped. The call may have been done all the same: find out "
            "before anything is tried again.",
            effects="unknown",
            retryable=False,
            remedy="stop",
        )
    return Unavailable("The gateway is being stopped. Try again soon.", effects="unknown")


def _same(one: Caller, other: Caller) -> bool:
    return one is other or one.principal == other.principal
