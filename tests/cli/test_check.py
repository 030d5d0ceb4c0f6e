"""``toolpost check``: tools of every source scored, real servers among them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests import servers
from tests.backends.http.service import Reply, serving
from tests.cli.program import json_of, toolpost

TOOLS = '''
from toolpost import tool


@tool(tier=0, effects="read", timeout=2, examples=[{"a": 1, "b": 2}])
def add(a: int, b: int) -> int:
    """Add two numbers and return their sum.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b
'''

OPENAPI = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "https://pets.example.com"}],
    "paths": {
        "/pets": {"get": {"operationId": "list_pets", "responses": {}}},
        "/pets/{id}": {
            "get": {
                "operationId": "get_pet",
                "description": "Find one pet by its number and return all that is known of it.",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
                ],
                "responses": {},
            }
        },
    },
}


def outcomes(data: Any) -> dict[str, dict[str, str]]:
    return {
        tool["name"]: {item["item"]: item["outcome"] for item in tool["items"]}
        for tool in data["tools"]
    }


@pytest.mark.req("FM-16")
def test_a_good_tool_passes_and_the_program_ends_well(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(TOOLS, encoding="utf-8")
    done = toolpost("check", "sums.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 tool, 0 failed, 0 warned; 15 of 15 items passed; about " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.req("FM-14", "FM-16")
def test_a_run_tries_the_tools_that_only_read(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(TOOLS, encoding="utf-8")
    found = outcomes(json_of("check", "sums.py", "--run", cwd=tmp_path))["add"]
    tried = ("result", "errors", "unit-tests", "integration-tests")
    assert [found[item] for item in tried] == ["passed"] * 4


@pytest.mark.req("FM-16")
def test_a_failing_item_ends_the_program_with_1_and_says_where_and_what_to_do(
    project: Path,
) -> None:
    done = toolpost("check", "tools.yaml", "--junit", "out.xml", cwd=project)
    assert done.returncode == 1
    words = " ".join(done.stdout.split())
    assert "paint 11/13 1 1" in words
    assert "error hidden-text it holds control characters" in words
    assert "(/description). Write only what a person can see." in words
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    suites = ET.parse(project / "out.xml").getroot()
    assert {one.get("name") for one in suites if one.get("failures") != "0"} == {"paint"}


def test_the_tools_of_a_config_are_chosen_by_name_and_judged_with_its_pipeline(
    project: Path,
) -> None:
    found = outcomes(json_of("check", "ad*", "join", cwd=project))
    assert set(found) == {"add", "join"}
    assert found["add"]["sanitizes"] == found["add"]["privacy"] == "passed"
    assert set(outcomes(json_of("check", str(project), cwd=project.parent))) > {"add", "paint"}
    (project / "toolpost.toml").write_text(
        'guards = []\n[[sources]]\nkind = "files"\npaths = ["tools.yaml"]\n', encoding="utf-8"
    )
    assert outcomes(json_of("check", "add", cwd=project))["add"]["sanitizes"] == "warned"


def test_a_warning_counts_only_where_it_is_asked_to(tmp_path: Path) -> None:
    (tmp_path / "pets.json").write_text(json.dumps(OPENAPI), encoding="utf-8")
    done = toolpost("check", "--openapi", "pets.json", cwd=tmp_path)
    assert done.returncode == 0
    assert "Give the operation a summary or a description" in " ".join(done.stdout.split())
    assert toolpost("check", "--openapi", "pets.json", "--strict", cwd=tmp_path).returncode == 1


@pytest.mark.anyio
async def test_a_document_at_an_address_is_scored(tmp_path: Path) -> None:
    async with serving(lambda asked: Reply(json.dumps(OPENAPI))) as service:
        words = ("check", "--openapi", f"{service.url}/pets.json")
        found = outcomes(await asyncio.to_thread(json_of, *words, cwd=tmp_path))
    assert found["list_pets"]["description"] == "warned"
    assert found["get_pet"]["description"] == "passed"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["check", "nothing"], "There is no tool 'nothing'"),
        (["check", "nothing.yaml"], "nothing.yaml"),
        (["check", "--mcp"], "Say how the server is started"),
        (["check", "--openapi"], "Name one document"),
        (["check", "--mcp", "--openapi", "x"], "say one of them"),
        (["check", "--read", ".", "x"], "goes with --mcp"),
        (["check", "leaving.py"], "leaving.py: it cannot be imported: SystemExit: 1"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_what_cannot_be_looked_at_is_told(project: Path, words: list[str], says: str) -> None:
    (project / "leaving.py").write_text("raise SystemExit(1)", encoding="utf-8")
    done = toolpost(*words, cwd=project)
    assert done.returncode not in (0, 1, 70)
    assert says in done.stderr


def test_a_list_without_tools_is_a_short_report(tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text('{"tools": []}', encoding="utf-8")
    done = toolpost("check", "none.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 tools, 0 failed, 0 warned; 0 of 0 items passed" in done.stdout


# --- servers


@servers.needed
@pytest.mark.req("FM-16")
def test_a_server_is_asked_run_and_scored_in_a_report_that_fits_the_screen(tmp_path: Path) -> None:
    program = servers.of_pypi("time")["command"]
    config = f"[backends.mcp.servers.clock]\ncommand = {json.dumps(program)}\n"
    (tmp_path / "toolpost.toml").write_text(config, encoding="utf-8")
    done = toolpost("check", "--mcp", "--run", "--strict", "clock", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    words = " ".join(done.stdout.split())
    assert "errors" not in words.partition("not judged: ")[2], "it was run"
    assert "Say additionalProperties: false" in words
    assert "2 tools, 0 failed, 0 warned; 28 of 28 items passed" in words
