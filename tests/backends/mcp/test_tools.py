"""From a stranger's definitions to specs: whatever they say, what comes of it can be registered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost import Registry
from toolpost.backends.mcp.settings import ServerOptions
from toolpost.backends.mcp.tools import listing_of, specs_of

ANY: dict[str, Any] = {"type": "object"}
OPTIONS = ServerOptions(command=("server",))


@pytest.mark.req("UX-2")
@given(st.lists(st.lists(st.text(max_size=200), max_size=6), min_size=1, max_size=3))
def test_whatever_tools_are_called_their_names_are_legal_and_unlike_each_other(
    names: list[list[str]],
) -> None:
    servers = [
        (server, OPTIONS, listing_of([{"name": n, "inputSchema": ANY} for n in some], left_out={}))
        for server, some in zip(("a", "a_b", "a-b"), names, strict=False)
    ]
    offered = specs_of(servers)
    Registry(offered.specs)  # it refuses names that are illegal, taken or look alike
    assert len(offered.specs) == sum(len(set(some)) for some in names)


def test_names_do_not_depend_on_the_order_in_which_a_server_lists_them() -> None:
    some = [{"name": n, "inputSchema": ANY} for n in ("a b", "a-b", "A_B", "a" * 200)]
    there, back = (
        specs_of([("s", OPTIONS, listing_of(tools, left_out={}))]).specs
        for tools in (some, some[::-1])
    )
    assert there == back


def test_a_stranger_does_not_say_what_is_not_to_be_redacted() -> None:
    text = {"type": "string", "x-raw": True, "x-secret": True}
    inner = {"type": "object", "properties": {"b": text, "x-raw": {"type": "string"}}}
    schema = {"type": "object", "x-raw": True, "properties": {"a": text, "o": inner}}
    listing = listing_of([{"name": "x", "inputSchema": schema}], left_out={})
    (spec,) = specs_of([("s", OPTIONS, listing)]).specs
    assert spec.input_schema["properties"] == {
        "a": {"type": "string"},
        "o": {
            "type": "object",
            "properties": {"b": {"type": "string"}, "x-raw": {"type": "string"}},
        },
    }
    assert "x-raw" not in spec.input_schema


def test_every_change_of_a_definition_is_another_pin() -> None:
    base = {"name": "x", "description": "X.", "inputSchema": ANY}
    changes: list[dict[str, Any]] = [
        {"title": "X"},
        {"description": "Y."},
        {"inputSchema": {"type": "object", "properties": {}}},
        {"outputSchema": ANY},
        {"annotations": {"readOnlyHint": True}},
    ]
    pins = {listing_of([{**base, **change}], left_out={}).pins["x"] for change in ({}, *changes)}
    assert len(pins) == 1 + len(changes)
    more = {"icons": [{"src": "https://example.org/x.png"}], "_meta": {"a": 1}}
    assert listing_of([{**base, **more}], left_out={}).pins["x"] in pins


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"description": "x" * 20_000}, "characters, and models read it"),
        ({"inputSchema": {"type": "string"}}, "are an object"),
        ({"inputSchema": {"type": "object", "properties": {"a": {"type": "nothing"}}}}, "type"),
        ({"outputSchema": {"$ref": "https://example.org/schema"}}, "outside this schema"),
        ({"execution": {"taskSupport": "required"}}, "as a task only"),
        ({"inputSchema": {"type": "object", "x": float("nan")}}, "not finite"),
    ],
)
def test_what_cannot_be_taken_in_is_left_out_with_the_reason(
    more: dict[str, Any], why: str
) -> None:
    tools = [{"name": "bad", "inputSchema": ANY, **more}, {"name": "good", "inputSchema": ANY}]
    offered = specs_of([("s", OPTIONS, listing_of(tools, left_out={}))])
    assert [spec.name for spec in offered.specs] == ["s.good"]
    assert why in offered.left_out["s", "bad"]


def test_of_two_tools_with_one_name_the_first_is_meant() -> None:
    tools = [{"name": "x", "description": d, "inputSchema": ANY} for d in ("One.", "Two.")]
    offered = specs_of([("s", OPTIONS, listing_of(tools, left_out={}))])
    assert [spec.description for spec in offered.specs] == ["One."]
    assert "twice" in offered.left_out["s", "x"]


def test_the_config_says_what_tools_of_a_server_may_take() -> None:
    options = ServerOptions(
        command=("server",), prefix="", timeout=60, limits={"output": "1KB", "memory": "64MiB"}
    )
    (spec,) = specs_of(
        [("s", options, listing_of([{"name": "x", "inputSchema": ANY}], left_out={}))]
    ).specs
    assert (spec.name, spec.timeout, spec.limits.output) == ("x", 60.0, 1000)


def named(*tools: str, known: dict[tuple[str, str], str] | None = None) -> dict[str, str]:
    """The names that the tools of a server get here."""
    some = [{"name": tool, "inputSchema": ANY} for tool in tools]
    offered = specs_of([("s", OPTIONS, listing_of(some, left_out={}))], known)
    Registry(offered.specs)
    return {spec.binding["tool"]: spec.name for spec in offered.specs}


def test_a_tool_that_is_known_keeps_its_name_whatever_comes_beside_it() -> None:
    known = {("s", "readFile"): "s.readFile"}
    names = named("readFile", "readfile", "READ-FILE", known=known)
    assert names["readFile"] == "s.readFile"
    assert names["readfile"].startswith("s.readfile_")


def test_a_name_is_kept_for_a_tool_that_is_away() -> None:
    assert named("read-file", known={("s", "read_file"): "s.read_file"})["read-file"].startswith(
        "s.read-file_"
    )


def test_of_two_that_are_new_the_plain_name_is_the_one_in_small_letters_and_underscores() -> None:
    names = named("Read-File", "read_file")
    assert names["read_file"] == "s.read_file"
    assert names["Read-File"].startswith("s.Read-File_")


def test_a_name_of_another_prefix_is_not_kept() -> None:
    assert named("read_file", known={("s", "read_file"): "old.read_file"}) == {
        "read_file": "s.read_file"
    }
