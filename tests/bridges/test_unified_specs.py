"""The unified contract: specs are data, and come from files, addresses, tables and code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests import specs as drawn
from tests.sources.endpoint import serving
from tests.sources.test_files import SEED
from toolpost import ConfigError, InvalidSchema, InvalidSpec, NameTaken, Registry, SourceError
from toolpost import ToolSpec as OwnSpec
from toolpost.backends.mcp.source import McpSource
from toolpost.bridges.unified import (
    DatabaseLoader,
    FileLoader,
    HttpLoader,
    ToolMetadata,
    ToolSpec,
    ToolSpecRegistry,
    ToolType,
    from_spec,
    tools,
    tools_in,
)
from toolpost.contracts import Declared
from toolpost.sources.tables import Row, table_at

pytestmark = pytest.mark.anyio
TWO = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
ADD = {"module": "math_tools", "function_name": "add"}


def adder(name: str = "calculate_sum", **fields: Any) -> ToolSpec:
    given = {"description": "Add.", "input_schema": TWO, "implementation_config": ADD, **fields}
    return ToolSpec(name=name, **given)


# --- a spec ------------------------------------------------------------------------------------


@pytest.mark.req("UX-1")
def test_a_spec_is_data_and_says_the_same_as_one_of_ours() -> None:
    spec = adder(
        tool_type="python",
        output_schema={"type": "number"},
        metadata=ToolMetadata(
            version="2", category="math", permissions=["clerk"], is_dangerous=True,
            requires_approval=True, tags=["sums"], timeout=3,
        ),
        options={"effects": "read", "limits": {"memory": "64MB"}},
    )  # fmt: skip
    assert spec.tool_type is ToolType.PYTHON
    assert spec.to_spec().to_dict() == {
        "name": "calculate_sum",
        "description": "Add.",
        "input_schema": TWO,
        "output_schema": {"type": "number"},
        "binding": {"module": "math_tools", "function": "add"},
        "version": "2",
        "category": "math",
        "permissions": {"roles": ["clerk"]},
        "tier": 3,
        "requires_approval": True,
        "tags": ["sums"],
        "timeout": 3.0,
        "effects": "read",
        "limits": {"memory": 64_000_000},
    }
    assert ToolSpec.from_dict(spec.to_dict()).to_spec() == spec.to_spec()


@pytest.mark.req("UX-1")
def test_a_planner_sees_a_spec_without_the_implementation() -> None:
    spec = adder()
    assert spec.public() == {
        "name": "calculate_sum",
        "description": "Add.",
        "tool_type": "python",
        "input_schema": TWO,
        "metadata": {},
    }
    registry = ToolSpecRegistry(specs=[spec])
    (seen,) = registry.list_specs()
    assert (seen.public(), seen.implementation_config) == (spec.public(), {})
    assert registry.get("calculate_sum") == spec
    for shown in (repr(spec), str(registry.to_openai_tools()), str(registry.to_mcp_tools())):
        assert "math_tools" not in shown


@settings(max_examples=50)
@given(spec=drawn.specs)
def test_any_spec_of_ours_comes_back_as_it_was(spec: OwnSpec) -> None:
    theirs = from_spec(spec)
    again = ToolSpec.from_dict(json.loads(json.dumps(theirs.to_dict())))
    assert theirs.to_spec() == spec == again.to_spec()
    assert theirs.to_spec().digest == spec.digest


def test_what_was_given_may_be_changed_afterwards() -> None:
    schema, config = json.loads(json.dumps(TWO)), dict(ADD)
    spec = adder(input_schema=schema, implementation_config=config)
    schema["properties"].clear()
    config["module"] = "other"
    spec.to_dict()["input_schema"].clear()
    assert (spec.input_schema, spec.implementation_config) == (TWO, ADD)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "no spaces"}, "not a legal tool name"),
        ({"description": " "}, "has no description"),
        ({"options": {"efects": "read"}}, "unknown field 'efects'; did you mean 'effects'"),
        ({"options": {"kind": "shell"}}, "'kind' is said twice"),
        ({"options": {"timeout": 1}, "metadata": {"timeout": 2}}, "said twice"),
        ({"metadata": {"is_dangerous": "yes"}}, "metadata"),
        ({"metadata": {"danger": True}}, "metadata"),
        ({"metadata": ToolMetadata(is_dangerous="yes")}, "is_dangerous is true or false"),
        ({"metadata": {"is_dangerous": True}, "options": {"tier": 0}}, "tier 3 or 4"),
        ({"metadata": {"timeout": 0}}, "above 0 seconds"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said_when_it_is_made(
    fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidSpec, match=why):
        adder(**{"name": "add", **fields})


def test_what_is_wrong_with_a_schema_or_a_binding_is_said_when_it_is_registered() -> None:
    with pytest.raises(InvalidSchema, match="input_schema"):
        ToolSpecRegistry(specs=[adder(input_schema={"type": "objekt"})])
    with pytest.raises(InvalidSpec, match="binding"):
        ToolSpecRegistry(specs=[adder(implementation_config={"modul": "x"})])
    with pytest.raises(InvalidSpec, match="no parameter"):
        ToolSpecRegistry(
            specs=[adder(tool_type="shell", implementation_config={"command": "rm {c}"})]
        )
    with pytest.raises(TypeError, match="ToolSpec of this contract"):
        ToolSpecRegistry(specs=[OwnSpec(name="a", description="A.")])  # type: ignore[list-item]


# --- a registry --------------------------------------------------------------------------------


@pytest.mark.req("UX-2", "UX-8")
async def test_the_files_of_this_folder_are_loaded_where_nothing_else_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    registry = ToolSpecRegistry()
    await registry.load_all()
    assert len(registry) == 0
    (tmp_path / "tools.yaml").write_text(SEED)
    assert await registry.reload() == {}
    reader, delete = (registry.get(name) for name in ("file_reader", "dangerous_delete"))
    assert reader is not None
    assert delete is not None
    assert reader.implementation_config == {"module": "file_tools", "function_name": "read_file"}
    assert reader.metadata == ToolMetadata(category="filesystem")
    assert (delete.tool_type, delete.implementation_config) == ("shell", {"command": "rm {path}"})
    assert delete.metadata == ToolMetadata(is_dangerous=True, requires_approval=True)
    assert tools(registry) == registry.items()
    entry = Registry(tools(registry)).entry("file_reader")
    assert entry is not None
    assert entry.target == Declared(reader.to_spec(), str(tmp_path.resolve()))


@pytest.mark.req("UX-2")
def test_specs_are_listed_by_what_they_are() -> None:
    command = {"command": "ls"}
    registry = ToolSpecRegistry(
        specs=[
            adder("add", metadata={"category": "math", "tags": ["sums"]}),
            adder("wipe", metadata={"is_dangerous": True, "requires_approval": True}),
            adder("nuke", options={"tier": 4}),
            adder("ls", tool_type=ToolType.SANDBOX, implementation_config=command),
            adder("ls2", tool_type="shell", implementation_config=command),
            adder("bell", tool_type="bell", implementation_config={}),
        ]
    )

    def names(**wanted: Any) -> list[str]:
        return [spec.name for spec in registry.list_specs(**wanted)]

    assert (
        names() == [spec.name for spec in registry] == ["add", "bell", "ls", "ls2", "nuke", "wipe"]
    )
    assert names(tool_type="python") == names(tool_type=ToolType.PYTHON) == ["add", "nuke", "wipe"]
    assert names(tool_type="shell") == names(tool_type="sandbox") == ["ls", "ls2"]
    assert names(tool_type="bell") == ["bell"]
    assert names(category="math") == names(tag="sums") == ["add"]
    assert names(is_dangerous=True) == ["nuke", "wipe"]
    assert names(is_dangerous=False, tool_type="python") == ["add"]
    assert names(requires_approval=True) == ["wipe"]
    assert registry.get("ls").tool_type == "sandbox"  # type: ignore[union-attr]
    registry.unregister("ls")
    assert "ls" not in registry
    assert registry.get("ls") is None


@pytest.mark.req("UX-2")
def test_planners_get_openais_and_mcps_form() -> None:
    registry = ToolSpecRegistry(specs=[adder(), adder("math.sub")])
    (add, sub), (mcp_add, mcp_sub) = registry.to_openai_tools(), registry.to_mcp_tools()
    assert add["type"] == "function"
    assert add["function"]["name"] == mcp_add["name"] == "calculate_sum"
    assert add["function"]["parameters"] == mcp_add["inputSchema"] == TWO
    assert registry.export("openai").name_of(sub["function"]["name"]) == "math.sub"
    assert mcp_sub["description"] == "Add."


@pytest.mark.req("UX-2")
async def test_specs_come_from_files_an_address_and_a_table(tmp_path: Path) -> None:
    spec = adder().to_spec()
    (tmp_path / "more.toml").write_text('[[tools]]\nname = "t"\ndescription = "T."\n')
    (tmp_path / "more.json").write_text(
        '[{"name": "j", "description": "J.", "tool_type": "mcp", '
        '"implementation_config": {"server": "s", "tool": "j"}}]'
    )
    table = table_at("sqlite:///tools.db", base=tmp_path)
    await table.write([Row(spec.name, json.dumps(spec.to_dict()), None)], gone=(), seen=[])
    await table.close()
    with serving() as endpoint:
        loaders = [
            FileLoader("more.*", base=tmp_path),
            HttpLoader(endpoint.url, egress=[endpoint.authority]),
            DatabaseLoader("sqlite:///tools.db", kinds=["python"], base=tmp_path),
        ]
        async with ToolSpecRegistry(loaders) as registry:
            names = ["add", "calculate_sum", "greet", "j", "t"]
            assert [one.name for one in registry] == names
            endpoint.tools = [endpoint.tool("greet")]
            (tmp_path / "more.json").write_text("[{")
            (problem,) = (await registry.reload()).values()
            assert "more.json:1:" in problem
            assert registry.problems == {"loader 1 (FileLoader)": problem}
            assert [one.name for one in registry] == names[1:]  # what is broken stays as it was
            (tmp_path / "more.json").write_text("[]")
            assert await registry.reload() == {}
            assert [one.name for one in registry] == ["calculate_sum", "greet", "t"]


async def test_what_cannot_be_loaded_at_first_stops_it_with_the_reason(tmp_path: Path) -> None:
    registry = ToolSpecRegistry([FileLoader("none.yaml", base=tmp_path)])
    with pytest.raises(SourceError, match=r"none\.yaml"):
        await registry.load_all()
    (tmp_path / "none.yaml").write_text(SEED)
    registry.register(adder("file_reader"))
    with pytest.raises(NameTaken, match="there is a tool 'file_reader' already"):
        await registry.load_all()
    with pytest.raises(NameTaken):
        registry.register(adder("File-Reader"))
    with pytest.raises(ConfigError, match="name it in toolpost"):
        ToolSpecRegistry([McpSource.from_config({"servers": ["x"]}, tmp_path)])


# --- brought into a registry of ours -----------------------------------------------------------


@pytest.mark.req("UX-9")
def test_the_specs_of_a_module_are_found_once_each() -> None:
    one, two, three = adder("one"), adder("two"), adder("three")
    namespace = {
        "one": one,
        "again": one,
        "SPECS": [two, one],
        "registry": ToolSpecRegistry(specs=[two, three]),
        "ToolSpec": ToolSpec,
        "other": 3,
    }
    assert [spec.name for spec in Registry(tools_in(namespace))] == ["one", "three", "two"]
    with pytest.raises(NameTaken):
        Registry(tools_in({"one": one, "another": adder("one", description="Another.")}))
    assert tools_in({}) == []
