"""A worker as a service of NATS: what it answers to whoever asks with the tools of NATS."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from nats.errors import NoRespondersError
from nats.micro.service import ServiceInfo, ServicePing, ServiceStats

from tests.bus.house import bus, gateway, until, worker
from toolpost import ToolFailed, tool
from toolpost.bus.connection import Bus
from toolpost.bus.embedded import Embedded
from toolpost.bus.wire import Offered
from toolpost.worker.endpoints import NAME, Endpoints

pytestmark = pytest.mark.anyio


@tool(tier=0, effects="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(tier=1)
async def fail() -> str:
    """Fail."""
    raise ToolFailed("secret of a caller")


BARRIERS: dict[int, asyncio.Barrier] = {}
TOOLS = [add, fail]


async def asked(client: Bus, verb: str, whom: str = "") -> Any:
    answer = await (await client.client()).request(f"$SRV.{verb}{whom}", timeout=10)
    return json.loads(answer.data)


async def test_a_worker_is_found_by_its_kind_and_by_its_id(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with worker(nats, prefix, tmp_path, TOOLS) as made, bus(nats, prefix) as client:
        for whom in ("", f".{NAME}", f".{NAME}.{made.id}"):
            ping = await asked(client, "PING", whom)
            assert ping["type"] == "io.nats.micro.v1.ping_response"
            read = ServicePing.from_dict(ping)
            assert (read.name, read.id) == (NAME, made.id)
            assert read.metadata == {"worker": made.id, "prefix": prefix, "tools": "2"}


async def test_every_tool_is_an_endpoint_with_its_schemas(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with worker(nats, prefix, tmp_path, TOOLS), bus(nats, prefix) as client:
        info = ServiceInfo.from_dict(await asked(client, "INFO"))
        assert info.type == "io.nats.micro.v1.info_response"
        assert [one.name for one in info.endpoints] == ["add", "fail"]
        first = info.endpoints[0]
        assert (first.subject, first.queue_group) == (f"{prefix}.tool.add.request", "workers")
        assert first.metadata["digest"] == add.spec.digest
        assert first.metadata["effects"] == "read"
        assert json.loads(first.metadata["parameters"])["required"] == ["a", "b"]
        assert json.loads(first.metadata["returns"]) == {"type": "integer"}


async def test_what_was_called_is_counted_and_what_an_error_said_is_not_told(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with (
        worker(nats, prefix, tmp_path, TOOLS),
        gateway(nats, prefix, tmp_path) as tools,
        bus(nats, prefix) as client,
    ):
        for _ in range(3):
            assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3
        assert not (await tools.execute("fail", {})).success
        told = await _stats(client, requests=4)
        counted = {one.name: one for one in told.endpoints}
        assert (counted["add"].num_requests, counted["add"].num_errors) == (3, 0)
        assert (counted["fail"].num_requests, counted["fail"].num_errors) == (1, 1)
        assert counted["fail"].last_error == "EXECUTION_ERROR"
        assert counted["add"].processing_time >= 3 * counted["add"].average_processing_time > 0
        assert "secret" not in json.dumps(await asked(client, "STATS"))


async def _stats(client: Bus, *, requests: int) -> ServiceStats:
    """Once that many have been counted to their ends: a call is answered before."""
    found: list[ServiceStats] = []
    async with asyncio.timeout(10):
        while True:
            found.append(ServiceStats.from_dict(await asked(client, "STATS")))
            ended = [one for one in found[-1].endpoints if one.processing_time]
            if sum(one.num_requests for one in ended) == requests:
                return found[-1]


async def test_calls_of_one_tool_still_run_at_once(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    BARRIERS[id(tmp_path)] = asyncio.Barrier(8)
    meet = tool(tier=0, effects="read", timeout=30, name="meet")(_meet)
    async with worker(nats, prefix, tmp_path, [meet]), gateway(nats, prefix, tmp_path) as tools:
        calls = (tools.execute("meet", {"which": id(tmp_path)}) for _ in range(8))
        assert {one.output for one in await asyncio.gather(*calls)} == {"met"}


async def _meet(which: int) -> str:
    """End only when eight calls of it are there at once."""
    async with asyncio.timeout(10):
        await BARRIERS[which].wait()
    return "met"


async def test_thousands_of_tools_do_not_make_an_answer_that_cannot_be_sent(
    nats: Embedded, prefix: str
) -> None:
    offer = Offered(spec=add.spec.public(), digest=add.spec.digest, most=1)
    many = {f"add{number}": offer for number in range(5000)}
    async with bus(nats, prefix) as client:
        made = Endpoints(client, "one", group="workers", offers=lambda: many)
        await made.open()
        for verb in ("INFO", "STATS"):
            told = await asked(client, verb, f".{NAME}.one")
            assert told["metadata"]["tools"] == "5000"
            assert 500 < len(told["endpoints"]) < 5000
        await made.close()


async def test_a_tool_that_came_later_is_an_endpoint_too_and_a_worker_that_went_is_none(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with bus(nats, prefix) as client:
        async with worker(nats, prefix, tmp_path, [add]) as made:
            made._runtime.registry.add(fail)
            await until(lambda: len(made.tools) == 2)
            info = await asked(client, "INFO")
            assert [one["name"] for one in info["endpoints"]] == ["add", "fail"]
        with pytest.raises(NoRespondersError):
            await asked(client, "PING", f".{NAME}.{made.id}")
