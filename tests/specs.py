"""Specs as property tests draw them, and the three file formats they are written in."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import yaml
from hypothesis import strategies as st

from toolpost.characters import stripped
from toolpost.spec import Cache, Limits, Permissions, Retry, ToolSpec


def _is_seen(text: str) -> bool:
    return stripped(text) == text.replace("\r\n", "\n").replace("\r", "\n")


# what nobody sees is taken out of specs, or refused: see sources/test_hidden_text.py
_UNSEEN = ["Cs", "Cc", "Cf", "Zl", "Zp"]
_SEEN = st.characters(exclude_categories=_UNSEEN, include_characters="\t\n\r")
texts = st.text(_SEEN, max_size=20).filter(_is_seen)
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
numbers = st.floats(0.001, 1e6)
scalars = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | texts
# TOML has no null, so that what holds for all three formats is drawn without it
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)


def _property(schema: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(schema)}, optional={"description": texts})


properties = st.one_of(map(_property, ("string", "integer", "number", "boolean", "null", "array")))
schemas = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(texts, properties, max_size=3)},
    optional={"description": texts, "additionalProperties": st.booleans()},
)
limits = st.builds(
    Limits,
    concurrency=st.integers(1, 99),
    queue=st.integers(0, 99),
    memory=st.none() | st.integers(2**25, 2**40),
    cpus=st.none() | st.floats(0.01, 1e6),
    output=st.integers(1, 2**40),
)
destinations = st.builds("{}:{}".format, names, st.integers(1, 65535)) | st.just("*")
several = st.lists(texts, max_size=3).map(tuple)

specs = st.builds(
    ToolSpec,
    name=names,
    description=texts.filter(str.strip),
    kind=st.sampled_from(["own", "other"]),  # an installed one would judge the binding
    input_schema=schemas,
    output_schema=st.none() | st.booleans() | schemas,
    binding=st.dictionaries(texts, values, max_size=3),
    title=st.none() | texts,
    version=st.none() | texts,
    category=texts,
    tags=several,
    examples=st.lists(st.dictionaries(texts, values, max_size=2), max_size=2).map(tuple),
    tier=st.integers(0, 4),
    effects=st.just("read"),
    timeout=st.none() | numbers | st.integers(1, 60),
    limits=limits,
    egress=st.lists(destinations, max_size=3).map(tuple),
    permissions=st.builds(Permissions, roles=several, agents=several),
    requires_approval=st.booleans(),
    retry=st.none() | st.builds(Retry, attempts=st.integers(1, 3), honours_key=st.booleans()),
    fallback=st.none() | names,
    cache=st.none() | st.builds(Cache, ttl=numbers),
    labels=st.dictionaries(texts, texts, max_size=3),
    context_aware=st.booleans(),
    isolation=st.none() | st.sampled_from(["inline", "thread", "process", "sandbox"]),
    coerce=st.booleans(),
)


def as_toml(tools: list[dict[str, Any]]) -> str:
    return f"tools = {_inline(tools)}\n"


class _Quoting(yaml.SafeDumper):
    """PyYAML leaves texts bare that are numbers in YAML 1.2, such as 0E0."""


_Quoting.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def as_yaml(tools: list[dict[str, Any]]) -> str:
    return str(yaml.dump({"tools": tools}, Dumper=_Quoting))


def as_json(tools: list[dict[str, Any]]) -> str:
    return json.dumps({"tools": tools})


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_inline(k)} = {_inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


WRITERS: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    "yaml": as_yaml,
    "json": as_json,
    "toml": as_toml,
}
