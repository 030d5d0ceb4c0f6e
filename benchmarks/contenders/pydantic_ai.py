"""pydantic-ai: the tool manager an agent run goes through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RunUsage

from benchmarks.cases import Function
from benchmarks.contender import Call, Contender


class PydanticAI(Contender):
    label = "pydantic-ai `ToolManager.handle_call`"
    peer = True

    def register(self, functions: Mapping[str, Function]) -> None:
        self._toolset: FunctionToolset[None] = FunctionToolset(list(functions.values()))

    async def open(self) -> None:
        context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
        self._manager = await ToolManager(self._toolset).for_run_step(context)

    def bind(self, tool: str, arguments: dict[str, Any]) -> Call:
        handle_call = self._manager.handle_call
        return lambda: handle_call(
            ToolCallPart(tool_name=tool, args=arguments, tool_call_id="call")
        )


CONTENDERS = (PydanticAI,)
