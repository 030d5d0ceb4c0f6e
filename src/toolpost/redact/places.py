"""What a schema says about what stands where in data that fits it: where personal data or secrets
may stand, which texts it states itself, which names there are.

Above: ``extensions/sanitize.py``. Below: nothing. It refuses to look at data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

_DEEPEST: Final = 32


MARKS: Final = ("x-raw", "x-secret")
"""Words of ours in a schema: personal data, or everything, may stand there."""


class Place(msgspec.Struct, frozen=True):
    """What a schema says about one place: what may stand there, and what is inside."""

    raw: bool = False
    """Personal data passes."""
    secret: bool = False
    """Everything passes."""
    properties: Mapping[str, Place] = {}
    items: Place | None = None

    def at(self, key: str) -> Place:
        return self.properties.get(key) or self._inside

    def item(self) -> Place:
        return self.items or self._inside

    @property
    def _inside(self) -> Place:
        return SECRET if self.secret else RAW if self.raw else ANYWHERE


ANYWHERE: Final = Place()
RAW: Final = Place(raw=True)
SECRET: Final = Place(raw=True, secret=True)


def place_of(schema: Any) -> Place:
    """Follows properties, items, references inside the schema and its alternatives."""
    return _Places(schema).of(schema, 0, raw=False)


class _Places:
    """Those of one schema, each once: what holds itself several times would take for ever."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[tuple[int, int, bool], Place] = {}

    def of(self, schema: Any, depth: int, *, raw: bool) -> Place:
        nothing = RAW if raw else ANYWHERE
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return nothing
        raw = raw or schema.get("x-raw") is True
        key = id(schema), depth, raw
        if key not in self._known:
            self._known[key] = self._read(schema, depth + 1, raw)
        return self._known[key]

    def _read(self, schema: Mapping[str, Any], inside: int, raw: bool) -> Place:
        if schema.get("x-secret") is True:
            return SECRET
        others = [self.of(one, inside, raw=raw) for one in self._others(schema)]
        if any(other.secret for other in others):
            return SECRET
        if not raw and any(other.raw for other in others):
            return self._read(schema, inside, raw=True)
        nothing = RAW if raw else ANYWHERE
        properties = {
            name: place
            for name, inner in (schema.get("properties") or {}).items()
            if (place := self.of(inner, inside, raw=raw)) is not nothing
        }
        items = self.of(schema.get("items"), inside, raw=raw)
        for other in others:
            properties = {**other.properties, **properties}
            items = other.items or nothing if items is nothing else items
        if not properties and items is nothing:
            return nothing
        return Place(raw, False, properties, None if items is nothing else items)

    def _others(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        for key in ("allOf", "anyOf", "oneOf"):
            yield from schema.get(key) or ()
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith(("#/$defs/", "#/definitions/")):
            _, group, name = reference.split("/", 2)
            yield (self._root.get(group) or {}).get(name)


def names_in(schema: Any) -> list[str]:
    """Every name that data which a reader can read may have in it, and the rest of the schema's."""
    if isinstance(schema, list):
        return [name for inner in schema for name in names_in(inner)]
    if not isinstance(schema, Mapping):
        return []
    return [*map(str, schema), *(name for inner in schema.values() for name in names_in(inner))]


def stated_in(schema: Any) -> frozenset[str]:
    """The texts that the schema itself has for arguments: everybody may read them there."""
    return frozenset(_texts_of(schema, stated=False))


def _texts_of(schema: Any, *, stated: bool) -> Iterator[str]:
    if stated and isinstance(schema, str):
        yield schema
    elif isinstance(schema, Mapping):
        for name, inner in schema.items():
            yield from _texts_of(inner, stated=stated or name in ("enum", "const", "default"))
    elif isinstance(schema, list):
        for inner in schema:
            yield from _texts_of(inner, stated=stated)
