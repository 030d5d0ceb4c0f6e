"""The top of an input schema, as vendors want it: a plain object with its properties.

Above: every form but MCP's. Below: ``folding``. OpenAI and Anthropic refuse a whole request if one
schema in it has a union, or its like, at the top. What was said so is said with properties, more
loosely: arguments that the tool takes still fit, and toolpost itself still checks every call.
"""

from __future__ import annotations

from typing import Any, Final

from toolpost.errors import InvalidSchema
from toolpost.exporters.folding import Never, merged, same
from toolpost.exporters.normal import ANNOTATIONS
from toolpost.exporters.values import Tell, Unexportable
from toolpost.plain import pointer
from toolpost.schema.tree import REFERENCES, Schema, Tree, subschemas

_UNIONS: Final = ("anyOf", "oneOf")
_DROPPED: Final = ("not", "enum", "const")
_REFUSED: Final = frozenset(("allOf", *_UNIONS, *_DROPPED, *REFERENCES))
_KEPT: Final = frozenset(("$defs", "definitions", "$schema", "$id", "$anchor", "$dynamicAnchor"))
_OLD: Final = 7
_MARKS: Final = frozenset(("x-raw", "x-secret"))


def rooted(schema: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """The schema with a plain object at its top; itself where it has one, and no mark of ours."""
    schema = _unmarked(schema)
    if not _REFUSED & schema.keys():
        if schema.get("type") == "object":
            return schema
        tell("", 'is said to be of "type": "object"')
        return {**schema, "type": "object"}
    try:
        tree = Tree(schema)
        made = _Flat(tree, tell).whole(_dict(tree.root))
        _verify(made)
    except InvalidSchema as fault:
        raise Unexportable(
            f"its input schema cannot be said as one plain object: {fault}"
        ) from None
    except Never:
        raise Unexportable("no arguments fit its input schema") from None
    return made


def with_items(schema: Any, tell: Tell, at: tuple[str | int, ...] = ()) -> Any:
    """The schema with ``items`` in every array: OpenAI refuses one that leaves them out."""
    if not isinstance(schema, dict):
        return schema
    made = schema
    for where, inner in subschemas(schema):
        done = with_items(inner, tell, (*at, *where))
        if done is not inner:
            made = _replaced(made, where, done)
    kinds = schema.get("type")
    if (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)) and (
        "items" not in schema
    ):
        tell(pointer(at), 'has "items": {} there, which says the same')
        made = {**made, "items": {}}
    return made


