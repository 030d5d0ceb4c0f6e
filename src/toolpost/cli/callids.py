"""The id of a call, made short enough for a line and long enough to find the call again.

Above: ``audit.py``. Below: nothing. An id is the process that made it, which begins with the time
it was started, and a number: ``1a1e1d0b9de2c45685c66-00002f``. Its short form is the beginning of
the one and the other without its zeros: ``1a1e1d0b9de-2f``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_LEAST: Final = 11
"""Characters of a process: a millisecond, in which there is seldom more than one."""


def shortened(ids: Iterable[str]) -> dict[str, str]:
    """The short form of each, by its id: different ones stay different."""
    known = list(dict.fromkeys(ids))
    length = _length({process for process, _ in map(_parted, known)})
    return {call_id: _short(call_id, length) for call_id in known}


def stands_for(written: str, call_id: str) -> bool:
    """Whether this is the short form of the id, however short."""
    (process, number), (whole, counted) = _parted(written), _parted(call_id)
    digits = bool(process and number and counted)
    return digits and whole.startswith(process) and number.lstrip("0") == counted.lstrip("0")


def may_mean(written: str, call_id: str) -> bool:
    return call_id.startswith(written) or stands_for(written, call_id)


def meant(written: str, ids: Iterable[str]) -> list[str]:
    """Those that are written so: in full, else in short, else by their beginning."""
    known = list(dict.fromkeys(ids))
    ways = (
        [one for one in known if one == written],
        [one for one in known if stands_for(written, one)],
        [one for one in known if one.startswith(written)],
    )
    return next((found for found in ways if found), [])


def _length(processes: set[str]) -> int:
    """How much of a process tells it from the others."""
    longest = max(map(len, processes), default=_LEAST)
    lengths = range(_LEAST, longest)
    return next((n for n in lengths if len({p[:n] for p in processes}) == len(processes)), longest)


def _short(call_id: str, length: int) -> str:
    process, number = _parted(call_id)
    return f"{process[:length]}-{number.lstrip('0') or '0'}" if number else call_id


def _parted(call_id: str) -> tuple[str, str]:
    process, _, number = call_id.partition("-")
    return process, number
