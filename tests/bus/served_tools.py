"""Tools of a worker in a process of its own; what they do stands in the file ``done``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from toolpost import tool


def done(line: str) -> None:
    with Path("done").open("a", encoding="utf-8") as file:
        file.write(line + "\n")


@tool(tier=0, effects="read")
async def where() -> int:
    """Say which process this is."""
    return os.getpid()


@tool(tier=0, effects="read", timeout=60)
async def wait(seconds: float) -> str:
    """Wait."""
    done("waiting")
    await asyncio.sleep(seconds)
    return "waited"


@tool(tier=1, timeout=60)
async def pay(amount: int, seconds: float = 0) -> str:
    """Pay, which must happen once."""
    done(f"paying {amount}")
    await asyncio.sleep(seconds)
    done(f"paid {amount}")
    return f"paid {amount}"
