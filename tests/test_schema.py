"""A schema is verified once, under bounds, and then judges values in words a model can act on."""

from __future__ import annotations

import copy
import enum
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.errors import InvalidArguments, InvalidOutput, InvalidSchema
from toolpost.schema import (
    Schema,
    faulty_defaults,
    gives_whole_numbers,
    register_schemas,
    verify,
    verify_input,
)
from toolpost.schema.resources import remove_schema
from toolpost.schema.tree import DRAFTS

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 2},
        "limit": {"type": "integer", "default": 10, "minimum": 1, "maximum": 50},
        "color": {"enum": ["red", "green", "blue"]},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"price": {"type": "number"}, "unit": {"default": "EUR"}},
                "required": ["price"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}


def refusal(schema: Any, value: Any) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        Schema(schema).admit(value)
    return caught.value


def refused(schema: Any, **options: bool) -> str:
    with pytest.raises(InvalidSchema) as caught:
        verify(schema, **options)
    return str(caught.value)


# --- values --------------------------------------------------------------------------------------


@pytest.mark.req("FM-3")
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", "x", 1),
        ("integer", 2**80, 1.5),
        ("number", 1.5, "1"),
        ("boolean", True, 0),
        ("null", None, False),
        ("array", [1], {"0": 1}),
        ("object", {"a": 1}, [1]),
    ],
)
def test_each_of_the_seven_json_types_is_told_from_the_others(
    kind: str, good: Any, bad: Any
) -> None:
    schema = {"type": "object", "properties": {"v": {"type": kind}}}
    verify_input(schema)
    assert Schema(schema).admit({"v": good}) == {"v": good}
    assert refusal(schema, {"v": bad}).message.startswith(f"/v: expected {kind}, got ")


@pytest.mark.req("FG-9")
@pytest.mark.parametrize("kind", ["integer", "number"])
def test_a_boolean_is_not_a_number(kind: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": kind}}}
    assert refusal(schema, {"a": True}).message == f"/a: expected {kind}, got boolean"


@pytest.mark.req("FG-9")
def test_a_boolean_is_not_the_allowed_value_one() -> None:
    assert "/a" in refusal({"properties": {"a": {"enum": [1]}}}, {"a": True}).message
    assert "/a" in refusal({"properties": {"a": {"const": 0}}}, {"a": False}).message


def test_what_fits_is_returned_as_it_is() -> None:
    value = {"a": 1, "b": 2}
    assert Schema(ADD).admit(value) is value
    assert Schema(ADD).check(value) is value


def test_large_integers_are_compared_exactly() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 2**70}}}
    assert Schema(schema).admit({"a": 2**70}) == {"a": 2**70}
    assert refusal(schema, {"a": 2**70 + 1}).message == f"/a: must be at most {2**70}"


UNWRITABLE = 10 ** sys.get_int_max_str_digits()
"""The first integer that Python does not turn into text."""


@pytest.mark.parametrize(
    "inner",
    [
        {"type": "integer"},
        {"type": "integer", "maximum": 5},
        {"type": ["integer", "null"]},
        {"type": "number"},
        {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        {"$ref": "#/$defs/count"},
        {},
    ],
    ids=str,
)
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(
    "number", [UNWRITABLE, -UNWRITABLE, 10**100_000], ids=["first", "negative", "large"]
)
def test_an_integer_that_cannot_be_written_out_is_refused_with_its_place(
    inner: dict[str, Any], *, closed: bool, number: int
) -> None:
    schema = {
        "type": "object",
        "properties": {"a": inner},
        "additionalProperties": not closed,
        "$defs": {"count": {"type": "integer"}},
    }
    assert refusal(schema, {"a": number}).message == (
        "/a: an integer must have at most 4,300 digits; send more as a string"
    )


def test_an_integer_that_cannot_be_written_out_is_found_at_any_depth_of_a_closed_schema() -> None:
    row = {"type": "array", "items": {"type": "integer"}}
    for draft in (DRAFT_4, DRAFT_7, DRAFT_2019):
        schema = {
            "$schema": draft,
            "type": "object",
            "properties": {"rows": {"type": "array", "items": row}},
            "additionalProperties": False,
        }
        assert refusal(schema, {"rows": [[1], [2, UNWRITABLE]]}).message.startswith("/rows/1/1: ")


def test_integers_are_exact_up_to_the_longest_that_can_be_written_out() -> None:
    longest = UNWRITABLE - 1
    for schema in (ADD, {"type": "object"}):
        assert Schema(schema).admit({"a": longest, "b": -longest}) == {"a": longest, "b": -longest}


def test_what_keeps_long_integers_out_adds_no_fault_of_its_own() -> None:
    assert refusal(ADD, {"a": "x", "b": 1.5}).details == {
        "faults": [
            {"at": "/a", "problem": "expected integer, got string"},
            {"at": "/b", "problem": "expected integer, got number with a fraction"},
        ]
    }


class Colour(enum.Enum):
    RED = object()


@pytest.mark.parametrize("schema", [True, {}, {"type": "object"}, {"properties": {"a": {}}}])
@pytest.mark.parametrize(
    "alien",
    [object(), {1, 2}, b"x", (1, 2), float("nan"), float("inf"), Colour.RED, "\ud800", {1: 2}],
    ids=lambda alien: type(alien).__name__,
)
def test_an_open_schema_still_takes_json_only(schema: Any, alien: Any) -> None:
    with pytest.raises(InvalidOutput) as caught:
        Schema(schema).check({"a": [{"b": alien}]})
    assert caught.value.message.startswith("/a/0/b: ")


@pytest.mark.parametrize(
    "alien",
    [object(), {1, 2}, b"x", float("nan"), float("-inf"), {1: 2}],
    ids=lambda alien: type(alien).__name__,
)
@pytest.mark.parametrize("kind", ["string", "integer", "number"])
def test_a_closed_schema_takes_json_only(alien: Any, kind: str) -> None:
    schema = {**ADD, "properties": {"a": {"type": kind}, "b": {"type": "integer"}}}
    assert refusal(schema, {"a": alien, "b": 1}).message.startswith("/a: ")


def test_a_key_that_is_not_text_is_named_by_its_object() -> None:
    assert refusal(ADD, {"a": 1, "b": 2, 3: 4}).message == "a key is integer; keys must be strings"
    with pytest.raises(InvalidOutput, match="/x: a key is not valid Unicode text"):
        Schema(True).check({"x": {"\udfff": 1}})


@pytest.mark.parametrize("schema", [True, ADD, {"items": {"$ref": "#"}}, {"type": "array"}])
def test_data_nested_without_end_is_refused_and_harms_nothing(schema: Any) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidOutput):
        Schema(schema).check(deep)
    cycle: list[Any] = []
    cycle.extend([cycle, cycle])
    with pytest.raises(InvalidOutput):
        Schema(schema).check(cycle)


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.req("FM-10")
def test_a_missing_parameter_is_named() -> None:
    fault = refusal(SEARCH, {})
    assert fault.message == "Missing required parameter: query"
    assert fault.details == {"faults": [{"at": "/query", "problem": "missing required parameter"}]}
    assert fault.code == "VALIDATION_ERROR"


