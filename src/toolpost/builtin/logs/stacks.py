"""Stack traces: which lines belong to one, what failed in it and where.

Above: ``analysis.py``. Below: ``masking.py``. Python, Java (and what runs on its machine), .NET,
JavaScript, Go and Ruby. Two traces are the same if the same error came up through the same
functions; line numbers and addresses do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from toolpost.builtin.logs.masking import masked

_MOST_LINES: Final = 400
"""Lines of one trace that are kept; a deep recursion has a hundred thousand."""
_FRAMES: Final = 12
_LONGEST: Final = 300

_PYTHON: Final = "Traceback (most recent call last):"
_PYTHON_FRAME: Final = re.compile(
    r'\s*+[| ]*+File "(?P<file>[^"]*+)", line \d++(?:, in (?P<name>.+))?'
)
_AT: Final = re.compile(r"\s++at (?P<name>\S.*)")
_JAVA_FRAME: Final = re.compile(r"\s++at (?P<name>[\w.$/<>@-]++)\((?P<file>[^)]*+)\)")
_JAVA_FILE: Final = re.compile(r"\.(?:java|kt|scala|groovy|clj)\b|Native Method|Unknown Source")
_JS_FRAME: Final = re.compile(
    r"\s++at (?:(?P<name>[^()]{1,200}) \((?P<file>[^()]*+)\)|(?P<bare>\S++:\d++:\d++))\s*$"
)
_NET_FRAME: Final = re.compile(
    r"\s++at (?P<name>[\w.`<>+\[\], ]++\([^)]*+\))(?: in (?P<file>.++))?"
)
_GO_START: Final = re.compile(r"(?:panic: |fatal error: |goroutine \d+ \[)")
_GO_FRAME: Final = re.compile(r"(?P<name>[^\s(]++(?:\(\*?[\w.\[\]…]++\)[^\s(]++)*+)\(.*\)$")
_GO_PLACE: Final = re.compile(r"\t(?P<file>\S+\.(?:go|s)):\d+")
_CAUSE: Final = re.compile(r"(?:\s*Caused by: |\s*Suppressed: )")
_MORE: Final = re.compile(r"\s+\.\.\. \d+ (?:more|common frames omitted)")
_ERROR: Final = re.compile(
    r"(?P<type>(?:[A-Za-z_$][\w$]*+\.)*+[A-Z][\w$]*?(?:Error|Exception|Throwable|Interrupt|Exit|Warning"
    r"|Fault|Failure|Group)\w*+)(?:: (?P<said>.*)|\s*$)"
)
_PYTHON_END: Final = re.compile(r"(?P<type>[A-Za-z_][\w.]*+)(?:: (?P<said>.*))?$")
_BETWEEN: Final = ("During handling of the above", "The above exception was the direct cause")


class Trace(NamedTuple):
    """One stack trace, as it is grouped."""

    language: str
    error: str
    said: str
    frames: tuple[str, ...]
    """Where it came from, the innermost first."""

    @property
    def key(self) -> tuple[object, ...]:
        return (self.language, self.error, masked(self.said), self.frames)


class Collector:
    """Fed line by line: ``begins`` or ``goes_on`` says whether a line belongs to a trace."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._kind = ""
        self._closing = self._between = False

    @property
    def open(self) -> bool:
        return bool(self._kind)

    def begins(self, line: str, before: str) -> bool:
        """Whether a trace begins in this line; ``before`` is the line that may name the error."""
        kind = _kind_of(line)
        if not kind:
            return False
        self._kind, self._closing, self._between = kind, False, False
        self._lines = [line] if kind in ("python", "go") else [before, line]
        return True

    def goes_on(self, line: str) -> bool:
        """Whether this line belongs to the open trace."""
        if self._kind == "python":
            if not self._goes_on_python(line):
                return False
        elif not _belongs(self._kind, line):
            return False
        if len(self._lines) < _MOST_LINES:
            self._lines.append(line)
        else:
            self._lines[-1] = line  # the last line of Python's names the error
        return True

    def _goes_on_python(self, line: str) -> bool:
        """The error is named in the first line that is not indented; then only another trace can
        follow, of which it was the cause.
        """
        bare = line.lstrip(" |+-")
        if bare.startswith(_BETWEEN):
            self._closing, self._between = False, True
        elif self._closing:
            return not bare
        elif bare.startswith(_PYTHON):
            self._between = False
        elif bare and not line[:1].isspace() and not self._between:
            self._closing = True
        return True

    def close(self) -> Trace | None:
        """The trace that ended, if there was one."""
        lines, kind = self._lines, self._kind
        self._lines, self._kind = [], ""
        return read(lines, kind) if kind else None


