"""The one rule set for secrets and personal data, and for characters that do something.

Above: ``sanitize`` on the road; logs, errors, spans, metrics and audit on their way out. Below:
``scan.py`` finds, the tables ``secret.py`` and ``personal.py`` say what. Nothing here knows what a
call is.

    redact(value)        nested JSON data with every finding replaced by ``[redacted:kind]``
    redact_text(text)    the same for one text
    find(text)           what is where
    remember(value)      a secret this process was given, found by its value from now on
    visible(text)        for people: nothing in it that a terminal obeys or that cannot be seen
    stripped(text)       for models: the same taken out
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolpost.characters import stripped, visible, visible_json
from toolpost.known import remember, values
from toolpost.redact.naming import names_a_secret
from toolpost.redact.scan import Finding, Pattern, Rules, linear, replaced

__all__ = [
    "Finding",
    "Pattern",
    "Rules",
    "add",
    "clean_json",
    "find",
    "knows",
    "linear",
    "names_a_secret",
    "redact",
    "redact_text",
    "remember",
    "replaced",
    "same_as",
    "stripped",
    "visible",
    "visible_json",
    "without_secrets",
]

_MAX_DEPTH: Final = 64
_MAX_NODES: Final = 100_000
_TOO_MUCH: Final = "[redacted:too_much]"
_BY_NAME: Final = "[redacted:secret]"

_rules = Rules()


def add(patterns: Iterable[Pattern]) -> None:
    """Patterns that everything which leaves this process is held against from now on."""
    global _rules
    _harmless.clear()
    known = {p.name: p for p in _rules.patterns}
    _rules = Rules((known | {p.name: p for p in patterns}).values())


def same_as(rules: Rules) -> bool:
    """Whether these rules find in a text what is found here."""
    return set(_rules.patterns) <= set(rules.patterns)


def knows() -> object:
    """Equal to what it was, as long as nothing more can be found."""
    return _rules, len(values)


def find(text: str) -> list[Finding]:
    """What is in a text, in order; findings do not overlap."""
    return _rules.find(text)


def redact_text(text: str) -> str:
    """The text with every finding replaced by ``[redacted:kind]``."""
    return _rules.redact_text(text)


def without_secrets(text: str) -> str:
    """The text with every secret replaced, and personal data left."""
    found = [one for one in _rules.find(text) if _rules.kinds[one.kind]]
    return replaced(text, found) if found else text


def clean_json(whole: str) -> bool:
    """A quick look at the JSON of one value or of many: True where ``redact`` would find nothing in
    any of them; says nothing if False.
    """
    return _rules.clean_json(whole, names=True)


def redact(value: Any) -> Any:
    """JSON data, however nested, for whoever writes it down: texts and keys are searched, and what
    stands under a name like ``password`` is taken out whatever it looks like. Where there is
    nothing to take out, the very value comes back; it is never changed in place.
    """
    if _evidently_clean(value) or _rules.clean_data(value, names=True):
        return value
    return _Copy().of(value)


_harmless: Final[set[str]] = set()
"""Keys that were looked at before: a tool's parameters are the same in every call."""
_MOST_KEYS: Final = 10_000
_CARDS: Final = 10**13


def _evidently_clean(value: Any) -> bool:
    """Most arguments: a few numbers, a short text or two."""
    if type(value) is not dict:
        return False
    clean = _rules.clean
    for key, item in value.items():
        kind = type(item)
        if kind is str:
            if not clean(item) or "~1" in item:
                return False
        elif kind is int:
            if item >= _CARDS:
                return False
        elif kind is not bool and kind is not float and item is not None:
            return False
        if key not in _harmless and not _seen_harmless(key):
            return False
    return True


def _seen_harmless(key: Any) -> bool:
    if type(key) is not str or names_a_secret(key) or not _rules.clean_data(key):
        return False
    if len(_harmless) < _MOST_KEYS:
        _harmless.add(key)
    return True


class _Copy:
    """One walk through data, however odd: bounded in depth and in size."""

    def __init__(self) -> None:
        self._left = _MAX_NODES

    def of(self, value: Any, depth: int = 0, *, blot: bool = False) -> Any:
        """With ``blot`` every value goes: it stands under a name that says secret."""
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, str):
            return (_BY_NAME if value else value) if blot else _rules.redact_text(value)
        if isinstance(value, int):
            return _BY_NAME if blot else _scalar(value)
        self._left -= 1
        if depth >= _MAX_DEPTH or self._left < 0:
            return _TOO_MUCH
        if isinstance(value, Mapping):
            return self._mapping(value, depth + 1, blot)
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.of(item, depth + 1, blot=blot) for item in value]
        return _BY_NAME if blot else _scalar(value)

    def _mapping(self, value: Mapping[Any, Any], depth: int, blot: bool) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, item in value.items():
            text = key if isinstance(key, str) else str(key)
            name = _rules.redact_text(text)
            if name in made:
                name = f"{name} {len(made)}"
            made[name] = self.of(item, depth, blot=blot or names_a_secret(text))
        return made


def _scalar(value: Any) -> Any:
    if isinstance(value, int):  # a card's number is one without its quotes as well
        card = _CARDS <= value < 10**19 and bool(_rules.find(str(value)))
        return _rules.redact_text(str(value)) if card else value
    return f"[{len(value)} bytes]" if isinstance(value, bytes) else _rules.redact_text(str(value))
