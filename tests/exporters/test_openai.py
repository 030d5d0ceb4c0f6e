"""OpenAI's forms, LangChain's, and what makes a schema strict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.exporters.schemas import spec_of
from tests.exporters.vendors import schema_read
from toolpost.exporters import Export, Note, export
from toolpost.schema import Schema
from toolpost.spec import ToolSpec

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "description": "Which file."},
        "lines": {"type": "integer", "minimum": 1, "default": 20},
        "mode": {"enum": ["text", "bytes"], "description": "How."},
        "note": {"type": ["string", "null"]},
    },
    "required": ["path"],
    "additionalProperties": False,
}
READ = ToolSpec(name="files.read", description="Read a file.", input_schema=SCHEMA)


def strictly(schema: dict[str, Any], form: str = "openai") -> Export:
    return export([spec_of(schema)], form, strict=True)


def parameters_of(made: Export) -> Any:
    (tool,) = made.tools
    return tool["function"]["parameters"]


def one(schema: Any, **rest: Any) -> dict[str, Any]:
    """A tool's schema with one parameter, which it needs."""
    closed = {"additionalProperties": False, "required": ["a"]}
    return {"type": "object", "properties": {"a": schema}, **closed, **rest}


@pytest.mark.req("FG-5", "UX-2")
def test_a_function_is_the_spec_with_nothing_lost() -> None:
    function = {"name": "files__read", "description": "Read a file.", "parameters": SCHEMA}
    assert export([READ], "openai").tools == ({"type": "function", "function": function},)
    (response,) = export([READ], "openai-responses").tools
    assert response == {"type": "function", "strict": False, **function}
    assert export([READ], "langchain").tools == (function,)


@pytest.mark.req("FG-5")
def test_a_strict_function_names_every_property_and_takes_no_other() -> None:
    made = export([READ], "openai", strict=True)
    assert made.tools[0]["function"] == {
        "name": "files__read",
        "description": "Read a file.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Which file. (minLength: 1)"},
                "lines": {
                    "type": ["integer", "null"], "minimum": 1, "description": "(default: 20)",
                },
                "mode": {
                    "type": ["string", "null"],
                    "enum": ["text", "bytes", None],
                    "description": "How.",
                },
                "note": {"type": ["string", "null"]},
            },
            "required": ["path", "lines", "mode", "note"],
            "additionalProperties": False,
        },
    }  # fmt: skip
    assert made.notes == (
        Note("files.read", "name", "is files__read there"),
        Note("files.read", "/properties/path/minLength", "is said in the description"),
        Note("files.read", "/properties/lines/default", "is said in the description"),
        Note("files.read", "", "null leaves out, and has to: lines, mode"),
    )
    given = {"path": "x", "lines": None, "mode": None, "note": None}
    assert made.arguments_of("files__read", given) == {"path": "x", "note": None}


@pytest.mark.req("FG-5")
@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (one({}), "/properties/a: any value is taken"),
        (one(True), "/properties/a: any value is taken"),
        (one({"type": "array"}), "/properties/a/items: any value is taken"),
        (one({"type": "object"}), "/properties/a: properties of any name are taken"),
        (
            one({"type": "object", "additionalProperties": {"type": "string"}}),
            "/properties/a: properties of any name are taken",
        ),
        (one({"enum": [{"k": 1}]}), "/properties/a: objects or arrays are listed as its values"),
        (one({"enum": [f"v{n}" for n in range(1001)]}), "it lists more than 1,000 values"),
        (
            one({"enum": [f"{n:0>60}" for n in range(251)]}),
            "a list of values has more than 15,000 characters",
        ),
        (
            one({"enum": ["x" * 120_001]}),
            "its names and values have more than 120,000 characters",
        ),
    ],
)
def test_what_cannot_be_strict_is_exported_as_it_is_with_the_reason(
    schema: dict[str, Any], why: str
) -> None:
    made = strictly(schema)
    assert "strict" not in made.tools[0]["function"]
    assert why in made.notes[0].what and made.notes[0].what.startswith("is not strict: ")
    assert schema_read("openai", made.tools[0])["properties"]["a"] is not None


def test_a_strict_schema_is_not_too_deep() -> None:
    def nested(levels: int) -> dict[str, Any]:
        schema = one({"type": "string"})
        for _ in range(levels):
            schema = one(schema)
        return schema

    assert strictly(nested(8)).tools[0]["function"]["strict"]
    assert "nested more than 10 levels" in str(strictly(nested(9)).notes[0])


def test_a_strict_schema_has_not_too_many_properties() -> None:
    many = {f"p{n}": {"type": "string"} for n in range(5001)}
    made = strictly(one({"type": "object", "properties": many, "additionalProperties": False}))
    assert "more than 5,000 properties" in made.notes[0].what


def test_a_schema_that_holds_itself_stays_one() -> None:
    tree = one({"type": "array", "items": {"$ref": "#"}})
    assert parameters_of(strictly(tree)) == tree
    inner = one({"$ref": "#/$defs/n", "description": "The next."}, required=[])
    inner["$defs"] = {"n": one({"anyOf": [{"$ref": "#/$defs/n"}, {"type": "string"}]})}
    assert parameters_of(strictly(inner)) == {
        "type": "object",
        "properties": {
            "a": {"description": "The next.", "anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}
        },
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"n": one({"anyOf": [{"$ref": "#/$defs/n"}, {"type": "string"}]})},
    }


