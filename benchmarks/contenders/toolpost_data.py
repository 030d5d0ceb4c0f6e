"""toolpost fed with plain data, as a source feeds it; only registration is measured this way."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.cases import spec_data
from benchmarks.contenders.toolpost_executor import ToolpostExecutor
from toolpost import Registry
from toolpost.spec import spec_from


class ToolpostData(ToolpostExecutor):
    label = "**toolpost** `Registry`, from JSON data"
    cases = frozenset()

    @classmethod
    def prepare(cls, count: int) -> str:
        """JSON text: what the specs keep of it is then theirs, and counts as their memory."""
        return json.dumps([spec_data(number) for number in range(count)])

    def register(self, functions: Any) -> None:
        self._registry = Registry([spec_from(data) for data in json.loads(functions)])


CONTENDERS = (ToolpostData,)
