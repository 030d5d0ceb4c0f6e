"""A call over NATS: from a gateway in this process to a worker in another, and back.

A real server, on loopback, with uvloop at both ends. The bare contender is the client library
alone: a request, and a process that answers with the same bytes. toolpost's call walks the default
chain, is signed, goes to `toolpost worker`, is checked there, walks the road, and comes back. One
at a time says how long it takes, 64 at once how many fit into a second.

Beside it, what a second worker brings for a tool that keeps a processor busy: more, as long as
there are processors left.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from benchmarks.contender import one_line
from benchmarks.network.gateway import MODULE, TOOLPOST
from benchmarks.network.processes import START_SECONDS, started
from benchmarks.report import Cell, Outcome, Table, at_most, broken, times
from benchmarks.rounds import Effort, Series, settle, turn

NAME = "bus"
TITLE = "A call over NATS"

BARE = "bare NATS request and reply"
OURS = "**toolpost**, default chain → ticket → worker"
MANY = 64
CLAIM = "a read tool over the bus, with its ticket: ≤ 1.5 × a bare NATS request and reply"
BODY = b'{"tool": "add", "arguments": {"a": 1, "b": 2}}'
BUSY = '''

@tool(tier=0, effects="read")
async def busy() -> int:
    """Keep a processor busy."""
    return sum(range(150_000))
'''
CONFIG = '[[sources]]\nkind = "modules"\nmodules = ["adding"]\n'
Call = Callable[[], Awaitable[Any]]


def measure(effort: Effort) -> Outcome:
    try:
        import uvloop

        with (
            TemporaryDirectory(prefix="toolpost-bench-") as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            return runner.run(_measured(Path(folder), effort))
    except Exception as exc:  # it must not stop the other sections
        return Outcome(
            tables=[Table(title=one_line(exc), columns=("",), rows=[])],
            targets=[broken("5", CLAIM)],
        )


async def _measured(folder: Path, effort: Effort) -> Outcome:
    from toolpost import Runtime
    from toolpost.bus.embedded import Embedded
    from toolpost.config import Config

    (folder / "adding.py").write_text(MODULE + BUSY)
    (folder / "toolpost.toml").write_text(CONFIG)
    async with Embedded(folder / "nats") as server, AsyncExitStack() as opened:
        children = opened.enter_context(ExitStack())
        _start(children, [sys.executable, "-m", "benchmarks.network.answering", server.url], folder)
        _start(children, _worker(folder, server.url), folder)
        config = Config.of(
            {"sources": [{"kind": "nats"}], "backends": {"nats": {"servers": [server.url]}}},
            base=folder,
        )
        runtime = await opened.enter_async_context(Runtime(config))
        import nats

        client = await nats.connect(server.url)
        opened.push_async_callback(client.close)

        async def bare() -> None:
            assert (await client.request("bare", BODY, timeout=5)).data == BODY

        async def ours() -> None:
            assert (await runtime.execute("add", {"a": 1, "b": 2})).output == 3

        async def busy() -> None:
            assert (await runtime.execute("busy", {})).success

        calls: dict[str, Call] = {BARE: bare, OURS: ours}
        alone, together = await _timed(calls, effort)
        one = await _rate(busy, 8, 1.0)
        _start(children, _worker(folder, server.url), folder)
        await asyncio.sleep(3)  # the second has said that it is there
        two = await _rate(busy, 8, 1.0)
    return _outcome(alone, together, one, two)


async def _timed(
    calls: dict[str, Call], effort: Effort
) -> tuple[dict[str, Series], dict[str, Series]]:
    alone = {label: Series() for label in calls}
    together = {label: Series() for label in calls}
    for call in calls.values():
        await _rate(call, 1, 0.2)
    settle()
    for number in range(effort.rounds * 2):
        for label in turn(tuple(calls), number):
            alone[label].rounds.append(1 / await _rate(calls[label], 1, effort.slice_seconds * 4))
    for number in range(effort.rounds):
        for label in turn(tuple(calls), number):
            rate = await _rate(calls[label], MANY, effort.slice_seconds * 10)
            together[label].rounds.append(1 / rate)
    return alone, together


async def _rate(call: Call, clients: int, seconds: float) -> float:
    """Calls a second, so many at once."""
    done, began = 0, perf_counter()

    async def client() -> None:
        nonlocal done
        while perf_counter() - began < seconds:
            await call()
            done += 1

    await asyncio.gather(*(client() for _ in range(clients)))
    return done / (perf_counter() - began)


def _worker(folder: Path, url: str) -> list[str]:
    config = str(folder / "toolpost.toml")
    return [TOOLPOST, "--config", config, "worker", "--nats", url, "--json"]


def _start(children: ExitStack, command: list[str], folder: Path) -> None:
    log = folder / f"{len(os.listdir(folder))}.log"
    children.enter_context(started(command, log)).line(START_SECONDS)


def _outcome(
    alone: dict[str, Series], together: dict[str, Series], one: float, two: float
) -> Outcome:
    rows: list[list[Cell]] = [
        [
            label,
            alone[label].median * 1e6,
            alone[label].best * 1e6,
            times(alone[label].ratio(alone[BARE])),
            1 / together[label].median,
        ]
        for label in alone
    ]
    columns = ("", "median µs", "best µs", "× bare", f"a second, {MANY} at once")
    workers: list[list[Cell]] = [["one worker", one, None], ["two workers", two, times(two / one)]]
    return Outcome(
        tables=[
            Table(title="`add(a, b)` on another process", columns=columns, rows=rows),
            Table(
                title="A tool that keeps a processor busy, 8 calls at once",
                columns=("", "calls a second", "× one"),
                rows=workers,
                note=f"{os.cpu_count()} processors, with the server and the gateway on them too.",
            ),
        ],
        targets=[at_most("5", CLAIM, measured=alone[OURS].ratio(alone[BARE]), limit=1.5, unit="×")],
    )
