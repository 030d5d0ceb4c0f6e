"""Retry: a call that failed for a reason that passes is made again, if nothing can happen twice.

Outside the slots, so that waiting holds none; inside everything that decides whether a call may be
made at all. What may be repeated is said by the tool's ``effects`` and by the error, never by a
setting. What keeps failing is left alone for a while (a breaker per tool), and all repeats of the
process together are a small share of its calls (a budget). A tool that has failed hands over to its
``fallback`` by a new walk, which every ring judges anew; it never goes up a tier.

It refuses to know what the tool does, and who is asking.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from typing import Any, Final, Self
from weakref import WeakValueDictionary

import msgspec

from toolpost.breaker import Breaker, Budget, State
from toolpost.call import Call
from toolpost.clock import SystemClock
from toolpost.contracts import Around, Behind, Clock, Ring, Road, Surroundings, Walk
from toolpost.deadline import after_a_run, timeout_message
from toolpost.errors import ConfigError, Outcome, Unavailable
from toolpost.failure import failure
from toolpost.options import Options, options_from
from toolpost.result import NOWHERE, Failure, Result
from toolpost.spec import ToolSpec

_NEVER_AGAIN: Final = frozenset(
    {
        "VALIDATION_ERROR",
        "INTERNAL_ERROR",
        "QUEUE_FULL",
        "UNAUTHORIZED",
        "POLICY_DENIED",
        "APPROVAL_REQUIRED",
        "APPROVAL_DENIED",
        "BUDGET_EXCEEDED",
        "CANCELLED",
        "CONFLICT",
    }
)
"""Made again, they would fail again; a full queue is to be heard of at once."""
_NOT_HANDED_OVER: Final = _NEVER_AGAIN - {"INTERNAL_ERROR", "QUEUE_FULL"}
_SAY_NOTHING: Final = frozenset(
    ("QUEUE_FULL", "RATE_LIMITED", "INTERNAL_ERROR", "RESOURCE_LIMIT", "UNAVAILABLE", "TIMEOUT")
)
"""Of these, those that are no failure of what is behind the tool are no sign of its health."""
_STATES: Final[Mapping[State, float]] = {"closed": 0, "half-open": 1, "open": 2}
_WORST: Final[tuple[Outcome, ...]] = ("none", "done", "unknown")
_REMEMBERED: Final = 1000
"""Failing tools whose breakers outlive a reload."""
_TRODDEN: Final = "toolpost.fallback_from"
_HANDED_OVER: Final = "retry: handed over to "

Sleep = Callable[[float], Awaitable[None]]


class RetryOptions(Options, frozen=True, kw_only=True):
    """The table ``[extensions.retry]``. Times are seconds; 0 breaker failures: no breaker."""

    attempts: int = 3
    backoff: float = 0.2
    longest_backoff: float = 5.0
    longest_wait: float = 30.0
    budget_share: float = 0.1
    budget_per_second: float = 1.0
    budget_most: float = 20.0
    breaker_failures: int = 10
    breaker_seconds: float = 30.0

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= 3:
            raise ValueError("attempts must be 1, 2 or 3")
        for field in self.__struct_fields__:
            if not 0 <= getattr(self, field) < float("inf"):
                raise ValueError(f"{field} must be 0 or more")


class Retry:
    """The guard. ``state(tool)`` and ``gauges()`` tell how the breakers stand."""

    name = "retry"
    options = RetryOptions

    def __init__(
        self,
        options: RetryOptions | None = None,
        *,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.settings = options or RetryOptions()
        self.clock = clock or SystemClock()
        self.sleep, self.chance = sleep, chance
        self.budget = Budget(
            share=self.settings.budget_share,
            per_second=self.settings.budget_per_second,
            most=self.settings.budget_most,
            now=self.clock.monotonic(),
        )
        self._breakers: WeakValueDictionary[str, Breaker] = WeakValueDictionary()
        self._failing: dict[str, Breaker] = {}
        """Those that know of a failure: a tool that is reloaded keeps its breaker."""

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        return cls(options_from(options, RetryOptions, "extension retry"), clock=around.clock)

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
        options = self.settings
        attempts = spec.retry.attempts if spec.retry is not None else options.attempts
        if attempts == 1 and not options.breaker_failures and spec.fallback is None:
            return None
        if spec.fallback == spec.name:
            raise ConfigError(f"{spec.name!r} is its own fallback: name another tool, or none")
        breaker = self._breakers.get(spec.name)
        if breaker is None:
            breaker = Breaker(options.breaker_failures, options.breaker_seconds)
            self._breakers[spec.name] = breaker
        return _around(_Care(self, spec, road, breaker, attempts), breaker, self.budget)

    def remember(self, tool: str, breaker: Breaker) -> None:
        """A tool has failed. Of those that are gone, the oldest are forgotten in the end."""
        failing = self._failing
        failing[tool] = breaker
        if len(failing) > _REMEMBERED:
            for name in [name for name, one in failing.items() if not one.failures]:
                del failing[name]
        if len(failing) > _REMEMBERED:
            del failing[next(iter(failing))]

    def state(self, tool: str) -> State:
        """Whether a tool is left alone right now."""
        breaker = self._breakers.get(tool)
        return "closed" if breaker is None else breaker.state(self.clock.monotonic())

    def gauges(self) -> dict[str, tuple[str, dict[str, float]]]:
        """How the breakers stand (0 closed, 1 half-open, 2 open), and what the budget has left."""
        breakers, now = dict(self._breakers), self.clock.monotonic()
        states = {name: _STATES[breaker.state(now)] for name, breaker in breakers.items()}
        return {
            "breaker_state": ("tool", states),
            "retry_budget": ("", {"": self.budget.tokens}),
        }


def _around(care: _Care, breaker: Breaker, budget: Budget) -> Around:
    """What a call costs as long as all is well."""

    def around(
        inner: Walk, failed: Callable[[Call, Exception], Result], behind: Behind | None
    ) -> Walk:
        async def step(call: Call) -> Result:
            call.about.passed(Retry.name)
            if budget.tokens < budget.most:
                budget.earn()
            if breaker.closed or call.dry_run:
                result = await inner(call)
                if result.error is None:
                    if breaker.failures and not call.dry_run:
                        breaker.succeeded()
                    return result
            else:
                result = None
            try:
                if result is None:
                    return await care.when_open(call, inner)
                return await care.after_failure(call, inner, result)
            except Exception as exc:  # noqa: BLE001 - the border: a guard that breaks is a refusal
                return failed(call, exc)

        return step if behind is None else _through(behind, care, budget, inner, failed, step)

    return Around(around, brief=True)


def _through(
    behind: Behind,
    care: _Care,
    budget: Budget,
    inner: Walk,
    failed: Callable[[Call, Exception], Result],
    step: Walk,
) -> Walk:
    """The same, where a gate comes next: as long as it is open, one step for both."""
    gate, within, names, breaker = (
        behind.gate,
        behind.inner,
        (Retry.name, behind.name),
        care.breaker,
    )
    way = NOWHERE

    async def both(call: Call) -> Result:
        nonlocal way
        if gate.running >= gate.most or not breaker.closed or call.dry_run:
            return await step(call)
        if call.about.trail is way[0]:
            call.about.trail = way[1]
        else:
            way = call.about.passed(*names)
        if budget.tokens < budget.most:
            budget.earn()
        gate.running += 1
        try:
            result = await within(call)
        finally:
            if gate.waiting:
                gate.hand_on()
            else:
                gate.running -= 1
        if result.error is None:
            if breaker.failures:
                breaker.succeeded()
            return result
        try:
            return await care.after_failure(call, inner, result)
        except Exception as exc:  # noqa: BLE001 - the border: a guard that breaks is a refusal
            return failed(call, exc)

    return both


class _Care:
    """What is done for the calls of one tool once something has gone wrong."""

    __slots__ = ("_attempts", "_honours_key", "_retry", "_road", "_spec", "breaker")

    def __init__(
        self, retry: Retry, spec: ToolSpec, road: Road, breaker: Breaker, attempts: int
    ) -> None:
        self._retry, self._spec, self._road = retry, spec, road
        self.breaker, self._attempts = breaker, attempts
        self._honours_key = spec.retry is not None and spec.retry.honours_key

    async def after_failure(self, call: Call, call_next: Walk, result: Result) -> Result:
        """The first attempt has failed. A dry run says nothing about what is behind the tool."""
        attempts, began = 1, self._began(call)
        ends = began + self._spec.total_limit
        if call.dry_run and result.error is not None:
            return await self._handed_over(call, result, result.error)
        while result.error is not None:
            self._learn(call, result.error)
            pause = self._pause(call, result.error, attempts, ends)
            if pause is None:
                break
            await self._retry.sleep(pause)
            call.about.waited_ms += pause * 1000
            if not self.breaker.closed:  # others have found out meanwhile
                break
            attempts += 1
            call.note(Retry.name, f"attempt {attempts} after {pause:.2f}s")
            until = ends if call.deadline is None else min(ends, call.deadline)
            with after_a_run():
                result = await call_next(msgspec.structs.replace(call, deadline=until))
            result.metadata.attempts = attempts
        if result.error is None:
            self.breaker.succeeded()
            return result
        error: Failure = result.error
        if attempts > 1:
            error = _naming_attempts(error, attempts, self._retry.clock.monotonic() - began)
            result = msgspec.structs.replace(result, error=error)
        return await self._handed_over(call, result, error)

    def _began(self, call: Call) -> float:
        """About when the first attempt began: what the call has waited for before is not its time.
        To look at the clock before every call would cost those that do not fail.
        """
        now = self._retry.clock.monotonic()
        used = now - call.started - call.about.waited_ms / 1000
        return now - min(max(used, 0.0), self._spec.time_limit)

    async def when_open(self, call: Call, call_next: Walk) -> Result:
        """It is left alone, unless this is the call that tries whether it works again."""
        wait = self.breaker.probe(self._retry.clock.monotonic())
        if wait:
            refused = self._left_alone(call, wait)
            return await self._handed_over(
                call, Result(error=refused, metadata=call.about), refused
            )
        call.note(Retry.name, "tries whether it works again")
        try:
            result = await call_next(call)
            if result.error is None:
                self.breaker.succeeded()
            else:
                self._learn(call, result.error)
        finally:
            self.breaker.probed()
        if result.error is None:
            return result
        return await self._handed_over(call, result, result.error)

    def _left_alone(self, call: Call, wait: float) -> Failure:
        call.note(Retry.name, "left alone")
        refusal = Unavailable(
            f"{call.tool} has failed {self.breaker.failures} times in a row and is left alone for "
            f"now. Retry after {ceil(wait)}s, or use another tool.",
            retry_after=wait,
        )
        return failure(refusal, tool=call.tool, call_id=call.call_id, effects=self._spec.effects)

    def _learn(self, call: Call, error: Failure) -> None:
        """What a failure says about the health of what is behind the tool."""
        if error.retryable and error.code not in _NEVER_AGAIN and error.code != "RATE_LIMITED":
            # a caller who gives a tool too little time says nothing about the tool
            if error.code != "TIMEOUT" or not self._too_late(call):
                self.breaker.failed(self._retry.clock.monotonic())
                self._retry.remember(self._spec.name, self.breaker)
        elif error.code not in _SAY_NOTHING:
            self.breaker.succeeded()

    def _too_late(self, call: Call, pause: float = 0.0) -> bool:
        return call.deadline is not None and (
            self._retry.clock.monotonic() + pause >= call.deadline
        )

    def _pause(self, call: Call, error: Failure, attempts: int, ends: float) -> float | None:
        """Seconds until the next attempt; None: there is none. ``ends`` is the moment at which all
        attempts together have used up their time.
        """
        if attempts >= self._attempts or not self._may_repeat(call, error):
            return None
        options, cooldown = self._retry.settings, max(0.0, error.retry_after or 0.0)
        window = min(options.longest_backoff, options.backoff * 2.0 ** (attempts - 1))
        pause = cooldown + self._retry.chance() * window
        if cooldown > options.longest_wait or self._too_late(call, pause):
            return None
        if not self.breaker.closed:
            return None
        left = ends - self._retry.clock.monotonic() - pause
        if left <= 0 or (_ran_out(error) and not self._has_room(left)):
            call.note(Retry.name, "no time is left for another attempt")
            return None
        if not self._retry.budget.spend(self._retry.clock.monotonic()):
            call.note(Retry.name, "the budget for repeats is used up")
            return None
        return pause

    def _has_room(self, left: float) -> bool:
        """Whether an attempt that ran out of time may be repeated: in less time it would again, and
        a tool that hangs should not take longer than its timeout unless its spec says so.
        """
        return self._spec.total_timeout is not None and left >= self._spec.time_limit

    def _may_repeat(self, call: Call, error: Failure) -> bool:
        if not error.retryable or error.code in _NEVER_AGAIN:
            return False
        return self._harmless(error) or (self._honours_key and call.key is not None)

    def _harmless(self, error: Failure) -> bool:
        """Whether doing it again, here or elsewhere, cannot do anything twice."""
        return self._spec.effects != "once" or error.effects == "none"

    async def _handed_over(self, call: Call, result: Result, error: Failure) -> Result:
        """The fallback's result, or the failure as it was."""
        fallback = self._spec.fallback
        if fallback is None or error.code in _NOT_HANDED_OVER or self._too_late(call):
            return result
        if (reason := self._why_not(call, error, fallback)) is not None:
            call.warn(f"{call.tool} was not handed over to {fallback}: {reason}.")
            return result
        # past the bound of ``note``: whether it was is asked later on
        call.about.open_trail().append(f"{_HANDED_OVER}{fallback} ({error.code})")
        trodden = (*_trodden(call), call.tool)
        onward = msgspec.structs.replace(call, metadata={**call.metadata, _TRODDEN: trodden})
        with after_a_run():
            second = await self._road.rewalk(onward, tool=fallback)
        call.about.open_trail().extend(f"{fallback}: {step}" for step in second.metadata.trail)
        call.about.open_warnings().extend(second.metadata.warnings)
        return _told(call, result, error, second)

    def _why_not(self, call: Call, error: Failure, fallback: str) -> str | None:
        if not self._harmless(error):
            return "it may have had its effect already"
        if fallback == call.tool or fallback in _trodden(call):
            return "it has failed before in this call"
        spec = self._road.bound(fallback).spec
        if spec.name != fallback:
            return "there is no such tool"
        if spec.tier > self._spec.tier:
            return f"that is of a higher tier ({spec.tier}, not {self._spec.tier})"
        return None


