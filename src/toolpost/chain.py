"""A tool's chain: how rings are put around the rest of the road.

Above: the executor. Below: the rings. Folded once per tool. Every step here is a border between
rings, where an exception becomes a result; the steps of the guards also check the arguments, and
those of the observers keep them from changing what they observe. What a ring decides is not known.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from toolpost.call import Call, Caller
from toolpost.contracts import Extension, Hides, Ring, Road, Sees, Walk
from toolpost.errors import CallError, ConfigError, InvalidArguments, SetupError, Unavailable
from toolpost.result import Metadata, Result, failure
from toolpost.schema import Schema
from toolpost.spec import ToolSpec

_log = logging.getLogger("toolpost")
_replace: Callable[..., Call] = msgspec.structs.replace
Admit = Callable[[Any], dict[str, Any]]
"""Arguments checked and filled in, or ``InvalidArguments``."""
NEVER: Final = -sys.float_info.max
"""The deadline of a call whose timeout is no number of seconds: it does not run."""


class _Everywhere(msgspec.Struct, frozen=True):
    """A plain ``async (call, call_next)`` function as an extension: around every tool."""

    name: str
    ring: Ring

    def bind(self, spec: ToolSpec, road: Road) -> Ring:
        return self.ring


def as_extension(extension: Extension | Ring) -> Extension:
    if hasattr(extension, "bind"):
        return cast("Extension", extension)
    if not callable(extension):
        raise ConfigError(
            f"a {type(extension).__name__} is not an extension: it is an async function of "
            "(call, call_next), or an object with a name and bind(spec, road)"
        )
    return _Everywhere(getattr(extension, "__name__", "ring"), extension)


def as_name(name: object) -> str:
    return name if isinstance(name, str) else f"({type(name).__name__})"


def as_arguments(arguments: object) -> Any:
    """What is not a mapping goes on as it is: the check says what is wrong with it."""
    if arguments is None:
        return {}
    try:
        return dict(arguments) if isinstance(arguments, Mapping) else arguments
    except Exception:  # noqa: BLE001 - a mapping of the caller's own, which may do anything
        _log.exception("arguments that cannot be read")
        return Unreadable()


class Unreadable:
    """Stands for arguments that raised when they were read: the check refuses it by its name."""


def as_deadline(started: float, timeout: Any) -> float:
    """When a call is over. What is no number of seconds is over before it began."""
    try:
        deadline = started + timeout
    except OverflowError:  # an integer beyond any clock
        return math.inf if timeout > 0 else -math.inf
    except Exception:  # noqa: BLE001 - an object of the caller's own, which may do anything
        return NEVER
    return deadline if isinstance(deadline, float) and not math.isnan(deadline) else NEVER


def guarded(
    spec: ToolSpec, invoke: Callable[[Admit], Walk], guards: Iterable[Extension], road: Road
) -> tuple[Walk, tuple[str, ...]]:
    """Admit, then the guards that apply to this tool, then invoke; and the guards' names."""
    admit = Schema(spec.input_schema, coerce=spec.coerce).admit
    rings = [(g.name, ring) for g in guards if (ring := g.bind(spec, road)) is not None]
    walk = invoke(admit)
    for name, ring in reversed(rings):
        walk = _guarding(admit, ring, walk, name=name)
    return walk, tuple(name for name, _ in rings)


def observed(
    spec: ToolSpec, walk: Walk, observers: Iterable[Extension], road: Road
) -> tuple[Walk, tuple[str, ...]]:
    """The observers that apply to this tool around the rest; and their names."""
    rings = [(o.name, ring) for o in observers if (ring := o.bind(spec, road)) is not None]
    for name, ring in reversed(rings):
        walk = _watched(ring, walk, name)
    return walk, tuple(name for name, _ in rings)


def refusing(why: Callable[[Call], Exception]) -> Walk:
    """A road that ends at once."""

    async def step(call: Call) -> Result:
        return failed(call, why(call), "road")

    return step


