"""Processes that write an audit and are killed: run by the tests as children.

``python -m tests.ledger.children FOLDER ROUNDS`` forks one writer after the other from a process
that has imported everything, and kills each with SIGKILL as soon as it has done a number of things:
a call has come back, a write begins, a write has ended. It prints how many calls of each came back,
as JSON. ``python -m tests.ledger.children FOLDER hang N`` opens N calls, says
so and waits to be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.ledger.houses import house
from toolpost import tool
from toolpost.contracts import Line
from toolpost.redact import clean_json
from toolpost.stores.sqlite import SqliteStore

CALLED, WRITES, WRITTEN = b"c", b"w", b"."
MOST_STEPS = 60


@tool(tier=2, effects="once", timeout=60)
async def hold() -> None:
    """Never come back."""
    await asyncio.get_running_loop().create_future()


async def busy(folder: Path, ready: int) -> None:
    class Telling(SqliteStore):
        """Says when it writes."""

        async def append(self, lines: Sequence[Line]) -> None:
            os.write(ready, WRITES)
            await super().append(lines)
            os.write(ready, WRITTEN)

    async with house(folder, store_of=Telling, checkpoint=7, seconds=0.001) as tools:

        async def work(name: str) -> None:
            for i in range(10_000):
                await tools.execute("send", {"to": f"{name}-{i}"})
                os.write(ready, CALLED)
                await tools.execute("add", {"a": i, "b": 1})

        await asyncio.gather(*(work(str(n)) for n in range(8)))


def one_round(folder: Path, steps: int) -> int:
    """Kill a writer after so many steps; 0: while it starts."""
    seen, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(seen)
        asyncio.run(busy(folder, ready))
        os._exit(0)
    os.close(ready)
    told = b""
    while len(told) < steps and (step := os.read(seen, 1)):
        told += step
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while more := os.read(seen, 65536):
        told += more
    os.close(seen)
    return told.count(CALLED)


async def hang(folder: Path, number: int) -> None:
    async with house(folder, hold) as tools:
        held = [asyncio.ensure_future(tools.execute("hold")) for _ in range(number)]
        await tools.execute("send", {"to": "ann"})  # its intent is written with theirs, or after
        await tools.execute("send", {"to": "bob"})
        print("open", flush=True)
        await asyncio.gather(*held)


def main(folder: Path, what: str, number: int = 0) -> None:
    if what == "hang":
        asyncio.run(hang(folder, number))
        return
    clean_json("{}")  # its rules are compiled once, and not by every child
    dice = random.Random(11)
    rounds = [one_round(folder, dice.randrange(MOST_STEPS)) for _ in range(int(what))]
    print(json.dumps(rounds))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
