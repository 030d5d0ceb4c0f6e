"""Slots: how many calls of a tool run at once, how many wait, and that the rest hear so at once.

The innermost guard: whoever waits for a human, for another call or for a back-off holds no slot.
A tool has ``limits.concurrency`` slots and a queue of ``limits.queue``; a group of tools, by a
pattern, may share slots of its own (``[extensions.slots.groups]``). In the queue callers take
turns, and the calls of each are first in, first out. Nobody waits
beyond his deadline. It refuses to know what a call does with its slot.

A dry run takes no slot: it does not run the tool, so a preview or the acceptance of a job neither
waits for one nor is refused because the queue is full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final, Self
from weakref import WeakValueDictionary

import msgspec

from toolpost.call import Call
from toolpost.contracts import Around, Behind, Ring, Road, Surroundings, Walk
from toolpost.deadline import not_begun
from toolpost.errors import CallError, ConfigError, QueueFull, TimedOut
from toolpost.options import Options, options_from
from toolpost.patterns import selector
from toolpost.result import NOWHERE, Result
from toolpost.spec import ToolSpec

_LONGEST: Final = 30 * 86400.0
"""Seconds that a timer of any loop can count; a deadline may be infinitely far away."""
_UNKNOWN_PACE: Final = 1.0
_SOONEST: Final = 0.05
_LATEST: Final = 60.0
"""Seconds: when who found the queue full is told to come again."""


class Share(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a group of tools has together."""

    concurrency: int = 10
    queue: int = 100


class _Settings(Options, frozen=True, kw_only=True):
    groups: Mapping[str, Share] = {}


class Slots:
    """The guard. ``gauges()`` says how full it is, for whoever shows that."""

    name = "slots"
    options = _Settings

    def __init__(self, *, groups: Mapping[str, Share] | None = None) -> None:
        self._groups = {
            pattern: _Gate(f"The group {pattern}", share.concurrency, share.queue)
            for pattern, share in (groups or {}).items()
        }
        self._members = {pattern: selector((pattern,)) for pattern in self._groups}
        # a reloaded tool keeps its gate, and one that is gone for good leaves nothing behind
        self._tools: WeakValueDictionary[str, _Gate] = WeakValueDictionary()

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        groups = options_from(options, _Settings, "extension slots").groups
        for name, share in groups.items():
            if share.concurrency < 1 or share.queue < 0:
                raise ConfigError(
                    f"extension slots: group {name!r} needs a concurrency of at least 1 and a "
                    "queue of at least 0",
                    at=("groups", name),
                )
        return cls(groups=groups)

    def bind(self, spec: ToolSpec, road: Road) -> Ring:
        gate = self._tools.get(spec.name)
        if gate is None:
            gate = self._tools[spec.name] = _Gate(spec.name, 0, 0)
        gate.resize(spec.limits.concurrency, spec.limits.queue)
        shared = [gate for p, gate in self._groups.items() if self._members[p](spec)]
        return _through_all((gate, *shared)) if shared else _through(gate)

    def at_once(self, spec: ToolSpec) -> int:
        """How many calls of a tool can run at the same time."""
        shared = [gate.most for p, gate in self._groups.items() if self._members[p](spec)]
        return min((spec.limits.concurrency, *shared))

    def gauges(self) -> dict[str, tuple[str, dict[str, float]]]:
        """How many calls run and wait right now: metric → (label, its value → the number)."""
        tools, groups = dict(self._tools).items(), self._groups.items()
        return {
            "slots_running": ("tool", {name: gate.running for name, gate in tools}),
            "slots_waiting": ("tool", {name: gate.queued for name, gate in tools}),
            "group_slots_running": ("group", {name: gate.running for name, gate in groups}),
            "group_slots_waiting": ("group", {name: gate.queued for name, gate in groups}),
        }


def _through(gate: _Gate) -> Around:
    def around(inner: Walk, failed: Callable[[Call, Exception], Result], _: Behind | None) -> Walk:
        way = NOWHERE

        async def step(call: Call) -> Result:
            nonlocal way
            waited = 0.0
            if call.about.trail is way[0]:
                call.about.trail = way[1]
            else:
                way = call.about.passed(Slots.name)
            if call.dry_run:
                return await inner(call)
            if gate.running < gate.most:  # whoever leaves hands his slot on: nobody waits then
                gate.running += 1
            else:
                try:
                    waited = await gate.wait(call)
                except CallError as refusal:
                    return failed(call, refusal)
            try:
                result = await inner(call)
            finally:
                gate.leave()
            if waited:
                result.metadata.waited_ms += waited * 1000
            return result

        return step

    return Around(around, gate, brief=True)


