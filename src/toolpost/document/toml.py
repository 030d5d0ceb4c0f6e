"""TOML: dates become their ISO text, and hostile nesting is found before the parser sees it."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable
from datetime import date, time
from typing import Any

from toolpost.document.places import (
    MAX_DEPTH,
    MAX_DIGITS,
    NOT_FINITE,
    TOO_DEEP,
    TOO_LONG,
    TOO_WIDE,
    Document,
    Place,
    Progress,
    Text,
    hint,
)
from toolpost.errors import SourceError

_TOKEN = re.compile(
    r"""(?P<text>"{3}(?:[^"\\]++|\\.?|"{1,2}(?!"))*+"{0,5}|'{3}(?:[^']++|'{1,2}(?!'))*+'{0,5}
        |"(?:[^"\\\n]++|\\[^\n]?)*+"?|'[^'\n]*+'?)
      |(?P<skip>\#[^\n]*+|[ \t\r]++)
      |(?P<mark>[\[\]{}=,.\n])
      |(?P<bare>[^\s\[\]{}=,.\#"']++|\s)""",
    re.VERBOSE | re.DOTALL,
)
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_HINTS = {
    "Invalid value": "put strings in quotes",
    "after a key": "write key = value",
    "Invalid statement": "write key = value or [table]; other characters in a key need quotes",
    "key part": "put the key in quotes",
    "Cannot": "each key and each table is written once; keep one",
    "Duplicate": "each key is written once; keep one",
    "Unclosed": "close the bracket",
    "Unterminated": "close the quotes",
    "Illegal character": r"write a line break as \n, or use three quotes",
    "'\\'": r"write a backslash as \\, or use single quotes",
    "newline": "write one statement on a line",
    "": "check the quotes and the brackets",
}


def read_toml(source: Text, progress: Progress | None) -> Document:
    _check_toml(source)
    try:
        data = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as exc:
        raise _fault(source, str(exc)) from None
    document = Document(data, source.name, source, _places)
    _make_plain(document)
    return document


def _check_toml(source: Text) -> None:
    """Before tomllib, which recurses over brackets and is cubic in the parts of a dotted key."""
    depth = parts = 0
    for token in _TOKEN.finditer(source.text):
        word = token[0]
        if token.lastgroup == "bare":
            if len(word) > MAX_DIGITS and word[0] in "+-0123456789":
                raise source.fault(token.start(), TOO_LONG)
        elif token.lastgroup == "mark":
            depth += (word in "[{") - (word in "]}")
            parts = parts + 1 if word == "." else 0
            if depth > MAX_DEPTH or parts >= MAX_DEPTH:
                raise source.fault(token.start(), TOO_DEEP)


def _fault(source: Text, message: str) -> SourceError:
    place = _PLACE.search(message)
    problem = message[: place.start()] if place else message
    text = f"not valid TOML: {problem}; {hint(problem, _HINTS)}"
    if place and place[1]:
        return SourceError(f"{source.name}:{place[1]}:{place[2]}: {text}")
    return source.fault(len(source.text), text)


def _make_plain(document: Document) -> None:
    """Dates and times become their ISO text; what JSON cannot carry is refused."""
    todo: list[tuple[tuple[str | int, ...], Any]] = [((), document.data)]
    while todo:
        pointer, container = todo.pop()
        if len(pointer) >= MAX_DEPTH:
            raise SourceError(f"{document.where(pointer, key=True)}: {TOO_DEEP}")
        for step, value in container.items() if type(container) is dict else enumerate(container):
            if isinstance(value, (dict, list)):
                todo.append(((*pointer, step), value))
            elif isinstance(value, (date, time)):
                container[step] = value.isoformat()
            elif isinstance(value, int) and value >= TOO_WIDE:
                raise SourceError(f"{document.where((*pointer, step))}: {TOO_LONG}")
            elif isinstance(value, float) and not math.isfinite(value):
                raise SourceError(f"{document.where((*pointer, step))}: {NOT_FINITE}")


def _places(source: Text) -> Place:
    """Places in a text that is TOML."""
    walk = _TomlWalk()
    for token in _TOKEN.finditer(source.text):
        if token.lastgroup != "skip":
            walk.step(token.start(), token[0])
    return walk.root


class _TomlWalk:
    """Follows the tokens of a right TOML text: which table, key or item the next one belongs to."""

    def __init__(self) -> None:
        self.root = self.table = Place(0, 0)
        self.opened: list[tuple[Place, bool]] = []  # inline tables, and arrays (True)
        self.parts: list[tuple[str, int]] = []  # of the dotted key that is being read
        self.double = False  # [[header]]
        self.step: Callable[[int, str], None] = self._in_key

    def _in_key(self, at: int, word: str) -> None:
        if word == "=":
            self.step = self._in_value
        elif word == "[":
            self.step, self.double = self._in_header, False
        elif word == "}":
            self._close()
        elif word not in ".,\n":
            self.parts.append((_key(word), at))

    def _in_header(self, at: int, word: str) -> None:
        if word == "[":
            self.double = True
        elif word == "]":
            self._enter()
            self.step = self._after_value
        elif word != ".":
            self.parts.append((_key(word), at))

    def _in_value(self, at: int, word: str) -> None:
        if self.opened and self.opened[-1][1]:
            if word == "]":
                self._close()
            if word in "]\n":
                return
            items = self.opened[-1][0].children
            place = items[len(items)] = Place(at, at)
        else:
            parent, name, key_at = self._parent(self.opened[-1][0] if self.opened else self.table)
            place = parent.children[name] = Place(at, key_at)
        if word in "[{":
            self.opened.append((place, word == "["))
            self.step = self._in_value if word == "[" else self._in_key
        else:
            self.step = self._after_value

    def _after_value(self, at: int, word: str) -> None:
        if not self.opened:
            if word == "\n":
                self.step = self._in_key
        elif word == ",":
            self.step = self._in_value if self.opened[-1][1] else self._in_key
        elif word in "]}":
            self._close()

    def _close(self) -> None:
        self.opened.pop()
        self.step = self._after_value

    def _enter(self) -> None:
        """The table that a header names, or one more of the tables it names."""
        parent, name, at = self._parent(self.root)
        place = parent.children.setdefault(name, Place(at, at))
        if self.double:
            self.table = place.children[len(place.children)] = Place(at, at)
        else:
            self.table, place.at, place.key = place, at, at

    def _parent(self, place: Place) -> tuple[Place, str, int]:
        """Where the last part of the key belongs, that part, and its offset."""
        *path, (name, at) = self.parts
        self.parts = []
        for part, part_at in path:
            place = place.children.setdefault(part, Place(part_at, part_at))
            last = next(reversed(place.children), "")
            if isinstance(last, int):  # an array of tables: its latest one
                place = place.children[last]
        return place, name, at


def _key(word: str) -> str:
    if "\\" in word and word[0] == '"':
        return next(iter(tomllib.loads(f"{word} = 0")))
    return word[1:-1] if word[0] in "\"'" else word
