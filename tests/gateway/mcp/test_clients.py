"""Clients that others have written: each lists, calls, sees progress, approves, and cancels."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import servers
from tests.gateway.mcp.running import Running, ended, gateway, until
from toolpost import Call, tool

pytestmark = [pytest.mark.anyio, servers.needed]
HERE = Path(__file__).parent
stopped = set[str]()


@tool(effects="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def steps(call: Call) -> str:
    """Tell how far it is."""
    call.progress(1, 2, "half")
    call.progress(2, 2, "all")
    return "done"


@tool(requires_approval=True)
async def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


@tool(timeout=30)
async def linger(name: str, call: Call) -> None:
    """Run until it is stopped."""
    call.progress(1)
    try:
        await asyncio.sleep(60)
    finally:
        stopped.add(name)


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder, trusting = tmp_path_factory.mktemp("clients"), {"approve": True}
    tools = [add, steps, send, linger]
    async with gateway(tools, folder, mcp=trusting, guards=["approval"], within=120) as running:
        yield running


def words_of(client: str, url: str, mode: str) -> list[str]:
    if client == "fastmcp":
        return [servers.PYTHON, str(HERE / "client_of_fastmcp.py"), url, mode]
    package = servers.INSTALLED / "node_modules/@modelcontextprotocol/client"
    return [f"{servers.node()}/node", str(HERE / "client.mjs"), str(package), url, mode]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("client", ["fastmcp", "typescript"])
async def test_a_client_lists_calls_sees_progress_approves_and_cancels(
    running: Running, client: str, mode: str
) -> None:
    status, out, err = await ended(words_of(client, running.url, mode))
    assert status == 0, err
    assert json.loads(out.splitlines()[-1]) == {
        "listed": ["add", "linger", "send", "steps"],
        "added": {"result": 3},
        "progress": ["half", "all"],
        "sent": "sent to Ada",
        "failed": True,
        "cancelled": True,
    }
    await until(lambda: f"{client} {mode}" in stopped, within=5)
