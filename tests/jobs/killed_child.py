"""Processes with jobs, two at a time, each killed after so many steps of its program: a step is a
call of any function, Python's or the database's, in any thread.

``python -m tests.jobs.killed_child FOLDER PAIRS``. What a tool has done is a line in ``done``, an
acknowledged job one in ``said``; a kill takes neither back.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
import traceback
from pathlib import Path

from tests.extensions.approval_child import die_after
from tests.jobs.houses import ANN, config_of, written
from toolpost import Runtime, tool
from toolpost.jobs import Jobs

OPENING, STEPS = 45_000, 40_000
"""About as many as it takes to open everything; and then, to see some jobs through."""
SETTINGS = {"jobs": {"running": 3}}


def tools_of(folder: Path) -> list[object]:
    @tool(tier=1, effects="once", timeout=60)
    async def pay(to: str) -> str:
        """Pay somebody."""
        written(folder / "done", to)
        await asyncio.sleep(0)
        return f"paid {to}"

    @tool(tier=0, effects="read", timeout=60)
    async def look(to: str) -> str:
        """Look at somebody."""
        await asyncio.sleep(0)
        return f"seen {to}"

    return [pay, look]


async def work(folder: Path, number: int, steps: int) -> None:
    """What others have left, then jobs of its own, without end."""
    if number % 4 == 0:
        die_after(steps * OPENING // STEPS)
    runtime = Runtime(config_of(folder, **SETTINGS), tools=tools_of(folder))  # type: ignore[arg-type]
    async with runtime, Jobs(runtime) as jobs:
        if number % 4:
            die_after(steps)
        for turn in itertools.count():
            name, to = ("pay", "look")[turn % 3 == 2], f"{number}-{turn}"
            key = to if turn % 2 else None
            job = await jobs.submit(name, {"to": to}, caller=ANN, key=key)
            written(folder / "said", f"{job.id} {name} {to}")
            if turn % 5 == 4:
                await jobs.wait(job.id, caller=ANN)


def born(folder: Path, number: int, steps: int) -> int:
    """Forked before there is a loop or a thread: each begins in a few milliseconds."""
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(asyncio.wait_for(work(folder, number, steps), 60))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


async def warmed(folder: Path) -> None:
    """What is loaded and compiled once is so before there are children: it is not their work."""
    folder.mkdir()
    runtime = Runtime(config_of(folder, **SETTINGS), tools=tools_of(folder))  # type: ignore[arg-type]
    async with runtime, Jobs(runtime) as jobs:
        await jobs.wait((await jobs.submit("pay", {"to": "x"}, caller=ANN)).id, caller=ANN)


def main(folder: Path, pairs: int, seed: int) -> None:
    chance = random.Random(seed)
    asyncio.run(warmed(folder / "warm"))
    for pair in range(pairs):
        both = [born(folder, 2 * pair + i, chance.randrange(1, STEPS)) for i in range(2)]
        for pid in both:
            _, status = os.waitpid(pid, 0)
            written(folder / "killed", str(os.WTERMSIG(status)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else 7)
