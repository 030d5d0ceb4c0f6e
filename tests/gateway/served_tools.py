"""Tools of a server in a process of its own: what they have done is a line in its folder."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

from toolpost import Call, Limits, tool

SPAWN = "import subprocess, sys; subprocess.run(['sleep', sys.argv[1]])"


def done(line: str) -> None:
    """In the file before the next step is made; no kill takes it back."""
    out = os.open("done", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(out, f"{line}\n".encode())
    os.close(out)


@tool(tier=0, effects="read", limits=Limits(concurrency=100, queue=1000))
async def echo(value: Any = None) -> Any:
    """Give back what was given."""
    return value


@tool(tier=0, effects="read", timeout=60, limits=Limits(concurrency=200, queue=1000))
async def nap(seconds: float, mark: str = "") -> str:
    """Wait a while."""
    if mark:
        done(f"{mark} began")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if mark:
            done(f"{mark} was cancelled")
        raise
    return mark


@tool(tier=0, effects="read", timeout=60, limits=Limits(concurrency=100, queue=100))
async def pour(call: Call, pieces: int, size: int) -> str:
    """Tell a lot, for as long as somebody listens."""
    for _ in range(pieces):
        call.partial("x" * size)
        await asyncio.sleep(0.05)
    return "poured"


@tool(tier=0, effects="read", isolation="process", timeout=60, limits=Limits(concurrency=4))
def sleep(seconds: float) -> str:
    """Sleep in a child of a child of a worker."""
    subprocess.run([sys.executable, "-c", SPAWN, str(seconds)], check=True)
    return "slept"


@tool(tier=0, effects="read", timeout=60, limits=Limits(concurrency=10, queue=100))
async def held(number: int) -> int:
    """Take ten at once, and a hundred who wait, until there is a file called ``go``."""
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)
    return number


@tool(tier=1, effects="once", timeout=60)
async def pay(to: str, seconds: float = 0.0) -> str:
    """Pay somebody, and take so long to say so."""
    done(f"paid {to}")
    await asyncio.sleep(seconds)
    return f"paid {to}"


@tool(tier=1, effects="idempotent", timeout=60)
async def put(to: str, seconds: float = 0.0) -> str:
    """Put something somewhere, after so long."""
    await asyncio.sleep(seconds)
    done(f"put {to}")
    return f"put {to}"


@tool(tier=1, effects="once", requires_approval=True)
async def wire(amount: int) -> str:
    """Send money; somebody has to say yes first."""
    done(f"wired {amount}")
    return f"wired {amount}"


@tool(tier=0, effects="read")
async def limited() -> str:
    """Not more often than the config says."""
    return "in time"
