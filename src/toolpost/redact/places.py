"""What a schema says about what stands where in data that fits it: what is raw, which texts it
states itself, which names there are.

Above: ``extensions/sanitize.py``. Below: nothing. It refuses to look at data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

_DEEPEST: Final = 32


class Place(msgspec.Struct, frozen=True):
    """What a schema says about one place: is it raw, and what is inside."""

    raw: bool = False
    properties: Mapping[str, Place] = {}
    items: Place | None = None

    def at(self, key: str) -> Place:
        inner = self.properties.get(key, ANYWHERE)
        return RAW if self.raw else inner

    def item(self) -> Place:
        return RAW if self.raw else self.items or ANYWHERE


ANYWHERE: Final = Place()
RAW: Final = Place(raw=True)


def place_of(schema: Any) -> Place:
    """Follows properties, items, references inside the schema and its alternatives."""
    return _Places(schema).of(schema, 0)


class _Places:
    """Those of one schema, each once: what holds itself several times would take for ever."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[tuple[int, int], Place] = {}

    def of(self, schema: Any, depth: int) -> Place:
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return ANYWHERE
        known = self._known.get((id(schema), depth))
        if known is None:
            known = self._known[id(schema), depth] = self._read(schema, depth + 1)
        return known

    def _read(self, schema: Mapping[str, Any], inside: int) -> Place:
        if schema.get("x-raw") is True:
            return RAW
        properties = {
            name: place
            for name, inner in (schema.get("properties") or {}).items()
            if (place := self.of(inner, inside)) is not ANYWHERE
        }
        items = self.of(schema.get("items"), inside)
        others = [one for key in ("allOf", "anyOf", "oneOf") for one in schema.get(key) or ()]
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith(("#/$defs/", "#/definitions/")):
            _, group, name = reference.split("/", 2)
            others.append((self._root.get(group) or {}).get(name))
        for other in others:
            more = self.of(other, inside)
            if more.raw:
                return RAW
            properties = {**more.properties, **properties}
            items = more.items or ANYWHERE if items is ANYWHERE else items
        if not properties and items is ANYWHERE:
            return ANYWHERE
        return Place(False, properties, None if items is ANYWHERE else items)


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
