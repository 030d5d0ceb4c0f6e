"""Kinds of values, and which keywords of JSON Schema speak of which.

Above: ``rewriting.py``. Below: nothing.
"""

from __future__ import annotations

from typing import Any, Final

HOLDERS: Final = frozenset(("array", "object"))
_OF_A_KIND: Final = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": (
        "items", "prefixItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems",
        "contains", "minContains", "maxContains",
    ),
    "object": (
        "properties", "required", "additionalProperties", "patternProperties",
        "unevaluatedProperties", "minProperties", "maxProperties", "propertyNames",
        "dependentRequired", "dependentSchemas",
    ),
}  # fmt: skip
_KIND_OF: Final = {word: kind for kind, words in _OF_A_KIND.items() for word in words}


def kinds_of(node: dict[str, Any]) -> tuple[str, ...]:
    """The types of a node, from its values or its shape where it does not say."""
    said = node.get("type")
    if said is not None:
        return (said,) if isinstance(said, str) else tuple(said)
    if "const" in node or "enum" in node:
        values = [node["const"]] if "const" in node else node["enum"]
        return tuple(dict.fromkeys(kind_of(one) for one in values))
    if "properties" in node:
        return ("object",)
    return ("array",) if "items" in node or "prefixItems" in node else ()


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, python in (("string", str), ("integer", int), ("number", float), ("array", list)):
        if isinstance(value, python):
            return kind
    return "object"


def is_of(value: Any, kinds: tuple[str, ...]) -> bool:
    """Whether a value has one of the types; 1 is a number, and 1.0 an integer."""
    kind = kind_of(value)
    if kind == "integer" or (kind == "number" and value.is_integer()):
        return "number" in kinds or "integer" in kinds
    return kind in kinds


def matters(keyword: str, kinds: tuple[str, ...]) -> bool:
    """Whether a keyword says anything about values of these types."""
    kind = _KIND_OF.get(keyword)
    if kind is None or not kinds:
        return True
    return kind in kinds or (kind == "number" and "integer" in kinds)
