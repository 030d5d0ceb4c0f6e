"""Texts that machines write line by line: logs of many families, stack traces, metrics.

Above: ``tool.py``. Below: the log analyser's own eyes, ``toolpost.builtin.logs``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from toolpost.builtin.classify.guess import Guess, Sample, share
from toolpost.builtin.logs.layout import Layout
from toolpost.builtin.logs.stacks import Trace, trace_in

_CLOCK: Final = r"[0-2]\d:[0-5]\d:[0-6]\d"
_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_LEVEL: Final = (
    r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|SEVERE|trace|debug|info|notice|"
    r"warn|warning|error|critical|fatal)"
)
_FAMILIES: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("access log", (r"\S{1,80} \S{1,80} \S.{0,80}? ?\[\d\d/[A-Z][a-z]{2}/\d{4}:[^\]]{8,20}\] "
                       r"\"[^\"]{0,900}\" \d{3} ")),
        ("apache error log", (r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d [\d:.]{8,18} \d{4}\] "
                             r"\[[\w:]{2,30}\] ")),
        ("nginx error log", (rf"\d{{4}}/\d\d/\d\d {_CLOCK} \[(?:emerg|alert|crit|error|warn|"
                            rf"notice|info|debug)\] \d+#\d+: ")),
        ("syslog (rfc 5424)", r"<\d{1,3}>1 \d{4}-\d\d-\d\dT"),
        ("syslog", (rf"(?:<\d{{1,3}}>)?{_MONTH} [ \d]\d {_CLOCK} \S{{1,80}} [^\s:]{{1,80}}(?: "
                   rf"[^\s:]{{1,40}})?: ")),
        ("journal", (rf"\d{{4}}-\d\d-\d\dT{_CLOCK}[+-]\d\d:?\d\d \S{{1,80}} "
                    rf"[^\s:]{{1,60}}\[\d+\]: ")),
        ("kernel log", r"(?:<\d>)?\[ *\d{1,8}\.\d{6}\] "),
        ("kubernetes log", rf"[IWEFD]\d{{4}} {_CLOCK}\.\d{{6}} +\d+ [^\s:]{{1,80}}:\d+\] "),
        ("container log", r"\d{4}-\d\d-\d\dT[\d:.]{8,18}Z std(?:out|err) [FP] "),
        ("android log", rf"\d\d-\d\d {_CLOCK}\.\d{{3}} +\d+ +\d+ [VDIWEF] "),
        ("android log", r"[VDIWEF]/[^(]{1,60}\( *\d+\): "),
        ("postgresql log", (rf"\d{{4}}-\d\d-\d\d {_CLOCK}(?:\.\d{{3}})? [A-Z]{{3,4}}(?: "
                           rf"\[\d+\])?.{{0,80}}? (?:LOG|ERROR|FATAL|WARNING|DETAIL|STATEMENT|"
                           rf"HINT|NOTICE|PANIC): ")),
        ("mysql log", rf"\d{{4}}-\d\d-\d\dT{_CLOCK}\.\d{{6}}Z \d+ \[\w+\] "),
        ("redis log", rf"\d+:[XCSM] \d\d {_MONTH} \d{{4}} {_CLOCK}\.\d{{3}} [*#.-] "),
        ("python log", rf"\d{{4}}-\d\d-\d\d {_CLOCK},\d{{3}} - \S{{1,80}} - {_LEVEL} - "),
        ("python log", r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.-]{1,80}:"),
        ("spring boot log", (rf"\d{{4}}-\d\d-\d\d[ T]{_CLOCK}\.\d{{3}}\S{{0,6}} +{_LEVEL} \d+ "
                            rf"--- \[")),
        ("java log", (rf"(?:\d{{4}}-\d\d-\d\d|\d\d/\d\d/\d\d)[ T]{_CLOCK}(?:[.,]\d{{3}})? +(?:- "
                     rf")?{_LEVEL} .{{0,200}}?[\w$]+\.[\w$.]+")),
        ("java log", rf"{_CLOCK}[.,]\d{{3}} \[[^\]]{{1,80}}\] {_LEVEL} +[\w.$]+ - "),
        ("hadoop log", rf"\d{{6}} \d{{6}} \d+ {_LEVEL} [\w.$]+: "),
        ("windows cbs log", rf"\d{{4}}-\d\d-\d\d {_CLOCK}, (?:Info|Error|Warning) +\w+ "),
        ("iis log", rf"\d{{4}}-\d\d-\d\d {_CLOCK} \S+ (?:GET|POST|PUT|HEAD|DELETE|OPTIONS) "),
        ("go log", rf"\d{{4}}/\d\d/\d\d {_CLOCK} "),
        ("load balancer log", r"(?:https?|h2|wss?) \d{4}-\d\d-\d\dT[\d:.]{8,18}Z app/"),
        ("flow log", r"2 \d{12} eni-[0-9a-f]+ "),
        ("squid log", r"\d{10}\.\d{3} +\d+ \S+ [A-Z_]+/\d{3} "),
        ("ci log", r"##\[(?:group|error|section)\]|\d{4}-\d\d-\d\dT[\d:.]{8,18}Z (?:##\[|$)"),
    )
)  # fmt: skip


def detect(sample: Sample) -> Iterator[Guess]:
    trace = _trace(sample)
    if trace is not None:
        yield trace
    for detector in (_metrics, _log):
        found = detector(sample)
        if found is not None:
            yield found


# Logs ------------------------------------------------------------------------------------------


def _log(sample: Sample) -> Guess | None:
    lines = [line for line in sample.filled[:500] if not line[0].isspace()]
    if not lines:
        return None
    if sample.filled[0].startswith(("#Version:", "#Software:")) and "#Fields:" in sample.head:
        return Guess("log", "iis log", 0.96)
    shares: dict[str, float] = {}
    for name, pattern in _FAMILIES:
        shares[name] = max(shares.get(name, 0.0), share(lines, pattern.match))
    name = max(shares, key=lambda one: shares[one])
    layout = Layout(sample.filled[:300])
    pieces = [layout.split(line) for line in sample.filled[:300] if not line[0].isspace()]
    dated = sum(piece.moment is not None for piece in pieces) / len(pieces)
    levelled = sum(piece.level is not None for piece in pieces) / len(pieces)
    if layout.name in ("json", "logfmt"):
        if dated < 0.5 or (layout.name == "json" and levelled < 0.3 and '"log"' not in sample.head):
            return None
        family = "json log" if layout.name == "json" else "logfmt"
        return Guess("log", family, 0.96, _found(dated, levelled))
    if shares[name] >= 0.5 or (shares[name] >= 0.1 and dated >= 0.1):
        return Guess("log", name, 0.9 + 0.08 * shares[name], _found(dated, levelled))
    if dated >= 0.8 and levelled >= 0.8:
        return Guess("log", "application log", 0.93, _found(dated, levelled))
    first = sum(_near_start(line) for line in lines) / len(lines)
    if first >= 0.5 and len(lines) >= 2:
        return Guess("log", "application log", 0.7 + 0.2 * first, _found(dated, levelled))
    if layout.name == "levels" and levelled >= 0.5 and len(lines) >= 2:
        return Guess("log", "application log", 0.6 + 0.25 * levelled, _found(dated, levelled))
    return None


_TIME_FIRST: Final = re.compile(
    rf"[\[(<]?(?:\d{{4}}[-/.]\d\d[-/.]\d\d[T _-]{_CLOCK}|{_MONTH} [ \d]\d {_CLOCK}|"
    rf"\d{{8}}[T-][\d:]{{6,8}}|"
    rf"\d\d[./-]\d\d(?:[./-]\d{{2,4}})? {_CLOCK}|\w{{3}} {_MONTH} [ \d]\d {_CLOCK}|{_CLOCK})"
)
_EPOCH_LINE: Final = re.compile(r"(?:\S{1,40} ){0,5}1\d{9} \S.*[A-Za-z]{3,}")


def _near_start(line: str) -> bool:
    return _TIME_FIRST.match(line) is not None or (
        _EPOCH_LINE.match(line[:200]) is not None and line.count(" ") > 4
    )


def _found(dated: float, levelled: float) -> dict[str, float]:
    return {"lines_with_time": round(dated, 2), "lines_with_level": round(levelled, 2)}


# Stack traces ----------------------------------------------------------------------------------

_OTHERS: Final = (
    ("rust", re.compile(r"^thread '[^'\n]{1,80}' (?:\(\d+\) )?panicked at ", re.M)),
    ("ruby", re.compile(r"^(?:\s*from )?\S{1,200}\.rb:\d+:in [`']", re.M)),
    ("php", re.compile(r"^(?:PHP )?Fatal error: |^#\d+ \S{1,200}\.php\(\d+\): ", re.M)),
    ("native", re.compile(r"^#\d+ +(?:0x[0-9a-f]+ in )?[\w:~<>*&]{1,120} ?\(.{0,300}?\)", re.M)),
    ("native", re.compile(r"^==\d+==ERROR: AddressSanitizer", re.M)),
    ("elixir", re.compile(r"^\*\* \([\w.]+Error\) ", re.M)),
)  # fmt: skip
_TRACE_LINE: Final = re.compile(
    r"\s+at |\s+File \"|Traceback |Caused by: |goroutine |panic: |\t\S+\.go:\d+|#\d+ |\s+from |"
    r"\s+\d+: |\s+\.\.\. \d+ more|During handling|The above exception|\s{4,}\S|[\w.]+(?:Error|"
    r"Exception)\b|"
    r"PHP |Stack trace:|\s+thrown in |Exception in thread|thread '|[\w./*()]+\(.{0,200}\)$|"
    r"note: |\s*stack backtrace|\*\* \(|created by |==\d+=="
)


def _trace(sample: Sample) -> Guess | None:
    trace = trace_in("\n".join(sample.lines[:1000]))
    language = trace.language if trace is not None else _other(sample)
    if not language:
        return None
    like = share(sample.filled[:200], _TRACE_LINE.match)
    if like < 0.5:
        return None
    details = {} if trace is None else _said(trace)
    return Guess("stack_trace", language, 0.7 + 0.28 * like, details)


def _other(sample: Sample) -> str:
    for language, pattern in _OTHERS:
        if pattern.search(sample.head):
            return language
    return ""


def _said(trace: Trace) -> dict[str, object]:
    return {"error": trace.error, "message": trace.said, "frames": list(trace.frames[:5])}


# Metrics ---------------------------------------------------------------------------------------

_NUMBER: Final = r"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+|Inf|NaN)"
_PROMETHEUS: Final = re.compile(
    rf"[a-zA-Z_:][\w:]{{0,200}}(?:\{{[^}}]{{0,900}}\}})? {_NUMBER}(?: "
    rf"\d{{10,13}}(?:\.\d+)?)?(?: # .*)?$"
)
_HELP: Final = re.compile(r"# (?:HELP|TYPE|UNIT) [a-zA-Z_:][\w:]*|# EOF$")
_STATSD: Final = re.compile(
    rf"[\w./-]{{1,200}}:{_NUMBER}(?::{_NUMBER}){{0,20}}\|(?:c|g|ms|h|s|d|m)(?:\|@[\d.]+)?(?:\|#."
    rf"*)?(?:\|[cT]:?\S+)?$"
)
_INFLUX: Final = re.compile(
    r"[\w.\\/-]{1,100}(?:,[\w.\\-]{1,60}=[^\s,=]{1,100}){0,20} "
    r"[\w.\\-]{1,60}=(?:\"[^\"]{0,200}\"|[^\s,\"]{1,60})(?:,[\w.\\-]{1,60}=(?:\"[^\"]{0,200}\"|"
    r"[^\s,\"]{1,60})){0,40}"
    r"(?: -?\d{10,19})?$"
)
_TAGGED_OR_TIMED: Final = re.compile(r"^[^ =]+,[^ =]+=|=[0-9.]+i?(?:,| |$)")
_GRAPHITE: Final = re.compile(rf"[\w-]+(?:\.[\w-]+){{1,30}} {_NUMBER} \d{{10}}$")


def _metrics(sample: Sample) -> Guess | None:
    lines = [line.strip() for line in sample.filled[:500]]
    plain = [line for line in lines if not line.startswith("#")]
    helped = any(_HELP.match(line) for line in lines)
    for name, pattern, least in (
        ("graphite", _GRAPHITE, 0.9),
        ("prometheus", _PROMETHEUS, 0.8 if helped else 0.9),
        ("statsd", _STATSD, 0.9),
        ("influx line protocol", _INFLUX, 0.9),
    ):
        fits = share(plain, pattern.match)
        if fits < least:
            continue
        if name == "prometheus" and helped:
            name = "openmetrics" if lines[-1] == "# EOF" else name
            return Guess("metrics", name, 0.98, {"series": len(plain)})
        braces = name != "prometheus" or any("{" in line for line in plain)
        if name == "influx line protocol":
            braces = all(_TAGGED_OR_TIMED.search(line) for line in plain)
        return Guess("metrics", name, 0.93 if braces else 0.7, {"series": len(plain)})
    return None
