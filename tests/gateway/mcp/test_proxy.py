"""In front of other MCP servers: their tools under their names, both eras to both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp import Client

from tests import servers
from tests.gateway.mcp.running import Running, serving, until

pytestmark = [pytest.mark.anyio, servers.needed]
Mode = Literal["auto", "legacy"]


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder = tmp_path_factory.mktemp("odd")
    upstream = {
        "later": servers.odd(folder),
        "earlier": servers.of_npm("everything", "stdio"),
    }
    async with serving(
        [],
        tmp_path_factory.mktemp("front"),
        within=120,
        sources=[{"kind": "mcp", "servers": [*upstream]}],
        backends={"mcp": {"servers": upstream}},
    ) as running:
        running.folder = folder  # type: ignore[attr-defined]
        yield running


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param


@pytest.mark.req("UX-6")
async def test_tools_of_both_eras_are_called_by_clients_of_both(
    running: Running, mode: Mode
) -> None:
    heard: list[float] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        heard.append(done)

    async with Client(running.url, mode=mode) as client:
        listed = {one.name: one for one in (await client.list_tools()).tools}
        hints = listed["later.add"].annotations
        assert hints is not None
        assert hints.read_only_hint is False, "an upstream's own hints are a stranger's word"
        added = await client.call_tool("later.add", {"a": 1, "b": 2})
        assert added.content == [types.TextContent(text="3")]
        summed = await client.call_tool("earlier.get-sum", {"a": 1, "b": 2})
        assert "3" in str(summed.content[0])
        told = await client.call_tool("earlier.get-structured-content", {"location": "Chicago"})
        assert told.structured_content is not None
        assert "temperature" in told.structured_content
        pieces = await client.call_tool("later.pieces", {})
        assert [one.type for one in pieces.content] == [
            "text", "image", "audio", "resource", "resource", "resource_link",
        ]  # fmt: skip
        await client.call_tool("later.steps", {}, progress_callback=hear)
        await until(lambda: len(heard) == 3)


async def test_what_an_upstream_asks_is_put_to_the_client(running: Running, mode: Mode) -> None:
    async def answer(context: Any, params: Any) -> types.ElicitResult:
        assert params.message == "Who are you?"
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with Client(running.url, mode=mode, elicitation_callback=answer) as client:
        result = await client.call_tool("later.ask", {})
    assert result.content == [types.TextContent(text="accept: Ada")]


async def test_a_cancelled_call_is_cancelled_upstream(running: Running, mode: Mode) -> None:
    folder = running.folder  # type: ignore[attr-defined]
    for name in ("waiting", "cancelled"):
        (folder / name).unlink(missing_ok=True)
    async with Client(running.url, mode=mode) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "later.wait", {})
        await until(lambda: (folder / "waiting").exists())
        tasks.cancel_scope.cancel()
    await until(lambda: (folder / "cancelled").exists())
