"""Hundreds of connections at once to a real server: some are fast, some are slow, some leave, and
some mean harm. ``python -m tests.gateway.soaking SECONDS CONNECTIONS`` tells how it bears that.

The fast ones are in a process of their own, or it would be the time of the others that is measured.
By hand, the others give way to both where there is no processor for everybody: they stand for what
comes from elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.gateway.program import Program, program, until
from tests.gateway.running import Answer, Client, answer_from, request
from tests.processes import running

SETTINGS: dict[str, Any] = {
    "head_time": 1,
    "body_time": 1,
    "idle_time": 2,
    "write_time": 1,
    "drain_time": 5,
    "connections": 1000,
}
LONG = 41.8125
"""Seconds that nobody waits for; a number that no other test sleeps for."""
POLITE = ("fast", "slow", "flood")
ECHO, NAP = "/v1/tools/echo:call", "/v1/tools/nap:call"


@dataclass
class Soak:
    """What has been seen so far."""

    served: Client
    seconds: list[float] = field(default_factory=list)
    """How long fast calls took."""
    answered: set[str] = field(default_factory=set)
    """The ids of calls whose callers have their results."""
    wrong: Counter[str] = field(default_factory=Counter)
    turns: Counter[str] = field(default_factory=Counter)
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    over: bool = False

    async def run(self, kinds: dict[str, int], seconds: float) -> None:
        """So many of each kind, for so long; then all of them go."""
        self.over = False
        tasks = [
            asyncio.create_task(self._again_and_again(KINDS[kind], kind, number))
            for kind, count in kinds.items()
            for number in range(count)
        ]
        await asyncio.wait(tasks, timeout=seconds)
        self.over = True
        polite = [task for task in tasks if task.get_name() in POLITE]
        if polite:
            await asyncio.wait(polite, timeout=30)  # nobody is cut off who has asked something
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                self.wrong[repr(result)] += 1

    async def _again_and_again(self, kind: Kind, name: str, number: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name(name)
        while not self.over:
            reader, writer = await asyncio.open_connection(self.served.host, self.served.port)
            try:
                await kind(self, reader, writer, number)
                self.turns[name] += 1
            except (OSError, asyncio.IncompleteReadError) as fault:
                if name in POLITE:
                    self.wrong[f"{name}: {fault!r}"] += 1
            finally:
                writer.close()
            await asyncio.sleep(self.chance.uniform(0.01, 0.05))

    def posted(self, path: str, arguments: Any, **headers: str) -> bytes:
        body = json.dumps({"arguments": arguments}).encode()
        kind = {
            "host": f"{self.served.host}:{self.served.port}",
            "content-type": "application/json",
        }
        return request("POST", path, body, {**kind, **headers}, close=False)

    def check(self, name: str, answer: Answer, expected: Any) -> None:
        if answer.status == 200 and answer.data["output"] == expected:
            self.answered.add(answer.data["metadata"]["call_id"])
        else:
            self.wrong[f"{name}: {answer.status} {answer.body[:200]!r}"] += 1


Kind = Callable[[Soak, asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]


async def being_fast(
    soak: Soak, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> None:
    """Asks, has its answer, asks again."""
    loop = asyncio.get_running_loop()
    while not soak.over:
        value = [number, soak.chance.random(), "ä" * 100]
        began = loop.time()
        writer.write(soak.posted(ECHO, {"value": value}))
        answer = await answer_from(reader)
        soak.seconds.append(loop.time() - began)
        soak.check("fast", answer, value)
        await asyncio.sleep(soak.chance.uniform(0.05, 0.15))


async def slow(
    soak: Soak, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> None:
    """Sends its request in pieces, and waits for a call that takes a while."""
    sent = soak.posted(NAP, {"seconds": 0.3})
    for start in range(0, len(sent), 60):
        writer.write(sent[start : start + 60])
        await asyncio.sleep(0.02)
    answer = await answer_from(reader)
    if answer.status != 408:  # on a busy machine its pieces come too late, and it is told so
        soak.check("slow", answer, "")


async def leaving(
    soak: Soak, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> None:
    """Goes in the middle of its call."""
    accept = ("application/json", "text/event-stream")[number % 2]
    writer.write(soak.posted(NAP, {"seconds": LONG}, accept=accept))
    await asyncio.sleep(soak.chance.uniform(0, 0.6))


async def leaving_processes(
    soak: Soak, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> None:
    """Goes while processes work for it."""
    writer.write(soak.posted("/v1/tools/sleep:call", {"seconds": LONG}))
    await asyncio.sleep(soak.chance.uniform(0.2, 1.0))


async def half_head(
    soak: Soak, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> None:
    """Never gets to the end of its headers."""
    writer.write(b"POST /v1/tools/echo:call HTTP/1.1\r\nhost: x\r\n")
    while not reader.at_eof() and not soak.over:
        writer.write(b"x: y\r\n")
        await asyncio.sleep(0.2)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await reader.read(1000)


async def half_body(
    soak: Soak, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> None:
    """Never gets to the end of its body."""
    writer.write(soak.posted(ECHO, {"value": "x" * 100})[:-20])
    await reader.read()


async def idle(
    soak: Soak, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> None:
    """Is there, and says nothing."""
    await reader.read()


async def deaf(
    soak: Soak, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> None:
    """Asks for a stream, and does not read it."""
    pouring = {"pieces": 400, "size": 500_000}
    writer.write(soak.posted("/v1/tools/pour:call", pouring, accept="text/event-stream"))
    await asyncio.sleep(2.5)


async def garbage(
    soak: Soak, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> None:
    """Says what is no HTTP."""
    head = (b"", b"POST ", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01")[number % 4]
    writer.write(head + soak.chance.randbytes(2000))
    async with asyncio.timeout(10):
        await reader.read()


async def flood(
    soak: Soak, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> None:
    """Asks thirty times in one breath, and reads the answers then."""
    for turn in range(30):
        writer.write(soak.posted(ECHO, {"value": turn}))
    for turn in range(30):
        soak.check("flood", await answer_from(reader), turn)
    await asyncio.sleep(0.5)


KINDS: dict[str, Kind] = {
    "fast": being_fast,
    "slow": slow,
    "leaving": leaving,
    "leaving_processes": leaving_processes,
    "half_head": half_head,
    "half_body": half_body,
    "idle": idle,
    "deaf": deaf,
    "garbage": garbage,
    "flood": flood,
}


def mixed(connections: int) -> dict[str, int]:
    """All but those that are fast. Processes and streams cost more than connections: few do."""
    tenth = connections // 10
    counts = dict.fromkeys(KINDS, tenth) | {"leaving_processes": 4, "flood": tenth // 5}
    counts["deaf"] = tenth // 3
    counts["idle"] += connections - sum(counts.values())
    del counts["fast"]
    return counts


def memory_of(pid: int) -> float:
    """Megabytes that a process has in memory."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("it has ended")


