"""The function itself, awaited with its arguments: what everything else is a multiple of."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from benchmarks.cases import Function, ItemModel
from benchmarks.contender import Call, Contender


class Bare(Contender):
    label = "bare `await function(**arguments)`"

    def register(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions

    def bind(self, tool: str, arguments: dict[str, Any]) -> Call:
        function = self._functions[tool]
        if tool == "batch_model":  # it does no work at all, so the models are made beforehand
            arguments = {"items": [ItemModel(**item) for item in arguments["items"]]}
        if iscoroutinefunction(function):
            return lambda: function(**arguments)
        return partial(_at_once, function, arguments)


class BareThread(Bare):
    label = "bare `asyncio.to_thread`"
    cases = frozenset({"add_sync"})

    def bind(self, tool: str, arguments: dict[str, Any]) -> Call:
        function = self._functions[tool]
        return lambda: asyncio.to_thread(function, **arguments)


async def _at_once(function: Function, arguments: dict[str, Any]) -> Any:
    return function(**arguments)


CONTENDERS = (Bare, BareThread)
