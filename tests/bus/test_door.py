"""NATS as a door: calls of clients on the bus, known by their keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.errors import NoRespondersError

from tests.bus.house import back, bus, hung, until
from toolpost import Call, Caller, Limits, Runtime, tool
from toolpost.approvals import Decision
from toolpost.bus.connection import Bus
from toolpost.bus.embedded import Embedded
from toolpost.bus.wire import said
from toolpost.clock import SystemClock
from toolpost.config import Config
from toolpost.gateway.identity import Identity
from toolpost.gateway.identity.keys import Keys
from toolpost.gateway.identity.settings import AuthSettings
from toolpost.gateway.inflight import InFlight
from toolpost.gateway.nats import REQUEST, NatsDoor
from toolpost.gateway.nats_settings import NatsSettings

pytestmark = pytest.mark.anyio


@tool(tier=0, effects="read")
async def who(call: Call) -> str:
    """Say who calls."""
    call.progress(1, 2, "half")
    return call.caller.id


@tool(tier=4)
async def erase() -> str:
    """Erase everything."""
    raise AssertionError("nobody may")


@asynccontextmanager
async def door(
    server: Embedded, prefix: str, base: Path, *tools: Any, doors: list[NatsDoor] | None = None
) -> AsyncIterator[tuple[str, str, Bus]]:
    config = Config.of({"store": {"kind": "memory"}}, base=base)
    settings = NatsSettings(servers=(server.url,), prefix=prefix)
    async with Runtime(config, tools=[who, erase, *tools]) as runtime:
        made, text = await Keys(runtime.store, clock=SystemClock()).create("ada")
        auth = AuthSettings(keys=True)
        identity = Identity.of(auth, records=runtime.store, clock=SystemClock())
        async with (
            NatsDoor(runtime, settings, identity=identity, inflight=InFlight()) as opened,
            bus(server, prefix) as client,
        ):
            assert opened._opening is not None
            await opened._opening
            if doors is not None:
                doors.append(opened)
            yield made.id, text, client


async def asked(
    client: Bus, payload: Any, key: str | None, kind: str = REQUEST, *, seconds: float = 10
) -> Any:
    connection = await client.client()
    body = said(kind, payload, source="test", number="q1")
    headers = None if key is None else {"Authorization": f"Bearer {key}"}
    answer = await connection.request(client.subjects.call, body, timeout=seconds, headers=headers)
    told = json.loads(answer.data)
    assert told["type"] == "call.response"
    return told


async def test_a_call_over_the_bus_walks_the_whole_road(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with door(nats, prefix, tmp_path) as (name, key, client):
        told = await asked(client, {"tool": "who"}, key)
        assert told["correlationId"] == "q1"
        assert told["payload"]["output"] == f"key:{name}"
        assert "audit" in told["payload"]["metadata"]["trail"]
        denied = await asked(client, {"tool": "erase"}, key)
        assert denied["payload"]["error"]["code"] in ("UNAUTHORIZED", "POLICY_DENIED", "NOT_FOUND")


async def test_a_call_over_the_bus_ends_when_its_key_is_revoked(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    @tool(tier=0, effects="once", timeout=60)
    async def linger() -> str:
        """Run until it is stopped."""
        began.set()
        try:
            await asyncio.sleep(55)
        finally:
            ended.set()
        return "done"

    doors: list[NatsDoor] = []
    async with door(nats, prefix, tmp_path, linger, doors=doors) as (name, key, client):
        answer = asyncio.create_task(asked(client, {"tool": "linger"}, key, seconds=40))
        await began.wait()
        await Keys(doors[0]._runtime.store, clock=SystemClock()).revoke(name)
        error = (await answer)["payload"]["error"]
        assert (error["code"], error["effects"]) == ("UNAUTHORIZED", "unknown")
        assert "has been revoked or has expired" in error["message"]
        assert ended.is_set()


async def test_attack_nobody_is_anonymous_on_the_bus(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    """Attack 29."""
    async with door(nats, prefix, tmp_path) as (_, key, client):
        for wrong in (None, "", "x", key + "x", "tp_nobody"):
            told = await asked(client, {"tool": "who"}, wrong)
            assert told["payload"]["error"]["code"] == "UNAUTHORIZED", wrong
            assert key not in json.dumps(told)


@pytest.mark.parametrize(
    ("payload", "kind"),
    [({}, REQUEST), ({"tool": 5}, REQUEST), ([], REQUEST), ({"tool": "who"}, "other")],
)
async def test_what_is_no_call_is_told_so(
    nats: Embedded, prefix: str, tmp_path: Path, payload: Any, kind: str
) -> None:
    async with door(nats, prefix, tmp_path) as (_, key, client):
        told = await asked(client, payload, key, kind)
        assert told["payload"]["error"]["code"] == "VALIDATION_ERROR"


async def test_progress_is_told_before_the_result(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    heard: list[Any] = []

    async def hear(message: Any) -> None:
        heard.append(json.loads(message.data))

    async with door(nats, prefix, tmp_path) as (_, key, client):
        await client.listen("answers.here", hear)
        connection = await client.client()
        body = said(REQUEST, {"tool": "who", "progress": True}, source="test", number="q2")
        await connection.publish(
            client.subjects.call, body, reply="answers.here",
            headers={"Authorization": f"Bearer {key}"},
        )  # fmt: skip
        await until(lambda: len(heard) == 2)
        assert [one["type"] for one in heard] == ["call.progress", "call.response"]
        assert heard[0]["payload"]["message"] == "half"


held, go = asyncio.Event(), asyncio.Event()


@tool(tier=0, effects="read", timeout=60)
async def hold(call: Call) -> str:
    """Hold on."""
    held.set()
    await go.wait()
    return "held"


async def test_a_door_that_closes_ends_what_it_has_taken_and_leaves_the_rest_to_others(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    held.clear()
    go.clear()
    doors: list[NatsDoor] = []
    async with (
        door(nats, prefix, tmp_path / "one", hold, doors=doors) as (_, key, client),
        bus(nats, prefix) as other,
    ):
        call = asyncio.create_task(asked(client, {"tool": "hold"}, key))
        await held.wait()
        async with door(nats, prefix, tmp_path / "two") as (_, theirs, _):
            closing = asyncio.create_task(doors[0].close(grace=60))
            assert doors[0]._subscription is not None
            await until(lambda: doors[0]._subscription._closed)  # type: ignore[union-attr]
            for _ in range(20):
                told = await asked(other, {"tool": "who"}, theirs)
                assert told["payload"].get("error") is None
        go.set()
        await closing
        assert (await call)["payload"]["output"] == "held"


async def test_what_does_not_end_in_time_is_told_that_it_was_stopped(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    held.clear()
    go.clear()
    doors: list[NatsDoor] = []
    async with door(nats, prefix, tmp_path, hold, doors=doors) as (_, key, client):
        call = asyncio.create_task(asked(client, {"tool": "hold"}, key))
        await held.wait()
        await doors[0].close(grace=0.1)
        error = (await call)["payload"]["error"]
        assert (error["code"], error["effects"]) == ("UNAVAILABLE", "none")
        assert error["retryable"]


async def test_a_door_that_closes_while_the_bus_hangs_takes_nothing_when_that_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.gateway.nats._DRAINED", 0.2)
    came, over = asyncio.Event(), asyncio.Event()

    @tool(tier=0, effects="read", timeout=60)
    async def stay() -> None:
        """Stay."""
        came.set()
        await over.wait()

    doors: list[NatsDoor] = []
    async with (
        Embedded(tmp_path / "nats") as server,
        door(server, "p", tmp_path, stay, doors=doors) as (_, key, client),
    ):
        (one,) = doors
        call = asyncio.create_task(asked(client, {"tool": "stay"}, key))
        await came.wait()
        async with hung(server):
            closing = asyncio.create_task(one.close(grace=60))
            await until(lambda: one._subscription._closed)  # type: ignore[union-attr]
        await back(one.bus, client)
        with pytest.raises(NoRespondersError):
            await asked(client, {"tool": "who"}, key)
        over.set()
        await closing
        await asyncio.gather(call, return_exceptions=True)


async def test_an_answer_that_is_too_large_to_be_sent_is_told_as_that(tmp_path: Path) -> None:
    @tool(tier=0)
    async def fill() -> str:
        """Give back very many letters."""
        return "x" * 30_000

    config = tmp_path / "nats.conf"
    config.write_text("max_payload: 40000\n")  # and no JetStream
    async with (
        Embedded(tmp_path / "nats", config=str(config)) as server,
        door(server, "p", tmp_path, fill) as (_, key, client),
    ):
        error = (await asked(client, {"tool": "fill"}, key))["payload"]["error"]
        assert (error["code"], error["effects"]) == ("UNAVAILABLE", "done")
        assert "too large" in error["message"]


async def test_an_approved_call_over_the_bus_whose_answer_was_lost_is_repeated_by_its_key(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    ran: list[int] = []

    @tool(tier=1, requires_approval=True)
    async def pay(amount: int, call: Call) -> str:
        """Pay, if somebody says so."""
        ran.append(amount)
        return f"paid {amount}"

    doors: list[NatsDoor] = []
    async with door(nats, prefix, tmp_path, pay, doors=doors) as (_, key, client):
        wanted = {"tool": "pay", "arguments": {"amount": 5}, "key": "order-1"}
        refused = (await asked(client, wanted, key))["payload"]
        handle = refused["error"]["details"]["approval"]
        desk = doors[0]._runtime.extension("approval").approvals
        yes, owner = Decision(approve=True), Caller("owner", owner=True)
        await desk.decide(handle, yes, by=owner, channel="terminal")
        for _ in range(2):
            told = (await asked(client, {**wanted, "grant": handle}, key))["payload"]
            assert told["output"] == "paid 5"
        assert (await asked(client, wanted, key))["payload"]["metadata"]["cached"] is True
    assert ran == [5]


async def test_a_dry_run_over_the_bus_does_not_wait_for_a_slot(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    go, begun = asyncio.Event(), asyncio.Event()

    @tool(tier=0, effects="read", timeout=60, limits=Limits(concurrency=1, queue=0))
    async def hold() -> str:
        """Hold on until it is told to go on."""
        begun.set()
        await go.wait()
        return "held"

    async with door(nats, prefix, tmp_path, hold) as (_, key, client), asyncio.timeout(60):
        first = asyncio.create_task(asked(client, {"tool": "hold"}, key))
        await begun.wait()
        planned = await asked(client, {"tool": "hold", "dryRun": True}, key)
        assert planned["payload"]["metadata"]["plan"]["tool"] == "hold"
        go.set()
        assert (await first)["payload"]["output"] == "held"