def names_an_error(line: str) -> bool:
    """Whether a line begins with an error's name, as the one above a stack does."""
    return _ERROR.match(line, 0, 500) is not None or _CAUSE.match(line) is not None


def trace_in(text: str) -> Trace | None:
    """The first stack trace in a text of several lines."""
    collector, before = Collector(), ""
    for line in text.splitlines():
        if collector.open:
            if not collector.goes_on(line):
                break
        else:
            collector.begins(line, before)
        before = line
    return collector.close()


def _kind_of(line: str) -> str:
    if _PYTHON in line:
        return "python"
    if line.startswith(("panic: ", "fatal error: ", "goroutine ")) and _GO_START.match(line):
        return "go"
    if line[:1].isspace() and _AT.match(line):
        return _kind_of_frame(line)
    return ""


def _kind_of_frame(line: str) -> str:
    java = _JAVA_FRAME.match(line)
    if java is not None and _JAVA_FILE.search(java["file"]):
        return "java"
    if _JS_FRAME.match(line):
        return "javascript"
    if _NET_FRAME.match(line):
        return "dotnet"
    return "java" if java is not None else ""


def _belongs(kind: str, line: str) -> bool:
    if kind == "go":
        return (
            not line.strip()
            or line.startswith(("goroutine ", "\t", "created by ", "[signal ", "exit status"))
            or _GO_FRAME.match(line) is not None
        )
    return bool(_AT.match(line) or _CAUSE.match(line) or _MORE.match(line)) or (
        kind == "dotnet" and line.startswith("   --- ")
    )


def read(lines: list[str], kind: str) -> Trace:
    """What a trace says."""
    if kind == "python":
        return _read_python(lines)
    if kind == "go":
        return _read_go(lines)
    error, said = _named(lines[0])
    for line in lines:  # the innermost cause is what failed
        if _CAUSE.match(line):
            error, said = _named(line)
    return Trace(kind, error, _short(said), _frames(_after_cause(lines), kind))


def _after_cause(lines: list[str]) -> list[str]:
    last = max((i for i, line in enumerate(lines) if line.startswith("Caused by: ")), default=0)
    return lines[last:]


def _named(line: str) -> tuple[str, str]:
    """The error that a line names, and what it says."""
    found = _ERROR.search(line, 0, 500)
    if found is None:
        return "error", line.strip()
    return found["type"], found["said"] or ""


def _read_python(lines: list[str]) -> Trace:
    last = next((line for line in reversed(lines) if line.strip() and not line[:1].isspace()), "")
    found = _PYTHON_END.match(last.strip())
    frames: list[str] = []
    for line in lines:
        if _PYTHON in line:
            frames = []  # of several, the one that came out is at the end
        elif (frame := _PYTHON_FRAME.match(line)) is not None:
            frames.append(f"{frame['name'] or '<module>'} ({_base(frame['file'])})")
    return Trace(
        "python",
        found["type"] if found else "error",
        _short(found["said"] or "" if found else last),
        tuple(reversed(frames[-_FRAMES:])),
    )


def _read_go(lines: list[str]) -> Trace:
    first = lines[0]
    error, _, said = (
        first.partition(": ") if not first.startswith("goroutine") else ("dump", "", "")
    )
    frames, name = [], ""
    for line in lines:
        if (place := _GO_PLACE.match(line)) is not None and name:
            frames.append(f"{name} ({_base(place['file'])})")
            name = ""
        elif (frame := _GO_FRAME.match(line.removeprefix("created by "))) is not None:
            name = frame["name"]
    own = [frame for frame in frames if not frame.startswith(("panic ", "runtime."))]
    return Trace("go", error, _short(said), tuple((own or frames)[:_FRAMES]))


def _frames(lines: Iterable[str], kind: str) -> tuple[str, ...]:
    pattern = {"java": _JAVA_FRAME, "javascript": _JS_FRAME, "dotnet": _NET_FRAME}[kind]
    found = []
    for line in lines:
        frame = pattern.match(line)
        if frame is not None:
            bare = frame["bare"] if kind == "javascript" else None
            name, file = (frame["name"], frame["file"]) if bare is None else ("<anonymous>", bare)
            found.append(f"{name} ({_base(file)})" if file else name)
            if len(found) == _FRAMES:
                break
    return tuple(found)


def _base(file: str) -> str:
    """A file's name without its folders, its line and its column."""
    name = re.split(r"[/\\]", file)[-1]
    return re.sub(r":(?:line )?\d+", "", name)


def _short(said: str) -> str:
    said = said.strip()
    return said if len(said) <= _LONGEST else said[: _LONGEST - 1] + "…"
