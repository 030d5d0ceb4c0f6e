"""A first look: whether anything that the rules describe can be in a text at all.

Above: ``scan.py``, which looks closely where this says so. Below: the tables of rules. All their
patterns together are one regular expression of the library that checks JSON Schemas: its engine is
linear, always installed, and takes a text as it is, so that a short one costs a tenth of a
microsecond. What the rules' own checks say is not known here: it may suspect what turns out to be
nothing, and never misses what they would find. It suspects every text in which something may hide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Final

from toolpost.redact.naming import NAMED
from toolpost.redact.personal import PERSONAL
from toolpost.redact.rule import Rule
from toolpost.redact.secret import SECRETS
from toolpost.redact.seen import CODES, HIDES

_SIZE: Final = 64 * 1024 * 1024
_MEMORY: Final = 32 * 1024 * 1024
"""Bytes that the engine may keep; with too few it walks every text state by state. 600,000 lines
of source code take 24 MB of them."""

_COUNT: Final = re.compile(r"\{([0-9]+)(,?)([0-9]*)\}")
_FEW: Final = 16
_FEWEST: Final = 4
_ANY_START: Final = re.compile(r"(?:\(\?i\)|\\b|\(\?:\^\||\(-u:\\b\))*\(?\[")
"""A pattern that may begin almost anywhere: what it counts is counted at every place at once."""

Innocent = Callable[[str], bool]
"""True where no rule matches and nothing hides. A lone surrogate raises ``ValueError``."""


@cache
def innocent(*, personal: bool, names: bool = False) -> Innocent:
    """With ``names``, the JSON of an object that has a name that says secret is not innocent."""
    import jsonschema_rs  # 40 ms, and what is compiled here 5 more: once a text is looked at

    rules = SECRETS + (PERSONAL if personal else ()) + ((NAMED,) if names else ())
    options = jsonschema_rs.RegexOptions(size_limit=_SIZE, dfa_size_limit=_MEMORY)
    schema = {"not": {"pattern": _together(rules)}}
    return jsonschema_rs.validator_for(schema, offline=True, pattern_options=options).is_valid


def suspicious(known: Iterable[str]) -> str:
    """The pattern of the first look, for who has a way of his own to look at texts; with values
    that are known to be secrets.
    """
    spelt = ("".join(f"\\x{{{ord(character):x}}}" for character in value) for value in known)
    return "|".join((_together(SECRETS + PERSONAL), *spelt))


_WORD: Final = r"(?-u:\b)"
_EDGE: Final = f"(?:{_WORD}|{CODES})"
"""Where a word begins; behind a code as well, as the close look sees what that stands for."""
_BEGINS: Final = f"(?:{_WORD}", f"(?i:{_WORD}"


def _together(rules: Iterable[Rule]) -> str:
    patterns = [_of_characters(rule.pattern) for rule in rules]
    words = [p.replace(_WORD, "", 1) for p in patterns if p.startswith(_BEGINS)]
    others = [p.replace(f"|{_WORD}", f"|{_EDGE}") for p in patterns if not p.startswith(_BEGINS)]
    return "|".join((f"{_EDGE}(?:{'|'.join(words)})", *others, HIDES))


def _of_characters(pattern: str) -> str:
    """A pattern over bytes, as it is said of characters: any that is not ASCII is no part of a
    word, no space, and one of those that the rules call 0x80 and above.
    """
    few = _FEWEST if _ANY_START.match(pattern) else _FEW
    pattern = pattern.replace(r"\b", _WORD).replace(r"\s", r"\t\n\f\r ")
    pattern = pattern.replace("(?:^|", f"(?:^|{CODES}|")
    pattern = pattern.replace(r"\r?\n", r"(?:\r?\n|(?:\\+r)?\\+n)")
    pattern = pattern.replace(r"\x80-\xff", r"\u0080-\U0010FFFF")
    pattern = _COUNT.sub(partial(_coarser, few), pattern)
    plain = pattern.removeprefix("(?i)")
    return f"(?:{pattern})" if plain == pattern else f"(?i:{plain})"


def _coarser(few: int, count: re.Match[str]) -> str:
    """Many of something is at least some of it: every one that is counted is a part of the whole,
    and all of them together would be most of it.
    """
    least = int(count[1])
    if least <= 1 and count[2]:
        return "?" if (count[1], count[3]) == ("0", "1") else "*+"[least]
    if not count[2] and least <= few:
        return count[0]
    return f"{{{min(least, few)},}}"
