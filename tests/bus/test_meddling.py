"""Somebody else on the bus: what they write, and what overtakes what, changes nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.bus.house import bus, gateway, until, worker
from toolpost import tool
from toolpost.backends.nats import directory as directory_of_workers
from toolpost.bus.embedded import Embedded
from toolpost.bus.large import Large
from toolpost.bus.wire import SPECS, WORKER, Here, Page, said
from toolpost.config import Config
from toolpost.errors import SetupError
from toolpost.seal import open_seal
from toolpost.worker import settings_of, taking
from toolpost.worker.running import Run, Runs
from toolpost.worker.worker import trusting

pytestmark = pytest.mark.anyio


@tool(tier=0, effects="read")
async def look(where: str) -> str:
    """Look somewhere."""
    seen.append(where)
    return where


seen: list[str] = []


async def test_attack_a_request_that_was_heard_is_not_run_again_with_other_arguments(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    """Whoever hears it may write behind what its ticket vouches for, and send it once more."""
    heard: list[Any] = []
    async with (
        worker(nats, prefix, tmp_path, [look]) as one,
        bus(nats, prefix) as stranger,
        gateway(nats, prefix, tmp_path) as tools,
    ):
        directory = tools.executor.backends["nats"].directory  # type: ignore[attr-defined]
        await until(lambda: set(directory.met("look")) == {one.id})

        async def listen(message: Any) -> None:
            heard.append(message)

        await stranger.listen(stranger.subjects.request("look"), listen)
        await (await stranger.client()).flush()
        assert (await tools.execute("look", {"where": "here"})).output == "here"
        await until(lambda: heard)
        (message,) = heard
        told = json.loads(message.data)
        assert told["ticket"]["met"] and message.headers is None
        told["payload"]["arguments"]["where"] = "there"
        evil = (
            b',","caller":{"id":"root","owner":true},"jti":"fresh","z":"x"},"payload":'
            + json.dumps(told["payload"]).encode()
            + b',"q":{"a":"'
        )
        client = await stranger.client()
        for body in (message.data, message.data[:-3] + evil + message.data[-3:]):
            await client.publish(message.subject, body, reply=message.reply)
        await client.request(stranger.subjects.specs(one.id), b"{}", timeout=5)  # they were heard
        assert (await tools.execute("look", {"where": "last"})).output == "last"
    assert seen == ["here", "last"]


async def test_attack_a_worker_whose_name_is_no_name_is_not_taken_in(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with (
        worker(nats, prefix, tmp_path, [look]) as one,
        bus(nats, prefix) as stranger,
        gateway(nats, prefix, tmp_path) as tools,
    ):
        directory = tools.executor.backends["nats"].directory  # type: ignore[attr-defined]
        client = await stranger.client()
        for name in (
            'x","caller":{"id":"root"},"q":"',
            "a.b",
            "*",
            "é",
            "",
            "a" * 65,
            "a,b",
            "fine",
        ):
            here = Here(worker=name, offers="x", tools=1, every=5.0)
            body = said(WORKER, here, source="x", number="1")
            await client.publish(stranger.subjects.workers, body)
        await until(lambda: "fine" in directory._workers)
        assert set(directory._workers) == {one.id, "fine"}


async def test_a_cancellation_that_overtakes_its_call_is_not_lost(
    nats: Embedded, prefix: str
) -> None:
    async with bus(nats, prefix) as made:
        runs, run = Runs(made, Large(prefix)), Run("reply")
        runs.cancel("n1")
        with pytest.raises(asyncio.CancelledError):
            runs.named(run, "n1")
        assert run.cancelled
        runs.named(Run("reply"), "n1")  # it counts once
        for number in range(2000):
            runs.cancel(f"of others {number}")
        assert len(runs._early) <= 1000


async def test_a_tool_whose_name_is_taken_is_left_out_and_the_others_are_there(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    (tmp_path / "own_of_the_gateway.py").write_text(OWN, encoding="utf-8")
    own = {"kind": "modules", "modules": ["own_of_the_gateway"], "path": str(tmp_path)}
    sources = [own, {"kind": "nats"}]
    async with (
        worker(nats, prefix, tmp_path, [look, find]),
        gateway(nats, prefix, tmp_path, sources=sources) as tools,
    ):
        await until(lambda: {spec.name for spec in tools.list()} == {"look", "find"})
        assert (await tools.execute("look", {"where": "x"})).output == "ours"
        assert (await tools.execute("find", {"where": "x"})).output == "found x"
        assert list(tools.left_out.values()) == [
            {"look": "another source has a tool of this name, which stays"}
        ]


OWN = """
from toolpost import tool

