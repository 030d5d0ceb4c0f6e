"""Opens a page and waits: for a test that kills this process and looks for what it leaves."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from toolpost import Executor, Registry
from toolpost.builtin.browser import Settings, tools


async def main(url: str, authority: str) -> None:
    async with Executor(Registry(tools(Settings(egress=(authority,)), Path()))) as executor:
        result = await executor.execute("browser_navigate", {"url": url})
        print(result.raise_for_error().output["title"], flush=True)
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