@pytest.mark.req("FM-10")
def test_several_faults_are_told_at_once() -> None:
    assert refusal(ADD, {}).message == "Missing required parameters: a, b"
    assert refusal(ADD, {"a": "x"}).message == (
        "Missing required parameter: b; /a: expected integer, got string"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"query": "x"}, "/query: must have at least 2 characters"),
        ({"query": "xx", "limit": 0}, "/limit: must be at least 1"),
        ({"query": "xx", "limit": 1.5}, "/limit: expected integer, got number with a fraction"),
        (
            {"query": "xx", "colour": 1},
            '/colour: unknown parameter; did you mean "color"?',
        ),
        (
            {"query": "xx", "z": 1},
            "/z: unknown parameter; allowed: query, limit, color, items",
        ),
        (
            {"query": "xx", "color": "gren"},
            '/color: must be one of the allowed values; did you mean "green"?',
        ),
        (
            {"query": "xx", "color": 7},
            "/color: must be one of the allowed values; allowed: red, green, blue",
        ),
        ({"query": "xx", "items": [{"price": 1}, {"price": "x"}]}, "/items/1/price: expected"),
        ({"query": "xx", "items": [{}]}, "/items/0: missing required property: price"),
        ({"query": "xx", "items": [{"price": 1, "c": 1}]}, "/items/0/c: unknown property"),
        ([], "expected object, got array"),
    ],
)
def test_a_fault_says_where_and_what_would_be_right(value: Any, message: str) -> None:
    assert refusal(SEARCH, value).message.startswith(message)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"pattern": "^a+$"}, "b", 'must match the pattern "^a+$"'),
        ({"format": "date"}, "soon", "must be a valid date"),
        ({"format": "ipv4"}, "1.2.3", "must be a valid ipv4"),
        ({"const": 3}, 4, "must be 3"),
        ({"multipleOf": 5}, 4, "must be a multiple of 5"),
        ({"uniqueItems": True}, [1, 1], "must not hold the same item twice"),
        ({"minItems": 2}, [1], "must have at least 2 items"),
        ({"maxProperties": 0}, {"a": 1}, "must have at most 0 properties"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", "expected integer or null, got"),
        ({"enum": [{"k": 1}, [2]]}, 1, "must be one of the allowed values"),
        ({"not": {}}, 1, "has a form that is not allowed here"),
        (False, 1, "is not allowed here"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "a key is not allowed: must have at most"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 0}]}, 3, "fits several of the alternatives"),
    ],
)
def test_every_kind_of_fault_has_words(schema: Any, value: Any, message: str) -> None:
    verify(schema)
    with pytest.raises(InvalidOutput) as caught:
        Schema(schema).check(value)
    assert caught.value.message.startswith(message)


def test_of_several_alternatives_the_closest_gives_the_reason() -> None:
    shapes = {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": kind}, size: {"type": "number"}},
                "required": ["kind", size],
            }
            for kind, size in (("circle", "radius"), ("square", "side"))
        ]
    }
    schema = {"type": "object", "properties": {"shape": shapes}}
    assert refusal(schema, {"shape": {"kind": "square", "side": "x"}}).message == (
        "/shape/side: expected number, got string"
    )
    assert refusal(schema, {"shape": {"kind": "blob"}}).message == (
        "/shape/kind: must be one of the allowed values; allowed: circle, square"
    )


