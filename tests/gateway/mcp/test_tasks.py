"""Long calls as tasks, for clients that say they can do with that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.mcp.running import Running, call, envelope, gateway, headers_for, post
from toolpost import Limits, ToolFailed, tool

pytestmark = pytest.mark.anyio
EXTENSION = "io.modelcontextprotocol/tasks"
ABLE = {"_meta": envelope({"extensions": {EXTENSION: {}}})}
stopped = asyncio.Event()


@tool(timeout=120)
async def compute(seconds: float) -> str:
    """Take long."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        stopped.set()
        raise
    return "computed"


@tool(timeout=120)
async def fail() -> str:
    """Take long, and fail."""
    raise ToolFailed("It went wrong.")


@tool
async def greet(name: str) -> str:
    """Greet, at once."""
    return f"Hello, {name}!"


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with gateway([compute, fail, greet], tmp_path_factory.mktemp("tasks")) as running:
        yield running


async def ask(running: Running, method: str, task: str, **more: Any) -> tuple[int, Any]:
    params = {"taskId": task, **ABLE, **more}
    body = {"jsonrpc": "2.0", "id": 5, "method": method, "params": params}
    answer = await post(running.url, body, headers_for(method, task))
    return answer.status_code, answer.json()


async def ended(running: Running, task: str) -> Any:
    async with asyncio.timeout(20):
        while True:
            _, answer = await ask(running, "tasks/get", task)
            if answer["result"]["status"] != "working":
                return answer["result"]
            await asyncio.sleep(0.05)


async def test_a_long_call_is_a_task_whose_result_is_asked_for(running: Running) -> None:
    begun = (await call(running.url, "compute", {"seconds": 0.1}, **ABLE))["result"]
    assert (begun["resultType"], begun["status"]) == ("task", "working")
    assert begun["ttlMs"] == 86_400_000
    done = await ended(running, begun["taskId"])
    assert (done["resultType"], done["status"]) == ("complete", "completed")
    assert done["result"]["structuredContent"] == {"result": "computed"}
    failed = (await call(running.url, "fail", **ABLE))["result"]
    done = await ended(running, failed["taskId"])
    assert (done["status"], done["result"]["isError"]) == ("completed", True)


async def test_a_short_call_and_a_client_without_tasks_get_results(running: Running) -> None:
    short = await call(running.url, "greet", {"name": "Ada"}, **ABLE)
    assert short["result"]["resultType"] == "complete"
    without = await call(running.url, "compute", {"seconds": 0})
    assert without["result"]["structuredContent"] == {"result": "computed"}
    status, refused = await ask(running, "tasks/get", "x", _meta=envelope())
    assert (status, refused["error"]["code"]) == (400, -32021)


async def test_a_task_is_cancelled_by_who_began_it(running: Running) -> None:
    begun = (await call(running.url, "compute", {"seconds": 60}, **ABLE))["result"]
    task = begun["taskId"]
    assert (await ask(running, "tasks/update", task, inputResponses={}))[0] == 200
    status, answer = await ask(running, "tasks/cancel", task)
    assert (status, answer["result"]["resultType"]) == (200, "complete")
    assert (await ended(running, task))["status"] == "cancelled"
    await asyncio.wait_for(stopped.wait(), 10)


async def test_a_task_that_is_not_there_and_one_that_the_header_does_not_name(
    running: Running,
) -> None:
    status, answer = await ask(running, "tasks/get", "job-of-another")
    assert (status, answer["error"]["code"]) == (400, -32602)
    body = {"jsonrpc": "2.0", "id": 5, "method": "tasks/get", "params": {"taskId": "a", **ABLE}}
    wrong = await post(running.url, body, headers_for("tasks/get", "b"))
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, -32020)
    bad = await call(running.url, "compute", {"seconds": "x"}, **ABLE)
    assert bad["result"]["_meta"]["toolpost/error"]["code"] == "VALIDATION_ERROR"


async def test_a_task_is_begun_though_every_slot_of_its_tool_is_taken(tmp_path: Path) -> None:
    go, begun = asyncio.Event(), asyncio.Event()

    @tool(timeout=120, limits=Limits(concurrency=1, queue=0))
    async def hold() -> str:
        """Hold on until it is told to go on."""
        begun.set()
        await go.wait()
        return "held"

    async with gateway([hold], tmp_path, guards=["slots"]) as running:
        first = (await call(running.url, "hold", **ABLE))["result"]
        await begun.wait()
        second = (await call(running.url, "hold", **ABLE))["result"]
        assert (second["resultType"], second["status"]) == ("task", "working")
        go.set()
        for task in (first, second):
            done = await ended(running, task["taskId"])
            assert done["result"]["structuredContent"] == {"result": "held"}
