"""toolregistry: ``ainvoke``; its results are text."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from toolregistry import ToolRegistry

from benchmarks.cases import Function
from benchmarks.contender import EVERY_CASE, Call, Contender


class ToolRegistryInvoke(Contender):
    label = "toolregistry `ToolRegistry.ainvoke`"
    cases = EVERY_CASE - {"batch_model"}  # hands the tool dicts where it asks for models
    peer = True

    def register(self, functions: Mapping[str, Function]) -> None:
        self._registry = ToolRegistry("benchmarks")
        for name, function in functions.items():
            self._registry.register(function, name=name)

    def bind(self, tool: str, arguments: dict[str, Any]) -> Call:
        ainvoke = self._registry.ainvoke
        return lambda: ainvoke(tool, arguments)

    def value(self, answer: Any) -> Any:
        return ast.literal_eval(str(answer.result))


CONTENDERS = (ToolRegistryInvoke,)
