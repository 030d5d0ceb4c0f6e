"""Registries: names that are one tool's each, changes that are seen whole or not at all."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.specs import names as some_names
from toolpost import (
    Executor,
    InvalidSchema,
    InvalidSpec,
    NameTaken,
    Registry,
    Tool,
    ToolNotFound,
    ToolSpec,
    tool,
)
from toolpost.contracts import Declared
from toolpost.registry import Entry


def spec(name: str, **fields: Any) -> ToolSpec:
    return ToolSpec(name=name, description=f"The tool {name}.", **fields)


def names(registry: Registry) -> list[str]:
    return [one.name for one in registry]


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Weather(Tool):
    """The weather in a city."""

    async def run(self, city: str) -> str:
        return f"{city}: fine"


# --- what can be registered --------------------------------------------------------------------


@pytest.mark.req("FG-2")
def test_a_registered_tool_is_listed_found_and_removed() -> None:
    registry = Registry()
    registry.add(add)
    assert "add" in registry
    assert registry.get("add") is add.spec
    assert registry.entry("add") == Entry(add.spec, add)
    assert registry.list() == (add.spec,)
    assert len(registry) == 1
    registry.remove("add")
    assert "add" not in registry
    assert registry.get("add") is registry.entry("add") is None
    assert registry.list() == ()


def test_functions_tools_classes_instances_and_specs_can_be_registered() -> None:
    def subtract(a: int, b: int) -> int:
        """Subtract two numbers."""
        return a - b

    class Tide(Tool):
        """The tide."""

        async def run(self) -> str:
            return "high"

    registry = Registry([add, subtract, Weather, Tide(), spec("plain")])
    assert names(registry) == ["add", "plain", "subtract", "tide", "weather"]
    assert registry.entry("plain") == Entry(spec("plain"), None)


@pytest.mark.parametrize("item", [5, "add", None, object()])
def test_what_is_no_tool_is_refused(item: Any) -> None:
    with pytest.raises(
        InvalidSpec, match="is not a tool: register a function, a Tool or a ToolSpec"
    ):
        Registry([item])


@pytest.mark.req("FM-3")
def test_a_function_without_a_description_is_refused() -> None:
    def silent(a: int) -> int:
        return a

    with pytest.raises(InvalidSpec, match="tool 'silent' has no description"):
        Registry([silent])


@pytest.mark.req("FM-3")
@pytest.mark.parametrize(
    "kind", ["string", "integer", "number", "boolean", "null", "array", "object"]
)
def test_all_seven_json_types_can_be_parameters(kind: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": kind}}}
    assert Registry([spec("a", input_schema=schema)]).get("a") is not None


@pytest.mark.req("FM-3")
@pytest.mark.parametrize(
    ("fields", "message", "at"),
    [
        (
            {"input_schema": {"type": "object", "properties": {"x": {"type": "strin"}}}},
            "input_schema of 'a': /properties/x/type: must be one or a list of",
            ("input_schema", "properties", "x", "type"),
        ),
        (
            {"input_schema": {"type": "array"}},
            "the arguments of a tool are an object",
            ("input_schema", "type"),
        ),
        (
            {"output_schema": {"$ref": "http://example.com/s.json"}},
            "output_schema of 'a': ",
            ("output_schema", "$ref"),
        ),
    ],
)
def test_an_invalid_schema_is_refused_with_the_tool_and_the_place(
    fields: dict[str, Any], message: str, at: tuple[str | int, ...]
) -> None:
    with pytest.raises(InvalidSchema) as caught:
        Registry([spec("a", **fields)])
    assert message in caught.value.message
    assert caught.value.at == at


def test_bounds_of_draft_4_reach_models_in_the_form_of_today() -> None:
    old = {"type": "integer", "minimum": 0, "exclusiveMinimum": True}
    schema = {"type": "object", "properties": {"x": old}}
    (kept,) = Registry([spec("a", input_schema=schema)])
    assert kept.input_schema["properties"]["x"] == {"type": "integer", "exclusiveMinimum": 0}


def test_the_schema_of_a_foreign_object_is_verified_too() -> None:
    class Foreign:
        spec = ToolSpec(name="f", description="d", input_schema={"type": "nothing"})

    with pytest.raises(InvalidSchema, match="input_schema of 'f'"):
        Registry([Foreign()])


# --- names -------------------------------------------------------------------------------------


@pytest.mark.req("FG-2", "FM-3")
def test_a_name_that_is_taken_is_refused() -> None:
    registry = Registry([add])
    with pytest.raises(
        NameTaken, match="the name 'add' is taken: rename one of the two tools"
    ) as caught:
        registry.add(spec("add"))
    assert caught.value.at == ("name",)
    assert registry.entry("add") == Entry(add.spec, add)


@pytest.mark.parametrize("name", ["Read_File", "read-file", "read.file", "READ.FILE"])
def test_names_that_look_alike_are_refused(name: str) -> None:
    registry = Registry([spec("read_file")])
    with pytest.raises(NameTaken, match=r"looks like 'read_file': make them easier to tell apart"):
        registry.add(spec(name))
    with pytest.raises(NameTaken, match="looks like"):
        registry.update([spec(name)])
    with pytest.raises(NameTaken, match="looks like"):
        Registry([spec("read_file"), spec(name)])
    assert names(registry) == ["read_file"]


def test_of_several_tools_all_are_added_or_none() -> None:
    registry = Registry([add])
    for bad in (spec("add"), spec("one"), 5):
        with pytest.raises((NameTaken, InvalidSpec)):
            registry.add(spec("one"), spec("two"), bad)  # type: ignore[arg-type]
    assert names(registry) == ["add"]
    registry.add(spec("one"), spec("two"))
    assert names(registry) == ["add", "one", "two"]


def test_a_name_is_free_again_once_its_tool_is_removed() -> None:
    registry = Registry([spec("read_file")])
    registry.remove("read_file")
    registry.add(spec("read-file"))
    assert names(registry) == ["read-file"]


def test_removing_an_unknown_tool_removes_nothing_and_names_the_nearest() -> None:
    registry = Registry([add, spec("other")])
    with pytest.raises(ToolNotFound, match=r"There is no tool 'ad'; did you mean 'add'\?"):
        registry.remove("other", "ad")
    assert len(registry) == 2


def test_a_namespace_is_put_before_every_name() -> None:
    registry = Registry([spec("search")])
    registry.add(spec("search"), spec("read"), namespace="web")
    assert names(registry) == ["search", "web.read", "web.search"]
    found = registry.get("web.search")
    assert found is not None
    assert found.description == "The tool search."


def test_a_namespace_only_for_collisions_keeps_plain_names_in_the_order_given() -> None:
    def listing() -> list[str]:
        registry = Registry([spec("search")])
        registry.add(spec("search"), spec("read"), namespace="a", collision="namespace")
        registry.add(spec("read"), spec("search"), namespace="b", collision="namespace")
        return names(registry)

    assert listing() == ["a.search", "b.read", "b.search", "read", "search"]
    assert listing() == listing()


def test_a_collision_inside_a_namespace_is_refused() -> None:
    registry = Registry([spec("search"), spec("a.search")])
    with pytest.raises(NameTaken):
        registry.add(spec("search"), namespace="a", collision="namespace")
    with pytest.raises(NameTaken):
        registry.add(spec("search"), collision="namespace")


def test_a_namespace_must_make_legal_names() -> None:
    with pytest.raises(InvalidSpec, match="is not a legal tool name"):
        Registry().add(add, namespace="my tools")


@settings(deadline=None)
@given(st.lists(some_names, max_size=8))
def test_no_two_names_in_a_registry_look_alike(drawn: list[str]) -> None:
    registry = Registry()
    for name in drawn:
        try:
            registry.add(spec(name))
        except NameTaken:
            continue
    folded = [n.casefold().replace("-", "_").replace(".", "_") for n in names(registry)]
    assert sorted(folded) == sorted(set(folded))
    assert {n.casefold().replace("-", "_").replace(".", "_") for n in drawn} == set(folded)


# --- replacing ---------------------------------------------------------------------------------


def test_a_tool_can_be_replaced_by_one_of_its_name() -> None:
    registry = Registry([add])
    registry.replace(spec("add", version="2"), spec("new"))
    assert registry.entry("add") == Entry(spec("add", version="2"), None)
    assert names(registry) == ["add", "new"]


def test_an_update_replaces_and_removes_in_one_swap() -> None:
    registry = Registry([spec("a"), spec("b"), spec("c")])
    registry.update(iter([spec("b", version="2"), spec("d")]), gone=iter(["a", "c", "unknown"]))
    assert [(s.name, s.version) for s in registry] == [("b", "2"), ("d", None)]


def test_a_tool_may_be_gone_and_come_back_in_one_update() -> None:
    registry = Registry([spec("a")])
    registry.update([spec("a", version="2")], gone=["a"])
    assert [(s.name, s.version) for s in registry] == [("a", "2")]


def test_an_update_with_one_name_twice_changes_nothing() -> None:
    registry = Registry([spec("a")])
    with pytest.raises(NameTaken, match="the name 'b' is taken"):
        registry.update([spec("b"), spec("b", version="2")], gone=["a"])
    assert names(registry) == ["a"]


def test_listeners_hear_the_names_that_changed_after_the_change() -> None:
    registry = Registry([spec("a"), spec("b")])
    heard: list[tuple[set[str], list[str]]] = []
    stop = registry.listen(lambda changed: heard.append((set(changed), names(registry))))
    registry.add(spec("c"))
    registry.update([spec("a"), spec("b", version="2")], gone=["c"])
    registry.update([spec("a")])
    registry.remove("a")
    stop()
    stop()
    registry.add(spec("d"))
    assert heard == [({"c"}, ["a", "b", "c"]), ({"b", "c"}, ["a", "b"]), ({"a"}, ["b"])]


def test_a_declared_tool_that_moved_to_another_folder_has_changed() -> None:
    registry = Registry([Declared(spec("a"), "/one")])
    heard: list[frozenset[str]] = []
    registry.listen(heard.append)
    registry.update([Declared(spec("a"), "/one")])
    registry.update([Declared(spec("a"), "/two")])
    assert heard == [{"a"}]


# --- lists -------------------------------------------------------------------------------------

CATEGORIES = ("file", "execution", "web", "task", "notebook", "mcp", "other")


@pytest.mark.req("UX-2")
def test_the_listing_is_by_name_and_made_once() -> None:
    registry = Registry([spec("b"), spec("a"), spec("C")])
    assert names(registry) == ["C", "a", "b"]
    assert registry.list() is registry.list()
    registry.add(spec("aa"))
    assert names(registry) == ["C", "a", "aa", "b"]


@pytest.mark.req("UX-2", "FG-6")
def test_the_listing_can_be_filtered() -> None:
    registry = Registry(
        [
            spec("a", kind="shell", category="file", tags=("x", "y"), tier=3),
            spec("b", kind="shell", category="web", tags=("x",), tier=0),
            spec("c", category="file", tier=1),
        ]
    )

    def listed(**filters: Any) -> str:
        return "".join(s.name for s in registry.list(**filters))

    assert listed(kind="shell") == "ab"
    assert listed(category="file") == "ac"
    assert listed(tag="x") == "ab"
    assert listed(tier=1) == "bc"
    assert listed(tier=0) == "b"
    assert listed(kind="shell", category="file", tag="y", tier=4) == "a"
    assert listed(kind="nats") == ""


@pytest.mark.req("FG-6")
def test_tools_are_grouped_by_category() -> None:
    registry = Registry([spec(f"{c}_{n}", category=c) for c in CATEGORIES for n in (2, 1)])
    assert list(registry.groups()) == sorted(CATEGORIES)
    assert [s.name for s in registry.groups()["file"]] == ["file_1", "file_2"]
    assert spec("x").category == "other"


@pytest.mark.req("FG-2")
def test_ten_thousand_tools_are_registered_and_found() -> None:
    registry = Registry(spec(f"tool_{i:05}") for i in range(10_000))
    registry.add(*(spec(f"more_{i:05}") for i in range(100)))
    for i in range(100):
        registry.add(spec(f"single_{i:05}"))
    assert len(registry.list()) == len(registry) == 10_200
    assert registry.get("tool_07777") == spec("tool_07777")
    assert registry.near("tool_0777") != ""
    registry.update((), gone=[f"tool_{i:05}" for i in range(10_000)])
    assert len(registry) == 200


# --- threads -----------------------------------------------------------------------------------


@pytest.mark.req("UX-2")
def test_readers_in_other_threads_see_the_state_before_or_after_a_change() -> None:
    states = [[spec(f"{letter}{i:02}") for i in range(50)] for letter in "ab"]
    registry = Registry(states[0])
    done = threading.Event()
    wrong: list[list[str]] = []

    def read() -> None:
        while not done.is_set():
            seen = names(registry)
            if seen not in ([s.name for s in states[0]], [s.name for s in states[1]]):
                wrong.append(seen)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(300):
        old, new = states[turn % 2], states[1 - turn % 2]
        registry.update(new, gone=[s.name for s in old])
        assert registry.list() == tuple(new)
    done.set()
    for reader in readers:
        reader.join(30)
    assert wrong == []


def test_a_listing_that_a_change_overtakes_is_not_kept() -> None:
    class Slow(dict[str, Entry]):
        """Entries that change just after a reader has copied them."""

        def copy(self) -> dict[str, Entry]:
            copied = dict(self)
            if "late" not in registry:
                registry.add(spec("late"))
            return copied

    registry = Registry([spec("early")])
    registry._entries = Slow(registry._entries)
    assert names(registry) == ["early"]
    assert names(registry) == ["early", "late"]


def test_two_threads_never_register_one_name_twice() -> None:
    registry = Registry()
    taken: list[str] = []

    def fill() -> None:
        for i in range(300):
            try:
                registry.add(spec(f"tool_{i}"))
            except NameTaken:
                taken.append(f"tool_{i}")

    threads = [threading.Thread(target=fill) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(registry), len(taken)) == (300, 600)


@pytest.mark.anyio
@pytest.mark.req("UX-2")
async def test_a_call_under_way_finishes_while_its_tool_is_replaced() -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    @tool(name="greet")
    async def greet() -> str:
        """Greet."""
        inside.set()
        await go_on.wait()
        return "old"

    @tool(name="greet")
    async def greet_better() -> str:
        """Greet better."""
        return "new"

    registry = Registry([greet])
    async with Executor(registry) as executor, asyncio.timeout(30):
        under_way = asyncio.create_task(executor.execute("greet"))
        await inside.wait()
        registry.replace(greet_better)
        assert (await executor.execute("greet")).output == "new"
        go_on.set()
        assert (await under_way).output == "old"
        registry.remove("greet")
        result = await executor.execute("greet")
    assert result.error is not None
    assert result.error.code == "NOT_FOUND"


@pytest.mark.anyio
async def test_a_tool_is_replaced_from_another_thread_while_calls_run() -> None:
    def version(n: int) -> Entry:
        @tool(name="version")
        async def made() -> int:
            """The version."""
            return n

        return Entry(made.spec, made)

    registry = Registry([version(0)])
    async with Executor(registry) as executor, asyncio.timeout(60):
        seen = [(await executor.execute("version")).output]

        def replace_often() -> None:
            for n in range(1, 101):
                registry.replace(version(n))

        replacing = asyncio.create_task(asyncio.to_thread(replace_often))
        while not replacing.done():
            seen.append((await executor.execute("version")).output)
            await asyncio.sleep(0)
        await replacing
        seen.append((await executor.execute("version")).output)
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 100)


def test_an_entry_is_registered_as_it_is() -> None:
    entry = Entry(msgspec.structs.replace(add.spec, name="plus"), add)
    assert Registry([entry]).entry("plus") is entry
