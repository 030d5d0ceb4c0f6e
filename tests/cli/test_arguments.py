"""Words and schemas: what a word means is what the schema says, and nothing is lost on the way."""

from __future__ import annotations

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.cli.arguments import from_words
from toolpost.cli.terminal import json_text
from toolpost.schema.parameters import parameters

SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"Colour": {"enum": ["red", "blue"]}, "Loop": {"$ref": "#/$defs/Loop"}},
    "properties": {
        "text": {"type": "string", "minLength": 1},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "whole": {"type": "integer", "minimum": 0},
        "flag": {"type": "boolean"},
        "colour": {"$ref": "#/$defs/Colour", "description": "Which one."},
        "words": {"type": "array", "items": {"type": "string"}},
        "numbers": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]},
        "thing": {"type": "object", "properties": {"x": {}}},
        "open": {},
        "loop": {"$ref": "#/$defs/Loop"},
    },
    "required": ["text"],
}


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["text=1"], {"text": "1"}),
        (["text="], {"text": ""}),
        (["text=a=b:=c"], {"text": "a=b:=c"}),
        (["text:=1"], {"text": 1}),
        (["maybe=null"], {"maybe": "null"}),
        (["maybe:=null"], {"maybe": None}),
        (["whole=12345678901234567890123"], {"whole": 12345678901234567890123}),
        (["whole=one"], {"whole": "one"}),
        (["flag=true"], {"flag": True}),
        (["colour=red"], {"colour": "red"}),
        (["words=a"], {"words": ["a"]}),
        (["words=1", "words=2"], {"words": ["1", "2"]}),
        (['words=["a", "b"]'], {"words": ["a", "b"]}),
        (["words=[a", "words=]"], {"words": ["[a", "]"]}),
        (["numbers=1", "numbers=2.5"], {"numbers": [1, 2.5]}),
        (['thing={"x": 1}'], {"thing": {"x": 1}}),
        (["open=1"], {"open": 1}),
        (["open=plain"], {"open": "plain"}),
        (["loop=1"], {"loop": 1}),
        (["not_in_the_schema=[1]"], {"not_in_the_schema": [1]}),
        (['{"text": "a", "flag": false}', "text=b"], {"text": "b", "flag": False}),
    ],
)
def test_a_word_is_read_as_the_schema_says(words: list[str], arguments: dict[str, Any]) -> None:
    assert from_words(words, SCHEMA) == arguments


@pytest.mark.parametrize(
    "words",
    [
        ["text=a", "text=b"],
        ["thing={x}"],
        ["words=[1"],
        ["open:=NaN"],
        ["nonsense"],
        ['{"a": 1, "a": 2}'],
        ["[1, 2]"],
        ["=1"],
    ],
)
def test_what_cannot_be_an_argument_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        from_words(words, SCHEMA)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_arrives_as_it_is(text: str) -> None:
    assert from_words([f"text={text}"], SCHEMA) == {"text": text}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_any_json_arrives_as_it_is(value: object) -> None:
    assert from_words([f"text:={json_text(value)}"], SCHEMA) == {"text": value}


def test_parameters_are_described_for_reading() -> None:
    found = parameters(SCHEMA)
    assert [(p.name, p.shape) for p in found.values()] == [
        ("text", "string at least 1 characters"),
        ("maybe", "string or null"),
        ("whole", "integer ≥ 0"),
        ("flag", "boolean"),
        ("colour", '"red" | "blue"'),
        ("words", "array of string"),
        ("numbers", "array of number or null"),
        ("thing", "object with x"),
        ("open", "any"),
        ("loop", "any"),
    ]
    assert (found["colour"].description, found["text"].required) == ("Which one.", True)