def _through_all(gates: tuple[_Gate, ...]) -> Ring:
    """The tool's own gate first, then the groups' in the order of the config: two calls that wait
    for each other's slot cannot be.
    """

    async def ring(call: Call, call_next: Walk) -> Result:
        held: list[_Gate] = []
        waited = 0.0
        try:
            for gate in () if call.dry_run else gates:
                waited += await gate.enter(call)
                held.append(gate)
            result = await call_next(call)
            result.metadata.waited_ms += waited * 1000
            return result
        finally:
            for gate in reversed(held):
                gate.leave()

    return ring


class _Gate:
    """Slots and a queue. While somebody waits, every slot is taken."""

    __slots__ = (
        "__weakref__", "_handed_at", "_name", "_pace", "_queue", "most", "queued", "running",
        "waiting",
    )  # fmt: skip

    def __init__(self, name: str, most: int, queue: int) -> None:
        self._name, self.most, self._queue = name, most, queue
        self.running = 0
        self.waiting: dict[str, deque[asyncio.Future[bool]]] = {}
        """By caller; whose turn is next is the first."""
        self.queued = 0
        self._handed_at: float | None = None
        """When a slot was last handed on, while somebody else went on waiting."""
        self._pace = _UNKNOWN_PACE
        """Seconds from one slot that is handed on to the next, on average and lately."""

    def resize(self, most: int, queue: int) -> None:
        """The spec was replaced; whoever waits gets what has become free."""
        self.most, self._queue = most, queue
        while self.waiting and self.running < self.most:
            self.running += 1
            self.hand_on()

    async def enter(self, call: Call) -> float:
        if self.running < self.most:
            self.running += 1
            return 0.0
        return await self.wait(call)

    def leave(self) -> None:
        if self.waiting:
            self.hand_on()
        else:
            self.running -= 1

    def hand_on(self) -> None:
        """Give the slot of a call that leaves to the next who waits, unless there are too many."""
        if self.running <= self.most:
            while self.waiting:
                turn = self._next()
                if not turn.done():  # one that is done was cancelled a moment ago
                    turn.set_result(True)
                    self._keep_pace()
                    return
        self.running -= 1

    def _next(self) -> asyncio.Future[bool]:
        """Of whose turn it is; the others have theirs before it is again."""
        who = next(iter(self.waiting))
        theirs = self.waiting.pop(who)
        turn = theirs.popleft()
        if theirs:
            self.waiting[who] = theirs
        self.queued -= 1
        return turn

    def _keep_pace(self) -> None:
        now = monotonic()
        if self._handed_at is not None:
            self._pace += (now - self._handed_at - self._pace) / 4
        self._handed_at = now if self.waiting else None

    async def wait(self, call: Call) -> float:
        """Come back with a slot, after so many seconds, or raise without one."""
        deadline, who = call.deadline, call.caller.principal
        if self.queued >= self._queue:
            raise QueueFull(
                f"{self._name} is busy: {self.running} calls are running and "
                f"{self.queued} are waiting. Try again later.",
                retry_after=round(min(max(self._pace, _SOONEST), _LATEST), 3),
            )
        loop, began = asyncio.get_running_loop(), monotonic()
        turn: asyncio.Future[bool] = loop.create_future()
        timer = None
        if deadline is not None:
            left = min(max(0.0, deadline - began), _LONGEST)
            timer = loop.call_later(left, self._expire, who, turn)
        self.waiting.setdefault(who, deque()).append(turn)
        self.queued += 1
        try:
            if await turn:
                return monotonic() - began
        except BaseException as exc:
            if not turn.done() or turn.cancelled():
                self._forget(who, turn)
            elif turn.result():  # the slot came together with the cancellation
                self.leave()
            if isinstance(exc, asyncio.CancelledError):
                raise not_begun(call.call_id) from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
        waited = round(monotonic() - began, 3)
        raise TimedOut(
            f"Operation timed out after {waited:g}s of waiting: {self._name} is busy. "
            "Try again later.",
            details={"seconds": waited},
            effects="none",
            remedy="wait",
        )

    def _expire(self, who: str, turn: asyncio.Future[bool]) -> None:
        if not turn.done():
            self._forget(who, turn)
            turn.set_result(False)

    def _forget(self, who: str, turn: asyncio.Future[bool]) -> None:
        theirs = self.waiting.get(who)
        if theirs is not None and turn in theirs:
            theirs.remove(turn)
            self.queued -= 1
            if not theirs:
                del self.waiting[who]
