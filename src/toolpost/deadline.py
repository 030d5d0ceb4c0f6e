"""A time limit that costs nothing until a coroutine suspends.

``asyncio.timeout`` arms a timer for every call, comes back late from a coroutine that swallows its
cancellation, and calls that a success. ``invoke.py`` drives the coroutine by hand: the alarm is
armed at the first suspension; at the limit the coroutine is cancelled; if it clings to life for
longer than a grace period it is left to itself in a task of its own (``strays``) and the caller
goes on.

Only a coroutine that blocks the thread cannot be interrupted; it comes back late, but not as a
success. While a person answers what a tool asks, or the tool has no worker yet, its time does not
run (``paused``).
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from toolpost.call import Call
from toolpost.errors import Outcome, TimedOut
from toolpost.result import Metadata

T = TypeVar("T")
GRACE = 1.0
TICK = 0.02
COARSE = 1.0
"""From so many seconds on a limit may be overstepped by a tick."""
_CROWD: Final = 1024
_Strays = set[asyncio.Task[Any]]


_ASK_FOR_LESS: Final = "Ask for less at a time, or use another tool."
_NOT_BEGUN = "it had not begun"


def not_begun(call_id: str | None = None) -> asyncio.CancelledError:
    """Raised by what was cancelled while it still waited for its turn: nothing has happened.
    Outside of the run it names the call, because a tool may call others.

    A class of its own would not do: ``asyncio.timeout`` knows a cancellation by its exact class.
    """
    return asyncio.CancelledError(*((_NOT_BEGUN,) if call_id is None else (_NOT_BEGUN, call_id)))


def had_not_begun(exc: BaseException, call_id: str) -> bool:
    """Whether the call was cancelled before its tool was reached."""
    return isinstance(exc, asyncio.CancelledError) and exc.args == (_NOT_BEGUN, call_id)


@contextmanager
def after_a_run() -> Iterator[None]:
    """The call has run before: a cancellation while it waits to run again says nothing of that."""
    try:
        yield
    except asyncio.CancelledError as exc:
        if exc.args[:1] == (_NOT_BEGUN,):
            raise asyncio.CancelledError from None
        raise


_since: dict[str, float] = {}
"""The calls whose time does not run now, and since when."""


@contextmanager
def paused(call: Call) -> Iterator[None]:
    """A person is asked what the tool wants to know, or no worker is free: that is not the tool's
    time.
    """
    if call.call_id in _since:  # asked two things at once, they have that time once
        yield
        return
    _since[call.call_id] = monotonic()
    try:
        yield
    finally:
        call.about.waited_ms += (monotonic() - _since.pop(call.call_id)) * 1000


def _waited(about: Metadata) -> float:
    since = _since.get(about.call_id)
    return about.waited_ms / 1000 + (0.0 if since is None else monotonic() - since)


class _Wheel:
    """The alarms of one loop by the tick in which they ring: one timer a tick, however many runs.

    Arming is an entry in a set, and a timer of its own costs four objects that the collector has
    to look at and a place in a heap. An alarm rings up to a tick late. A tick whose alarms are all
    disarmed stays until there are many such: its limit may be hours away.
    """

    __slots__ = ("_context", "_crowded", "_ticks", "_timers")

    def __init__(self) -> None:
        self._ticks: dict[int, set[Alarm]] = {}
        self._timers: WeakValueDictionary[int, asyncio.TimerHandle] = WeakValueDictionary()
        """The loop has them. They have the loop, which is to go when nobody else has it."""
        self._crowded = _CROWD
        self._context = Context()  # not that of the call which happens to be first in its tick

    def arm(self, alarm: Alarm) -> set[Alarm]:
        """What it is in from now on: taken out of there, it will not ring."""
        tick = int(alarm.ends / TICK) + 1
        armed = self._ticks.get(tick)
        if armed is None:
            if len(self._ticks) >= self._crowded:
                self._thin_out()
            armed = self._ticks[tick] = set()
            self._timers[tick] = alarm.loop.call_later(
                tick * TICK - monotonic(), self._turn, tick, context=self._context
            )
        armed.add(alarm)
        return armed

    def _thin_out(self) -> None:
        for tick in [tick for tick, armed in self._ticks.items() if not armed]:
            del self._ticks[tick]
            self._timers.pop(tick).cancel()
        self._crowded = 2 * len(self._ticks) + _CROWD

    def _turn(self, tick: int) -> None:
        for alarm in tuple(self._ticks.pop(tick)):
            alarm.ring()


_wheels: WeakKeyDictionary[asyncio.AbstractEventLoop, _Wheel] = WeakKeyDictionary()


def _wheel(loop: asyncio.AbstractEventLoop) -> _Wheel:
    wheel = _wheels.get(loop)
    if wheel is None:
        wheel = _wheels[loop] = _Wheel()
    return wheel


class Alarm(msgspec.Struct, eq=False, gc=False):
    """Cancels its task at the limit, and once more when the grace is over.

    Unknown to the collector, for there is one for every run that waits: it ends with its run.
    """

    _task: asyncio.Task[Any]
    _before: int
    seconds: float
    ends: float
    loop: asyncio.AbstractEventLoop
    _about: Metadata
    _waited: float
    """What it had waited for before."""
    _latest: float | None
    rung: int = 0
    abandoned: bool = False
    _timer: asyncio.TimerHandle | None = None
    _armed: set[Any] | None = None

    def arm(self) -> None:
        if self.seconds >= COARSE:
            self._armed = _wheel(self.loop).arm(self)
        else:
            self._timer = self.loop.call_later(max(0.0, self.ends - monotonic()), self.ring)

    def ring(self) -> None:
        if (left := self._put_off() - monotonic()) > 0:
            self._timer = self.loop.call_later(max(left, TICK), self.ring)
            return
        self.rung += 1
        self._timer = self.loop.call_later(GRACE, self._give_up)
        self._task.cancel()

    def _put_off(self) -> float:
        """The end, later by as long as a person was asked; never beyond the caller's deadline."""
        waited = _waited(self._about)
        self.ends, self._waited = self.ends + waited - self._waited, waited
        if self._latest is not None and self.ends > self._latest:
            self.ends = self._latest
        return self.ends

    def _give_up(self) -> None:
        self.rung += 1
        self.abandoned = True
        self._task.cancel()

    def verdict(self, exc: BaseException | None) -> BaseException | None:
        """Disarm, and say what to raise in the place of how the run ended, if anything."""
        if self._armed is not None:
            self._armed.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        task = self._task
        del self._task  # a traceback may hold us, and the task hold that: nobody would see the ring
        for _ in range(self.rung):
            task.uncancel()
        waited = isinstance(exc, asyncio.CancelledError) and exc.args == (_NOT_BEGUN,)
        if task.cancelling() > self._before:  # somebody outside wants it, whatever came
            return not_begun(self._about.call_id) if waited else asyncio.CancelledError()
        if self.rung:
            if waited:
                return _never_began(max(self.seconds, _waited(self._about)))
            return timed_out(self.seconds)
        if exc is None:
            on_time = monotonic() <= self._put_off()  # ``ends`` is looked at once more, later
            return None if on_time else timed_out(self.seconds, effects="done")
        return None if passes(exc) else gave_up()


