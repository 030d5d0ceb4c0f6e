"""What confinement costs: the same program plain, in a sandbox that waits, and in one made for it.

All of them run in every round (a cold one in every fourth), one call at a time, each right after a
sandbox was made, so that all find the machine in the same state, and with everything there that is
started ahead. What is timed is a whole call: from the order to start the program until its end was
heard and what it wrote was read. That all of it is cleared away afterwards is nobody's to wait for.
`true` does nothing; the rows of `printf` are a program that writes something, without toolpost and
as a shell tool; a Python tool is called in the sandbox that it stays in.

A warm call has a millisecond. For a program most of that is the program's own start, which belongs
to the machine, so it is also held against that: 1 ms where a plain start takes 0.76 ms.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from time import perf_counter
from typing import Any

from benchmarks.cases import add_sync
from benchmarks.report import Cell, Outcome, Table, Target, at_most, broken, times
from benchmarks.rounds import Effort, Series
from toolpost import Executor, Registry, ToolSpec, tool
from toolpost.errors import SetupError
from toolpost.plugins import SharedSandbox
from toolpost.sandbox import Confinement, Sandbox
from toolpost.spec import Limits

NAME = "sandbox"
TITLE = "A confined program"

NOTHING = ["/usr/bin/true"]
SAY = ["/usr/bin/printf", "word"]
WRITTEN = "word"
PLAIN = "`true`, plain: `subprocess.run`"
STARTED = "`true`, warm sandbox, until it runs"
WARM = "`true`, warm sandbox, the whole call"
COLD = "`true`, cold sandbox, the whole call"
PLAIN_SAY = "`printf`, plain: `subprocess.run`, output captured"
TOOL = "`printf`, warm sandbox, a shell tool by `Executor.execute`"
FUNCTION = "`add`, a Python tool in its sandbox by `Executor.execute`"
PLAIN_MS, WARM_MS = 0.76, 1.0
FUNCTION_CLAIM = "a call of a Python tool on a warm sandbox: p50 ≤ 1 ms"
STARTED_CLAIM = "`true` on a warm sandbox, from the order until it runs: p50 ≤ 1 ms"
WARM_CLAIM = "`true` on a warm sandbox, from the order to its end heard: p50 ≤ 1 ms"
RATIO_CLAIM = (
    "the same, held against this machine: p50 ≤ "
    f"{WARM_MS / PLAIN_MS:.2f} × a plain spawn ({WARM_MS:g} ms where that takes {PLAIN_MS:g})"
)
COLD_CLAIM = "a call on a cold sandbox: ≤ 10 ms over a plain spawn"
CALLS_A_ROUND = 8
COLD_EVERY = 4
MEMORY = 2**28


def measure(effort: Effort) -> Outcome:
    try:
        found, level = asyncio.run(_measured(effort.rounds * CALLS_A_ROUND))
    except SetupError as fault:
        table = Table(title=str(fault), columns=("",), rows=[])
        claims = (FUNCTION_CLAIM, STARTED_CLAIM, WARM_CLAIM, RATIO_CLAIM, COLD_CLAIM)
        return Outcome(tables=[table], targets=[broken("3", claim) for claim in claims])
    plain = {label: found[PLAIN_SAY if label in (PLAIN_SAY, TOOL) else PLAIN] for label in found}
    rows: list[list[Cell]] = [
        [label, one.median * 1e3, one.best * 1e3, times(one.median / plain[label].median)]
        for label, one in found.items()
    ]
    columns = ("", "median ms", "best ms", "× plain")
    calls, cold = len(found[PLAIN].rounds), len(found[COLD].rounds)
    note = f"{calls} calls of each, {cold} of the cold sandbox."
    table = Table(title=f"At level {level}", columns=columns, rows=rows, note=note)
    return Outcome(tables=[table], targets=_targets(found))


def _targets(found: dict[str, Series]) -> list[Target]:
    function = found[FUNCTION].median * 1e3
    started = found[STARTED].median * 1e3
    warm = found[WARM].median * 1e3
    ratio = found[WARM].median / found[PLAIN].median
    cold = (found[COLD].median - found[PLAIN].median) * 1e3
    return [
        at_most("3", FUNCTION_CLAIM, measured=function, limit=1, unit="ms"),
        at_most("3", STARTED_CLAIM, measured=started, limit=WARM_MS, unit="ms"),
        at_most("3", WARM_CLAIM, measured=warm, limit=WARM_MS, unit="ms"),
        at_most("3", RATIO_CLAIM, measured=ratio, limit=WARM_MS / PLAIN_MS, unit="×"),
        at_most("3", COLD_CLAIM, measured=cold, limit=10, unit="ms"),
    ]


async def _measured(calls: int) -> tuple[dict[str, Series], str]:
    found = {label: Series() for label in (PLAIN, STARTED, WARM, COLD, PLAIN_SAY, TOOL, FUNCTION)}
    shared = SharedSandbox()
    with tempfile.TemporaryDirectory() as folder:
        executor = _executor(folder, shared)
        sandbox: Sandbox = await shared()  # type: ignore[assignment]
        kept = Confinement(write=(folder,), memory=MEMORY, tier=2)
        try:
            await _called(executor, "add", {"a": 1, "b": 2}, 3)  # its sandbox is there from now on
            for number in range(calls):
                await _made(sandbox, kept)
                found[PLAIN].rounds.append(_plain(NOTHING, ""))
                await _made(sandbox, kept)
                found[PLAIN_SAY].rounds.append(_plain(SAY, WRITTEN))
                await _made(sandbox, kept)
                if number % COLD_EVERY == 0:
                    # a memory bound of its own, so that no sandbox is there that fits
                    once = Confinement(write=(folder,), memory=MEMORY + 4096 * (number + 1))
                    found[COLD].rounds.append((await _confined(sandbox, once))[1])
                    await _made(sandbox, kept)
                started, ended = await _confined(sandbox, kept)
                found[STARTED].rounds.append(started)
                found[WARM].rounds.append(ended)
                await sandbox.warm_up(kept)  # the last one was used: this makes another
                found[TOOL].rounds.append(await _called(executor, "say", {}, WRITTEN))
                await sandbox.warm_up(kept)
                found[FUNCTION].rounds.append(await _called(executor, "add", {"a": 1, "b": 2}, 3))
            return found, sandbox.level
        finally:
            await executor.close()
            await shared.close()


async def _made(sandbox: Sandbox, kept: Confinement) -> None:
    """One is used up, another made."""
    await _confined(sandbox, kept)
    await sandbox.warm_up(kept)


def _executor(folder: str, shared: SharedSandbox) -> Executor:
    spec = ToolSpec(
        name="say",
        description="Say a word.",
        kind="shell",
        tier=2,
        input_schema={"type": "object", "properties": {}, "additionalProperties": False},
        limits=Limits(memory=MEMORY),
        binding={"command": SAY, "write": [folder]},
    )
    settings = {"shell": {"programs": [SAY[0]]}}
    confined = tool(tier=0, effects="read", name="add", isolation="sandbox")(add_sync)
    return Executor(Registry([spec, confined]), settings=settings, provide={SharedSandbox: shared})


def _plain(argv: list[str], expected: str) -> float:
    heard = subprocess.PIPE if expected else None
    began = perf_counter()
    done = subprocess.run(argv, check=True, stdout=heard)
    spent = perf_counter() - began
    assert (done.stdout or b"").decode() == expected
    return spent


async def _confined(sandbox: Sandbox, confinement: Confinement) -> tuple[float, float]:
    began = perf_counter()
    child = await sandbox.spawn(NOTHING, confinement)
    started = perf_counter() - began
    ending = await child.ended()
    ended = perf_counter() - began
    assert ending.code == 0
    assert child.stdout is not None
    assert child.stdout.tail == b""
    await child.wait()
    return started, ended


async def _called(executor: Executor, name: str, arguments: dict[str, Any], expected: Any) -> float:
    began = perf_counter()
    result = await executor.execute(name, arguments)
    spent = perf_counter() - began
    assert result.output == expected, result
    return spent
