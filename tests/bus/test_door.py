"""NATS as a door: calls of clients on the bus, known by their keys."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bus.house import bus, until
from toolpost import Call, Runtime, tool
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
async def door(server: Embedded, prefix: str, base: Path) -> AsyncIterator[tuple[str, str, Bus]]:
    config = Config.of({"store": {"kind": "memory"}}, base=base)
    settings = NatsSettings(servers=(server.url,), prefix=prefix)
    async with Runtime(config, tools=[who, erase]) as runtime:
        made, text = await Keys(runtime.store, clock=SystemClock()).create("ada")
        auth = AuthSettings(keys=True)
        identity = Identity.of(auth, records=runtime.store, clock=SystemClock())
        async with (
            NatsDoor(runtime, settings, identity=identity, inflight=InFlight()) as opened,
            bus(server, prefix) as client,
        ):
            assert opened._opening is not None
            await opened._opening
            yield made.id, text, client


async def asked(client: Bus, payload: Any, key: str | None, kind: str = REQUEST) -> Any:
    connection = await client.client()
    body = said(kind, payload, source="test", number="q1")
    headers = None if key is None else {"Authorization": f"Bearer {key}"}
    answer = await connection.request(client.subjects.call, body, timeout=10, headers=headers)
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
