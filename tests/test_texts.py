"""Reading the texts out of data that fits a schema: none is passed over."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.errors import InvalidArguments
from toolpost.redact.texts import Read, reader, textless
from toolpost.schema import Schema

TEXT = {"type": "string"}
NAMES = st.sampled_from(["a", "b", "token", "naïve"])


def read(schema: Any, value: Any) -> list[str] | None:
    reading: Read | None = reader(schema)
    if reading is None:
        return None
    texts: list[str] = []
    reading(value, texts)
    return texts


def thing(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


def listed(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


@pytest.mark.parametrize(
    ("schema", "value", "texts"),
    [
        (thing(a=TEXT), {"a": "x"}, ["x"]),
        (thing(a=TEXT, b={"type": "integer"}), {"a": "x", "b": 1}, ["x"]),
        (thing(a=TEXT) | {"required": []}, {}, []),
        (thing(a=listed(TEXT)), {"a": ["x", "y"]}, ["x", "y"]),
        (thing(a=listed(TEXT)), {"a": ("x", "y")}, ["x", "y"]),
        (thing(a={"anyOf": [TEXT, {"type": "null"}]}), {"a": None}, []),
        (thing(a={"anyOf": [TEXT, {"type": "null"}]}), {"a": "x"}, ["x"]),
        (
            listed(thing(a=TEXT, b=TEXT, n={"type": "number"})),
            [{"a": "x", "b": "y", "n": 1}, {"a": "z", "b": "", "n": 2}],
            ["x", "z", "y", ""],
        ),
        (
            listed(thing(a=TEXT, b=TEXT) | {"required": ["a"]}),
            [{"a": "x"}, {"a": "y", "b": "z"}],
            ["x", "y", "z"],
        ),
        (thing(a=thing(b=listed(listed(TEXT)))), {"a": {"b": [["x"], []]}}, ["x"]),
        (thing(token=TEXT), {"token": "x"}, ['token="x"']),
        (listed(thing(token=TEXT)), [{"token": "x"}], ['token="x"']),
        (thing(a={"type": "integer"}), {"a": 1}, []),
    ],
)
def test_texts_are_read_where_the_schema_lets_them_in(
    schema: Any, value: Any, texts: list[str]
) -> None:
    assert read(schema, value) == texts


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        {"type": "object", "properties": {"a": TEXT}},
        {"type": "object", "patternProperties": {"x": TEXT}, "additionalProperties": False},
        thing(a=TEXT, b={}),
        thing(a={"type": ["string", "null"]}),
        thing(a={"anyOf": [TEXT, listed(TEXT)]}),
        thing(a={"type": "array"}),
        thing(a={"type": "array", "prefixItems": [TEXT], "items": TEXT}),
        thing(a={"$ref": "#/$defs/x", "type": "integer"}) | {"$defs": {"x": TEXT}},
    ],
)
def test_where_a_schema_leaves_open_where_texts_are_there_is_no_reader(schema: Any) -> None:
    assert reader(schema) is None
    assert not textless(schema)


def test_what_counts_as_a_text_is_handed_over_as_it_is() -> None:
    class Colour(enum.Enum):
        RED = "red"

    texts: list[Any] | None = read(thing(a=TEXT), {"a": Colour.RED})
    assert texts == [Colour.RED]


SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (TEXT, st.text(max_size=5)),
    ({"type": "integer"}, st.integers()),
    ({"type": ["boolean", "null"]}, st.booleans() | st.none()),
    ({"enum": ["x", 1]}, st.sampled_from(["x", 1])),
    ({"anyOf": [TEXT, {"type": "null"}]}, st.text(max_size=5) | st.none()),
    ({"type": ["string", "integer"]}, st.text(max_size=5) | st.integers()),
]
Shape = tuple[Any, st.SearchStrategy[Any]]


def _object(fields: dict[str, tuple[Shape, bool]], closed: bool) -> Shape:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: shape[0] for name, (shape, _) in fields.items()},
        "required": [name for name, (_, required) in fields.items() if required],
        "additionalProperties": not closed,
    }
    values = {name: shape[1] for name, (shape, _) in fields.items()}
    needed = {name: values[name] for name in schema["required"]}
    optional = {name: value for name, value in values.items() if name not in needed}
    return schema, st.fixed_dictionaries(needed, optional=optional)


shapes: st.SearchStrategy[Shape] = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: (
        inner.map(lambda shape: (listed(shape[0]), st.lists(shape[1], max_size=3)))
        | st.builds(
            _object,
            st.dictionaries(NAMES, st.tuples(inner, st.booleans()), max_size=3),
            st.sampled_from([True, True, True, False]),
        )
    ),
    max_leaves=6,
)


def chosen(schema: Any, value: Any) -> Iterator[str]:
    """Every text in it that the schema does not prescribe, by a walk of its own."""
    if "enum" in schema:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from chosen(schema["items"], item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from chosen(schema["properties"][name], item)


def unnamed(text: str) -> str:
    return text.removeprefix('token="').removesuffix('"')


@given(st.data())
def test_no_text_is_passed_over(data: st.DataObject) -> None:
    fields = st.dictionaries(NAMES, st.tuples(shapes, st.booleans()), max_size=3)
    schema, values = _object(data.draw(fields), closed=True)
    value = data.draw(values)
    try:
        admitted = Schema(schema).admit(value)
    except InvalidArguments:  # a text that is not JSON
        return
    texts = read(schema, admitted)
    if texts is not None:
        assert Counter(map(unnamed, texts)) == Counter(map(unnamed, chosen(schema, admitted)))
    if textless(schema):
        assert not list(chosen(schema, admitted))
