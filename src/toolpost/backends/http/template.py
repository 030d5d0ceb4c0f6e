"""Texts with holes: what a spec writes for a URL, a header or a body, read once when it is loaded.

    {city}            the argument; alone in its text it keeps its type
    Hello {name}!     an argument inside a text, which must be a text, a number, true or false
    {{ and }}         braces that are meant

Above: ``binding.py``. Below: nothing but the spec's schema. It refuses to know where a value goes,
and how it is written there: ``filling.py`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

import msgspec

from toolpost.errors import InvalidSpec
from toolpost.wording import nearest, short

Place = tuple[str | int, ...]
_BRACES: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_MOST_LEVELS: Final = 32


class Hole(msgspec.Struct, frozen=True):
    """Where the value of a parameter goes."""

    name: str


class Text(msgspec.Struct, frozen=True):
    """A text, and the holes in it."""

    pieces: tuple[str | Hole, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(piece.name for piece in self.pieces if isinstance(piece, Hole))

    @property
    def alone(self) -> str | None:
        """The parameter that is all of it: its value goes there as it is."""
        only = self.pieces[0] if len(self.pieces) == 1 else None
        return only.name if isinstance(only, Hole) else None


Tree = Any
"""JSON data in which every text is a ``Text``."""


class Parameters:
    """The parameters that a schema knows; an open schema knows them all."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._properties: Mapping[str, Any] = schema.get("properties") or {}

    def text(self, written: str, at: Place) -> Text:
        """A text with holes, or ``InvalidSpec`` that knows its place."""
        text = Text(tuple(pieces_of(written, at)))
        for name in text.names:
            self.known(name, at)
        return text

    def known(self, name: str, at: Place) -> None:
        if name not in self._properties:
            there = ", ".join(map(short, self._properties)) or "none"
            hint = nearest(name, self._properties) or f" (there is {short(there, 200)})"
            refuse(f"{{{short(name)}}} is no parameter of the input_schema{hint}", at)

    def tree(self, written: Any, at: Place) -> Tree:
        """JSON data with holes in its texts; its keys are what they are."""
        if len(at) > _MOST_LEVELS:
            refuse(f"a body is at most {_MOST_LEVELS} levels deep", at)
        if isinstance(written, str):
            return self.text(written, at)
        if isinstance(written, Mapping):
            return {key: self.tree(one, (*at, key)) for key, one in written.items()}
        if isinstance(written, list | tuple):
            return [self.tree(one, (*at, number)) for number, one in enumerate(written)]
        return written


def names_in(tree: Tree) -> Iterator[str]:
    """The parameters that a tree has holes for."""
    if isinstance(tree, Text):
        yield from tree.names
    elif isinstance(tree, dict | list):
        for one in tree.values() if isinstance(tree, dict) else tree:
            yield from names_in(one)


def pieces_of(text: str, at: Place) -> Iterator[str | Hole]:
    """A text as it is read: without empty pieces, and with no two texts side by side."""
    said, position = "", 0
    for brace in _BRACES.finditer(text):
        said += text[position : brace.start()]
        position = brace.end()
        if brace[0] in ("{{", "}}"):
            said += brace[0][0]
            continue
        if not brace[1] or brace[1].isspace():
            refuse(
                f"{short(brace[0])!r} names no parameter; write {{{{ and }}}} for braces that are "
                "meant",
                at,
            )
        if said:
            yield said
        said = ""
        yield Hole(brace[1])
    if said + text[position:] or not text:
        yield said + text[position:]


def refuse(message: str, at: Place) -> NoReturn:
    raise InvalidSpec(message, at=at)
