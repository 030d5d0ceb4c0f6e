"""A process of its own: asks for a yes and says the handle, or resumes with one and says how."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.extensions.test_approval import Bench, code
from toolpost.stores.sqlite import SqliteStore


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
    asyncio.run(main(*sys.argv[1:]))
