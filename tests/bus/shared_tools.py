"""Tools of a worker that several gateways have; what they do stands in the file ``done``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from toolpost import tool


def done(line: str) -> None:
    """In the file before the next step is made; a kill does not take it back."""
    out = os.open("done", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(out, f"{line}\n".encode())
    os.close(out)


@tool(tier=0, effects="read")
async def ping() -> str:
    """Answer."""
    return "pong"


@tool(tier=1, timeout=60)
async def pay(to: str, seconds: float = 0) -> str:
    """Pay, which must happen once."""
    done(to)
    await asyncio.sleep(seconds)
    return f"paid {to}"


@tool(tier=1, timeout=60, requires_approval=True)
async def ask(to: str) -> str:
    """Pay, if a person says so."""
    done(to)
    return f"paid {to}"


@tool(tier=0, effects="read", timeout=60)
async def look(to: str, seconds: float = 0) -> str:
    """Look at somebody."""
    await asyncio.sleep(seconds)
    return f"seen {to}"


@tool(tier=1, effects="idempotent", timeout=60)
async def put(to: str, seconds: float = 0) -> str:
    """Write somebody down."""
    (Path("puts") / to).touch()
    await asyncio.sleep(seconds)
    return f"put {to}"
