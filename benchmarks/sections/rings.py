"""What each ring of the default chain adds to a call, alone and all together.

One runtime for every ring, with that ring and no other, beside one without any. The figures are the
best rounds, for what the audit writes behind a call falls into the slices of its neighbours. A ring
that has nothing to do with a tool is not there at all, and adds nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from benchmarks.cases import ARGUMENTS, FUNCTIONS, TITLES
from benchmarks.contender import Call
from benchmarks.contenders.toolpost_runtime import ToolpostRuntime
from benchmarks.report import Cell, Outcome, Table
from benchmarks.rounds import Effort, Series, interleave
from toolpost.config import Settings

NAME = "rings"
TITLE = "What the rings cost"

CASES = ("add", "batch")
WITHOUT, WITH_ALL = "no rings", "**all of them**"


def measure(effort: Effort) -> Outcome:
    found = {case: asyncio.run(_ladder(case, effort)) for case in CASES}
    return Outcome(tables=[_table(found)], targets=[])


def _settings() -> dict[str, Settings]:
    chain = Settings()
    observers = {
        name: Settings(watch=False, observers=(name,), guards=()) for name in chain.observers
    }
    guards = {name: Settings(watch=False, observers=(), guards=(name,)) for name in chain.guards}
    return {
        WITHOUT: Settings(watch=False, observers=(), guards=()),
        **observers,
        **guards,
        WITH_ALL: Settings(watch=False),
    }


async def _ladder(case: str, effort: Effort) -> dict[str, Series]:
    calls: dict[str, Call] = {}
    async with AsyncExitStack() as stack:
        for name, settings in _settings().items():
            contender = ToolpostRuntime(settings)
            contender.register({case: FUNCTIONS[case]})
            await contender.open()
            stack.push_async_callback(contender.close)
            calls[name] = contender.bind(case, ARGUMENTS[case])
            await calls[name]()
        return await interleave(calls, effort)


def _table(found: dict[str, dict[str, Series]]) -> Table:
    rows: list[list[Cell]] = []
    for name in next(iter(found.values())):
        row: list[Cell] = [name]
        for series in found.values():
            row += [series[name].best * 1e6, (series[name].best - series[WITHOUT].best) * 1e6]
        rows.append(row)
    columns = [part for case in found for part in (f"{TITLES[case]}, best µs", "adds µs")]
    note = "All of them together share what the first of them costs: that there is a chain at all."
    return Table(title="Ring by ring", columns=("", *columns), rows=rows, note=note)
