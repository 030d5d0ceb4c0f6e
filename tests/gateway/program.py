"""``toolpost serve`` as people run it: a process of its own, asked over its socket."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gateway.running import Client
from toolpost.clock import SystemClock
from toolpost.config import find
from toolpost.gateway.identity.keys import Keys
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import AuditedCall, calls
from toolpost.parts import store_of
from toolpost.stores.lazy import LazyStore

CONFIG = """\
[[sources]]
kind = "modules"
modules = ["tests.gateway.served_tools"]
"""


@dataclass(kw_only=True)
class Program(Client):
    """A server process and its folder."""

    child: asyncio.subprocess.Process
    folder: Path

    @property
    def done(self) -> list[str]:
        """What the tools have done."""
        file = self.folder / "done"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    async def until_done(self, line: str) -> None:
        await until(lambda: line in self.done)

    async def key(self, name: str, **more: Any) -> dict[str, str]:
        """The header of a new key, made in the store as ``toolpost keys create`` does; where there
        is one of this name, as ``toolpost keys rotate`` does.
        """
        async with self._store() as store:
            keys = Keys(store, clock=SystemClock())
            same = [key for key in await keys.all() if key.name == name]
            if same:
                _, text = await keys.rotate(same[0], seconds=None)
            else:
                _, text = await keys.create(name, **more)
        return {"authorization": f"Bearer {text}"}

    async def revoke(self, header: dict[str, str]) -> None:
        async with self._store() as store:
            keys = Keys(store, clock=SystemClock())
            await keys.revoke((await keys.verified(header["authorization"].split(" ")[1])).id)

    async def audited(self) -> list[AuditedCall]:
        """The calls on record, as another process reads them."""
        async with self._store() as store:
            return [call async for call in calls(lines_of(store))]

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[LazyStore]:
        store = store_of(find(str(self.folder / "toolpost.toml")))
        try:
            yield store
        finally:
            await store.close()

    async def ended(self, signal: int) -> int:
        """Its exit code, after this signal."""
        self.child.send_signal(signal)
        async with asyncio.timeout(60):
            return await self.child.wait()


async def until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


def written(folder: Path, config: str, **gateway: Any) -> None:
    """The config; ``gateway`` is its table of that name, sub-tables stand in ``config``."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in {"port": 0, **gateway}.items()]
    text = "\n".join(["[gateway]", *lines, "", config])
    (folder / "toolpost.toml").write_text(text, encoding="utf-8")


async def started(folder: Path, words: Sequence[str]) -> asyncio.subprocess.Process:
    path = os.pathsep.join(filter(None, sys.path))
    with (folder / "stderr").open("ab") as err:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "toolpost.cli.main", "serve", "--json", *words),
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=err,
            env={**os.environ, "PYTHONPATH": path},
        )


@asynccontextmanager
async def program(
    folder: Path, *words: str, config: str = CONFIG, **gateway: Any
) -> AsyncIterator[Program]:
    """A server that serves; it is stopped if the test has not done so."""
    written(folder, config, **gateway)
    child = await started(folder, words)
    assert child.stdout is not None
    try:
        async with asyncio.timeout(90):
            line = await child.stdout.readline()
        assert line, (folder / "stderr").read_text(encoding="utf-8")
        port = int(json.loads(line)["address"].rpartition(":")[2])
        yield Program("127.0.0.1", port, child=child, folder=folder)
    finally:
        if child.returncode is None:
            child.terminate()
            try:
                async with asyncio.timeout(60):
                    await child.wait()
            except TimeoutError:
                child.kill()
        await child.communicate()


async def refused(folder: Path, config: str, **gateway: Any) -> tuple[int, str]:
    """The exit code and the last words of a server that does not start."""
    written(folder, config, **gateway)
    child = await started(folder, ())
    async with asyncio.timeout(90):
        await child.communicate()
    assert child.returncode is not None
    return child.returncode, (folder / "stderr").read_text(encoding="utf-8")
