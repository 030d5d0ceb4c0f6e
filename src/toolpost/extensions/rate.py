"""Rate: how often a tool may be called, by whom, and how long a session may go on without progress.

Rates are held per tool, per caller and per group of tools, in this process or, with ``shared``,
in the records that all processes have. A session has a budget of calls and of cost units (the
label ``cost`` of a tool), and an end of patience: the same call with the same result over and over,
and a tool that has failed three times in a row, are refused with ``remedy: stop``.

A call that belongs to no session and to which no rate applies pays for one look. What a session
is, who a caller is and what a call costs is said by others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from math import ceil
from typing import Any, Final, Self
from weakref import WeakValueDictionary

import msgspec

from toolpost.call import Call
from toolpost.clock import SystemClock
from toolpost.contracts import Clock, Records, Ring, Road, Surroundings, Walk
from toolpost.errors import BudgetExceeded, InvalidSpec, RateLimited
from toolpost.gcra import Rate as Pace
from toolpost.gcra import rate_from
from toolpost.options import Options, options_from
from toolpost.patterns import glob, selector
from toolpost.result import Result
from toolpost.spec import ToolSpec

_NO_TRY: Final = frozenset(
    {
        "APPROVAL_REQUIRED",
        "APPROVAL_DENIED",
        "RATE_LIMITED",
        "QUEUE_FULL",
        "CANCELLED",
        "POLICY_DENIED",
        "UNAUTHORIZED",
        "BUDGET_EXCEEDED",
    }
)
"""Refusals: the tool has not been tried."""
_SPACE: Final = "rate"
_encode = msgspec.json.Encoder(order="deterministic").encode


class RateOptions(Options, frozen=True, kw_only=True):
    """The table ``[extensions.rate]``. Patterns to rates; the first that fits is a tool's or a
    caller's, every group that fits counts. A limit of 0 is none.
    """

    tools: Mapping[str, str] = {}
    callers: Mapping[str, str] = {}
    groups: Mapping[str, str] = {}
    shared: bool = False
    session_calls: int = 0
    session_cost: float = 0.0
    tries: int = 3
    repeats: int = 10
    kept: int = 10_000

    def __post_init__(self) -> None:
        for field in ("session_calls", "session_cost", "tries", "repeats"):
            if not getattr(self, field) >= 0:
                raise ValueError(f"{field} must be 0 or more")
        if self.kept < 1:
            raise ValueError("kept must be 1 or more")


class Rate:
    """The guard. ``kept`` bounds how many callers and how many sessions it remembers."""

    name = "rate"

    def __init__(
        self,
        options: RateOptions | None = None,
        *,
        clock: Clock | None = None,
        records: Records | None = None,
    ) -> None:
        self._options = options = options or RateOptions()
        self._clock = clock or SystemClock()
        self._tools = [(selector((p,)), rate_from(r)) for p, r in options.tools.items()]
        self._callers = [(glob((p,)), rate_from(r)) for p, r in options.callers.items()]
        self._groups = [(p, selector((p,)), rate_from(r)) for p, r in options.groups.items()]
        self._meters: dict[str, _Meter] = {}
        self._of_callers: dict[str, _Meter] = {}
        self._sessions: dict[tuple[str, str], _Session] = {}
        self._shared = None
        if options.shared:
            if records is None:
                raise ValueError("shared rates need records")
            self._shared = _Shared(records, self._clock)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        return cls(
            options_from(options, RateOptions, "extension rate"),
            clock=around.clock,
            records=around.records,
        )

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
        meters = list(self._of_tool(spec))
        limits = _Limits(
            tries=self._options.tries,
            repeats=int(_number(spec, "repeats", self._options.repeats)),
            calls=self._options.session_calls,
            cost=self._options.session_cost,
            price=_number(spec, "cost", 0),
        )
        session = limits.any()
        if not meters and not self._callers:
            return self._in_sessions_only(limits) if session else None
        take = self._taking(meters) if self._shared is None else None
        return self._limiting(meters, take, limits if session else None)

    def gauges(self) -> dict[str, tuple[str, dict[str, float]]]:
        """How many sessions and how many callers are remembered."""
        return {
            "rate_sessions": ("", {"": len(self._sessions)}),
            "rate_callers": ("", {"": len(self._of_callers)}),
        }

    def _of_tool(self, spec: ToolSpec) -> Iterable[_Meter]:
        for fits, pace in self._tools:
            if fits(spec):
                yield self._meter(f"tool:{spec.name}", pace)
                break
        for pattern, fits, pace in self._groups:
            if fits(spec):
                yield self._meter(f"group:{pattern}", pace)

    def _meter(self, key: str, pace: Pace) -> _Meter:
        """It is there once for all that share it, and outlives a reload of the tool."""
        meter = self._meters.get(key)
        if meter is None or meter.pace != pace:
            meter = self._meters[key] = _Meter(key, pace)
        return meter

    def _of_caller(self, caller: str) -> _Meter | None:
        meter = self._of_callers.get(caller)
        if meter is not None:
            return meter
        for fits, pace in self._callers:
            if fits(caller):
                if len(self._of_callers) >= self._options.kept:
                    self._forget()
                meter = self._of_callers[caller] = _Meter(f"caller:{caller}", pace)
                return meter
        return None

    def _forget(self) -> None:
        """Whoever has waited long enough may as well be new; if nobody has, the oldest goes."""
        now, meters = self._clock.monotonic(), self._of_callers
        for caller in [c for c, meter in meters.items() if meter.due <= now]:
            del meters[caller]
        if len(meters) >= self._options.kept:
            del meters[next(iter(meters))]

    def _taking(self, meters: list[_Meter]) -> Callable[[Call], None]:
        """All that apply in one step: what one of them refuses counts for none."""
        monotonic, callers = self._clock.monotonic, bool(self._callers)

        def take(call: Call) -> None:
            now, asked = monotonic(), meters
            if callers and (mine := self._of_caller(call.caller.id)) is not None:
                asked = [*meters, mine]
            for meter in asked:
                if meter.due > now + meter.most:
                    raise _exceeded(meter, meter.due - now - meter.pace.early)
            for meter in asked:
                meter.due = (meter.due if meter.due > now else now) + meter.interval

        return take

    async def _take_shared(self, call: Call, meters: list[_Meter]) -> None:
        assert self._shared is not None
        for meter in meters:
            await self._shared.take(meter)
        if self._callers and (mine := self._of_caller(call.caller.id)) is not None:
            await self._shared.take(mine)

    def _limiting(
        self, meters: list[_Meter], take: Callable[[Call], None] | None, limits: _Limits | None
    ) -> Ring:
        async def ring(call: Call, call_next: Walk) -> Result:
            session = None
            if limits is not None and call.session_id is not None and not call.dry_run:
                session = self._session(call.caller.id, call.session_id)
                same = session.admit(call, limits)
            try:
                if take is not None:
                    take(call)
                else:
                    await self._take_shared(call, meters)
            except RateLimited:
                if session is not None and limits is not None:
                    session.refund(limits)
                raise
            result = await call_next(call)
            if session is not None:
                session.learn(call.tool, same, result)
            return result

        return ring

    def _in_sessions_only(self, limits: _Limits) -> Ring:
        async def in_session(call: Call, call_next: Walk, session_id: str) -> Result:
            session = self._session(call.caller.id, session_id)
            same = session.admit(call, limits)
            result = await call_next(call)
            session.learn(call.tool, same, result)
            return result

        def ring(call: Call, call_next: Walk) -> Awaitable[Result]:
            if call.session_id is None or call.dry_run:
                return call_next(call)
            return in_session(call, call_next, call.session_id)

        return ring

    def _session(self, caller: str, session_id: str) -> _Session:
        """Callers do not share sessions; the one that was longest unused is forgotten first."""
        sessions, key = self._sessions, (caller, session_id)
        session = sessions.pop(key, None)
        if session is None:
            session = _Session()
            if len(sessions) >= self._options.kept:
                del sessions[next(iter(sessions))]
        sessions[key] = session
        return session


class _Meter:
    """What is kept for whoever has a rate, and what is looked at on every call."""

    __slots__ = ("due", "interval", "key", "most", "pace")

    def __init__(self, key: str, pace: Pace) -> None:
        self.key, self.pace, self.due = key, pace, 0.0
        self.interval, self.most = pace.interval, pace.early + pace.slack


def _exceeded(meter: _Meter, wait: float) -> RateLimited:
    return RateLimited(
        f"Rate limit exceeded. Retry after {ceil(wait)}s.",
        retry_after=wait,
        details={"limit": meter.pace.text, "of": meter.key},
    )


class _Shared:
    """A rate that several processes hold together, in their records, by wall-clock time."""

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records, self._clock = records, clock
        # within a process one at a time: only other processes can then be faster
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, meter: _Meter) -> None:
        turn = self._turns.get(meter.key)
        if turn is None:
            turn = self._turns[meter.key] = asyncio.Lock()
        async with turn:
            while True:
                record = await self._records.get(_SPACE, meter.key)
                now, pace = self._clock.time(), meter.pace
                kept = 0.0 if record is None else float(record.value)
                wait, due = pace.take(min(kept, now + pace.most_due), now)
                if wait:
                    raise _exceeded(meter, wait)
                version = 0 if record is None else record.version
                ttl = due - now + 1
                if await self._records.put(_SPACE, meter.key, due, version=version, ttl=ttl):
                    return


class _Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a session may do with one tool; 0 is no limit."""

    tries: int
    repeats: int
    calls: int
    cost: float
    price: float

    def any(self) -> bool:
        return bool(self.tries or self.repeats or self.calls or self.cost)


