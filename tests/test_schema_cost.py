"""What a schema costs is found wherever it hides, and what it refers to wherever it stands."""

from __future__ import annotations

from typing import Any

import pytest

from toolpost.errors import InvalidOutput, InvalidSchema
from toolpost.schema import Schema, verify

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
TOO_DEAR = "could be tried against more than 2000 subschemas"


def refused(schema: Any) -> str:
    with pytest.raises(InvalidSchema) as caught:
        verify(schema)
    return str(caught.value)


def fits(schema: Any, value: Any) -> bool:
    verify(schema)
    try:
        Schema(schema).check(value)
    except InvalidOutput:
        return False
    return True


# --- cost ----------------------------------------------------------------------------------------

NEXT = {"$ref": "#/definitions/NEXT"}
BELOW = {
    "patternProperties": {"^x": NEXT},
    "additionalProperties": NEXT,
    "prefixItems": [{}, NEXT],
    "items": NEXT,
    "contains": NEXT,
    "propertyNames": NEXT,
    "dependentSchemas": {"x": NEXT},
}


def tower(step: Any, depth: int = 13) -> dict[str, Any]:
    """``depth`` definitions that each try the next one eight times, in the way of ``step``."""

    def lead(part: Any, to: str) -> Any:
        if isinstance(part, dict):
            return {key: lead(one, to) for key, one in part.items()}
        if isinstance(part, list):
            return [lead(one, to) for one in part]
        return part.replace("NEXT", to) if isinstance(part, str) else part

    defs = {f"d{i}": {"allOf": [lead(step, f"d{i + 1}")] * 8} for i in range(depth)}
    return {"$ref": "#/definitions/d0", "definitions": {**defs, f"d{depth}": {"type": "integer"}}}


@pytest.mark.parametrize("keyword", BELOW)
def test_a_bomb_is_found_below_every_keyword(keyword: str) -> None:
    assert TOO_DEAR in refused(tower({keyword: BELOW[keyword]}))
    verify(tower({keyword: BELOW[keyword]}, depth=2))


def test_a_bomb_is_found_in_the_tuples_of_older_drafts() -> None:
    bomb = tower({"items": [NEXT], "additionalItems": False})
    assert TOO_DEAR in refused({"$schema": DRAFT_7, **bomb})


def test_patterns_for_keys_are_counted_on_the_properties_that_have_a_name_as_well() -> None:
    step = {"properties": {"x": True, "y": NEXT}, "patternProperties": {"^y": NEXT}}
    assert TOO_DEAR in refused(tower(step))


def test_many_patterns_for_the_keys_of_one_object_are_too_dear() -> None:
    many = {"patternProperties": {f"^a{i}": {} for i in range(450)}}
    shared = {"$ref": "#/$defs/many"}
    verify({"allOf": [shared] * 2, "$defs": {"many": many}})
    assert TOO_DEAR in refused({"allOf": [shared] * 6, "$defs": {"many": many}})


def test_a_schema_that_takes_too_long_to_judge_is_too_dear() -> None:
    branches = [{"properties": {f"p{i}": {"$ref": "#/$defs/x"}}} for i in range(1_500)]
    assert TOO_DEAR in refused({"allOf": branches, "$defs": {"x": {}}})


def test_alternatives_at_the_end_of_a_long_chain_are_not_followed_for_ever() -> None:
    chain = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(150)}
    either = [{"$ref": "#/$defs/a0"}, {"$ref": "#/$defs/a0"}]
    assert TOO_DEAR in refused({"anyOf": either, "$defs": {**chain, "a150": {}}})


def test_a_schema_that_costs_a_little_more_with_every_level_is_admitted() -> None:
    linear = {
        "allOf": [
            {"properties": {"c": {"$ref": "#"}}},
            {"properties": {"c": {"type": "object"}}},
        ]
    }
    deep: Any = {"c": {}}
    for _ in range(20):
        deep = {"c": deep}
    assert fits(linear, deep)
    assert not fits(linear, {"c": {"c": 1}})


def tagged(*tags: dict[str, Any], width: int = 9) -> dict[str, Any]:
    """A recursive union of ``width`` objects; without a tag it would be tried 9 ** depth times."""
    return {
        "anyOf": [
            {
                "properties": {"c": {"$ref": "#"}, **{k: v(i) for k, v in tags[0].items()}},
                "required": ["c", "absent", *tags[0]],
            }
            for i in range(width)
        ]
    }