def test_what_must_all_hold_becomes_one_schema() -> None:
    base = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
    more = {"properties": {"x": {"minimum": 3}, "y": {"type": "string"}}, "required": ["y"]}
    schema = one({"allOf": [{"$ref": "#/$defs/base"}, more]}, **{"$defs": {"base": base}})
    assert parameters_of(strictly(schema))["properties"]["a"] == {
        "type": "object",
        "properties": {"x": {"type": "number", "minimum": 3}, "y": {"type": "string"}},
        "required": ["x", "y"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("form", ["openai", "openai-responses", "langchain", "anthropic", "gemini"])
def test_alternatives_at_the_top_are_said_with_properties(form: str) -> None:
    schema = {
        "type": "object",
        "oneOf": [
            {
                "properties": {"kind": {"const": "url"}, "url": {"type": "string"}},
                "required": ["kind", "url"],
                "additionalProperties": False,
            },
            {
                "properties": {"kind": {"const": "id"}, "id": {"type": "integer"}},
                "required": ["kind", "id"],
                "additionalProperties": False,
            },
        ],
    }
    strict = export([spec_of(schema)], form, strict=True)
    given = {"kind": "url", "url": "x", "id": None, "unknown": None}
    left = {"kind": "url", "url": "x", "unknown": None}
    assert strict.arguments_of("tool", given) == (given if form == "gemini" else left)
    made = export([spec_of(schema)], form)
    read = schema_read(form, made.tools[0])
    read["properties"]["kind"].pop("type", None)
    assert read == {
        "type": "object",
        "properties": {
            "kind": {"enum": ["url", "id"]},
            "url": {"type": "string"},
            "id": {"type": "integer"},
        },
        "required": ["kind"],
        "additionalProperties": False,
        "description": "Give url, or id.",
    }
    assert made.notes == (Note("tool", "/oneOf", "is said with properties"),)


def test_what_a_request_cannot_hold_is_noted() -> None:
    made = export([spec_of({"type": "object"}, f"t{n}") for n in range(129)], "openai")
    assert [note.what for note in made.notes if not note.tool] == [
        "openai takes 128 tools in a request, and here are 129"
    ]
    assert str(made.notes[-1]) == made.notes[-1].what


def test_an_array_says_what_it_holds_even_if_that_is_anything() -> None:
    made = export([spec_of(one({"type": ["array", "null"]}))], "openai")
    assert parameters_of(made)["properties"]["a"] == {"type": ["array", "null"], "items": {}}
    assert made.notes == (
        Note("tool", "/properties/a", 'has "items": {} there, which says the same'),
    )


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("form", ["openai", "openai-responses", "langchain"])
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "patternProperties": {"^x": {"type": "string"}}},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"anyOf": [{"type": "object"}, {"type": "object", "minProperties": 1}]},
    ],
    ids=["empty", "patterns", "any name", "union"],
)
def test_a_schema_without_properties_does_not_cost_the_whole_request(
    schema: dict[str, Any], form: str, strict: bool
) -> None:
    made = export([spec_of(schema)], form, strict=strict)
    (tool,) = made.tools
    parameters = tool.get("function", tool)["parameters"]
    assert (parameters["type"], parameters["properties"]) == ("object", {})
    assert Note("tool", "", 'has "properties": {} there, which says the same') in made.notes
    assert export([spec_of(schema)], "anthropic").tools[0]["input_schema"]["type"] == "object"


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("form", ["openai", "openai-responses", "langchain", "anthropic", "gemini"])
def test_what_a_schema_says_to_toolpost_alone_is_not_said_to_a_vendor(
    form: str, strict: bool
) -> None:
    raw = {"type": "string", "x-raw": True, "x-secret": True, "x-order": 1}
    schema = {
        "type": "object",
        "properties": {
            "x-raw": raw,
            "list": {"type": "array", "items": {"anyOf": [raw, {"$ref": "#/$defs/one"}]}},
        },
        "$defs": {"one": {"type": "integer", "x-raw": True}},
        "required": ["x-raw", "list"],
        "x-raw": True,
    }
    made = export([spec_of(schema)], form, strict=strict)
    assert '"x-raw": true' not in json.dumps(made.tools)
    assert '"x-secret"' not in json.dumps(made.tools)
    assert '"x-raw": {"type": "string"' in json.dumps(made.tools), "a parameter of that name stays"
    assert schema["x-raw"] is True and raw["x-raw"] is True, "the spec's own stays as it is"


def test_a_property_named_like_a_keyword_is_a_property() -> None:
    names = {"$ref": {"type": "string"}, "properties": {"type": "array", "items": {"const": 1}}}
    schema = one({"type": "object", "properties": names, "additionalProperties": False})
    inner = parameters_of(strictly(schema))["properties"]["a"]
    assert list(inner["properties"]) == ["$ref", "properties"]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"kind": "a", "x": None}, {"kind": "a", "x": None}),
        ({"kind": "b", "x": None, "y": 1}, {"kind": "b", "y": 1}),
        ({"kind": "b", "x": 2, "y": None}, {"kind": "b", "x": 2}),
    ],
)
@pytest.mark.parametrize("union", ["anyOf", "oneOf"])
def test_of_several_shapes_null_means_what_it_means_in_the_one_that_is_meant(
    union: str, said: dict[str, Any], meant: dict[str, Any]
) -> None:
    number = {"type": "integer"}
    kinds = {"a": {"x": {"type": ["string", "null"]}}, "b": {"x": number, "y": number}}
    shapes = [
        {
            "type": "object",
            "properties": {"kind": {"const": kind}, **properties},
            "required": ["kind"],
            "additionalProperties": False,
        }
        for kind, properties in kinds.items()
    ]
    made = strictly(one({union: shapes}))
    assert Schema(parameters_of(made)).faults({"a": said}) == []
    assert made.arguments_of("tool", {"a": said}) == {"a": meant}
    assert Schema(one({union: shapes})).faults({"a": meant}) == []
