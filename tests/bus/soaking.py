"""Jobs and keyed calls without end, over a bus whose workers, gateways and server are killed at
random: ``python -m tests.bus.soaking FOLDER SECONDS [SEED]`` tells what became of them.

Everything is a process of its own, forked from one that has imported everything. The first gateway
and the first worker are never killed: by them it is seen whether anything leaks. What a tool has
done is a line in ``done``, an acknowledged job one in ``said``, an end that somebody was told of
one in ``seen``; a kill takes none of them back.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.bus import shared_tools
from tests.stores.server import running_server
from toolpost import Caller, Runtime
from toolpost.backends.nats.backend import NatsBackend
from toolpost.bus.connection import Bus
from toolpost.bus.embedded import free_port, program
from toolpost.config import Config
from toolpost.contracts import Journal
from toolpost.errors import CallError
from toolpost.jobs import Job, Jobs
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import calls
from toolpost.worker import Worker, settings_of
from toolpost.worker.settings import serving

ANN = Caller("ann")
GATEWAYS, WORKERS, OPEN = 3, 3, 12
TOOLS = ("pay", "look", "put")
VICTIMS = ("worker",) * 5 + ("gateway",) * 3 + ("nats",)
LAST = 120.0


def written(file: str, line: str) -> None:
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(out, f"{line}\n".encode())
    os.close(out)


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def held(bus: Bus) -> dict[str, int]:
    """What this process holds."""
    client = bus._client
    gc.collect()
    status = Path("/proc/self/status").read_text().split("VmRSS:")[1]
    return {
        "tasks": len(asyncio.all_tasks()),
        "subscriptions": 0 if client is None else len(client._subs),
        "files": len(os.listdir("/proc/self/fd")),
        "kilobytes": int(status.split()[0]),
    }


# --- a gateway -------------------------------------------------------------------------------


async def gateway(url: str, dsn: str, number: int, life: int) -> None:
    given = {
        "sources": [{"kind": "nats"}],
        "backends": {"nats": {"servers": [url], "prefix": "soak"}},
        "store": {"kind": "postgres", "dsn": dsn},
        "observers": ["audit"],
        "guards": ["sanitize", "once", "retry", "slots"],
    }
    async with Runtime(Config.of(given, base=Path())) as tools, Jobs(tools) as jobs:
        backend = tools.executor.backends["nats"]
        assert isinstance(backend, NatsBackend)
        load = Load(tools, jobs, backend.bus, f"{number}-{life}")
        await load.run()
        if number == 0:
            before = load.warm or held(backend.bus)
            told = await asyncio.wait_for(judged(jobs), LAST)
            told["open"] = await left_open(tools.store)
            after, waiting = held(backend.bus), backend.carrying.waiting
            told["gateway"] = {"before": before, "after": after, "waiting": waiting}
            Path("told.part").write_text(json.dumps(told))
            Path("told.part").rename("told")
        await asyncio.get_running_loop().create_future()


class Load:
    """What one gateway is asked, until it is told to stop."""

    def __init__(self, tools: Runtime, jobs: Jobs, bus: Bus, name: str) -> None:
        self._tools, self._jobs, self._bus, self._name = tools, jobs, bus, name
        self._chance = random.Random(name)
        self.warm: dict[str, int] | None = None

    async def run(self) -> None:
        waiting: set[asyncio.Task[None]] = set()
        for turn in itertools.count():
            if Path("stop").exists():
                break
            if turn % 200 == 0:
                written(f"held.{self._name}", json.dumps(held(self._bus)))
            if turn == 60:
                self.warm = held(self._bus)
            to, seconds = f"{self._name}-{turn}", round(self._chance.random() * 0.2, 3)
            work = self._called if turn % 5 == 4 else self._submitted
            waiting.add(asyncio.create_task(work(TOOLS[turn % 3], to, seconds)))
            if len(waiting) >= OPEN:
                _, waiting = await asyncio.wait(
                    waiting, timeout=1, return_when=asyncio.FIRST_COMPLETED
                )
            while len(waiting) >= 10 * OPEN:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if waiting:
            await asyncio.wait(waiting, timeout=LAST / 2)

    async def _submitted(self, name: str, to: str, seconds: float) -> None:
        try:
            job = await self._jobs.submit(
                name, {"to": to, "seconds": seconds}, caller=ANN, key=to if seconds < 0.1 else None
            )
        except CallError as refused:
            written("refused", f"{name} {refused.code}")
            await asyncio.sleep(0.1)
            return
        written("said", f"{job.id} {name} {to}")
        ended = await self._jobs.wait(job.id, caller=ANN)
        written("seen", f"{job.id} {ended.state}")

    async def _called(self, name: str, to: str, seconds: float) -> None:
        """A keyed call, again and again until somebody knows."""
        for _ in range(4):
            result = await self._tools.execute(
                "pay", {"to": to, "seconds": seconds}, caller=ANN, key=to
            )
            written("calls", "done" if result.error is None else result.error.code)
            if result.error is None or not result.error.retryable:
                return
            await asyncio.sleep(0.2)


async def judged(jobs: Jobs) -> dict[str, Any]:
    """How every acknowledged job has ended, and what is wrong with that."""
    ends, wrong = Counter[str](), list[str]()
    seen = dict(line.split() for line in lines(Path("seen")))
    said = [line.split() for line in lines(Path("said"))]
    began = time.monotonic()
    for job_id, *_ in said:
        await jobs.wait(job_id, caller=ANN)
    settled, done = time.monotonic() - began, Counter(lines(Path("done")))
    for job_id, name, to in said:
        job = await jobs.get(job_id, caller=ANN)
        ends[f"{name} {job.state}"] += 1
        if seen.get(job_id, job.state) != job.state:
            wrong.append(f"{job_id} ended twice: {seen[job_id]}, {job.state}")
        wrong += [f"{job_id}: {fault}" for fault in faults(job, name, to, done[to])]
    twice = [to for to, count in done.items() if count > 1]
    return {
        "jobs": len(said),
        "ends": dict(ends),
        "calls": dict(Counter(lines(Path("calls")))),
        "refused": dict(Counter(lines(Path("refused")))),
        "effects": len(lines(Path("done"))),
        "wrong": wrong + [f"done twice: {to}" for to in twice],
        "settled_in": round(settled, 1),
    }


async def left_open(journal: Journal) -> int:
    """Calls that have not ended, by the audit; some have, and are about to be written down."""
    for _ in range(20):
        found = [one async for one in calls(lines_of(journal)) if one.ended is None]
        if not found:
            break
        await asyncio.sleep(0.5)
    return len(found)


def faults(job: Job, name: str, to: str, done: int) -> list[str]:
    output = {"pay": f"paid {to}", "look": f"seen {to}", "put": f"put {to}"}[name]
    if job.result is None:
        return ["it has no result"]
    if job.state == "succeeded":
        wrong = ["it says so, and was not done"] if name == "pay" and done != 1 else []
        return wrong + ([] if job.result.output == output else [f"{job.result.output!r}"])
    error = job.result.error
    assert error is not None
    if job.state == "unknown":
        return [] if name == "pay" else [f"unknown, and may be repeated: {error.message}"]
    if error.effects == "none" and done:
        return [f"done, and it says that it was not: {error.code}"]
    return [] if job.state == "failed" else [job.state]


# --- a worker --------------------------------------------------------------------------------


async def worker(url: str, number: int) -> None:
    Path("puts").mkdir(exist_ok=True)
    config = Config.of({"store": {"kind": "memory"}}, base=Path())
    settings = settings_of(config, servers=[url], prefix="soak", announce=0.5)
    tools = [shared_tools.pay, shared_tools.look, shared_tools.put]
    async with (
        Runtime(serving(config, settings), tools=tools) as runtime,
        Worker(runtime, settings, folder=Path()) as made,
    ):
        warm = None
        while not Path("told").exists():
            await asyncio.sleep(0.5)
            if warm is None and len(lines(Path("said"))) > 100:
                warm = held(made.bus)
        if number == 0:
            after = held(made.bus)
            told = {"before": warm or after, "after": after, "running": made.running}
            Path("worker.told").write_text(json.dumps(told))
            Path("over").touch()


# --- all of them -----------------------------------------------------------------------------


def forked(body: Callable[[], Coroutine[Any, Any, None]], folder: Path, name: str) -> int:
    """A child that runs ``body`` and nothing else."""
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            log = os.open(f"log.{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            asyncio.run(body())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


class House:
    """The processes, and what keeps them."""

    def __init__(self, folder: Path, dsn: str, chance: random.Random) -> None:
        self._folder, self._dsn, self._chance = folder, dsn, chance
        self._port = free_port()
        self._url = f"nats://127.0.0.1:{self._port}"
        self._nats: subprocess.Popen[bytes] | None = None
        self._children: dict[tuple[str, int], int] = {}
        self._lives = itertools.count()
        self.kills = Counter[str]()

    def up(self) -> None:
        """Whatever is not there is started."""
        if self._nats is None:
            words = [program(), "-a", "127.0.0.1", "-p", str(self._port), "-js"]
            with (self._folder / "log.nats").open("ab") as log:
                self._nats = subprocess.Popen(
                    [*words, "-sd", str(self._folder / "nats")], stdout=log, stderr=log
                )
        for kind, count in (("worker", WORKERS), ("gateway", GATEWAYS)):
            for number in range(count):
                if (kind, number) not in self._children:
                    self._children[kind, number] = self._born(kind, number)

    def _born(self, kind: str, number: int) -> int:
        url, dsn, life = self._url, self._dsn, next(self._lives)
        if kind == "worker":
            return forked(lambda: worker(url, number), self._folder, f"worker.{number}")
        return forked(lambda: gateway(url, dsn, number, life), self._folder, f"gateway.{number}")

    def reaped(self) -> None:
        for place, pid in tuple(self._children.items()):
            if os.waitpid(pid, os.WNOHANG)[0] and not (self._folder / "over").exists():
                del self._children[place]

    def kill(self) -> None:
        kind = self._chance.choice(VICTIMS)
        self.kills[kind] += 1
        if kind == "nats":
            self.stop_nats()
            return
        number = self._chance.randrange(1, WORKERS if kind == "worker" else GATEWAYS)
        if (pid := self._children.pop((kind, number), None)) is not None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def stop_nats(self) -> None:
        if self._nats is not None:
            self._nats.kill()
            self._nats.wait()
            self._nats = None

    def down(self) -> None:
        for pid in self._children.values():
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self.stop_nats()


def soak(folder: Path, seconds: float, seed: int = 7) -> dict[str, Any]:
    """Killed at random for so long; then all that was promised is waited for."""
    chance = random.Random(seed)
    servers = running_server()
    house = House(folder, next(servers).database(), chance)
    try:
        ends = time.monotonic() + seconds
        house.up()
        while time.monotonic() < ends:
            time.sleep(0.2 + chance.random() * 0.8)
            if len(lines(folder / "said")) > 20:
                house.kill()
                time.sleep(chance.random() * 0.5)
            house.reaped()
            house.up()
        (folder / "stop").touch()
        ends = time.monotonic() + 2 * LAST
        while not (folder / "over").exists() and time.monotonic() < ends:
            time.sleep(0.1)
            house.reaped()
            house.up()
        told: dict[str, Any] = json.loads((folder / "told").read_text())
        told["worker"] = json.loads((folder / "worker.told").read_text())
        return told | {"kills": dict(house.kills), "seconds": seconds}
    finally:
        house.down()
        servers.close()  # type: ignore[attr-defined]


if __name__ == "__main__":
    print(
        json.dumps(soak(Path(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:])), indent=1)
    )