def test_no_value_is_ever_repeated() -> None:
    secret = "hunter2-hunter2"
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"pattern": "^x$"},
            "c": {"enum": ["y"]},
            "d": {"anyOf": [{"type": "integer"}, {"format": "date"}]},
            "e": {"type": "array", "items": {"maxLength": 3}, "uniqueItems": True},
            "f": {"not": {"type": "string"}},
        },
    }
    value: dict[str, Any] = dict.fromkeys("abcdf", secret)
    fault = refusal(schema, {**value, "e": [secret, secret]})
    assert len((fault.details or {})["faults"]) == 8
    assert secret not in fault.message
    assert secret not in str(fault.details)


def test_messages_are_bounded_and_printable() -> None:
    many = refusal(ADD, {f"\x1b[31m{i}\n" + "k" * 500: i for i in range(200)})
    assert len(many.message) <= 1500
    assert many.message.isprintable()
    assert "more faults" in many.message
    assert len((many.details or {})["faults"]) == 10


def test_a_flood_of_faults_is_told_in_bounded_time() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "null"}}}}
    begun = time.monotonic()
    assert "/a/0: expected null" in refusal(schema, {"a": [1] * 200_000}).message
    assert time.monotonic() - begun < 10


# --- defaults and coercion -----------------------------------------------------------------------


def test_defaults_are_added_where_keys_are_missing_and_the_input_is_left_alone() -> None:
    value = {"query": "xx", "items": [{"price": 1}, {"price": 2, "unit": "USD"}]}
    before = copy.deepcopy(value)
    assert Schema(SEARCH).admit(value) == {
        "query": "xx",
        "limit": 10,
        "items": [{"price": 1, "unit": "EUR"}, {"price": 2, "unit": "USD"}],
    }
    assert value == before


def test_defaults_are_found_through_references_and_combinations() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/sized"},
            "b": {"allOf": [{"$ref": "#/$defs/sized"}]},
            "c": {"anyOf": [{"$ref": "#/$defs/sized"}, {"type": "null"}]},
            "d": {"$ref": "#/$defs/five"},
            "e": {"type": "object", "default": {}, "properties": {"x": {"default": 1}}},
            "f": {"additionalProperties": {"$ref": "#/$defs/sized"}},
        },
        "$defs": {
            "sized": {"type": "object", "properties": {"size": {"default": 3}}},
            "five": {"type": "integer", "default": 5},
        },
    }
    verify_input(schema)
    assert Schema(schema).admit({"a": {}, "b": {}, "c": {}, "f": {"g": {}}}) == {
        "a": {"size": 3},
        "b": {"size": 3},
        "c": {"size": 3},
        "d": 5,
        "e": {"x": 1},
        "f": {"g": {"size": 3}},
    }


def test_defaults_reach_into_recursive_data() -> None:
    tree = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}, "n": {"default": 0}},
    }
    verify_input(tree)
    assert Schema(tree).admit({"kids": [{"kids": [{}]}]}) == {
        "n": 0,
        "kids": [{"n": 0, "kids": [{"n": 0}]}],
    }


def test_a_default_is_never_shared_between_calls() -> None:
    schema = Schema({"type": "object", "properties": {"tags": {"type": "array", "default": []}}})
    schema.admit({})["tags"].append("mine")
    assert schema.admit({}) == {"tags": []}


@pytest.mark.parametrize(
    ("child", "message"),
    [
        ({"type": "integer", "default": "x"}, "expected integer"),
        ({"type": "string", "default": None}, "expected string"),
        ({"type": "integer", "minimum": 3, "default": 1}, "must be at least 3"),
        ({"$ref": "#/$defs/n", "default": 0}, "must be at least 1"),
        ({"enum": ["a"], "default": "b"}, "must be a; allowed: a"),
    ],
)
def test_a_default_that_does_not_fit_is_told_of_and_not_filled_in(child: Any, message: str) -> None:
    schema = {
        "type": "object",
        "properties": {"a/b": child, "good": {"type": "integer", "default": 5}},
        "$defs": {"n": {"type": "integer", "minimum": 1}},
    }
    verify_input(schema)
    assert [(one.at, one.problem) for one in faulty_defaults(schema)] == [
        (("properties", "a/b"), message)
    ]
    assert Schema(schema).admit({}) == {"good": 5}


def test_a_required_parameter_with_a_default_is_still_missing() -> None:
    inner = {"type": "object", "properties": {"b": {"default": 1}}, "required": ["b"]}
    schema = {"type": "object", "properties": {"a": {"type": "integer", "default": 1}, "c": inner}}
    missing = refusal({**schema, "required": ["a"]}, {}).message
    assert missing == "Missing required parameter: a"
    assert refusal(schema, {"c": {}}).message.startswith("/c")
    assert Schema(schema).admit({"c": {"b": 2}}) == {"a": 1, "c": {"b": 2}}


ONE = {"default": 1}


