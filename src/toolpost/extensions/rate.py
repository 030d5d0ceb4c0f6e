"""Rate: how often a tool may be called, by whom, and how long a session may go on without progress.

Rates are held per tool, per caller and per group of tools, in this process or, with ``shared``,
in the records that all processes have. A session has a budget of calls and of cost units (the
label ``cost`` of a tool), which is in the records and drawn from them in portions; and an end of
patience: the same call with the same result over and over, and a tool that has failed three times
in a row, be it for its arguments, are refused with ``remedy: stop``.

A call that belongs to no session and to which no rate applies pays for one look. What a session
is, who a caller is and what a call costs is said by others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import Any, Final, Self
from weakref import WeakValueDictionary

import msgspec

from toolpost.budgets import Budgets, Purse
from toolpost.call import Call, Caller
from toolpost.clock import SystemClock
from toolpost.contracts import Check, Clock, Record, Records, Ring, Road, Surroundings, Walk
from toolpost.digest import digest
from toolpost.errors import BudgetExceeded, InvalidSpec, RateLimited
from toolpost.options import Options, options_from
from toolpost.pace import Pace, Window, pace_from
from toolpost.patterns import caller_matcher, selector
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
_RATES: Final = "rate"
_SKEW: Final = 60.0
"""Seconds by which the clocks of two hosts may differ; by more, and a clock was moved."""
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
    options = RateOptions

    def __init__(
        self,
        options: RateOptions | None = None,
        *,
        clock: Clock | None = None,
        records: Records | None = None,
    ) -> None:
        self._options = options = options or RateOptions()
        self._clock = clock or SystemClock()
        self._tools = [(selector((p,)), pace_from(r)) for p, r in options.tools.items()]
        self._callers = [
            (p, caller_matcher((p,)), pace_from(r)) for p, r in options.callers.items()
        ]
        self._groups = [(p, selector((p,)), pace_from(r)) for p, r in options.groups.items()]
        self._meters: dict[str, _Meter] = {}
        self._of_callers: dict[str, _Meter] = {}
        self._known: dict[tuple[str | None, ...], _Meter | None] = {}
        """What was found for a caller, by all its names."""
        self._sessions: dict[tuple[str, str], _Session] = {}
        self._budgets = Budgets(options.session_calls, options.session_cost, records=records)
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
            budget=bool(self._options.session_calls or self._options.session_cost),
            price=_number(spec, "cost", 0),
        )
        session = limits.any()
        if not meters and not self._callers:
            return self._in_sessions_only(limits) if session else None
        take = self._taking(meters) if self._shared is None else None
        return self._limiting(meters, take, limits if session else None)

    def hears(self, call: Call, result: Result) -> Result:
        """A call whose arguments are wrong is a try that failed, like any other."""
        if call.session_id is not None and self._options.tries and not call.dry_run:
            session = self._session(call.caller.principal, call.session_id)
            session.demand_patience(call.tool, self._options.tries)
            session.learn(call.tool, None, result)
        return result

    async def close(self) -> None:
        """Give back what sessions have drawn and not used."""
        await self._budgets.settle(session.purse for session in self._sessions.values())

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

    def _of_caller(self, caller: Caller) -> _Meter | None:
        """The meter of a caller's principal, under the first pattern that fits the caller: two
        agents of one user share it, unless the config tells them apart.
        """
        names = (caller.id, caller.user, caller.key, caller.agent, caller.issuer)
        try:
            return self._known[names]
        except KeyError:
            pass
        meter = None
        for pattern, fits, pace in self._callers:
            if fits(caller):
                meter = self._of_principal(f"caller:{caller.principal} ({pattern})", pace)
                break
        if len(self._known) >= self._options.kept:
            self._known.clear()
        self._known[names] = meter
        return meter

    def _of_principal(self, key: str, pace: Pace) -> _Meter:
        meter = self._of_callers.get(key)
        if meter is None:
            if len(self._of_callers) >= self._options.kept:
                self._forget()
                self._known.clear()
            meter = self._of_callers[key] = _Meter(key, pace)
        return meter

    def _forget(self) -> None:
        """Whoever has waited long enough may as well be new; if nobody has, the oldest goes."""
        now, meters = self._clock.monotonic(), self._of_callers
        for caller in [c for c, meter in meters.items() if meter.window.idle(now)]:
            del meters[caller]
        if len(meters) >= self._options.kept:
            del meters[next(iter(meters))]

    def _taking(self, meters: list[_Meter]) -> Callable[[Call], None]:
        """All that apply in one step: what one of them refuses counts for none."""
        monotonic = self._clock.monotonic
        if not self._callers and len(meters) == 1:
            (only,) = meters
            return lambda call: _take(only, monotonic())

        def take(call: Call) -> None:
            mine, now = None, monotonic()
            if self._callers:
                mine = self._of_caller(call.caller)
            for meter in meters:
                window = meter.window
                if window.taken >= window.count and (wait := window.wait(now)):
                    raise _exceeded(meter, wait)
            if mine is not None:
                _take(mine, now)
            for meter in meters:
                meter.window.take(now)

        return take

    async def _take_shared(self, call: Call, meters: list[_Meter]) -> None:
        """The caller's own first: what that refuses is taken from nobody else."""
        assert self._shared is not None
        if self._callers and (mine := self._of_caller(call.caller)) is not None:
            await self._shared.take(mine)
        for meter in meters:
            await self._shared.take(meter)

    def _limiting(
        self, meters: list[_Meter], take: Callable[[Call], None] | None, limits: _Limits | None
    ) -> Ring:
        async def watched(call: Call, call_next: Walk) -> Result:
            session = None
            if limits is not None and call.session_id is not None and not call.dry_run:
                session = self._session(call.caller.principal, call.session_id)
                same = session.admit(call, limits)
                if limits.budget and not session.purse.pay(limits.price):
                    await self._draw(session.purse, call, limits.price)
            try:
                if take is not None:
                    take(call)
                else:
                    await self._take_shared(call, meters)
            except RateLimited:
                if session is not None and limits is not None:
                    session.purse.put(1, limits.price)
                raise
            result = await call_next(call)
            if session is not None:
                session.learn(call.tool, same, result)
            return result

        if take is None:
            return watched

        def look(call: Call) -> Ring | None:
            if call.session_id is not None:
                return watched
            take(call)
            return None

        return Check(look)

    def _in_sessions_only(self, limits: _Limits) -> Ring:
        async def watched(call: Call, call_next: Walk) -> Result:
            assert call.session_id is not None
            session = self._session(call.caller.principal, call.session_id)
            same = session.admit(call, limits)
            if limits.budget and not session.purse.pay(limits.price):
                await self._draw(session.purse, call, limits.price)
            result = await call_next(call)
            session.learn(call.tool, same, result)
            return result

        def look(call: Call) -> Ring | None:
            return None if call.session_id is None or call.dry_run else watched

        return Check(look, plain=True)

    async def _draw(self, purse: Purse, call: Call, price: float) -> None:
        """What is at hand is not enough for this call: there is more, or it is refused."""
        key = digest([call.caller.principal, call.session_id])
        short = await self._budgets.draw(purse, key, price)
        if short == "calls":
            raise _stop(
                f"This session has used up its {self._options.session_calls} calls. "
                "Tell the user so."
            )
        if short is not None:
            raise _stop(
                f"This session has spent {short:g} of its {self._options.session_cost:g} cost "
                f"units, and {call.tool} costs {price:g}. Tell the user so."
            )

    def _session(self, principal: str, session_id: str) -> _Session:
        """Principals do not share sessions; the one unused for longest is forgotten first."""
        sessions, key = self._sessions, (principal, session_id)
        session = sessions.pop(key, None)
        if session is None:
            session = _Session(self._budgets.purse())
            if len(sessions) >= self._options.kept:
                del sessions[next(iter(sessions))]
        sessions[key] = session
        return session


