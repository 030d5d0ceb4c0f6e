"""Many calls under way at once: what one call costs above the bare function in the same crowd.

One call at a time is awaited where it stands; a crowd is gathered, each call in a task of its own.
The bare function goes through the same, so what is left is what the contender adds.
"""

from __future__ import annotations

import asyncio
import gc
import time

from benchmarks.contender import Call, Field, load, ready
from benchmarks.report import Cell, Outcome, Table, Target, broken, figure
from benchmarks.rounds import Effort, Series, settle, turn

NAME = "concurrency"
TITLE = "Many calls at once"

CROWDS = (1, 100, 1_000)
ALONE = 100  # calls in a wave of one at a time, so that the clock is not read for each
MODULES = (
    "bare",
    "limit",
    "toolpost_executor",
    "toolpost_runtime",
    "mcp_sdk",
    "pydantic_ai",
    "fastmcp",
)
TOOLS = {"add": "`add`: never suspends", "sleep0": "`sleep0`: suspends once"}
NOT_HERE = {"FusedStamped", "FastMCPMiddleware"}
STAYS = 1.5  # "stays what it is": caches are colder in a crowd, nothing else may grow

Found = dict[str, dict[int, Series]]  # contender → crowd → seconds a call


def measure(effort: Effort) -> Outcome:
    field = load(MODULES)
    tables: list[Table] = []
    targets: list[Target] = []
    for tool in TOOLS:
        found, faults = asyncio.run(_in_crowds(field, tool, effort))
        tables.append(_table(tool, found, field, faults))
        targets.append(_target(tool, found))
    return Outcome(tables=tables, targets=targets)


async def _in_crowds(field: Field, tool: str, effort: Effort) -> tuple[Found, dict[str, str]]:
    kinds = [kind for name, kind in field.contenders.items() if name not in NOT_HERE]
    async with ready(kinds, tool) as entry:
        found: Found = {name: {crowd: Series() for crowd in CROWDS} for name in entry.calls}
        for call in entry.calls.values():
            await _wave(call, CROWDS[-1])
        settle()
        for number in range(effort.rounds):
            for crowd in CROWDS:
                for name in turn(tuple(entry.calls), number):
                    seconds = await _seconds_a_call(entry.calls[name], crowd, effort.slice_seconds)
                    found[name][crowd].rounds.append(seconds)
    return found, entry.faults


async def _seconds_a_call(call: Call, crowd: int, slice_seconds: float) -> float:
    """Whole waves until the slice is over; a slow contender may need longer for its first."""
    gc.collect()  # every sample starts from the same state: a crowd makes garbage for the next
    waves, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < slice_seconds:
        await _wave(call, crowd)
        waves += 1
    return spent / (waves * max(crowd, ALONE))


async def _wave(call: Call, crowd: int) -> None:
    if crowd > 1:
        await asyncio.gather(*[call() for _ in range(crowd)])
        return
    for _ in range(ALONE):
        await call()


def _table(tool: str, found: Found, field: Field, faults: dict[str, str]) -> Table:
    rows: list[list[Cell]] = []
    for name, crowds in sorted(found.items(), key=lambda pair: pair[1][100].median):
        row: list[Cell] = [field.contenders[name].label]
        for crowd in CROWDS:
            row.append(crowds[crowd].median * 1e6)
            row.append(None if name == "Bare" else crowds[crowd].above(found["Bare"][crowd]) * 1e6)
        rows.append(row)
    absent = {field.contenders[name].label: reason for name, reason in faults.items()}
    for label, reason in {**absent, **field.missing}.items():
        rows.append([label, f"not available: {reason}", *[None] * 5])
    columns = [f"{crowd:,} at once, µs a call" for crowd in CROWDS]
    return Table(
        title=TOOLS[tool],
        columns=("", *(part for column in columns for part in (column, "above bare"))),
        rows=rows,
    )


def _target(tool: str, found: Found) -> Target:
    claim = (
        f"1,000 calls at once, {TOOLS[tool]}: the overhead of a call stays what it is at one "
        f"(≤ {STAYS} ×)"
    )
    if "ToolpostExecutor" not in found:
        return broken("–", claim)
    alone, crowded = _overhead(found, "ToolpostExecutor")
    limit_alone, limit_crowded = _overhead(found, "Fused")
    measured = (
        f"{figure(crowded / alone)} × ({figure(alone * 1e6)} → {figure(crowded * 1e6)} µs); "
        f"the limit's own grows {figure(limit_crowded / limit_alone)} ×"
    )
    return Target(number="–", claim=claim, measured=measured, met=crowded / alone <= STAYS)


def _overhead(found: Found, name: str) -> tuple[float, float]:
    """What a call costs above the bare function, alone and in the largest crowd."""
    alone, crowded = (
        found[name][crowd].above(found["Bare"][crowd]) for crowd in (CROWDS[0], CROWDS[-1])
    )
    return alone, crowded
