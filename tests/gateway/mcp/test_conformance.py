"""The official conformance suite, for both eras, and the MCP Inspector."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests import servers
from tests.backends.mcp import test_conformance as of_clients
from tests.gateway.mcp import conforming
from tests.gateway.mcp.running import HANDSHAKE, MODERN, Running, call, ended, gateway
from toolpost import tool

pytestmark = [pytest.mark.anyio, servers.needed, pytest.mark.verify]
DOCS = Path(__file__).parents[3] / "docs/conformance-mcp.md"

EVERYWHERE: Final = {
    "dns-rebinding-protection": 2,
    "json-schema-2020-12": 8,
    "prompts-list": 2,
    "resources-list": 2,
    "server-sse-multiple-streams": 2,
    "tools-call-audio": 2,
    "tools-call-embedded-resource": 2,
    "tools-call-error": 2,
    "tools-call-image": 2,
    "tools-call-mixed-content": 2,
    "tools-call-simple-text": 2,
    "tools-call-with-progress": 2,
    "tools-list": 4,
}
"""Scenario → how many checks it has."""
PASSED: Final[dict[str, dict[str, int]]] = {
    HANDSHAKE: EVERYWHERE
    | {
        "elicitation-sep1034-defaults": 6,
        "elicitation-sep1330-enums": 6,
        "ping": 2,
        "server-initialize": 3,
        "server-session-lifecycle": 3,
        "tools-call-elicitation": 2,
        "tools-list": 3,
    },
    MODERN: EVERYWHERE
    | {
        "caching": 8,
        "http-custom-header-server-validation": 10,
        "http-header-validation": 14,
        "input-required-result-basic-elicitation": 3,
        "input-required-result-ignore-extra-params": 2,
        "input-required-result-missing-input-response": 2,
        "input-required-result-multi-round": 4,
        "input-required-result-request-state": 3,
        "input-required-result-result-type": 2,
        "input-required-result-tampered-state": 2,
        "input-required-result-unsupported-methods": 2,
        "input-required-result-validate-input": 3,
        "sep-2164-resource-not-found": 4,
        "server-stateless": 30,
    },
}
_SAMPLING = "it wants the client's model or roots to be asked for, which are deprecated"
_PROMPTS = "there are no prompts here"
_RESOURCES = "it reads resources of the suite's own"
LEFT_OUT: Final = {
    "completion-complete": "there is nothing to complete: no prompts, no templates",
    "input-required-result-basic-list-roots": _SAMPLING,
    "input-required-result-basic-sampling": _SAMPLING,
    "input-required-result-capability-check": f"{_SAMPLING}; what it is about has a test of ours",
    "input-required-result-multiple-input-requests": _SAMPLING,
    "input-required-result-non-tool-request": _PROMPTS,
    "logging-set-level": "logging to clients is deprecated, and not done",
    "prompts-get-embedded-resource": _PROMPTS,
    "prompts-get-simple": _PROMPTS,
    "prompts-get-with-args": _PROMPTS,
    "prompts-get-with-image": _PROMPTS,
    "resources-read-binary": _RESOURCES,
    "resources-read-text": _RESOURCES,
    "resources-subscribe": _RESOURCES,
    "resources-templates-read": _RESOURCES,
    "resources-unsubscribe": _RESOURCES,
    "server-sse-polling": "not scored: it closes a stream to resume it; here that cancels",
    "tools-call-sampling": _SAMPLING,
    "tools-call-with-logging": "logging to clients is deprecated, and not done",
}
LEFT_OUT_TASKS: Final = {
    "tasks-mrtr-composition": "a tool here asks while it runs, be it a task or not, and not before",
    "tasks-status-notifications": "the suite itself skips it: it is to be rewritten",
}
LEFT_OUT_EXTENSIONS: Final = {
    "sep-2640-skills-directory": "an extension: there are no skills here",
    "sep-2640-skills-enumeration": "an extension: there are no skills here",
    "sep-2640-skills-manifest": "an extension: there are no skills here",
}
TASKS: Final = {
    "tasks-capability-negotiation": 5,
    "tasks-dispatch-and-envelope": 9,
    "tasks-lifecycle": 9,
    "tasks-mrtr-input": 4,
    "tasks-request-headers": 5,
    "tasks-request-state-removal": 3,
    "tasks-required-task-error": 3,
    "tasks-wire-fields": 4,
}
NOT_ASKED: Final = {
    "sep-2549-resources-read-caching-hints": "there is no resource to be read",
    "sep-2575-server-sends-prompts-list-changed-on-subscription": "prompts do not change",
}
"""Checks that the suite itself skips, as it finds nothing to look at."""


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    here: list[Running] = []

    @tool
    async def fresh() -> None:
        """Now here, now not."""

    def change() -> None:
        registry = here[0].runtime.registry
        registry.remove("fresh") if "fresh" in registry else registry.add(fresh)

    folder = tmp_path_factory.mktemp("conformance")
    async with gateway(conforming.tools(change), folder, within=240) as running:
        here.append(running)
        yield running


async def test_every_scenario_for_servers_is_run_or_left_out_for_a_reason() -> None:
    status, out, err = await ended(servers.npm("conformance", "list"))
    assert status == 0, err
    listed = out.partition("Server scenarios")[2].partition("\n\n")[0]
    found = re.findall(r"^  - (\S+) ", listed, re.MULTILINE)
    run = {name for some in PASSED.values() for name in some} | TASKS.keys()
    left_out = LEFT_OUT | LEFT_OUT_TASKS | LEFT_OUT_EXTENSIONS
    assert sorted(found) == sorted(run | left_out.keys())
    assert run.isdisjoint(left_out)


def test_the_docs_say_what_is_left_out_and_why() -> None:
    text = DOCS.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", text, re.MULTILINE))
    left_out = LEFT_OUT | LEFT_OUT_TASKS | LEFT_OUT_EXTENSIONS
    clients = {f"{name}…": why for name, why in of_clients.LEFT_OUT.items()}
    assert rows == left_out | clients
    for counted, some in (
        ("server", {*PASSED[HANDSHAKE], *PASSED[MODERN]}),
        ("extension", TASKS.keys()),
        ("client", {name for one in of_clients.PASSED.values() for name in one}),
    ):
        assert f"{len(some)} {counted} scenarios" in text


@pytest.mark.parametrize("revision", [HANDSHAKE, MODERN])
async def test_the_official_suite_finds_nothing(
    running: Running, revision: str, tmp_path: Path
) -> None:
    words = ("server", "--url", running.url, "--suite", "all", "--spec-version", revision)
    _, out, err = await ended(
        [*servers.npm("conformance", *words), "-o", str(tmp_path)], seconds=120
    )
    alive = await call(running.url, "test_simple_text")
    assert alive["result"]["content"], "a server that is gone fails nothing, either"
    found: dict[str, list[Any]] = {}
    for file in tmp_path.rglob("checks.json"):
        name = re.sub(r"^server-(.*)-2\d{3}-\d\d-\d\dT.*$", r"\1", file.parent.name)
        found[name] = json.loads(file.read_text())
    assert found.keys() - LEFT_OUT.keys() == PASSED[revision].keys(), out + err
    for name, count in PASSED[revision].items():
        bad = [
            (one["id"], one["status"], one.get("errorMessage"))
            for one in found[name]
            if one["status"] not in ("SUCCESS", "INFO")
            and not (one["status"] == "SKIPPED" and one["id"] in NOT_ASKED)
        ]
        assert (name, bad, len(found[name])) == (name, [], count)


async def test_the_official_scenarios_of_tasks_that_we_serve_find_nothing(
    running: Running, tmp_path: Path
) -> None:
    """An extension, run by name."""

    async def checks(name: str) -> Any:
        words = ("server", "--url", running.url, "--scenario", name, "--force")
        folder = str(tmp_path / name)
        await ended([*servers.npm("conformance", *words), "--spec-version", MODERN, "-o", folder])
        (file,) = (tmp_path / name).rglob("checks.json")
        return json.loads(file.read_text())

    found = dict(zip(TASKS, await asyncio.gather(*map(checks, TASKS)), strict=True))
    assert {name: len(one) for name, one in found.items()} == TASKS
    statuses = {one["status"] for some in found.values() for one in some}
    assert statuses <= {"SUCCESS", "INFO"}


FAILING: Final = {
    "failing_job": "failing_job' returned isError:true",
    "protocol_error_job": "",
    "test_error_handling": "test_error_handling' returned isError:true",
    "test_missing_capability": "This tool needs a client that can: sampling.",
}
"""Tools that are there to fail → what the Inspector says of it; else it has nothing to say."""
GIVEN: Final[dict[str, dict[str, Any]]] = {
    "calculator": {"expression": "6 * 7"},
    "confirm_delete": {"filename": "a.txt"},
    "greet": {"name": "Ada"},
    "json_schema_2020_12_tool": {"name": "Ada", "email": "ada@example.org"},
    "slow_compute": {"seconds": 0},
    "test_custom_headers": {"region": "eu"},
    "test_elicitation": {"message": "Well?"},
}


async def inspected(running: Running, era: str, folder: Path) -> Any:
    """What the Inspector lists, and gets from a call of every tool, in one process of its own."""
    cli = servers.INSTALLED / "node_modules/@modelcontextprotocol/inspector/clients/cli/build"
    program = [f"{servers.node()}/node", str(Path(__file__).with_name("inspect.mjs"))]
    calls = [(spec.name, GIVEN.get(spec.name, {})) for spec in running.runtime.list()]
    words = [str(cli / "index.js"), running.url, era, json.dumps(calls)]
    status, out, err = await ended([*program, *words], HOME=str(folder), TMPDIR=str(folder))
    assert (status, err) == (0, ""), out
    return json.loads(out)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_lists_and_calls_every_tool_without_a_complaint(
    running: Running, era: str, tmp_path: Path
) -> None:
    builtin = [{"kind": "builtin"}]  # what is served where there is no config
    async with gateway([], tmp_path, sources=builtin) as harmless:
        for one in (harmless, running):
            names = [spec.name for spec in one.runtime.list()]
            assert len(names) >= 2
            found = await inspected(one, era, tmp_path)
            assert [tool["name"] for tool in found["listed"]["result"]["tools"]] == names
            assert _complaint(found["listed"]) == ""
            called = found["called"]
            assert {name: _complaint(called[name]) for name in names if name not in FAILING} == {
                name: "" for name in names if name not in FAILING
            }
            for name in FAILING.keys() & called.keys():
                assert FAILING[name] in called[name]["fault"]
                assert "result" not in called[name]


def _complaint(found: Any) -> str:
    said = re.sub(r"^Wrote \d+ bytes .*\n", "", found["said"])
    return f"{found.get('fault', '')}{said}"
