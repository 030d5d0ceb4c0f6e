"""Tools in modules: what a module defines itself, once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.old_tools import OLD
from tests.sources.packages import forgotten
from toolpost import Config, Runtime, SourceError
from toolpost.sources.contracts import CONTRACTS
from toolpost.sources.modules import ModulesSource

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def afterwards_all_is_as_before(tmp_path: Path) -> Iterator[None]:
    with forgotten(tmp_path):
        yield


async def names(folder: Path, *modules: str) -> list[str]:
    source = ModulesSource(modules, path=folder)
    return [one.spec.name for one in await source.load(lambda done, total: None)]


async def test_every_tool_that_a_module_defines_is_found(tmp_path: Path) -> None:
    (tmp_path / "m_all.py").write_text(
        '''
from toolpost import Tool, create_tool, tool

@tool
def one(x: int) -> int:
    """One."""
    return x

class Two(Tool):
    """Two."""
    async def run(self) -> None: ...

def third(arguments):
    return 3

three = create_tool("three", "Three.", third, input_schema={"type": "object"})
again = three
number = 5
'''
    )
    assert await names(tmp_path, "m_all") == ["one", "two", "three"]


async def test_what_a_module_imported_stays_with_its_owner(tmp_path: Path) -> None:
    (tmp_path / "m_owner.py").write_text(
        'from toolpost import tool\n@tool\ndef theirs() -> int:\n    """Theirs."""\n    return 1\n'
    )
    (tmp_path / "m_user.py").write_text(
        "from m_owner import theirs\n"
        'from toolpost import tool\n@tool\ndef ours() -> int:\n    """Ours."""\n    return 1\n'
    )
    assert await names(tmp_path, "m_user") == ["ours"]
    assert await names(tmp_path, "m_user", "m_owner") == ["ours", "theirs"]


async def test_of_a_class_and_its_instance_the_instance_counts(tmp_path: Path) -> None:
    (tmp_path / "m_instance.py").write_text(
        '''
from toolpost import Tool

class Counter(Tool):
    """Count."""
    def __init__(self, start):
        self.start = start
    async def run(self) -> int:
        return self.start

counter = Counter(5)
'''
    )
    (found,) = await ModulesSource(["m_instance"], path=tmp_path).load(lambda done, total: None)
    assert not isinstance(found, type)


async def test_modules_are_looked_up_in_the_given_folder_first(tmp_path: Path) -> None:
    (tmp_path / "m_first.py").write_text("")
    assert await names(tmp_path, "m_first") == []
    assert await names(tmp_path, "m_first") == []
    assert sys.path.count(str(tmp_path)) == 1


async def test_without_a_folder_the_path_is_left_alone() -> None:
    before = list(sys.path)
    await ModulesSource(["json"]).load(lambda done, total: None)
    assert sys.path == before


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import not_there_at_all", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def (", "SyntaxError: "),
        ("raise SystemExit('say --help')", "SystemExit: say --help"),
        (
            "from toolpost import tool\n@tool\ndef f(): pass",
            "InvalidSpec: tool 'f' has no description",
        ),
    ],
    ids=["import", "raise", "syntax", "exit", "tool"],
)
async def test_a_module_that_cannot_be_imported_is_named_with_the_reason(
    tmp_path: Path, source: str, told: str
) -> None:
    (tmp_path / "m_broken.py").write_text(source)
    with pytest.raises(SourceError) as caught:
        await names(tmp_path, "m_broken")
    assert str(caught.value).startswith("the module 'm_broken' cannot be imported: ")
    assert told in str(caught.value)


@pytest.mark.req("UX-9")
@pytest.mark.parametrize("contract", CONTRACTS)
async def test_tools_of_every_contract_are_loaded_and_run(contract: str, tmp_path: Path) -> None:
    (tmp_path / f"m_{contract}.py").write_text(OLD[contract], encoding="utf-8")
    source = {"kind": "modules", "modules": [f"m_{contract}"]}
    config = Config.of({"sources": [source], "watch": False}, base=tmp_path)
    async with Runtime(config) as runtime:
        assert [spec.name for spec in runtime.list()] == ["add"]
        assert not runtime.empty_sources
        result = await runtime.execute("add", {"a": 1, "b": 2})
        assert result.output in (3, {"sum": 3}), result


async def test_a_tool_object_that_two_modules_share_is_one_tool(tmp_path: Path) -> None:
    (tmp_path / "m_first.py").write_text(OLD["agentic"] + "\nAGAIN = ADD\n", encoding="utf-8")
    (tmp_path / "m_second.py").write_text("from m_first import ADD\n", encoding="utf-8")
    assert await names(tmp_path, "m_first", "m_second") == ["add"]
    assert await names(tmp_path, "m_second") == ["add"]


async def test_what_a_bridge_made_with_a_config_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "m_made.py").write_text(
        OLD["nachos"] + "\nfrom toolpost.bridges.nachos import ToolConfig, tools\n"
        "(ADD,) = tools(Add(), config=ToolConfig(security_mode='strict'))\ndel Add\n",
        encoding="utf-8",
    )
    assert await names(tmp_path, "m_made") == ["add"]


async def test_a_tool_whose_constructor_breaks_is_named(tmp_path: Path) -> None:
    (tmp_path / "m_broken_tool.py").write_text(
        OLD["forge"] + "\n    def __init__(self):\n        raise OSError('no licence')\n",
        encoding="utf-8",
    )
    with pytest.raises(SourceError, match=r"m_broken_tool: a tool of the forge .*no licence"):
        await names(tmp_path, "m_broken_tool")


async def test_a_source_without_tools_says_so_and_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "m_nothing.py").write_text("number = 5\n", encoding="utf-8")
    (tmp_path / "none.yaml").write_text("tools: []\n", encoding="utf-8")
    sources = [
        {"kind": "modules", "modules": ["m_nothing"]},
        {"kind": "files", "paths": ["none.yaml"]},
        {"kind": "builtin"},
    ]
    config = Config.of({"sources": sources, "watch": False}, base=tmp_path)
    async with Runtime(config) as runtime:
        assert list(runtime.empty_sources) == ["source 1 (modules)", "source 2 (files)"]
        assert "m_nothing" in runtime.empty_sources["source 1 (modules)"]
        assert "@tool" in runtime.empty_sources["source 1 (modules)"]
        assert "source 1 (modules): it has no tools" in caplog.text
