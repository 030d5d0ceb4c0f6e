"""Spec files: what they declare, where they are wrong, what they may not reach, how they change."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.specs import WRITERS, specs
from toolpost import Executor, Registry, SourceError, ToolSpec
from toolpost.contracts import Declared
from toolpost.sources.files import FilesSource
from toolpost.spec import Permissions

pytestmark = pytest.mark.anyio

SEED = """
# tools.yaml
tools:
  - name: file_reader
    description: Read file contents
    tool_type: python
    input_schema:
      type: object
      properties:
        path: {type: string}
    implementation_config:
      module: file_tools
      function_name: read_file
    metadata:
      category: filesystem
      requires_approval: false

  - name: dangerous_delete
    description: Delete files
    tool_type: shell
    input_schema:
      type: object
      properties:
        path: {type: string}
    implementation_config:
      command: "rm {path}"
    metadata:
      is_dangerous: true
      requires_approval: true
"""
ONE = """
- name: {name}
  description: A tool.
"""


def ignore(done: int, total: int) -> None:
    assert 0 <= done <= total


async def load(folder: Path, *paths: str) -> list[Declared]:
    return list(await FilesSource(paths, base=folder).load(ignore))


async def specs_of(folder: Path, *paths: str) -> list[ToolSpec]:
    return [one.spec for one in await load(folder, *paths)]


async def fault(folder: Path, *paths: str) -> str:
    with pytest.raises(SourceError) as caught:
        await load(folder, *paths)
    return str(caught.value).replace(f"{folder}{os.sep}", "")


async def fault_in(folder: Path, text: str, name: str = "t.yaml") -> str:
    (folder / name).write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    return await fault(folder, name)


# --- what is read ------------------------------------------------------------------------------


@pytest.mark.req("UX-2", "UX-8")
async def test_the_yaml_of_the_seed_is_read_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").write_text(SEED)
    path = {"type": "object", "properties": {"path": {"type": "string"}}}
    reader = ToolSpec(
        name="file_reader",
        description="Read file contents",
        input_schema=path,
        binding={"module": "file_tools", "function": "read_file"},
        category="filesystem",
    )
    delete = ToolSpec(
        name="dangerous_delete",
        description="Delete files",
        kind="shell",
        input_schema=path,
        binding={"command": "rm {path}"},
        tier=3,
        requires_approval=True,
    )
    folder = str(tmp_path.resolve())
    assert await load(tmp_path, "tools.yaml") == [
        Declared(reader, folder),
        Declared(delete, folder),
    ]


@pytest.mark.req("UX-8", "UX-5")
async def test_the_tools_of_the_seed_run_or_say_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").write_text(SEED)
    (tmp_path / "file_tools.py").write_text(
        "def read_file(path):\n    with open(path) as file:\n        return file.read()\n"
    )
    (tmp_path / "hello.txt").write_text("hello")
    registry = Registry(await load(tmp_path, "tools.yaml"))
    async with Executor(registry) as executor, asyncio.timeout(60):
        read = await executor.execute("file_reader", {"path": str(tmp_path / "hello.txt")})
        assert read.output == "hello", read.error
        delete = await executor.execute("dangerous_delete", {"path": str(tmp_path / "hello.txt")})
    assert delete.error is not None
    assert delete.error.code == "UNAVAILABLE"
    assert "add 'rm' to 'programs' in [backends.shell]" in delete.error.message
    assert (tmp_path / "hello.txt").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.yaml", "tools:\n- {name: a, description: A tool., timeout: 5, limits: {memory: 1GB}}"),
        ("t.yml", "- name: a\n  description: A tool.\n  timeout: 5\n  limits: {memory: 1GB}"),
        (
            "t.json",
            '[{"name": "a", "description": "A tool.", "timeout": 5, "limits": {"memory": "1GB"}}]',
        ),
        (
            "t.toml",
            '[[tools]]\nname = "a"\ndescription = "A tool."\ntimeout = 5\nlimits.memory = "1GB"',
        ),
    ],
)
@pytest.mark.req("UX-2")
async def test_yaml_json_and_toml_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (one,) = await specs_of(tmp_path, name)
    assert one.to_dict() == {
        "name": "a",
        "description": "A tool.",
        "input_schema": one.input_schema,
        "timeout": 5.0,
        "limits": {"memory": 1_000_000_000},
    }


@pytest.mark.parametrize("suffix", WRITERS)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None
)
@given(drawn=st.lists(specs, max_size=3, unique_by=lambda s: s.name))
def test_any_specs_come_back_from_a_file_as_they_were(
    tmp_path: Path, suffix: str, drawn: list[ToolSpec]
) -> None:
    file = tmp_path / f"tools.{suffix}"
    file.write_text(WRITERS[suffix]([s.to_dict() for s in drawn]), encoding="utf-8")
    found = asyncio.run(specs_of(tmp_path, file.name))
    assert found == drawn
    assert [s.digest for s in found] == [s.digest for s in drawn]


async def test_several_files_and_globs_are_read_in_a_fixed_order(tmp_path: Path) -> None:
    (tmp_path / "more" / "deep").mkdir(parents=True)
    for name in ("z.yaml", "more/b.yaml", "more/a.yaml", "more/deep/c.yaml", "more/notes.txt"):
        (tmp_path / name).write_text(ONE.format(name=Path(name).stem))
    found = await specs_of(tmp_path, "z.yaml", "more/*.yaml", "more/a.yaml", "**/c.yaml")
    assert [s.name for s in found] == ["z", "a", "b", "c"]
    again = await specs_of(tmp_path, f"{tmp_path}/more/*.yaml")
    assert [s.name for s in again] == ["a", "b"]


async def test_a_source_with_no_tools_is_empty(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("tools: []")
    assert await load(tmp_path, "t.yaml") == []
    assert await load(tmp_path) == []


async def test_paths_start_here_unless_a_base_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.yaml").write_text(ONE.format(name="a"))
    monkeypatch.chdir(tmp_path)
    (one,) = await FilesSource(["t.yaml"]).load(ignore)
    assert one == Declared(one.spec, str(tmp_path.resolve()))


# --- the other spelling ------------------------------------------------------------------------


def foreign(**fields: Any) -> str:
    tool = {"name": "a", "description": "d", "tool_type": "python", **fields}
    return json.dumps({"tools": [tool]}, indent=1)


async def test_every_field_of_the_other_spelling_has_a_place(tmp_path: Path) -> None:
    metadata = {
        "version": "1",
        "category": "c",
        "permissions": ["admin"],
        "tags": ["t"],
        "timeout": 3,
        "is_dangerous": True,
        "requires_approval": True,
    }
    command = {"command": "ls"}
    (tmp_path / "t.json").write_text(
        foreign(tool_type="sandbox", implementation_config=command, metadata=metadata)
    )
    (one,) = await specs_of(tmp_path, "t.json")
    assert one == ToolSpec(
        name="a",
        description="d",
        kind="shell",
        binding=command,
        version="1",
        category="c",
        permissions=Permissions(roles=("admin",)),
        tags=("t",),
        timeout=3,
        tier=3,
        requires_approval=True,
    )


@pytest.mark.parametrize(
    ("fields", "tier"),
    [
        ({"metadata": {"is_dangerous": False}}, 1),
        ({"metadata": {"is_dangerous": True}}, 3),
        ({"metadata": {"is_dangerous": True}, "tier": 4}, 4),
        ({"metadata": {"is_dangerous": False}, "tier": 2}, 2),
        ({"metadata": None}, 1),
    ],
)
async def test_dangerous_means_tier_three_or_more(
    tmp_path: Path, fields: dict[str, Any], tier: int
) -> None:
    (tmp_path / "t.json").write_text(foreign(**fields))
    assert [s.tier for s in await specs_of(tmp_path, "t.json")] == [tier]


@pytest.mark.parametrize(
    ("fields", "place", "message"),
    [
        (
            {"metadata": {"categroy": "x"}},
            "8:17",
            "unknown metadata 'categroy'; did you mean 'category'?",
        ),
        ({"metadata": [1]}, "7:16", "metadata is a mapping"),
        ({"metadata": {"is_dangerous": "no"}}, "8:21", "is_dangerous is true or false"),
        ({"tier": 1, "metadata": {"is_dangerous": True}}, "9:21", "is_dangerous means tier 3 or 4"),
        ({"metadata": {"timeout": 0}}, "8:16", "timeout of 'a' must be above 0 seconds"),
        (
            {"metadata": {"permissions": [1]}},
            "8:20",
            "permissions.roles.0: expected `str`, got `int`",
        ),
        ({"kind": "shell"}, "7:12", "'kind' is said twice, once as 'kind'"),
        (
            {"category": "x", "metadata": {"category": "y"}},
            "9:17",
            "'category' is said twice, once as 'metadata.category'",
        ),
        ({"implementation_config": [1]}, "7:29", "binding: expected `object`, got `array`"),
        ({"tool_type": 5}, "6:17", "kind: expected `str`, got `int`"),
    ],
)
async def test_a_fault_in_the_other_spelling_is_placed_as_it_is_written(
    tmp_path: Path, fields: dict[str, Any], place: str, message: str
) -> None:
    told = await fault_in(tmp_path, foreign(**fields), "t.json")
    assert told.startswith(f"t.json:{place}: ")
    assert message in told


# --- what is wrong, and where ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "- name: a\n  description: d\n  tier: 9\n",
            "t.yaml:3:9: tier of 'a' must be 0 (safe) to 4",
        ),
        (
            "- name: a\n  description: d\n  timout: 5\n",
            "t.yaml:3:11: unknown field 'timout'; did you mean",
        ),
        ("- name: x\n  description: d\n- name: a\n", "t.yaml:3:3: tool 'a' has no description"),
        ("- description: d\n", "t.yaml:1:3: this tool has no name"),
        ("- name: a b\n  description: d\n", "t.yaml:1:9: 'a b' is not a legal tool name"),
        ("- just a text\n", "t.yaml:1:3: a tool is a mapping"),
        (
            "- name: a\n  description: d\n  limits:\n    memory: lots\n",
            "t.yaml:4:13: limits.memory: 'lots'",
        ),
        ("- name: a\n  description: d\n  tags: [x, 5]\n", "t.yaml:3:13: tags.1: expected `str`"),
        ("- name: a\n  description: d\n  cache: {ttl: 5}\n", "t.yaml:3:10: 'a' may be cached only"),
        ("a: 1\n", "t.yaml:1:1: expected a list of tools, or a mapping with the key 'tools'"),
        ("tools: none\n", "t.yaml:1:8: expected a list of tools"),
        ("tools: []\ninclude: other.yaml\n", "t.yaml:2:1: unknown key 'include' beside 'tools'"),
        ("- !include other.yaml\n", "t.yaml:1:3: "),
        ("- &a {name: x}\n- *b\n", "t.yaml:2:3: "),
        ("", "t.yaml:1:1: expected a list of tools"),
    ],
)
async def test_a_fault_is_told_with_file_line_and_column(
    tmp_path: Path, text: str, told: str
) -> None:
    assert (await fault_in(tmp_path, text)).startswith(told)


@pytest.mark.parametrize(
    ("binding", "told"),
    [
        (
            "{modul: m, function: f}",
            "3:20: the binding of 'a' has no setting 'modul'; did you mean",
        ),
        ("{module: m, functoin: f}", "3:34: the binding of 'a' has no setting 'functoin'; did you"),
        ("{module: m, function: f, x: 1}", "3:40: the binding of 'a' has no setting 'x'; it takes"),
        ("{module: m}", "3:12: the binding of 'a'"),
        ("{module: 5, function: f}", "3:21: the binding of 'a' module: expected `str`"),
    ],
)
async def test_a_binding_that_is_wrong_is_found_when_its_file_is_loaded(
    tmp_path: Path, binding: str, told: str
) -> None:
    text = f"- name: a\n  description: d\n  binding: {binding}\n"
    assert (await fault_in(tmp_path, text)).startswith(f"t.yaml:{told}")


async def test_a_binding_in_the_other_spelling_is_placed_as_it_is_written(tmp_path: Path) -> None:
    config = {"module": "m", "function_nam": "f"}
    told = await fault_in(tmp_path, foreign(implementation_config=config), "t.json")
    assert told.startswith("t.json:9:21: the binding of 'a' has no setting 'function_nam'; did you")


async def test_loading_imports_no_tool_and_what_has_no_binding_may_be_described(
    tmp_path: Path,
) -> None:
    text = """
        - {name: a, description: d, binding: {module: no.such.module, function: f}}
        - {name: b, description: d}
        - {name: c, description: d, kind: nobody_has_this, binding: {anything: 1}}
    """
    (tmp_path / "t.yaml").write_text(dedent(text), encoding="utf-8")
    assert [spec.name for spec in await specs_of(tmp_path, "t.yaml")] == ["a", "b", "c"]


SCHEMA = """
    - name: a
      description: d
      {which}:
        type: object
        properties:
          outer:
            type: object
            properties:
              inner: {inner}