class Times(NamedTuple):
    """Milliseconds: half of the calls took less, and 99 of 100 did."""

    half: float
    most: float
    longest: float


@dataclass
class Told:
    """How it went for the fast ones: alone, beside the others, who were at another server of the
    same machine then, and among them. Megabytes before and after.
    """

    alone: Times
    beside: Times
    among: Times
    before: float
    after: float
    calls: int
    turns: Counter[str]


async def soaked(
    folder: Path, *, warm: float, seconds: float, connections: int, giving_way: bool = False
) -> Told:
    """Nothing is lost, nothing is left, and this is what it came to."""
    (folder / "other").mkdir()
    async with (
        fast_ones() as fast,
        program(folder, **SETTINGS) as served,
        program(folder / "other", **SETTINGS) as other,
    ):
        if giving_way:
            os.nice(19)
        soak, few, mix = Soak(served), connections // 10, mixed(connections)
        alone = await fast.run(soak, few, warm)
        beside, _ = await asyncio.gather(fast.run(soak, few, warm), Soak(other).run(mix, warm))
        await quiet(other)
        await soak.run(mix, warm)
        await quiet(served)
        before = memory_of(served.child.pid)
        among, _ = await asyncio.gather(fast.run(soak, few, seconds), soak.run(mix, seconds))
        await quiet(served)
        after = memory_of(served.child.pid)
        assert not soak.wrong, soak.wrong
        assert all(soak.turns[kind] for kind in mix), soak.turns
        proved = await served.post("/v1/audit:verify", {})
        assert proved.data["ok"] is True
        assert await served.ended(signal.SIGTERM) == 0
        await on_record(served, soak.answered)
        return Told(alone, beside, among, before, after, len(soak.answered), soak.turns)


@asynccontextmanager
async def fast_ones() -> AsyncIterator[FastOnes]:
    """A process of those that are fast; it begins when it is told to."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __spec__.name, "fast"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        yield FastOnes(child)
    finally:
        await child.communicate(b"")  # and no more: it ends


@dataclass
class FastOnes:
    child: asyncio.subprocess.Process

    async def run(self, soak: Soak, count: int, seconds: float) -> Times:
        """How long their calls took; what they saw is in ``soak`` then."""
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.write(f"{soak.served.port} {seconds} {count}\n".encode())
        seen = json.loads(await self.child.stdout.readline())
        soak.answered.update(seen["answered"])
        soak.wrong.update(seen["wrong"])
        times = sorted(seen["seconds"])
        return Times(median(times) * 1e3, times[len(times) * 99 // 100] * 1e3, times[-1] * 1e3)


def be_fast() -> None:
    for line in sys.stdin:
        port, seconds, count = line.split()
        soak = Soak(Client("127.0.0.1", int(port)))
        asyncio.run(soak.run({"fast": int(count)}, float(seconds)))
        seen = {"seconds": soak.seconds, "answered": [*soak.answered], "wrong": soak.wrong}
        print(json.dumps(seen), flush=True)


async def quiet(served: Program) -> None:
    """Until no call runs, nor any process of one."""
    async with asyncio.timeout(20):
        while (await served.get("/readyz")).data["calls"]:
            await asyncio.sleep(0.05)
    await until(lambda: not running(f"sleep\0{LONG}"), 20)


async def on_record(served: Program, answered: set[str]) -> None:
    """Every call has its end on record, and those that were answered the one that was told."""
    codes = {call.asked.call_id: call.code for call in await served.audited()}
    assert "OPEN" not in codes.values()
    assert {codes.get(call_id) for call_id in answered} == {"OK"}


if __name__ == "__main__" and sys.argv[1] == "fast":
    be_fast()
elif __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        length, count = float(sys.argv[1]), int(sys.argv[2])
        work = soaked(
            Path(place), warm=length / 3, seconds=length, connections=count, giving_way=True
        )
        print(asyncio.run(work))
