"""Real MCP servers under the list: what their authors could do, and nothing that is not so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from toolpost.backends.mcp.backend import McpBackend
from toolpost.config import Config, Settings
from toolpost.contracts import Home, Services
from toolpost.environ import secret
from toolpost.kit.checking import Scores, check, subject_of_definition
from toolpost.parts import sandbox_of
from toolpost.plugins import SharedSandbox

pytestmark = [pytest.mark.anyio, servers.needed]

TOOLS = {"everything": 13, "filesystem": 14, "memory": 9, "time": 2, "git": 12, "fetch": 1}


@pytest.fixture(scope="module")
async def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Scores]:
    """What is found at each server, all of them asked at a time."""
    base = tmp_path_factory.mktemp("servers")
    folder = base / "own"
    folder.mkdir()
    return await scores_of(
        base,
        everything=servers.of_npm("everything", "stdio"),
        filesystem=servers.of_npm("filesystem", str(folder), write=[str(folder)]),
        memory=servers.of_npm("memory", write=[str(folder)]),
        time=servers.of_pypi("time"),
        git=servers.of_pypi("git"),
        fetch=servers.of_pypi("fetch"),
        odd=servers.odd(folder),
    )


async def scores_of(folder: Path, **known: Any) -> Mapping[str, Scores]:
    sandbox = sandbox_of(Config(Settings(), folder))
    provide: Mapping[type, object] = {SharedSandbox: sandbox, Home: Home(folder)}
    backend = McpBackend(Services(provide, secret, {"mcp": {"servers": known}}))
    try:
        listings = await asyncio.gather(*(backend.server(name).list() for name in known))
    finally:
        await backend.close()
        await sandbox.close()
    return {
        name: check([subject_of_definition(one) for one in listing.definitions.values()])
        for name, listing in zip(known, listings, strict=True)
    }


@pytest.mark.req("FM-16")
async def test_the_reference_servers_are_scored_without_a_false_alarm(
    found: Mapping[str, Scores],
) -> None:
    for name, many in TOOLS.items():
        assert len(found[name].tools) == many
        found[name].raise_if_failed(strict=True)


async def test_their_authors_are_told_what_to_do_and_where(found: Mapping[str, Scores]) -> None:
    hints = {
        (name, tool.name, one.item, one.at)
        for name in TOOLS
        for tool in found[name].tools
        for one in tool.findings
    }
    assert hints >= {
        ("git", "git_diff", "parameters", "/inputSchema/properties/repo_path"),
        ("git", "git_checkout", "description", "/description"),
        ("fetch", "fetch", "output-schema", "/outputSchema"),
        ("filesystem", "edit_file", "schema", "/inputSchema"),
    }
    assert {item for _, _, item, _ in hints} <= {
        "parameters", "description", "output-schema", "schema", "vendors",
    }  # fmt: skip


async def test_a_server_that_misbehaves_fails_where_it_does(found: Mapping[str, Scores]) -> None:
    outcomes = {
        (tool.name, item.item): item.outcome for tool in found["odd"].tools for item in tool.items
    }
    strange = "\u00dcn\u00efcode tool/with blanks"
    assert outcomes["bomb", "schema"] == outcomes["far", "schema"] == "failed"
    assert outcomes["gre-et", "hidden-text"] == "failed"
    assert (outcomes[strange, "documentation"], outcomes[strange, "name"]) == ("failed", "warned")
    assert outcomes["gre.et", "registered"] == outcomes["gre-et", "registered"] == "warned"
    assert outcomes["add", "schema"] == outcomes["add", "hidden-text"] == "passed"
