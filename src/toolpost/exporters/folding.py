"""Two schemas that both hold, as one: what ``allOf`` says, without it.

Above: the dialects and ``roots``. Below: nothing. Where two cannot be one exactly, the result
takes more than both did, never less: toolpost itself still checks every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from toolpost.exporters.normal import ANNOTATIONS, Node

_HIGHER: Final = frozenset(
    ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
)
_LOWER: Final = frozenset(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"))
_EVERY: Final = ("string", "number", "integer", "boolean", "null", "array", "object")


class Never(Exception):
    """Nothing fits both."""


def merged(one: Node, other: Node, *, lost: Callable[[str], None]) -> Node:
    """A schema for what fits both; raises ``Never`` where nothing does.

    ``lost`` is told each keyword of the other that could not be kept.
    """
    if one is False or other is False:
        raise Never
    if one is True or other is True:
        return other if one is True else one
    result = dict(one)
    for key, value in other.items():
        if key not in result:
            result[key] = value
        elif result[key] != value or type(result[key]) is not type(value):
            merge = _merging(key)
            if merge is not None:
                result[key] = merge(result[key], value)
            elif key not in ANNOTATIONS:
                lost(key)
    return result


def _merging(key: str) -> Callable[[Any, Any], Any] | None:
    """How two values of a keyword become one; where there is no way, the first one stays."""
    if key in _HIGHER:
        return max
    if key in _LOWER:
        return min
    return _MERGES.get(key)


def _types(one: Any, other: Any) -> Any:
    both = [kind for kind in _EVERY if _holds(one, kind) and _holds(other, kind)]
    if "number" in both:
        both.remove("integer")
    if not both:
        raise Never
    return both[0] if len(both) == 1 else both


def _holds(kinds: Any, kind: str) -> bool:
    listed = [kinds] if isinstance(kinds, str) else kinds
    return kind in listed or (kind == "integer" and "number" in listed)


def _values(one: Any, other: Any) -> list[Any]:
    both = [value for value in one if any(same(value, twin) for twin in other)]
    if not both:
        raise Never
    return both


def same(one: Any, other: Any) -> bool:
    """Equal as JSON has it, where 1 is not true."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _properties(one: Any, other: Any) -> dict[str, Node]:
    result = dict(one)
    for name, node in other.items():
        result[name] = both(result[name], node) if name in result else node
    return result


def both(one: Node, other: Node) -> Node:
    """As a schema that is made one when it is looked at."""
    if one == other or other is True:
        return one
    return other if one is True else {"allOf": [one, other]}


def _required(one: Any, other: Any) -> list[str]:
    return list(dict.fromkeys((*one, *other)))


def _extra(one: Any, other: Any) -> Any:
    return False if one is False or other is False else both(one, other)


_MERGES: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "type": _types,
    "enum": _values,
    "properties": _properties,
    "required": _required,
    "items": both,
    "additionalProperties": _extra,
    "allOf": lambda one, other: [*one, *other],
}
