"""``analyze_logs``: an analysis as an answer for a model, never longer than it can be read.

Above: ``toolpost.builtin``. Below: ``analysis.py`` and ``rooted.py``, which opens files. A log that
takes longer than the tool has is answered for as far as it was read, and the answer says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated, Final, TypedDict

import msgspec
from annotated_types import Ge, Le, MaxLen, MinLen

from toolpost import Call, FunctionTool, Given, InvalidArguments, Limits, tool
from toolpost.builtin import given, raw
from toolpost.builtin.logs.analysis import Analysis, Burst, Kept, Stack, Tell, bursts, example, said
from toolpost.builtin.logs.mining import REST
from toolpost.builtin.logs.reading import LONGEST, Lines
from toolpost.builtin.rooted import Root, reading, roots
from toolpost.options import Options

SAMPLE: Final = """\
# Folders whose files analyze_logs may read, packed ones too (gz, bz2, xz).
roots = ["logs"]
"""

_TIMEOUT: Final = 120.0
_ANSWERED_BY: Final = 0.75
"""Of the tool's time: what was read by then is what is told."""
_SHOWN: Final = 10
_STACKS: Final = 3
_MB: Final = 1_000_000


class Settings(Options, frozen=True):
    """``[sources.logs]``: the folders whose files may be read, and how much of one."""

    roots: tuple[str, ...] = ()
    most_bytes: Annotated[int, msgspec.Meta(ge=1_000_000)] = 8_000_000_000
    """Bytes of one log that are read at most, unpacked."""


class Logs(msgspec.Struct, frozen=True):
    """The settings as the tool has them."""

    roots: tuple[Root, ...]
    most_bytes: int


class Template(TypedDict):
    """A kind of message; ``<*>`` stands for what differs."""

    id: str
    template: str
    count: int
    share: float
    level: str | None
    first_line: int
    last_line: int
    first_seen: str | None
    last_seen: str | None
    first_example: str
    last_example: str


class StackGroup(TypedDict):
    """Stack traces that are the same but for values; frames from the innermost outwards."""

    language: str
    error: str
    message: str
    count: int
    first_line: int
    last_line: int
    frames: list[str]


class ErrorGroup(TypedDict):
    """A kind of error message and the stack traces that came with it. ``level_is`` is ``said``, or
    ``guessed`` where the log has no levels; a stack trace that nothing stands before has no
    template.
    """

    template_id: str | None
    template: str
    level: str
    level_is: str
    count: int
    first_line: int
    last_line: int
    first_seen: str | None
    last_seen: str | None
    example: str
    stacks: list[StackGroup]


class BurstFound(TypedDict):
    """A stretch of time with more lines than usual, and the templates that made it."""

    start: str
    end: str
    lines: int
    usual: float
    templates: list[str]


class TimeRange(TypedDict):
    start: str
    end: str
    seconds: float


class LogAnalysis(TypedDict):
    """``complete`` is false if not all of it was read: ``notes`` say why."""

    complete: bool
    lines: int
    records: int
    bytes: int
    format: str
    compression: str | None
    time_range: TimeRange | None
    levels: dict[str, int]
    template_count: int
    templates: list[Template]
    errors: list[ErrorGroup]
    bursts: list[BurstFound]
    new: list[str]
    rare: list[str]
    notes: list[str]


_EXAMPLE: Final = (
    "2026-03-14 09:26:53 INFO job 17 done in 12 ms\n"
    "2026-03-14 09:26:54 INFO job 18 done in 9 ms\n"
    "2026-03-14 09:26:55 ERROR job 19 failed: disk full\n"
)


