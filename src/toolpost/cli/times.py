"""Durations and moments, as people write and read them on the command line.

Every option that takes a duration or a moment uses ``Duration`` or ``Moment``, so that ``30m``,
``30min`` and ``1h30m`` mean the same everywhere. ``moment`` and ``span`` print them.
"""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from typing import Any, Final

import click

_UNITS: Final = {
    "ms": 0.001,
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 604_800),
}
_PIECE: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]*)\s*", re.IGNORECASE)
_LONGEST: Final = 100 * 366 * 86_400
_DAYS: Final = {"today": 0, "yesterday": 1}
DURATIONS: Final = "write 45s, 30m, 12h, 90d or 1h30m"


def parse_duration(text: str) -> float | None:
    """Return the seconds of ``30m``, ``30min``, ``1h30m`` or ``2 days``; ``None`` if it is none of
    these. A number alone is a number of seconds.
    """
    seconds, at, text = 0.0, 0, text.strip().lower()
    while at < len(text):
        piece = _PIECE.match(text, at)
        alone = piece is not None and piece.span() == (0, len(text))
        unit = _UNITS.get(piece[2] or ("s" if alone else "")) if piece else None
        if piece is None or unit is None:
            return None
        seconds, at = seconds + float(piece[1]) * unit, piece.end()
    return seconds if 0 < seconds <= _LONGEST else None


def parse_moment(text: str, now: float) -> float | None:
    """Return the time of ``2h`` (ago), ``2 days ago``, ``today``, ``yesterday`` or an ISO 8601
    date, as seconds since 1970; ``None`` if it is none of these.
    """
    said = text.strip().lower()
    if said == "now":
        return now
    if said in _DAYS:
        midnight = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
        return (midnight - timedelta(days=_DAYS[said])).timestamp()
    ago = parse_duration(said.removesuffix("ago"))
    if ago is not None and not said.isdigit():
        return now - ago
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        return None


class Duration(click.ParamType):  # type: ignore[type-arg]
    """An option that takes a duration and gives its seconds. ``never``: the word for no end, which
    gives ``None``.
    """

    name = "duration"

    def __init__(self, *, never: bool = False) -> None:
        self._never = never

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or (self._never and value == NEVER):
            return value
        seconds = parse_duration(value)
        if seconds is None:
            also = f", or {NEVER}" if self._never else ""
            self.fail(f"{value!r} is not a duration: {DURATIONS}{also}.", param, ctx)
        return seconds


class Moment(click.ParamType):  # type: ignore[type-arg]
    """An option that takes a moment in the past and gives its seconds since 1970."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        seconds = parse_moment(value, time.time())
        if seconds is None:
            self.fail(
                f"{value!r} is not a time: write how long ago it was (30m, 2h, 7d), today, "
                "yesterday, or a date such as 2026-11-15 or 2026-11-15T10:00+01:00.",
                param,
                ctx,
            )
        return seconds


NEVER: Final = "never"


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%d %b %H:%M:%S")


def span(seconds: float) -> str:
    """A duration, rounded down, so that nobody who reads how much time is left comes too late."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f}{unit}"
    return f"{max(0.0, seconds) // 1:.0f}s"
