"""A process of its own that makes one call with a key: told what to do by its arguments.

``run``: to the end, and say the result. ``hang``: leave a mark, say so, and never come back. A DSN
after that: the key is kept there.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from toolpost import Executor, Registry, tool
from toolpost.contracts import Clock
from toolpost.extensions.once import Once
from toolpost.stores.postgres import PostgresStore
from toolpost.stores.sqlite import SqliteStore


def tools(marks: Path, *, hangs: bool) -> Registry:
    @tool(effects="once", timeout=60)
    async def charge(amount: int) -> str:
        """Charge somebody: the effect is a line in a file."""
        with marks.open("a", encoding="utf-8") as file:
            file.write(f"{amount}\n")
        if hangs:
            print("charged", flush=True)
            await asyncio.get_running_loop().create_future()
        return f"charged {amount}"

    return Registry([charge])


async def call(
    folder: Path,
    *,
    hangs: bool,
    amount: int = 5,
    key: str = "k",
    dsn: str = "",
    clock: Clock | None = None,
) -> dict[str, Any]:
    store = PostgresStore(dsn) if dsn else SqliteStore(folder / "store.db", clock=clock)
    await store.open()
    try:
        registry = tools(folder / "marks", hangs=hangs)
        async with Executor(registry, guards=[Once(store, clock=clock)]) as executor:
            return (await executor.execute("charge", {"amount": amount}, key=key)).to_dict()
    finally:
        await store.close()


if __name__ == "__main__":
    folder, how, *dsn = sys.argv[1:]
    made = call(Path(folder), hangs=how == "hang", dsn="".join(dsn))
    print(json.dumps(asyncio.run(made)))
