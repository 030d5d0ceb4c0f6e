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
from typing import Any, NamedTuple

import msgspec

from toolpost.call import Call
from toolpost.contracts import Check, Extension, Keeps, Ring, Sure, Tells, Walk, Watch
from toolpost.errors import CallError
from toolpost.failure import failure
from toolpost.result import NOWHERE, Metadata, Result
from toolpost.schema import Schema

_log = logging.getLogger("toolpost")
_replace: Callable[..., Call] = msgspec.structs.replace
_mark = msgspec.structs.force_setattr
Hear = Callable[[Call, Result], Result]


def refusing(why: Callable[[Call], Exception]) -> Walk:
    """A road that ends at once."""

    async def step(call: Call) -> Result:
        return failed(call, why(call), "road")

    return step


def checked(
    schema: Schema,
    checks: Sequence[tuple[str, Check]],
    inner: Walk,
    *,
    hearing: Sequence[tuple[str, Hear]] = (),
) -> Walk:
    """Checks that stand side by side, in one step that is not even a coroutine. A ring that one of
    them wants stands around those behind it. Bad arguments end a call before all of them, where
    guards that want to hear of it do.
    """
    walk, looks = inner, list[_Look]()
    for name, check in reversed(checks):
        looks.insert(0, _Look(name, check, walk))
        walk = _looking(schema, looks, inner, ())
    return _looking(schema, looks, inner, hearing) if hearing or not checks else walk


class _Look(NamedTuple):
    name: str
    check: Check
    rest: Walk


def _looking(  # noqa: C901 - every call goes through here: in one piece, for that is fastest
    schema: Schema, looks: Sequence[_Look], inner: Walk, hearing: Sequence[tuple[str, Hear]]
) -> Walk:
    fits = schema.native() or (lambda _: False)
    sure = next((one.check.sure for one in looks if one.check.sure is not None), None) or Sure()
    every, of_plain = _in_turn(looks), _in_turn(looks, lambda check: check.plain)
    unsure = _in_turn(looks, lambda check: check.sure is sure)
    unsure_of_plain = _in_turn(looks, lambda check: check.plain or check.sure is sure)
    way = NOWHERE

    def step(call: Call) -> Awaitable[Result]:
        nonlocal way
        speaks: str | None = None
        certain = False
        try:
            if call.arguments is not call.admitted:
                try:
                    certain = (
                        sure.fits is not None
                        and len(sure.values) == sure.count
                        and sure.fits(call.arguments)
                    )
                    fit = certain or fits(call.arguments)
                except ValueError:  # not JSON: said by whoever looks closer
                    fit = certain = False
                if fit:
                    _mark(call, "admitted", call.arguments)  # a copy would cost five times as much
                else:
                    call = _admitted(call, schema)
            if (
                call.session_id is None
                and call.ask is None
                and call.grant is None
                and call.key is None
            ):
                turns, silent = unsure_of_plain if certain else of_plain
            else:
                turns, silent = unsure if certain else every
            about = call.about
            if not turns:
                if about.trail is way[0]:
                    about.trail = way[1]
                else:
                    way = about.passed(*silent)
                return inner(call)
            trail = about.open_trail()
            for names, speaks, look, rest in turns:
                trail += names
                found = look(call)
                if found is None:
                    continue
                if not isinstance(found, Call):
                    trail.pop()
                    return guarded(schema, found, rest, name=speaks)(call)
                call = found
                if call.arguments is not call.admitted:
                    call = _admitted(call, schema)
                return rest(call)
            trail += silent
        except Exception as exc:  # noqa: BLE001 - the border: a guard that breaks is a refusal
            result = failed(call, exc, speaks or "road")
            return _ready(result if speaks else _heard(call, result, hearing))
        return inner(call)

    return step


_Turn = tuple[list[str], str, Callable[[Call], Call | Ring | None], Walk]


def _in_turn(
    looks: Iterable[_Look], needless: Callable[[Check], bool] = lambda check: False
) -> tuple[list[_Turn], list[str]]:
    """Who looks at a call, each after the names of those that need not; and the last of these."""
    turns: list[_Turn] = []
    names: list[str] = []
    for name, check, rest in looks:
        names.append(name)
        if not needless(check):
            turns.append((names, name, check.look, rest))
            names = []
    return turns, names


def _heard(call: Call, result: Result, hearing: Sequence[tuple[str, Hear]]) -> Result:
    for name, hears in hearing:
        try:
            result = hears(call, result)
        except Exception as why:  # noqa: BLE001 - a guard that breaks is a refusal
            result = failed(call, why, name)
    return result


def _admitted(call: Call, schema: Schema) -> Call:
    arguments = schema.admit(call.arguments)
    if arguments is call.arguments:
        _mark(call, "admitted", arguments)
        return call
    return _replace(call, arguments=arguments, admitted=arguments)


async def _ready(result: Result) -> Result:
    return result


