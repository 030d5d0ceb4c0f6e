"""Connections that have not said all that they want: so many of one address, the oldest go first.

Above: ``connection.py``, which knows when a request is whole. Below: nothing. Whoever opens
connections and says nothing on them, or does not get to the end of a request, is in nobody's way
but their own.
"""

from __future__ import annotations

from ipaddress import IPv6Network
from itertools import islice
from typing import Final, Generic, TypeVar

T = TypeVar("T")
GRACE: Final = 1.0
"""Seconds that each may take whoever else comes: of a crowd, all are let in before any is heard."""
_AT_ONCE: Final = 2
"""How many go when one comes."""
_HOUSE: Final = 64
"""Bits of an IPv6 address that are one household's: it has all that begin with them."""


class Unheard(Generic[T]):
    """``each``: how many of one address may be here for longer than a moment."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._all: dict[T, tuple[str, float]] = {}
        self._of: dict[str, dict[T, float]] = {}

    def add(self, one: T, address: str, now: float) -> list[T]:
        """Take it in; those of the same address that go for it, if there are too many."""
        self._all[one] = address, now
        theirs = self._of.setdefault(address, {})
        theirs[one] = now
        many = min(len(theirs) - self._each, _AT_ONCE)
        if many <= 0:
            return []
        return [old for old, since in islice(theirs.items(), many) if now - since > GRACE]

    def discard(self, one: T) -> None:
        if (found := self._all.pop(one, None)) is not None:
            theirs = self._of[found[0]]
            del theirs[one]
            if not theirs:
                del self._of[found[0]]

    def oldest(self, now: float) -> T | None:
        """Of whatever address, if it has had its time."""
        old, (_, since) = next(iter(self._all.items()), (None, ("", now)))
        return old if now - since > GRACE else None


def household(host: str) -> str:
    """Whose an address is: of an IPv6 address, whoever has its network."""
    if ":" not in host:
        return host
    return str(IPv6Network((host.partition("%")[0], _HOUSE), strict=False))
