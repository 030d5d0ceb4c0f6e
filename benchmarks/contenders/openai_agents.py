"""openai-agents: a ``FunctionTool`` invoked with the JSON text a model would send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agents import function_tool
from agents.tool_context import ToolContext

from benchmarks.cases import Function
from benchmarks.contender import Call, Contender


class OpenAIAgents(Contender):
    label = "openai-agents `on_invoke_tool`"
    peer = True

    def register(self, functions: Mapping[str, Function]) -> None:
        self._tools = {
            name: function_tool(function, name_override=name, failure_error_function=None)
            for name, function in functions.items()
        }

    def bind(self, tool: str, arguments: dict[str, Any]) -> Call:
        tools, text = self._tools, json.dumps(arguments)

        def call() -> Any:
            context = ToolContext(None, tool_name=tool, tool_call_id="call", tool_arguments=text)
            return tools[tool].on_invoke_tool(context, text)

        return call


CONTENDERS = (OpenAIAgents,)
