"""A text under its name, and the places in it: what every format's reader works with.

Above: the readers of the formats. It refuses to know any of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

from toolpost.errors import SourceError
from toolpost.wording import short

Progress = Callable[[int, int], None]
"""Told how many characters of how many are done; what it raises ends the reading."""

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 64
MAX_DIGITS = 640
"""As many digits as Python converts under any setting of its own limit."""
TOO_WIDE = 10**MAX_DIGITS
"""The first integer with more: one that is written in hexadecimal has fewer digits there."""

TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep; flatten it"
TOO_LONG = f"an integer of more than {MAX_DIGITS} digits; put it in quotes"
NOT_FINITE = "not a finite number, which JSON cannot carry; put it in quotes or leave it out"
HALF_PAIR = "half of a surrogate pair, which is no character; write the character itself"


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """What a file says (``data``), and where it says it (:meth:`where`)."""

    data: Any
    name: str
    _text: Text = field(repr=False)
    _places: Callable[[Text], Place] = field(repr=False)

    def where(self, pointer: Sequence[str | int] = (), *, key: bool = False) -> str:
        """``file:line:column`` of the value at this path, or of the key that names it.

        For a path that the document does not have, it is the value of the nearest ancestor that it
        has: where a missing key would have to be written.
        """
        place = self._text.root(self._places)
        for step in pointer:
            child = place.children.get(step)
            if child is None:
                return self._text.at(place.at)
            place = child
        return self._text.at(place.key if key else place.at)


class Place:
    """Offsets of a value and of the key that names it, and the places of what is inside it."""

    __slots__ = ("at", "children", "key")

    def __init__(self, at: int, key: int, *, leaf: bool = False) -> None:
        self.at = at
        self.key = key
        self.children: dict[str | int, Place] = _NOTHING if leaf else {}


_NOTHING: dict[str | int, Place] = {}
"""Inside every leaf, and never written to: a dict for each would double what places cost."""


class Text:
    """A text under its name: turns offsets into places and faults. ``lenient``: a number may be a
    key, as it is written.
    """

    def __init__(self, text: str, name: str, *, lenient: bool = False) -> None:
        self.text = text
        self.name = name
        self.lenient = lenient
        self._root: Place | None = None

    def check(self) -> None:
        """What no format allows."""
        try:
            size = len(self.text.encode("utf-8"))
        except UnicodeEncodeError as exc:
            raise self.fault(exc.start, HALF_PAIR) from exc
        if size > MAX_BYTES:
            raise SourceError(f"{self.name}: larger than {MAX_BYTES >> 20} MiB; split it")
        if (nul := self.text.find("\0")) >= 0:
            raise self.fault(nul, "a NUL character; this is no text file, or it is damaged")

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(line) + 1 for line in self.text.split("\n"))]

    def at(self, offset: int) -> str:
        offset = min(offset, len(self.text))
        line = bisect_right(self._starts, offset)
        return f"{self.name}:{line}:{offset - self._starts[line - 1] + 1}"

    def fault(self, offset: int, message: str) -> SourceError:
        line = self.text.count("\n", 0, offset) + 1  # once, and so without a list of all lines
        column = min(offset, len(self.text)) - self.text.rfind("\n", 0, offset)
        return SourceError(f"{self.name}:{line}:{column}: {message}")

    def twice(self, key: str, offset: int, first: int) -> SourceError:
        message = f"the key {shown(key)} is here twice, first at {self.at(first)}; keep one"
        return self.fault(offset, message)

    def root(self, places: Callable[[Text], Place]) -> Place:
        if self._root is None:
            self._root = places(self)
        return self._root


def shown(value: str) -> str:
    """A piece of the file for a message: short, with no secret and nothing a terminal obeys."""
    return repr(short(value))


class Refused(Exception):
    """Parsed, but not plain data; the placing walk knows where."""


def hint(problem: str, hints: dict[str, str]) -> str:
    return next((hint for start, hint in hints.items() if start in problem), "")