def guarded(schema: Schema, ring: Ring, inner: Walk, *, name: str) -> Walk:
    """Arguments that have not passed the check, or that a guard before has put in the place of
    those that had, are checked first.
    """

    async def step(call: Call) -> Result:
        speaks = "road"
        try:
            if call.arguments is not call.admitted:
                call = _admitted(call, schema)
            speaks = name
            call.about.open_trail().append(name)
            result = await ring(call, inner)
            if type(result) is not Result:
                raise TypeError(f"{name} returned a {type(result).__name__}, not a Result")
            if not result.metadata.call_id:  # the ring made it, and knows less than the call
                result = msgspec.structs.replace(result, metadata=metadata(call))
            return result
        except Exception as exc:  # noqa: BLE001 - the border: a guard that breaks is a refusal
            return failed(call, exc, speaks)

    return step


def told(watches: Sequence[tuple[str, Watch]], inner: Walk, *, brief: bool = False) -> Walk:
    """Observers that are only told, side by side: they can neither change nor repeat a call. They
    find in the result how long it took. ``brief``: the run was the last that took any time, and
    has said how much.
    """
    # nearly all chains have one that is asked and one that counts: a step has room for these
    for place in range(1, len(watches)):
        if _crowded(watches[: place + 1]):
            behind = told(watches[place:], inner, brief=brief)
            return _telling(watches[:place], behind, brief=brief, more=True)
    return _telling(watches, inner, brief=brief, more=False)


def _crowded(watches: Sequence[tuple[str, Watch]]) -> bool:
    asked = [watch for _, watch in watches if watch.before is not None]
    return len(asked) > 1 or len([watch for _, watch in watches if watch.inside is not None]) > 1


def _telling(  # noqa: C901 - every call goes through here: in one piece, for that is fastest
    watches: Sequence[tuple[str, Watch]], inner: Any, *, brief: bool, more: bool
) -> Walk:
    """``more``: behind are others like these, who hear of a call that is refused here."""
    names = tuple(name for name, _ in watches)
    inside = next((watch.inside for _, watch in watches if watch.inside is not None), None)
    afters = [(name, watch.after) for name, watch in reversed(watches) if watch.before is None]
    asked, before, after_asked = next(
        ((name, watch.before, watch.after) for name, watch in watches if watch.before is not None),
        ("", None, _nothing),
    )

    async def step(call: Call, result: Result | None = None) -> Result:  # noqa: C901 - as above
        about = call.about
        about.trail = (*about.trail, *names) if about.trail else names
        value, hears = None, False
        if inside is not None:
            inside.running += 1
        try:
            if before is not None:
                try:
                    value, hears = before(call), True
                except CallError as refusal:
                    result = result or failed(call, refusal, asked)
                except Exception as exc:  # noqa: BLE001 - an observer's failure is not the call's
                    _log.error(_FAILED, asked, call.call_id, exc_info=exc)
            if result is None:
                result = await inner(call)
                # a look may have put a ring around the rest: then there is more on the trail
                if not brief or result.metadata is not about or type(about.trail) is not tuple:
                    result.metadata.duration_ms = (monotonic() - call.started) * 1000
            elif more:
                await inner(call, result)
        finally:
            if inside is not None:
                inside.running -= 1
            if hears:
                try:
                    if (busy := after_asked(call, result, value)) is not None:
                        await busy
                except Exception as exc:  # noqa: BLE001 - as above
                    _log.error(_FAILED, asked, call.call_id, exc_info=exc)
            for name, after in afters:
                try:
                    if (busy := after(call, result)) is not None:
                        await busy
                except Exception as exc:  # noqa: BLE001 - as above
                    _log.error(_FAILED, name, call.call_id, exc_info=exc)
        return result

    return step


def _nothing(*_: object) -> None:
    """What a watch hears that was not asked."""


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

        call.about.open_trail().append(name)
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


class _Last(NamedTuple):
    """Who has a say when every ring has had its own, and of what."""

    name: str
    tells: Callable[[Result], Result] | None
    keeps: Callable[[Call, Result], Awaitable[Result]] | None


def having_the_last_word(extensions: Iterable[Extension]) -> Sequence[_Last]:
    found = [
        _Last(
            one.name,
            one.tells if isinstance(one, Tells) else None,
            one.keeps if isinstance(one, Keeps) else None,
        )
        for one in extensions
    ]
    return [one for one in found if one.tells or one.keeps]


async def last_words(call: Call, result: Result, last: Iterable[_Last]) -> Result:
    """Of what is large something is kept, when it is as the caller may have it."""
    for name, tells, keeps in last:
        try:
            if tells is not None:
                result = tells(result)
            if keeps is not None and call.about.size:
                result = await keeps(call, result)
        except Exception as exc:  # noqa: BLE001 - the border: what may not be said is not said
            call.about.warnings = ()
            return failed(call, exc, name)
    return result


def failed(call: Call, exc: Exception, speaker: str) -> Result:
    error = failure(exc, tool=call.tool, call_id=call.call_id, effects=call.spec.effects)
    call.note(speaker, error.code)
    return Result(error=error, metadata=metadata(call))


def metadata(call: Call, plan: dict[str, Any] | None = None) -> Metadata:
    about = call.about
    about.duration_ms = (monotonic() - call.started) * 1000
    about.plan = plan
    return about
