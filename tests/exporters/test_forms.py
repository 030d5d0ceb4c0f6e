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
@pytest.mark.parametrize("strict", [False, True])
def test_anthropic_gets_parameters_of_names_that_it_takes_and_the_tool_its_own(
    strict: bool,
) -> None:
    number = {"type": "integer"}
    names = ["filter[name]", "filter(name)", "$top", "größe", "x" * 70, "legal.name-1", "_top"]
    schema = {
        "type": "object",
        "properties": dict.fromkeys(names, number),
        "required": ["$top"],
        "additionalProperties": False,
    }
    spec = ToolSpec(name="list", description="List.", input_schema=schema, examples=({"$top": 1},))
    made = export([spec], "anthropic", strict=strict)
    (tool,) = made.tools
    keys = list(tool["input_schema"]["properties"])
    assert (keys[0], keys[3], keys[5:]) == ("filter_name_", "gr__e", names[5:])
    assert len(set(keys)) == len(keys) and all(len(key) <= 64 for key in keys)
    assert tool["input_schema"]["required"] == [keys[2]] == list(tool["input_examples"][0])
    assert tool["input_schema"]["properties"]["filter_name_"]["description"] == "(filter[name])"
    said = {key: number for number, key in enumerate(keys)}
    assert list(made.arguments_of("list", said)) == names
    assert "/properties: '$top' is" in "\n".join(map(str, made.notes))
    assert export([spec], "openai").keys == {}


def test_attack_a_parameter_of_a_strange_name_costs_one_tool_at_most() -> None:
    inner = {"type": "object", "properties": {"a b": {"type": "string"}, "in": {"$ref": "#"}}}
    far = {**inner, "properties": {"a b": {"type": "string"}, "c": {"$ref": "#/properties/a b"}}}
    tools = [spec_of(inner, "itself"), spec_of(far, "far"), spec_of({"type": "object"}, "good")]
    made = export(tools, "anthropic")
    assert list(made.names) == ["good"]
    assert [note.tool for note in made.left_out] == ["itself", "far"]


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


def test_gemini_gets_no_name_that_one_of_its_services_refuses() -> None:
    made = export(
        [spec_of({"type": "object"}, "x" * 65), spec_of({"type": "object"}, "3d")], "gemini"
    )
    assert [len(name) for name in made.names] == [64, 3]
    assert [made.name_of(tool["name"]) for tool in made.tools] == ["x" * 65, "3d"]


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
