"""A gateway and workers on a real bus: in this process, or in one of their own to be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tests.processes import halt, innermost
from toolpost import Runtime
from toolpost.bus.connection import Bus
from toolpost.bus.embedded import Embedded
from toolpost.bus.settings import BusOptions
from toolpost.config import Config
from toolpost.worker import Worker, settings_of
from toolpost.worker.settings import serving

ROOT = Path(__file__).parents[2]
_there: Counter[str] = Counter()
"""How many workers have begun, by prefix: a gateway that begins after one is to know it."""


@asynccontextmanager
async def gateway(server: Embedded, prefix: str, base: Path, **more: Any) -> AsyncIterator[Runtime]:
    """A runtime whose tools are those of the workers that are there."""
    nats = {"servers": [server.url], "prefix": prefix, **more.pop("nats", {})}
    nats = {"patience": 30 if _there[prefix] else 0.25, **nats}
    given = {
        "sources": [{"kind": "nats"}], "backends": {"nats": nats}, "guards": ["slots"],
        "observers": [], "store": {"kind": "memory"},
    }  # fmt: skip
    async with Runtime(Config.of({**given, **more}, base=base)) as runtime:
        yield runtime


@asynccontextmanager
async def worker(
    server: Embedded, prefix: str, base: Path, tools: Iterable[Any], **more: Any
) -> AsyncIterator[Worker]:
    config = Config.of({"store": {"kind": "memory"}}, base=base)
    settings = settings_of(config, servers=[server.url], prefix=prefix, announce=0.5, **more)
    async with (
        Runtime(serving(config, settings), tools=tools) as runtime,
        Worker(runtime, settings, folder=base) as made,
    ):
        with _known(prefix):
            yield made


@contextmanager
def _known(prefix: str) -> Iterator[None]:
    _there[prefix] += 1
    try:
        yield
    finally:
        _there[prefix] -= 1


@asynccontextmanager
async def bus(server: Embedded, prefix: str) -> AsyncIterator[Bus]:
    """Somebody else's connection."""
    made = Bus(BusOptions(servers=(server.url,), prefix=prefix), name="stranger", role="client")
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def worker_process(
    server: Embedded, prefix: str, base: Path, module: str = "served_tools", **variables: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """``toolpost worker`` as people run it, with the tools of a module that is beside this one."""
    config = base / "worker.toml"
    config.write_text(
        f'[[sources]]\nkind = "modules"\nmodules = ["tests.bus.{module}"]\n'
        f'[worker]\nprefix = "{prefix}"\nannounce = 0.5\n'
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "toolpost.cli.main", "--config", str(config), "worker",
        "--nats", server.url, "--json",
        cwd=base, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **variables},
    )  # fmt: skip
    assert child.stdout is not None
    try:
        async with asyncio.timeout(60):
            told = json.loads(await child.stdout.readline())
        assert told["tools"], told
        with _known(prefix):
            yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


@asynccontextmanager
async def hung(server: Embedded) -> AsyncIterator[None]:
    """The server answers nobody; then it dies, and is started again."""
    pid = pid_of(server)
    try:
        halt(pid)
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
    await server.stop()
    await server.start()


def pid_of(server: Embedded) -> int:
    assert server._child is not None
    (pid,) = innermost(server._child.pid)
    return pid


async def back(*sides: Bus) -> None:
    """They have lost their connection, and have one again."""
    for side in sides:
        await until(lambda at=side: at.reconnects and at.problem is None)  # type: ignore[misc]


async def until(holds: Callable[[], Any], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.02)