def armed(seconds: float, began: float, call: Call) -> Alarm:
    """The alarm of a run that has suspended for the first time."""
    task, about = asyncio.current_task(), call.about
    assert task is not None, "a time limit needs a running task"
    alarm = Alarm(
        task, task.cancelling(), seconds, began + seconds, task.get_loop(),
        about, about.waited_ms / 1000, call.deadline,
    )  # fmt: skip
    alarm.arm()
    return alarm


def gave_up() -> RuntimeError:
    return RuntimeError("the tool gave up: sys.exit(), or a cancellation that nobody asked for")


def passes(exc: BaseException) -> bool:
    """What goes on to the caller as it is; the rest is a failure of the tool, and only that."""
    if isinstance(exc, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(exc, Exception | KeyboardInterrupt | GeneratorExit)


def timed_out(seconds: float, effects: Outcome = "unknown") -> TimedOut:
    seconds = round(seconds, 3)
    return TimedOut(timeout_message(seconds), details={"seconds": seconds}, effects=effects)


def timeout_message(seconds: float, attempts: int = 1, total: float = 0.0) -> str:
    """What the caller reads; ``total``: the seconds of all attempts and the pauses between them."""
    more = f", {attempts} attempts, {total:.1f}s in all" if attempts > 1 else ""
    return f"Operation timed out after {seconds:g}s{more}. {_ASK_FOR_LESS}"


def _never_began(seconds: float) -> TimedOut:
    seconds = round(seconds, 3)
    return TimedOut(
        f"Operation timed out after {seconds:g}s of waiting for its turn; the tool did not run. "
        "Try again later.",
        details={"seconds": seconds},
        effects="none",
        remedy="wait",
    )


def resting(waiting: Any, alarm: Alarm) -> Generator[Any, Any, Any]:
    """Wait for what the coroutine waits for, as its task would. A task or a group of them may
    swallow a cancellation and then never end: it is waited for through a future of our own, so
    that the alarm gets us out.
    """
    if not getattr(waiting, "_asyncio_future_blocking", False) or (
        waiting.get_loop() is not alarm.loop
    ):
        return (yield waiting)  # not a future, or not of this loop: the task says so
    waiting._asyncio_future_blocking = False
    while True:
        proxy = alarm.loop.create_future()
        wake = partial(_wake, proxy)
        waiting.add_done_callback(wake)
        try:
            return (yield from proxy)
        except asyncio.CancelledError:
            if alarm.abandoned or not waiting.cancel():
                raise
        finally:
            waiting.remove_done_callback(wake)


def _wake(proxy: asyncio.Future[None], _: object) -> None:
    if not proxy.done():
        proxy.set_result(None)


def leave_behind(coro: Coroutine[Any, Any, Any], thrown: BaseException, strays: _Strays) -> None:
    task = asyncio.get_running_loop().create_task(_wander(coro, thrown), name="toolpost-stray")
    strays.add(task)
    task.add_done_callback(strays.discard)


async def _wander(coro: Coroutine[Any, Any, Any], thrown: BaseException) -> None:
    with suppress(Exception, SystemExit, asyncio.CancelledError):  # nobody waits for it any more
        await _carry_on(coro, thrown)


@types.coroutine
def _carry_on(
    coro: Coroutine[Any, Any, Any], thrown: BaseException | None
) -> Generator[Any, Any, None]:
    sent: Any = None
    while True:
        try:
            waiting = coro.send(sent) if thrown is None else coro.throw(thrown)
        except StopIteration:
            return
        try:
            sent, thrown = (yield waiting), None
        except BaseException as exc:  # noqa: BLE001 - handed on to the coroutine, as ``await`` would
            sent, thrown = None, exc
