"""The source of the tools that come with toolpost: off until named, each set with its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolpost import Config, ConfigError, Runtime, SourceError
from toolpost.options import Options
from toolpost.plugins import load
from toolpost.sources.builtin import SETS, BuiltinSource, _module, sample

pytestmark = pytest.mark.anyio


def ignore(done: int, total: int) -> None:
    pass


async def names(options: dict[str, Any], base: Path) -> list[str]:
    source = BuiltinSource.from_config(options, base)
    return [one.spec.name for one in await source.load(ignore)]


def test_it_is_found_by_its_name() -> None:
    assert load("sources", "builtin") is BuiltinSource


async def test_only_what_is_harmless_is_there_unasked(tmp_path: Path) -> None:
    source = BuiltinSource.from_config({}, tmp_path)
    found = [one.spec for one in await source.load(ignore)]
    assert [spec.name for spec in found] == ["calculator", "time"]
    assert {(spec.tier, spec.effects) for spec in found} == {(0, "read")}


async def test_a_name_means_a_set_or_one_of_its_tools(tmp_path: Path) -> None:
    assert await names({"tools": ["files"]}, tmp_path) == list(SETS["files"].tools)
    some = await names({"tools": ["list_directory", "time", "read_file"]}, tmp_path)
    assert some == ["read_file", "list_directory", "time"]
    assert await names({"tools": ["read_file", "files"]}, tmp_path) == list(SETS["files"].tools)
    assert await names({"tools": []}, tmp_path) == []


@pytest.mark.parametrize("name", SETS)
async def test_the_table_of_sets_is_what_the_modules_have(name: str, tmp_path: Path) -> None:
    found = await names({"tools": [name]}, tmp_path)
    order = [tool for tool in SETS[name].tools if tool in found]
    assert found == order, "some may want to be told something first"
    assert found, name
    module = _module(name)
    assert issubclass(getattr(module, "Settings", Options), Options)


async def test_a_tool_that_wants_to_be_told_something_first_is_missed(tmp_path: Path) -> None:
    missing = r"'http_get' is not there as \[sources.web\] stands: egress has to say where"
    with pytest.raises(SourceError, match=missing):
        await names({"tools": ["http_get"]}, tmp_path)
    told = {"tools": ["http_get"], "web": {"egress": ["api.example.com:443"]}}
    assert await names(told, tmp_path) == ["http_get"]


async def test_loading_tells_how_far_it_is_and_gives_the_same_again(tmp_path: Path) -> None:
    source = BuiltinSource(["files", "time"], base=tmp_path)
    told: list[tuple[int, int]] = []
    first = await source.load(lambda done, total: told.append((done, total)))
    assert told == [(0, 2), (1, 2)]
    again = await source.load(ignore)
    assert [one.spec for one in first] == [one.spec for one in again]
    assert [change async for change in source.changes()] == []


async def test_settings_of_a_set_reach_its_tools(tmp_path: Path) -> None:
    source = BuiltinSource.from_config(
        {"tools": ["time"], "time": {"zone": "Asia/Tokyo"}}, tmp_path
    )
    (tool,) = await source.load(ignore)
    assert tool.spec.binding["given"] == {"clock": {"zone": "Asia/Tokyo"}}


@pytest.mark.parametrize(
    ("options", "at", "problem"),
    [
        ({"tool": ["time"]}, ("tool",), "has no setting 'tool'; did you mean 'tools'?"),
        ({"tools": "time"}, ("tools",), "expected `array`, got `str`"),
        ({"tools": ["time"], "time": 5}, ("time",), "source builtin time: expected a table"),
        (
            {"tools": ["time"], "time": {"zne": "UTC"}},
            ("time", "zne"),
            "source builtin time has no setting 'zne'; did you mean 'zone'?",
        ),
        (
            {"tools": ["files"], "files": {"roots": "x"}},
            ("files", "roots"),
            "source builtin files roots: expected `array`, got `str`",
        ),
        (
            {"tools": ["time"], "files": {}},
            ("files",),
            'there are settings for it, but none of its tools: add "files" to tools',
        ),
        (
            {"tools": ["calculator"], "calculator": {"digits": 5}},
            ("calculator", "digits"),
            "source builtin calculator has no setting 'digits'; it takes none",
        ),
        (
            {"tools": ["time"], "time": {"zone": "Mars"}},
            ("time", "zone"),
            "time: there is no zone 'Mars': write Europe/Berlin",
        ),
        (
            {"tools": ["files"], "files": {"roots": []}},
            ("files", "roots"),
            "files: name a folder in roots or in read",
        ),
        (
            {"tools": ["knowledge"], "knowledge": {"roots": []}},
            ("knowledge", "roots"),
            "knowledge: name a folder in roots",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_its_place(
    options: dict[str, Any], at: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        BuiltinSource.from_config(options, tmp_path)
    assert refused.value.at == at
    assert problem in refused.value.message


def test_what_a_new_config_says_of_a_set_is_its_own_business() -> None:
    assert sample("time").startswith("\n[sources.time]\n#")
    assert sample("calculator") == "", "nothing to be said"


def test_a_tool_that_is_not_there_is_met_with_those_that_are(tmp_path: Path) -> None:
    unknown = "no tool 'calculater' comes with toolpost; did you mean"
    with pytest.raises(ConfigError, match=unknown) as refused:
        BuiltinSource.from_config({"tools": ["calculater"]}, tmp_path)
    assert refused.value.at == ("tools",)


async def test_a_config_with_them_runs_under_the_default_chain(tmp_path: Path) -> None:
    config = Config.of(
        {
            "sources": [
                {"kind": "builtin", "tools": ["files", "calculator", "time"], "namespace": "my"}
            ]
        },
        base=tmp_path,
    )
    async with Runtime.open(config) as tools:
        sum_ = await tools.execute("my.calculator", {"expression": "4111111111111111 + 1"})
        assert sum_.output["result"] == 4111111111111112, "a number is no credit card here"
        text = "Write to ada@example.com, 555-0100.\n"
        written = await tools.execute("my.write_file", {"path": "a.txt", "content": text})
        assert written.error is None, written.error
        read = await tools.execute("my.read_file", {"path": "a.txt"})
        assert read.output["content"] == text
        assert (tmp_path / "workspace/a.txt").read_text() == text
