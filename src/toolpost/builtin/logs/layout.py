"""How the lines of one log are laid out: where the time, the level and the message are.

Above: ``analysis.py``, which shows it the first lines and then asks it to split every line. Below:
``moments.py``. What is before the message (host, process, thread, component) is cut off only where
most lines have it: a message is never taken for a header because one line looks like it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from toolpost.builtin.logs.masking import WILD
from toolpost.builtin.logs.moments import HEAD, WAYS, Clock, Way

_BY_WORD: Final = {
    "debug": "trace debug verbose fine finer finest trc dbg dbug",
    "info": "info information informational notice inf",
    "warning": "warn warning wrn",
    "error": "error err severe eror",
    "critical": "fatal critical crit alert emerg emergency panic ftl",
}
_LEVELS: Final = {
    form: level
    for level, names in _BY_WORD.items()
    for name in names.split()
    for form in (name, name.upper(), name.title())
} | {"LOG": "info", "DETAIL": "info", "HINT": "info", "STATEMENT": "info"}  # as PostgreSQL says
_LETTERS: Final = {
    "V": "debug", "D": "debug", "I": "info", "W": "warning", "E": "error", "F": "critical",
}  # fmt: skip
_NUMBERS: Final = {10: "debug", 20: "info", 30: "info", 40: "warning", 50: "error", 60: "critical"}
"""As bunyan and pino write them; 30 is their info."""
_AROUND: Final = "[](){}<>|:,;\"'!-"
_MOSTLY: Final = 0.6
_LEVEL_WITHIN: Final = 10
_ALIKE: Final = ("clock", "compact", "epoch")
"""Ways to write a time that other numbers look like: more lines must have them.
"""

_LEAD: Final = re.compile(r"[\])}>,:;|\s]*+(?:- )?+\s*+")
_TAGGED: Final = re.compile(r"\S++ [^\s:\[]++(?:\[[^\]\s]*+\])?+(?: \([^)]*+\))?+:\s")
_DASHED: Final = re.compile(r"\S++(?: \*\d++)?+ - ")
_BRACKET: Final = re.compile(r"\[(?:[^\[\]]++|\[[^\[\]]*+\])*+\]\s*+")
_DASH: Final = re.compile(r"[-|:]+\s++")
_NAMED: Final = re.compile(
    r"[A-Za-z_][\w.$/@#-]*+(?:\[[^\]]*+\])?+(?:\([^)]*+\))?+\s?+(?::|-|\|)\s"
)
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*+(?:\.\w++){2,}+ ")
_PYTHON: Final = re.compile(r"(?P<l>[A-Z]{4,8}):(?P<c>[\w.-]++):")
_KLOG: Final = re.compile(r"\s*+\d++ [^\s\]]++\] ")
_DIGIT: Final = re.compile(r"[0-9]")
_NUMBER: Final = re.compile(r"\d++ (?=\S)")
_ACCESS: Final = re.compile(
    r"\S++ \S++ \S.*?\[(?P<t>[^\]]{10,40}+)\] \"(?P<r>[^\"]*+)\" (?P<s>\d{3}) (?:\d++|-)"
)
_LOGFMT: Final = re.compile(
    r"(?<![\w.-])([A-Za-z_][\w.-]*+)=(\"(?:[^\"\\]++|\\.)*+\"|[^\s\"]*+)(?:\s|$)"
)


class Piece(NamedTuple):
    """What one line says. ``moment`` is ``None`` where it has none, and then it may go on with the
    line before it.
    """

    moment: float | None
    level: str | None
    message: str
    stack: str = ""
    """A stack trace that came inside the line, as JSON logs have them."""
    plain: str = ""
    """The message without its values, where the layout knows better what is a value."""


Split = Callable[[str], Piece]


class Layout:
    """``Layout(first_lines)``, then ``split`` for every line."""

    def __init__(self, sample: Sequence[str]) -> None:
        lines = [line for line in sample if line.strip()]
        self.dated = False
        """Whether lines begin with a time."""
        self.yearless = False
        self.name, self.split = self._learned(lines)

    def _learned(self, lines: list[str]) -> tuple[str, Split]:
        if _share(lines, _json) > _MOSTLY:
            self.dated = True
            return "json", _JsonLines(lines).split
        if _share(lines, _ACCESS.match) > _MOSTLY:
            self.dated = True
            return "access", _Access().split
        if _share(lines, lambda line: len(_LOGFMT.findall(line)) >= 3) > _MOSTLY:
            self.dated = True
            return "logfmt", _Logfmt(lines).split
        plain = _Plain(lines)
        self.dated, self.yearless = plain.clock is not None, plain.yearless
        return plain.name, plain.split


def _share(lines: Iterable[str], holds: Callable[[str], Any]) -> float:
    judged = [bool(holds(line)) for line in lines]
    return sum(judged) / len(judged) if judged else 0.0


# Lines of text: time, perhaps a level, a header, a message -----------------------------------


class _Plain:
    """A time somewhere near the start, and what most lines have between it and the message."""

    def __init__(self, lines: list[str]) -> None:
        way = _way_of(lines)
        self.clock = None if way is None else Clock(way)
        self.yearless = way is not None and not way.year
        self._way = way
        heads = [self._after_time(line) for line in lines if not line[:1].isspace()]
        rests = [rest for moment, rest in heads if moment is not None or way is None]
        self._level_at, self._letters = _place_of_level(rests)
        after = [self._after_level(rest)[1] for rest in rests]
        self._fields = _leading_fields(after) if self._level_at is None else 0
        after = [_without_fields(rest, self._fields) for rest in after]
        self._cuts = _cuts(after, levelled=self._level_at is not None)
        self.name = self._called()

    def _called(self) -> str:
        tagged = _TAGGED in self._cuts
        if self._way is None:
            return "plain" if self._level_at is None else "levels"
        if self._way.name == "klog":
            return "klog"
        if tagged:
            return "syslog"
        return "dated" if self._level_at is None else "application"

    def split(self, line: str) -> Piece:
        moment, rest = self._after_time(line)
        if self.clock is not None and moment is None:
            return Piece(None, None, line.strip())
        level, rest = self._after_level(rest)
        if level is None and self._way is not None and self._way.name == "klog":
            level = _LETTERS.get(line[:1])
        if self._fields:
            rest = _without_fields(rest, self._fields)
        for cut in self._cuts:
            found = cut.match(rest)
            if found is not None:
                rest = rest[found.end() :]
        return Piece(moment, level, rest.strip() or line.strip())

    def _after_time(self, line: str) -> tuple[float | None, str]:
        if self.clock is None or self._way is None:
            return None, line
        pattern = self._way.pattern
        found = pattern.search(line, 0, HEAD)
        if found is None:
            return None, line
        end = found.end()
        if line[end + 1 : end + 2].isalnum() and (again := pattern.match(line, end + 1)):
            found, end = again, again.end()  # said twice: by who wrote it, and by who passed it on
        lead = _LEAD.match(line, end)
        return self.clock.read(found), line[lead.end() if lead else end :]

    def _after_level(self, rest: str) -> tuple[str | None, str]:
        place = self._level_at
        if place is None:
            return _python_level(rest)
        parts = rest.split(None, place + 1)
        if len(parts) <= place:
            return None, rest
        word = parts[place]
        level = _LETTERS.get(word) if self._letters else _LEVELS.get(word.strip(_AROUND))
        if level is None:
            return None, rest
        return level, parts[place + 1] if len(parts) > place + 1 else ""


def _way_of(lines: list[str]) -> Way | None:
    """The way in which most lines say their time; of several the one that says most, then the one
    nearest to the message.
    """
    heads = [line for line in lines if not line[:1].isspace()]
    found: list[tuple[float, int, int, Way]] = []
    for rank, way in enumerate(WAYS):
        hits = [hit.start() for line in heads if (hit := way.pattern.search(line, 0, HEAD))]
        share = len(hits) / len(heads) if heads else 0.0
        if share >= (0.5 if way.name in _ALIKE else 0.1):
            found.append((share, sorted(hits)[len(hits) // 2], -rank, way))
    if not found:
        return None
    best = max(share for share, *_ in found)
    near = [one for one in found if one[0] >= best - 0.05]
    whole = [one for one in near if one[3].name != "clock"] or near
    return max(whole, key=lambda one: (one[1], one[2]))[3]


def _place_of_level(rests: list[str]) -> tuple[int | None, bool]:
    """Which word of a line is its level, and whether it is one letter."""
    places: Counter[int] = Counter()
    letters: Counter[int] = Counter()
    for rest in rests:
        parts = rest.split(None, _LEVEL_WITHIN)[:_LEVEL_WITHIN]
        for place, word in enumerate(parts):
            bare = word.strip(_AROUND)
            if bare in _LEVELS and (bare != word or not bare.islower()):
                places[place] += 1
                break
        for place, word in enumerate(parts[:4]):
            if word in _LETTERS and all(part.isdigit() for part in parts[:place]):
                letters[place] += 1
                break
    for counted, share, is_letter in ((places, 0.4, False), (letters, 0.9, True)):
        if counted and (most := counted.most_common(1)[0])[1] >= share * len(rests):
            return most[0], is_letter
    return None, False


def _python_level(rest: str) -> tuple[str | None, str]:
    found = _PYTHON.match(rest)
    if found is not None and (level := _LEVELS.get(found["l"])) is not None:
        return level, rest[found.end() :]
    return None, rest


def _leading_fields(rests: list[str]) -> int:
    """How many fields between ``|`` stand before the message in nearly every line."""
    counts = [_bare_fields(rest) for rest in rests]
    for least in (3, 2, 1):
        if counts and sum(count >= least for count in counts) >= 0.9 * len(counts):
            return least
    return 0


def _bare_fields(rest: str) -> int:
    fields = rest.split("|")
    count = 0
    for field in fields[:-1]:
        if not field.strip() or " " in field.strip():
            break
        count += 1
    return count


def _without_fields(rest: str, fields: int) -> str:
    return rest.split("|", fields)[-1] if fields else rest


def _cuts(rests: list[str], *, levelled: bool) -> list[re.Pattern[str]]:
    """What to cut off before the message, in this order; each is something most lines have."""
    order: tuple[re.Pattern[str], ...]
    if levelled:
        order = (_DASH, _BRACKET, _DASH, _DOTTED, _NAMED, _BRACKET, _DASH)
    else:
        order = (_KLOG, _TAGGED, _NUMBER, _NUMBER, _DASHED)
    cuts: list[re.Pattern[str]] = []
    for pattern in order:
        if pattern is _BRACKET and _BRACKET in cuts:
            continue
        least = 0.8 if pattern in (_NUMBER, _DASHED) else _MOSTLY
        matches = [pattern.match(rest) for rest in rests]
        if rests and sum(m is not None for m in matches) >= least * len(rests):
            cuts.append(pattern)
            rests = [rest[m.end() :] if m else rest for rest, m in zip(rests, matches, strict=True)]
            if pattern is _TAGGED or pattern is _KLOG:
                break
    return cuts


# Lines of data -------------------------------------------------------------------------------


def _json(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = msgspec.json.decode(line.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return found if isinstance(found, dict) else None


_TIME_KEYS: Final = (
    "time", "timestamp", "ts", "@timestamp", "t", "date", "datetime", "asctime", "eventTime",
)  # fmt: skip
_LEVEL_KEYS: Final = ("level", "severity", "lvl", "loglevel", "log.level", "levelname", "priority")
_MESSAGE_KEYS: Final = ("message", "msg", "event", "log", "MESSAGE", "text", "body")
_STACK_KEYS: Final = (
    "stack", "stack_trace", "stacktrace", "exception", "exc_info", "traceback", "error.stack_trace",
)  # fmt: skip


class _Fields:
    """The time, the level and the message among named fields."""

    def __init__(self) -> None:
        self._clocks: dict[str, Clock] = {}

    def piece(self, fields: dict[str, Any], otherwise: str) -> Piece:
        level = _first(fields, _LEVEL_KEYS)
        message = _first(fields, _MESSAGE_KEYS)
        stack = _first(fields, _STACK_KEYS)
        error = fields.get("error") or fields.get("err")
        if not stack and isinstance(error, dict):
            stack = _first(error, (*_STACK_KEYS, "message"))
        return Piece(
            self._moment(_first(fields, _TIME_KEYS)),
            _level(level),
            message.rstrip("\n") if isinstance(message, str) else otherwise,
            stack if isinstance(stack, str) else "",
        )

    def _moment(self, said: Any) -> float | None:
        if isinstance(said, int | float):
            return float(said) / (1000 if said > 1e11 else 1) if 1e9 <= said < 1e14 else None
        if not isinstance(said, str):
            return None
        for way in WAYS:
            found = way.pattern.search(said, 0, HEAD)
            if found is not None:
                return self._clocks.setdefault(way.name, Clock(way)).read(found)
        return None


def _first(fields: dict[str, Any], names: Iterable[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _level(said: Any) -> str | None:
    if isinstance(said, str):
        return _LEVELS.get(said) or _LEVELS.get(said.lower())
    return _NUMBERS.get(said // 10 * 10) if isinstance(said, int) else None


class _JsonLines:
    def __init__(self, lines: list[str]) -> None:
        self._fields = _Fields()
        inner = [
            str(found["log"]).rstrip("\n")
            for line in lines
            if (found := _json(line)) and isinstance(found.get("log"), str)
        ]
        self._inner = _Plain(inner) if len(inner) > len(lines) // 2 else None
        """What a container wrote, line by line, in JSON around it."""

    def split(self, line: str) -> Piece:
        found = _json(line)
        if found is None:
            return Piece(None, None, line.strip())
        piece = self._fields.piece(found, otherwise=line.strip())
        if self._inner is None:
            return piece
        inner = self._inner.split(piece.message)
        return inner._replace(moment=piece.moment)


class _Logfmt:
    def __init__(self, lines: list[str]) -> None:
        self._fields = _Fields()

    def split(self, line: str) -> Piece:
        fields = {key: value.strip('"') for key, value in _LOGFMT.findall(line)}
        if not fields:
            return Piece(None, None, line.strip())
        piece = self._fields.piece(fields, otherwise="")
        if piece.message:
            return piece
        return piece._replace(message=" ".join(f"{k}={v}" for k, v in fields.items()))


class _Access:
    """Web servers' access logs: a request with its status is the message, the status the level."""

    def __init__(self) -> None:
        self._clock = Clock(next(way for way in WAYS if way.name == "web server"))

    def split(self, line: str) -> Piece:
        found = _ACCESS.match(line)
        if found is None:
            return Piece(None, None, line.strip())
        time = self._clock.way.pattern.search(found["t"])
        method, _, target = found["r"].partition(" ")
        status = found["s"]
        level = "error" if status >= "500" else "warning" if status >= "400" else "info"
        plain = f"{method or '-'} {_route(target)} -> {status}"
        return Piece(self._clock.read(time) if time else None, level, line.strip(), plain=plain)


def _route(target: str) -> str:
    """The path down to its first folder, without values: what is below it comes in any number."""
    path = target.partition(" ")[0].partition("?")[0]
    first, _, more = path.lstrip("/").partition("/")
    shown = WILD if _DIGIT.search(first) else first
    return f"/{shown}/{WILD}" if more else f"/{shown}"