@pytest.mark.parametrize(
    ("more", "sent"),
    [
        ({"dependentRequired": {"a": ["b"]}}, {}),
        ({"allOf": [{"properties": {"a": {"maximum": 3}}}]}, {}),
        ({"maxProperties": 1}, {"b": 1}),
        ({"not": {"required": ["a"]}}, {}),
        ({"properties": {"a": {"default": 5}}, "enum": [{}]}, {}),
        (
            {"properties": {"l": {"uniqueItems": True, "items": {"properties": {"x": ONE}}}}},
            {"l": [{}, {"x": 1}]},
        ),
    ],
)  # fmt: skip
def test_a_default_never_makes_valid_arguments_invalid(more: Any, sent: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "default": 5}}, **more}
    verify_input(schema)
    assert Schema(schema).admit(sent) == sent


def test_a_default_never_makes_invalid_arguments_valid() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "default": 5}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    refusal(schema, {})
    assert Schema(schema).admit({"b": 1}) == {"a": 5, "b": 1}


def test_a_schema_of_draft_4_means_the_same_with_its_bounds_as_numbers() -> None:
    schema = {
        "$schema": DRAFT_4,
        "id": "urn:mine",
        "type": "object",
        "properties": {
            "id": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            "b": {"$ref": "urn:mine#/definitions/b"},
        },
        "definitions": {"b": {"id": "#b", "type": "string", "const": "ignored in Draft 4"}},
    }
    now = verify_input(schema)
    assert now == {
        "$schema": "http://json-schema.org/draft-06/schema#",
        "$id": "urn:mine",
        "type": "object",
        "properties": {
            "id": {"type": "number", "exclusiveMinimum": 0},
            "b": {"$ref": "urn:mine#/definitions/b"},
        },
        "definitions": {"b": {"$id": "#b", "type": "string"}},
    }
    for form in (schema, now):
        assert Schema(form).admit({"id": 1, "b": "x"}) == {"id": 1, "b": "x"}
        refusal(form, {"id": 0})
        refusal(form, {"b": 5})


@pytest.mark.parametrize("draft", [None, *DRAFTS])
def test_bounds_of_draft_4_are_understood_in_every_draft(draft: str | None) -> None:
    child = {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 9}
    schema = {"type": "object", "properties": {"a": {**child, "exclusiveMaximum": False}}}
    if draft is not None:
        schema["$schema"] = draft
    before = copy.deepcopy(schema)
    now = verify_input(schema)
    assert schema == before, "what was given is not changed"
    assert now["properties"]["a"] == {"type": "number", "exclusiveMinimum": 0, "maximum": 9}
    for form in (schema, now):
        assert Schema(form).admit({"a": 9}) == {"a": 9}
        refusal(form, {"a": 0})
        refusal(form, {"a": 10})


@pytest.mark.parametrize(
    ("child", "sent", "taken"),
    [
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, "5.0", 5),
        ({"type": "integer"}, 5.0, 5),
        ({"type": "integer"}, str(2**80), 2**80),
        ({"type": "number"}, "5.0", 5.0),
        ({"type": "number"}, "-2.5e3", -2500.0),
        ({"type": "boolean"}, "true", True),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "7", 7),
        ({"type": "array", "items": {"type": "integer"}}, ["1", 2, 3.0], [1, 2, 3]),
        ({"type": ["integer", "string"]}, "5", "5"),
        ({"type": "string"}, "5", "5"),
        (
            {"type": "object", "properties": {"x": {"type": "boolean"}}},
            {"x": "false"},
            {"x": False},
        ),
    ],
)
def test_coercion_takes_what_means_the_same(child: Any, sent: Any, taken: Any) -> None:
    schema = {"type": "object", "properties": {"a": child}}
    result = Schema(schema, coerce=True).admit({"a": sent})["a"]
    assert (result, type(result)) == (taken, type(taken))


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("integer", "5.5"),
        ("integer", " 5"),
        ("integer", "five"),
        ("boolean", "yes"),
        ("boolean", 1),
        ("string", 5),
        ("number", "nan"),
        ("number", "0.12345678901234567890"),
        ("null", "null"),
    ],
)
def test_coercion_never_guesses(kind: str, sent: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": kind}}}
    with pytest.raises(InvalidArguments):
        Schema(schema, coerce=True).admit({"a": sent})


def test_nothing_is_coerced_unless_asked() -> None:
    assert refusal(ADD, {"a": "1", "b": 2}).message == "/a: expected integer, got string"
    assert refusal(ADD, {"a": True, "b": 2}).message.startswith("/a: expected integer")


def test_a_whole_number_is_an_integer_however_it_was_written() -> None:
    """``1.0`` and ``1`` are one number in JSON; a tool that wants an integer gets one."""
    items = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    many = {"type": "object", "properties": {"many": items, "rate": {"type": "number"}}}
    given: dict[str, Any] = {"many": [{"n": 1.0, "x": 2.0}, {"n": 3}], "rate": 4.0}
    taken = Schema({**many, "required": []}).admit(given)
    assert repr(taken) == "{'many': [{'n': 1, 'x': 2.0}, {'n': 3}], 'rate': 4.0}"
    assert type(given["many"][0]["n"]) is float
    assert gives_whole_numbers(many) and not gives_whole_numbers({**many, "not": {}})
    assert (
        refusal(ADD, {"a": 1.5, "b": 2}).message
        == "/a: expected integer, got number with a fraction"
    )
    assert Schema(ADD).admit({"a": 10**30, "b": -(2**70)}) == {"a": 10**30, "b": -(2**70)}


@given(
    st.sets(st.sampled_from("abc")),
    st.booleans(),
    st.dictionaries(
        st.sampled_from("abcd"), st.sampled_from([1, 2.5, "x", None, True]), max_size=4
    ),
)
def test_where_all_properties_are_required_and_no_others_none_is_missing_and_none_too_many(
    required: set[str], closed: bool, item: dict[str, Any]
) -> None:
    """Judged by their number, they are judged as by their names."""
    one = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "number"}},
        "required": sorted(required),
        "additionalProperties": not closed,
    }
    native = Schema(
        {**ADD, "properties": {"a": {"type": "array", "items": one}}, "required": ["a"]}
    ).native()
    kinds: dict[str, tuple[type, ...]] = {"a": (int,), "b": (str,), "c": (int, float)}
    fits = required <= item.keys() and (item.keys() <= kinds.keys() or not closed)
    fits = fits and all(type(item[name]) in kinds[name] for name in kinds.keys() & item.keys())
    assert native is None or native({"a": [item, item]}) == fits
    assert closed <= (native is not None)


