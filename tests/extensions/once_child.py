"""A process of its own that makes one call with a key: told what to do by its arguments.

``run``: to the end, and say the result. ``hang``: leave a mark, say so, and never come back.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from toolpost import Executor, Registry, tool
from toolpost.extensions.once import Once
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


async def call(folder: Path, *, hangs: bool, amount: int = 5, key: str = "k") -> dict[str, Any]:
    store = SqliteStore(folder / "store.db")
    await store.open()
    try:
        registry = tools(folder / "marks", hangs=hangs)
        async with Executor(registry, guards=[Once(store)]) as executor:
            return (await executor.execute("charge", {"amount": amount}, key=key)).to_dict()
    finally:
        await store.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(call(Path(sys.argv[1]), hangs=sys.argv[2] == "hang"))))
