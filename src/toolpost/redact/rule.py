"""One kind of thing to find: ``Rule``, and the questions that several rules ask of a match.

Above: the tables ``secret.py`` and ``personal.py``. Below: nothing. Texts are bytes here, one byte
for each character (``scan.py`` says how), so that a place in them is a place in the text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

Span = tuple[int, int]
Match = re.Match[bytes]
Check = Callable[[bytes, Match], Span | None]
"""Which part of a match is the finding; None if it is none after all."""

Search = Callable[[bytes, Any], Iterator[Span]]
"""Every finding of a rule in a text, given its compiled pattern."""

_SAMPLE: Final = 512
_ONE_WORD: Final = re.compile(rb"[A-Za-z]*[0-9]{0,4}")
_SPLIT: Final = re.compile(rb"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class Rule:
    """``pattern`` means the same to ``re`` and RE2, and once begun it either fails within a bounded
    number of characters or eats what it has seen: one pass over a text is linear with both.
    """

    kind: str
    pattern: str
    needs: tuple[bytes, ...] = ()
    """One of these stands in every text that can match, in small letters; empty: not known."""
    check: Check | None = None
    secret: bool = True
    step: int = 0
    """Where to look on after a match that was none: so many characters on; 0: after it."""
    search: Search | None = None
    """For a rule that looks around its matches: it decides where to look on, so that no part of a
    text is looked at for every match again. ``check`` is not asked then."""


def group(number: int) -> Check:
    """The finding is what stands in a group."""

    def check(_: bytes, match: Match) -> Span | None:
        return match.span(number)

    return check


def mixed(text: bytes) -> bool:
    """Digits and letters, and not the same few all over: no placeholder, no plain word."""
    text = text[:_SAMPLE]
    letters = any(65 <= c <= 90 or 97 <= c <= 122 for c in text)
    return letters and any(48 <= c <= 57 for c in text) and len(set(text)) >= 6


def wordy(text: bytes) -> bool:
    """Words and small numbers in a row, as in names, paths and versions."""
    return all(_ONE_WORD.fullmatch(part) for part in _SPLIT.split(text[:_SAMPLE]))


_TURNS: Final = re.compile(rb"[0-9](?=[A-Za-z])|[A-Za-z](?=[0-9])")


def scrambled(text: bytes) -> bool:
    """Digits and letters change places more often than in names, dates, versions and words."""
    text = text[:_SAMPLE]
    turns = len(_TURNS.findall(text))
    return mixed(text) and turns >= max(3, len(text) // 12)


def entropy(text: bytes) -> float:
    """Bits for each character, by how often each occurs."""
    text = text[:_SAMPLE]
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


_COMMON: Final = frozenset(
    b"th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve "
    b"co me de hi ri ro ic ne ea ra ce li ch ll be ma si om ur ss ec ac ke ey ok ge et ta el la pa "
    b"sw wo rd da tr un ct cr di ho no lo us ut id il ee ir ow pr so we ay em su ss po ap pi sh my "
    b"ag am ie ad fi ul ld ns rs ts oo nc ot mp ai nn rt ev wi sa ni ca oc ly pl ol "
    b"up ep bl ab".split()
)
"""Two letters that often follow each other in words."""
_LETTERS: Final = re.compile(rb"[a-z]{2,}")


_CASES: Final = re.compile(rb"[a-z](?=[A-Z])|[A-Z](?=[a-z])")


def gibberish(text: bytes) -> bool:
    """Letters, a row of them, that are no words: few of those follow each other that often do."""
    text = text[:_SAMPLE].lower()
    runs = _LETTERS.findall(text)
    pairs = [run[i : i + 2] for run in runs for i in range(len(run) - 1)]
    few = sum(pair in _COMMON for pair in pairs)
    return len(pairs) >= 12 and len(set(text)) >= 9 and few < 0.4 * len(pairs)


def jumbled(text: bytes) -> bool:
    """Short, and made up by a machine all the same: small and capital letters and digits, or
    letters that change often between small and capital, and no word among them.
    """
    text = text[:_SAMPLE]
    if len(text) < 10 or len(set(text)) < 6 or text == text.lower() or text == text.upper():
        return False
    if not mixed(text) and len(_CASES.findall(text)) < 4:
        return False
    low = text.lower()
    pairs = [low[i : i + 2] for i in range(len(low) - 1)]
    return sum(pair in _COMMON for pair in pairs) <= 0.3 * len(pairs)


def random(text: bytes) -> bool:
    """Looks like something a machine made up."""
    return len(text) >= 16 and mixed(text) and not wordy(text) and entropy(text) >= 3.0


def apart(text: bytes, start: int, end: int) -> bool:
    """No letter, digit or ``_`` is joined to it on either side."""
    return not (start and _joined(text[start - 1])) and not (end < len(text) and _joined(text[end]))


def _joined(char: int) -> bool:
    return 48 <= char <= 57 or 65 <= char <= 90 or 97 <= char <= 122 or char in (0x5F, 0x80)
