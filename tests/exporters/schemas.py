"""Schemas to try exporters on: wild ones, and orderly ones with values that fit them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from toolpost.spec import ToolSpec

NAMES = st.sampled_from(["a", "b", "größe", "日本", "with space", "a/b~c", "$ref", "type", ""])
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "é", 0.5])
TYPES = ["string", "integer", "number", "boolean", "null", "array", "object"]
REFS = ["#", "#/$defs/one", "#/$defs/two", "#/definitions/old", "#here", "#/properties/a"]


def spec_of(schema: Any, name: str = "tool") -> ToolSpec:
    return ToolSpec(name=name, description="Do it.", input_schema=schema)


def _keywords(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    small, names = st.integers(0, 3), st.lists(NAMES, max_size=2, unique=True)
    some, by_name = (
        st.lists(inner, min_size=1, max_size=2),
        st.dictionaries(NAMES, inner, max_size=3),
    )
    return {
        "type": st.sampled_from(TYPES)
        | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
        "description": st.sampled_from(["Say it.", ""]),
        "default": SCALARS,
        "enum": st.lists(SCALARS | st.just({"k": [1]}), min_size=1, max_size=3, unique_by=repr),
        "const": SCALARS,
        "minLength": small,
        "pattern": st.just("^x"),
        "format": st.sampled_from(["date", "uri", "odd"]),
        "minimum": small,
        "exclusiveMaximum": small,
        "minItems": small,
        "uniqueItems": st.booleans(),
        "items": inner,
        "prefixItems": some,
        "contains": inner,
        "unevaluatedItems": inner,
        "properties": by_name,
        "required": names,
        "additionalProperties": inner,
        "unevaluatedProperties": inner,
        "patternProperties": st.dictionaries(st.just("^a"), inner, max_size=1),
        "propertyNames": inner,
        "dependentRequired": st.dictionaries(NAMES, names, max_size=1),
        "dependentSchemas": by_name,
        "allOf": some,
        "anyOf": some,
        "oneOf": some,
        "not": inner,
        "if": inner,
        "then": inner,
        "$ref": st.sampled_from(REFS),
        "x-ours": st.just({"$ref": "nowhere"}),
    }


def _some(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A few of the keywords: all of them at once are a schema that nothing fits."""
    keywords = _keywords(inner)
    keys = st.lists(st.sampled_from(list(keywords)), min_size=1, max_size=4, unique=True)
    return keys.flatmap(lambda keys: st.fixed_dictionaries({key: keywords[key] for key in keys}))


_LEAVES = st.booleans() | _some(st.booleans())
_LOWER = _some(_LEAVES) | _LEAVES
ANY = _some(_LOWER) | _LOWER


@st.composite
def wild(draw: st.DrawFn) -> dict[str, Any]:
    """Whatever the arguments of a tool may be described with, and more."""
    root = {**draw(_some(ANY)), "type": "object"}
    root["$defs"] = {"one": draw(ANY), "two": {"$anchor": "here", "$ref": "#/$defs/one"}}
    root["definitions"] = {"old": draw(ANY)}
    root.setdefault("properties", {})["a"] = draw(ANY)
    return root


Pair = tuple[dict[str, Any], st.SearchStrategy[Any]]


def _scalar_pairs() -> st.SearchStrategy[Pair]:
    return st.sampled_from(
        [
            ({"type": "string"}, st.text(max_size=3)),
            (
                {"type": "string", "minLength": 1, "maxLength": 3},
                st.text("ab", min_size=1, max_size=3),
            ),
            ({"type": "integer", "minimum": 0, "exclusiveMaximum": 9}, st.integers(0, 8)),
            ({"type": "number", "multipleOf": 0.5}, st.sampled_from([0.5, 1, 2.0])),
            ({"type": "boolean", "default": True}, st.booleans()),
            ({"enum": ["x", 1]}, st.sampled_from(["x", 1])),
            ({"const": "only", "description": "Say only."}, st.just("only")),
            ({"type": "string", "format": "odd", "pattern": "x"}, st.just("x")),
            ({"type": "string", "not": {"const": "n"}}, st.just("y")),
        ]
    )


def _union_pairs() -> st.SearchStrategy[Pair]:
    return st.sampled_from(
        [
            ({"enum": ["x", None, True]}, st.sampled_from(["x", None, True])),
            ({"const": None}, st.none()),
            ({"type": ["string", "null"]}, st.none() | st.text(max_size=2)),
            ({"type": ["array", "integer"]}, st.integers() | st.lists(SCALARS, max_size=2)),
            ({"anyOf": [{"$ref": "#/$defs/n"}, {"type": "string"}]}, st.integers(0, 9) | st.text()),
            ({"$ref": "#/$defs/n", "maximum": 5}, st.integers(0, 5)),
            ({"allOf": [{"$ref": "#/$defs/n"}, {"maximum": 5}]}, st.integers(0, 5)),
            ({"allOf": [{"$ref": "#/$defs/n"}], "description": "One."}, st.integers(0, 9)),
            ({"oneOf": [{"const": 1}, {"const": "1"}]}, st.sampled_from([1, "1"])),
            ({"prefixItems": [{"const": "x"}], "items": False}, st.lists(st.just("x"), max_size=1)),
            ({"type": "object", "additionalProperties": {"type": "string"}},
             st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2)),
            ({}, SCALARS),
            ({"enum": [[1], {"k": 2}]}, st.sampled_from([[1], {"k": 2}])),
        ]
    )  # fmt: skip


@st.composite
def _object(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    pairs = draw(st.dictionaries(NAMES, inner, max_size=3))
    required = [name for name in pairs if draw(st.booleans())]
    schema = {
        "type": "object",
        "properties": {name: pair[0] for name, pair in pairs.items()},
        "required": required,
        "additionalProperties": False,
    }
    values = {name: pair[1] for name, pair in pairs.items()}
    return schema, st.fixed_dictionaries(
        {name: values[name] for name in required},
        optional={name: values[name] for name in values if name not in required},
    )


def _deeper(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    arrays = inner.map(
        lambda pair: ({"type": "array", "items": pair[0]}, st.lists(pair[1], max_size=2))
    )
    return arrays | _object(inner)


@st.composite
def orderly(draw: st.DrawFn, *, unions: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema, and arguments that fit it."""
    leaves = _scalar_pairs() | _union_pairs() if unions else _scalar_pairs()
    schema, values = draw(_object(st.recursive(leaves, _deeper, max_leaves=4)))
    if unions:
        schema = {**schema, "$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}}
    return schema, draw(values)
