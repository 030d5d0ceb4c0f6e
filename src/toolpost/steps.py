"""The steps of a chain: each is a border between rings, where an exception becomes a result.

Above: ``chain.py``, which folds them. Below: the rings. The steps of the guards also check the
arguments, and those of the observers keep them from changing what they observe. What a ring
decides is not known here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import monotonic
from typing import Any

import msgspec

from toolpost.call import Call
from toolpost.contracts import Ring, Tells, Walk, Watch
from toolpost.errors import CallError
from toolpost.result import Metadata, Result, failure

_log = logging.getLogger("toolpost")
_replace: Callable[..., Call] = msgspec.structs.replace
_mark = msgspec.structs.force_setattr
Hear = Callable[[Call, Result], Result]
Look = Callable[[Call], Call | Ring | None]
Admit = Callable[[Any], dict[str, Any]]
"""Arguments checked and filled in, or ``InvalidArguments``."""


def refusing(why: Callable[[Call], Exception]) -> Walk:
    """A road that ends at once."""

    async def step(call: Call) -> Result:
        return failed(call, why(call), "road")

    return step


def admitted(admit: Admit, hearing: Sequence[tuple[str, Hear]], inner: Walk) -> Walk:
    """Bad arguments end a call here, where guards that want to hear of it do."""

    def step(call: Call) -> Awaitable[Result]:
        if call.arguments is not call.admitted:
            try:
                call = _admitted(call, admit)
            except Exception as exc:  # noqa: BLE001 - the border
                result = failed(call, exc, "road")
                for name, hears in hearing:
                    try:
                        result = hears(call, result)
                    except Exception as why:  # noqa: BLE001 - a guard that breaks is a refusal
                        result = failed(call, why, name)
                return _ready(result)
        return inner(call)

    return step


def checked(admit: Admit, looks: Sequence[tuple[str, Look]], inner: Walk) -> Walk:
    """Checks that stand side by side, in one step that is not even a coroutine. A ring that one of
    them wants stands around those behind it.
    """
    walk = inner
    steps: tuple[tuple[str, Look, Walk], ...] = ()
    for name, look in reversed(looks):
        steps = ((name, look, walk), *steps)
        walk = _looking(admit, steps, inner)
    return walk


def _looking(admit: Admit, steps: tuple[tuple[str, Look, Walk], ...], inner: Walk) -> Walk:
    def step(call: Call) -> Awaitable[Result]:
        speaks = "road"
        try:
            if call.arguments is not call.admitted:
                call = _admitted(call, admit)
            for speaks, look, rest in steps:
                call.trail.append(speaks)
                found = look(call)
                if found is None:
                    continue
                if not isinstance(found, Call):
                    call.trail.pop()
                    return guarded(admit, found, rest, name=speaks)(call)
                call = found
                if call.arguments is not call.admitted:
                    call = _admitted(call, admit)
        except Exception as exc:  # noqa: BLE001 - the border: a guard that breaks is a refusal
            return _ready(failed(call, exc, speaks))
        return inner(call)

    return step


def _admitted(call: Call, admit: Admit) -> Call:
    arguments = admit(call.arguments)
    if arguments is call.arguments:
        _mark(call, "admitted", arguments)  # a copy would cost five times as much
        return call
    return _replace(call, arguments=arguments, admitted=arguments)


async def _ready(result: Result) -> Result:
    return result


def guarded(admit: Admit, ring: Ring, inner: Walk, *, name: str) -> Walk:
    """Arguments that have not passed the check, or that a guard before has put in the place of
    those that had, are checked first.
    """

    async def step(call: Call) -> Result:
        speaks = "road"
        try:
            if call.arguments is not call.admitted:
                call = _admitted(call, admit)
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


def told(watches: Sequence[tuple[str, Watch]], inner: Walk) -> Walk:
    """Observers that are only told, side by side: they can neither change nor repeat a call. They
    find in the result how long it took.
    """
    names = [name for name, _ in watches]
    asked = [(name, watch.before, watch.after) for name, watch in watches if watch.before]
    afters = [(name, watch.after) for name, watch in reversed(watches) if not watch.before]

    async def step(call: Call) -> Result:
        call.trail.extend(names)
        kept: list[tuple[str, Callable[..., Any], Any]] = []
        result = None
        try:
            for name, before, after in asked:
                try:
                    kept.append((name, after, before(call)))
                except CallError as refusal:
                    result = result or failed(call, refusal, name)
                except Exception as exc:  # noqa: BLE001 - an observer's failure is not the call's
                    _log.error(_FAILED, name, call.call_id, exc_info=exc)
            if result is None:
                result = await inner(call)
                result.metadata.duration_ms = (monotonic() - call.started) * 1000
        finally:
            for name, after, value in kept:
                try:
                    if (busy := after(call, result, value)) is not None:
                        await busy
                except Exception as exc:  # noqa: BLE001 - as above
                    _log.error(_FAILED, name, call.call_id, exc_info=exc)
            for name, after in afters:
                try:
                    if (busy := after(call, result)) is not None:
                        await busy
                except Exception as exc:  # noqa: BLE001 - as above
                    _log.error(_FAILED, name, call.call_id, exc_info=exc)
        return result

    return step


_FAILED = "the observer %s failed (call %s)"


def watched(ring: Ring, inner: Walk, name: str) -> Walk:
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
            _log.error(_FAILED, name, call.call_id, exc_info=exc)
        if not begun:
            await onward(call)
        if seen is None:  # the observer kept a cancellation for itself
            raise asyncio.CancelledError
        return seen

    return step


def last_words(call: Call, result: Result, tells: Iterable[Tells]) -> Result:
    for one in tells:
        try:
            result = one.tells(result)
        except Exception as exc:  # noqa: BLE001 - the border: what may not be said is not said
            call.warnings.clear()
            return failed(call, exc, getattr(one, "name", "road"))
    return result


def failed(call: Call, exc: Exception, speaker: str) -> Result:
    error = failure(exc, tool=call.tool, call_id=call.call_id, effects=call.spec.effects)
    call.note(speaker, error.code)
    return Result(error=error, metadata=metadata(call))


def metadata(call: Call, plan: dict[str, Any] | None = None) -> Metadata:
    duration = (monotonic() - call.started) * 1000
    return Metadata(call.call_id, duration, 1, False, call.warnings, call.trail, plan)
