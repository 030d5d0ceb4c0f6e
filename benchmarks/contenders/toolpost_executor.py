"""toolpost's bare road: ``Executor(registry)``, with the three ways to run a Python tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from benchmarks.cases import Function
from benchmarks.contender import ASYNC_CASES, Call, Contender
from toolpost import Executor, Limits, Registry, Result, tool


class ToolpostExecutor(Contender):
    label = "**toolpost** `Executor.execute`"
    cases = ASYNC_CASES
    isolation: ClassVar[Literal["inline", "thread", "process"]] = "inline"

    def register(self, functions: Mapping[str, Function]) -> None:
        # as many at once as a crowd has: to be refused is quicker than to be called
        slots = Limits(concurrency=1_000)
        as_tool = tool(tier=0, effects="read", isolation=self.isolation, limits=slots)
        self._tools = [as_tool(function) for function in functions.values()]
        self._registry = Registry(self._tools)

    async def open(self) -> None:
        self._executor = Executor(self._registry)
        self._execute = self._executor.execute

    def bind(self, tool: str, arguments: dict[str, Any]) -> Call:
        execute = self._execute
        return lambda: execute(tool, arguments)

    def value(self, answer: Result) -> Any:
        return answer.output if answer.success else answer.error

    async def close(self) -> None:
        await self._executor.close()


class ToolpostThread(ToolpostExecutor):
    label = "**toolpost** `Executor.execute`, thread"
    cases = frozenset({"add_sync"})
    isolation = "thread"


class ToolpostProcess(ToolpostExecutor):
    label = "**toolpost** `Executor.execute`, worker process (can be killed)"
    cases = frozenset({"add_sync"})
    isolation = "process"


CONTENDERS = (ToolpostExecutor, ToolpostThread, ToolpostProcess)
