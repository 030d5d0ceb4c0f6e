"""The tools that the gateway's tests call."""

from __future__ import annotations

import asyncio
from typing import Any

from toolpost import Call, tool
from toolpost.errors import ToolFailed

MARKS: list[str] = []
"""What has happened to whom, in the order in which it happened."""


@tool(tier=0, effects="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(tier=0, effects="read")
async def echo(value: Any = None) -> Any:
    """Give back what was given."""
    return value


@tool(tier=0, effects="read", timeout=30)
async def count(call: Call, to: int = 3) -> str:
    """Count, and tell of it."""
    for number in range(to):
        call.progress(number, to, "counting")
        call.partial(f"{number} ")
        await asyncio.sleep(0)
    return "done"


@tool(tier=0, effects="read", timeout=60)
async def wait(mark: str, seconds: float = 30.0) -> str:
    """Wait, and mark how that ended."""
    MARKS.append(f"{mark} began")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        MARKS.append(f"{mark} was cancelled")
        raise
    MARKS.append(f"{mark} ended")
    return mark


@tool(tier=1, effects="once")
async def pay(amount: int) -> str:
    """Pay so much."""
    MARKS.append(f"paid {amount}")
    return f"paid {amount}"


@tool(tier=1, effects="once", requires_approval=True)
async def wire(amount: int) -> str:
    """Send money; somebody has to say yes first."""
    MARKS.append(f"wired {amount}")
    return f"wired {amount}"


@tool(tier=0, effects="read")
async def fail() -> None:
    """Fail, as tools do."""
    raise ToolFailed("The dog has eaten it.")


ALL = (add, echo, count, wait, pay, wire, fail)


async def until(mark: str) -> None:
    """Wait for a mark."""
    async with asyncio.timeout(20):
        while mark not in MARKS:
            await asyncio.sleep(0.005)