@raw("text")
@tool(
    title="Analyze a log",
    category="other",
    tags=["logs", "troubleshooting"],
    tier=1,
    effects="read",
    timeout=_TIMEOUT,
    isolation="process",
    limits=Limits(concurrency=4, output=1024 * 1024),
    labels={"external": "true"},
    examples=[{"text": _EXAMPLE}, {"path": "app.log", "limit": 10}],
)
def analyze_logs(
    call: Call,
    text: Annotated[str, MinLen(1)] | None = None,
    path: Annotated[str, MinLen(1), MaxLen(4096)] | None = None,
    limit: Annotated[int, Ge(1), Le(200)] = 20,
    *,
    logs: Given[Logs],
) -> LogAnalysis:
    """Find out what a log says: its kinds of messages, its errors, its bursts.

    Tells the templates of its messages with counts and examples, levels, the time it covers,
    bursts, errors with their stack traces grouped, what is new towards its end and what is rare.
    Works on any text log, JSON lines and access logs included, of any size. Give `text` or `path`.

    :param text: The log itself.
    :param path: A log file, plain or packed (gz, bz2, xz, zstd), in one of the folders for logs.
    :param limit: How many kinds of messages to show, the most frequent first.
    """
    if (text is None) == (path is None):
        raise InvalidArguments("Give either text or path", effects="none")
    with _source(text, path, logs) as source:
        analysis = Analysis(until=_until(call), tell=_progress(call))
        analysis.run(source)
        if not analysis.complete:
            call.warn("There was no time for all of the log: this is what was read by then.")
        return _answer(analysis, source, limit)


def tools(settings: Settings, base: Path) -> Iterable[FunctionTool]:
    made = Logs(roots(settings.roots, base), settings.most_bytes)
    return [given(analyze_logs, logs=made)]


@contextmanager
def _source(text: str | None, path: str | None, logs: Logs) -> Iterator[Lines]:
    if text is not None:
        yield Lines.of_text(text)
        return
    assert path is not None
    with reading(path, logs.roots) as fd, os.fdopen(os.dup(fd), "rb", buffering=0) as file:
        yield Lines(file, size=os.fstat(fd).st_size, most=logs.most_bytes)


def _until(call: Call) -> float:
    now = monotonic()
    left = call.spec.time_limit
    if call.deadline is not None:
        left = min(left, max(0.0, call.deadline - now))
    return now + left * _ANSWERED_BY


def _progress(call: Call) -> Tell:
    def tell(source: Lines) -> None:
        call.progress(source.taken, source.size, f"{source.unpacked / _MB:.0f} MB of log read")

    return tell


def _answer(analysis: Analysis, source: Lines, limit: int) -> LogAnalysis:
    named = [(f"T{n}", text, kept) for n, (text, kept) in enumerate(analysis.templates, 1)]
    ids = {id(kept): name for name, _, kept in named}
    return {
        "complete": analysis.complete and not source.cut_short and not source.broken,
        "lines": analysis.lines,
        "records": analysis.records,
        "bytes": source.unpacked,
        "format": analysis.layout.name,
        "compression": source.compression or None,
        "time_range": _time_range(analysis),
        "levels": dict(analysis.levels.most_common()),
        "template_count": len(named),
        "templates": [_template(*one, analysis) for one in named[:limit]],
        "errors": _errors(named, analysis),
        "bursts": [_burst(one, named) for one in bursts(analysis.times)],
        "new": [ids[id(kept)] + ": " + text for text, kept in _new(analysis)],
        "rare": [ids[id(kept)] + ": " + text for text, kept in _rare(analysis)],
        "notes": list(_notes(analysis, source, limit)),
    }


def _time_range(analysis: Analysis) -> TimeRange | None:
    first, last = analysis.earliest, analysis.latest
    if first is None or last is None:
        return None
    return {
        "start": said(first) or "",
        "end": said(last) or "",
        "seconds": round(last - first, 3),
    }


def _template(name: str, text: str, kept: Kept, analysis: Analysis) -> Template:
    return {
        "id": name,
        "template": example(text),
        "count": kept.count,
        "share": round(kept.count / max(1, analysis.records), 4),
        "level": kept.level(text)[0],
        "first_line": kept.first_line,
        "last_line": kept.last_line,
        "first_seen": said(kept.first_moment),
        "last_seen": said(kept.last_moment),
        "first_example": example(kept.first),
        "last_example": example(kept.last),
    }


Named = tuple[str, str, Kept]


