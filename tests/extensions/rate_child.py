"""A gateway of its own: it shares a store with another, and says when its calls were let in.

``python -m tests.extensions.rate_child JSON``: the store, the table of the guard, and how long or
how often to call. Each of its 64 clients calls one time after the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from toolpost import Executor, Registry, tool
from toolpost.contracts import Store
from toolpost.extensions.rate import Rate, RateOptions
from toolpost.stores.postgres import PostgresStore
from toolpost.stores.sqlite import SqliteStore

CLIENTS = 64
asked: ContextVar[float] = ContextVar("asked")
let_in: list[float] = []


class Noting:
    """Notes when a call was judged, for the tool to tell."""

    def time(self) -> float:
        now = time.time()
        asked.set(now)
        return now

    def monotonic(self) -> float:
        return time.monotonic()


@tool(effects="read", labels={"cost": "0.5"})
async def ping() -> str:
    """Answer."""
    let_in.append(asked.get(0.0))
    return "pong"


async def main(work: dict[str, Any]) -> None:
    place: str = work["store"]
    postgres = place.startswith("postgresql:")
    store: Store = PostgresStore(place) if postgres else SqliteStore(Path(place))
    await store.open()
    guard = Rate(RateOptions(repeats=0, **work["rate"]), clock=Noting(), records=store)
    print("ready", flush=True)
    sys.stdin.readline()
    ends = time.monotonic() + work.get("seconds", 0)

    async def client(times: int) -> None:
        while times > 0 or time.monotonic() < ends:
            times -= 1
            await executor.execute("ping", session_id="s")
            await asyncio.sleep(0)

    async with Executor(Registry([ping]), guards=[guard]) as executor:
        await asyncio.gather(*(client(work.get("times", 0)) for _ in range(CLIENTS)))
        print(json.dumps(let_in), flush=True)
        if work.get("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