WORDS = {
    "type": "object",
    "properties": {
        "words": {"type": "array", "items": {"type": "string"}},
        "kind": {"type": "string", "enum": ["bad", "good"]},
        "number": {"type": "integer"},
    },
    "required": ["words"],
    "additionalProperties": False,
}


@given(
    st.fixed_dictionaries(
        {"words": st.lists(st.sampled_from(["good", "bad", "a bad one", "\n", "é"]) | st.none())},
        optional={
            "kind": st.sampled_from(["bad", "good", "other"]),
            "number": st.sampled_from([1, 1.0, 1.5, 10**30, True]),
            "bad": st.just(1),
        },
    )
)
def test_native_code_tells_arguments_with_a_text_that_a_pattern_matches_in(
    value: dict[str, Any],
) -> None:
    schema = Schema(WORDS)
    native, without = schema.native(), schema.without(r"(?-u:\b)bad(?-u:\b)")
    assert native is not None and without is not None
    assert without(value) == (native(value) and not any("bad" in word for word in value["words"]))


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        (WORDS, "("),
        ({**WORDS, "x-raw": True}, "bad"),
        ({**WORDS, "additionalProperties": True}, "bad"),
        ({**WORDS, "properties": {"words": {"type": "string", "default": "x"}}}, "bad"),
    ],
)
def test_what_is_not_certain_is_not_left_to_native_code(schema: Any, pattern: str) -> None:
    assert Schema(schema).without(pattern) is None


def test_arguments_that_native_code_alone_decides_on_are_not_looked_at_by_python() -> None:
    assert Schema({**ADD, "additionalProperties": False}).native() is not None
    assert Schema({"type": "object", "properties": {"a": {"default": 1}}}).native() is None
    assert Schema({"properties": {}, "additionalProperties": False}).native() is None


# --- verification --------------------------------------------------------------------------------


@pytest.mark.req("FM-3")
@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "strnig"}, "/type: must be one or a list of: array, boolean"),
        ({"properties": {"a": {"type": 5}}}, "/properties/a/type: must be one or a list of"),
        ({"properties": []}, "/properties: expected object, got array"),
        ({"required": "a"}, "/required: expected array, got string"),
        ({"properties": {"a": {"minimum": "5"}}}, "/properties/a/minimum: expected number"),
        ({"maxLength": -1}, "/maxLength: must be at least 0"),
        ({"pattern": "["}, "/pattern: is not a valid regular expression"),
        ({"patternProperties": {"[": {}}}, "/patternProperties/[: is not a valid regular"),
        ({"$schema": "http://example.org/mine"}, "/$schema: must be registered or one of: http"),
        ({"properties": {"a": 3}}, "/properties/a: expected"),
        ({"enum": {1, 2}}, "/enum: set is not a JSON value"),
        ({"$ref": "#/$defs/nope"}, "/$ref: refers to a place in this schema that does not exist"),
        ({"$ref": "#nope"}, "/$ref: refers to an anchor that does not exist"),
        ("{}", "top level: a JSON Schema is an object or a boolean"),
    ],
)
def test_a_wrong_schema_is_refused_with_the_place(schema: Any, message: str) -> None:
    assert refused(schema).startswith(message)


def test_the_place_is_also_given_as_a_path() -> None:
    with pytest.raises(InvalidSchema) as caught:
        verify({"properties": {"a/b": {"items": {"type": "x"}}}})
    assert caught.value.at == ("properties", "a/b", "items", "type")


@pytest.mark.parametrize("schema", [True, {}, {"type": "array"}, {"type": ["object", "null"]}])
def test_arguments_must_be_described_as_an_object(schema: Any) -> None:
    with pytest.raises(InvalidSchema, match='write "type": "object"'):
        verify_input(schema)


