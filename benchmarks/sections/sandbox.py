"""What confinement costs: the same program plain, in a sandbox that waits, and in one made for it.

All three run in every round. What is waited for is the program's own end; that all of it is cleared
away afterwards is nobody's to wait for.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from time import perf_counter

from benchmarks.report import Cell, Outcome, Table, Target, at_most, broken, times
from benchmarks.rounds import Effort, Series
from toolpost.errors import SetupError
from toolpost.sandbox import Confinement, Sandbox

NAME = "sandbox"
TITLE = "A confined program"

PROGRAM = ["/usr/bin/true"]
PLAIN = "plain: `subprocess.run`"
STARTED = "warm sandbox, until the program runs"
WARM = "warm sandbox, until it has ended"
COLD = "cold sandbox, until it has ended"
WARM_CLAIM = "a warm sandbox hands over: p50 ≤ 1 ms until the program runs"
COLD_CLAIM = "a cold sandbox: ≤ 10 ms over a plain spawn"


def measure(effort: Effort) -> Outcome:
    try:
        found, level = asyncio.run(_measured(effort))
    except SetupError as fault:
        table = Table(title=str(fault), columns=("",), rows=[])
        return Outcome(tables=[table], targets=[broken("3", WARM_CLAIM), broken("3", COLD_CLAIM)])
    plain = found[PLAIN]
    rows: list[list[Cell]] = [
        [label, one.median * 1e3, one.best * 1e3, times(one.ratio(plain))]
        for label, one in found.items()
    ]
    title = f"`true`, at level {level}"
    columns = ("", "median ms", "best ms", "× plain")
    table = Table(title=title, columns=columns, rows=rows)
    return Outcome(tables=[table], targets=_targets(found))


def _targets(found: dict[str, Series]) -> list[Target]:
    warm = found[STARTED].median * 1e3
    cold = found[COLD].above(found[PLAIN]) * 1e3
    return [
        at_most("3", WARM_CLAIM, measured=warm, limit=1, unit="ms"),
        at_most("3", COLD_CLAIM, measured=cold, limit=10, unit="ms"),
    ]


async def _measured(effort: Effort) -> tuple[dict[str, Series], str]:
    found = {label: Series() for label in (PLAIN, STARTED, WARM, COLD)}
    with tempfile.TemporaryDirectory() as folder:
        async with await Sandbox.open() as sandbox:
            for number in range(2 * effort.rounds):
                found[PLAIN].rounds.append(_plain())
                # a memory bound of its own, so that no sandbox is there that fits
                once = Confinement(write=(folder,), memory=2**28 + 4096 * number)
                found[COLD].rounds.append((await _confined(sandbox, once))[1])
                await sandbox.settled()
                kept = Confinement(write=(folder,), memory=2**28)
                await sandbox.warm_up(kept)
                started, ended = await _confined(sandbox, kept)
                found[STARTED].rounds.append(started)
                found[WARM].rounds.append(ended)
                await sandbox.settled()
            return found, sandbox.level


def _plain() -> float:
    began = perf_counter()
    subprocess.run(PROGRAM, check=True)
    return perf_counter() - began


async def _confined(sandbox: Sandbox, confinement: Confinement) -> tuple[float, float]:
    began = perf_counter()
    child = await sandbox.spawn(PROGRAM, confinement)
    started = perf_counter() - began
    ending = await child.ended()
    ended = perf_counter() - began
    assert ending.code == 0
    await child.wait()
    return started, ended
