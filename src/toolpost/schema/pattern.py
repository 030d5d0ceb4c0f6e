"""What a regular expression in a schema may cost, judged from its text alone.

Above: ``cost.py`` refuses what is too expensive, ``check.py`` bounds the text that the rest
may meet. Below: nothing. It refuses to say whether a pattern is valid: the engine does that.

The engine is linear in the text for ordinary patterns (times the size of the pattern written
out, ``a{100}`` counting 100); it backtracks for look-around, back-references and atomic groups.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

MAX_LENGTH: Final = 2_000
MAX_DEPTH: Final = 50
MAX_SIZE: Final = 10_000
_SMALL: Final = 200
_STEPS: Final = 50_000_000
_UNANCHORED_TEXT: Final = 1_000
_ANCHORED_TEXT: Final = 100_000

_BACKTRACKS: Final = r"\(\?(?:[=!>]|<[=!])|\\[1-9]|\\[kKG]|[*+?}]\+"
_ATOM: Final = (
    r"\\(?:[pPx]\{[^}]{0,40}\}|u\{[^}]{0,8}\}|.)"  # an escape
    r"|\[\^?\]?(?:\\.|\[:\w{1,10}:\]|[^\]\\])*\]"  # a class
    r"|(?P<open>\((?:\?(?:[=!>:]|<[=!]|P?<\w{1,60}>|[a-zA-Z-]{1,8}[:)]))?)|(?P<close>\))"
    r"|(?P<times>\{(?P<low>\d{1,9})(?P<range>,(?P<high>\d{0,9}))?\})|(?P<many>[*+])|(?P<maybe>\?)"
    r"|(?s:.)"
)


class Judgement(msgspec.Struct, frozen=True):
    """``text_limit`` is the longest text the pattern may be tried on; None where any will do."""

    text_limit: int | None


class TooExpensive(ValueError):
    """The pattern costs too much; the message says what to change."""


class _Group(msgspec.Struct):
    size: int = 0
    last: int = 0
    endless: bool = False  # holds an unbounded repetition
    last_endless: bool = False


def judge(pattern: str) -> Judgement:
    if len(pattern) > MAX_LENGTH:
        raise TooExpensive(f"pattern is longer than {MAX_LENGTH} characters; shorten it")
    backtracks = re.search(_BACKTRACKS, pattern) is not None
    size = _size(pattern, backtracks)
    if backtracks:
        anchored = pattern.startswith("^") and "|" not in pattern
        return Judgement(_ANCHORED_TEXT if anchored else _UNANCHORED_TEXT)
    return Judgement(None if size <= _SMALL else _STEPS // size)


def _size(pattern: str, backtracks: bool) -> int:
    """The pattern's size with every counted repetition written out."""
    groups = [_Group()]
    for found in re.finditer(_ATOM, pattern):
        here = groups[-1]
        if found["open"]:
            groups.append(_Group())
            if len(groups) > MAX_DEPTH:
                raise TooExpensive(f"pattern nests more than {MAX_DEPTH} groups")
        elif found["close"]:
            if len(groups) > 1:
                groups.pop()
                _add(groups[-1], here.size + 1, endless=here.endless)
        elif found["times"]:
            low = int(found["low"])
            high = int(found["high"]) if found["high"] else low + bool(found["range"])
            _repeat(here, max(low, high), endless=bool(found["range"]) and not found["high"])
        elif found["many"]:
            if backtracks and here.last_endless:
                raise TooExpensive(
                    "pattern repeats a repetition and needs backtracking; "
                    "take out the look-around, the back-reference or the inner repetition"
                )
            _repeat(here, 1, endless=True)
        elif not found["maybe"]:
            _add(here, 1, endless=False)
        if groups[-1].size > MAX_SIZE:
            raise TooExpensive(f"pattern's counted repetitions write out to more than {MAX_SIZE}")
    return sum(group.size for group in groups)


def _add(group: _Group, size: int, *, endless: bool) -> None:
    group.size += size
    group.last = size
    group.last_endless = endless
    group.endless = group.endless or endless


def _repeat(group: _Group, times: int, *, endless: bool) -> None:
    group.size += group.last * (max(times, 1) - 1)
    group.last *= max(times, 1)
    group.last_endless = group.last_endless or endless
    group.endless = group.endless or endless
