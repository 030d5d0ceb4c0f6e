"""A log read once, from its first line to its last, and what is worth telling about it.

Above: ``tool.py``. Below: ``reading.py`` gives the lines, ``layout.py`` splits them, ``mining.py``
groups the messages, ``stacks.py`` the stack traces. Everything that is kept is bounded: templates,
examples, times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Final

from toolpost.builtin.logs.layout import Layout, Piece
from toolpost.builtin.logs.mining import Miner
from toolpost.builtin.logs.moments import written
from toolpost.builtin.logs.reading import Lines
from toolpost.builtin.logs.stacks import Collector, Trace, names_an_error, trace_in

_SAMPLE: Final = 1000
"""Lines from which the layout is learned."""
_PIECE: Final = 2000
"""Lines after which it looks at the clock."""
_EXAMPLE: Final = 500
_MOST_STACKS: Final = 500
_MOST_TIMES: Final = 64
_MOST_TIMES_OF_ALL: Final = 1024
_BAD: Final = re.compile(
    r"\b(?:error|errors|fail|fails|failed|failure|failures|exception|fatal|panic|critical|denied|"
    r"refused|timed out|timeout|unable|cannot|could not|aborted|corrupt\w*|traceback|segfault)\b",
    re.IGNORECASE,
)

Tell = Callable[[Lines], None]


class Times:
    """How many lines came when: a histogram that becomes coarser rather than large."""

    __slots__ = ("counts", "most", "width")

    def __init__(self, most: int = _MOST_TIMES) -> None:
        self.counts: dict[int, int] = {}
        self.width, self.most = 1, most

    def add(self, moment: float, count: int = 1) -> None:
        place = int(moment) // self.width
        counts = self.counts
        if place in counts:
            counts[place] += count
        else:
            counts[place] = count
            while len(self.counts) > self.most:
                self._coarsen()

    def absorb(self, other: Times) -> None:
        for place, count in other.counts.items():
            self.add(place * other.width, count)

    def between(self, start: float, end: float) -> int:
        return sum(n for place, n in self.counts.items() if start <= place * self.width < end)

    def _coarsen(self) -> None:
        self.width *= 2
        merged: Counter[int] = Counter()
        for place, count in self.counts.items():
            merged[place // 2] += count
        self.counts = dict(merged)


class Kept:
    """What is kept about one template."""

    __slots__ = (
        "count",
        "first",
        "first_line",
        "first_moment",
        "last",
        "last_line",
        "last_moment",
        "levels",
        "stacks",
        "times",
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = 0
        self.first_line = self.last_line = 0
        self.first_moment: float | None = None
        self.last_moment: float | None = None
        self.first = self.last = ""
        self.levels: Counter[str] = Counter()
        self.stacks: dict[tuple[object, ...], Stack] = {}
        self.times = Times()

    def see(self, number: int, line: str, piece: Piece) -> None:
        moment, level = piece.moment, piece.level
        if not self.count:
            self.first_line, self.first = number, line
            self.first_moment = moment
        self.count += 1
        self.last_line, self.last = number, line
        if level is not None:
            self.levels[level] += 1
        if moment is not None:
            self.last_moment = moment
            self.times.add(moment)

    def absorb(self, other: Kept) -> None:
        if other.first_line < self.first_line:
            self.first_line, self.first = other.first_line, other.first
            self.first_moment = other.first_moment
        if other.last_line > self.last_line:
            self.last_line, self.last = other.last_line, other.last
            self.last_moment = other.last_moment
        self.count += other.count
        self.levels += other.levels
        self.times.absorb(other.times)
        for key, stack in other.stacks.items():
            if key in self.stacks:
                self.stacks[key].absorb(stack)
            else:
                self.stacks[key] = stack

    def level(self, template: str) -> tuple[str | None, bool]:
        """The level most of its lines have, and whether it was said; else what its words tell."""
        if self.levels:
            return self.levels.most_common(1)[0][0], True
        return ("error", False) if _BAD.search(template) else (None, False)


class Stack:
    """One stack trace, seen several times."""

    __slots__ = ("count", "first_line", "last_line", "trace")

    def __init__(self, trace: Trace, line: int) -> None:
        self.trace, self.count = trace, 0
        self.first_line = self.last_line = line

    def see(self, line: int) -> None:
        self.count += 1
        self.last_line = line

    def absorb(self, other: Stack) -> None:
        self.count += other.count
        self.first_line = min(self.first_line, other.first_line)
        self.last_line = max(self.last_line, other.last_line)


class Analysis:
    """``run`` reads the log; the rest is what was found."""

    def __init__(self, *, until: float | None = None, tell: Tell | None = None) -> None:
        self._until, self._tell = until, tell
        self.lines = self.records = 0
        self.levels: Counter[str] = Counter()
        self.times = Times(_MOST_TIMES_OF_ALL)
        self.earliest: float | None = None
        self.latest: float | None = None
        self.complete = True
        self.layout = Layout([])
        self.templates: list[tuple[str, Kept]] = []
        self.bare: dict[tuple[object, ...], Stack] = {}
        """Stack traces that no record stands before."""
        self._miner = Miner(Kept)
        self._collector = Collector()
        self._before, self._last = "", None  # type: str, Kept | None
        self._trace_at = 0

    def run(self, source: Lines) -> None:
        """Read it all, or as much as there is time for."""
        for batch in self._in_time(self._with_layout(iter(source))):
            for line in batch:
                self.lines += 1
                if line:
                    self._line(line)
            if self._tell is not None:
                self._tell(source)
        self._end_trace()
        self.templates = sorted(self._miner.close(), key=lambda one: -one[1].count)

    def _with_layout(self, batches: Iterator[list[str]]) -> Iterator[list[str]]:
        held: list[str] = []
        for batch in batches:
            held += batch
            if len(held) >= _SAMPLE or self._is_late():
                break
        self.layout = Layout(held[:_SAMPLE])
        yield held
        yield from batches

    def _in_time(self, batches: Iterable[list[str]]) -> Iterator[list[str]]:
        """A piece in any case, and then as many as there is time for."""
        begun = False
        for batch in batches:
            for start in range(0, max(1, len(batch)), _PIECE):
                if begun and self._is_late():
                    self.complete = False
                    return
                begun = True
                yield batch[start : start + _PIECE]

    def _is_late(self) -> bool:
        return self._until is not None and monotonic() >= self._until

    def _line(self, line: str) -> None:
        if self._collector.open:
            if self._collector.goes_on(line):
                return
            self._end_trace()
        piece = self.layout.split(line)
        if piece.moment is None and self._continues(line):
            return
        self._record(line, piece)

    def _continues(self, line: str) -> bool:
        """Whether a line without a time belongs to the record before it."""
        if self._collector.begins(line, self._before):
            self._trace_at = self.lines
            return True
        if self.layout.dated and (line[0].isspace() or names_an_error(line)):
            self._before = line
            return True
        return False

    def _record(self, line: str, piece: Piece) -> None:
        self.records += 1
        kept = self._miner.tally(piece.message, piece.plain)
        kept.see(self.lines, line, piece)
        self._before, self._last = line, kept
        if piece.level is not None:
            self.levels[piece.level] += 1
        moment = piece.moment
        if moment is not None:
            self.times.add(moment)
            if self.earliest is None or moment < self.earliest:
                self.earliest = moment
            if self.latest is None or moment > self.latest:
                self.latest = moment
        if piece.stack and (trace := trace_in(piece.stack)) is not None:
            self._count(trace, kept)
        elif "Traceback (most" in line:
            self._collector.begins(line, line)
            self._trace_at = self.lines

    def _end_trace(self) -> None:
        trace = self._collector.close()
        if trace is not None:
            self._count(trace, self._last)

    def _count(self, trace: Trace, kept: Kept | None) -> None:
        stacks = self.bare if kept is None else kept.stacks
        key = trace.key
        if key not in stacks:
            if len(stacks) >= _MOST_STACKS:
                return
            stacks[key] = Stack(trace, self._trace_at or self.lines)
        stacks[key].see(self._trace_at or self.lines)


class Burst:
    """A stretch of time with far more lines than usual."""

    __slots__ = ("end", "lines", "start", "usual")

    def __init__(self, start: float, end: float, *, lines: int, usual: float) -> None:
        self.start, self.end, self.lines, self.usual = start, end, lines, usual


def bursts(times: Times, *, most: int = 5) -> list[Burst]:
    """Where the lines came thick; the worst first."""
    if len(times.counts) < 4:
        return []
    low, high = min(times.counts), max(times.counts)
    step = max(1, (high - low) // 500 + 1)
    counts: Counter[int] = Counter()
    for place, count in times.counts.items():
        counts[(place - low) // step] += count
    buckets = (high - low) // step + 1
    if buckets < 8:
        return []
    usual = sorted([*counts.values(), *([0] * (buckets - len(counts)))])[buckets // 2]
    mean = sum(counts.values()) / buckets
    spread = (sum((counts[i] - mean) ** 2 for i in range(buckets)) / buckets) ** 0.5
    limit = max(3 * usual + 10, mean + 3 * spread)
    found: list[Burst] = []
    width = times.width * step
    for bucket in range(buckets):
        if counts[bucket] < limit:
            continue
        start = (low * times.width) + bucket * width
        if found and found[-1].end == start:
            found[-1].end += width
            found[-1].lines += counts[bucket]
        else:
            found.append(Burst(start, start + width, lines=counts[bucket], usual=usual))
    found.sort(key=lambda burst: -burst.lines)
    return found[:most]


def example(line: str) -> str:
    """A line as it is shown."""
    line = line.strip()
    return line if len(line) <= _EXAMPLE else line[: _EXAMPLE - 1] + "…"


def said(moment: float | None) -> str | None:
    return None if moment is None else written(moment)
