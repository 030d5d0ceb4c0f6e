"""The hand-fused yardstick of ``benchmarks/limit.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from benchmarks.cases import Function
from benchmarks.contender import ASYNC_CASES, Call, Contender
from benchmarks.limit import Limit, Result


class Fused(Contender):
    label = "the limit, hand-fused"
    cases = ASYNC_CASES - {"batch_model"}  # it checks arguments, it does not build models of them

    stamped: ClassVar[bool] = False

    def register(self, functions: Mapping[str, Function]) -> None:
        self._limit = Limit(stamped=self.stamped)
        for name, function in functions.items():
            self._limit.add(name, function)

    def bind(self, tool: str, arguments: dict[str, Any]) -> Call:
        execute = self._limit.execute
        return lambda: execute(tool, arguments)

    def value(self, answer: Result) -> Any:
        return answer.output if answer.success else answer.error


class FusedStamped(Fused):
    label = "the limit, with an id and a duration in its result"
    stamped = True


CONTENDERS = (Fused, FusedStamped)
