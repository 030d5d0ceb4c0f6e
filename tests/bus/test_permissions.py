"""``toolpost nats setup``: each role can do its work on a real server, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bus.house import ROOT, gateway, until, worker
from toolpost import tool
from toolpost.bus.connection import Bus
from toolpost.bus.embedded import Embedded
from toolpost.bus.permissions import permissions
from toolpost.bus.settings import BusOptions
from toolpost.call import OWNER
from toolpost.jobs import Jobs

pytestmark = pytest.mark.anyio


@tool(tier=1)
async def mirror(text: str) -> str:
    """Give it back."""
    return text


def prepared(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "toolpost.cli.main", "nats", "setup", "--json"],
        cwd=folder, capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    told: dict[str, Any] = json.loads(done.stdout)
    return told


async def test_each_role_can_do_its_work_and_nothing_else(tmp_path: Path) -> None:
    told = prepared(tmp_path)
    for file in told["keys"].values():
        assert Path(file).stat().st_mode & 0o077 == 0
    assert prepared(tmp_path) == told  # again, and nothing is made anew
    keys = told["keys"]
    server = Embedded(tmp_path / "js", config=told["server"])
    async with (
        server,
        worker(
            server, "toolpost", tmp_path, [mirror], nkey=keys["worker"], trust=[".toolpost/keys"]
        ),
        gateway(server, "toolpost", tmp_path, nats={"nkey": keys["gateway"]}) as tools,
    ):
        await until(tools.list)
        assert (await tools.execute("mirror", {"text": "small"})).output == "small"
        large = "x" * 1_500_000
        assert (await tools.execute("mirror", {"text": large})).output == large
        async with Jobs(tools) as jobs:
            job = await jobs.submit("mirror", {"text": large}, caller=OWNER)
            assert job.carrier == "nats"
            job = await asyncio.wait_for(jobs.wait(job.id, caller=OWNER), 20)
            assert job.state == "succeeded"
        subjects = {
            "gateway": ("toolpost.workers", "_INBOX.toolpost.worker.x", "toolpost.dead.x"),
            "worker": (
                "toolpost.tool.mirror.request", "toolpost.cancel.x", "toolpost.call",
                "toolpost.job.x.mirror", "$JS.API.STREAM.PURGE.toolpost-jobs",
            ),
            "client": (
                "toolpost.tool.mirror.request", "toolpost.workers", "_INBOX.x",
                "toolpost.job.x.mirror", "$KV.toolpost-parcels.x",
            ),
        }  # fmt: skip
        heard = {
            "gateway": ("toolpost.tool.>", "_INBOX.toolpost.worker.>", "_INBOX.>"),
            "worker": ("_INBOX.toolpost.gateway.>", "toolpost.call", ">"),
            "client": ("toolpost.>", "_INBOX.>", "$JS.>"),
        }
        for role, file in keys.items():
            refused = await violations(server, file, subjects[role], heard[role])
            assert refused == len(subjects[role]) + len(heard[role]), role


async def violations(
    server: Embedded, nkey: str, publish: tuple[str, ...], subscribe: tuple[str, ...]
) -> int:
    """How often the server refused."""
    import nats

    said: list[Exception] = []

    async def erred(fault: Exception) -> None:
        said.append(fault)

    async def nothing(_: Any) -> None: ...

    client = await nats.connect(server.url, nkeys_seed=nkey, error_cb=erred)
    for subject in publish:
        await client.publish(subject, b"x")
    for subject in subscribe:
        await client.subscribe(subject, cb=nothing)
    await client.flush()
    wanted = len(publish) + len(subscribe)
    async with asyncio.timeout(10):
        while sum("violation" in str(one).lower() for one in said) < wanted:
            await asyncio.sleep(0.01)
    await client.close()
    return sum("violation" in str(one).lower() for one in said)


async def test_whoever_has_no_key_is_not_let_in(tmp_path: Path) -> None:
    told = prepared(tmp_path)
    async with Embedded(tmp_path / "js", config=told["server"]) as server:
        stranger = Bus(BusOptions(servers=(server.url,)), name="x", role="client")
        with pytest.raises(Exception, match="is down"):
            await stranger.client()
        # who still writes when the server has closed may not hear why
        assert re.search("uthorization|reset", stranger.problem or "")
        await stranger.close()


def test_attack_a_client_of_the_door_has_no_part_in_what_is_kept_on_the_bus() -> None:
    may = permissions("toolpost", "client")
    assert may.publish == ("toolpost.call",)
    assert may.subscribe == ("_INBOX.toolpost.client.>",)
