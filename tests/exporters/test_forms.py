"""Anthropic's, Gemini's and MCP's forms."""

from __future__ import annotations

from typing import Any

import pytest

from tests.exporters.schemas import spec_of
from tests.exporters.test_openai import one
from tests.exporters.vendors import schema_read
from toolpost.exporters import Note, export
from toolpost.spec import ToolSpec


def gemini(schema: dict[str, Any]) -> Any:
    (tool,) = export([spec_of(schema)], "gemini").tools
    return schema_read("gemini", tool)


@pytest.mark.req("FG-5")
def test_anthropic_gets_the_examples_that_fit() -> None:
    spec = ToolSpec(
        name="add.two",
        description="Add.",
        input_schema=one({"type": "integer"}),
        examples=({"a": 1}, {"a": "one"}),
    )
    assert export([spec], "anthropic").tools == (
        {
            "name": "add__two",
            "description": "Add.",
            "input_schema": spec.input_schema,
            "input_examples": [{"a": 1}],
        },
    )


@pytest.mark.req("FG-5")
def test_strict_at_anthropic_keeps_optional_what_is_optional() -> None:
    schema = one({"type": "integer", "minimum": 1}, required=[])
    made = export([spec_of(schema)], "anthropic", strict=True)
    assert made.tools[0]["strict"] is True
    assert made.tools[0]["input_schema"] == {
        "type": "object",
        "properties": {"a": {"type": "integer", "description": "(minimum: 1)"}},
        "additionalProperties": False,
    }
    circle = export([spec_of(one({"$ref": "#"}, required=[]))], "anthropic", strict=True)
    assert "strict" not in circle.tools[0]
    assert circle.notes[0].what == "is not strict: the top level: it holds itself"


@pytest.mark.req("FG-5")
@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"const": "x"}, {"type": "string", "enum": ["x"]}),
        (
            {"enum": ["x", None]},
            {"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "null"}]},
        ),
        ({"const": True}, {"type": "boolean"}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"type": ["array", "null"], "items": {"type": "string"}},
            {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        ),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer"}], "description": "Either."},
            {"description": "Either.", "anyOf": [{"type": "string"}, {"type": "integer"}]},
        ),
        (
            {"$ref": "#/$defs/n", "description": "How many."},
            {"description": "How many.", "anyOf": [{"$ref": "#/$defs/n"}]},
        ),
        (
            {"type": "string", "maxLength": 5, "default": "x"},
            {"type": "string", "description": '(maxLength: 5, default: "x")'},
        ),
        (True, {}),
        (
            {"type": "object", "patternProperties": {"^x": {"type": "string"}}},
            {"type": "object", "properties": {}},
        ),
    ],
)
def test_gemini_gets_what_it_knows(given: Any, written: Any) -> None:
    schema = one(given, **{"$defs": {"n": {"type": "integer"}}})
    assert gemini(schema)["properties"]["a"] == written


def test_gemini_gets_a_circle_only_where_a_value_need_not_go_round() -> None:
    need_not = one({"$ref": "#"}, required=[])
    assert gemini(need_not)["properties"]["a"] == {"$ref": "#/$defs/root"}
    made = export([spec_of(one({"type": "array", "items": {"$ref": "#"}}))], "gemini")
    read = schema_read("gemini", made.tools[0])
    items = read["$defs"]["root"]["properties"]["a"]["items"]
    assert (read["properties"]["a"]["items"], items) == ({"$ref": "#/$defs/root"}, {})
    assert [note.what for note in made.notes] == ["#/$defs/root is any value where it holds itself"]


@pytest.mark.parametrize("form", ["gemini", "mcp"])
def test_who_has_no_strict_mode_is_said_once(form: str) -> None:
    specs = [spec_of({"type": "object"}, name) for name in "ab"]
    made = export(specs, form, strict=True)
    assert made.notes == (Note("", "", f"{form} has no strict mode: nothing is strict"),)
    assert made.tools == export(specs, form).tools


@pytest.mark.req("FG-5", "UX-2")
def test_mcp_gets_the_names_as_they_are_and_all_the_hints() -> None:
    spec = ToolSpec(
        name="rows.drop",
        title="Drop rows",
        description="Drop them.",
        input_schema={"properties": {"a": True}},
        output_schema={"type": "integer"},
        tier=3,
    )
    made = export([spec], "mcp")
    assert made.tools == (
        {
            "name": "rows.drop",
            "title": "Drop rows",
            "description": "Drop them.",
            "inputSchema": {"type": "object", "properties": {"a": {}}},
            "outputSchema": {
                "type": "object",
                "properties": {"result": {"type": "integer"}},
                "required": ["result"],
            },
            "annotations": {
                "title": "Drop rows",
                "readOnlyHint": False,
                "destructiveHint": True,
                "idempotentHint": False,
                "openWorldHint": False,
            },
        },
    )
    assert {note.where for note in made.notes} == {"", "output_schema"}
    assert schema_read("mcp", made.tools[0]) == made.tools[0]["inputSchema"]