@pytest.mark.parametrize(
    "tags",
    [
        {"kind": lambda i: {"const": i}},
        {"kind": lambda i: {"enum": [f"a{i}", f"b{i}"]}},
        {"version": lambda i: {"const": 1}, "kind": lambda i: {"const": i}},
        {"size": lambda i: {"type": "integer"}, "kind": lambda i: {"const": i}},
    ],
    ids=["const", "enum", "the second tag", "beside a plain property"],
)
def test_alternatives_told_apart_by_a_required_property_are_cheap(tags: Any) -> None:
    verify(tagged(tags))


@pytest.mark.parametrize(
    "tags",
    [
        {"kind": lambda i: {"const": i % 8}},
        {"kind": lambda i: {"enum": [f"a{i}", f"a{i + 1}"]}},
        {"kind": lambda i: {"type": "integer"}},
        {"kind": lambda i: True},
    ],
    ids=["twice the same", "overlapping", "no fixed value", "anything"],
)
def test_alternatives_whose_tags_overlap_are_too_dear(tags: Any) -> None:
    assert TOO_DEAR in refused(tagged(tags))


def test_a_dear_pattern_needs_a_draft_that_can_fence_it_in() -> None:
    look_ahead = {"type": "string", "pattern": "^(?=a)a"}
    assert "needs draft 7 or later" in refused({"$schema": DRAFT_4, **look_ahead})
    assert fits({"$schema": DRAFT_7, **look_ahead}, "ab")


def test_a_keyword_of_the_wrong_kind_is_named_and_not_counted() -> None:
    assert refused({"patternProperties": []}).startswith("/patternProperties: expected object")


# --- references ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": 5}, "/$ref: must be a string"),
        ({"$ref": "#/title", "title": "text"}, "/$ref: refers to something that is not a schema"),
        ({"$ref": "#/allOf/1", "allOf": [{}]}, "/$ref: refers to a place in this schema that does"),
        ({"$ref": "#/allOf/x", "allOf": [{}]}, "/$ref: refers to a place in this schema that does"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused_with_the_place(
    schema: Any, message: str
) -> None:
    assert refused(schema).startswith(message)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/allOf/0/not"}}, "allOf": [{"not": {"type": "null"}}]},
        {"properties": {"a": {"$ref": "#/x-ours/deep"}}, "x-ours": {"deep": {"type": "null"}}},
        {
            "$schema": DRAFT_7,
            "properties": {"a": {"$ref": "#it"}},
            "definitions": {"x": {"$id": "#it", "type": "null"}},
        },
    ],
    ids=["into a list", "to where no keyword looks", "to the anchor of an older draft"],
)
def test_a_reference_within_the_schema_is_followed_wherever_it_leads(schema: Any) -> None:
    assert fits(schema, {"a": None})
    assert not fits(schema, {"a": 1})


def test_what_is_reached_by_a_reference_alone_is_judged_as_well() -> None:
    bomb = tower({"properties": {"x": NEXT}})
    hidden = {"$ref": "#/x-ours", "x-ours": {"$ref": "#/definitions/d0"}}
    assert TOO_DEAR in refused({**hidden, "definitions": bomb["definitions"]})


# --- closed schemas ------------------------------------------------------------------------------

ALIEN = object()


@pytest.mark.parametrize(
    ("schema", "good", "alien"),
    [
        pytest.param(
            {
                "$schema": DRAFT_7,
                "type": "object",
                "properties": {},
                "additionalProperties": False,
                "$ref": "#/definitions/any",
                "definitions": {"any": {}},
            },
            {"b": 1},
            {"b": ALIEN},
            id="beside a reference nothing counts in draft 7",
        ),
        pytest.param(
            {
                "$schema": DRAFT_7,
                "type": "object",
                "properties": {"a": {"$ref": "#/definitions/any", "type": "string"}},
                "additionalProperties": False,
                "definitions": {"any": {}},
            },
            {"a": 1},
            {"a": ALIEN},
            id="nor in a property",
        ),
        pytest.param(
            {
                "$schema": DRAFT_7,
                "type": "object",
                "properties": {
                    "a": {"type": "array", "items": [{"type": "string"}], "additionalItems": {}}
                },
                "additionalProperties": False,
            },
            {"a": ["x", 1]},
            {"a": ["x", ALIEN]},
            id="a tuple with more items",
        ),
        pytest.param(
            {
                "$schema": DRAFT_7,
                "type": "object",
                "properties": {
                    "a": {"type": "array", "items": [{"type": "string"}], "additionalItems": False}
                },
                "additionalProperties": False,
            },
            {"a": ["x"]},
            {"a": ["x", ALIEN]},
            id="a tuple without",
        ),
    ],
)
def test_only_json_passes_a_schema_of_an_older_draft(schema: Any, good: Any, alien: Any) -> None:
    assert fits(schema, good)
    assert not fits(schema, alien)
