"""A tool's chain: how rings are put around the rest of the road.

Folded once per tool. ``settled`` is the border between rings, the one place where an exception
becomes a result; ``admitted`` is where arguments are checked; ``watched`` keeps an observer from
changing what it observes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from toolpost.call import Call
from toolpost.contracts import Extension, Ring, Road, Walk
from toolpost.errors import CallError, InternalError
from toolpost.result import Metadata, Result, failure
from toolpost.schema import Schema
from toolpost.spec import ToolSpec

_log = logging.getLogger("toolpost")
_replace: Callable[..., Call] = msgspec.structs.replace


class _Everywhere(msgspec.Struct, frozen=True):
    """A plain ``async (call, call_next)`` function as an extension: around every tool."""

    name: str
    ring: Ring

    def bind(self, spec: ToolSpec, road: Road) -> Ring:
        return self.ring


def as_extension(extension: Extension | Ring) -> Extension:
    if hasattr(extension, "bind"):
        return extension
    return _Everywhere(getattr(extension, "__name__", "ring"), extension)


def guarded(
    spec: ToolSpec, invoke: Walk, guards: Iterable[Extension], road: Road
) -> tuple[Walk, tuple[str, ...]]:
    """Admit, then the guards that apply to this tool, then invoke; and the guards' names."""
    schema = Schema(spec.input_schema, coerce=spec.coerce)
    rings = [(g.name, ring) for g in guards if (ring := g.bind(spec, road)) is not None]
    if not rings:
        return settled(_admitted(schema, invoke)), ()
    walk = _admitted_again(schema, invoke)
    for name, ring in reversed(rings):
        walk = _admitted_again(schema, settled(_around(ring, walk), name))
    return settled(_admitted_first(schema, walk)), tuple(name for name, _ in rings)


def observed(
    spec: ToolSpec, walk: Walk, observers: Iterable[Extension], road: Road
) -> tuple[Walk, tuple[str, ...]]:
    """The observers that apply to this tool around the rest; and their names."""
    rings = [(o.name, ring) for o in observers if (ring := o.bind(spec, road)) is not None]
    for name, ring in reversed(rings):
        walk = _watched(ring, walk, name)
    return walk, tuple(name for name, _ in rings)


def settled(walk: Walk, name: str | None = None) -> Walk:
    """The same walk, but whatever it raises comes back as a result."""

    async def step(call: Call) -> Result:
        if name is not None:
            call.trail.append(name)
        try:
            result = await walk(call)
            if type(result) is not Result:
                raise InternalError(f"The extension {name!r} did not return a result.")
            return result
        except Exception as exc:  # the border: inside a ring one raises, outside there is data
            error = failure(exc, tool=call.tool, call_id=call.call_id, effects=call.spec.effects)
            call.note(name or "road", error.code)
            return Result(error=error, metadata=metadata(call))

    return step


def metadata(call: Call, plan: dict[str, Any] | None = None) -> Metadata:
    return Metadata(call.call_id, 0.0, 1, False, call.warnings, call.trail, plan)


def raising(exc: Exception) -> Walk:
    """A road that ends at once."""

    async def walk(call: Call) -> Result:
        raise exc

    return walk


def _around(ring: Ring, inner: Walk) -> Walk:
    def walk(call: Call) -> Awaitable[Result]:
        return ring(call, inner)

    return walk


def _watched(ring: Ring, inner: Walk, name: str) -> Walk:
    """An observer may refuse a call before it runs, by a ``CallError`` (an audit that cannot
    write). If it breaks in any other way the call goes on without it.
    """

    async def step(call: Call) -> Result:
        seen: Result | None = None

        async def onward(_: Call) -> Result:
            nonlocal seen
            if seen is None:
                seen = await inner(call)
            return seen

        call.trail.append(name)
        try:
            await ring(call, onward)
        except CallError as refusal:
            if seen is None:
                return await settled(raising(refusal), name)(call)
        except Exception:  # an observer's failure is not the call's
            _log.exception("the observer %s failed (call %s)", name, call.call_id)
        return seen if seen is not None else await onward(call)

    return step


def _admitted(schema: Schema, inner: Walk) -> Walk:
    """Check and fill in the arguments; with no guard behind, nobody needs a mark on the call."""
    admit = schema.admit

    def step(call: Call) -> Awaitable[Result]:
        arguments = admit(call.arguments)
        return inner(
            call if arguments is call.arguments else _replace(call, arguments=arguments)
        )

    return step


def _admitted_first(schema: Schema, inner: Walk) -> Walk:
    admit = schema.admit

    def step(call: Call) -> Awaitable[Result]:
        arguments = admit(call.arguments)
        return inner(_replace(call, arguments=arguments, admitted=arguments))

    return step


def _admitted_again(schema: Schema, inner: Walk) -> Walk:
    """A guard that rewrote the arguments sends them through the check again."""
    again = _admitted_first(schema, inner)

    def step(call: Call) -> Awaitable[Result]:
        return inner(call) if call.arguments is call.admitted else again(call)

    return step
