"""langchain-core: ``StructuredTool.ainvoke`` out of a dict of tools, since it has no registry."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import iscoroutinefunction
from typing import Any

from langchain_core.tools import StructuredTool

from benchmarks.cases import Function
from benchmarks.contender import Call, Contender


class LangChain(Contender):
    label = "langchain-core `StructuredTool.ainvoke`"
    peer = True

    def register(self, functions: Mapping[str, Function]) -> None:
        self._tools = {
            name: StructuredTool.from_function(coroutine=function, name=name)
            if iscoroutinefunction(function)
            else StructuredTool.from_function(func=function, name=name)
            for name, function in functions.items()
        }

    def bind(self, tool: str, arguments: dict[str, Any]) -> Call:
        tools = self._tools
        return lambda: tools[tool].ainvoke(arguments)


CONTENDERS = (LangChain,)