"""


@pytest.mark.parametrize("which", ["input_schema", "output_schema"])
@pytest.mark.parametrize(
    ("inner", "column", "message"),
    [
        ("{type: strin}", 25, "/properties/outer/properties/inner/type: must be one or a list of"),
        ("{$ref: 'http://example.com/x'}", 25, "/properties/outer/properties/inner/$ref: "),
        ("{$ref: '/etc/passwd'}", 25, "/properties/outer/properties/inner/$ref: "),
        ("{pattern: '('}", 28, "/properties/outer/properties/inner/pattern: "),
    ],
)
@pytest.mark.req("FM-3")
async def test_a_fault_deep_in_a_schema_has_the_right_line(
    tmp_path: Path, which: str, inner: str, column: int, message: str
) -> None:
    told = await fault_in(tmp_path, SCHEMA.format(which=which, inner=inner))
    assert told.startswith(f"t.yaml:9:{column}: {which} of 'a': ")
    assert message in told


async def test_a_schema_that_is_wrong_as_a_whole_is_placed_at_its_beginning(tmp_path: Path) -> None:
    told = await fault_in(tmp_path, "- name: a\n  description: d\n  input_schema: {title: x}\n")
    assert told.startswith("t.yaml:3:17: input_schema of 'a': /type: the arguments of a tool")


async def test_a_name_that_is_there_twice_is_told_with_both_places(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("\n" + ONE.format(name="x").lstrip())
    (tmp_path / "b.json").write_text('{"tools": [{"name": "x", "description": "d"}]}')
    assert await fault(tmp_path, "a.yaml", "b.json") == (
        "b.json:1:12: there is a tool 'x' already, at a.yaml:2:3: rename one of them"
    )


async def test_a_name_twice_in_one_file_is_told_with_both_places(tmp_path: Path) -> None:
    told = await fault_in(tmp_path, ONE.format(name="x").lstrip() * 2)
    assert told == "t.yaml:3:3: there is a tool 'x' already, at t.yaml:1:3: rename one of them"


# --- what a path may not reach -----------------------------------------------------------------


@pytest.fixture
def fence(tmp_path: Path) -> Path:
    (tmp_path / "secret.yaml").write_text(ONE.format(name="stolen"))
    (tmp_path / "inside").mkdir()
    return tmp_path / "inside"


@pytest.mark.parametrize(
    "path",
    ["../secret.yaml", "x/../../secret.yaml", "../*.yaml", "./../secret.yaml", "*/../../*.yaml"],
)
async def test_a_path_that_leaves_the_folder_is_refused(fence: Path, path: str) -> None:
    assert "a path of spec files must not leave its folder" in await fault(fence, path)


async def test_a_link_that_leads_out_is_refused(fence: Path) -> None:
    (fence / "link.yaml").symlink_to(fence.parent / "secret.yaml")
    (fence / "folder").symlink_to(fence.parent)
    for path in (
        "link.yaml",
        "*.yaml",
        "folder/secret.yaml",
        "*/secret.yaml",
        f"{fence}/link.yaml",
    ):
        assert "this link leads out of" in await fault(fence, path)


async def test_a_link_inside_the_folder_is_followed(fence: Path) -> None:
    (fence / "real").mkdir()
    (fence / "real" / "t.yaml").write_text(ONE.format(name="a"))
    (fence / "link.yaml").symlink_to(fence / "real" / "t.yaml")
    (one,) = await load(fence, "link.yaml")
    assert one.folder == str((fence / "real").resolve())


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("none.yaml", "none.yaml: cannot be read: No such file or directory"),
        ("*.yaml", "*.yaml: no file matches (looked in "),
        ("loop.yaml", "loop.yaml"),
        ("a\0b.yaml", "a�b.yaml: not a path of spec files: "),
        ("[*", "[*: no file matches"),
        ("folder.yaml", "folder.yaml: not a regular file"),
        ("notes.txt", "notes.txt: unknown format; name it .yaml"),
    ],
)
async def test_a_file_that_cannot_be_read_is_named(fence: Path, path: str, told: str) -> None:
    (fence / "folder.yaml").mkdir() if path == "folder.yaml" else None
    (fence / "notes.txt").write_text("x")
    if path == "loop.yaml":
        (fence / "loop.yaml").symlink_to(fence / "loop.yaml")
    assert (await fault(fence, path)).startswith(told)


# --- changes -----------------------------------------------------------------------------------


async def next_change(source: FilesSource) -> None:
    async with asyncio.timeout(10):
        await anext(source.changes())


@pytest.mark.req("UX-2")
async def test_a_file_that_is_written_added_or_removed_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(ONE.format(name="a"))
    source = FilesSource(["*.yaml"], base=tmp_path)

    async def names() -> list[str]:
        return [one.spec.name for one in await source.load(ignore)]

    assert await names() == ["a"]
    (tmp_path / "a.yaml").write_text(ONE.format(name="longer"))
    await next_change(source)
    assert await names() == ["longer"]
    (tmp_path / "b.yaml").write_text(ONE.format(name="b"))
    await next_change(source)
    assert await names() == ["longer", "b"]
    (tmp_path / "a.yaml").unlink()
    await next_change(source)
    assert await names() == ["b"]
    (tmp_path / "b.yaml").unlink()
    await next_change(source)


async def test_a_change_between_loading_and_watching_is_not_missed(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(ONE.format(name="a"))
    source = FilesSource(["a.yaml"], base=tmp_path)
    await source.load(ignore)
    (tmp_path / "a.yaml").write_text(ONE.format(name="changed"))
    await next_change(source)


async def test_nothing_changes_while_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(ONE.format(name="a"))
    source = FilesSource(["a.yaml"], base=tmp_path)
    await source.load(ignore)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.2):
            await anext(source.changes())
