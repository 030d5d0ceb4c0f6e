"""toolpost with its default chain: the same tools behind every observer and guard.

The folder is a fresh one, so that what is kept (the audit, the store) starts empty each time.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.contenders.toolpost_executor import ToolpostExecutor
from toolpost import Runtime
from toolpost.config import Config, Settings


class ToolpostRuntime(ToolpostExecutor):
    label = "**toolpost** `Runtime.execute`, default chain"
    governed = True

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings(watch=False)

    async def open(self) -> None:
        self._folder = TemporaryDirectory(prefix="toolpost-bench-")
        self._runtime = Runtime(Config(self._settings, Path(self._folder.name)))
        await self._runtime.start()
        self._runtime.registry.add(*self._tools)
        self._execute = self._runtime.execute

    async def close(self) -> None:
        await self._runtime.close()
        self._folder.cleanup()


CONTENDERS = (ToolpostRuntime,)