def refused(spec: ToolSpec, exc: Exception, observers: Sequence[Extension], road: Road) -> Walk:
    """The road of a tool that cannot be called, in sight of every observer that can be had."""
    why = exc
    if isinstance(exc, SetupError):  # of the tool's own making: who set it up reads it in results
        _log.error("%s cannot be called: %s", spec.name, exc)
        why = Unavailable(exc.message, retryable=False, remedy="other_tool", effects="none")
    walk = refusing(lambda call: why)
    for observer in reversed(observers):
        try:
            walk, _ = observed(spec, walk, (observer,), road)
        except Exception:  # noqa: BLE001 - it may well be why the tool is refused
            _log.exception("an observer cannot be bound to %s", spec.name)
    return walk


def hidden(spec: ToolSpec, walk: Walk, judges: Sequence[Sees], unknown: Walk) -> Walk:
    """For who may not know of a tool, the road of a name that no tool has: before its arguments
    are checked, because what is said of them would tell.
    """
    judges = [judge for judge in judges if not isinstance(judge, Hides) or judge.hides(spec)]
    if not judges:
        return walk

    def step(call: Call) -> Awaitable[Result]:
        return walk(call) if may_know(call.caller, spec, judges) else unknown(call)

    return step


def may_know(caller: Caller, spec: ToolSpec, judges: Iterable[Sees]) -> bool:
    try:
        for judge in judges:  # noqa: SIM110 - all() costs three times as much, on every call
            if not judge.sees(caller, spec):
                return False
        return True
    except Exception:  # noqa: BLE001 - fail closed: what cannot be judged is not shown
        _log.exception("it cannot be said who may see %s", spec.name)
        return False


def metadata(call: Call, plan: dict[str, Any] | None = None) -> Metadata:
    return Metadata(call.call_id, 0.0, 1, False, call.warnings, call.trail, plan)


def _guarding(admit: Admit, ring: Ring, inner: Walk, *, name: str) -> Walk:
    """Arguments that have not passed the check, or that a guard before has put in the place of
    those that had, are checked first.
    """

    async def step(call: Call) -> Result:
        speaks = "road"
        try:
            if call.arguments is not call.admitted:
                arguments = admit(call.arguments)
                call = _replace(call, arguments=arguments, admitted=arguments)
            speaks = name
            call.trail.append(name)
            result = await ring(call, inner)
            if type(result) is not Result:
                raise TypeError(f"{name} returned a {type(result).__name__}, not a Result")
            if not result.metadata.call_id:  # the ring made it, and knows less than the call
                result = msgspec.structs.replace(result, metadata=metadata(call))
            return result
        except Exception as exc:  # noqa: BLE001 - the border: a guard that breaks is a refusal
            return failed(call, exc, speaks)

    return step


def _watched(ring: Ring, inner: Walk, name: str) -> Walk:
    """An observer may refuse a call before it runs, by a ``CallError`` (an audit that cannot
    write). If it breaks in any other way the call goes on without it; it runs once in any case.
    """

    async def step(call: Call) -> Result:
        begun, seen = False, None

        async def onward(_: Call) -> Result:
            nonlocal begun, seen
            if not begun:
                begun = True
                seen = await inner(call)
            return seen  # type: ignore[return-value]

        call.trail.append(name)
        try:
            await ring(call, onward)
        except Exception as exc:  # noqa: BLE001 - an observer's failure is not the call's
            if not begun and isinstance(exc, CallError):
                return failed(call, exc, name)
            _log.error("the observer %s failed (call %s)", name, call.call_id, exc_info=exc)
        if not begun:
            await onward(call)
        if seen is None:  # the observer kept a cancellation for itself
            raise asyncio.CancelledError
        return seen

    return step


def failed(call: Call, exc: Exception, speaker: str) -> Result:
    caller: object = call.caller
    if not isinstance(exc, CallError) and not isinstance(caller, Caller):
        _log.error("a call whose caller is no Caller (call %s)", call.call_id, exc_info=exc)
        problem = f"caller is a {type(caller).__name__}, and must be a toolpost.Caller"
        exc = InvalidArguments(problem, effects="unknown")
    error = failure(exc, tool=call.tool, call_id=call.call_id, effects=call.spec.effects)
    call.note(speaker, error.code)
    return Result(error=error, metadata=metadata(call))
