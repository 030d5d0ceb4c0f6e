"""A few tools, an executor and a runtime over them, and a clock that moves by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from toolpost.authoring import tool
from toolpost.config import Config, Settings
from toolpost.contracts import Backend, Extension, Ring
from toolpost.errors import ToolFailed
from toolpost.executor import Executor
from toolpost.registry import Item, Registry
from toolpost.runtime import Runtime


@tool(tier=0, effects="read")
async def echo(text: str) -> str:
    """Give back the text."""
    return text


@tool(tier=0, effects="read")
async def fail(message: str) -> str:
    """Fail, with this message for the model."""
    raise ToolFailed(message)


@tool(tier=0, effects="read", timeout=60)
async def hang() -> None:
    """Never come back."""
    await asyncio.get_running_loop().create_future()


def sample_executor(
    *tools: Item,
    observers: Iterable[Extension | Ring] = (),
    guards: Iterable[Extension | Ring] = (),
    backends: Mapping[str, Backend] | None = None,
    provide: Mapping[type, object] | None = None,
) -> Executor:
    """An executor in memory over ``echo``, ``fail``, ``hang`` and tools of your own."""
    return Executor(
        Registry([echo, fail, hang, *tools]),
        observers=observers,
        guards=guards,
        backends=backends,
        provide=provide,
    )


def sample_runtime(
    *tools: Item,
    settings: Settings | None = None,
    observers: Iterable[Extension | Ring] = (),
    guards: Iterable[Extension | Ring] = (),
    backends: Mapping[str, Backend] | None = None,
    provide: Mapping[type, object] | None = None,
) -> Runtime:
    """The same with the default chain, as a program with a config has it; ``settings`` are what the
    config would say. Approvals, keys and the audit are kept in memory: no file is made.
    """
    kept = {"store": {"kind": "memory"}, "watch": False}
    chosen = msgspec.structs.replace(settings or Settings(), **kept)
    runtime = Runtime(
        Config(chosen, Path.cwd()),
        observers=observers,
        guards=guards,
        backends=backends,
        provide=provide,
    )
    runtime.registry.add(echo, fail, hang, *tools)
    return runtime


class Clock:
    """A clock that moves when it is told to, for whatever takes a ``clock``."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("a clock does not go back")
        self.now += seconds
