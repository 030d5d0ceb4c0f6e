"""Is a schema *closed*: does a value that fits it hold nothing but what the schema names?

Above: ``check.py``, which may then hand a value straight to the native check. Below:
``tree``. Native code looks only where a schema tells it to: under ``{}`` anything at
all would pass, NaN and Python objects included. Where this says False, the value is walked first.
"""

from __future__ import annotations

from typing import Any, Final

from toolpost.schema.tree import Schema, Tree

_SCALARS: Final = frozenset(("string", "integer", "number", "boolean", "null"))
_MAX_CHAIN: Final = 100


def is_closed(tree: Tree, schema: Schema | bool) -> bool:
    """True only if certain; recursion, and keys that the schema does not name, are open."""
    return _closed(tree, schema, frozenset())


def open_properties(tree: Tree) -> tuple[str, ...] | None:
    """The properties of a closed object that are open themselves; None if the object is open."""
    root = tree.root
    if not isinstance(root, dict) or root.get("type") != "object":
        return None
    properties = root.get("properties", {})
    if root.get("additionalProperties") is not False or root.get("patternProperties"):
        return None
    if tree.draft <= 7 and "$ref" in root:
        return None  # in these drafts what stands beside $ref is ignored
    return tuple(name for name, child in properties.items() if not is_closed(tree, child))


def _closed(tree: Tree, schema: Any, above: frozenset[int]) -> bool:
    if not isinstance(schema, dict):
        return schema is False
    if id(schema) in above or len(above) > _MAX_CHAIN:
        return False
    above = above | {id(schema)}
    # every part of a schema must hold, so one closed part closes the whole
    for candidates in tree.candidates(schema):
        if all(_closed(tree, target, above) for target in candidates):
            return True
    if tree.draft <= 7 and "$ref" in schema:
        return False
    if "const" in schema or "enum" in schema:
        return True
    if any(_closed(tree, part, above) for part in _listed(schema, "allOf")):
        return True
    for keyword in ("anyOf", "oneOf"):
        branches = _listed(schema, keyword)
        if branches and all(_closed(tree, branch, above) for branch in branches):
            return True
    return _closed_by_type(tree, schema, above)


def _closed_by_type(tree: Tree, schema: Schema, above: frozenset[int]) -> bool:
    types = schema.get("type")
    for name in types if isinstance(types, list) else [types]:
        if name == "object":
            if not _closed_object(tree, schema, above):
                return False
        elif name == "array":
            if not _closed_array(tree, schema, above):
                return False
        elif name not in _SCALARS:
            return False
    return True


def _closed_object(tree: Tree, schema: Schema, above: frozenset[int]) -> bool:
    if schema.get("additionalProperties") is not False or schema.get("patternProperties"):
        return False
    children = schema.get("properties", {})
    return all(_closed(tree, child, above) for child in children.values())


def _closed_array(tree: Tree, schema: Schema, above: frozenset[int]) -> bool:
    items = schema.get("items")
    if isinstance(items, list):
        first, rest = items, schema.get("additionalItems")
    else:
        first, rest = _listed(schema, "prefixItems"), items
    return _closed(tree, rest, above) and all(_closed(tree, item, above) for item in first)


def _listed(schema: Schema, keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []
