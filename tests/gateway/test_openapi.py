"""The description of the REST door: valid, complete, and true: a fuzzer finds nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
import schemathesis

from tests.gateway.gateway_tools import ALL
from tests.gateway.running import Running, serving
from toolpost import ToolSpec, tool
from toolpost.gateway.rest.openapi import document, moved
from toolpost.gateway.rest.resources import PATHS

pytestmark = pytest.mark.anyio

TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "root": {"$ref": "#/$defs/node"},
        "$ref": {"type": "string", "default": "#/$defs/node", "enum": ["#/$defs/node"]},
    },
    "additionalProperties": False,
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "additionalProperties": False,
        }
    },
}


@tool(tier=0, effects="read")
async def book(
    title: str,
    pages: int = 10,
    kind: Literal["novel", "poem"] = "novel",
    tags: list[str] | None = None,
) -> dict[str, int]:
    """Look at a book."""
    return {"pages": pages}


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with serving(tmp_path_factory.mktemp("openapi"), book, jobs=True) as running:
        yield running


def test_the_description_is_valid_and_has_every_tool_as_an_operation() -> None:
    tree = ToolSpec(name="a.tree-1", description="A tree.", input_schema=TREE)
    specs = [*(one.spec for one in ALL[:2]), tree]
    made = document(specs, protected=True)
    schemathesis.openapi.from_dict(made).validate()
    operations = {
        one["operationId"]: path for path, ways in made["paths"].items() for one in ways.values()
    }
    assert len(operations) == sum(map(len, made["paths"].values()))
    for spec in specs:
        assert operations[f"call_{spec.name}"] == f"/v1/tools/{spec.name}:call"
        assert operations[f"plan_{spec.name}"] == f"/v1/tools/{spec.name}:plan"


def test_what_refers_to_the_root_of_a_schema_refers_to_where_it_is_now() -> None:
    made = moved(TREE, "t.input")
    root = "#/components/schemas/t.input"
    assert made["properties"]["root"] == {"$ref": f"{root}/$defs/node"}
    below = made["$defs"]["node"]["properties"]["below"]
    assert below["items"] == {"$ref": f"{root}/$defs/node"}
    assert made["properties"]["$ref"] == TREE["properties"]["$ref"], "that is a name, and data"
    named = {"$id": "https://example.com/x", "$ref": "#/$defs/y"}
    assert moved(named, "t.input") == named


async def test_every_address_of_the_description_is_there(served: Running) -> None:
    for path, ways in PATHS.items():
        filled = path.replace("{", "").replace("}", "")
        for method in ways:
            answer = await served.ask(method.upper(), filled)
            assert answer.status != 405, (method, path)
            assert "There is nothing at" not in answer.body.decode(), path


@pytest.mark.parametrize(
    "chosen",
    [
        ("--phases", "fuzzing", "--max-examples", "4"),
        ("--phases", "coverage", "--include-path-regex", "book:call$|approve$"),
    ],
    ids=["everything", "thoroughly"],
)
async def test_a_fuzzer_finds_nothing(
    served: Running, chosen: tuple[str, ...], tmp_path: Path
) -> None:
    program = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "schemathesis"),
        *("run", f"{served.url}/openapi.json", "--seed", "1", "--no-color", *chosen),
        *("--generation-database", "none", "--warnings", "off"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(110):
        told, _ = await program.communicate()
    assert program.returncode == 0, told.decode()[-8000:]
