"""Tools that a worker can import by this module's name."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

from toolpost import Call, Image, Injected, Output, Secret, Text, ToolFailed, Unavailable, tool

MODULE_DOC = __doc__
LOADED = os.urandom(8).hex()
"""Another one in each process."""


def loaded() -> str:
    """Tell the processes apart: alone in a pid namespace, all have one number."""
    return LOADED


def plain_add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


async def plain_async_add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    await asyncio.sleep(0)
    return a + b


@tool(tier=2)
def elevated() -> dict[str, Any]:
    """Tell which process this is."""
    return {"pid": os.getpid(), "main": threading.current_thread() is threading.main_thread()}


@tool(tier=1)
def standard() -> dict[str, Any]:
    """Tell which process this is."""
    return {"pid": os.getpid(), "main": threading.current_thread() is threading.main_thread()}


@tool(tier=2)
async def elevated_async() -> dict[str, Any]:
    """Tell which process this is."""
    return {"pid": os.getpid(), "main": threading.current_thread() is threading.main_thread()}


@tool(isolation="process")
def has_left(call: Call) -> float | None:
    """Tell how many seconds the call has left."""
    return None if call.deadline is None else call.deadline - time.monotonic()


@tool(isolation="process")
def spins(seconds: float) -> str:
    """Keep a processor busy."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return "done"


@tool(isolation="process")
def reports(call: Call) -> dict[str, Any]:
    """Report progress, a piece and a warning, and tell of the call."""
    call.progress(1, 1, "all of it")
    call.partial("piece")
    call.warn("careful")
    return {
        "tool": call.tool,
        "call_id": call.call_id,
        "session_id": call.session_id,
        "caller": call.caller.id,
        "roles": sorted(call.caller.roles),
        "phase": call.phase,
        "metadata": call.metadata,
        "key": call.key,
    }


@tool(isolation="process")
def chats() -> int:
    """Print something."""
    print("hello from the worker")
    return 1


@tool(isolation="process")
def fails(message: str) -> None:
    """Fail on purpose."""
    raise ToolFailed(message, details={"why": "on purpose"})


@tool(isolation="process")
def breaks() -> None:
    """Break."""
    raise ValueError("password=hunter2")


@tool(isolation="process")
def leaves() -> None:
    """End the interpreter."""
    sys.exit(3)


@tool(isolation="process")
def dies() -> None:
    """Die without a word."""
    os._exit(9)


@dataclass
class Stay:
    first: date
    nights: int


@tool(isolation="process")
def book(stay: Stay, guests: set[str]) -> Stay:
    """Book a stay."""
    assert isinstance(stay.first, date)
    assert isinstance(guests, set)
    return stay


@tool(isolation="process")
def album() -> Output:
    """Give data and parts."""
    return Output({"count": 1}, (Text("a picture"), Image(b"png")))


@tool(isolation="process")
def knows(key: Annotated[str, Secret("TOOLPOST_TEST_SECRET")]) -> str:
    """Tell a secret."""
    return key


class Db:
    """A live object."""


@tool(isolation="process")
def queries(db: Injected[Db]) -> int:
    """Query the database."""
    return 1


def warns_without_end(call: Call) -> int:
    """Warn far more often and longer than anybody reads."""
    for number in range(500):
        call.warn(f"{number} " + "w" * 5_000)
    return 1


def fails_at_length(call: Call) -> int:
    """Fail with more than a model can read."""
    call.warn("careful")
    raise ToolFailed("m" * 100_000, details={"d": "d" * 100_000})


@tool
def unavailable_after_its_effect() -> None:
    """Do something, then fail with an error that says nothing about it."""
    raise Unavailable("gone")