class _Meter:
    """What is kept for whoever has a rate, and what is looked at on every call."""

    __slots__ = ("key", "pace", "window")

    def __init__(self, key: str, pace: Pace) -> None:
        self.key, self.pace, self.window = key, pace, Window(pace)


def _take(meter: _Meter, now: float) -> None:
    window = meter.window
    if window.taken >= window.count and (wait := window.wait(now)):
        raise _exceeded(meter, wait)
    window.take(now)


def _exceeded(meter: _Meter, wait: float) -> RateLimited:
    return RateLimited(
        f"Rate limit exceeded. Retry after {ceil(round(wait, 3))}s.",
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
                record = await self._records.get(_RATES, meter.key)
                window, now, moved = self._window(meter.pace, record)
                wait = window.wait(now)
                if not wait:
                    window.take(now)
                elif not moved:
                    raise _exceeded(meter, wait)
                version = 0 if record is None else record.version
                value, ttl = list(window.times), meter.pace.seconds + _SKEW
                put = self._records.put(_RATES, meter.key, value, version=version, ttl=ttl)
                if await put is not None and not wait:
                    return

    def _window(self, pace: Pace, record: Record | None) -> tuple[Window, float, bool]:
        """What was taken, the time, and whether what was taken had to be moved: by a clock that
        was far ahead, or a rate that is now another one.
        """
        now = self._clock.time()
        times = _times(record)
        if not times:
            return Window(pace), now, False
        ahead = times[-1][0] - now
        if ahead > _SKEW:  # taken just now, at the latest: else nobody gets through for long
            return Window(pace, [(moment - ahead, number) for moment, number in times]), now, True
        return Window(pace, times), max(now, times[-1][0]), False


def _times(record: Record | None) -> list[tuple[float, int]]:
    if record is None or not isinstance(record.value, list):
        return []
    return msgspec.convert(record.value, list[tuple[float, int]])


class _Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a session may do with one tool; 0 is no limit."""

    tries: int
    repeats: int
    budget: bool
    price: float

    def any(self) -> bool:
        return bool(self.tries or self.repeats or self.budget)


class _Session:
    """What has happened so far."""

    __slots__ = ("_failed", "_same", "purse")

    def __init__(self, purse: Purse) -> None:
        self.purse = purse
        self._failed: dict[str, int] = {}
        self._same: dict[str, tuple[int, int | None, int]] = {}
        """Tool → the last arguments and the last result, as hashes, and how often in a row."""

    def admit(self, call: Call, limits: _Limits) -> int | None:
        """Refuse what leads nowhere. The hash of the call's arguments, if they are watched."""
        if self._failed and limits.tries:
            self.demand_patience(call.tool, limits.tries)
        if not limits.repeats:
            return None
        same = _fingerprint(call.arguments)
        arguments, _, times = self._same.get(call.tool, (None, 0, 0))
        if times >= limits.repeats and arguments == same is not None:
            raise _stop(
                f"{call.tool} was called {times} times with these arguments and gave the same "
                "result each time. Do not repeat it: use what you have, or ask the user."
            )
        return same

    def demand_patience(self, tool: str, tries: int) -> None:
        if (failed := self._failed.get(tool, 0)) >= tries:
            raise _stop(
                f"{tool} has failed {failed} times in a row in this session. Do not call it "
                "again: tell the user what you tried, or use another tool."
            )

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
