"""MCP at a real ``toolpost serve`` with two processes: what lives in one is found by the other."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client

from tests.gateway.mcp.running import call_of, envelope, headers_for
from tests.gateway.program import Program, program, until

pytestmark = pytest.mark.anyio
CONFIG = """\
[[sources]]
kind = "modules"
modules = ["tests.gateway.mcp.asking_tools"]
"""
FORMS = {"elicitation": {"form": {}}}
TASKS = {**FORMS, "extensions": {"io.modelcontextprotocol/tasks": {}}}
SAID = {"name": {"action": "accept", "content": {"name": "Ada"}}}


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Program]:
    folder = tmp_path_factory.mktemp("serve" + "-long" * 30)  # longer than a socket's path may be
    async with program(
        folder, "--processes", "2", config=CONFIG, access_log=False, idle_time=600
    ) as running:
        yield running


class Line:
    """One connection that is kept, and so one process: ``pid``."""

    def __init__(self, served: Program) -> None:
        self._url = f"{served.url}/mcp"
        one = httpx2.Limits(max_connections=1, keepalive_expiry=None)
        self.client = httpx2.AsyncClient(timeout=30, trust_env=False, limits=one)
        self.pid = 0

    async def ask(self, method: str, name: str, params: Any, can: Any = FORMS) -> Any:
        params = {**params, "_meta": envelope(can)}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self.client.post(self._url, json=body, headers=headers_for(method, name))
        return answer.json()

    async def call(self, name: str, can: Any = FORMS, **params: Any) -> Any:
        return await self.ask("tools/call", name, {**call_of(name)["params"], **params}, can)


@pytest.fixture
async def lines(served: Program) -> AsyncIterator[tuple[Line, Line]]:
    """A line to each of the two processes."""
    found: dict[int, Line] = {}
    spare: list[Line] = []
    async with asyncio.timeout(60):
        while len(found) < 2:
            line = Line(served)
            said = await line.call("where")
            line.pid = said["result"]["structuredContent"]["result"]
            spare.append(line)
            found.setdefault(line.pid, line)
    one, two = found.values()
    yield one, two
    for line in spare:
        await line.client.aclose()


async def test_the_answer_to_a_question_finds_the_process_whose_call_waits(
    lines: tuple[Line, Line],
) -> None:
    for asks, answers in (lines, lines[::-1], (lines[0], lines[0])):
        first = (await asks.call("greet"))["result"]
        assert first["resultType"] == "input_required"
        given = {"inputResponses": SAID, "requestState": first["requestState"]}
        last = await answers.call("greet", **given)
        assert last["result"]["content"][0]["text"] == f"Hello, Ada, from {asks.pid}!"
        for line in lines:
            replayed = await line.call("greet", **given)
            assert replayed["error"]["data"] == {"reason": "invalid_request_state"}


async def test_who_goes_while_the_call_runs_elsewhere_takes_it_along(
    served: Program, lines: tuple[Line, Line]
) -> None:
    arguments = {"arguments": {"linger": 40}}
    state = (await lines[0].call("greet", **arguments))["result"]["requestState"]
    last = asyncio.create_task(
        lines[1].call("greet", inputResponses=SAID, requestState=state, **arguments)
    )
    await served.until_done("lingers")
    last.cancel()
    await asyncio.wait([last])
    await until(lambda: "was cancelled" in served.done, 5)


async def test_a_call_of_one_process_is_listed_and_stopped_at_the_other(
    served: Program, lines: tuple[Line, Line]
) -> None:
    url = f"{served.url}/v1/calls"
    for has, other in (lines, lines[::-1]):
        mark = f"doze of {has.pid}"
        call = asyncio.create_task(has.call("doze", {}, arguments={"mark": mark}))
        await served.until_done(f"{mark} began")
        [one] = (await other.client.get(url)).json()["calls"]
        assert one["tool"] == "doze"
        stopped = await other.client.delete(f"{url}/{one['call_id']}")
        assert stopped.status_code == 204
        about = (await call)["result"]["_meta"]
        assert about["toolpost/call_id"] == one["call_id"]
        assert about["toolpost/error"]["code"] == "CANCELLED"
        assert (await other.client.get(url)).json()["calls"] == []
        again = await other.client.delete(f"{url}/{one['call_id']}")
        assert (again.status_code, again.json()["code"]) == (404, "NOT_FOUND")


async def test_a_session_is_one_at_both_processes(served: Program) -> None:
    """The SDK's client has several connections for one session; whoever takes one does not know."""
    seen = set[str]()

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def once() -> None:
        async with Client(
            f"{served.url}/mcp", mode="legacy", elicitation_callback=answer
        ) as client:
            said = await client.call_tool("greet", {})
            assert isinstance(said.content[0], types.TextContent)
            seen.add(said.content[0].text)

    async with asyncio.timeout(60):
        while len(seen) < 2:
            await asyncio.gather(*(once() for _ in range(4)))
    assert all(text.startswith("Hello, Ada, from ") for text in seen)


