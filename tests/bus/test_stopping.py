"""How workers begin and end: with odd names, at once, and while nobody can hear them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.bus.house import back, bus, gateway, hung, pid_of, until, worker
from tests.processes import halt
from toolpost import Runtime, tool
from toolpost.bus import ticket
from toolpost.bus.embedded import Embedded
from toolpost.bus.large import Large
from toolpost.bus.permissions import inbox
from toolpost.bus.wire import ALIVE
from toolpost.config import Config
from toolpost.worker import Worker, settings_of
from toolpost.worker.settings import serving

pytestmark = pytest.mark.anyio


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_tool_whose_name_no_subject_can_have_is_left_out_and_the_others_are_served(
    nats: Embedded, prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("a.b", "a..b", "a.", "good")
    tools = [tool(tier=0, effects="read", name=name)(add) for name in names]
    async with worker(nats, prefix, tmp_path, tools) as made:
        assert set(made.tools) == {"a.b", "good"}
    assert "the tool a..b is not served" in caplog.text


async def test_a_worker_with_many_tools_that_is_stopped_at_once_stops(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    tools = [tool(tier=0, effects="read", name=f"add{n}")(add) for n in range(100)]
    for _ in range(4):
        async with asyncio.timeout(20), worker(nats, prefix, tmp_path, tools):
            pass


async def test_told_to_stop_while_the_bus_is_down_it_takes_nothing_more_when_that_is_back(
    tmp_path: Path,
) -> None:
    held, go, ran = asyncio.Event(), asyncio.Event(), list[str]()

    @tool(tier=0, effects="read", timeout=30)
    async def hold() -> str:
        """Hold on."""
        held.set()
        await go.wait()
        return "held"

    @tool(tier=1)
    async def pay() -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    config = Config.of({"store": {"kind": "memory"}}, base=tmp_path)
    async with Embedded(tmp_path / "nats") as server:
        settings = settings_of(config, servers=[server.url], prefix="stop", announce=0.5)
        async with (
            Runtime(serving(config, settings), tools=[hold, pay]) as runtime,
            gateway(server, "stop", tmp_path) as tools,
        ):
            made = Worker(runtime, settings, folder=tmp_path)
            await made.open()
            await until(lambda: len(tools.list()) == 2)
            call = asyncio.create_task(tools.execute("hold", {}))
            await held.wait()
            await server.stop()
            await until(lambda: made.bus.problem)
            closing = asyncio.create_task(made.close(grace=20))
            await server.start()
            backend = tools.executor.backends["nats"]
            await until(lambda: not made.bus.problem and not backend.bus.problem)  # type: ignore[attr-defined]
            result = await tools.execute("pay", {})
            assert result.error is not None
            assert (result.error.code, result.error.effects) == ("UNAVAILABLE", "none")
            go.set()
            async with asyncio.timeout(20):
                await closing
                assert (await call).output == "held"
    assert not ran


LARGE = 3_000_000


@tool(tier=1, timeout=60, limits={"output": 2 * LARGE})
async def fill(size: int) -> str:
    """Give back so many letters."""
    return "x" * size


class Held:
    """Large bodies are held up until they are let go."""

    def __init__(self, large: Large) -> None:
        self.came, self.go, self._packed = asyncio.Event(), asyncio.Event(), large.packed
        large.packed = self._later  # type: ignore[method-assign]

    async def _later(self, client: Any, body: bytes) -> Any:
        if len(body) > LARGE:
            self.came.set()
            await self.go.wait()
        return await self._packed(client, body)


async def test_a_worker_says_that_it_lives_until_a_large_answer_is_there(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    beats: list[bytes] = []

    async def overhear(message: Any) -> None:
        if ALIVE.encode() in message.data:
            beats.append(message.data)

    async with (
        worker(nats, prefix, tmp_path, [fill]) as one,
        gateway(nats, prefix, tmp_path) as tools,
        bus(nats, prefix) as stranger,
    ):
        await until(tools.list)
        held = Held(one._large)
        await stranger.listen(f"{inbox(stranger.subjects, 'gateway')}.>", overhear)
        call = asyncio.create_task(tools.execute("fill", {"size": LARGE}))
        await held.came.wait()
        await until(lambda: len(beats) >= 5 or call.done())  # it would be taken for dead by now
        held.go.set()
        assert (await call).output == "x" * LARGE


async def test_a_worker_that_is_told_to_stop_hands_in_a_large_answer_first(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with gateway(nats, prefix, tmp_path) as tools:
        async with worker(nats, prefix, tmp_path, [fill]) as one:
            await until(tools.list)
            held = Held(one._large)
            call = asyncio.create_task(tools.execute("fill", {"size": LARGE}))
            await held.came.wait()
            closing = asyncio.create_task(one.close(grace=30))
            await until(lambda: not tools.list())
            held.go.set()
            await closing
        assert (await call).output == "x" * LARGE


async def test_a_ticket_is_in_time_however_long_a_large_request_takes(
    nats: Embedded, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, passed = ticket.time, 0.0
    monkeypatch.setattr(ticket, "time", lambda: now() + passed)

    @tool(tier=1, timeout=60)
    async def count(text: str) -> int:
        """Count the letters."""
        return len(text)

    async with (
        worker(nats, prefix, tmp_path, [count]) as one,
        gateway(nats, prefix, tmp_path) as tools,
    ):
        await until(tools.list)
        backend: Any = tools.executor.backends["nats"]
        packed, unpacked = backend.calling.large.packed, one._large.unpacked

        async def slowly_packed(*given: Any) -> Any:
            nonlocal passed
            made = await packed(*given)
            passed += 3600.0
            return made

        async def slowly_unpacked(*given: Any) -> bytes:
            nonlocal passed
            body = await unpacked(*given)
            passed += 3600.0
            return body

        backend.calling.large.packed, one._large.unpacked = slowly_packed, slowly_unpacked  # type: ignore[method-assign]
        assert (await tools.execute("count", {"text": "x" * LARGE})).output == LARGE


async def test_a_worker_that_leaves_is_not_brought_back_by_a_roll_call(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    held, go, heard = asyncio.Event(), asyncio.Event(), list[bytes]()

    @tool(tier=0, effects="read", timeout=60)
    async def hold() -> str:
        """Hold on."""
        held.set()
        await go.wait()
        return "held"

    async def overhear(message: Any) -> None:
        heard.append(message.data)

    async with gateway(nats, prefix, tmp_path) as tools, bus(nats, prefix) as stranger:
        async with worker(nats, prefix, tmp_path, [hold]) as one:
            await until(tools.list)
            call = asyncio.create_task(tools.execute("hold", {}))
            await held.wait()
            closing = asyncio.create_task(one.close(grace=60))
            await until(lambda: not tools.list())
            await stranger.listen(stranger.subjects.workers, overhear)
            client, theirs = await stranger.client(), await one.bus.client()
            await client.publish(stranger.subjects.roll_call)
            for connection in (client, theirs, client):  # asked, heard, and answered by then
                await connection.flush()
            assert not heard
            assert not tools.list()
            go.set()
            await closing
        assert (await call).output == "held"


async def test_whatever_became_of_the_bus_a_worker_that_was_closed_runs_nothing(
    tmp_path: Path,
) -> None:
    ran: list[int] = []

    @tool(tier=1)
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    async with (
        Embedded(tmp_path / "nats") as server,
        gateway(server, "p", tmp_path) as tools,
        worker(server, "p", tmp_path, [pay]) as one,
    ):
        await until(tools.list)
        assert (await tools.execute("pay", {"amount": 1})).success
        client = await one.bus.client()
        pid = pid_of(server)
        try:
            halt(pid)
            call = asyncio.create_task(tools.execute("pay", {"amount": 2}))
            await one.close(grace=0)
            assert client.is_closed
        finally:
            os.kill(pid, signal.SIGCONT)
        assert not (await call).success
    assert ran == [1]


async def test_a_worker_that_leaves_while_the_bus_hangs_takes_nothing_when_that_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.worker.worker._DRAINED", 0.2)
    held, go = asyncio.Event(), asyncio.Event()

    @tool(tier=0, effects="read", timeout=60)
    async def hold(number: int) -> int:
        """Hold on, if it is the first."""
        held.set()
        if number == 0:
            await go.wait()
        return number

    async with (
        Embedded(tmp_path / "nats") as server,
        gateway(server, "p", tmp_path) as tools,
        worker(server, "p", tmp_path, [hold]) as one,
    ):
        await until(tools.list)
        first = asyncio.create_task(tools.execute("hold", {"number": 0}))
        await held.wait()
        async with worker(server, "p", tmp_path, [hold]) as other:
            backend: Any = tools.executor.backends["nats"]
            await until(lambda: backend.directory.workers == 2)
            async with hung(server):
                leaving = asyncio.create_task(one.close(grace=60))
                await until(lambda: one._left)
            await back(backend.bus, one.bus, other.bus)
            for number in range(1, 21):
                assert (await tools.execute("hold", {"number": number})).output == number
        go.set()
        await leaving
        await first


async def test_what_a_worker_stops_has_the_time_to_clear_up(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    held, steps = asyncio.Event(), list[str]()

    @tool(tier=0, effects="read", timeout=60)
    async def hold() -> None:
        """Hold on."""
        held.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(50):
                await asyncio.sleep(0)
            steps.append("cleared up")

    async with gateway(nats, prefix, tmp_path) as tools:
        async with worker(nats, prefix, tmp_path, [hold]) as one:
            await until(tools.list)
            call = asyncio.create_task(tools.execute("hold", {}))
            await held.wait()
            await one.close(grace=0)
        assert steps == ["cleared up"]
        await call
