"""A text as it is searched: without what cannot be seen, and with ``%5F`` as the ``_`` it means.

Above: ``scan.py``, which searches a text as it is and, where something hides in it, once more like
this. Below: ``characters.py``. What is found is told by its place in the text as it was.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from operator import itemgetter
from typing import Final, NamedTuple

from toolpost.characters import SEQUENCE, UNSEEN

HIDES: Final = rf"[!-~][{UNSEEN}\r]+[!-~]|%[2-7][0-9A-Fa-f]"
"""Where this is not in a text it is searched as it is; for the first look. What is looked for is
ASCII, so that nothing hides in an emoji, however it is put together."""
_MAY_HIDE: Final = re.compile(rf"[{UNSEEN}\ud800-\udfff\r%]")
_CODE: Final = re.compile("%[2-7][0-9A-Fa-f]")
_BEGIN: Final = itemgetter(0)


class Seen(NamedTuple):
    """``runs``: where a run of characters begins, where it began, and how many one of them was."""

    text: str
    runs: list[tuple[int, int, int]]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where that stands in the text as it was."""
        first, _ = self._place(start)
        last, width = self._place(end - 1)
        return first, last + width

    def _place(self, place: int) -> tuple[int, int]:
        begin, began, width = self.runs[bisect_right(self.runs, place, key=_BEGIN) - 1]
        return began + place - begin, width


def seen(text: str) -> Seen | None:
    """The text as it is searched; ``None`` if that is the text itself."""
    pieces: list[str] = []
    runs: list[tuple[int, int, int]] = []
    length = end = 0
    for found in _MAY_HIDE.finditer(text):
        start = found.start()
        if start < end or (match := _hidden(text, start, found.group())) is None:
            continue
        if start > end:
            runs.append((length, end, 1))
            pieces.append(text[end:start])
            length += start - end
        end = match.end()
        if text[start] == "%":
            runs.append((length, start, end - start))
            pieces.append(chr(int(match.group()[1:], 16)))
            length += 1
    if not end:
        return None
    runs.append((length, end, 1))
    return Seen("".join((*pieces, text[end:])), runs)


def _hidden(text: str, start: int, char: str) -> re.Match[str] | None:
    """What is to be taken for something else: a code, all that a terminal obeys, a character."""
    if char == "%":
        return _CODE.match(text, start)
    if char == "\r" and text.startswith("\n", start + 1):
        return None
    return SEQUENCE.match(text, start) or _MAY_HIDE.match(text, start)