def _ran_out(error: Failure) -> bool:
    """Whether the tool was stopped at its limit; one that says itself that it timed out was not."""
    return error.code == "TIMEOUT" and "seconds" in (error.details or {})


def _naming_attempts(error: Failure, attempts: int, total: float) -> Failure:
    """The last failure, which says how often and how long it was tried."""
    seconds = (error.details or {}).get("seconds", 0.0)
    if _ran_out(error) and error.message == timeout_message(seconds):
        message = timeout_message(seconds, attempts, total)
    else:
        message = f"{error.message} Tried {attempts} times, {total:.1f}s in all."
    told: Failure = msgspec.structs.replace(error, message=message)
    return told


def handed_over(call: Call) -> bool:
    """Whether another tool has taken over, or tried to: then the result is not the tool's own."""
    return any(step.startswith(_HANDED_OVER) for step in call.about.trail)


def _trodden(call: Call) -> tuple[str, ...]:
    """The tools that have failed before this one in the same call."""
    said = call.metadata.get(_TRODDEN, ())
    return tuple(said) if isinstance(said, list | tuple) else ()


def _told(call: Call, first: Result, error: Failure, second: Result) -> Result:
    """One result for the call that was made, which says that two tools were at work."""
    about, name = second.metadata, call.spec.fallback
    metadata = call.about
    metadata.cached, metadata.plan, metadata.approved = about.cached, about.plan, about.approved
    metadata.waited_ms += about.waited_ms
    if second.error is None:
        call.warn(f"{call.tool} failed ({error.code}): this is the result of {name}.")
        return msgspec.structs.replace(second, metadata=metadata)
    call.warn(f"{call.tool} was handed over to {name}, which failed too ({second.error.code}).")
    worse = max(error.effects, second.error.effects, key=_WORST.index)
    error = msgspec.structs.replace(error, effects=worse)
    return msgspec.structs.replace(first, error=error, metadata=metadata)
