"""Plain JSON values: is this data JSON and nothing else, and how large is it?

Above: ``schema``, which looks here before it hands data to native code that recurses and
skips what a schema leaves open. Below: nothing. It refuses to know what a schema is.

JSON here is ``dict`` with ``str`` keys, ``list``, ``str``, ``int``, finite ``float``, ``bool`` and
``None``, exactly those types: a subclass may print one value and mean another. Integers are exact,
and as long as this Python writes them out (4,300 digits, unless it was told otherwise).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from math import isfinite
from typing import Any

from toolpost.wording import short

Path = tuple[str | int, ...]

MAX_LEVELS = 64
MAX_NODES = 1_000_000

_SCALARS = frozenset((bool, type(None)))
_WIDE = 2**63
"""Integers beyond it may have any length."""
_JSON_NAMES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


class NotPlain(ValueError):
    """Data that is not JSON; ``at`` is the path of the place, ``problem`` what is wrong there."""

    def __init__(self, at: Path, problem: str) -> None:
        super().__init__(f"{pointer(at)}: {problem}")
        self.at = at
        self.problem = problem


def measure(value: Any, *, levels: int = MAX_LEVELS, nodes: int = MAX_NODES) -> tuple[int, int]:
    """How many values ``value`` holds, itself included, and how many levels deep.

    Raises :class:`NotPlain` where it is not JSON or too large.
    Level by level and without recursion, so that neither depth nor a cycle can hurt; the place
    of a fault is looked up only once there is one.
    """
    level: list[Any] = [[value]]
    low, high = -_WIDE, _WIDE
    count = 0
    depth = 0
    while level:
        if depth > levels:
            raise NotPlain((), f"nested more than {levels} levels deep")
        depth += 1
        below: list[Any] = []
        for container in level:
            count += len(container)
            if type(container) is dict:
                if not _are_keys(container):
                    raise _located(value)
                container = container.values()
            for item in container:
                kind = type(item)
                if kind is str:
                    if not (item.isascii() or is_text(item)):
                        raise _located(value)
                elif kind is dict or kind is list:
                    below.append(item)
                elif not (
                    (kind is int and low < item < high)
                    or kind in _SCALARS
                    or (kind is float and isfinite(item))
                ) and _problem(item):
                    raise _located(value)
        if count > nodes:
            raise NotPlain((), f"holds more than {nodes} values")
        level = below
    return count, depth


def is_simple(value: Any) -> bool:
    """An ordinary integer, a truth value, null or an ASCII text: plain at first sight."""
    kind = type(value)
    if kind is int:
        return bool(-_WIDE < value < _WIDE)
    return kind in _SCALARS or (kind is str and value.isascii())


def json_name(value: Any) -> str:
    """The JSON type of a value, or the name of its Python type where it has none."""
    return _JSON_NAMES.get(type(value)) or type(value).__name__


def pointer(parts: Iterable[str | int]) -> str:
    """A JSON pointer for reading: each part printable and short, for keys come from outside."""
    return "".join("/" + printable(part).replace("~", "~0").replace("/", "~1") for part in parts)


def printable(part: str | int, *, limit: int = 40) -> str:
    """A name from outside for a message: no secret in it, short, on one line."""
    text = short(part, limit) if isinstance(part, str) else str(part)
    return text.replace("\N{REPLACEMENT CHARACTER}", "?")


def _are_keys(container: dict[Any, Any]) -> bool:
    try:
        keys = "".join(container)
    except TypeError:
        return False
    return keys.isascii() or all(map(is_text, container))


def is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_too_long(number: int) -> bool:
    try:
        str(number)
    except ValueError:  # it asks the one limit that there is, and at once
        return True
    return False


def _located(value: Any) -> NotPlain:
    """The first fault with its place: the slow second look, also bounded and without recursion."""
    todo: list[tuple[Path, Any]] = [((), value)]
    for path, item in todo:
        problem = _problem(item)
        if problem is not None:
            return NotPlain(path, problem)
        if type(item) is dict:
            for key, inner in item.items():
                if not isinstance(key, str):
                    return NotPlain(path, f"a key is {json_name(key)}; keys must be strings")
                if not is_text(key):
                    return NotPlain(path, "a key is not valid Unicode text")
                todo.append(((*path, key), inner))
        elif type(item) is list:
            todo.extend(((*path, index), inner) for index, inner in enumerate(item))
    return NotPlain((), "is not JSON")


def _problem(item: Any) -> str | None:
    kind = type(item)
    if kind not in _JSON_NAMES:
        return f"{printable(kind.__name__)} is not a JSON value"
    if kind is float and not isfinite(item):
        return "a number must be finite"
    if kind is int and not -_WIDE < item < _WIDE and _is_too_long(item):
        most = sys.get_int_max_str_digits()
        return f"an integer must have at most {most:,} digits; send more as a string"
    if kind is str and not is_text(item):
        return "not valid Unicode text"
    return None
