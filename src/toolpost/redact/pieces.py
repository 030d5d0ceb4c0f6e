"""A text that comes bit by bit: told in pieces in which whatever there is to find is whole.

Above: ``extensions/sanitize.py``. Below: nothing. A line is told once its end is there, a private
key once all of its lines are. What is held back is bounded.
"""

from __future__ import annotations

from typing import Final

_MOST: Final = 64 * 1024
"""Characters that are held back; what is longer is told as it comes."""
_BEGINS, _ENDS = "-----BEGIN ", "-----END "


class Pieces:
    """One text."""

    def __init__(self) -> None:
        self._held = ""

    def hear(self, piece: str) -> str:
        """What can be told by now."""
        text = self._held + piece
        end = text.rfind("\n") + 1
        key = text.rfind(_BEGINS, 0, end)
        if key >= 0 and text.find(_ENDS, key, end) < 0:
            end = key
        if len(text) - end > _MOST:
            end = len(text)
        self._held = text[end:]
        return text[:end]

    def rest(self) -> str:
        """What was held back, once nothing more will come."""
        held, self._held = self._held, ""
        return held