def test_an_object_may_go_without_saying() -> None:
    schema = {"properties": {"a": {"type": "integer"}}}
    verify_input(schema)
    assert refusal(schema, [1]).message == "expected object, got array"


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"$schema": DRAFT_4, "minimum": 3, "exclusiveMinimum": True}, 4, 3),
        ({"$schema": DRAFT_7, "items": [{"type": "null"}]}, [None], [1]),
        ({"$schema": DRAFT_2019, "minContains": 2, "contains": {}}, [1, 2], [1]),
        ({"prefixItems": [{"type": "null"}], "items": False}, [None], [None, 1]),
        ({"$ref": "#it", "$defs": {"x": {"$anchor": "it", "type": "null"}}}, None, 1),
        ({"$id": "u:a", "$ref": "u:b", "$defs": {"c": {"$id": "u:b", "type": "null"}}}, None, 1),
        ({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "null"}}}, None, 1),
        ({"unevaluatedProperties": False, "properties": {"a": {}}}, {"a": 1}, {"b": 1}),
    ],
)  # fmt: skip
def test_drafts_and_local_references_mean_what_they_say(schema: Any, good: Any, bad: Any) -> None:
    verify(schema)
    assert Schema(schema).check(good) == good
    with pytest.raises(InvalidOutput):
        Schema(schema).check(bad)


def test_schemas_as_people_write_them_pass() -> None:
    names = [f"field_{i}" for i in range(400)]
    wide = {
        "type": "object",
        "properties": {
            name: {
                "anyOf": [{"$ref": "#/$defs/money"}, {"type": "null"}],
                "description": "what it is " * 5,
            }
            for name in names
        },
        "$defs": {
            "money": {
                "type": "object",
                "properties": {f"p{i}": {"type": ["string", "null"]} for i in range(30)},
            }
        },
    }
    actions = {
        "oneOf": [
            {
                "type": "object",
                "properties": {"action": {"const": f"a{i}"}, "then": {"$ref": "#"}},
                "required": ["action"],
            }
            for i in range(60)
        ]
    }
    anything = {
        "anyOf": [
            {"type": ["string", "number", "boolean", "null"]},
            {"type": "array", "items": {"$ref": "#"}},
            {"type": "object", "additionalProperties": {"$ref": "#"}},
        ]
    }
    filters = {
        "anyOf": [
            {"properties": {"and": {"type": "array", "items": {"$ref": "#"}}}, "required": ["and"]},
            {"properties": {"or": {"type": "array", "items": {"$ref": "#"}}}, "required": ["or"]},
            {"properties": {"not": {"$ref": "#"}}, "required": ["not"]},
            {"properties": {"field": {"type": "string"}}, "required": ["field"]},
        ]
    }
    tree = {
        "properties": {
            side: {"anyOf": [{"$ref": "#"}, {"type": "null"}]} for side in ("left", "right")
        }
    }
    decimal = {"pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}
    host = {
        "pattern": r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$"
    }
    for schema in (wide, actions, anything, filters, tree, decimal, host):
        verify(schema)
    nested: dict[str, Any] = {"action": "a0"}
    for _ in range(25):
        nested = {"action": "a59", "then": nested}
    assert Schema(actions).check(nested) is nested


# --- attacks -------------------------------------------------------------------------------------


def fan_out(width: int, depth: int, keyword: str, *, below: bool) -> dict[str, Any]:
    """``depth`` definitions that each refer ``width`` times to the next."""

    def branch(i: int, j: int) -> Any:
        reference = {"$ref": f"#/$defs/d{i + 1}"}
        return {"properties": {"x": reference}, "minProperties": j} if below else reference

    defs: dict[str, Any] = {
        f"d{i}": {keyword: [branch(i, j) for j in range(width)]} for i in range(depth)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{depth}": {"type": "integer"}}}


def nest(keyword: str, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {keyword: schema}
    return schema


def in_lists(width: int, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"anyOf": [schema] * width}
    return schema


def dynamic(width: int, depth: int) -> dict[str, Any]:
    defs = {
        f"d{i}": {
            "$dynamicAnchor": f"d{i}",
            "anyOf": [{"$dynamicRef": f"#d{i + 1}"} for _ in range(width)],
        }
        for i in range(depth)
    }
    return {"$ref": "#d0", "$defs": {**defs, "end": {"$dynamicAnchor": f"d{depth}"}}}


@pytest.mark.parametrize(
    "schema",
    [
        fan_out(8, 13, "anyOf", below=False),
        fan_out(8, 13, "oneOf", below=False),
        fan_out(8, 13, "allOf", below=True),
        fan_out(8, 13, "anyOf", below=True),
        dynamic(8, 13),
        in_lists(8, 13),
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"$dynamicRef": "#a", "$dynamicAnchor": "a"},
        {
            "anyOf": [{"properties": {"c": {"$ref": "#"}}, "minProperties": i} for i in range(9)],
        },
        nest("not", 100_000),
        nest("items", 5_000),
        {"properties": {str(i): {} for i in range(60_000)}},
        {"enum": list(range(10_000))},
        {"properties": {str(i): {"pattern": f"a{i}"} for i in range(1_000)}},
        {"$defs": {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}]} for i in range(5_000)}
         | {"a5000": {}}, "$ref": "#/$defs/a0"},
    ],
    ids=lambda schema: "bomb",
)  # fmt: skip
def test_a_schema_bomb_is_refused_at_once(schema: Any) -> None:
    begun = time.monotonic()
    refused(schema)
    with pytest.raises(InvalidSchema):
        Schema(schema).check({"x": 1})
    assert time.monotonic() - begun < 5


