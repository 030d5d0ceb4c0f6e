"""``toolpost export``: what a vendor reads on standard output, what people read on the other."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.cli.program import inside, toolpost
from tests.exporters.vendors import schema_read
from tests.gateway.gateway_tools import ALL
from tests.gateway.running import serving
from toolpost.exporters import FORMATS


@pytest.mark.req("FG-5", "UX-2")
@pytest.mark.parametrize("form", FORMATS)
def test_standard_output_is_what_the_vendor_reads_and_nothing_else(
    project: Path, form: str
) -> None:
    done = inside("export", "--format", form, cwd=project)
    assert done.returncode == 0
    tools = json.loads(done.stdout)
    assert len(tools) == 10
    assert all(schema_read(form, tool)["type"] == "object" for tool in tools)
    assert "10 tools, about " in done.stderr


def test_people_are_told_what_was_rewritten_and_what_it_costs(project: Path) -> None:
    done = toolpost("export", "add", "join", "--strict", cwd=project)
    first, second = json.loads(done.stdout)
    assert (first["function"]["name"], second["function"]["strict"]) == ("add", True)
    lines = done.stderr.splitlines()
    assert lines[0].split() == ["tool", "name", "there", "tokens"]
    assert lines[2].split()[:2] == ["add", "add"]
    assert max(map(len, lines)) <= 80
    assert "note: add /properties/b/default: is said in the description" in lines
    assert "note: join: no other properties are taken there" in lines


def test_programs_get_everything_in_one_document(project: Path) -> None:
    done = inside("export", "--tag", "maths", "--json", cwd=project)
    made = json.loads(done.stdout)
    assert done.stderr == ""
    assert made["format"] == "openai"
    assert made["names"] == {"add": "add"}
    assert made["tokens_in_all"] == made["tokens"]["add"] > 20
    assert made["notes"] == made["left_out"] == []


def test_a_file_is_written_and_what_a_terminal_would_obey_is_not(project: Path) -> None:
    done = inside("export", "paint", "-o", "tools.json", cwd=project)
    assert done.stdout == ""
    assert "1 tool, about " in done.stderr and "written to tools.json" in done.stderr
    text = (project / "tools.json").read_text(encoding="utf-8")
    assert "\x1b" not in text and "\u202e" not in text
    described = json.loads(text)[0]["function"]["description"]
    assert described == "Give back text that a terminal would obey:  [bold]not bold[/bold] "


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--format", "opena"), 69, "no exporter 'opena' is installed; did you mean 'openai'?"),
        (("ad",), 4, "There is no tool 'ad'; did you mean 'add'?"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is_near(
    project: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    done = inside("export", *words, cwd=project)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr


def test_no_tools_are_an_empty_list(tmp_path: Path) -> None:
    done = inside("export", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


@pytest.mark.anyio
async def test_the_tools_of_a_gateway_are_exported_here(tmp_path: Path) -> None:
    async with serving(tmp_path, *ALL) as running:
        words = ("--url", running.url, "export", "--format", "mcp", "--tier", "0")
        done = await asyncio.to_thread(inside, *words, cwd=tmp_path)
    names = [tool["name"] for tool in json.loads(done.stdout)]
    assert names == sorted(one.spec.name for one in ALL if one.spec.tier == 0)
