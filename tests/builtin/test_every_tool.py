"""What holds for every tool that comes with toolpost, whichever set it is in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.builtin.stages import STAGES, Stage, brought
from toolpost import Executor, Registry, validate_tool_output
from toolpost.approvals import Request
from toolpost.contracts import Registered
from toolpost.extensions.approval import Approval
from toolpost.sources.builtin import SETS
from toolpost.spec import ToolSpec, is_external
from toolpost.stores.memory import MemoryStore
from toolpost.testing import check_tool

pytestmark = pytest.mark.anyio

TOLD: Final[dict[str, dict[str, Any]]] = {
    "commands": {"programs": ["df", "kubectl"]},
    "web": {"egress": ["api.example.com:443"]},
}
"""What a set has to be told before all of its tools are there."""
EVERY: Final = [(name, tool) for name, one in SETS.items() for tool in one.tools]
each_tool = pytest.mark.parametrize(("name", "tool"), EVERY, ids=[tool for _, tool in EVERY])


async def spec_of(name: str, tool: str, base: Path) -> ToolSpec:
    return (await brought(name, base, **TOLD.get(name, {})))[tool].spec


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


@pytest.fixture(scope="module")
async def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    async with STAGES[request.param](tmp_path_factory.mktemp(request.param)) as made:
        yield made


def test_every_set_has_a_stage() -> None:
    assert set(STAGES) == set(SETS)


@pytest.mark.req("FM-14", "FM-17", "AF-2", "NA-8")
@pytest.mark.parametrize(
    ("stage", "tool"), EVERY, ids=[tool for _, tool in EVERY], indirect=["stage"], scope="module"
)
async def test_a_tool_passes_its_check_without_a_warning_and_all_its_examples_run(
    stage: Stage, tool: str
) -> None:
    """What cannot be checked is told with its reason, and is what is excused here."""
    one, trial = stage.tools[tool], stage.trials[tool]
    await every_example_runs(stage, one)
    stage.afresh()
    report = await check_tool(
        one,
        arguments=trial.arguments,
        failing=trial.failing,
        slow=trial.slow,
        parallel=trial.parallel,
    )
    left = {item.name: item.reason for item in report.items if item.outcome != "passed"}
    assert left.items() <= trial.excused.items(), str(report)


async def every_example_runs(stage: Stage, one: Registered) -> None:
    """To its end, as a config brings the tools; who is asked for a yes says it."""

    async def yes(request: Request) -> bool:
        return request.tool == one.spec.name

    first, *_ = stage.tools
    guards = [Approval(MemoryStore(), ask=yes)]
    async with Executor(Registry(stage.tools.values()), guards=guards) as executor:
        assert one.spec.examples
        for example in one.spec.examples:
            stage.afresh()
            if stage.before is not None:
                (await executor.execute(first, stage.before)).raise_for_error()
            result = await executor.execute(one.spec.name, stage.here(example))
            assert result.error is None, (example, result.error)
            assert (result.metadata.approved is not None) == one.spec.requires_approval
            assert validate_tool_output(one.spec, result.output) is None


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
