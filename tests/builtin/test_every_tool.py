"""What holds for every tool that comes with toolpost, whichever set it is in."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Final

import pytest

from toolpost.contracts import Registered
from toolpost.schema import Schema
from toolpost.sources.builtin import SETS, BuiltinSource
from toolpost.spec import ToolSpec, is_external

pytestmark = pytest.mark.anyio

TOLD: Final[dict[str, dict[str, Any]]] = {
    "commands": {"programs": ["df", "kubectl"]},
    "web": {"egress": ["api.example.com:443"]},
}
"""What a set has to be told before all of its tools are there."""
EVERY: Final = [(name, tool) for name, one in SETS.items() for tool in one.tools]
each_tool = pytest.mark.parametrize(("name", "tool"), EVERY, ids=[tool for _, tool in EVERY])


async def registered(name: str, base: Path) -> dict[str, Registered]:
    source = BuiltinSource([name], settings={name: TOLD.get(name, {})}, base=base)
    return {one.spec.name: one for one in await source.load(lambda done, total: None)}


async def spec_of(name: str, tool: str, base: Path) -> ToolSpec:
    return (await registered(name, base))[tool].spec


@each_tool
async def test_a_tool_says_all_that_a_model_and_a_person_have_to_know(
    name: str, tool: str, tmp_path: Path
) -> None:
    spec = await spec_of(name, tool, tmp_path)
    assert spec.title
    assert len(spec.description.split()) >= 8
    assert spec.tags
    assert spec.timeout, "a limit of its own"
    assert spec.effects in ("read", "idempotent", "once")
    assert (spec.tier < 2) or spec.effects != "read", "what only reads is no risk of that kind"
    assert spec.output_schema is not None
    undescribed = [
        key
        for key, schema in spec.input_schema["properties"].items()
        if not any(one.get("description") for one in (schema, *schema.get("anyOf", ())))
    ]
    assert undescribed == []


OURS: Final = frozenset(("calculator", "time", "files", "filesystem"))
"""Sets whose tools give back what is the user's own, and as it is."""


@each_tool
async def test_attack_what_others_wrote_is_marked_as_such(
    name: str, tool: str, tmp_path: Path
) -> None:
    spec = await spec_of(name, tool, tmp_path)
    assert is_external(spec) == (name not in OURS and tool != "ingest_knowledge")


@each_tool
async def test_examples_are_there_and_fit(name: str, tool: str, tmp_path: Path) -> None:
    spec = await spec_of(name, tool, tmp_path)
    assert spec.examples
    schema = Schema(spec.input_schema, coerce=spec.coerce)
    for example in spec.examples:
        schema.admit(example)


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_tests_that_check_its_tools_and_run_their_examples(name: str) -> None:
    """By ``check_tool`` and over ``spec.examples``: what they are tried on, each set knows."""
    used: set[str] = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        if file.name != Path(__file__).name:
            tree = ast.parse(file.read_text(encoding="utf-8"))
            if _imports(tree, SETS[name].module):
                used |= _called_or_read(tree)
    assert {"check_tool", "examples"} <= used


def _imports(tree: ast.AST, module: str) -> bool:
    wanted = f"toolpost.builtin.{module}"
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{one.name}" for one in node.names]
            if any(f"{one}.".startswith(f"{wanted}.") for one in (node.module, *names)):
                return True
    return False


def _called_or_read(tree: ast.AST) -> set[str]:
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return calls | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


STRING: Final = {"type": "string"}
INTEGER: Final = {"type": "integer"}
NUMBER: Final = {"type": "number"}


def items(**properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object", "properties": properties}}


DOCUMENTED: Final[dict[str, dict[str, Any]]] = {
    "read_file": {"content": STRING, "size": INTEGER},
    "write_file": {"bytesWritten": INTEGER},
    "list_directory": {"entries": items(name=STRING, type=STRING, size=INTEGER)},
    "web_search": {"results": items(title=STRING, snippet=STRING, url=STRING)},
    "calculator": {"result": NUMBER},
    "wikipedia": {"summary": STRING, "url": STRING},
    "web_scraper": {"text": STRING, "title": STRING},
    "search_knowledge": {
        "results": {"type": "array"},
        "count": INTEGER,
        "relevance_scores": {"type": "array", "items": NUMBER},
    },
}
"""What agents were taught to expect of an output: names and types of its fields."""


@pytest.mark.req("AF-2", "AF-3", "AF-4", "FM-17")
@pytest.mark.parametrize("tool", DOCUMENTED)
async def test_an_output_has_the_fields_that_are_documented(tool: str, tmp_path: Path) -> None:
    name = next(name for name, one in EVERY if one == tool)
    schema = (await spec_of(name, tool, tmp_path)).output_schema
    assert isinstance(schema, dict)
    whole = resolved(schema, schema)
    assert set(DOCUMENTED[tool]) <= set(whole["required"])
    for field, wanted in DOCUMENTED[tool].items():
        fits(whole["properties"][field], wanted, schema)


def fits(found: dict[str, Any], wanted: dict[str, Any], root: dict[str, Any]) -> None:
    """What is found is of the kind that is wanted, however deep."""
    found = resolved(found, root)
    kinds = {one["type"] for one in found.get("anyOf", [found]) if "type" in one}
    if "enum" in found:
        kinds = {"string"} if all(isinstance(one, str) for one in found["enum"]) else set()
    if wanted["type"] == "number":
        assert kinds <= {"number", "integer"}
    else:
        assert kinds == {wanted["type"]}
    if "items" in wanted:
        fits(found["items"], wanted["items"], root)
    for name, inner in wanted.get("properties", {}).items():
        fits(found["properties"][name], inner, root)


def resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema
    while (where := found.get("$ref")) is not None:
        found = root["$defs"][where.rpartition("/")[2]]
    return found
