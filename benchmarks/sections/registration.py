"""Registering many tools: the time, the memory of each, and a call by name among them.

Every figure comes from a fresh process (this module, run with a contender and a number of tools).
The functions exist before the clock starts and before memory is looked at; from data, the clock
starts with the JSON text and the memory is all that is kept of it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.cases import SEARCH
from benchmarks.children import ChildFailed, figures, resident_kib
from benchmarks.contender import Contender, load
from benchmarks.report import Cell, Outcome, Table, Target, at_most, broken, figure, times
from benchmarks.rounds import FULL, QUICK, Effort, Series, interleave

NAME = "registration"
TITLE = "Many tools"

FEW, MANY = FULL.sizes[0], FULL.sizes[-1]
CHILD_SECONDS = 100
FLAT = 1.3  # "flat": two dicts in one process, noise included
OURS = {"ToolpostData": "toolpost_data", "ToolpostExecutor": "toolpost_executor"}
PEERS = {
    "ToolRegistryInvoke": "toolregistry",
    "PydanticAI": "pydantic_ai",
    "McpServer": "mcp_sdk",
    "OpenAIAgents": "openai_agents",
    "LangChain": "langchain_core",
    "FastMCPServer": "fastmcp",
}
LABELS = {"ToolpostData": "**toolpost**, from JSON data", "ToolpostExecutor": "**toolpost**"}


@dataclass(frozen=True, slots=True)
class Found:
    """What one contender's processes reported, by number of tools; or why they did not."""

    reports: dict[int, list[dict[str, Any]]]
    faults: list[str]

    def median(self, count: int, figure: str) -> float | None:
        reports = self.reports.get(count)
        return Series([report[figure] for report in reports]).median if reports else None


def measure(effort: Effort) -> Outcome:
    found = {name: Found({}, []) for name in (*OURS, *PEERS)}
    for count in FULL.sizes:
        for name in found:
            if name in OURS or count in effort.sizes:
                _run(name, count, found=found[name], repeats=_repeats(name, count, effort))
    largest = effort.sizes[-1]
    return Outcome(tables=[_table(found)], targets=_targets(found, largest))


def _repeats(name: str, count: int, effort: Effort) -> int:
    """Ours runs often; peers that take a minute for 10,000 tools do that once."""
    if effort is QUICK:
        return 1
    if name in OURS:
        return 3
    return 2 if FEW < count < MANY else 1


def _run(name: str, count: int, *, found: Found, repeats: int) -> None:
    for _ in range(repeats):
        if found.faults:
            return
        try:
            report = figures("-m", __name__, name, str(count), seconds=CHILD_SECONDS)
        except ChildFailed as failed:
            found.faults.append(f"{count:,} tools: {failed}")
        else:
            found.reports.setdefault(count, []).append(report)


def _table(found: dict[str, Found]) -> Table:
    columns = [f"{count:,}: s" for count in FULL.sizes]
    columns += ["KiB a tool", "call among few, µs", "among many, µs", "many / few"]
    rows: list[list[Cell]] = []
    for name, one in found.items():
        label = LABELS.get(name) or name
        if not one.reports:
            rows.append([label, f"not available: {one.faults[0]}", *[None] * (len(columns) - 1)])
            continue
        largest = max(one.reports)
        row: list[Cell] = [one.reports[largest][0]["label"] if name in PEERS else label]
        row += [one.median(count, "seconds") for count in FULL.sizes]
        row += [one.median(largest, each) for each in ("kib", "few", "many")]
        row.append(times(one.median(largest, "ratio")))
        rows.append(row)
    faults = "; ".join(f"{name}, {why}" for name, one in found.items() for why in one.faults)
    return Table(
        title="Registering functions of three parameters, and one call by name among them",
        columns=("", *columns),
        rows=rows,
        note=f"Memory and calls at the largest size that was run. {faults}".strip(),
    )


def _targets(found: dict[str, Found], common: int) -> list[Target]:
    data, functions = found["ToolpostData"], found["ToolpostExecutor"]
    return [
        _limit(f"{MANY:,} tools from data: ≤ 0.5 s", data, "seconds", (0.5, "s")),
        _fastest(functions, found, common),
        _limit("a tool from data, before its first use: ≤ 4 KiB", data, "kib", (4, "KiB")),
        _limit("a tool from a function, the same", functions, "kib", (4, "KiB")),
        _limit(
            f"a call among {MANY:,} tools costs what it does among {FEW} (≤ {FLAT} ×)",
            functions,
            "ratio",
            (FLAT, "×"),
        ),
    ]


def _limit(claim: str, found: Found, what: str, limit: tuple[float, str]) -> Target:
    measured = found.median(MANY, what)
    if measured is None:
        return broken("6", claim)
    return at_most("6", claim, measured=measured, limit=limit[0], unit=limit[1])


def _fastest(ours: Found, found: dict[str, Found], count: int) -> Target:
    claim = f"{count:,} tools from functions: faster than the fastest peer"
    seconds = ours.median(count, "seconds")
    if seconds is None:
        return broken("6", claim)
    peers = {name: found[name].median(count, "seconds") for name in PEERS}
    known = {name: theirs for name, theirs in peers.items() if theirs is not None}
    if not known:
        return Target(number="6", claim=claim, measured="–", met=None)
    nearest = min(known, key=lambda name: known[name])
    label = found[nearest].reports[count][0]["label"]
    measured = f"the fastest, {label}, takes {figure(known[nearest] / seconds)} × as long"
    return Target(number="6", claim=claim, measured=measured, met=seconds < known[nearest])


async def child(name: str, count: int) -> dict[str, Any]:
    """Run in a fresh process: register so many tools and call the last of them."""
    field = load(((OURS | PEERS)[name],))
    if name not in field.contenders:
        raise SystemExit("; ".join(field.missing.values()))
    kind = field.contenders[name]
    few = await _registered(kind, FEW)  # warms whatever is made once, before anything is counted
    given = kind.prepare(count)
    gc.collect()
    before = resident_kib()
    many, began = kind(), time.perf_counter()
    many.register(given)
    seconds = time.perf_counter() - began
    gc.collect()
    kib = (resident_kib() - before) / count
    await many.open()
    report = {"label": kind.label, "seconds": seconds, "kib": max(kib, 0.0)}
    return report | await _among(few, many, count)


async def _registered(kind: type[Contender], count: int) -> Contender:
    contender = kind()
    contender.register(kind.prepare(count))
    await contender.open()
    return contender


async def _among(few: Contender, many: Contender, count: int) -> dict[str, float]:
    calls = {
        "few": few.bind(f"search_{FEW - 1}", SEARCH),
        "many": many.bind(f"search_{count - 1}", SEARCH),
    }
    for contender, call in zip((few, many), calls.values(), strict=True):
        answer = contender.value(await call())
        if answer != {"query": "x"} and answer != "{'query': 'x'}":
            raise ValueError(f"answered {answer!r}")
    series = await interleave(calls, QUICK)
    await many.close()
    await few.close()
    found = {name: one.median * 1e6 for name, one in series.items()}
    return found | {"ratio": series["many"].ratio(series["few"])}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(child(sys.argv[1], int(sys.argv[2])))))
