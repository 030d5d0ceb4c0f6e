"""Schemas of OpenAPI as JSON Schema 2020-12: what is said, what is left out, how deep it goes."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.sources.openapi.documents import body, converted, document, found, operation, tool_of
from toolpost.errors import InvalidSchema
from toolpost.schema import Schema, verify
from toolpost.sources.openapi.description import Description, Unfit
from toolpost.sources.openapi.schemas import MOST_ANSWER, MOST_REQUEST, Schemas
from toolpost.sources.openapi.translating import Notes

TEXT = {"type": "string"}
WHERE = ("components", "schemas", "It")


def whole(
    schema: Any, *, version: str = "3.0.3", answers: bool = False, **schemas: Any
) -> tuple[Any, Notes]:
    data = document({}, version=version, components={"schemas": {"It": schema, **schemas}})
    notes = Notes()
    made = Schemas(Description(found(data).document), notes, answers=answers)
    return made.whole(made.translated(schema, WHERE), WHERE), notes


def translated(schema: Any, **more: Any) -> Any:
    made, notes = whole(schema, **more)
    assert not notes, notes
    return made


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": "string", "nullable": True, "enum": ["a"]},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"oneOf": [TEXT, {"type": "integer"}], "nullable": True},
            {"anyOf": [TEXT, {"type": "integer"}, {"type": "null"}]},
        ),
        (
            {"allOf": [{"maxLength": 3}, {"minLength": 1}], "nullable": True, "description": "d"},
            {
                "anyOf": [{"allOf": [{"maxLength": 3}, {"minLength": 1}]}, {"type": "null"}],
                "description": "d",
            },
        ),
        (
            {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            {"type": "integer", "exclusiveMinimum": 1},
        ),
        (
            {"type": "integer", "maximum": 1, "exclusiveMaximum": False},
            {"type": "integer", "maximum": 1},
        ),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "string", "format": "byte"}, {"type": "string", "contentEncoding": "base64"}),
        ({"type": "integer", "format": "int64"}, {"type": "integer"}),
        ({"type": "string", "example": "x"}, {"type": "string", "examples": ["x"]}),
        ({"type": "object", "example": {"a": 1}}, {"type": "object"}),
        ({"type": "file"}, {"type": "string"}),
        (
            {"type": "array", "items": TEXT, "uniqueItems": True},
            {"type": "array", "items": TEXT, "uniqueItems": True},
        ),
        ({"allOf": [TEXT], "description": "d"}, {"type": "string", "description": "d"}),
        (
            {"anyOf": [TEXT], "oneOf": [{"maxLength": 1}]},
            {"anyOf": [TEXT], "allOf": [{"anyOf": [{"maxLength": 1}]}]},
        ),
    ],
)
def test_what_3_0_says_in_its_own_words_is_said_in_those_of_json_schema(
    written: Any, made: Any
) -> None:
    assert translated(written) == made


def test_what_only_tools_of_others_read_is_left_out() -> None:
    written = {
        "type": "object",
        "properties": {"a": {**TEXT, "x-raw": True, "xml": {"name": "b"}, "title": "A"}},
        "discriminator": {"propertyName": "a"},
        "externalDocs": {"url": "https://docs.example.com"},
        "x-raw": True,
        "not": {"required": ["b"]},
    }
    assert translated(written) == {"type": "object", "properties": {"a": TEXT}}


def test_a_default_is_told_and_never_filled_in() -> None:
    schema = {
        "type": "object",
        "properties": {
            "private": {"type": "boolean", "default": False, "description": "Who sees it."},
            "size": {"type": "integer", "default": 3},
        },
    }
    spec = tool_of(operation(requestBody=body(schema, required=True)), method="patch")
    assert spec.input_schema["properties"] == {
        "private": {"type": "boolean", "description": "Who sees it. (default: false)"},
        "size": {"type": "integer", "description": "Default: 3"},
    }
    assert Schema(spec.input_schema).admit({}) == {}


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ({"type": "text"}, "type"),
        ({"type": ["string", 5]}, "type"),
        ({"enum": "a"}, "enum"),
        ({"enum": []}, "enum"),
        ({"enum": list(range(1001))}, "enum"),
        ({"minLength": -1}, "minLength"),
        ({"multipleOf": 0}, "multipleOf"),
        ({"maximum": "5"}, "maximum"),
        ({"pattern": "("}, "pattern"),
        ({"pattern": "(a+)+(?=b)\\1"}, "pattern"),
        ({"pattern": "x" * 5000}, "pattern"),
    ],
)
def test_what_cannot_be_checked_is_left_out_with_a_note(written: Any, left: str) -> None:
    made, notes = whole({**written, "description": "d"})
    assert made == {"description": "d"}
    assert list(notes) == [f"#/components/schemas/It/{left}"]


def test_what_is_no_schema_is_anything() -> None:
    made, notes = whole({"properties": {"a": 5, "b": None}, "items": [TEXT], "required": True})
    assert made == {"properties": {"a": {}, "b": {}}}
    assert list(notes.values()) == ["this is no schema: anything goes"] * 2


@pytest.mark.parametrize(
    ("written", "made"),
    [
        (True, {}),
        (False, {"not": {}}),
        ({"type": ["string", "null"]}, {"type": ["null", "string"]}),
        ({"exclusiveMinimum": 3}, {"exclusiveMinimum": 3}),
        ({"const": 5}, {"const": 5}),
        ({"prefixItems": [TEXT]}, {"prefixItems": [TEXT]}),
        ({"patternProperties": {"^a": TEXT}}, {"patternProperties": {"^a": TEXT}}),
        (
            {"patternProperties": {"(?=a)": TEXT}, "additionalProperties": False},
            {"patternProperties": {"(?=a)": TEXT}, "additionalProperties": False},
        ),
        (
            {"patternProperties": {"(a*)*(?=a)": TEXT}, "additionalProperties": False},
            {"patternProperties": {}},
        ),
        ({"dependentRequired": {"a": ["b", "b"]}}, {"dependentRequired": {"a": ["b"]}}),
        (
            {"contains": TEXT, "propertyNames": {"maxLength": 3}},
            {"contains": TEXT, "propertyNames": {"maxLength": 3}},
        ),
        (
            {"dependentSchemas": {"a": {"required": ["b"]}}},
            {"dependentSchemas": {"a": {"required": ["b"]}}},
        ),
        ({"if": TEXT, "then": {"maxLength": 3}, "unevaluatedProperties": False}, {}),
    ],
)
def test_what_3_1_says_is_json_schema_already(written: Any, made: Any) -> None:
    assert translated(written, version="3.1.0") == made


def test_beside_a_reference_3_1_says_more_and_3_0_only_describes() -> None:
    target = {"type": "string", "maxLength": 9}
    beside = {"$ref": "#/components/schemas/A", "minLength": 2, "description": "d"}
    new = translated(beside, version="3.1.0", A=target)
    assert new == {"type": "string", "maxLength": 9, "minLength": 2, "description": "d"}
    assert translated(beside, A=target) == {**target, "description": "d"}
    clashing = {"$ref": "#/components/schemas/A", "maxLength": 2}
    assert translated(clashing, version="3.1.0", A=target) == {"maxLength": 2, "allOf": [target]}
    nullable = {"$ref": "#/components/schemas/B", "nullable": True}
    made = translated(nullable, B={"type": "object", "properties": {"a": TEXT}})
    assert made["anyOf"] == [{"$ref": "#/$defs/B"}, {"type": "null"}]


# --- references --------------------------------------------------------------------------------

TREE = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
    },
}


def test_recursion_stays_recursion() -> None:
    made = translated({"$ref": "#/components/schemas/Tree"}, Tree=TREE)
    assert made["$ref"] == "#/$defs/Tree"
    assert made["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    check = Schema({"type": "object", "properties": {"t": made | {}}, "$defs": made["$defs"]})
    check.check({"t": {"name": "a", "children": [{"name": "b", "children": []}]}})
    assert check.faults({"t": {"children": [{"children": [{"name": 5}]}]}})


def test_a_simple_schema_is_written_out_where_it_is_referred_to() -> None:
    schema = {"type": "object", "properties": {"id": {"$ref": "#/components/schemas/Id"}}}
    assert translated(schema, Id={"type": "integer", "minimum": 1}) == {
        "type": "object",
        "properties": {"id": {"type": "integer", "minimum": 1}},
    }


def test_references_lead_anywhere_in_the_document() -> None:
    data = document(
        {
            "/a": {
                "get": operation(
                    operationId="a",
                    responses={"200": {"content": {"application/json": {"schema": TREE}}}},
                )
            },
            "/b": {
                "post": operation(
                    requestBody=body(
                        {"$ref": "#/paths/~1a/get/responses/200/content/application~1json/schema"},
                        required=True,
                    )
                )
            },
        },
        components={"schemas": {"Tree": TREE}},
    )
    made = converted(data)
    assert list(made.specs[1].input_schema["properties"]) == ["name", "children"]


def test_definitions_of_the_same_name_are_told_apart() -> None:
    deep = {"type": "object", "properties": {"a": TEXT}}
    schema = {
        "type": "object",
        "properties": {
            "x": {"$ref": "#/components/schemas/A%20b"},
            "y": {"$ref": "#/components/schemas/A_b"},
            "z": {"$ref": "#/components/schemas/A_b/properties/A_b"},
        },
    }
    inner = {"type": "object", "properties": {"A_b": deep}}
    made = translated(schema, **{"A b": deep, "A_b": inner})
    assert len(made["$defs"]) == 3
    assert "A_b" in made["$defs"]


@pytest.mark.parametrize(
    "schemas",
    [
        {"A": {"$ref": "#/components/schemas/A"}},
        {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}},
        {"A": {"$ref": "#/components/schemas/None"}},
        {"A": {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}},
    ],
)
def test_a_reference_that_leads_nowhere_makes_the_schema_unfit(schemas: Any) -> None:
    with pytest.raises(Unfit):
        whole({"$ref": "#/components/schemas/A"}, **schemas)


def test_a_schema_that_is_itself_is_cut() -> None:
    made, notes = whole(
        {"$ref": "#/components/schemas/A"},
        A={"type": "object", "allOf": [{"$ref": "#/components/schemas/A"}]},
    )
    verify(made)
    assert list(notes.values()) == ["its schema is told in less depth than the document has"]


# --- depth -------------------------------------------------------------------------------------


def chain(length: int, width: int = 1) -> dict[str, Any]:
    return {
        f"S{n}": {
            "type": "object",
            "description": f"Number {n}.",
            "properties": {
                f"p{n}_{w}": {"$ref": f"#/components/schemas/S{n + 1}"} for w in range(width)
            },
        }
        for n in range(length)
    } | {f"S{length}": TEXT}


@pytest.mark.parametrize("answers", [False, True])
def test_what_would_be_too_long_is_told_in_less_depth(answers: bool) -> None:
    schema = {"type": "object", "properties": {"it": {"$ref": "#/components/schemas/S0"}}}
    made, notes = whole(schema, answers=answers, **chain(3000))
    assert len(json.dumps(made)) <= (MOST_ANSWER if answers else MOST_REQUEST)
    assert list(notes.values()) == ["its schema is told in less depth than the document has"]
    assert list(made["$defs"]) == ["S0", "S1", "S2"]
    assert made["$defs"]["S2"]["properties"]["p2_0"] == {
        "type": "object",
        "description": "Number 3.",
    }


def test_what_is_long_without_references_loses_what_is_deep_down() -> None:
    long = {
        "type": "array",
        "items": {"type": "object", "properties": {f"p{n}": TEXT for n in range(3000)}},
    }
    schema = {"type": "object", "properties": {"a": long, "b": TEXT}, "required": ["a"]}
    made, notes = whole(schema)
    assert made == {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "object"}}, "b": TEXT},
        "required": ["a"],
    }
    assert notes


def test_arguments_that_are_too_many_to_be_told_are_left_out_with_the_reason() -> None:
    names = {f"argument_number_{n}": TEXT for n in range(2000)}
    request = body({"type": "object", "properties": names})
    data = document({"/it": {"post": operation(requestBody=request)}, "/ok": {"get": operation()}})
    (left,) = converted(data).left_out
    assert left.why == "its schema cannot be checked: it is too long"


def test_answers_are_held_to_types_and_structure() -> None:
    schema = {
        "type": "object",
        "properties": {
            "made": {"type": "string", "format": "date-time", "pattern": "^2", "maxLength": 3},
            "secret": {"type": "string", "writeOnly": True},
            "id": {"type": "string", "readOnly": True},
            "size": {"type": "integer", "minimum": 0, "default": 1, "example": 5},
        },
        "required": ["made", "secret", "id"],
        "additionalProperties": False,
    }
    assert translated(schema, answers=True) == {
        "type": "object",
        "properties": {"made": TEXT, "id": TEXT, "size": {"type": "integer"}},
        "required": ["made", "id"],
    }


# --- whatever a document says ------------------------------------------------------------------

NAMES = ("A", "B", "C")
SCALAR = st.sampled_from([None, True, 0, 1, -3, 2.5, "", "a", "bcd"])
LEAF = st.one_of(
    st.booleans(),
    st.builds(
        lambda kind: {"type": kind},
        st.sampled_from(["string", "integer", "object", "array", "null", "number"]),
    ),
    st.builds(lambda enum: {"enum": enum}, st.lists(SCALAR, min_size=1, max_size=3)),
    st.builds(
        lambda n, key: {key: n},
        st.integers(0, 3),
        st.sampled_from(["minLength", "maxItems", "minimum", "exclusiveMaximum", "minProperties"]),
    ),
    st.just({"pattern": "^a"}),
    st.sampled_from([{"$ref": f"#/components/schemas/{name}"} for name in NAMES]),
    st.sampled_from([{"$ref": f"#/components/schemas/{name}", "minLength": 1} for name in NAMES]),
)


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(
            lambda properties, required, closed: {
                "properties": properties,
                "required": required,
                **({"additionalProperties": False} if closed else {}),
            },
            named,
            st.lists(st.sampled_from("abc"), unique=True, max_size=2),
            st.booleans(),
        ),
        st.builds(
            lambda key, listed: {key: listed},
            st.sampled_from(["allOf", "anyOf", "oneOf", "prefixItems"]),
            some,
        ),
        st.builds(
            lambda key, one, more: {key: one, **more},
            st.sampled_from(["items", "additionalProperties", "not", "contains", "propertyNames"]),
            inner,
            st.sampled_from([{}, {"maxContains": 1}, {"prefixItems": [True]}]),
        ),
        st.builds(
            lambda condition, then: {"if": condition, "then": then, "else": False}, inner, inner
        ),
        st.builds(
            lambda named, closed: {
                "patternProperties": {f"^{key}": one for key, one in named.items()},
                "unevaluatedProperties": closed,
            },
            named,
            st.booleans(),
        ),
    )


SCHEMA = st.recursive(LEAF, _larger, max_leaves=8)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=300)
@given(
    SCHEMA,
    st.fixed_dictionaries(dict.fromkeys(NAMES, SCHEMA)),
    st.lists(VALUE, min_size=5, max_size=5),
)
def test_what_fits_the_document_fits_the_translation(
    root: Any, schemas: dict[str, Any], values: list[Any]
) -> None:
    oracle = {"components": {"schemas": {"It": root, **schemas}}, "$ref": "#/components/schemas/It"}
    try:
        verify(oracle)  # the validator itself would not survive a schema that is its own
        made, _ = whole(root, version="3.1.0", **schemas)
    except (Unfit, InvalidSchema):
        assume(False)
    fits = jsonschema_rs.Draft202012Validator(oracle).is_valid
    check = Schema({"type": "object", "properties": {"v": {**made}}, **_defs(made)})
    for value in filter(fits, values):
        check.check({"v": value})


def _defs(made: Any) -> dict[str, Any]:
    return {"$defs": made["$defs"]} if "$defs" in made else {}
