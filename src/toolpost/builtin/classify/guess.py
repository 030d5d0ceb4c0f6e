"""What the detectors say: a kind, a format within it, and how sure they are.

Above: every module here. Below: nothing. A sample is the beginning of what is to be classified, as
text; lines are cut so that no pattern meets one that is endless.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, NamedTuple

_MOST_LINES: Final = 2000
_LONGEST: Final = 1000


class Guess(NamedTuple):
    """``confidence`` is between 0 and 1, and comparable among all detectors."""

    kind: str
    format: str
    confidence: float
    details: dict[str, Any] = {}  # noqa: RUF012 - never changed


class Sample:
    """The beginning of a text. ``whole``: it is all of it; ``name``: the file's, if it has one."""

    def __init__(self, text: str, *, whole: bool, name: str = "") -> None:
        self.text, self.whole, self.name = text, whole, name

    @cached_property
    def lines(self) -> list[str]:
        """The first lines, each of a bearable length; the last is left out if it may be cut."""
        found = self.text.split("\n", _MOST_LINES)
        if (not self.whole or len(found) > _MOST_LINES) and len(found) > 1:
            found.pop()
        return [line.removesuffix("\r")[:_LONGEST] for line in found]

    @cached_property
    def filled(self) -> list[str]:
        """The lines that are not empty."""
        return [line for line in self.lines if line.strip()]

    @cached_property
    def head(self) -> str:
        """The first lines as one text, for patterns that look at several."""
        return "\n".join(self.lines[:400])


def share(lines: list[str], holds: Any) -> float:
    """How many of the lines something holds for."""
    return sum(1 for line in lines if holds(line)) / len(lines) if lines else 0.0
