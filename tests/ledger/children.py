"""Processes that write an audit and are killed: run by the tests as children.

``python -m tests.ledger.children FOLDER ROUNDS`` forks one writer after the other from a process
that has imported everything, kills each with SIGKILL somewhere in its work, and prints how many
calls each had begun, as JSON. ``python -m tests.ledger.children FOLDER hang N`` opens N calls, says
so and waits to be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from tests.ledger.houses import house
from toolpost import tool


@tool(tier=2, effects="once", timeout=60)
async def hold() -> None:
    """Never come back."""
    await asyncio.get_running_loop().create_future()


async def busy(folder: Path, ready: int) -> None:
    async with house(folder, checkpoint=7, seconds=0.001) as tools:

        async def work(name: str) -> None:
            for i in range(10_000):
                await tools.execute("send", {"to": f"{name}-{i}"})
                os.write(ready, b".")
                await tools.execute("add", {"a": i, "b": 1})

        await asyncio.gather(*(work(str(n)) for n in range(8)))


def one_round(folder: Path, dice: random.Random) -> int:
    seen, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(seen)
        asyncio.run(busy(folder, ready))
        os._exit(0)
    os.close(ready)
    finished = 0
    if dice.random() < 0.8:  # else it is killed while it starts
        finished = len(os.read(seen, 1))
    time.sleep(dice.random() * 0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while more := os.read(seen, 65536):
        finished += len(more)
    os.close(seen)
    return finished


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
    dice = random.Random(11)
    print(json.dumps([one_round(folder, dice) for _ in range(int(what))]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
