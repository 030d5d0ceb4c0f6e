"""The time: now, in another zone, read from a text, and how far apart two moments are.

    [sources.time]
    zone = "Europe/Berlin"

Above: ``sources/builtin.py``. Below: ``clock_reading.py``, which reads moments and zones, and the
system's clock. It is answered in the loop: nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, NotRequired, TypedDict

from annotated_types import MaxLen

from toolpost import Given, InvalidArguments, tool
from toolpost.authoring import FunctionTool
from toolpost.builtin import given, raw
from toolpost.builtin.clock_reading import moment, zone_of
from toolpost.errors import ConfigError
from toolpost.options import Options

SAMPLE = """\
# The time zone that is meant where none is named.
zone = "UTC"
"""

Text = Annotated[str, MaxLen(100)]


class Settings(Options, frozen=True):
    """``[sources.time]``: the zone that is meant where none is named."""

    zone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            zone_of(self.zone, "zone")
        except InvalidArguments as fault:
            problem = fault.message.removeprefix("/zone: ")
            raise ConfigError(f"time: {problem}", at=("zone",)) from None


class Moment(TypedDict):
    """``note`` tells of a clock that was put forward or back just then."""

    time: str
    zone: str
    utc: str
    unix: float
    weekday: str
    week: str
    summer_time: bool
    note: NotRequired[str]


class Difference(TypedDict):
    """From the first moment to the second; below zero if the second is earlier."""

    seconds: float
    days: float
    text: str
    notes: NotRequired[list[str]]


@raw("time", "until")
@tool(
    name="time",
    title="Time",
    tags=["time"],
    tier=0,
    effects="read",
    timeout=1,
    examples=[
        {},
        {"action": "now", "zone": "Asia/Tokyo"},
        {
            "action": "convert",
            "time": "2026-11-16 14:30",
            "from_zone": "Europe/Berlin",
            "zone": "America/New_York",
        },
        {"action": "parse", "time": "Mon, 16 Nov 2026 09:00:00 +0100"},
        {"action": "difference", "time": "2026-11-16", "until": "2026-12-24"},
    ],
)
async def time_tool(
    action: Literal["now", "convert", "parse", "difference"] = "now",
    time: Text | None = None,
    zone: Text | None = None,
    from_zone: Text | None = None,
    until: Text | None = None,
    *,
    clock: Given[Settings],
) -> Moment | Difference:
    """Tell the time now, convert a time to another zone, read a time, or compare two.

    A time is written as 2026-11-16T14:30:00+01:00 or 2026-11-16 14:30, as 16 Nov 2026, as mail has
    it, as seconds since 1970, or as now.

    :param action: What to do: now, convert, parse or difference.
    :param time: The time to convert or parse, or the first of two.
    :param zone: The zone of the answer, such as Europe/Berlin, UTC or +02:00.
    :param from_zone: The zone of a time that names none itself; else it is that of the answer.
    :param until: For difference: the second time; now if left out.
    """
    there = zone_of(zone or clock.zone, "zone")
    if action == "now" and time is None:
        return _told(datetime.now(there), ())
    if time is None:
        raise InvalidArguments(f"/time: is needed for the action {action}", effects="none")
    here = there if from_zone is None else zone_of(from_zone, "from_zone")
    first, notes = moment(time, here, "time")
    if action == "parse" and zone is None:
        return _told(first, notes)
    if action != "difference":
        return _told(_in(first, there), notes)
    second, more = moment(until or "now", here, "until")
    return _apart(first, second, (*notes, *more))


def _in(when: datetime, zone: object) -> datetime:
    try:
        return when.astimezone(zone)  # type: ignore[arg-type]
    except OverflowError:
        raise InvalidArguments("/time: years go from 1 to 9999", effects="none") from None


def _told(when: datetime, notes: Iterable[str]) -> Moment:
    year, week, _ = when.isocalendar()
    told: Moment = {
        "time": when.isoformat(timespec="milliseconds" if when.microsecond else "seconds"),
        "zone": str(when.tzinfo),
        "utc": _in(when, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "unix": when.timestamp(),
        "weekday": when.strftime("%A"),
        "week": f"{year}-W{week:02}",
        "summer_time": bool(when.dst()),
    }
    for note in notes:
        told["note"] = note
    return told


def _apart(first: datetime, second: datetime, notes: Iterable[str]) -> Difference:
    # two times of one zone would be compared by their clocks
    seconds = (second.astimezone(UTC) - first.astimezone(UTC)).total_seconds()
    apart: Difference = {
        "seconds": seconds,
        "days": seconds / 86_400,
        "text": _in_words(round(abs(seconds))) + (" earlier" if seconds < 0 else ""),
    }
    if found := list(notes):
        apart["notes"] = found
    return apart


def _in_words(seconds: int) -> str:
    parts = []
    for word, size in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count:,} {word}{'s' if count > 1 else ''}")
    return ", ".join(parts) or "0 seconds"


def tools(settings: Settings, base: Path) -> Iterable[FunctionTool]:
    return [given(time_tool, clock=settings)]
