"""Ordinary schemas: small trees of the everyday keywords, seen to be good without compiling them.

Most tools' schemas are of this kind, and thousands of them are registered at a start. Above:
``check.py``, which verifies everything else in full. A "no" here only means "look closer".
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (),
    "object": (),
}
_TEXTS: Final = frozenset(("title", "description", "$comment"))
_MOST: Final = 500
_DEEPEST: Final = 16


def is_ordinary(schema: dict[str, Any]) -> bool:
    """Whether nothing in a schema needs a closer look."""
    room = [_MOST]
    return _fits(schema, room, _DEEPEST)


def _fits(schema: Any, room: list[int], depth: int) -> bool:
    room[0] -= 1
    if type(schema) is not dict or room[0] < 0 or depth == 0:
        return False
    for key, value in schema.items():
        if key == "type":
            good = type(value) is str and value in _TYPES
        elif key in _TEXTS:
            good = type(value) is str
        elif key == "properties":
            good = type(value) is dict and _properties_fit(value, room, depth)
        elif key == "items":
            good = _fits(value, room, depth - 1)
        else:
            good = _keyword_fits(key, value, schema)
        if not good:
            return False
    return True


def _properties_fit(properties: dict[Any, Any], room: list[int], depth: int) -> bool:
    for name, inner in properties.items():
        if type(name) is not str or not _fits(inner, room, depth - 1):
            return False
    return True


def _keyword_fits(key: Any, value: Any, schema: dict[str, Any]) -> bool:
    if key == "required":
        return _are_names(value)
    if key == "additionalProperties":
        return type(value) is bool
    if key == "default":
        return "enum" not in schema and _is_default(value, schema.get("type"))
    if key == "enum":
        return bool(value) and _are_names(value) and schema.get("type", "string") == "string"
    return False


def _are_names(value: Any) -> bool:
    return (
        type(value) is list
        and len(value) <= _MOST
        and all(type(name) is str for name in value)
        and len(set(value)) == len(value)
    )


def _is_default(value: Any, kind: Any) -> bool:
    return type(value) in _TYPES.get(kind, ()) and (type(value) is not float or isfinite(value))
