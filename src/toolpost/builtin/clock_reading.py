"""Moments and time zones as people write them.

Above: ``clock.py``. Below: the standard library and the system's table of zones. A text that could
mean two days is refused, and says how to write it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final, NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from toolpost.errors import InvalidArguments, MissingPart
from toolpost.wording import nearest, short

_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,40}(?:/[A-Za-z0-9_+-]{1,40}){0,2}")
_OF_THE_SYSTEM: Final = re.compile(r"localtime|posixrules|Factory|(?:posix|right)/.*")
"""What else lies in the system's table: what it is depends on the machine, or it counts the leap
seconds, which no clock here does.
"""
_UNIX: Final = re.compile(r"@?(-?[0-9]{9,11}(?:\.[0-9]{1,9})?|[0-9]{12,14})")
_MILLISECONDS: Final = 12
_FORMATS: Final = tuple(
    f"{day}{time}"
    for day in ("%d %b %Y", "%d %B %Y", "%b %d %Y", "%B %d %Y", "%Y/%m/%d", "%d.%m.%Y")
    for time in ("", " %H:%M", " %H:%M:%S", " %I:%M %p")
)
_MAIL: Final = re.compile(
    r"(?:[A-Z][a-z]{2}, )?[0-9]{1,2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}(?::[0-9]{2})? "
    r"(?:[+-][0-9]{4}|GMT|UTC|UT|Z)"
)
_UNCLEAR: Final = re.compile(r"[0-9]{1,2}[/-][0-9]{1,2}[/-][0-9]{2,4}")


def zone_of(name: str, parameter: str) -> tzinfo:
    """The zone of a name or an offset."""
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    if (offset := _OFFSET.fullmatch(name)) is not None:
        sign, hours, minutes = offset.groups()
        apart = timedelta(hours=int(hours), minutes=int(minutes or 0))
        if apart < timedelta(hours=24):
            return timezone(-apart if sign == "-" else apart)
    elif _NAME.fullmatch(name) and not _OF_THE_SYSTEM.fullmatch(name):
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass  # as below
    zones = _zones()
    if not zones:
        raise MissingPart("the system has no table of time zones: pip install tzdata")
    if (found := zones.get(name.lower())) is not None:
        return ZoneInfo(found)
    hint = nearest(name, zones.values()) or ": write Europe/Berlin, UTC or +02:00"
    return _refuse(parameter, f"there is no zone {short(name)!r}{hint}")


@lru_cache(maxsize=1)
def _zones() -> dict[str, str]:
    """In small letters → as they are spelt."""
    found = (name for name in sorted(available_timezones()) if not _OF_THE_SYSTEM.fullmatch(name))
    return {name.lower(): name for name in found}


def moment(text: str, zone: tzinfo, parameter: str) -> tuple[datetime, tuple[str, ...]]:
    """The moment that a text means, and what is odd about it; ``zone`` is of one without."""
    plain = " ".join(text.split())
    if plain.lower() == "now":
        return datetime.now(zone), ()
    try:
        found = _iso(plain) or _unix(plain) or _written(plain) or _mail(plain)
        if found is None:
            problem = "is not clear" if _UNCLEAR.match(plain) else "is not a time"
            _refuse(parameter, f"{short(text)!r} {problem}: write 2026-11-16T14:30")
        if found.tzinfo is not None:
            found.astimezone(UTC)  # or say that it cannot be
            return found, ()
        return _local(found.replace(tzinfo=zone))
    except OverflowError:
        _refuse(parameter, "years go from 1 to 9999")


def _iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _unix(text: str) -> datetime | None:
    found = _UNIX.fullmatch(text)
    if found is None:
        return None
    digits = found[1]
    whole = digits.lstrip("-").partition(".")[0]
    seconds = int(digits) / 1000 if len(whole) >= _MILLISECONDS else float(digits)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def _mail(text: str) -> datetime | None:
    if not _MAIL.fullmatch(text):
        return None  # what reads them makes something of nearly everything
    try:
        return parsedate_to_datetime(text)
    except ValueError:
        return None


def _written(text: str) -> datetime | None:
    plain = text.replace(",", "")
    for form in _FORMATS:
        try:
            return datetime.strptime(plain, form)
        except ValueError:
            continue
    return None


def _local(when: datetime) -> tuple[datetime, tuple[str, ...]]:
    """A time on the clocks of a zone, which may have shown it twice, or never."""
    first, second = when.utcoffset(), when.replace(fold=1).utcoffset()
    moved = when.astimezone(UTC).astimezone(when.tzinfo)
    if first == second or first is None or second is None:
        return when, ()
    shown = when.strftime("%H:%M on %Y-%m-%d")
    if moved.replace(tzinfo=None) == when.replace(tzinfo=None):
        return when, (f"Clocks showed {shown} twice: the first is meant.",)
    return moved, (f"Clocks never showed {shown}: they were put forward then.",)


def _refuse(parameter: str, problem: str) -> NoReturn:
    raise InvalidArguments(f"/{parameter}: {problem}", effects="none")
