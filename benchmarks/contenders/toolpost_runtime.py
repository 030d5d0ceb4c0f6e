"""toolpost with its default chain: the same tools behind every observer and guard.

As long as the default settings name no rings there is no chain to measure, and a row that says
otherwise would be the bare road under another name: the module then counts as not available.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.contenders.toolpost_executor import ToolpostExecutor
from toolpost import Runtime
from toolpost.config import Config, Settings

if not (Settings().observers and Settings().guards):
    raise ImportError("the default settings name no observers and guards yet")


class ToolpostRuntime(ToolpostExecutor):
    label = "**toolpost** `Runtime.execute`, default chain"
    governed = True

    async def open(self) -> None:
        self._runtime = Runtime(Config(Settings(watch=False), Path.cwd()))
        await self._runtime.start()
        self._runtime.registry.add(*self._tools)
        self._execute = self._runtime.execute

    async def close(self) -> None:
        await self._runtime.close()


CONTENDERS = (ToolpostRuntime,)
