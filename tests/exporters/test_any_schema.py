"""Whatever schema a tool has: every form of it is what the vendor's package reads, no argument that
fits the tool is shut out, and what is called strict is."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings

from tests.exporters.schemas import orderly, spec_of, wild
from tests.exporters.vendors import schema_read
from toolpost.errors import InvalidSchema
from toolpost.exporters import FORMATS, Export, export
from toolpost.schema import Schema, verify_input
from toolpost.schema.tree import Tree, subschemas

LOSSLESS = ("openai", "openai-responses", "anthropic", "mcp", "langchain")
KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
NOT_AT_THE_TOP = {"allOf", "anyOf", "oneOf", "not", "enum", "const", "$ref"}
STRICT = frozenset((
    "type", "title", "description", "enum", "const", "anyOf", "$ref", "$defs", "properties",
    "required", "additionalProperties", "items", "pattern", "format", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
))  # fmt: skip
GEMINI = frozenset((
    "$defs", "$ref", "type", "format", "title", "description", "enum", "items", "prefixItems",
    "minItems", "maxItems", "minimum", "maximum", "anyOf", "properties", "additionalProperties",
    "required",
))  # fmt: skip


def nodes_of(schema: Any) -> list[dict[str, Any]]:
    """Every schema within, after each reference was seen to lead somewhere."""
    tree = Tree(schema)
    for place in tree.places():
        tree.targets(place.schema)
    return [place.schema for place in tree.places()]


def verify_strict(schema: dict[str, Any], form: str) -> None:
    assert schema["type"] == "object"
    for node in nodes_of(schema):
        assert node.keys() <= STRICT
        assert {"type", "anyOf", "$ref"} & node.keys(), "what it is must be said"
        assert "$ref" not in node or node.keys() == {"$ref"}
        if node.get("type") == "object":
            assert node["additionalProperties"] is False
            if form != "anthropic":
                assert node["required"] == list(node["properties"])
        assert node.get("type") != "array" or "items" in node
        assert not any(isinstance(inner, bool) for where, inner in subschemas(node)
                       if where[0] != "additionalProperties")  # fmt: skip


def verify_gemini(schema: dict[str, Any]) -> None:
    for node in nodes_of(schema):
        assert node.keys() <= GEMINI
        assert "$ref" not in node or not any(key[0] != "$" for key in node)
        assert all(isinstance(one, str | int | float) and not isinstance(one, bool)
                   for one in node.get("enum", ()))  # fmt: skip


@pytest.mark.req("FG-5")
@settings(max_examples=60)
@given(wild())
def test_every_form_of_any_schema_is_read_by_the_vendors_own_package(
    schema: dict[str, Any],
) -> None:
    spec = spec_of(schema)
    try:
        verify_input(schema)
        sound = True
    except InvalidSchema:
        sound = False  # no such tool is ever registered, but none may break the others' export
    for form in FORMATS:
        for strict in (False, True):
            made = export([spec, spec_of({"type": "object"}, "other")], form, strict=strict)
            assert "other" in made.names
            if "tool" not in made.names:
                assert not sound or made.left_out[0].what.startswith(("its input", "no arguments"))
                continue
            tool = made.tools[0]
            read = schema_read(form, tool)
            if form == "gemini":
                verify_gemini(read)
            elif tool.get("function", tool).get("strict"):
                verify_strict(read, form)
            elif not any(note.tool == "tool" for note in made.notes):
                assert read == schema
            assert form == "mcp" or not NOT_AT_THE_TOP & read.keys()
            if form == "anthropic":
                assert all(KEY.fullmatch(key) for key in read.get("properties", ()))


def there(made: Export, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments under the names that a vendor has for them."""
    spelled = {own: name for name, own in made.keys.get("tool", {}).items()}
    return {spelled.get(name, name): value for name, value in arguments.items()}


@pytest.mark.req("FG-5")
@settings(max_examples=40)
@given(orderly(unions=True))
def test_what_fits_the_tool_fits_every_form_of_it(
    drawn: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    schema, arguments = drawn
    assert Schema(schema).faults(arguments) == []
    for form in FORMATS:
        made = export([spec_of(schema)], form)
        assert Schema(schema_read(form, made.tools[0])).faults(there(made, arguments)) == [], form
        assert made.arguments_of("tool", there(made, arguments)) == arguments
    made = export([spec_of(schema)], "anthropic", strict=True)
    assert Schema(made.tools[0]["input_schema"]).faults(there(made, arguments)) == []


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_attack_what_many_refer_to_is_not_written_for_each_of_them(keyword: str) -> None:
    """Of forty levels with three ways at each: nobody would live to see all of them."""
    steps = {f"s{n}": {keyword: [{"$ref": f"#/$defs/s{n + 1}"}] * 3} for n in range(40)}
    defs = {**steps, "s40": {"type": "object", "properties": {"x": {"type": "string"}}}}
    below = {"type": "object", "properties": {"a": {"$ref": "#/$defs/s0"}}, "$defs": defs}
    above = {"type": "object", "properties": {}, "$ref": "#/$defs/s0", "$defs": defs}
    for form in FORMATS:
        made = export([spec_of(below, "a"), spec_of(above, "b")], form, strict=True)
        assert not made.left_out
        assert made.arguments_of("a", {"a": {"x": None}}) is not None
        assert made.tokens_in_all < 10_000


def completed(schema: dict[str, Any], value: Any) -> Any:
    """A value as a model gives it in strict mode: with every property."""
    schema = next((one for one in schema.get("anyOf", ()) if one != {"type": "null"}), schema)
    if isinstance(value, list):
        return [completed(schema["items"], one) for one in value]
    if isinstance(value, dict):
        inner = schema["properties"]
        return {
            name: completed(inner[name], value[name]) if name in value else None for name in inner
        }
    return value


@pytest.mark.req("FG-5")
@settings(max_examples=40)
@given(orderly(unions=False))
def test_what_a_model_gives_in_strict_mode_is_what_the_tool_gets(
    drawn: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    schema, arguments = drawn
    made = export([spec_of(schema)], "openai", strict=True)
    function = made.tools[0]["function"]
    assert function["strict"] is True, made.notes
    given_by_the_model = completed(function["parameters"], arguments)
    assert Schema(function["parameters"]).faults(given_by_the_model) == []
    assert made.arguments_of("tool", given_by_the_model) == arguments
