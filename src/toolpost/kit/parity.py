"""Old tools held against new ones: the same calls, and what came back compared.

Above: ``toolpost parity``, and test suites of who moves from one to the other. Below: anything that
executes calls by name. What differs is named by its place in the output; whether it matters is for
a person to say, who may ``ignore`` fields by name. It refuses to know where tools come from.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final, NamedTuple, Self

import msgspec

from toolpost.document import parse
from toolpost.errors import SourceError
from toolpost.executor import Executor
from toolpost.plain import json_name, pointer
from toolpost.result import Result
from toolpost.runtime import Runtime
from toolpost.spec import ToolSpec
from toolpost.wording import short

TOLERANCE: Final = 1e-9
_MOST_TOLD: Final = 10
"""Differences that are told of one call."""
_MOST_SHOWN: Final = 60
_ABSENT: Final = "(not there)"


class Side(NamedTuple):
    """Tools that are compared with others: what they are, and how one is called."""

    name: str
    specs: Mapping[str, ToolSpec]
    execute: Callable[[str, Mapping[str, Any]], Awaitable[Result]]

    @classmethod
    def of(cls, name: str, tools: Executor | Runtime) -> Self:
        return cls(name, {spec.name: spec for spec in tools.list()}, tools.execute)


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One call: what the tool is called on either side, and its arguments; ``line`` is its place
    in the file.
    """

    old: str
    new: str
    arguments: dict[str, Any] = {}
    line: int = 0


