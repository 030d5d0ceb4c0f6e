"""Runners of the Nachos contract on a real bus, on the subjects of its document."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from nats.errors import NoRespondersError

from tests.bridges.test_nachos import Echo
from tests.bus.house import bus, gateway, worker
from toolpost import Caller, Config, Executor, Registry, Runtime
from toolpost.bridges.nachos import (
    CalculatorTool,
    FilesystemTool,
    SecurityTier,
    ToolConfig,
    ToolRunner,
    tools,
)
from toolpost.bridges.nachos.bus import ANYBODY, BusRunner
from toolpost.bus.connection import Bus
from toolpost.bus.embedded import Embedded
from toolpost.bus.settings import BusOptions
from toolpost.call import OWNER
from toolpost.contracts import Mode

pytestmark = pytest.mark.anyio


async def asked(client: Bus, tool: str, **payload: Any) -> Any:
    body = {
        "id": "r-1", "timestamp": "2026-11-16T09:00:00.000Z", "source": "gateway",
        "type": "tool.request", "payload": {"sessionId": "s-1", "callId": "c-1", **payload},
    }  # fmt: skip
    connection = await client.client()
    subject = f"nachos.tool.{tool}.request"
    return json.loads(
        (await connection.request(subject, json.dumps(body).encode(), timeout=20)).data
    )


def options(server: Embedded) -> BusOptions:
    return BusOptions(servers=(server.url,))


@pytest.mark.req("NA-6")
async def test_a_request_on_the_subject_of_a_tool_is_answered_in_the_envelope(
    nats: Embedded, prefix: str
) -> None:
    async with (
        Executor(Registry(tools(CalculatorTool()))) as executor,
        BusRunner(ToolRunner("calculator", executor), options(nats)),
        bus(nats, prefix) as client,
    ):
        told = await asked(client, "calculator", expression="10 * (5 + 3)")
        assert set(told) == {"id", "timestamp", "source", "type", "correlationId", "payload"}
        assert (told["type"], told["correlationId"]) == ("tool.response", "r-1")
        assert told["payload"]["result"] == {"expression": "10 * (5 + 3)", "answer": 80}
        wrong = await asked(client, "calculator", expression="system('x')")
        assert wrong["payload"]["error"]["code"] in ("VALIDATION_ERROR", "EXECUTION_ERROR")
        connection = await client.client()
        for garbage in (b"", b"{", b"\xff"):
            answer = await connection.request("nachos.tool.calculator.request", garbage, timeout=10)
            assert json.loads(answer.data)["payload"]["error"]["code"] == "VALIDATION_ERROR"
    async with bus(nats, prefix) as client:
        with pytest.raises(NoRespondersError):
            await asked(client, "calculator", expression="1")


@pytest.mark.req("NA-6")
async def test_policy_decides_before_the_tool_sees_it(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    class Forbidden(Echo):
        security_tier = SecurityTier.DANGEROUS

    tool = Forbidden()
    config = ToolConfig(security_mode="standard", base=tmp_path)
    async with ToolRunner.open(tool, config) as runner, bus(nats, prefix) as client:
        for caller in (OWNER, ANYBODY):
            async with BusRunner(runner, options(nats), caller=caller):
                told = await asked(client, "echo", say="x")
                assert told["payload"]["error"]["code"] == "POLICY_DENIED"
    plain = Config.of({"store": {"kind": "memory"}}, base=tmp_path)
    async with (
        Runtime(plain, tools=tools(tool)) as runtime,
        BusRunner(ToolRunner("echo", runtime), options(nats)),
        bus(nats, prefix) as client,
    ):
        told = await asked(client, "echo", say="x")
        assert told["payload"]["error"]["code"] == "POLICY_DENIED"
    assert not tool.seen


@pytest.mark.req("NA-2", "NA-6", "NA-8")
@pytest.mark.parametrize(
    ("mode", "code"), [("standard", None), ("strict", "APPROVAL_REQUIRED"), ("permissive", None)]
)
async def test_mode_and_tier_decide_for_whoever_may_publish(
    nats: Embedded, prefix: str, tmp_path: Path, mode: Mode, code: str | None
) -> None:
    (tmp_path / "workspace").mkdir()
    config = ToolConfig(security_mode=mode, base=tmp_path)
    async with (
        ToolRunner.open(FilesystemTool(), config) as runner,
        BusRunner(runner, options(nats)),
        bus(nats, prefix) as client,
    ):
        sent = {"action": "write", "path": "./workspace/a.txt", "content": "x"}
        payload = (await asked(client, "filesystem", **sent))["payload"]
        assert payload.get("error", {}).get("code") == code
        assert (tmp_path / "workspace" / "a.txt").exists() == (code is None)
        if code is not None:
            return
        wrong = await asked(client, "filesystem", action="write", path="/etc/a", content="")
        assert wrong["payload"]["error"]["message"] == (
            "Path /etc/a is not in allowed directories, content is required for write action"
        )
        wrong = await asked(client, "filesystem", action="burn")
        assert wrong["payload"]["error"]["message"] == (
            "/path: missing required parameter, "
            "/action: must be one of the allowed values (read, write, list, delete)"
        )


@pytest.mark.req("NA-4")
async def test_after_three_failures_in_a_row_a_session_is_told_to_stop(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    for table, code in (({}, "BUDGET_EXCEEDED"), ({"rate": {"tries": 0}}, "EXECUTION_ERROR")):
        plain = Config.of({"store": {"kind": "memory"}, "extensions": table}, base=tmp_path)
        async with (
            Runtime(plain, tools=tools(CalculatorTool())) as runtime,
            BusRunner(ToolRunner("calculator", runtime), options(nats)),
            bus(nats, prefix) as client,
        ):
            told = [await asked(client, "calculator", expression="1 / 0") for _ in range(4)]
            codes = [one["payload"]["error"]["code"] for one in told]
            assert codes == ["EXECUTION_ERROR"] * 3 + [code]
            other = await asked(client, "calculator", expression="1", sessionId="s-2")
            assert other["payload"]["success"]


@pytest.mark.req("NA-9")
async def test_several_runners_share_the_load(nats: Embedded, prefix: str) -> None:
    served: Counter[int] = Counter()

    class Counting(ToolRunner):
        async def handle(self, request: Any, caller: Caller = ANYBODY) -> Any:
            assert not caller.owner
            served[id(self)] += 1
            return await super().handle(request, caller)

    async with Executor(Registry(tools(CalculatorTool()))) as executor:
        one, two = Counting("calculator", executor), Counting("calculator", executor)
        async with (
            BusRunner(one, options(nats)),
            BusRunner(two, options(nats)),
            bus(nats, prefix) as client,
        ):
            many = await asyncio.gather(
                *(asked(client, "calculator", expression=f"{n} + 1") for n in range(60))
            )
    assert [told["payload"]["result"]["answer"] for told in many] == list(range(1, 61))
    assert sum(served.values()) == 60
    assert all(served[id(runner)] >= 10 for runner in (one, two)), served


async def test_an_answer_that_is_too_large_for_the_bus_is_told_so(
    nats: Embedded, prefix: str
) -> None:
    class Long(ToolRunner):
        async def handle(self, request: Any, caller: Caller = ANYBODY) -> Any:
            answer = await super().handle(request, caller)
            return {**answer, "payload": {"success": True, "result": "x" * 2_000_000}}

    async with (
        Executor(Registry(tools(CalculatorTool()))) as executor,
        BusRunner(Long("calculator", executor), options(nats)),
        bus(nats, prefix) as client,
    ):
        told = await asked(client, "calculator", expression="1")
        assert told["correlationId"] == "r-1"
        assert "Ask for less" in told["payload"]["error"]["message"]


@pytest.mark.req("NA-6", "NA-9")
async def test_a_worker_with_the_prefix_of_the_document_serves_the_same_subjects_with_tickets(
    nats: Embedded, tmp_path: Path
) -> None:
    async with (
        worker(nats, "nachos", tmp_path, tools(CalculatorTool())) as made,
        gateway(nats, "nachos", tmp_path) as there,
    ):
        assert made.bus.subjects.request("calculator") == "nachos.tool.calculator.request"
        told = await there.execute("calculator", {"expression": "6 * 7"})
        assert told.output == {"expression": "6 * 7", "answer": 42}
