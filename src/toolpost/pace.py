"""How many in how long: a pace, and what has to be remembered to hold somebody to it.

Above: the ring that limits calls. Below: nothing. ``60/min`` means that no minute, wherever it
begins, has more than 60 in it. So the moments of what was taken are remembered until they are a
minute old; of many, those that lie close together as one, at the latest of them. That errs on the
careful side by a hundredth of the time, and keeps what is remembered small enough to be shared.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from toolpost.errors import ConfigError
from toolpost.wording import short

_SECONDS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_PACE: Final = re.compile(r"([0-9]{1,9})/([0-9]{0,9})([a-z]+)(?: burst ([0-9]{1,9}))?")
_GRAINS: Final = 128
"""Into so many pieces the time is divided; what is taken within one is remembered together."""
_ROUNDING: Final = 1e-6
"""Seconds on top of a wait, so that whoever comes to the moment is not too early by a rounding."""


class Pace(msgspec.Struct, frozen=True):
    """``count`` in any ``seconds``."""

    text: str
    count: int
    seconds: float


def pace_from(text: str) -> Pace:
    """``60/min``, ``10/s``, ``5/10s``, ``1000/h burst 50``: with a burst, the time is divided, and
    each part has that many.
    """
    match = _PACE.fullmatch(text.strip())
    if match is None or match[3] not in _SECONDS:
        raise _no_pace(text)
    count, units, burst = int(match[1]), int(match[2] or 1), int(match[4] or match[1])
    if not (count and units and burst) or burst > count:
        raise _no_pace(text)
    return Pace(match[0], burst, units * _SECONDS[match[3]] / (count // burst))


def _no_pace(text: str) -> ConfigError:
    return ConfigError(
        f"{short(text)!r} is no rate: write 60/min, 10/s, 5/10s or 1000/h burst 50 "
        "(a burst is at most the count)"
    )


class Window:
    """What was taken of a pace within the last of its ``seconds``.

    ``taken`` and ``count`` are looked at on every call: below the count there is nothing to wait
    for. It is told the time; whoever tells it keeps to one clock.
    """

    __slots__ = ("_grain", "_seconds", "_until", "count", "taken", "times")

    def __init__(self, pace: Pace, times: Iterable[tuple[float, int]] = ()) -> None:
        self.count, self._seconds = pace.count, pace.seconds
        self._grain = pace.seconds / _GRAINS if pace.count > _GRAINS else 0.0
        self.times = deque([moment, number] for moment, number in times)
        """The last moment of each grain, and how many were taken in it."""
        self.taken = sum(number for _, number in self.times)
        self._until = self._end(self.times[-1][0]) if self.times else 0.0

    def wait(self, now: float) -> float:
        """Seconds until one more may be had; 0: now."""
        if self.taken < self.count:
            return 0.0
        self._forget(now)
        if self.taken < self.count:
            return 0.0
        return self.times[0][0] + self._seconds - now + _ROUNDING

    def take(self, now: float) -> None:
        """One more, which there was nothing to wait for."""
        self.taken += 1
        if now < self._until:
            newest = self.times[-1]
            newest[1] += 1
            if now > newest[0]:
                newest[0] = now
        else:
            self._forget(now)
            self.times.append([now, 1])
            self._until = self._end(now)

    def idle(self, now: float) -> bool:
        """Whether nothing is remembered any more."""
        self._forget(now)
        return not self.taken

    def _forget(self, now: float) -> None:
        times, old = self.times, now - self._seconds
        while times and times[0][0] <= old:
            self.taken -= times.popleft()[1]

    def _end(self, moment: float) -> float:
        return (moment // self._grain + 1) * self._grain if self._grain else 0.0
