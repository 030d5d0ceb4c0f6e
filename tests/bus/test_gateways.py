"""Two gateways, as people run them, on one PostgreSQL and one NATS: they are one."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bus.house import worker_process
from tests.gateway.program import Program, program
from tests.stores.server import Server, running_server
from toolpost.bus.embedded import Embedded

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
server = pytest.fixture(scope="module")(running_server)
ASYNC = {"prefer": "respond-async"}


def config(nats: Embedded, prefix: str, base: Path, dsn: str) -> str:
    return f"""
[[sources]]
kind = "nats"

[backends.nats]
servers = ["{nats.url}"]
prefix = "{prefix}"
keys = "{base / ".toolpost" / "keys"}"

[store]
kind = "postgres"
dsn = "{dsn}"

[gateway.auth]
keys = true

[extensions.approval]
approvers = ["boss"]

[extensions.rate]
shared = true
tools = {{ping = "20/h"}}
"""


@asynccontextmanager
async def two_gateways(
    nats: Embedded, prefix: str, base: Path, dsn: str
) -> AsyncIterator[tuple[Program, Program]]:
    told = config(nats, prefix, base, dsn)
    folders = [base / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    async with (
        worker_process(nats, prefix, base, "shared_tools"),
        program(folders[0], config=told) as one,
        program(folders[1], config=told) as two,
    ):
        yield one, two


def done(base: Path) -> list[str]:
    return (base / "done").read_text().splitlines() if (base / "done").exists() else []


async def ended(at: Program, job: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            found: dict[str, Any] = (await at.get(f"/v1/jobs/{job}")).data
            if "ended" in found:
                return found
            await asyncio.sleep(0.05)


@pytest.mark.req("NA-9", "NA-12")
async def test_attack_limits_keys_approvals_audit_and_jobs_hold_across_gateways(
    nats: Embedded, prefix: str, tmp_path: Path, server: Server
) -> None:
    """Attacks 2, 29 and 36, of two gateways that share workers and a store."""
    async with two_gateways(nats, prefix, tmp_path, server.database()) as (one, two):
        boss = await two.key("boss", user="boss", roles=["boss"])
        for at in (one, two):
            at.headers |= boss if at is two else await one.key("agent")
        # 64 clients of both never get more than the limit of both together
        answers = await asyncio.gather(*(at.call("ping") for _ in range(32) for at in (one, two)))
        assert Counter(answer.status for answer in answers) == {200: 20, 429: 44}

        two.headers |= one.headers
        # a key is one call, at whichever it is used
        key = {"idempotency-key": "k1"}
        both = [at.call("pay", {"to": "ann", "seconds": 0.3}, key) for at in (one, two)]
        told = [answer.status for answer in await asyncio.gather(*both)]
        assert 200 in told
        assert done(tmp_path) == ["ann"]
        assert (await two.call("pay", {"to": "ann", "seconds": 0.3}, key)).data["output"]

        # asked at one, answered at the other
        job = (await one.call("ask", {"to": "bob"}, ASYNC)).data["id"]
        async with asyncio.timeout(30):
            while not (waiting := (await two.get("/v1/approvals", boss)).data["approvals"]):
                await asyncio.sleep(0.05)
        place = f"/v1/approvals/{waiting[0]['handle']}:approve"
        eve = await two.key("eve", user="eve")
        for at, who in ((one, one.headers), (two, eve)):
            assert (await at.post(place, {}, who)).status in (403, 404), "it is not theirs to say"
        answer = await two.post(place, {}, boss)
        assert answer.status == 200, answer.data
        assert (await ended(two, job))["state"] == "succeeded"

        # what one has taken in, the other sees through
        begun = (await one.call("pay", {"to": "cid", "seconds": 2}, ASYNC)).data["id"]
        async with asyncio.timeout(30):
            while "cid" not in done(tmp_path):
                await asyncio.sleep(0.02)
        assert (await two.get(f"/v1/jobs/{begun}", eve)).status == 404
        await one.ended(signal.SIGKILL)
        found = await ended(two, begun)
        assert (found["state"], found["result"]["output"]) == ("succeeded", "paid cid")
        assert done(tmp_path) == ["ann", "bob", "cid"]

        # and both are in one audit
        audited = await two.audited()
        assert len({call.asked.writer for call in audited}) >= 2
        assert [call.asked.tool for call in audited].count("ping") == 64
        (looked,) = [str(call) for call in audited if begun in str(call) and "eve" in str(call)]
        assert "agent" in looked, "who asked, and whose it is"
