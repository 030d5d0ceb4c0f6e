"""Running a coroutine under a time limit that costs nothing until the coroutine suspends.

``asyncio.timeout`` arms a timer for every call, comes back late from a coroutine that swallows its
cancellation, and calls that a success. Here the coroutine is driven by hand: the timer is armed at
the first suspension; at the limit the coroutine is cancelled; if it clings to life for longer than
a grace period it is left to itself in a task of its own (``strays``) and the caller goes on.

Only a coroutine that blocks the thread cannot be interrupted; it comes back late, but not as a
success.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from time import monotonic
from typing import Any, TypeVar

from toolpost.errors import InternalError, Outcome, TimedOut

T = TypeVar("T")
GRACE = 1.0


class _Alarm:
    """Cancels its task at the limit, and once more when the grace is over."""

    __slots__ = ("_before", "_task", "_timer", "abandoned", "rung")

    def __init__(self, seconds: float) -> None:
        task = asyncio.current_task()
        assert task is not None, "a time limit needs a running task"
        self._task, self._before = task, task.cancelling()
        self.rung, self.abandoned = 0, False
        self._timer = task.get_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self.rung += 1
        self._task.cancel()

    def give_grace(self) -> None:
        self._timer = self._task.get_loop().call_later(GRACE, self._give_up)

    def _give_up(self) -> None:
        self.abandoned = True
        self._ring()

    def off(self) -> bool:
        """Disarm; true if somebody outside wants the task cancelled."""
        self._timer.cancel()
        for _ in range(self.rung):
            self._task.uncancel()
        return self._task.cancelling() > self._before


@types.coroutine
def limited(
    coro: Coroutine[Any, Any, T], seconds: float, strays: set[asyncio.Task[Any]]
) -> Generator[Any, Any, T]:
    """``await limited(coro, 5.0, strays)``: its result, or ``TimedOut``."""
    ends = monotonic() + seconds
    try:
        waiting = coro.send(None)
    except StopIteration as stop:
        if monotonic() > ends:
            raise timed_out(seconds, effects="done") from None
        return stop.value  # type: ignore[no-any-return]
    except (SystemExit, asyncio.CancelledError) as exc:
        raise _left(exc) from exc
    alarm = _Alarm(seconds)
    late = False
    try:
        while True:
            try:
                sent, thrown = (yield waiting), None
            except BaseException as exc:  # a cancellation, or what the awaited future raised
                sent, thrown = None, exc
                if alarm.abandoned:
                    _leave_behind(coro, exc, strays)
                    raise
                if alarm.rung and not late:
                    late = True
                    alarm.give_grace()
            waiting = coro.send(sent) if thrown is None else coro.throw(thrown)
    except StopIteration as stop:
        if alarm.off():
            raise asyncio.CancelledError from None
        if alarm.rung:
            raise timed_out(seconds) from None
        if monotonic() > ends:
            raise timed_out(seconds, effects="done") from None
        return stop.value  # type: ignore[no-any-return]
    except BaseException as exc:
        if alarm.off():
            raise asyncio.CancelledError from exc
        if alarm.rung:
            raise timed_out(seconds) from exc
        if isinstance(exc, SystemExit | asyncio.CancelledError):
            raise _left(exc) from exc
        raise


def _left(exc: BaseException) -> BaseException:
    """``sys.exit`` in a tool, or a cancellation nobody asked for: the tool's failure, not ours."""
    task = asyncio.current_task()
    if isinstance(exc, asyncio.CancelledError) and task is not None and task.cancelling():
        return asyncio.CancelledError()
    return InternalError("The tool gave up without a result. Use another tool.")


def timed_out(seconds: float, effects: Outcome = "unknown") -> TimedOut:
    return TimedOut(
        f"Operation timed out after {seconds:g}s. Ask for less at a time, or use another tool.",
        details={"seconds": seconds},
        effects=effects,
    )


def _leave_behind(
    coro: Coroutine[Any, Any, Any], thrown: BaseException, strays: set[asyncio.Task[Any]]
) -> None:
    task = asyncio.get_running_loop().create_task(_wander(coro, thrown), name="toolpost-stray")
    strays.add(task)
    task.add_done_callback(strays.discard)


async def _wander(coro: Coroutine[Any, Any, Any], thrown: BaseException) -> None:
    try:
        await _carry_on(coro, thrown)
    except (Exception, asyncio.CancelledError):  # nobody waits for it any more
        pass


@types.coroutine
def _carry_on(coro: Coroutine[Any, Any, Any], thrown: BaseException | None) -> Generator[Any, Any, Any]:
    sent: Any = None
    while True:
        try:
            waiting = coro.send(sent) if thrown is None else coro.throw(thrown)
        except StopIteration as stop:
            return stop.value
        try:
            sent, thrown = (yield waiting), None
        except BaseException as exc:  # handed on to the coroutine, as ``await`` would
            sent, thrown = None, exc