def with_properties(schema: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """The schema with ``properties`` at its top: OpenAI refuses a whole request without them."""
    if "properties" in schema:
        return schema
    tell("", 'has "properties": {} there, which says the same')
    return {**schema, "properties": {}}


def _unmarked(schema: Any) -> Any:
    """The schema without what it says to toolpost alone, and not to a model."""
    if not isinstance(schema, dict):
        return schema
    made = schema
    for where, inner in subschemas(schema):
        if (done := _unmarked(inner)) is not inner:
            made = _replaced(made, where, done)
    return {key: made[key] for key in made if key not in _MARKS} if _MARKS & made.keys() else made


def _replaced(schema: dict[str, Any], where: tuple[str | int, ...], inner: Any) -> dict[str, Any]:
    keyword, *rest = where
    value: Any = schema[str(keyword)]
    if rest and isinstance(value, list):
        inner = [inner if index == rest[0] else one for index, one in enumerate(value)]
    elif rest:
        inner = {**value, rest[0]: inner}
    return {**schema, str(keyword): inner}


def _verify(schema: dict[str, Any]) -> None:
    """What is referred to is still there."""
    tree = Tree(schema)
    for place in tree.places():
        tree.targets(place.schema)


class _Flat:
    """One object of all that a schema says at its top."""

    def __init__(self, tree: Tree, tell: Tell) -> None:
        self._tree, self._tell = tree, tell
        self._known: dict[int, dict[str, Any]] = {}

    def whole(self, schema: dict[str, Any]) -> dict[str, Any]:
        for keyword in sorted(_REFUSED & schema.keys()):
            lost = keyword in _DROPPED
            self._tell(
                f"/{keyword}",
                "is left out: toolpost still checks it" if lost else "is said with properties",
            )
        flat = self._flat(schema)
        return {"type": "object", **{key: flat[key] for key in flat if key != "type"}}

    def _flat(self, schema: Schema | bool) -> dict[str, Any]:
        """Once for each: many may refer to it, and it may hold itself."""
        if isinstance(schema, bool):
            if not schema:
                raise Never
            return {}
        known = self._known.get(id(schema))
        if known is None:
            self._known[id(schema)] = {}
            known = self._known[id(schema)] = self._merged(schema)
        return known

    def _merged(self, schema: Schema) -> dict[str, Any]:
        parts: list[Any] = list(schema.get("allOf", ()))
        targets = self._tree.targets(schema) if REFERENCES & schema.keys() else []
        own = {key: value for key, value in schema.items() if key not in _REFUSED}
        if targets and self._tree.draft <= _OLD:  # what else stands there is not read
            own = {key: own[key] for key in own if key in _KEPT or key in ANNOTATIONS}
            parts = []
        for part in [*targets, *parts]:
            inner = {k: v for k, v in self._flat(part).items() if k not in _KEPT}
            own = _dict(merged(own, inner, lost=lambda key: self._lost(key)))
        for union in _UNIONS:
            if union in schema and not (targets and self._tree.draft <= _OLD):
                own = self._united(own, schema[union])
        return own

    def _lost(self, keyword: str) -> None:
        self._tell("", f"{keyword} is left out: toolpost still checks it")

    def _united(self, own: dict[str, Any], branches: list[Any]) -> dict[str, Any]:
        """With the properties of all branches; required is what each of them requires."""
        flat = []
        for branch in branches:
            try:
                flat.append(self._flat(branch))
            except Never:
                continue
        if not flat:
            raise Never
        made = dict(own)
        properties = dict(own.get("properties", {}))
        for name in dict.fromkeys(name for one in flat for name in one.get("properties", {})):
            if name not in properties:
                properties[name] = _any([o["properties"][name] for o in flat
                                         if name in o.get("properties", {})])  # fmt: skip
        if properties:
            made["properties"] = properties
        needs = [list(one.get("required", ())) for one in flat]
        always = [name for name in needs[0] if all(name in need for need in needs)]
        if required := list(dict.fromkeys([*own.get("required", ()), *always])):
            made["required"] = required
        if "additionalProperties" not in own and all(
            one.get("additionalProperties") is False for one in flat
        ):
            made["additionalProperties"] = False
        choice = _choice([[name for name in need if name not in required] for need in needs])
        if choice:
            made["description"] = f"{own.get('description', '')} {choice}".lstrip()
        return made


def _dict(node: Any) -> dict[str, Any]:
    return node if isinstance(node, dict) else {}


def _any(variants: list[Any]) -> Any:
    """One schema for a property that several branches have."""
    different: list[Any] = []
    for one in variants:
        if one not in different:
            different.append(one)
    if len(different) == 1:
        return different[0]
    listed = [_listed(one) for one in different]
    rests = [rest for rest, _ in listed]
    if all(values for _, values in listed) and all(rest == rests[0] for rest in rests):
        values: list[Any] = []
        for value in (value for _, some in listed for value in some):
            if not any(same(value, known) for known in values):
                values.append(value)
        return {**rests[0], "enum": values}
    return {"anyOf": different}


def _listed(schema: Any) -> tuple[dict[str, Any], list[Any]]:
    """What a schema says beside its values, which mark one branch from another; and those."""
    if not isinstance(schema, dict):
        return {}, []
    rest = {key: one for key, one in schema.items() if key not in ("const", "enum")}
    return rest, [schema["const"]] if "const" in schema else list(schema.get("enum", ()))


def _choice(needs: list[list[str]]) -> str:
    """What a model must know of the branches: which properties each of them needs."""
    if not all(needs):
        return ""
    words = dict.fromkeys(" and ".join(need) for need in needs)
    return f"Give {', or '.join(words)}." if len(words) > 1 else ""
