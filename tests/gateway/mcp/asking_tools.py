"""Tools of a server in processes of its own, which ask, take long, or say where they run."""

from __future__ import annotations

import asyncio
import os

from tests.gateway.served_tools import done
from toolpost import Call, Injected, tool
from toolpost.contracts import Answer, Elicits, Question

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
Asks = Injected[Elicits]


async def _named(call: Call, asks: Elicits) -> Answer:
    return await asks(call, Question(name="name", message="Who are you?", schema=NAME))


@tool(tier=0, effects="read")
async def where() -> int:
    """Say which process this is."""
    return os.getpid()


@tool(tier=0, effects="read", timeout=50)
async def doze(mark: str) -> None:
    """Sleep until somebody stops it."""
    done(f"{mark} began")
    await asyncio.sleep(45)


@tool(tier=0, effects="read", timeout=50)
async def greet(call: Call, asks: Asks, linger: float = 0) -> str:
    """Ask for a name, and greet."""
    said = await _named(call, asks)
    if linger:
        done("lingers")
        try:
            await asyncio.sleep(linger)
        except asyncio.CancelledError:
            done("was cancelled")
            raise
    return f"Hello, {said.content['name']}, from {os.getpid()}!" if said.content else said.action


@tool(tier=0, effects="read", timeout=120)
async def sign(call: Call, asks: Asks) -> str:
    """Ask for a name, in a task."""
    said = await _named(call, asks)
    return f"signed by {said.content['name']}" if said.content else said.action
