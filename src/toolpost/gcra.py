"""How many in how long: a rate, and the one number that has to be kept to hold somebody to it.

Above: the ring that limits calls. Below: nothing. The generic cell rate algorithm: a rate of
``60/min`` is one call a second, and calls may come early by as much as the burst allows (60 at
once, unless it says less: ``60/min burst 10``). What is kept is the moment at which all that was
taken would have been due; any process that can replace it safely can share it.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from toolpost.errors import ConfigError
from toolpost.spec import short

_SECONDS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_RATE: Final = re.compile(r"([0-9]{1,9})/([0-9]{0,9})([a-z]+)(?: burst ([0-9]{1,9}))?")


class Rate(msgspec.Struct, frozen=True):
    """``interval`` seconds a call; ``early``: by how many of them a call may come too soon."""

    text: str
    interval: float
    early: float
    slack: float
    """So that what comes to the moment is not late by a rounding."""

    def take(self, due: float, now: float) -> tuple[float, float]:
        """(0, what is due then) if one more may be had now, else (seconds to wait, 0)."""
        if due < now:
            due = now
        wait = due - now - self.early
        return (wait, 0.0) if wait > self.slack else (0.0, due + self.interval)

    @property
    def most_due(self) -> float:
        """How far ahead of now the kept moment can be; further, and a clock was moved."""
        return self.early + self.interval


def rate_from(text: str) -> Rate:
    """``60/min``, ``10/s``, ``5/10s``, ``1000/h burst 50``."""
    match = _RATE.fullmatch(text.strip())
    if match is None or match[3] not in _SECONDS:
        raise _no_rate(text)
    count, units, burst = int(match[1]), int(match[2] or 1), int(match[4] or match[1])
    if not (count and units and burst):
        raise _no_rate(text)
    interval = units * _SECONDS[match[3]] / count
    return Rate(match[0], interval, (burst - 1) * interval, interval / 100)


def _no_rate(text: str) -> ConfigError:
    return ConfigError(f"{short(text)!r} is no rate: write 60/min, 10/s, 5/10s or 1000/h burst 50")
