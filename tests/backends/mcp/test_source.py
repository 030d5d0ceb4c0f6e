"""The source of MCP tools: what is taken in, what is left out, and what a dead server hides."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.backends.mcp.running import processes, serving, until
from toolpost import ConfigError, Runtime, SourceError
from toolpost.config import Config
from toolpost.lock import pin, write_lock

pytestmark = [pytest.mark.anyio, servers.needed]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.mark.req("UX-2", "UX-6")
async def test_names_are_legal_and_unique_and_a_bad_schema_costs_one_tool_only(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "toolpost.mcp"):
        async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
            specs = {spec.binding["tool"]: spec for spec in runtime.registry}
    assert specs["add"].name == "odd.add"
    assert specs["Ünïcode tool/with blanks"].name == "odd._n_code_tool_with_blanks"
    assert specs["Ünïcode tool/with blanks"].description.startswith("The tool Ünïcode tool")
    assert {specs["gre-et"].name, specs["gre.et"].name.rpartition("_")[0]} == {
        "odd.gre-et",
        "odd.gre.et",
    }
    assert specs["gre-et"].description == "Hidden.", "what a person would not see is gone"
    assert (specs["add"].tier, specs["add"].effects) == (2, "once"), "whatever it says of itself"
    assert {"bomb", "far"}.isdisjoint(specs)
    told = caplog.text
    assert "the tool bomb of odd is left out: input_schema" in told
    assert "refers outside this schema and is not fetched" in told


@pytest.mark.req("UX-6")
async def test_a_dead_server_hides_nobody_elses_tools(place: Path, tmp_path: Path) -> None:
    about = {"dead": {"command": ["false"]}, "odd": servers.odd(place)}
    async with serving(about, tmp_path) as runtime:
        assert runtime.registry.get("odd.add") is not None
        assert runtime.problems == {"source 1 (mcp)": "dead: it ended with status 1"}
        assert (await runtime.health())["source 1 (mcp)"].healthy is False
        result = await runtime.execute("odd.add", {"a": 1, "b": 2})
    assert result.output == "3"


async def test_a_server_that_is_required_stops_the_start(tmp_path: Path) -> None:
    about = {"dead": {"command": ["false"], "required": True}}
    with pytest.raises(SourceError, match="'dead' is required: it ended with status 1"):
        async with serving(about, tmp_path):
            pass


async def test_a_server_that_comes_to_life_brings_its_tools_along(
    place: Path, tmp_path: Path
) -> None:
    """It is tried again without being asked for."""
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    words = servers.odd(place)["command"]
    about = servers.odd(place)
    about |= {"command": ["./server"], "read": [*about["read"], ".", str(servers.INSTALLED)]}
    async with serving({"odd": about}, tmp_path) as runtime:
        assert "odd.add" not in runtime.registry
        assert runtime.problems
        program.write_text(f"#!/bin/sh\nexec {' '.join(words)}\n")
        await until(lambda: "odd.add" in runtime.registry)
        await until(lambda: not runtime.problems)


async def test_tools_stay_while_their_server_is_away(place: Path, tmp_path: Path) -> None:
    program = tmp_path / "server"
    words = servers.odd(place)["command"]
    program.write_text(f"#!/bin/sh\nexec {' '.join(words)}\n")
    program.chmod(0o755)
    about = servers.odd(place)
    about |= {"command": ["./server"], "read": [*about["read"], ".", str(servers.INSTALLED)]}
    async with serving({"odd": about}, tmp_path, watch=False) as runtime:
        program.write_text("#!/bin/sh\necho out of order >&2\nexit 7\n")
        for one in processes("odd.py"):
            one.kill()
        await until(lambda: not processes("odd.py"))
        await runtime.reload()
        assert runtime.problems == {"source 1 (mcp)": "odd: it ended with status 7: out of order"}
        away = await runtime.execute("odd.add", {"a": 1, "b": 2})
    assert away.error is not None
    assert (away.error.code, away.error.effects) == ("UNAVAILABLE", "none")


@pytest.mark.req("UX-2")
async def test_a_list_that_changes_is_loaded_again(place: Path, tmp_path: Path) -> None:
    async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
        await runtime.execute("odd.change", {})
        await until(lambda: _described(runtime, "odd.greet").endswith("all secrets."))
        added = await runtime.execute("odd.add", {"a": 1, "b": 2})
    assert added.output == "3"


@pytest.mark.req("UX-2")
async def test_a_change_that_is_told_while_the_last_one_is_looked_at_is_not_lost(
    tmp_path: Path,
) -> None:
    async with serving({"plain": servers.plain()}, tmp_path) as runtime:
        await runtime.execute("plain.grow", {})
        await until(lambda: {"plain.grown3", "plain.grown4"} <= _names(runtime))


@pytest.mark.req("UX-6")
async def test_a_server_that_hangs_does_not_hold_up_the_lists_of_the_others(
    tmp_path: Path,
) -> None:
    about = {"busy": servers.plain(start=3.0), "plain": servers.plain()}
    async with serving(about, tmp_path) as runtime:
        hanging = asyncio.create_task(runtime.execute("busy.hang", {}, timeout=50))
        await until(lambda: _calls(runtime, "busy"))
        await runtime.execute("plain.grow", {})
        await until(lambda: "plain.grown3" in runtime.registry)
        await until(lambda: runtime.problems)
        assert runtime.problems == {"source 1 (mcp)": "busy: it did not list its tools within 3 s"}
        assert _calls(runtime, "busy"), "whoever is busy is not ended for it"
        assert "busy.read" in runtime.registry
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)


async def test_a_name_that_is_taken_costs_a_server_that_tool_and_nobody_the_start(
    place: Path, tmp_path: Path
) -> None:
    """Though its source stands first."""
    own = {"description": "Mine.", "kind": "mcp", "binding": {"server": "odd", "tool": "add"}}
    tools = [{"name": "add", **own}, {"name": "Greet", **own}]
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    sources = [
        {"kind": "mcp", "servers": ["odd"]},
        {"kind": "files", "paths": ["tools.json"]},
    ]
    about = {"odd": servers.odd(place, prefix="")}
    async with serving(about, tmp_path, sources=sources) as runtime:
        assert runtime.problems == {}
        assert {"who", "pieces"} <= {spec.name for spec in runtime.registry}
        assert _described(runtime, "add") == "Mine."
        assert "greet" not in runtime.registry
        told = runtime.left_out["source 1 (mcp)"]
        pinned = pin(runtime.sources, runtime.offers)
    assert told["add"] == "another source has a tool of this name, which stays"
    assert told["greet"] == "it looks like 'Greet', which stays"
    assert pinned.tools["add"].source.startswith("files")
    assert "greet" not in pinned.tools


@pytest.mark.req("UX-2")
async def test_a_rug_pull_is_quarantined(place: Path, tmp_path: Path) -> None:
    """The server changes a description after it was pinned, and says so itself."""
    async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
        write_lock(runtime.pins.file, pin(runtime.sources, runtime.offers))
        await until(lambda: runtime.pins.lock is not None)
        await runtime.execute("odd.change", {})
        await until(lambda: "odd.greet" in runtime.quarantined)
        refused = await runtime.execute("odd.greet", {"name": "Ada"})
        added = await runtime.execute("odd.add", {"a": 1, "b": 2})
        seen = _described(runtime, "odd.greet")
    assert refused.error is not None
    assert refused.error.code == "POLICY_DENIED"
    assert "toolpost lock --accept odd.greet" in refused.error.message
    assert "secrets" not in seen
    assert added.output == "3"


@pytest.mark.req("UX-3", "UX-6")
async def test_a_spec_file_can_name_a_tool_of_a_server(place: Path, tmp_path: Path) -> None:
    spec = {
        "name": "plus",
        "description": "Add two numbers.",
        "kind": "mcp",
        "effects": "read",
        "tier": 0,
        "input_schema": {"type": "object", "properties": {"a": {}, "b": {}}},
        "binding": {"server": "odd", "tool": "add"},
    }
    (tmp_path / "tools.json").write_text(json.dumps([spec]))
    sources = [{"kind": "files", "paths": ["tools.json"]}]
    about = {"odd": servers.odd(place)}
    async with serving(about, tmp_path, sources=sources) as runtime:
        assert not processes("odd.py"), "it is started when it is needed"
        result = await runtime.execute("plus", {"a": 1, "b": 2})
    assert result.output == "3"


async def test_a_tool_of_a_server_that_the_config_lacks_says_what_to_write(tmp_path: Path) -> None:
    spec = {
        "name": "plus",
        "description": "Add.",
        "kind": "mcp",
        "binding": {"server": "od", "tool": "add"},
    }
    (tmp_path / "tools.json").write_text(json.dumps([spec]))
    sources = [{"kind": "files", "paths": ["tools.json"]}]
    async with serving({"odd": {"command": ["x"]}}, tmp_path, sources=sources) as runtime:
        problem = runtime.executor.bound("plus").problem
    assert problem == (
        "there is no MCP server 'od'; did you mean 'odd'?; describe it in "
        "[backends.mcp.servers.od] of toolpost.toml"
    )


async def test_a_binding_is_held_against_what_it_may_say(tmp_path: Path) -> None:
    for wrong, what in [
        ({"binding": {"server": "odd"}}, "missing required field `tool`"),
        ({"binding": {"server": "odd", "tool": "x", "command": ["sh"]}}, "no setting 'command'"),
        ({"binding": {"server": "odd", "tool": "x"}, "isolation": "process"}, "in the config"),
    ]:
        spec = {"name": "plus", "description": "Add.", "kind": "mcp", **wrong}
        (tmp_path / "tools.json").write_text(json.dumps([spec]))
        config = Config.of({"sources": [{"kind": "files", "paths": ["tools.json"]}]}, base=tmp_path)
        with pytest.raises(SourceError, match=what):
            await Runtime(config).load()


async def test_a_wrong_table_of_a_server_is_refused_at_the_start_with_its_place(
    tmp_path: Path,
) -> None:
    for wrong, what in [
        ({}, "a server has a command or a url"),
        ({"command": ["a"], "url": "https://a"}, "a server has a command or a url"),
        ({"command": ["a"], "bearer": "X"}, "'bearer' is nothing for a server with a command"),
        ({"url": "https://a", "read": ["/x"]}, "'read' is nothing for a server with a url"),
        ({"url": "https://a", "isolation": "process"}, "'isolation' is nothing"),
        ({"url": "ftp://a"}, "a url is http"),
        ({"url": "https://me:pw@a"}, "without a user or a password"),
        ({"url": "http://far.example/mcp", "bearer": "X"}, "would travel in the clear"),
        ({"url": "https://a", "headers": {"Authorization": "x"}}, "name a secret as 'bearer'"),
        ({"url": "https://a", "headers": {"Mcp-Session-Id": "x"}}, "no header to be set"),
        ({"command": ["a"], "environment": {"LD_PRELOAD": "x"}}, "cannot be set in the env"),
        ({"command": ["a"], "idle": 0}, "seconds above 0"),
        ({"command": ["a"], "prefix": "a b"}, "a prefix is made of"),
        ({"command": ["a"], "limits": {"memory": "much"}}, "'much' is not a size"),
        ({"command": ["a"], "comand": []}, "unknown field `comand`"),
    ]:
        data = {"backends": {"mcp": {"servers": {"one": wrong}}}}
        with pytest.raises(ConfigError, match="backend mcp servers"):
            Runtime(Config.of(data, base=tmp_path))
        with pytest.raises(ConfigError, match=what):
            Runtime(Config.of(data, base=tmp_path))
    with pytest.raises(ConfigError, match="no name of a server"):
        data = {"backends": {"mcp": {"servers": {"a.b": {"command": ["a"]}}}}}
        Runtime(Config.of(data, base=tmp_path))


async def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    about = {
        "fetching": {"command": ["npx", "-y", "some-server"], "path": ["bin"]},
        "missing": {"command": ["no-such-server"]},
        "secret": {"command": ["true"], "secrets": {"TOKEN": "TOKEN"}},
        "root": {"command": ["true"], "write": ["/"]},
        "gone": {"command": ["true"], "read": ["/not/there"]},
    }
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/npx").write_text("#!/bin/sh\n")
    (tmp_path / "bin/npx").chmod(0o755)
    async with asyncio.timeout(60), serving(about, tmp_path) as runtime:
        (problem,) = runtime.problems.values()
    told = dict(one.split(": ", 1) for one in problem.split("; ") if ": " in one)
    assert "npx fetches a program before it runs it" in problem
    assert "there is no program no-such-server in /usr/local/bin" in told["missing"]
    assert told["secret"].startswith("the secret TOKEN is not set")
    assert "/ cannot go into a sandbox" in told["root"]
    assert "/not/there does not exist" in told["gone"]


def _names(runtime: Runtime) -> set[str]:
    return {spec.name for spec in runtime.registry}


def _calls(runtime: Runtime, name: str) -> bool:
    backend: Any = runtime.executor.backends["mcp"]
    (kept,) = backend.server(name)._kept.values()
    return kept.live is not None and bool(kept.live._calls)


def _described(runtime: Runtime, name: str) -> str:
    spec = runtime.registry.get(name)
    return "" if spec is None else spec.description


async def test_a_newcomer_with_a_look_alike_name_renames_nobody_while_it_runs_and_after_a_restart(
    tmp_path: Path,
) -> None:
    names, program = tmp_path / "names.json", tmp_path / "server.py"
    listed = 'json.loads(Path(__file__).with_name("names.json").read_text())'
    plain = Path(servers.PLAIN).read_text()
    program.write_text(plain.replace("for name in NAMES]", f"for name in {listed}]"))
    about = servers.plain() | {"command": [servers.PYTHON, str(program)], "read": [str(tmp_path)]}

    def own(runtime: Runtime) -> dict[str, str]:
        offered = {offer.spec.binding["tool"]: offer.spec.name for offer in runtime.offers}
        return {tool: name for tool, name in offered.items() if tool.casefold() == "readfile"}

    names.write_text(json.dumps(["readFile"]))
    async with serving({"plain": about}, tmp_path, watch=False) as runtime:
        assert own(runtime) == {"readFile": "plain.readFile"}
        write_lock(runtime.pins.file, pin(runtime.sources, runtime.offers))
        names.write_text(json.dumps(["READFILE", "readFile", "readfile"]))
        await runtime.reload()
        found = own(runtime)
        assert found.pop("readFile") == "plain.readFile"
        assert {name.rpartition("_")[0] for name in found.values()} == {
            "plain.READFILE",
            "plain.readfile",
        }
    async with serving({"plain": about}, tmp_path, watch=False) as runtime:
        assert own(runtime)["readFile"] == "plain.readFile"
        assert (await runtime.execute("plain.readFile", {})).success
        assert len(runtime.quarantined) == 2, "what is new under a pinned source"