class _Session:
    """What has happened so far."""

    __slots__ = ("_calls", "_cost", "_failed", "_same")

    def __init__(self) -> None:
        self._calls, self._cost = 0, 0.0
        self._failed: dict[str, int] = {}
        self._same: dict[str, tuple[int, int | None, int]] = {}
        """Tool → the last arguments and the last result, as hashes, and how often in a row."""

    def admit(self, call: Call, limits: _Limits) -> int | None:
        """Count a call in, or refuse it. The hash of its arguments, if they are watched."""
        tool = call.tool
        if limits.tries and self._failed.get(tool, 0) >= limits.tries:
            raise _stop(
                f"{tool} has failed {self._failed[tool]} times in a row in this session. Do not "
                "call it again: tell the user what you tried, or use another tool."
            )
        same = None
        if limits.repeats:
            same = _fingerprint(call.arguments)
            arguments, _, times = self._same.get(tool, (None, 0, 0))
            if times >= limits.repeats and arguments == same is not None:
                raise _stop(
                    f"{tool} was called {times} times with these arguments and gave the same "
                    "result each time. Do not repeat it: use what you have, or ask the user."
                )
        if limits.calls and self._calls >= limits.calls:
            raise _stop(f"This session has used up its {limits.calls} calls. Tell the user so.")
        if limits.cost and self._cost + limits.price > limits.cost:
            raise _stop(
                f"This session has spent {self._cost:g} of its {limits.cost:g} cost units, and "
                f"{tool} costs {limits.price:g}. Tell the user so."
            )
        self._calls += 1
        self._cost += limits.price
        return same

    def refund(self, limits: _Limits) -> None:
        """It was counted in, and then not made."""
        self._calls -= 1
        self._cost -= limits.price

    def learn(self, tool: str, same: int | None, result: Result) -> None:
        error = result.error
        if error is None:
            if self._failed:
                self._failed.pop(tool, None)
        elif error.code in _NO_TRY:
            return
        else:
            self._failed[tool] = self._failed.get(tool, 0) + 1
        if same is None:
            return
        said = (result.output, result.parts) if error is None else (error.code, error.message)
        now = _fingerprint(said)
        arguments, before, times = self._same.get(tool, (None, None, 0))
        again = arguments == same and before == now
        self._same[tool] = (same, now, times + 1 if again else 1)


def _fingerprint(value: object) -> int | None:
    try:
        return hash(_encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None  # not JSON, which is for others to say


def _stop(message: str) -> BudgetExceeded:
    return BudgetExceeded(message, remedy="stop")


def _number(spec: ToolSpec, label: str, otherwise: float) -> float:
    text = spec.labels.get(label)
    if text is None:
        return otherwise
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number < float("inf"):
        raise InvalidSpec(
            f"the label {label!r} of {spec.name!r} is a number, 0 or more", at=("labels", label)
        )
    return number