class Difference(msgspec.Struct, frozen=True):
    """``at`` is a JSON pointer into the output, or names what differs beside it."""

    at: str
    old: str
    new: str


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One call on both sides, and how long each took; ``skipped`` is why it was not made."""

    ask: Ask
    differences: tuple[Difference, ...] = ()
    old_ms: float | None = None
    new_ms: float | None = None
    skipped: str = ""


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """Of one tool: medians in milliseconds, and how many times the old one's the new one's is."""

    calls: int
    same: int
    old_p50: float | None
    new_p50: float | None
    ratio: float | None


class Parity(msgspec.Struct, frozen=True, kw_only=True):
    """What came of all calls."""

    compared: tuple[Compared, ...]

    @property
    def same(self) -> bool:
        return not any(one.differences for one in self.compared)

    def tools(self) -> dict[str, Latencies]:
        """By the new name of each tool that was called."""
        by_tool: dict[str, list[Compared]] = {}
        for one in self.compared:
            if not one.skipped:
                by_tool.setdefault(one.ask.new, []).append(one)
        return {name: _latencies(found) for name, found in sorted(by_tool.items())}


def calls_in(file: Path) -> list[Ask]:
    """Calls of a file, a JSON object a line: ``{"tool": "add", "arguments": {"a": 1}}``. ``old``
    and ``new`` may say what the tool is called there. Other fields are left aside, so that the
    lines of an exported audit will do.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise SourceError(f"{file}: the calls cannot be read: {exc}") from exc
    found = [_ask(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise SourceError(f"{file}: there is no call in it")
    return found


def _ask(file: Path, number: int, line: str) -> Ask:
    said = parse(line, format="json", name=f"{file}:{number}").data
    if not isinstance(said, Mapping):
        raise SourceError(f"{file}:{number}: a call is an object with a tool and its arguments")
    old, new = (said.get(key, said.get("tool")) for key in ("old", "new"))
    arguments = said.get("arguments") or {}
    if not isinstance(old, str) or not isinstance(new, str) or not isinstance(arguments, Mapping):
        raise SourceError(
            f"{file}:{number}: say which tool is called, and with which arguments: "
            '{"tool": "add", "arguments": {"a": 1}}'
        )
    return Ask(old=old, new=new, arguments=dict(arguments), line=number)


def changing(old: Side, new: Side, calls: Iterable[Ask]) -> list[str]:
    """The new names of tools that would be called and do more than read."""
    return sorted({ask.new for ask in calls if not reads(old, new, ask)})


def reads(old: Side, new: Side, ask: Ask) -> bool:
    """Whether a call only reads: the new spec says it. Many an old contract has no word for it, so
    that what an old spec says counts only where there is no new one.
    """
    spec = new.specs.get(ask.new) or old.specs.get(ask.old)
    return spec is None or spec.effects == "read"


async def compare(
    old: Side,
    new: Side,
    calls: Sequence[Ask],
    *,
    tolerance: float = TOLERANCE,
    ignore: Collection[str] = (),
    only_read: bool = False,
    repeat: int = 1,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Parity:
    """Make every call on both sides, one after the other, ``repeat`` times.

    Numbers may differ by ``tolerance``, in relation to their size or absolutely; two integers may
    not. ``ignore`` are names of fields, wherever they are, or JSON pointers to them.
    """
    same = _Same(tolerance, frozenset(ignore))
    found = []
    for done, ask in enumerate(calls):
        tell(done, len(calls))
        if only_read and not reads(old, new, ask):
            found.append(Compared(ask=ask, skipped="it may change something"))
            continue
        found += [await _compared(old, new, ask, same) for _ in range(repeat)]
    return Parity(compared=tuple(found))


async def _compared(old: Side, new: Side, ask: Ask, same: _Same) -> Compared:
    there = [
        name if name in side.specs else _ABSENT for side, name in ((old, ask.old), (new, ask.new))
    ]
    if _ABSENT in there:
        return Compared(ask=ask, differences=(Difference("tool", *there),))
    one, old_ms = await _timed(old, ask.old, ask.arguments)
    other, new_ms = await _timed(new, ask.new, ask.arguments)
    told = tuple(islice(_differences(one, other, same), _MOST_TOLD))
    return Compared(ask=ask, differences=told, old_ms=old_ms, new_ms=new_ms)


async def _timed(side: Side, name: str, arguments: Mapping[str, Any]) -> tuple[Result, float]:
    begun = perf_counter()
    result = await side.execute(name, arguments)
    return result, round((perf_counter() - begun) * 1000, 3)


def _differences(old: Result, new: Result, same: _Same) -> Iterator[Difference]:
    codes = [one.error.code if one.error is not None else "OK" for one in (old, new)]
    if codes[0] != codes[1]:
        yield Difference("code", _told(old), _told(new))
    elif old.error is None:
        yield from same.differences(old.output, new.output)
        before, after = (msgspec.to_builtins(list(one.parts)) for one in (old, new))
        yield from same.differences(before, after, ("parts",))


def _told(result: Result) -> str:
    return "OK" if result.error is None else f"{result.error.code}: {result.error.message}"


class _Same(NamedTuple):
    """When two values are the same."""

    tolerance: float
    ignore: frozenset[str]

    def differences(
        self, old: Any, new: Any, at: tuple[str | int, ...] = ()
    ) -> Iterator[Difference]:
        if at and (at[-1] in self.ignore or pointer(at) in self.ignore):
            return
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            for key in (*old, *(key for key in new if key not in old)):
                yield from self._inside(old, new, key, (*at, key))
        elif isinstance(old, list) and isinstance(new, list):
            if len(old) != len(new):
                yield Difference(_place(at), f"{len(old)} items", f"{len(new)} items")
            for index, (one, other) in enumerate(zip(old, new, strict=False)):
                yield from self.differences(one, other, (*at, index))
        elif not self._equal(old, new):
            yield Difference(_place(at), _shown(old), _shown(new))

    def _inside(
        self, old: Mapping[str, Any], new: Mapping[str, Any], key: str, at: tuple[str | int, ...]
    ) -> Iterator[Difference]:
        if key in old and key in new:
            yield from self.differences(old[key], new[key], at)
        elif key not in self.ignore and pointer(at) not in self.ignore:
            values = [_shown(side[key]) if key in side else _ABSENT for side in (old, new)]
            yield Difference(_place(at), *values)

    def _equal(self, old: Any, new: Any) -> bool:
        kinds = {json_name(old), json_name(new)}
        if kinds == {"integer"} or not kinds <= {"integer", "number"}:  # ids are near each other
            return type(old) is type(new) and bool(old == new)
        try:
            return math.isclose(old, new, rel_tol=self.tolerance, abs_tol=self.tolerance)
        except OverflowError:  # an integer that is larger than any float
            return bool(old == new)


def _place(at: tuple[str | int, ...]) -> str:
    return pointer(at) or "output"


def _shown(value: Any) -> str:
    return short(msgspec.json.encode(value).decode(), _MOST_SHOWN)


def _latencies(found: Sequence[Compared]) -> Latencies:
    medians = [
        median(took) if (took := [ms for ms in times if ms is not None]) else None
        for times in ([one.old_ms for one in found], [one.new_ms for one in found])
    ]
    old, new = medians
    return Latencies(
        calls=len(found),
        same=sum(not one.differences for one in found),
        old_p50=old,
        new_p50=new,
        ratio=round(new / old, 2) if old and new else None,
    )
