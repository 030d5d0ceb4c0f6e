"""What a tool gave back, checked before anybody sees it: plain JSON data, its schema, its size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from toolpost.errors import InvalidOutput, OutputTooLarge
from toolpost.plain import MAX_LEVELS
from toolpost.result import PARTS, Metadata, Output, Part
from toolpost.schema import Schema
from toolpost.spec import ToolSpec

Finish = Callable[[Any, Metadata], tuple[Any, tuple[Part, ...]]]
_SMALL = frozenset((float, bool, type(None)))
WIDE = 2**63
"""Integers beyond it may have any length."""
LARGE = 16 * 1024
"""Bytes from which on somebody may want to know of an output's size."""
_encode = msgspec.json.Encoder().encode


def finisher(spec: ToolSpec) -> Finish:
    """A function that turns what the backend returned into output and parts, or refuses it; what
    is large is noted.
    """
    check = Schema(True if spec.output_schema is None else spec.output_schema).check
    most = spec.limits.output

    def finish(value: Any, about: Metadata) -> tuple[Any, tuple[Part, ...]]:
        parts: tuple[Part, ...] = ()
        if type(value) is Output:
            value, parts = value.value, tuple(value.parts)
            about.size = _weigh_parts(parts, most)
        if not _is_small(value) and (size := _weigh(value, most)) > LARGE:
            about.size += size
        # a tool that gives only parts has no data to hold against the schema
        if value is not None or not parts:
            try:
                value = check(value)
            except InvalidOutput:  # only what is refused is looked through for tuples
                value = check(_listed(value, MAX_LEVELS))
        return list(value) if type(value) is tuple else value, parts

    return finish


def scalar_of(schema: dict[str, Any] | bool | None) -> type | None:
    """The one type whose values all fit, for a schema that says no more than that."""
    if isinstance(schema, dict) and schema.keys() == {"type"} and isinstance(schema["type"], str):
        return {"integer": int, "boolean": bool, "null": type(None)}.get(schema["type"])
    return None


def _listed(value: Any, levels: int) -> Any:
    """The same, with lists for tuples, of which JSON knows nothing."""
    if levels and type(value) in (list, tuple):
        return [_listed(item, levels - 1) for item in value]
    if levels and type(value) is dict:
        return {key: _listed(item, levels - 1) for key, item in value.items()}
    return value


def _is_small(value: Any) -> bool:
    kind = type(value)
    return -WIDE < value < WIDE if kind is int else kind in _SMALL


def _weigh(value: Any, most: int) -> int:
    if type(value) is str and value.isascii() and len(value) * 6 <= most:
        return len(value)  # at worst every character is written as \\u0000
    if (size := _size(value)) > most:
        raise _too_large(size, most)
    return size


def _weigh_parts(parts: tuple[Part, ...], most: int) -> int:
    if not all(isinstance(part, PARTS) for part in parts):
        raise InvalidOutput("The tool returned a part of an unknown kind. Use another tool.")
    if (size := _size(parts)) > most:
        raise _too_large(size, most)
    return size if size > LARGE else 0


def _size(value: Any) -> int:
    try:
        return len(_encode(value))
    except (RecursionError, TypeError, ValueError, OverflowError) as exc:
        raise InvalidOutput(
            "The tool returned something that is not JSON data. Use another tool."
        ) from exc


def _too_large(size: int, most: int) -> OutputTooLarge:
    return OutputTooLarge(
        f"The output has {size:,} bytes, the limit is {most:,}. Ask for less at a time.",
        details={"size": size, "limit": most},
    )