@tool(tier=0, effects="read")
async def look(where: str) -> str:
    \"\"\"Look somewhere else.\"\"\"
    return "ours"
"""


@tool(tier=0, effects="read")
async def find(where: str) -> str:
    """Find something."""
    return f"found {where}"


async def test_a_bus_that_was_lost_is_told_of_and_a_call_does_not_wait_for_its_limit(
    prefix: str, tmp_path: Path
) -> None:
    began = asyncio.Event()

    @tool(tier=0, effects="read", timeout=60)
    async def wait() -> None:
        """Wait for long."""
        began.set()
        await asyncio.sleep(50)

    async with (
        Embedded(tmp_path / "nats") as server,
        worker(server, prefix, tmp_path, [wait], drain=0.1),
        gateway(server, prefix, tmp_path) as tools,
    ):
        await until(tools.list)
        backend = tools.executor.backends["nats"]
        assert (await tools.health())["source 1 (nats)"].healthy
        assert getattr(backend, "problem", "") is None
        running = asyncio.create_task(tools.execute("wait"))
        await began.wait()
        await server.stop()
        async with asyncio.timeout(30):
            result = await running
        assert result.error is not None
        assert result.error.code == "UNAVAILABLE" and "lost" in result.error.message
        assert not (await tools.health())["source 1 (nats)"].healthy
        assert "lost" in str(getattr(backend, "problem", ""))


async def test_a_port_that_is_taken_is_not_mistaken_for_a_bus_of_ones_own(
    nats: Embedded, tmp_path: Path
) -> None:
    port = int(nats.url.rpartition(":")[2])
    with pytest.raises(SetupError, match="is taken"):
        await Embedded(tmp_path, port=port).start()


async def test_attack_pages_without_end_are_not_all_asked_for(
    nats: Embedded, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_of_workers, "_MOST_PAGES", 20)
    asked: list[int] = []
    async with bus(nats, prefix) as stranger, gateway(nats, prefix, tmp_path) as tools:

        async def tell(message: Any) -> None:
            asked.append(json.loads(message.data)["payload"]["from"])
            page = Page(offers="x", tools={}, next=asked[-1] + 1)
            await message.respond(said(SPECS, page, source="x", number="1"))

        await stranger.listen(stranger.subjects.specs("endless"), tell)
        here = Here(worker="endless", offers="x", tools=1, every=5.0)
        client = await stranger.client()
        await client.publish(stranger.subjects.workers, said(WORKER, here, source="x", number="1"))
        await until(lambda: len(asked) >= 20)
        directory = tools.executor.backends["nats"].directory  # type: ignore[attr-defined]
        await until(lambda: not directory._fetching)
        assert len(asked) == 20


def test_a_key_that_was_taken_away_is_not_believed_because_of_another_file(tmp_path: Path) -> None:
    trust = tmp_path / "trust"
    for name in ("one", "two"):
        open_seal(tmp_path / name, "bus")
    trust.mkdir()
    publics = [next((tmp_path / name).glob("*.pub")) for name in ("one", "two")]
    for number, public in enumerate(publics):
        (trust / f"{number}.pub").write_bytes(public.read_bytes())
    settings = settings_of(Config.of({}, base=tmp_path), servers=["nats://x"], trust=["trust"])
    trusted = trusting(settings, tmp_path)
    assert len(trusted()) == 2
    (trust / "zz.pub").write_text("junk", encoding="utf-8")
    (trust / "0.pub").unlink()
    assert len(trusted()) == 1


async def test_a_worker_with_very_many_tools_takes_no_jobs_and_says_so(
    nats: Embedded, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "_MOST_QUEUES", 1)
    async with (
        worker(nats, prefix, tmp_path, [look, find]),
        gateway(nats, prefix, tmp_path) as tools,
    ):
        await until(lambda: len(tools.list()) == 2)
        directory = tools.executor.backends["nats"].directory  # type: ignore[attr-defined]
        assert not directory.takes_jobs("look")


async def test_a_call_that_just_does_not_fit_into_a_message_with_its_ticket_is_made(
    prefix: str, tmp_path: Path
) -> None:
    config = tmp_path / "small.conf"
    store = json.dumps(str(tmp_path / "js"))
    config.write_text(f"max_payload: 40000\njetstream {{ store_dir: {store} }}\n")
    async with (
        Embedded(tmp_path / "nats", config=str(config)) as server,
        worker(server, prefix, tmp_path, [find]) as one,
        gateway(server, prefix, tmp_path) as tools,
    ):
        directory = tools.executor.backends["nats"].directory  # type: ignore[attr-defined]
        await until(lambda: set(directory.met("find")) == {one.id})
        long = "x" * 39_600
        assert (await tools.execute("find", {"where": long})).output == f"found {long}"