def test_a_schema_that_grows_with_the_value_bounds_the_value() -> None:
    schema = {
        "anyOf": [{"properties": {"c": {"$ref": "#"}}, "minProperties": i} for i in range(2)]
        + [{"type": "integer"}]
    }
    verify(schema)
    deep: Any = {"c": "x"}
    for _ in range(50):
        deep = {"c": deep}
    begun = time.monotonic()
    with pytest.raises(InvalidOutput, match="too large or too deeply nested"):
        Schema(schema).check(deep)
    assert Schema(schema).check({"c": {"c": 3}}) == {"c": {"c": 3}}
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    "pattern",
    [
        "(a{1000}){1000}",
        "a{1000}{1000}",
        "(" * 300 + "a" + ")" * 300,
        "a" * 3_000,
        r"^(?=(a+)+$).*\1",
        r"((?!x)a*)*b",
        "(?:a?){9999}a{9999}",
        "[" * 500,
    ],
)
def test_a_pattern_that_costs_too_much_is_refused(pattern: str) -> None:
    begun = time.monotonic()
    assert refused({"properties": {"a": {"pattern": pattern}}}).startswith("/properties/a/pattern")
    assert refused({"patternProperties": {pattern: {}}}).startswith("/patternProperties")
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^(a+)+$", "a" * 50_000 + "b"),
        ("^(a|aa)+$", "a" * 50_000 + "b"),
        ("(?=.*a)(?=.*b).*c", "ab" * 50_000),
        (r"^(.*).*.*\1x$", "ab" * 300),
        (r"(?:a?){2000}a{2000}", "a" * 100_000),
        (r"^(?=.*x)(?=.*y).*z", "xy" * 50_000),
    ],
)
def test_no_text_makes_a_pattern_run_away(pattern: str, text: str) -> None:
    schema = {"type": "object", "properties": {"a": {"pattern": pattern}}}
    verify_input(schema)
    begun = time.monotonic()
    assert refusal(schema, {"a": text}).message.startswith("/a: ")
    assert time.monotonic() - begun < 10


def test_a_pattern_with_look_ahead_works_on_ordinary_text() -> None:
    schema = Schema({"type": "object", "properties": {"a": {"pattern": r"^(?!\s*$).+"}}})
    assert schema.admit({"a": "text " * 1000})
    with pytest.raises(InvalidArguments, match="/a: must match the pattern"):
        schema.admit({"a": "   "})


def test_a_pattern_for_keys_may_look_ahead() -> None:
    schema = {
        "type": "object",
        "patternProperties": {"^(?!_)[a-z_]+$": {"type": "integer"}},
        "properties": {"Name": {"type": "string"}},
        "additionalProperties": False,
    }
    verify_input(schema)
    assert Schema(schema).admit({"Name": "x", "a_b": 1}) == {"Name": "x", "a_b": 1}
    for wrong in ({"_a": 1}, {"a": "x"}, {"a" * 200_000: 1}, {"Name": 1}):
        refusal(schema, wrong)


FIFTY = [{"pattern": f"^(?=(a|aa)+x{n})"} for n in range(50)]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"items": {"pattern": r"^(?=(a|aa|aaa)+\1c)"}}}},
        {"properties": {"a": {"items": {"not": {"pattern": r"(?!x)(.*)(.*)(.*)\1\2y"}}}}},
        {"properties": {"a": {"items": {"allOf": FIFTY}}}},
        {"properties": {"b": {"patternProperties": {r"^(?=(a|aa|aaa)+\1c)": {"type": "null"}}}}},
    ],
)
def test_many_texts_do_not_make_a_pattern_run_away(schema: Any) -> None:
    texts = ["a" * 60 + str(index) for index in range(8_000)]
    begun = time.monotonic()
    refusal({"type": "object", **schema}, {"a": texts, "b": dict.fromkeys(texts, 1)})
    assert time.monotonic() - begun < 30, "each text has its limit; all of them together have one"


@contextmanager
def registered(schemas: dict[str, Any]) -> Iterator[None]:
    register_schemas(schemas)
    try:
        yield
    finally:
        for address in schemas:
            remove_schema(address)


META = "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_parameter_may_be_a_schema_by_its_meta_schema(draft: str) -> None:
    schema = {"$schema": draft, "type": "object", "properties": {"s": {"$ref": draft}}}
    verify_input(schema)
    assert Schema(schema).admit({"s": {"properties": {"a": {"type": "string"}}}})
    assert refusal(schema, {"s": {"properties": {"a": {"type": 5}}}}).message.startswith("/s")


