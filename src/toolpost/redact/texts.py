"""The texts in data that fits a schema, read out without looking at anything else.

Above: ``extensions/sanitize.py``, which then looks at all of them at once. Below: ``naming.py``.
A reader is made once for a schema and knows where it lets in texts of somebody's choice; where that
cannot be said there is none. What may stand in a text is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from toolpost.redact.naming import names_a_secret

Read = Callable[[Any, list[str]], None]
"""Adds the texts of a value to a list. What the schema takes for a text is not always a ``str``."""

_TEXTLESS: Final = frozenset(("integer", "number", "boolean", "null"))
_NULL: Final = {"type": "null"}


def textless(schema: Any) -> bool:
    """True only if certain that no value that fits holds a text of somebody's choice."""
    if not isinstance(schema, Mapping):
        return schema is False
    if "$ref" in schema:  # what stands beside it may count for nothing
        return False
    if "const" in schema or "enum" in schema:
        return True
    types = schema.get("type")
    for name in types if isinstance(types, list) else [types]:
        if name == "object":
            if not _closed(schema) or not all(map(textless, _properties(schema).values())):
                return False
        elif name == "array":
            if "prefixItems" in schema or not textless(schema.get("items")):
                return False
        elif name not in _TEXTLESS:
            return False
    return True


def reader(schema: Any, name: str = "") -> Read | None:
    """Reads what fits the schema; ``None`` if there is no telling where its texts stand.

    A text that has a ``name`` which says secret is read together with that.
    """
    if textless(schema):
        return _nothing
    if not isinstance(schema, Mapping) or "$ref" in schema:
        return None
    if "type" not in schema and "anyOf" in schema:
        return _optional(schema["anyOf"], name)
    match schema.get("type"):
        case "string":
            return _named(name) if names_a_secret(name) else _one
        case "array" if "prefixItems" not in schema:
            return _array(schema.get("items"))
        case "object" if _closed(schema):
            return _object(schema)
    return None


def _closed(schema: Mapping[str, Any]) -> bool:
    return schema.get("additionalProperties") is False and not schema.get("patternProperties")


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return schema.get("properties") or {}


def _nothing(value: Any, texts: list[str]) -> None:
    """There is no text in it."""


def _one(value: Any, texts: list[str]) -> None:
    texts.append(value)


def _named(name: str) -> Read:
    def read(value: Any, texts: list[str]) -> None:
        texts.append(f'{name}="{value}"')

    return read


def _optional(choices: list[Any], name: str) -> Read | None:
    """Something or null; of other choices nobody knows which it was."""
    others = [choice for choice in choices if choice != _NULL]
    inner = reader(others[0], name) if len(others) == 1 else None
    if inner is None:
        return None

    def read(value: Any, texts: list[str]) -> None:
        if value is not None:
            inner(value, texts)

    return read


def _array(items: Any) -> Read | None:
    inner = reader(items)
    if inner is None:
        return None
    if inner is _one:
        return lambda value, texts: texts.extend(value)
    if (columns := _columns(items)) is not None:
        return _table(columns)

    def read(value: Any, texts: list[str]) -> None:
        for item in value:
            inner(item, texts)

    return read


def _columns(schema: Mapping[str, Any]) -> list[str] | None:
    """The properties that are texts, if every item has all of them and nothing else to read."""
    reads = _reads(schema) if schema.get("type") == "object" else None
    required = schema.get("required") or ()
    if reads and all(read is _one and name in required for name, read in reads.items()):
        return list(reads)
    return None


def _table(columns: Iterable[str], within: str | None = None) -> Read:
    """``within``: the rows stand under that name."""

    def read(value: Any, texts: list[str]) -> None:
        rows = value if within is None else value[within]
        texts += [row[name] for name in columns for row in rows]

    return read


def _object(schema: Mapping[str, Any]) -> Read | None:
    reads = _reads(schema)
    if reads is None:
        return None
    parts = tuple(reads.items())
    if len(parts) == 1 and parts[0][0] in (schema.get("required") or ()):
        ((only, inner),) = parts
        within = _properties(schema)[only]
        columns = _columns(within["items"]) if within.get("type") == "array" else None
        if columns is not None:
            return _table(columns, only)
        return lambda value, texts: inner(value[only], texts)

    def read(value: Any, texts: list[str]) -> None:
        for name, inner in parts:
            if name in value:
                inner(value[name], texts)

    return read


def _reads(schema: Mapping[str, Any]) -> dict[str, Read] | None:
    """How the properties are read that there is something to read in."""
    reads = {name: reader(inner, name) for name, inner in _properties(schema).items()}
    known = {name: read for name, read in reads.items() if read is not None}
    if len(known) < len(reads):
        return None
    return {name: read for name, read in known.items() if read is not _nothing}
