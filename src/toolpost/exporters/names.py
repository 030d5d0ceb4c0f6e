"""Names of tools under a vendor's rule: legal ones stay, the others are spelled otherwise.

Above: ``export.py``. Below: nothing. A name that has to change depends on itself alone, so that
it stays what it is when tools come and go; only where two would meet do they get a digest each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

import msgspec

_DIGEST: Final = 8


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What a vendor takes for a name: one regular expression, and a length."""

    legal: str = r"[A-Za-z0-9_.-]+"
    most: int = 128
    dot: str = "__"
    """What a dot becomes where it is not legal: two marks, which few names have on their own."""

    def allows(self, name: str) -> bool:
        return len(name) <= self.most and re.fullmatch(self.legal, name) is not None


def named(names: Iterable[str], rule: Rule) -> dict[str, str]:
    """Name of the tool → name at the vendor, no two alike. The order does not matter."""
    wanted = sorted(set(names))
    given = {name: name for name in wanted if rule.allows(name)}
    taken = set(given)
    spelled = {name: _spelled(name, rule) for name in wanted if name not in given}
    often = Counter(spelled.values())
    for name, spelling in spelled.items():
        turn = 0
        while spelling in taken or (turn == 0 and often[spelling] > 1):
            spelling = marked(spelled[name], name, rule=rule, turn=turn)
            turn += 1
        given[name] = spelling
        taken.add(spelling)
    return given


def _spelled(name: str, rule: Rule) -> str:
    spelling = name
    if not re.fullmatch(rule.legal, spelling):
        spelling = f"_{name}" if re.fullmatch(rule.legal, f"_{name}") else name
    if not re.fullmatch(rule.legal, spelling):
        spelling = name.replace(".", rule.dot)
    return spelling if len(spelling) <= rule.most else marked(spelling, name, rule=rule, turn=0)


def marked(spelling: str, name: str, *, rule: Rule, turn: int) -> str:
    """With a digest of the whole name at its end."""
    salted = name if turn == 0 else f"{name} {turn}"
    mark = sha256(salted.encode()).hexdigest()[:_DIGEST]
    return f"{spelling[: rule.most - _DIGEST - 1]}_{mark}"