async def test_a_task_asks_and_is_answered_at_whichever_process(lines: tuple[Line, Line]) -> None:
    one, two = lines
    begun = (await one.call("sign", TASKS))["result"]
    assert (begun["resultType"], begun["status"]) == ("task", "working")
    task = begun["taskId"]

    async def until_it_is(*states: str) -> Any:
        async with asyncio.timeout(20):
            while True:
                said = await two.ask("tasks/get", task, {"taskId": task}, TASKS)
                if said["result"]["status"] in states:
                    return said["result"]
                await asyncio.sleep(0.02)

    waits = await until_it_is("input_required")
    assert waits["inputRequests"]["name"]["params"]["message"] == "Who are you?"
    wrong = {"name": {"action": "accept", "content": {"name": 7}}, "other": SAID["name"]}
    await one.ask("tasks/update", task, {"taskId": task, "inputResponses": wrong}, TASKS)
    assert (await until_it_is("input_required", "completed"))["status"] == "input_required"
    await two.ask("tasks/update", task, {"taskId": task, "inputResponses": SAID}, TASKS)
    done = await until_it_is("completed")
    assert done["result"]["content"][0]["text"] == "signed by Ada"


async def test_the_ways_between_processes_are_their_owner_s_and_lead_nowhere_else(
    served: Program, lines: tuple[Line, Line]
) -> None:
    sockets = list(_state(served).glob("serve-*.sock"))
    assert len(sockets) == 2
    assert {one.stat().st_mode & 0o777 for one in sockets} == {0o600}
    headers = {"Accept": "application/json, text/event-stream", "Mcp-Session-Id": "x.../../x"}
    for name in ("x", "x.", f"x.{'0' * 16}", "x.../../../x", f"x.{'A' * 16}", "."):
        answer = await lines[0].client.post(
            f"{served.url}/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": "ping"},
            headers={**headers, "Mcp-Session-Id": name},
        )
        assert (answer.status_code, answer.json()["error"]["message"]) == (404, "Session not found")


async def test_what_a_process_took_with_it_is_said_to_be_gone(
    served: Program, lines: tuple[Line, Line]
) -> None:
    """One of the two is killed, and another comes in its place."""
    state = (await lines[0].call("greet"))["result"]["requestState"]
    assert _parent(lines[0].pid) == served.child.pid, "it is one that this test has started"
    os.kill(lines[0].pid, signal.SIGKILL)
    await until(lambda: not Path(f"/proc/{lines[0].pid}").exists())
    gone = await lines[1].call("greet", inputResponses=SAID, requestState=state)
    assert gone["error"]["code"] == -32602
    assert "Make the call anew" in gone["error"]["message"]
    assert json.dumps(gone).count(str(lines[0].pid)) == 0


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _state(served: Program) -> Path:
    return served.folder / ".toolpost"
