"""When to leave something alone: a breaker for one thing that fails, a budget for all repeats.

Above: the ring that repeats calls. Below: nothing. Both are told the time and keep no clock, so
that a clock that jumps or a test that moves it is somebody else's business.
"""

from __future__ import annotations

from typing import Literal

State = Literal["closed", "half-open", "open"]


class Breaker:
    """Opens after ``most`` failures in a row; after ``seconds`` one call may try whether it works.

    ``failures`` and ``closed`` are looked at on every call: a success needs no more than that.
    """

    __slots__ = ("__weakref__", "_most", "_probing", "_seconds", "_until", "closed", "failures")

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._until, self._probing = 0.0, False
        self.closed, self.failures = True, 0

    def state(self, now: float) -> State:
        if self.closed:
            return "closed"
        return "open" if now < self._until else "half-open"

    def probe(self, now: float) -> float:
        """0 for the one call that may try, which then says ``probed``; others: seconds to wait."""
        if now < self._until:
            return self._until - now
        if self._probing:
            return self._seconds
        self._probing = True
        return 0.0

    def probed(self) -> None:
        """The one that tried is back, whatever came of it."""
        self._probing = False

    def succeeded(self) -> None:
        self.closed, self.failures = True, 0

    def failed(self, now: float) -> None:
        self.failures += 1
        if self._most and (self.failures >= self._most or not self.closed):
            self.closed, self._until = False, now + self._seconds


class Budget:
    """How many repeats there may be: a share of all calls, and a few a second in any case.

    ``tokens`` and ``most`` are looked at on every call: as long as it is full nothing is earned.
    """

    __slots__ = ("_per_second", "_share", "_since", "most", "tokens")

    def __init__(self, *, share: float, per_second: float, most: float, now: float) -> None:
        self._share, self._per_second, self._since = share, per_second, now
        self.tokens = self.most = most

    def earn(self) -> None:
        """A call was made."""
        self.tokens = min(self.most, self.tokens + self._share)

    def spend(self, now: float) -> bool:
        """Whether there may be one more repeat."""
        earned = max(0.0, now - self._since) * self._per_second
        self.tokens, self._since = min(self.most, self.tokens + earned), now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True