def test_a_registered_schema_is_found_by_its_address() -> None:
    money = {"type": "object", "properties": {"unit": {"$ref": "unit#/$defs/name"}}}
    unit = {"$id": "urn:units", "$defs": {"name": {"enum": ["EUR"]}}}
    addresses = {"https://example.com/money": money, "https://example.com/unit": unit}
    schema = {"type": "object", "properties": {"price": {"$ref": "https://example.com/money"}}}
    assert "is not fetched" in refused(schema)
    with registered(addresses):
        verify_input(schema)
        assert Schema(schema).admit({"price": {"unit": "EUR"}}) == {"price": {"unit": "EUR"}}
        assert refusal(schema, {"price": {"unit": "USD"}}).message.startswith("/price/unit")
        with pytest.raises(InvalidSchema, match="another schema is registered"):
            register_schemas({"https://example.com/money": {}})
    assert "is not fetched" in refused(schema)


@pytest.mark.parametrize(
    ("address", "schema", "message"),
    [
        ("money", {}, "is absolute"),
        ("urn:a#b", {}, "has no fragment"),
        (META, {}, "addresses of the standard"),
        ("urn:a", {"type": "strnig"}, "must be one or a list of"),
        ("urn:a", {"$ref": "urn:b"}, "is not fetched"),
        ("urn:a", {"pattern": "(a{1000}){1000}"}, "counted repetitions"),
        ("urn:a", {"$ref": "urn:a"}, "refers to itself"),
    ],
)
def test_what_cannot_be_registered_is_refused_and_not_kept(
    address: str, schema: Any, message: str
) -> None:
    with pytest.raises(InvalidSchema, match=message):
        register_schemas({address: schema})
    assert "is not fetched" in refused({"$ref": "urn:a"})


def test_a_registered_schema_of_another_draft_is_refused() -> None:
    draft_7 = "http://json-schema.org/draft-07/schema#"
    with registered({"urn:old": {"$schema": draft_7, "type": "string"}}):
        assert "another draft" in refused({"$ref": "urn:old"})
        verify({"$schema": draft_7, "$ref": "urn:old"})


def test_a_registered_dialect_says_which_keywords_count() -> None:
    dialect = {
        "$schema": META,
        "$id": "urn:dialect",
        "$vocabulary": {
            "https://json-schema.org/draft/2020-12/vocab/core": True,
            "https://json-schema.org/draft/2020-12/vocab/applicator": True,
        },
        "$dynamicAnchor": "meta",
        "allOf": [
            {"$ref": "https://json-schema.org/draft/2020-12/meta/applicator"},
            {"$ref": "https://json-schema.org/draft/2020-12/meta/core"},
        ],
    }
    schema = {"$schema": "urn:dialect", "properties": {"no": False, "n": {"minimum": 5}}}
    with registered({"urn:dialect": dialect}):
        verify(schema)
        assert Schema(schema).check({"n": 1}) == {"n": 1}, "no vocabulary has minimum"
        for wrong in ({"no": 1}, {"n": float("nan")}, {"n": object()}):
            with pytest.raises(InvalidOutput):
                Schema(schema).check(wrong)
        look_around = {**schema, "properties": {"a": {"pattern": "^(?=a)"}}}
        assert "no dialect of its own" in refused(look_around)


def test_a_dynamic_reference_is_closed_only_if_all_that_it_may_mean_is() -> None:
    schema = {
        "$id": "urn:root",
        "$ref": "urn:list",
        "$defs": {
            "open": {"$dynamicAnchor": "item"},
            "list": {
                "$id": "urn:list",
                "type": "array",
                "items": {"$dynamicRef": "#item"},
                "$defs": {"item": {"$dynamicAnchor": "item", "type": "integer"}},
            },
        },
    }
    verify(schema)
    assert Schema(schema).check(["x"]) == ["x"], "the open one is meant"
    for wrong in ([float("nan")], [object()]):
        with pytest.raises(InvalidOutput):
            Schema(schema).check(wrong)


@contextmanager
def a_server_that_counts() -> Iterator[tuple[int, list[bytes]]]:
    seen: list[bytes] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            seen.append(self.request.recv(100))
            self.request.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1], seen
        finally:
            server.shutdown()
            thread.join(5)


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$recursiveRef", "$schema", "$id"])
def test_nothing_is_ever_fetched_over_the_network(keyword: str) -> None:
    with a_server_that_counts() as (port, seen):
        address = f"http://127.0.0.1:{port}/schema"
        schema: dict[str, Any] = {"properties": {"a": {keyword: address}}}
        if keyword == "$schema":
            schema = {keyword: address}
        if keyword == "$id":
            schema = {"$id": address, "properties": {"a": {"$ref": "other.json"}}}
        where = "/$schema" if keyword == "$schema" else "/properties/a/"
        assert refused(schema).startswith(where)
        with pytest.raises(InvalidSchema):
            Schema(schema).check({"a": 1})
        assert seen == []


def test_no_file_is_ever_read(tmp_path: Any) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "integer"}')
    for address in (file.as_uri(), str(file), "schema.json"):
        assert "is not fetched" in refused({"properties": {"a": {"$ref": address}}})


def test_threads_may_share_a_schema_from_its_first_use_on() -> None:
    for _ in range(20):
        schema = Schema(SEARCH)
        barrier = threading.Barrier(8)

        def use(i: int, schema: Schema = schema, barrier: threading.Barrier = barrier) -> Any:
            barrier.wait(10)
            return schema.admit({"query": f"q{i}"})

        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(use, range(8)))
        assert results == [{"query": f"q{i}", "limit": 10} for i in range(8)]
