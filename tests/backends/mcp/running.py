"""What the tests of MCP servers share: a runtime over some servers, and how to find a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from toolpost import Runtime
from toolpost.config import Config

WITHIN = 60.0


@asynccontextmanager
async def serving(
    servers: Mapping[str, Mapping[str, Any]],
    base: Path,
    *,
    provide: Mapping[type, object] | None = None,
    secret: Callable[[str], str | None] = lambda name: None,
    **settings: Any,
) -> AsyncIterator[Runtime]:
    """A runtime with the tools of these servers, and no rings."""
    data = {
        "sources": [{"kind": "mcp", "servers": [*servers]}],
        "backends": {"mcp": {"servers": dict(servers)}},
        "store": {"kind": "memory"},
        "observers": [],
        "guards": [],
        **settings,
    }
    config = Config.of(data, base=base)
    async with asyncio.timeout(WITHIN):
        async with Runtime(config, provide=provide, secret=secret) as runtime:
            yield runtime


def processes(word: str) -> list[psutil.Process]:
    """Those of our descendants that were started with a word and became something else."""
    found = []
    for one in psutil.Process().children(recursive=True):
        try:
            line = one.cmdline()
        except psutil.Error:
            continue
        sandboxing = any("_keeper.py" in part or "bwrap" in part for part in line)
        if not sandboxing and any(word in part for part in line):
            found.append(one)
    return found


async def until(what: Callable[[], object], within: float = 30.0) -> None:
    """Wait, looking often; the caller's test says what for."""
    async with asyncio.timeout(within):
        while not what():
            await asyncio.sleep(0.02)
