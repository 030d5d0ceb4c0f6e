"""A client of FastMCP, in a process of its own: it lists, calls, hears progress, approves, cancels,
and prints what it has seen.

python client_of_fastmcp.py URL MODE
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client


async def main(url: str, mode: Any) -> None:
    progress: list[str | None] = []
    lingers = asyncio.Event()

    async def hear(done: float, total: float | None, message: str | None) -> None:
        progress.append(message)

    async def begun(done: float, total: float | None, message: str | None) -> None:
        lingers.set()

    async def approve(message: str, kind: Any, params: Any, context: Any) -> dict[str, Any]:
        return {"approve": True}

    async with Client(url, mode=mode, elicitation_handler=approve) as client:
        listed = [one.name for one in await client.list_tools()]
        added = (await client.call_tool("add", {"a": 1, "b": 2})).structured_content
        await client.call_tool("steps", {}, progress_handler=hear)
        sent = (await client.call_tool("send", {"to": "Ada"})).content[0].text
        wrong = await client.call_tool("add", {"a": "x", "b": 1}, raise_on_error=False)
        name = f"fastmcp {mode}"
        call = client.call_tool("linger", {"name": name}, progress_handler=begun)
        hanging = asyncio.create_task(call)
        await lingers.wait()
        hanging.cancel()
        await asyncio.wait([hanging])
    seen = {
        "listed": listed,
        "added": added,
        "progress": progress,
        "sent": sent,
        "failed": wrong.is_error,
        "cancelled": hanging.cancelled(),
    }
    print(json.dumps(seen))


asyncio.run(main(*sys.argv[1:]))
