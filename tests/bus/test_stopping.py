"""How workers begin and end: with odd names, at once, and while nobody can hear them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.bus.house import gateway, until, worker
from toolpost import Runtime, tool
from toolpost.bus.embedded import Embedded
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
