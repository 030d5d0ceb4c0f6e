"""Outputs: what a tool gave back is plain, fits its schema and its size, or is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings

from tests.specs import values
from toolpost import (
    CallError,
    Image,
    InvalidOutput,
    Limits,
    Output,
    OutputTooLarge,
    Resource,
    Text,
    ToolSpec,
)
from toolpost.output import finisher
from toolpost.result import Metadata

SCHEMAS = [
    None,
    True,
    {"type": "integer"},
    {"type": "number"},
    {"type": "string"},
    {"type": "array"},
]


def finish(value: Any, schema: Any = None, *, most: int = 1000) -> Any:
    spec = ToolSpec(name="a", description="d", output_schema=schema, limits=Limits(output=most))
    return finisher(spec)(value, Metadata())


@settings(deadline=None)
@given(values)
def test_plain_data_without_a_schema_passes_as_it_is(value: Any) -> None:
    assert finish(value, most=10**9) == (value, ())


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (3, {"type": "integer"}),
        (2**80, {"type": "integer"}),
        (True, {"type": "boolean"}),
        (None, {"type": "null"}),
        (2.5, {"type": "number"}),
        ("é", {"type": "string"}),
        ([1], {"type": "array", "items": {"type": "integer"}}),
        ({"a": 1}, {"type": "object", "required": ["a"]}),
    ],
)
def test_what_fits_its_schema_passes(value: Any, schema: Any) -> None:
    assert finish(value, schema) == (value, ())


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("3", {"type": "integer"}),
        (True, {"type": "integer"}),
        (1, {"type": "boolean"}),
        (None, {"type": "string"}),
        ({}, {"type": "object", "required": ["a"]}),
        (1, False),
    ],
)
def test_what_does_not_fit_its_schema_is_refused(value: Any, schema: Any) -> None:
    with pytest.raises(InvalidOutput) as caught:
        finish(value, schema)
    assert caught.value.effects == "done"


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        10**5000,
        -(10**5000),
        "\udc80",
        {"a": "\udc80"},
        {"a": math.nan},
        {"a": 10**5000},
        [object()],
        {1: 2},
        b"bytes",
        {"a": {1, 2}},
        lambda: None,
    ],
    ids=range(13),
)
def test_what_no_door_can_send_is_refused(value: Any, schema: Any) -> None:
    with pytest.raises(InvalidOutput):
        finish(value, schema, most=10**9)


def test_data_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidOutput):
        finish(loop)


@pytest.mark.parametrize(
    "value",
    ["x" * 999, "\0" * 200, "é" * 500, ["x" * 999], {"a": list(range(400))}, 10**1001],
    ids=["text", "escapes", "wide", "list", "dict", "integer"],
)
def test_too_much_output_is_refused_with_both_sizes(value: Any) -> None:
    with pytest.raises(
        OutputTooLarge, match=r"the limit is 1,000. Ask for less at a time"
    ) as caught:
        finish(value)
    assert caught.value.details is not None
    assert caught.value.details["size"] > caught.value.details["limit"] == 1000


@pytest.mark.parametrize("value", ["x" * 998, "\0" * 166, "é" * 499, ["x" * 996]])
def test_output_up_to_the_limit_passes(value: Any) -> None:
    assert finish(value) == (value, ())


def test_parts_travel_beside_the_data() -> None:
    parts = (Text("hello"), Image(b"png"), Resource("file:///a"))
    assert finish(Output({"n": 1}, parts), {"type": "object"}) == ({"n": 1}, parts)


def test_a_tool_that_gives_only_parts_owes_no_data() -> None:
    assert finish(Output(None, (Text("hello"),)), {"type": "object"}) == (None, (Text("hello"),))


def test_data_beside_parts_must_fit_the_schema_too() -> None:
    with pytest.raises(InvalidOutput):
        finish(Output("x", (Text("hello"),)), {"type": "object"})
    with pytest.raises(InvalidOutput):
        finish(Output(), {"type": "object"})


def test_parts_count_against_the_limit() -> None:
    with pytest.raises(OutputTooLarge):
        finish(Output(1, (Image(b"x" * 500), Image(b"x" * 500))))


@pytest.mark.parametrize("part", ["text", {"type": "text"}, None, Text("\udc80")])
def test_a_part_that_is_none_is_refused(part: Any) -> None:
    with pytest.raises(CallError) as caught:
        finish(Output(None, (part,)))
    assert caught.value.code == "OUTPUT_INVALID"
