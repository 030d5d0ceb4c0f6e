"""The bus itself goes away: killed, restarted, cut off. Calls are told, nothing is done twice."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bus.house import back, gateway, until, worker
from toolpost import Runtime, tool
from toolpost.bus.connection import Waiting
from toolpost.bus.embedded import Embedded
from toolpost.worker import Worker

pytestmark = pytest.mark.anyio
paid: list[int] = []


@tool(tier=0, effects="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(tier=1)
async def pay(amount: int) -> int:
    """Pay, which must happen once."""
    paid.append(amount)
    return amount


@pytest.mark.req("NA-9")
async def test_attack_3_the_bus_is_killed_and_restarted_under_load(
    tmp_path: Path,
) -> None:
    paid.clear()
    server = Embedded(tmp_path / "nats")
    await server.start()
    over, codes = asyncio.Event(), list[str]()
    told: dict[int, str] = {}

    async with (
        worker(server, "load", tmp_path, [add, pay]),
        gateway(server, "load", tmp_path) as tools,
    ):
        numbers = iter(range(1_000_000))

        async def caller() -> None:
            while not over.is_set():
                number = next(numbers)
                result = await tools.execute("pay", {"amount": number}, timeout=2)
                code = "" if result.error is None else result.error.code
                told[number] = "" if result.error is None else result.error.effects
                codes.append(code)
                if code:
                    await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as callers:
            for _ in range(8):
                callers.create_task(caller())
            await until(lambda: codes.count("") >= 100)
            await server.stop()
            await until(lambda: codes.count("UNAVAILABLE") >= 8)  # at once, and not at the limit
            health = await tools.executor.health("add")
            assert not health.healthy
            await server.start()
            good = codes.count("")
            await until(lambda: codes.count("") >= good + 100, seconds=10)
            over.set()
        assert set(codes) <= {"", "UNAVAILABLE", "TIMEOUT"}
        assert len(paid) == len(set(paid)), "something was paid twice"
        for number, effects in told.items():
            if effects == "none":
                assert number not in paid, "it was said that nothing was done"
            elif effects == "":
                assert number in paid
        assert (await tools.executor.health("add")).healthy
    await server.stop()


async def test_without_a_bus_the_rest_of_the_house_stands(tmp_path: Path) -> None:
    server = Embedded(tmp_path / "nats")
    async with gateway(server, "none", tmp_path, sources=[{"kind": "nats"}]) as tools:
        assert not tools.list()
        assert "127.0.0.1" in str(tools.problems)
        unknown = (await tools.execute("add", {"a": 1, "b": 2})).error
        assert unknown is not None
        assert unknown.code == "NOT_FOUND", "it has never heard of it"
        async with server, worker(server, "none", tmp_path, [add]):
            await until(lambda: [s.name for s in tools.list()] == ["add"])
            assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3
            await until(lambda: not tools.problems)


@tool(tier=1, limits={"output": 8_000_000})
async def fill(size: int) -> str:
    """Give back so many letters."""
    return "x" * size


@tool(tier=1)
async def echo(text: str) -> int:
    """Count the letters."""
    return len(text)


async def returned(tools: Runtime, one: Worker) -> None:
    await back(one.bus, tools.executor.backends["nats"].bus)  # type: ignore[attr-defined]


async def test_a_bus_that_comes_back_with_nothing_on_its_disk_serves_on(tmp_path: Path) -> None:
    server, large = Embedded(tmp_path / "nats"), {"size": 3_000_000}
    await server.start()
    async with (
        worker(server, "empty", tmp_path, [fill]) as one,
        gateway(server, "empty", tmp_path) as tools,
    ):
        await until(tools.list)
        assert (await tools.execute("fill", large)).success
        await server.stop()
        shutil.rmtree(tmp_path / "nats")
        await server.start()
        await returned(tools, one)
        assert (await tools.execute("fill", {"size": 1})).output == "x"
        assert (await tools.execute("fill", large)).success
    await server.stop()


async def test_where_calls_were_claimed_none_runs_unclaimed_because_jetstream_is_gone(
    tmp_path: Path,
) -> None:
    paid.clear()
    config = tmp_path / "nats.conf"
    config.write_text(f"jetstream {{ store_dir: {json.dumps(str(tmp_path / 'js'))} }}\n")
    server = Embedded(tmp_path / "nats", config=str(config))
    await server.start()
    async with (
        worker(server, "off", tmp_path, [pay]) as one,
        gateway(server, "off", tmp_path) as tools,
    ):
        await until(tools.list)
        assert (await tools.execute("pay", {"amount": 1})).success
        await server.stop()
        config.write_text("")
        await server.start()
        await returned(tools, one)
        for amount in (2, 3):  # nor does the second
            error = (await tools.execute("pay", {"amount": amount})).error
            assert error is not None
            assert (error.code, error.effects, error.retryable) == ("UNAVAILABLE", "none", True)
    await server.stop()
    assert paid == [1]


async def test_without_an_object_store_what_is_too_large_is_told_as_that(tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text("")
    async with (
        Embedded(tmp_path / "nats", config=str(config)) as server,
        worker(server, "small", tmp_path, [fill, echo]),
        gateway(server, "small", tmp_path) as tools,
    ):
        await until(tools.list)
        answer = (await tools.execute("fill", {"size": 3_000_000})).error
        assert answer is not None
        assert (answer.code, answer.effects, answer.retryable) == ("UNAVAILABLE", "done", False)
        assert "too large" in answer.message
        request = (await tools.execute("echo", {"text": "x" * 3_000_000})).error
        assert request is not None
        assert (request.code, request.effects, request.retryable) == ("UNAVAILABLE", "none", False)


class Held:
    """A tool that is held until it is told to go on."""

    def __init__(self) -> None:
        self.came, self.go, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @tool(tier=1, timeout=60)
        async def hold() -> str:
            """Hold on."""
            self.came.set()
            await self.go.wait()
            self.over.set()
            return "held"

        self.tool = hold


async def test_a_call_that_ends_while_the_bus_is_away_is_answered_when_it_is_back(
    tmp_path: Path,
) -> None:
    held, server = Held(), Embedded(tmp_path / "nats")
    await server.start()
    async with (
        worker(server, "p", tmp_path, [held.tool]) as one,
        gateway(server, "p", tmp_path) as tools,
    ):
        await until(tools.list)
        call = asyncio.create_task(tools.execute("hold", {}))
        await held.came.wait()
        await server.stop()
        await until(lambda: one.bus.problem)
        held.go.set()
        await held.over.wait()
        await server.start()
        assert (await call).output == "held"
    await server.stop()


async def test_of_a_bus_that_is_just_back_the_worker_is_heard_before_it_is_taken_for_dead(
    nats: Embedded, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.worker.running.BEAT", 60.0)  # it says nothing
    held, silences, heard = Held(), list[float](), Waiting.next

    async def counted(self: Waiting, seconds: float) -> Any:
        silences.append(seconds)
        return await heard(self, seconds)

    async with (
        worker(nats, prefix, tmp_path, [held.tool]),
        gateway(nats, prefix, tmp_path) as tools,
    ):
        await until(tools.list)
        monkeypatch.setattr(Waiting, "next", counted)
        call = asyncio.create_task(tools.execute("hold", {}))
        await held.came.wait()
        tools.executor.backends["nats"].bus.reconnects += 1  # type: ignore[attr-defined]
        await until(lambda: len(silences) > 1 or call.done())
        held.go.set()
        assert (await call).output == "held"


class Cable:
    """Two ends of a network cable: one here, one in a network namespace."""

    def __init__(self, number: int) -> None:
        self._name, self._here = f"tpn{number:x}", f"tph{number:x}"
        net = f"10.{200 + number % 50}.{number // 50 % 250}"
        self.here, self.there = f"{net}.1", f"{net}.2"
        self.inside = ("ip", "netns", "exec", self._name)
        other = f"tpt{number:x}"
        self._do("ip", "netns", "add", self._name)
        self._do("ip", "link", "add", self._here, "type", "veth", "peer", "name", other)
        self._do("ip", "link", "set", other, "netns", self._name)
        self._do("ip", "addr", "add", f"{self.here}/24", "dev", self._here)
        self._do("ip", "link", "set", self._here, "up")
        self._do(*self.inside, "ip", "addr", "add", f"{self.there}/24", "dev", other)
        self._do(*self.inside, "ip", "link", "set", other, "up")
        self._do(*self.inside, "ip", "link", "set", "lo", "up")

    def pull(self) -> None:
        self._do("ip", "link", "set", self._here, "down")

    def put_back(self) -> None:
        self._do("ip", "link", "set", self._here, "up")

    def gone(self) -> None:
        self._do("ip", "netns", "del", self._name)

    @staticmethod
    def _do(*words: str) -> None:
        subprocess.run(words, check=True, timeout=20, capture_output=True)


@pytest.fixture
def cable() -> Iterator[Cable]:
    made = Cable(os.getpid())
    yield made
    made.gone()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and ip")
async def test_attack_4_the_bus_is_cut_off_for_a_while(tmp_path: Path, cable: Cable) -> None:
    """The server is in a network of its own; the cable to it is pulled and put back."""
    paid.clear()
    server = Embedded(tmp_path / "nats", host=cable.there, around=cable.inside)
    async with (
        server,
        worker(server, "far", tmp_path, [add, pay]),
        gateway(server, "far", tmp_path) as tools,
    ):
        assert (await tools.execute("pay", {"amount": 1})).output == 1
        cable.pull()
        cut = await asyncio.gather(
            *(tools.execute("pay", {"amount": 10 + n}, timeout=3) for n in range(50))
        )
        assert {one.error and one.error.code for one in cut} <= {"UNAVAILABLE", "TIMEOUT"}
        client = await tools.executor.backends["nats"].bus.client()  # type: ignore[attr-defined]
        assert client.pending_data_size < 1024 * 1024
        await until(lambda: not tools.list())  # nobody is heard any more
        cable.put_back()
        await until(lambda: len(tools.list()) == 2, seconds=60)
        assert (await tools.execute("pay", {"amount": 2})).output == 2
        assert len(paid) == len(set(paid)), "something was paid twice"
