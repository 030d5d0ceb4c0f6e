"""Defaults and lossless coercion: what a schema adds to a value, planned once per schema.

``check.py`` coerces arguments before it validates them, and fills in defaults afterwards: a
required parameter with a default is still missing if the caller leaves it out. A value that is
changed is copied along the changed path; what came in is never written to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from copy import deepcopy
from typing import Any, Final

from toolpost.plain import json_name
from toolpost.schema.tree import REFERENCES, Schema, Tree, subschemas

Fill = Callable[[Any], Any]

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,30})")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?")
_BOOLEANS: Final = {"true": True, "false": False}


def with_whole_numbers(schema: Schema, value: Any) -> Any:
    """``value`` with integers where an ordinary schema asks for one and got ``1.0``."""
    if schema.get("type") == "integer":
        return int(value) if type(value) is float and value.is_integer() else value
    if type(value) is dict:
        known = schema.get("properties", {})
        return {k: with_whole_numbers(known.get(k, {}), one) for k, one in value.items()}
    if type(value) is list and "items" in schema:
        return [with_whole_numbers(schema["items"], one) for one in value]
    return value


class _Plan:
    """What to do to a value at one place: defaults to add, a coercion, and places below."""

    __slots__ = ("below", "defaults", "items", "others", "prefix", "types", "useful")

    def __init__(self) -> None:
        self.types: frozenset[str] | None = None
        self.defaults: dict[str, Any] = {}
        self.below: dict[str, _Plan] = {}
        self.others: _Plan | None = None
        self.items: _Plan | None = None
        self.prefix: list[_Plan] = []
        self.useful = False

    def children(self) -> list[_Plan]:
        single = [plan for plan in (self.others, self.items) if plan is not None]
        return [*self.below.values(), *single, *self.prefix]


def plan_coercion(tree: Tree) -> Fill | None:
    """A function that returns the value with coerced parts; None where there is nothing to do."""
    return _planned(tree, _Planner(tree, coerce=True, unusable=None))


def plan_defaults(tree: Tree, unusable: Container[int]) -> Fill | None:
    """A function that returns the value with defaults added; None where there are none.

    ``unusable`` has the ids of the subschemas whose default does not fit.
    """
    return _planned(tree, _Planner(tree, coerce=False, unusable=unusable))


def is_safe_to_fill(tree: Tree) -> bool:
    """Whether no default that fits its own subschema can make a valid value invalid."""
    return _is_safe(tree.root)


def _is_safe(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return True
    keywords = schema.keys()
    if keywords <= _INDEPENDENT and not ("properties" in keywords and keywords & _WHOLE):
        return all(_is_safe(inner) for _, inner in subschemas(schema))
    return not _may_be_filled(schema)


def _may_be_filled(schema: Any) -> bool:
    """Whether a default might be added within a value that this subschema describes."""
    if not isinstance(schema, dict):
        return False
    if "properties" in schema or REFERENCES & schema.keys():
        return True
    return any(_may_be_filled(inner) for _, inner in subschemas(schema))


_WHOLE: Final = frozenset(("enum", "const"))
_INDEPENDENT: Final = _WHOLE | {
    "$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated",
    "readOnly", "writeOnly", "type", "properties", "required", "additionalProperties", "items",
    "prefixItems", "format", "pattern", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
}  # fmt: skip
"""Keywords that judge a place of a value without regard to what else is filled in."""


def _planned(tree: Tree, planner: _Planner) -> Fill | None:
    if not isinstance(tree.root, dict):
        return None
    top = planner.plan(tree.root)
    planner.prune()
    if not top.useful:
        return None
    if not top.children() and top.types is None:
        return _flat(top.defaults)
    return lambda value: _apply(top, value)


class _Planner:
    def __init__(self, tree: Tree, *, coerce: bool, unusable: Container[int] | None) -> None:
        self._document = tree
        self._coerce = coerce
        self._unusable = unusable
        self._plans: dict[int, _Plan] = {}

    def plan(self, schema: Schema) -> _Plan:
        found = self._plans.get(id(schema))
        if found is not None:
            return found
        made = self._plans[id(schema)] = _Plan()
        if self._coerce:
            made.types = self._types(schema, 0)
        self._add(made, schema, 0)
        return made

    def prune(self) -> None:
        """Mark the plans that lead to something to do, and cut the rest out of the way."""
        plans = list(self._plans.values())
        changed = True
        while changed:
            changed = False
            for one in plans:
                if not one.useful and (
                    one.defaults or one.types or any(child.useful for child in one.children())
                ):
                    one.useful = changed = True
        for one in plans:
            one.others = one.others if one.others is not None and one.others.useful else None
            if one.others is None:  # else a named property must keep its name from the others
                one.below = {name: child for name, child in one.below.items() if child.useful}
            one.items = one.items if one.items is not None and one.items.useful else None
            if one.items is None and not any(child.useful for child in one.prefix):
                one.prefix = []
            for name, default in one.defaults.items():
                if name in one.below:
                    one.defaults[name] = _apply(one.below[name], default)

    def _add(self, made: _Plan, schema: Schema, chain: int) -> None:
        """Take in what this subschema says, and what always holds together with it."""
        if chain > 100:
            return
        for candidates in self._document.candidates(schema):
            if len(candidates) == 1 and isinstance(candidates[0], dict):
                self._add(made, candidates[0], chain + 1)
        if self._document.draft <= 7 and "$ref" in schema:
            return
        for part in schema.get("allOf", ()):
            if isinstance(part, dict):
                self._add(made, part, chain + 1)
        # a union with one structured branch, such as "a list or null", can only mean that one
        branches = self._structured(schema)
        if len(branches) == 1:
            self._add(made, branches[0], chain + 1)
        for name, child in schema.get("properties", {}).items():
            if isinstance(child, dict):
                made.below.setdefault(name, self.plan(child))
                default = _NONE if self._unusable is None else self._default(child, self._unusable)
                if default is not _NONE:
                    made.defaults.setdefault(name, default)
        self._add_rest(made, schema)

    def _add_rest(self, made: _Plan, schema: Schema) -> None:
        others, items = schema.get("additionalProperties"), schema.get("items")
        if isinstance(others, dict) and made.others is None and "patternProperties" not in schema:
            made.others = self.plan(others)
        prefix = items if isinstance(items, list) else schema.get("prefixItems", [])
        if isinstance(prefix, list) and not made.prefix:
            made.prefix = [self.plan(one) if isinstance(one, dict) else _Plan() for one in prefix]
        rest = schema.get("additionalItems") if isinstance(items, list) else items
        if isinstance(rest, dict) and made.items is None:
            made.items = self.plan(rest)

    def _default(self, schema: Schema, unusable: Container[int]) -> Any:
        for _ in range(100):
            if "default" in schema:
                return _NONE if id(schema) in unusable else schema["default"]
            targets = self._document.targets(schema)
            if len(targets) != 1 or not isinstance(targets[0], dict):
                break
            schema = targets[0]
        return _NONE

    def _structured(self, schema: Schema) -> list[Schema]:
        branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        return [
            branch
            for branch in branches
            if isinstance(branch, dict) and (self._types(branch, 0) or _ANY) & _STRUCTURED
        ]

    def _types(self, schema: Schema, chain: int) -> frozenset[str] | None:
        """The JSON types that may stand here; None where the schema does not say."""
        if chain > 20:
            return None
        types = schema.get("type")
        if isinstance(types, str):
            return frozenset((types,))
        if isinstance(types, list):
            return frozenset(types)
        for keyword in ("anyOf", "oneOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list) and all(isinstance(one, dict) for one in branches):
                found = [self._types(one, chain + 1) for one in branches]
                return frozenset().union(*(f or _ANY for f in found))
        targets = self._document.targets(schema)
        if len(targets) == 1 and isinstance(targets[0], dict):
            return self._types(targets[0], chain + 1)
        return None


_NONE: Final = object()
_NUMERIC: Final = frozenset(("integer", "number"))
_STRUCTURED: Final = frozenset(("object", "array"))
_ANY: Final = frozenset(("object", "array", "string", "integer", "number", "boolean", "null"))


def _flat(defaults: dict[str, Any]) -> Fill:
    """The common case, an object whose properties have plain defaults, without a walk."""
    pairs = tuple(defaults.items())

    def fill(value: Any) -> Any:
        if type(value) is not dict:
            return value
        filled = value
        for name, default in pairs:
            if name not in value:
                if filled is value:
                    filled = value.copy()
                filled[name] = _fresh(default)
        return filled

    return fill


def _fresh(default: Any) -> Any:
    return deepcopy(default) if type(default) in (list, dict) else default


def _apply(plan: _Plan, value: Any) -> Any:
    if plan.types is not None:
        value = _coerced(value, plan.types)
    if type(value) is dict:
        return _apply_object(plan, value)
    if type(value) is list and (plan.items is not None or plan.prefix):
        return _apply_array(plan, value)
    return value


def _apply_object(plan: _Plan, value: dict[str, Any]) -> dict[str, Any]:
    filled = value
    for name, default in plan.defaults.items():
        if name not in value:
            if filled is value:
                filled = value.copy()
            filled[name] = _fresh(default)
    if plan.below or plan.others is not None:
        for name, inner in value.items():
            below = plan.below.get(name, plan.others)
            after = inner if below is None else _apply(below, inner)
            if after is not inner:
                if filled is value:
                    filled = value.copy()
                filled[name] = after
    return filled


def _apply_array(plan: _Plan, value: list[Any]) -> list[Any]:
    filled = value
    for index, inner in enumerate(value):
        below = plan.prefix[index] if index < len(plan.prefix) else plan.items
        after = inner if below is None else _apply(below, inner)
        if after is not inner:
            if filled is value:
                filled = value.copy()
            filled[index] = after
    return filled


def _coerced(value: Any, types: frozenset[str]) -> Any:
    """The same value as one of these types if nothing is lost by it, else as it was."""
    kind = json_name(value)
    if kind == "number":
        fits = "integer" in types and "number" not in types and value.is_integer()
        return int(value) if fits else value
    if kind != "string" or "string" in types or len(value) > 40:
        return value
    if types & _NUMERIC and _INTEGER.fullmatch(value):
        return int(value)
    if types & _NUMERIC and _NUMBER.fullmatch(value) and sum(map(str.isdigit, value)) <= 15:
        number = float(value)  # with 15 digits at most, exact enough to print as it came
        if "number" in types:
            return number
        return int(number) if number.is_integer() else value
    return _BOOLEANS.get(value, value) if "boolean" in types else value
