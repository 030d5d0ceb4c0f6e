"""Secrets that this process has been given: found by their value, whatever they look like.

Above: ``environ.py`` tells what it handed out, ``redact`` looks for it. One set for the process,
as the environment is one for the process. What is too simple to be told from a word is not kept:
a password ``postgres`` would blot out every mention of the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

KIND: Final = "known_secret"
_LEAST: Final = 8
_MOST: Final = 10_000

values: Final[set[str]] = set()


def remember(value: str) -> None:
    """From now on this value is a secret wherever it is seen."""
    if len(value) >= _LEAST and not value.isalpha() and not value.isdigit() and len(values) < _MOST:
        values.add(value)


def holds(text: str) -> bool:
    return len(text) >= _LEAST and any(value in text for value in values)


def spans(text: str) -> Iterator[tuple[int, int]]:
    for value in values:
        place = text.find(value)
        while place >= 0:
            yield place, place + len(value)
            place = text.find(value, place + len(value))
