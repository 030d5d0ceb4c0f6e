"""Tools in modules: what a module defines itself, once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.packages import forgotten
from toolpost import SourceError
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
