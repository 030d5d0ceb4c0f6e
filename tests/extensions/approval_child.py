"""A process of its own, until it is killed.

It asks for a yes and says the handle; with a handle it resumes and says how; with ``work`` it asks,
approves and runs one call after the other, and says each step after it was made.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path

from tests.extensions.test_approval import BOSS, YES, Bench, code
from toolpost.stores.sqlite import SqliteStore


async def work(bench: Bench, effects: Path) -> None:
    for number in itertools.count():
        to = f"{os.getpid()}-{number}"
        handle = await bench.handle(to)
        print("asked", handle, to, flush=True)
        await bench.desk.decide(handle, YES, by=BOSS, channel="api")
        print("approved", handle, to, flush=True)
        if (await bench.pay(to, grant=handle)).success:
            with effects.open("a", encoding="utf-8") as file:
                file.write(f"{to}\n")
        print("ran", handle, to, flush=True)


async def main(path: str, handle: str | None = None) -> None:
    store = SqliteStore(Path(path))
    await store.open()
    bench = Bench(store)
    if handle == "work":
        await work(bench, Path(path).with_name("effects"))
    if handle is None:
        print(await bench.handle(), flush=True)
        await asyncio.get_running_loop().create_future()
    print("ready", flush=True)
    sys.stdin.readline()
    print(code(await bench.pay(grant=handle)), flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
