"""When a line was written, in any of the ways in which logs say so.

Above: ``layout.py``. Below: nothing. A moment is a number: seconds since 1970, as if what names no
zone were UTC. A way of writing is a pattern that finds it near the start of a line, and a function
that reads what was found. Lines of one second share the work.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final, NamedTuple

Fields = re.Match[str]
HEAD: Final = 120
"""Characters of a line in which its time is looked for."""
_NAMES: Final = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_MONTHS: Final = {name: number for number, name in enumerate(_NAMES.split("|"), start=1)}
_MONTH: Final = rf"(?P<mon>{_NAMES})"
_CLOCK: Final = r"(?P<h>[01]\d|2[0-3]):(?P<min>[0-5]\d):(?P<s>[0-6]\d)"
_PART: Final = r"(?:[.,:](?P<f>\d{1,9}))?+"
_ZONE: Final = r"(?: ?(?P<z>Z|UTC|GMT|[+-]\d\d:?\d\d)(?![A-Za-z0-9]))?+"
_YMD: Final = r"(?P<y>(?:19|20)\d\d)(?P<d1>[-/.])(?P<m>0[1-9]|1[0-2])(?P=d1)(?P<d>[0-3]\d)"
_POWERS: Final = tuple(10**digits for digits in range(10))
_WEEKDAY: Final = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"


class Way(NamedTuple):
    """One way of writing a moment."""

    name: str
    pattern: re.Pattern[str]
    year: bool = True
    """Whether it names the year."""


def _way(name: str, pattern: str, *, year: bool = True) -> Way:
    return Way(name, re.compile(rf"(?<![\w.:-]){pattern}(?![0-9])"), year)


WAYS: Final = (
    _way("iso", rf"{_YMD}[T _-]{_CLOCK}{_PART}{_ZONE}"),
    _way("iso with dots", rf"{_YMD}-(?P<h>[0-2]\d)\.(?P<min>[0-5]\d)\.(?P<s>[0-6]\d){_PART}"),
    _way(
        "basic iso",
        r"(?P<y>20\d\d)(?P<m>[01]\d)(?P<d>[0-3]\d)[T-]"
        rf"(?P<h>[0-2]\d):?(?P<min>[0-5]\d):?(?P<s>[0-6]\d){_PART}{_ZONE}",
    ),
    _way(
        "basic iso without zeros",
        r"(?P<y>20\d\d)(?P<m>[01]\d)(?P<d>[0-3]\d)[T-]"
        rf"(?P<h>[0-2]?\d):(?P<min>[0-5]?\d):(?P<s>[0-6]?\d){_PART}",
    ),
    _way(
        "web server",
        rf"(?P<d>[0-3]\d)/{_MONTH}/(?P<y>\d{{4}}):{_CLOCK}(?: (?P<z>[+-]\d{{4}}))?+",
    ),
    _way(
        "c library",
        rf"{_WEEKDAY} {_MONTH} +(?P<d>\d\d?) {_CLOCK}{_PART} (?:[A-Z]{{3,4}} )?+(?P<y>\d{{4}})",
    ),
    _way("mail", rf"{_WEEKDAY}, (?P<d>\d\d?) {_MONTH} (?P<y>\d{{4}}) {_CLOCK}{_ZONE}"),
    _way("day first", rf"(?P<d>[0-3]\d)[ -]{_MONTH}[ -](?P<y>\d{{4}}) {_CLOCK}{_PART}"),
    _way("syslog", rf"{_MONTH} +(?P<d>\d\d?) (?:(?P<y>\d{{4}}) )?+{_CLOCK}{_PART}", year=False),
    _way(
        "american",
        r"(?P<m>[01]?\d)/(?P<d>[0-3]?\d)/(?P<y>20\d\d),? "
        r"(?P<h>[0-2]?\d):(?P<min>[0-5]\d):(?P<s>[0-5]\d)(?: (?P<half>[AP]M))?+",
    ),
    _way("short year", rf"(?P<y2>\d\d)/(?P<m>[01]\d)/(?P<d>[0-3]\d) {_CLOCK}"),
    _way("german", rf"(?P<d>[0-3]\d)\.(?P<m>[01]\d)\.(?P<y>\d{{4}}) {_CLOCK}{_PART}"),
    _way("android", rf"(?P<m>[01]\d)[-.](?P<d>[0-3]\d) {_CLOCK}{_PART}", year=False),
    Way("klog", re.compile(rf"^[IWEFD](?P<m>[01]\d)(?P<d>[0-3]\d) {_CLOCK}{_PART}"), False),
    _way(
        "compact",
        r"(?P<y2>\d\d)(?P<m>[01]\d)(?P<d>[0-3]\d) (?P<h>[0-2]\d)(?P<min>[0-5]\d)(?P<s>[0-5]\d)",
    ),
    _way("epoch", r"(?P<e>1\d{9})(?:(?P<ms>\d{3})|[.,](?P<f>\d{1,9}))?+"),
    _way("clock", _CLOCK + _PART, year=False),
)
"""The ones that say most come first."""


class Clock:
    """Reads moments written in one way; remembers the day and the second it has just read."""

    def __init__(self, way: Way, now: datetime | None = None) -> None:
        self.way = way
        self._now = now or datetime.now(UTC)
        names = way.pattern.groupindex
        self._part = names.get("f", 0)
        self._epoch = "e" in names
        self._date_names = [name for name in ("y", "y2", "m", "mon", "d", "z") if name in names]
        self._half = "half" in names
        self._second, self._moment = "", 0.0
        self._said: tuple[str | None, ...] = ()
        self._day = 0.0

    def read(self, found: Fields) -> float | None:
        """The moment, or ``None`` for a 31st of June."""
        part = found[self._part] if self._part else None
        if part is None:
            text = found[0]
        else:
            line, (start, end) = found.string, found.span(self._part)
            text = line[found.start() : start] + line[end : found.end()]
        if text != self._second:
            moment = self._read(found)
            if moment is None:
                return None
            self._second, self._moment = text, moment
        return self._moment if part is None else self._moment + int(part) / _POWERS[len(part)]

    def _read(self, found: Fields) -> float | None:
        if self._epoch:
            return int(found["e"]) + int(found["ms"] or 0) / 1000
        said = found.group(*self._date_names) if len(self._date_names) > 1 else ()
        if said != self._said or not self._said:
            try:
                self._day = self._midnight(dict(zip(self._date_names, said, strict=False)))
            except (ValueError, OverflowError):
                return None
            self._said = said
        hour, minute, second = map(int, found.group("h", "min", "s"))
        if self._half and found["half"]:
            hour = hour % 12 + 12 * (found["half"] == "PM")
        return self._day + hour * 3600 + minute * 60 + second

    def _midnight(self, field: dict[str, str | None]) -> float:
        today = self._now
        name = field.get("mon")
        month = _MONTHS[name] if name else int(field.get("m") or today.month)
        year, short = field.get("y"), field.get("y2")
        if year and not 1 < int(year) < 9999:
            raise ValueError("in another zone it may be in no year at all")
        made = datetime(
            int(year) if year else 2000 + int(short) if short else today.year,
            month,
            int(field.get("d") or today.day),
            tzinfo=_zone(field.get("z") or "Z"),
        )
        if not year and not short and made > today + timedelta(days=2):
            made = made.replace(year=made.year - 1)
        return made.timestamp()


def _zone(said: str) -> timezone:
    if said in ("Z", "UTC", "GMT"):
        return UTC
    minutes = int(said[1:3]) * 60 + int(said[-2:])
    return timezone(timedelta(minutes=-minutes if said[0] == "-" else minutes))


def written(moment: float) -> str:
    """A moment for people and models: ISO 8601 in UTC, to the millisecond."""
    made = datetime.fromtimestamp(moment, UTC)
    return made.isoformat(timespec="milliseconds" if made.microsecond else "seconds").replace(
        "+00:00", "Z"
    )
