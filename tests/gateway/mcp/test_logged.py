"""The access log and the calls in flight know MCP's calls as they know REST's, by whichever way
they came."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from tests.gateway.mcp.asking_tools import greet
from tests.gateway.mcp.running import call_of, envelope, gateway, headers_for, post, until
from toolpost import Limits, tool
from toolpost.clock import SystemClock
from toolpost.gateway.access_log import AccessLog
from toolpost.gateway.identity.keys import Keys

pytestmark = pytest.mark.anyio
CALL_ID = "toolpost/call_id"
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
NAPS: list[str] = []


@tool(tier=0, effects="read")
async def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


@tool(tier=0, effects="read", timeout=30, limits=Limits(concurrency=100))
async def nap() -> None:
    """Sleep until somebody stops it."""
    NAPS.append("began")
    await asyncio.sleep(25)


async def called(url: str, body: Any, name: str = "add", **more: str) -> Any:
    """The result of a call, as JSON or at the end of a stream."""
    headers = headers_for("tools/call", name) | {k.replace("_", "-"): v for k, v in more.items()}
    said = (await post(url, body, headers)).text
    return json.loads(said.rpartition("data: ")[2])["result"]


async def asked(url: str, headers: dict[str, str], method: str = "GET") -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=20, trust_env=False) as client:
        return await client.request(method, url, headers=headers)


async def test_every_way_of_a_call_is_logged_with_its_id(tmp_path: Path) -> None:
    NAPS.clear()
    stream = io.StringIO()
    log = AccessLog(stream)
    async with gateway([add, greet, nap], tmp_path, access_log=log) as served:
        url, given = served.url, {"a": 1}
        hears = {"_meta": envelope(progressToken="p")}
        said = [
            await called(url, call_of("add", given)),
            await called(url, call_of("add", given), x_unusual="1"),
            await called(url, call_of("add", given), Accept="*/*"),
            await called(url, call_of("add", given, **hears)),
            await called(url, call_of("add", {"a": "one"}), x_unusual="1"),
        ]
        asks = {"_meta": envelope(FORMS)}
        asked = await called(url, call_of("greet", **asks), "greet")
        answers = {"name": {"action": "accept", "content": {"name": "Ada"}}}
        asks |= {"requestState": asked["requestState"], "inputResponses": answers}
        last = await called(url, call_of("greet", **asks), "greet")
        async with Client(url, mode="legacy") as client:
            shaken = await client.call_tool("add", given)
        gone = asyncio.create_task(called(url, call_of("nap"), "nap"))
        await until(lambda: NAPS)
        gone.cancel()
        await until(lambda: '"status":499' in stream.getvalue())
    await log.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    ids = [line["call_id"] for line in lines if "call_id" in line]
    expected = [one["_meta"][CALL_ID] for one in (*said, last, last)]
    assert ids[:-1] == [*expected, (shaken.meta or {})[CALL_ID]]
    assert [line["call_id"] for line in lines if line["status"] == 499] == ids[-1:]
    assert len(lines) > len(ids), "of a handshake, and what belongs to it, no call is made"


async def test_one_caller_has_so_many_calls_at_once_whatever_their_door(tmp_path: Path) -> None:
    table = {"calls_each": 3, "auth": {"keys": True}}
    NAPS.clear()
    async with gateway([add, nap], tmp_path, table=table) as served:
        keys = Keys(served.runtime.store, clock=SystemClock())
        noisy, other = [
            {"authorization": f"Bearer {(await keys.create(name))[1]}"} for name in "no"
        ]
        rest = f"{served.url.removesuffix('/mcp')}/v1"

        async def napping(way: int) -> Any:
            if way == 0:
                headers = {**noisy, "content-type": "application/json"}
                return await post(f"{rest}/tools/nap:call", {"arguments": {}}, headers)
            slowly = {"Accept": "*/*"} if way == 1 else {}
            return await called(served.url, call_of("nap"), "nap", **noisy, **slowly)

        async with asyncio.TaskGroup() as group:
            naps = [group.create_task(napping(way)) for way in range(3)]
            await until(lambda: len(NAPS) == 3)
            refused = await napping(0)
            assert (refused.status_code, refused.json()["code"]) == (429, "RATE_LIMITED")
            assert refused.headers["retry-after"] == "1"
            for way in (1, 2):
                error = (await napping(way))["_meta"]["toolpost/error"]
                assert (error["code"], error["retry_after"]) == ("RATE_LIMITED", 1.0)
            said = await called(served.url, call_of("add", {"a": 1}), **other)
            assert said["structuredContent"] == {"result": 2}, "others are not told to wait"
            listed = (await asked(f"{rest}/calls", noisy)).json()["calls"]
            assert Counter(one["tool"] for one in listed) == {"nap": 3}
            for one in listed:
                stopped = await asked(f"{rest}/calls/{one['call_id']}", noisy, "DELETE")
                assert stopped.status_code == 204
        assert naps[0].result().status_code == 499
        assert "isError" not in await called(served.url, call_of("add", {"a": 1}), **noisy)