def _errors(named: Sequence[Named], analysis: Analysis) -> list[ErrorGroup]:
    found: list[ErrorGroup] = []
    for name, text, kept in named:
        level, is_said = kept.level(text)
        if level in ("error", "critical") or kept.stacks:
            found.append(_error(name, text, kept, (level or "error", is_said)))
    found += [_bare(stack) for stack in analysis.bare.values()]
    found.sort(key=lambda one: (one["level_is"] != "said" and not one["stacks"], -one["count"]))
    return found[:_SHOWN]


def _error(name: str, text: str, kept: Kept, level: tuple[str, bool]) -> ErrorGroup:
    stacks = sorted(kept.stacks.values(), key=lambda one: -one.count)
    return {
        "template_id": name,
        "template": example(text),
        "level": level[0],
        "level_is": "said" if level[1] else "guessed",
        "count": kept.count,
        "first_line": kept.first_line,
        "last_line": kept.last_line,
        "first_seen": said(kept.first_moment),
        "last_seen": said(kept.last_moment),
        "example": example(kept.last),
        "stacks": [_stack(one) for one in stacks[:_STACKS]],
    }


def _bare(stack: Stack) -> ErrorGroup:
    trace = stack.trace
    named = f"{trace.error}: {trace.said}" if trace.said else trace.error
    return {
        "template_id": None,
        "template": example(named),
        "level": "error",
        "level_is": "guessed",
        "count": stack.count,
        "first_line": stack.first_line,
        "last_line": stack.last_line,
        "first_seen": None,
        "last_seen": None,
        "example": example(named),
        "stacks": [_stack(stack)],
    }


def _stack(stack: Stack) -> StackGroup:
    return {
        "language": stack.trace.language,
        "error": stack.trace.error,
        "message": stack.trace.said,
        "count": stack.count,
        "first_line": stack.first_line,
        "last_line": stack.last_line,
        "frames": list(stack.trace.frames),
    }


def _burst(burst: Burst, named: Sequence[Named]) -> BurstFound:
    within = [(kept.times.between(burst.start, burst.end), name) for name, _, kept in named]
    within.sort(key=lambda one: -one[0])
    return {
        "start": said(burst.start) or "",
        "end": said(burst.end) or "",
        "lines": burst.lines,
        "usual": burst.usual,
        "templates": [name for count, name in within[:3] if count > burst.lines * 0.05],
    }


def _new(analysis: Analysis) -> list[tuple[str, Kept]]:
    """Templates that came up first in the last quarter of a log that is long enough to say so."""
    if analysis.lines < 100:
        return []
    late = analysis.lines * 0.75
    new = [(text, kept) for text, kept in analysis.templates if kept.first_line > late]
    return new[:_SHOWN]


def _rare(analysis: Analysis) -> list[tuple[str, Kept]]:
    """The rarest templates of a log in which not everything is rare; errors first."""
    if analysis.lines < 100:
        return []
    most = max(1, analysis.lines // 10_000)
    rare = [(t, kept) for t, kept in analysis.templates if kept.count <= most and t != REST]
    rare.sort(key=lambda one: (one[1].level(one[0])[0] not in ("error", "critical"), one[1].count))
    return rare[:_SHOWN]


def _notes(analysis: Analysis, source: Lines, limit: int) -> Iterator[str]:
    if not analysis.complete:
        share = f" of {source.size / _MB:.0f}" if source.size else ""
        yield (
            f"Stopped for lack of time after {source.taken / _MB:.0f}{share} MB of the file: "
            "all counts are of what was read."
        )
    if source.cut_short:
        yield f"Only the first {source.unpacked / _MB:.0f} MB of the log were read."
    if source.broken:
        yield f"The compressed file is damaged ({source.broken}): this is what could be unpacked."
    if source.cut:
        yield f"{source.cut} lines were longer than {LONGEST} characters; their ends were left out."
    if analysis.lines and analysis.times.counts and analysis.layout.yearless:
        yield "The log's times name no year: the latest year that fits was assumed."
    if len(analysis.templates) > limit:
        yield f"{len(analysis.templates) - limit} more kinds of messages are not shown."
    if any(text == REST for text, _ in analysis.templates):
        yield "There were too many kinds of messages to keep apart: some are counted together."
