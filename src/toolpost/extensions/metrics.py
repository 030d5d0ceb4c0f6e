"""Metrics: what the calls of each tool came to, in the text that Prometheus reads.

An observer with counters of its own: a call costs a look at the clock and three additions. What
a tool took, without what its call waited for, is held against what one of its kind is expected to
take. Other rings and the backends tell how things stand (``Gauged``); those along the same road
(``Lined``) are asked whenever somebody renders. Names of tools come from specs and never from
callers, so that nobody can make up series: what no tool is called is ``unknown``, and beyond
``tools`` of them the rest are ``other``.

How the text is served is not known here.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from time import monotonic
from typing import Any, Final, Self

import msgspec

from toolpost.call import Call
from toolpost.contracts import Gauged, Lined, Road, Surroundings, Surveys, Watch
from toolpost.errors import ConfigError
from toolpost.options import Options, options_from
from toolpost.result import Failure, Result
from toolpost.spec import ToolSpec

_log = logging.getLogger("toolpost")
BOUNDS: Final = (
    *(0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
    *(0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds of the histogram's buckets, in seconds; every target and maximum is one of them."""


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds that a call should take, and seconds that it should never take longer than."""

    target: float
    max: float


EXPECTED: Final[Mapping[str, Expected]] = {
    "python": Expected(0.5, 1.0),
    "http": Expected(2.0, 3.0),
    "mcp": Expected(1.0, 3.0),
    "shell": Expected(1.0, 2.0),
}
OTHERWISE: Final = Expected(2.0, 3.0)
_NOT_BEGUN: Final = frozenset(
    (
        *("VALIDATION_ERROR", "NOT_FOUND", "UNAUTHORIZED", "POLICY_DENIED", "APPROVAL_REQUIRED"),
        *("APPROVAL_DENIED", "RATE_LIMITED", "QUEUE_FULL", "BUDGET_EXCEEDED", "CONFLICT"),
    )
)
"""Ends of a call that say nothing about how fast the tool is."""


class MetricsOptions(Options, frozen=True, kw_only=True):
    """The table ``[extensions.metrics]``: most tools with series of their own; latency by kind."""

    tools: int = 1000
    latency: Mapping[str, Expected] = {}


class Metrics:
    """The observer; ``await scrape()`` gives the text."""

    name = "metrics"
    options = MetricsOptions

    def __init__(self, *, tools: int = 1000, latency: Mapping[str, Expected] | None = None) -> None:
        self._most, self._expected = tools, {**EXPECTED, **(latency or {})}
        self._series: dict[str, _Series] = {}
        self._gauged: list[Gauged] = []

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        chosen = options_from(options, MetricsOptions, "extension metrics")
        if chosen.tools < 0:
            raise ConfigError("extension metrics: tools must be 0 or more", at=("tools",))
        return cls(tools=chosen.tools, latency=chosen.latency)

    def bind(self, spec: ToolSpec, road: Road) -> Watch:
        along = (*road.observers, *road.guards, road.backends) if isinstance(road, Lined) else ()
        for part in along:
            if isinstance(part, Gauged):
                self.watch(part)
        return _counting(self._of(spec))

    def watch(self, gauged: Gauged) -> None:
        """Show what this tells, too."""
        if not any(gauged is known for known in self._gauged):
            self._gauged.append(gauged)

    async def scrape(self) -> str:
        """Everything as text, after those who have to look elsewhere first have looked."""
        for part in self._gauged:
            if isinstance(part, Surveys):
                try:
                    await part.survey()
                except Exception:  # noqa: BLE001 - foreign code; what it saw last is shown
                    _log.exception("%s cannot see how things stand", type(part).__name__)
        return self.render()

    def render(self) -> str:
        """Everything as it is known, as text in the format 0.0.4 of Prometheus."""
        return "\n".join([*_counted(self._series), *self._gauges(), ""])

    def _of(self, spec: ToolSpec) -> _Series:
        series = self._series
        name = spec.name
        if name not in series and spec.kind != "unknown" and self._crowded():
            name = "other"
        expected = self._expected.get(spec.kind, OTHERWISE)
        if name not in series:
            series[name] = _Series(expected)
        elif name != "other":
            series[name].expect(expected)  # a tool that was reloaded goes on counting
        return series[name]

    def _crowded(self) -> bool:
        return len(self._series.keys() - {"unknown", "other"}) >= self._most

    def _gauges(self) -> Iterator[str]:
        """What others tell. What one of them cannot tell does not keep the rest from being seen."""
        told: dict[str, list[str]] = {}
        for gauged in self._gauged:
            try:
                for metric, (label, values) in gauged.gauges().items():
                    lines = told.setdefault(metric, [])
                    for value, number in sorted(values.items())[: self._most]:
                        lines.append(_line(metric, {label: value} if label else {}, number))
            except Exception:  # noqa: BLE001 - foreign code, and the rest is worth having
                _log.exception("%s does not tell how things stand", type(gauged).__name__)
        for metric, lines in sorted(told.items()):
            yield f"# TYPE toolpost_{metric} gauge"
            yield from lines


class _Series:
    """The calls of one tool: one bucket more than bounds, for what took longer than any."""

    __slots__ = (
        "breached", "buckets", "errors", "expected", "late", "running", "took", "usual"
    )  # fmt: skip

    def __init__(self, expected: Expected) -> None:
        self.expect(expected)
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.took, self.running = 0.0, 0
        self.late = self.breached = 0
        self.errors: dict[str, int] = {}

    def expect(self, expected: Expected) -> None:
        self.expected, self.usual = expected, min(expected.target, BOUNDS[0]) * 1000

    def ended(self, took: float, result: Result | None) -> None:
        self.took += took
        seconds = took / 1000
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        if seconds > self.expected.target and result is not None:
            taken = _taken(result, seconds)
            self.late += taken > self.expected.target
            self.breached += taken > self.expected.max

    def failed(self, code: str) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1


def _counting(series: _Series) -> Watch:
    buckets = series.buckets

    def ended(call: Call, result: Result | None) -> None:
        if result is None:
            series.ended((monotonic() - call.started) * 1000, None)
            series.failed("CANCELLED")
            return
        took = result.metadata.duration_ms
        if took <= series.usual:  # what ``ended`` comes to for a quick call
            series.took += took
            buckets[0] += 1
        else:
            series.ended(took, result)
        if result.error is not None:
            series.failed(result.error.code)

    return Watch(after=ended, inside=series)


def _taken(result: Result, seconds: float) -> float:
    """What the tool itself took: nothing if it was never begun."""
    error = result.error
    if error is not None and (error.code in _NOT_BEGUN or _gave_up(error)):
        return 0.0
    return seconds - result.metadata.waited_ms / 1000


def _gave_up(error: Failure) -> bool:
    """A time limit that was reached in a queue: the remedy is to wait, not another tool."""
    return error.code == "TIMEOUT" and error.remedy == "wait"


def _counted(series: Mapping[str, _Series]) -> Iterator[str]:
    """A call is in the histogram whatever came of it, so its count is the number of calls."""
    ordered = sorted(series.items())
    yield from _family(
        "calls_total",
        "counter",
        "Calls that have ended, whatever came of them.",
        (_line("calls_total", {"tool": n}, sum(s.buckets)) for n, s in ordered),
    )
    yield from _family(
        "errors_total",
        "counter",
        "Calls that ended in an error, by code.",
        (
            _line("errors_total", {"tool": name, "code": code}, times)
            for name, one in ordered
            for code, times in sorted(one.errors.items())
        ),
    )
    yield from _family(
        "latency_breaches_total",
        "counter",
        "Calls whose tool took longer than one of its kind should (target) or may (max).",
        (
            _line("latency_breaches_total", {"tool": name, "limit": limit}, times)
            for name, one in ordered
            for limit, times in (("target", one.late), ("max", one.breached))
        ),
    )
    yield from _family(
        "calls_running",
        "gauge",
        "Calls on the road right now.",
        (_line("calls_running", {"tool": name}, one.running) for name, one in ordered),
    )
    yield from _family(
        "call_seconds",
        "histogram",
        "How long callers waited for the result, in seconds.",
        (line for name, one in ordered for line in _histogram(name, one)),
    )


def _family(name: str, kind: str, says: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"# HELP toolpost_{name} {says}"
    yield f"# TYPE toolpost_{name} {kind}"
    yield from lines


def _histogram(name: str, series: _Series) -> Iterator[str]:
    total = 0
    for bound, times in zip((*BOUNDS, None), series.buckets, strict=True):
        total += times
        upper = "+Inf" if bound is None else f"{bound:g}"
        yield _line("call_seconds_bucket", {"tool": name, "le": upper}, total)
    yield _line("call_seconds_sum", {"tool": name}, series.took / 1000)
    yield _line("call_seconds_count", {"tool": name}, total)


def _line(metric: str, labels: Mapping[str, str], number: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"toolpost_{metric}{{{inside}}} {number}" if inside else f"toolpost_{metric} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
