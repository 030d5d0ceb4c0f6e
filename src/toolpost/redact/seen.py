"""A text as it is searched: without what cannot be seen, and with ``%5F`` as the ``_`` it means;
with the ``\\n`` of JSON and of programs as the line break it means, however often it was escaped;
with an HTML entity as its character, and with a letter of another width or style as the plain one.

Above: ``scan.py``, which searches a text as it is and, where something hides in it, once more like
this. Below: ``characters.py``. What is found is told by its place in the text as it was.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from operator import itemgetter
from typing import Final, NamedTuple
from unicodedata import normalize

from toolpost.characters import SEQUENCE, UNSEEN

_HEX: Final = "[0-9A-Fa-f]"
_COLOUR: Final = r"\\(?:u001[Bb]|x1[Bb]|033|e)\[[0-9;]{0,20}[A-Za-z]"
_UNSEEN_CODE: Final = (
    rf"\\u(?:00[Aa][Dd]|200[B-Fb-f]|202[A-Ea-e]|206{_HEX}|[Ff][Ee](?:0{_HEX}|[Ff][Ff]))"
)
_VALUE: Final = rf"%(?:25){{0,3}}{_HEX}{{2}}|\\(?:u{_HEX}{{4}}|x{_HEX}{{2}}|[0-3][0-7]{{2}})"
_ENTITY: Final = (
    r"&(?:#0{0,6}(?:[4-9][0-9]|3[3567]|1[01][0-9]|12[0-6]);"
    rf"|#[xX]0{{0,6}}(?:2[0135A-Fa-f]|[3-7]{_HEX});"
    r"|(?:lowbar|hyphen|dash|period|colon|sol|equals|plus|commat|dollar|num|percnt);)"
)
"""An entity for a character that a key may have in it. Those for quotes are everywhere in HTML, and
the rules know them."""
_ENTITIES: Final = {
    "lowbar": "_", "hyphen": "-", "dash": "-", "period": ".", "colon": ":", "sol": "/",
    "equals": "=", "plus": "+", "commat": "@", "dollar": "$", "num": "#", "percnt": "%",
}  # fmt: skip
STYLED: Final = "\uff0d\uff0e\uff10-\uff19\uff21-\uff3a\uff3f\uff41-\uff5a\U0001d400-\U0001d7ff"
"""Letters, digits and signs of full width, and the mathematical ones."""
_LETTERS: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}

CODES: Final = rf"{_COLOUR}|{_VALUE}|\\[nrtbfv0]|{_ENTITY}"
"""What stands for another character: a word may begin behind it, whatever its last letter is."""
HIDES: Final = (
    rf"[!-~][{UNSEEN}\r]+[!-~]|%[2-7]{_HEX}|\\(?:(?:u00|x)[2-7]{_HEX}|(?:0[4-7]|1[0-7])[0-7])"
    rf"|{_UNSEEN_CODE}|{_ENTITY}|[{STYLED}]"
)
"""Where neither this nor a rule behind a code is in a text it is searched as it is; for the first
look. What is looked for is ASCII, so that nothing hides in an emoji, however it is put together."""
_MAY_HIDE: Final = re.compile(rf"[{UNSEEN}{STYLED}\ud800-\udfff\r%\\&]")
_STYLED: Final = re.compile(f"[{STYLED}]")
_AGAIN: Final = r"\\{0,15}"  # escaped anew with every JSON that a text is put into
_CODE: Final = re.compile(rf"""{_AGAIN}(?:{CODES}|\\["'`/])""")
_GONE: Final = re.compile(f"{_AGAIN}(?:{_COLOUR}|{_UNSEEN_CODE})")
_HALF: Final = "\ufffd"
"""For half of a character, which no engine takes."""
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
        if char := _plain(match.group()):
            runs.append((length, start, end - start))
            pieces.append(char)
            length += 1
    if not end:
        return None
    runs.append((length, end, 1))
    return Seen("".join((*pieces, text[end:])), runs)


def _plain(found: str) -> str:
    """What is searched in its place; nothing, if nobody would see it."""
    if found[0] in "%\\&":
        return _meant(found)
    return normalize("NFKC", found) if _STYLED.match(found) else ""


def _hidden(text: str, start: int, char: str) -> re.Match[str] | None:
    """What is to be taken for something else: a code, all that a terminal obeys, a character."""
    if char in "%\\&":
        return _CODE.match(text, start)
    if char == "\r" and text.startswith("\n", start + 1):
        return None
    return SEQUENCE.match(text, start) or _MAY_HIDE.match(text, start)


def _meant(code: str) -> str:
    """The character that a code stands for; nothing, if nobody would see it."""
    if _GONE.fullmatch(code):
        return ""
    if code[0] == "&":
        name = code[1:-1]
        if name[0] != "#":
            return _ENTITIES[name]
        return chr(int(name[2:], 16) if name[1] in "xX" else int(name[1:]))
    if len(name := code.lstrip("\\")) == 1:
        return _LETTERS.get(name, name)
    if name.isdigit():
        return chr(int(name, 8))
    value = int(name[1:] if name[0] in "ux" else name[-2:], 16)
    if value in (0x2028, 0x2029):  # they end a line, a paragraph
        return "\n"
    return _HALF if 0xD800 <= value < 0xE000 else chr(value)
