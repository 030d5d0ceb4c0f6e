"""A process of its own, until it is killed.

It asks for a yes and says the handle; with a handle it resumes and says how. With ``killed`` it
makes one process after the other that asks, approves and runs calls, and kills itself after a
number of steps: a step is a call of any function, Python's or the database's, in any thread.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from tests.extensions.test_approval import BOSS, YES, Bench, code, paid
from toolpost.stores.sqlite import SqliteStore

OPENING, STEPS = 30_000, 18_000
"""About as many as it takes to open the store; and then, to see two or three calls through."""


def written(file: Path, line: str) -> None:
    """In the file before the next step is made; a kill does not take it back."""
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(out, f"{line}\n".encode())
    os.close(out)


def die_after(steps: int) -> None:
    left = itertools.count(steps, -1)

    def step(frame: FrameType, event: str, arg: Any) -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(step)
    sys.setprofile(step)


async def work(folder: Path, number: int, steps: int) -> None:
    """What others have left, then calls of its own, without end."""
    paid.append(lambda to: written(folder / "done", to))
    store = SqliteStore(folder / "store.db")
    if number % 5 == 0:
        die_after(steps * OPENING // STEPS)
    await store.open()
    bench = Bench(store)
    await bench.executor.execute("pay", {})  # its chain is made now, of some thousand steps
    if number % 5:
        die_after(steps)
    left = [r for r in await bench.desk.all() if r.state(bench.desk.now()) != "used"]
    for request in left[-2:]:
        await seen_through(bench, folder, request.exact()["to"], request.handle)
    for call in itertools.count():
        to = f"{number}-{call}"
        handle = await bench.handle(to)
        written(folder / "said", f"asked {handle} {to}")
        await seen_through(bench, folder, to, handle)


async def seen_through(bench: Bench, folder: Path, to: str, handle: str) -> None:
    if (await bench.desk.find(handle)).status == "waiting":
        await bench.desk.decide(handle, YES, by=BOSS, channel="api")
        written(folder / "said", f"approved {handle} {to}")
    if (await bench.pay(to, grant=handle)).success:
        written(folder / "said", f"ran {handle} {to}")


def killed(folder: Path, times: int) -> None:
    """Forked before there is a loop or a thread: each begins in a few milliseconds."""
    chance = random.Random(7)
    for number in range(times):
        steps = chance.randrange(1, STEPS)
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(asyncio.wait_for(work(folder, number, steps), 60))
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        written(folder / "killed", str(os.WTERMSIG(status)))


async def main(path: str, handle: str | None = None) -> None:
    store = SqliteStore(Path(path))
    await store.open()
    bench = Bench(store)
    if handle is None:
        print(await bench.handle(), flush=True)
        await asyncio.get_running_loop().create_future()
    print("ready", flush=True)
    sys.stdin.readline()
    print(code(await bench.pay(grant=handle)), flush=True)
    await store.close()


if __name__ == "__main__":
    if sys.argv[2:3] == ["killed"]:
        killed(Path(sys.argv[1]), int(sys.argv[3]))
    else:
        asyncio.run(main(*sys.argv[1:]))
