"""Where tools may write, and where none may: what one leaves behind opens nothing to another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import toolpost
from tests.sandbox.elsewhere import need_a_sandbox
from toolpost import Runtime
from toolpost.config import Config
from toolpost.contracts import Declared
from toolpost.registry import Registry
from toolpost.spec import ToolSpec
from toolpost.writable import Writable, could_hold

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def confined() -> None:
    need_a_sandbox()


def spec(name: str, **grants: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": "Run a script.",
        "kind": "shell",
        "tier": 2,
        "input_schema": {
            "type": "object",
            "properties": {"script": {"type": "string"}},
            "required": ["script"],
        },
        "binding": {"command": "sh", "stdin": "{script}", **grants},
    }


def described(folder: Path, *specs: dict[str, Any], **more: Any) -> Config:
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools" / "all.json").write_text(json.dumps(specs))
    data = {
        "sources": [{"kind": "files", "paths": ["tools/*.json"]}],
        "backends": {"shell": {"programs": ["sh"]}},
        **more,
    }
    return Config.of(data, base=folder)


async def said(config: Config, tool: str, script: str) -> str:
    async with Runtime(config) as runtime:
        result = await runtime.execute(tool, {"script": script})
    return str(result.output) if result.error is None else result.error.message


@pytest.mark.req("NA-11")
@pytest.mark.parametrize("grant", ["read", "write"])
async def test_attack_a_link_that_one_tool_has_made_opens_nothing_to_another(
    tmp_path: Path, confined: None, grant: str
) -> None:
    victim, shared = tmp_path / "victim", tmp_path / "shared"
    (shared / "out").mkdir(parents=True)
    victim.mkdir()
    (victim / "secret").write_text("s3cret")
    config = described(
        tmp_path, spec("maker", write=[str(shared)]), spec("user", **{grant: [str(shared / "out")]})
    )
    assert await said(config, "user", "echo fine") == "fine"
    assert await said(config, "maker", "rmdir out; ln -s ../victim out; echo made") == "made"
    told = await said(config, "user", f"cat {shared}/out/secret; echo gone > {shared}/out/secret")
    assert "leads over" in told, told
    assert "where a tool may write" in told
    assert (victim / "secret").read_text() == "s3cret"


async def test_what_was_refused_to_one_tool_makes_no_link_of_another_suspicious(
    tmp_path: Path, confined: None
) -> None:
    (tmp_path / "site" / "first").mkdir(parents=True)
    (tmp_path / "site" / "first" / "file").write_text("here")
    (tmp_path / "site" / "current").symlink_to("first")
    user = spec("user", read=[str(tmp_path / "site" / "current")])
    config = described(tmp_path, user, spec("writer", write=[str(tmp_path)]))
    async with Runtime(config) as runtime:
        refused = await runtime.execute("writer", {"script": "true"})
        assert refused.error is not None and "cannot be writable" in refused.error.message
        runtime.registry.remove("writer")
        found = await runtime.execute("user", {"script": f"cat {tmp_path}/site/current/file"})
    assert found.output == "here"


async def test_a_link_of_ones_own_is_followed(tmp_path: Path, confined: None) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_text("here")
    (tmp_path / "near").symlink_to("far")
    config = described(tmp_path, spec("user", read=[str(tmp_path / "near")]))
    assert await said(config, "user", f"cat {tmp_path}/near/file") == "here"


@pytest.mark.req("NA-11")
@pytest.mark.parametrize("write", ["..", ".", "../mods", "../mods/deep/mine"])
async def test_attack_no_tool_may_write_where_tools_are_described(
    tmp_path: Path, confined: None, write: str
) -> None:
    (tmp_path / "mods").mkdir()
    (tmp_path / "mods" / "mine.py").write_text("")
    (tmp_path / "mods" / "deep" / "mine").mkdir(parents=True)
    sources = [
        {"kind": "files", "paths": ["tools/*.json", "mods/**/*.yaml"]},
        {"kind": "modules", "modules": ["mine"], "path": "mods"},
    ]
    (tmp_path / "mods" / "deep" / "some.yaml").write_text("[]")
    config = described(tmp_path, spec("writer", write=[write]), sources=sources)
    assert "cannot be writable in a sandbox" in await said(config, "writer", "true")


@pytest.mark.req("NA-11")
@pytest.mark.parametrize("write", ["helpers", "helpers/cache", "../mods/pkg/sub", "bin"])
async def test_attack_no_tool_may_write_into_the_code_of_another(
    tmp_path: Path, confined: None, write: str
) -> None:
    (tmp_path / "tools" / "helpers" / "cache").mkdir(parents=True)
    (tmp_path / "tools" / "bin").mkdir()
    (tmp_path / "tools" / "bin" / "run.sh").write_text("#!/bin/sh\necho fine\n")
    (tmp_path / "tools" / "bin" / "run.sh").chmod(0o755)
    (tmp_path / "mods" / "pkg" / "sub").mkdir(parents=True)
    (tmp_path / "mods" / "pkg" / "sub" / "mine.py").write_text("")
    sources = [
        {"kind": "files", "paths": ["tools/*.json"]},
        {"kind": "modules", "modules": ["pkg.sub.mine"], "path": "mods"},
    ]
    add = spec("add") | {"kind": "python", "binding": {"module": "helpers.calc", "function": "f"}}
    run = spec("run") | {"binding": {"command": "./bin/run.sh {script}"}}
    programs = ["sh", str(tmp_path / "tools" / "bin" / "run.sh")]
    config = described(
        tmp_path,
        add,
        run,
        spec("writer", write=[write]),
        sources=sources,
        backends={"shell": {"programs": programs}},
    )
    assert "cannot be writable in a sandbox" in await said(config, "writer", "true")
    assert await said(config, "run", "") == "fine"


def test_programs_of_the_config_are_kept_too(tmp_path: Path) -> None:
    (tmp_path / "server.py").touch()
    shell = {"programs": ["/opt/job/run", "sort"], "path": ["/opt/bin", "/usr/bin"]}
    server = {"command": ["python", "server.py"]}
    free = {"servers": {"one": {**server, "isolation": "process"}}}
    for backends, folder, kept in (
        ({"shell": shell}, "/opt/job", True),
        ({"shell": shell}, "/opt/bin", True),
        ({"shell": shell}, "/opt/other", False),
        ({"mcp": free}, str(tmp_path.resolve()), True),
    ):
        config = Config.of({"backends": backends, "lock": "/srv/tools.lock"}, base=tmp_path)
        why = Writable(config, Registry()).taboo(folder)
        assert ("the program of a tool" in (why or "")) is kept, (folder, why)


def test_what_runs_this_is_nowhere_writable(tmp_path: Path) -> None:
    writable = Writable(Config.of({}, base=tmp_path), Registry())
    package, beside = Path(toolpost.__file__).parent, Path(pytest.__file__).parent.parent
    for folder in (package / "builtin", package.parent, beside, beside / "pytest"):
        assert "the Python that runs this" in (writable.taboo(str(folder)) or ""), folder


@pytest.mark.parametrize(
    ("paths", "folder", "could"),
    [
        (["linked/**/*.yaml"], "real/specs/out", True),
        (["linked/**/*.yaml"], "real", True),
        (["linked/*.yaml"], "real", True),
        (["linked/*.yaml"], "real/specs", False),
        (["*/specs/*.yaml"], "real/specs", True),
        (["many/*/*.yaml"], "real", True),
        (["many/*/*.yaml"], "real/specs", False),
    ],
)
def test_a_link_in_the_name_of_specs_is_seen_through(
    tmp_path: Path, paths: list[str], folder: str, could: bool
) -> None:
    (tmp_path / "real" / "specs" / "out").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("real")
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "one").symlink_to("../real")
    config = Config.of({"sources": [{"kind": "files", "paths": paths}]}, base=tmp_path)
    why = Writable(config, Registry()).taboo(str((tmp_path / folder).resolve()))
    assert ("specs are loaded from there" in (why or "")) is could


async def test_a_folder_beside_the_specs_may_be_written(tmp_path: Path, confined: None) -> None:
    config = described(tmp_path, spec("writer", write=["out"]))
    (tmp_path / "tools" / "out").mkdir()
    assert await said(config, "writer", "echo here > file; cat file") == "here"


def test_what_is_kept_is_named(tmp_path: Path) -> None:
    file = tmp_path / "toolpost.toml"
    config = Config(Config.of({}, base=tmp_path).settings, tmp_path, file)
    writable = Writable(config, Registry())
    assert writable.taboo(str(tmp_path)) == f"it contains the config ({file})"
    assert writable.taboo(str(tmp_path / "out")) is None


def test_a_tool_that_comes_later_is_known_too(tmp_path: Path) -> None:
    registry = Registry()
    writable = Writable(Config.of({}, base=tmp_path), registry)
    assert writable.written() == frozenset()
    assert writable.taboo("/srv") is None
    registry.add(Declared(ToolSpec(**spec("late", write=["out"])), "/srv/tools"))
    assert writable.written() == {"/srv/tools/out"}
    assert "the specs of tools" in (writable.taboo("/srv") or "")


@pytest.mark.parametrize(
    ("folder", "pattern", "could"),
    [
        ("/a", "/a/*.yaml", True),
        ("/", "/a/*.yaml", True),
        ("/a/b", "/a/*.yaml", False),
        ("/a/b", "/a/*/*.yaml", True),
        ("/a/b/c", "/a/*/*.yaml", False),
        ("/a/b/c", "/a/**/*.yaml", True),
        ("/b", "/a/**/*.yaml", False),
        ("/a", "/a/b/tools.yaml", True),
        ("/a/c", "/a/b/tools.yaml", False),
    ],
)
def test_a_folder_could_hold_a_spec(folder: str, pattern: str, could: bool) -> None:
    assert could_hold(Path(folder), Path(pattern)) is could
