"""The bus itself goes away: killed, restarted, cut off. Calls are told, nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bus.house import gateway, until, worker
from toolpost import tool
from toolpost.bus.embedded import Embedded

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
