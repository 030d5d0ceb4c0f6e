"""Schemas that hold themselves, where a vendor does not take them everywhere.

Above: ``rewriting.py``, which notes every reference it writes. Below: ``dialect``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from toolpost.exporters.dialect import Dialect, Unfit
from toolpost.exporters.values import Tell


class Reference(msgspec.Struct, frozen=True):
    """A reference that was written: from where to what, and whether a value must go that way."""

    source: int
    target: int
    forced: bool
    written: dict[str, Any]


def cut(references: list[Reference], dialect: Dialect, tell: Tell) -> None:
    """Take the circles out that the dialect does not know; where none may be, ``Unfit``."""
    if dialect.cycles is True:
        return
    leading: dict[int, set[int]] = {}
    counted = [one for one in references if one.forced or dialect.cycles is False]
    for one in counted:
        leading.setdefault(one.source, set()).add(one.target)
    for one in counted:
        if one.source in _reached(one.target, leading):
            if dialect.cycles is False:
                raise Unfit((), "it holds itself")
            tell("", f"{one.written['$ref']} is any value where it holds itself")
            leading[one.source].discard(one.target)
            one.written.clear()


def _reached(start: int, leading: dict[int, set[int]]) -> set[int]:
    found: set[int] = set()
    todo = [start]
    while todo:
        number = todo.pop()
        if number not in found:
            found.add(number)
            todo += leading.get(number, ())
    return found
