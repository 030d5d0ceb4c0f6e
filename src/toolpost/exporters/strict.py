"""Strict schemas: what OpenAI and Anthropic hold a model to, and whether a tool's can be had so.

Above: their forms. Below: ``dialect``. The rules are the vendors', as they document them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from toolpost.errors import InvalidSchema
from toolpost.exporters.dialect import Dialect, Unfit
from toolpost.exporters.rewriting import rewritten
from toolpost.exporters.values import Tell
from toolpost.schema.tree import subschemas

_FORMATS: Final = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
)
_TAKEN: Final = frozenset((
    "title", "description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
))  # fmt: skip
OPENAI: Final = Dialect(
    keywords=_TAKEN,
    only={"format": _FORMATS},
    closed=True,
    all_required=True,
    anything=False,
    root_ref="#",
)
ANTHROPIC: Final = Dialect(
    keywords=frozenset(("title", "description", "format", "minItems")),
    only={"format": _FORMATS | {"uri"}, "minItems": frozenset((0, 1))},
    closed=True,
    anything=False,
    cycles=False,
)
_MOST_PROPERTIES: Final = 5_000
_DEEPEST: Final = 10
_MOST_VALUES: Final = 1_000
_MOST_TEXT: Final = 120_000
_MANY_VALUES: Final = 250
_MOST_OF_MANY: Final = 15_000
"""Characters of one list of strings with more values than that."""


def strictly(schema: dict[str, Any], dialect: Dialect, tell: Tell) -> dict[str, Any] | None:
    """The schema in the dialect; where it cannot be strict, None, and the reason is told."""
    told: list[tuple[str, str]] = []
    try:
        written = rewritten(schema, dialect, lambda where, what: told.append((where, what)))
        if dialect is OPENAI:
            _verify(written)
    except (Unfit, InvalidSchema) as reason:
        tell("", f"is not strict: {reason}")
        return None
    for where, what in told:
        tell(where, what)
    return written


def _verify(schema: dict[str, Any]) -> None:
    """OpenAI's limits: how much there may be in a strict schema."""
    nodes = list(_nodes(schema))
    names = [name for node, _ in nodes for name in node.get("properties", ())]
    lists = [node.get("enum", [node["const"]] if "const" in node else []) for node, _ in nodes]
    texts = [sum(len(str(value)) for value in values) for values in lists]
    if len(names) > _MOST_PROPERTIES:
        raise Unfit((), f"it has more than {_MOST_PROPERTIES:,} properties")
    if max(depth for _, depth in nodes) > _DEEPEST:
        raise Unfit((), f"it is nested more than {_DEEPEST} levels deep")
    if sum(map(len, lists)) > _MOST_VALUES:
        raise Unfit((), f"it lists more than {_MOST_VALUES:,} values")
    if sum(map(len, [*names, *schema.get("$defs", ())])) + sum(texts) > _MOST_TEXT:
        raise Unfit((), f"its names and values have more than {_MOST_TEXT:,} characters")
    for values, text in zip(lists, texts, strict=True):
        if len(values) > _MANY_VALUES and text > _MOST_OF_MANY:
            raise Unfit((), f"a list of values has more than {_MOST_OF_MANY:,} characters")


def _nodes(schema: dict[str, Any], depth: int = 1) -> Iterator[tuple[dict[str, Any], int]]:
    """Every schema within, with how many objects and arrays it stands in."""
    yield schema, depth
    for where, inner in subschemas(schema):
        if isinstance(inner, dict):
            below = depth + (where[0] in ("properties", "items"))
            yield from _nodes(inner, 1 if where[0] == "$defs" else below)
