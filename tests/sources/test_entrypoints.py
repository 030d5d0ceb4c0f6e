"""Tools of installed packages: only of those that the config names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.packages import TOOLS, forgotten, install
from toolpost import SourceError
from toolpost.registry import as_entry
from toolpost.sources.entrypoints import GROUP, EntryPointsSource

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def site(tmp_path: Path) -> Iterator[Path]:
    with forgotten(tmp_path):
        sys.path.insert(0, str(tmp_path))
        yield tmp_path


async def names(*packages: str) -> list[str]:
    found = await EntryPointsSource(packages).load(lambda done, total: None)
    return [as_entry(one).spec.name for one in found]


@pytest.mark.req("FG-8")
@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("acme_tools", ["add", "greet"]),
        ("acme_tools:add", ["add"]),
        ("acme_tools:Greeter", ["greet"]),
        ("acme_tools:chosen", ["greet", "add"]),
        ("acme_tools:plain", ["plain"]),
    ],
)
async def test_an_entry_point_is_a_module_a_tool_or_a_list(
    site: Path, reference: str, expected: list[str]
) -> None:
    more = '\nchosen = [Greeter, add]\ndef plain() -> int:\n    """Plain."""\n    return 1\n'
    points = {GROUP: {"tools": reference}}
    install(site, "acme-tools", points=points, acme_tools=TOOLS + more)
    assert await names("acme-tools") == expected


@pytest.mark.parametrize("spelling", ["acme-tools", "Acme_Tools", "acme.tools"])
async def test_a_package_may_be_spelt_as_pip_allows(site: Path, spelling: str) -> None:
    install(site, "Acme.Tools", points={GROUP: {"tools": "acme_tools:add"}}, acme_tools=TOOLS)
    assert await names(spelling) == ["add"]


async def test_several_entry_points_come_in_the_order_of_their_names(site: Path) -> None:
    points = {GROUP: {"b": "acme_tools:add", "a": "acme_tools:Greeter"}}
    install(site, "acme-tools", points=points, acme_tools=TOOLS)
    assert await names("acme-tools") == ["greet", "add"]


async def test_installed_is_not_active(site: Path) -> None:
    install(site, "acme-tools", points={GROUP: {"t": "acme_tools"}}, acme_tools="1 / 0")
    install(site, "other-tools", points={GROUP: {"t": "other_tools:add"}}, other_tools=TOOLS)
    assert await names("other-tools") == ["add"]
    assert await names() == []


async def test_a_package_that_offers_no_tools_is_named_with_those_that_do(site: Path) -> None:
    install(site, "acme-tools", points={GROUP: {"t": "acme_tools"}}, acme_tools=TOOLS)
    with pytest.raises(SourceError) as caught:
        await names("acme-tolls")
    assert "no installed package 'acme-tolls' offers tools; did you mean 'acme-tools'?" in str(
        caught.value
    )


@pytest.mark.parametrize(("code", "told"), [("1 / 0", "ZeroDiv"), ("exit(3)", "SystemExit: 3")])
async def test_a_package_that_cannot_be_imported_is_named_with_the_reason(
    site: Path, code: str, told: str
) -> None:
    install(site, "acme-tools", points={GROUP: {"t": "acme_broken"}}, acme_broken=code)
    with pytest.raises(SourceError, match=f"the tools 'acme_broken' cannot be imported: {told}"):
        await names("acme-tools")
