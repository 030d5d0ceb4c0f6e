"""A tool's parameters as its input schema describes them: which there are, and of which type.

Above: the command line (what a word means, the table, the names) and ``kit/pages.py``. Below:
nothing but JSON. It does not validate: ``schema.py`` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolpost.plain import json_name

_DEEPEST: Final = 8
_CHOICES: Final = ("anyOf", "oneOf", "allOf")
_BOUNDS: Final = (
    ("minimum", "≥ {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "≤ {}"),
    ("exclusiveMaximum", "< {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("pattern", "like {}"),
    ("format", "{}"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter: ``schema`` is its own, with a reference at its top followed."""

    name: str
    schema: Mapping[str, Any]
    required: bool
    root: Mapping[str, Any]

    @property
    def types(self) -> frozenset[str]:
        """The JSON types it may have; empty if the schema does not say."""
        return types(self.schema, self.root)

    @property
    def description(self) -> str:
        return str(self.schema.get("description") or self.schema.get("title") or "")

    @property
    def raw(self) -> bool:
        """Whether personal data goes through, in it or in something inside it."""
        return _marked(self.schema, self.root, ("x-raw", "x-secret"))

    @property
    def secret(self) -> bool:
        """Whether secrets go through, in it or in something inside it."""
        return _marked(self.schema, self.root, ("x-secret",))

    @property
    def shape(self) -> str:
        """Its type and bounds, for reading."""
        return " ".join((shape(self.schema, self.root), *_bounds(self.schema)))


def parameters(schema: Mapping[str, Any]) -> dict[str, Parameter]:
    """Every parameter by name, in the order of the schema."""
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {
        name: Parameter(
            name=name, schema=followed(inner, schema), required=name in needed, root=schema
        )
        for name, inner in properties.items()
    }


def followed(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with the local reference at its top replaced by what it points to."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        beside = {k: v for k, v in schema.items() if k != "$ref"}
        found: Any = root
        for step in reference[2:].split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
        schema = {**found, **beside} if isinstance(found, Mapping) else beside
    return {}


def raw_names(schema: Mapping[str, Any]) -> list[str]:
    """The parameters that a schema marks as raw."""
    return [name for name, one in parameters(schema).items() if one.raw]


def secret_names(schema: Mapping[str, Any]) -> list[str]:
    """The parameters that a schema marks as taking secrets."""
    return [name for name, one in parameters(schema).items() if one.secret]


def _marked(schema: Any, root: Mapping[str, Any], marks: Sequence[str], depth: int = 0) -> bool:
    schema = followed(schema, root)
    if any(schema.get(mark) is True for mark in marks):
        return True
    properties = schema.get("properties")
    inside = [schema.get("items"), *(s for word in _CHOICES for s in _listed(schema.get(word)))]
    if isinstance(properties, Mapping):
        inside.extend(properties.values())
    return depth < _DEEPEST and any(_marked(one, root, marks, depth + 1) for one in inside)


def types(schema: Any, root: Mapping[str, Any], *, depth: int = 0) -> frozenset[str]:
    """The JSON types that a schema names."""
    schema = followed(schema, root)
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset((named,))
    if isinstance(named, list):
        return frozenset(map(str, named))
    if "const" in schema:
        return frozenset((json_name(schema["const"]),))
    if isinstance(schema.get("enum"), list):
        return frozenset(map(json_name, schema["enum"]))
    inner = [s for word in _CHOICES for s in _listed(schema.get(word))]
    if depth >= _DEEPEST:
        return frozenset()
    return frozenset().union(*(types(s, root, depth=depth + 1) for s in inner))


def shape(schema: Any, root: Mapping[str, Any], *, depth: int = 0) -> str:
    """``array of string``, ``"a" | "b"``, ``integer or null``."""
    schema = followed(schema, root)
    if "const" in schema:
        return _shown(schema["const"])
    if isinstance(schema.get("enum"), list):
        return " | ".join(map(_shown, schema["enum"]))
    if depth >= _DEEPEST:
        return "…"
    if "array" in types(schema, root) and schema.get("items"):
        return f"array of {shape(schema['items'], root, depth=depth + 1)}"
    if isinstance(schema.get("properties"), Mapping):
        return f"object with {', '.join(map(str, schema['properties']))}"
    choices = [s for word in _CHOICES for s in _listed(schema.get(word))]
    inner = dict.fromkeys(shape(s, root, depth=depth + 1) for s in choices)
    return " or ".join(inner) or " or ".join(_said(schema)) or "any"


def _said(schema: Mapping[str, Any]) -> list[str]:
    named = schema.get("type", ())
    return [named] if isinstance(named, str) else list(map(str, named))


def _bounds(schema: Mapping[str, Any]) -> list[str]:
    return [text.format(_bare(schema[word])) for word, text in _BOUNDS if word in schema]


def _bare(value: Any) -> str:
    return value if isinstance(value, str) else _shown(value)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
