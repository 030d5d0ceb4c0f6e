"""A tool's chain: how rings are put around the rest of the road.

Above: the executor. Below: ``steps.py``, the borders between rings. Folded once per tool, so that a
ring which does not apply to it costs nothing. What a ring decides is not known here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, cast

import msgspec

from toolpost import steps
from toolpost.call import Call, Caller
from toolpost.contracts import (
    Around,
    Behind,
    Check,
    Extension,
    Hears,
    Hides,
    Ring,
    Road,
    Sees,
    Walk,
    Watch,
)
from toolpost.errors import ConfigError, SetupError, Unavailable
from toolpost.patterns import choosing
from toolpost.result import Result
from toolpost.schema import Schema
from toolpost.spec import ToolSpec

_log = logging.getLogger("toolpost")
_Named = tuple[str, Any]


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
    told = getattr(extension, "look", None) or getattr(extension, "after", extension)
    return _Everywhere(getattr(told, "__name__", "ring"), extension)


def guarded(
    spec: ToolSpec, invoke: Callable[..., Walk], guards: Iterable[Extension], road: Road
) -> tuple[Walk, tuple[str, ...], bool]:
    """Admit, then the guards that apply to this tool, then invoke; the guards' names; and whether
    none of them takes time once the tool has run.
    """
    schema = Schema(spec.input_schema, coerce=spec.coerce)
    bound = [(g, ring) for g in guards if (ring := g.bind(spec, road)) is not None]
    rings = [(guard.name, ring) for guard, ring in bound]
    hearing = [(guard.name, guard.hears) for guard, _ in bound if isinstance(guard, Hears)]
    runs = _runs(rings, Check, Around)
    walk = invoke(schema, alone=not rings)
    for place, (shape, some) in enumerate(runs, 1):
        outermost = place == len(runs)
        hear = hearing if outermost else ()
        if shape is Check:
            walk = steps.checked(schema, some, walk, hearing=hear)
            continue
        behind = None
        for name, ring in reversed(some):
            if shape is Around:
                inner = walk
                walk = ring.around(inner, partial(steps.failed, speaker=name), behind)
                behind = None if ring.gate is None else Behind(name, ring.gate, inner)
            else:
                walk = steps.guarded(schema, ring, walk, name=name)
        if hear or (shape is Around and (outermost or runs[place][0] is not Check)):
            walk = steps.checked(schema, (), walk, hearing=hear)
    brief = all(
        isinstance(ring, Check) or (isinstance(ring, Around) and ring.brief) for _, ring in rings
    )
    return walk, tuple(name for name, _ in rings), brief


def observed(
    spec: ToolSpec, walk: Walk, observers: Iterable[Extension], road: Road, *, brief: bool = False
) -> tuple[Walk, tuple[str, ...]]:
    """The observers that apply to this tool around the rest; and their names. ``brief``: what comes
    from the rest says already how long it took.
    """
    rings = [(o.name, ring) for o in observers if (ring := o.bind(spec, road)) is not None]
    for shape, some in _runs(rings, Watch):
        if shape is Watch:
            walk = steps.told(some, walk, brief=brief)
        for name, ring in () if shape is Watch else reversed(some):
            walk = steps.watched(ring, walk, name)
    return walk, tuple(name for name, _ in rings)


def _runs(rings: Sequence[_Named], *light: type) -> list[tuple[type | None, list[_Named]]]:
    """Neighbours of the same light shape, or of none, together; the innermost first."""
    runs = groupby(rings, lambda ring: type(ring[1]) if isinstance(ring[1], light) else None)
    return [(shape, list(some)) for shape, some in runs][::-1]


def refused(spec: ToolSpec, exc: Exception, observers: Sequence[Extension], road: Road) -> Walk:
    """The road of a tool that cannot be called, in sight of every observer that can be had."""
    why = exc
    if isinstance(exc, SetupError):  # of the tool's own making: who set it up reads it in results
        _log.error("%s cannot be called: %s", spec.name, exc)
        why = Unavailable(exc.message, retryable=False, remedy="other_tool", effects="none")
    walk = steps.refusing(lambda call: why)
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


def may_know(caller: Caller, spec: ToolSpec, judges: Iterable[Sees] = ()) -> bool:
    """Whether a tool is there for a caller: one of the caller's own tools, and hidden by nobody."""
    try:
        if caller.tools is not None and not choosing(caller.tools)(spec):
            return False
        for judge in judges:  # noqa: SIM110 - all() costs three times as much, on every call
            if not judge.sees(caller, spec):
                return False
        return True
    except Exception:  # noqa: BLE001 - fail closed: what cannot be judged is not shown
        _log.exception("it cannot be said who may see %s", spec.name)
        return False
