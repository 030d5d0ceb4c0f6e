"""Calls without end of a tool that takes ten at once and lets a hundred wait: attack 8, over HTTP.
``python -m tests.gateway.flooding 10000`` does what the suite does with fewer.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from tests.gateway.program import CONFIG, Program, program
from tests.gateway.soaking import memory_of

ADMITTED = 110
AUTH = """
[gateway.auth]
keys = true
"""


class Told(NamedTuple):
    """How many had which answer, how many seconds it took, and megabytes at the end."""

    codes: Counter[str]
    seconds: float
    memory: float


async def flooded(served: Program, many: int) -> Told:
    """All at once. Those who are let in wait until all others have been refused."""
    agent, codes, began = await served.key("flood"), Counter[str](), monotonic()
    go = served.folder / "go"

    async def one(number: int) -> None:
        answer = await served.call("held", {"number": number}, agent)
        if answer.status == 200:
            assert answer.data["output"] == number
        codes[answer.data.get("code", "ok")] += 1
        if codes.total() == many - ADMITTED:
            assert set(codes) == {"QUEUE_FULL"}
            go.touch()

    async with asyncio.timeout(60 + many / 50), asyncio.TaskGroup() as group:
        for number in range(many):
            group.create_task(one(number))
    go.unlink()
    return Told(codes, monotonic() - began, memory_of(served.child.pid))


async def _main(many: int) -> None:
    room = {"connections": many + 100, "half_open": many, "calls_each": many}
    with tempfile.TemporaryDirectory() as place:
        async with program(Path(place), config=CONFIG + AUTH, access_log=False, **room) as served:
            print(f"before: {memory_of(served.child.pid):.0f} MB")
            for _ in range(3):
                told = await flooded(served, many)
                print(f"{dict(told.codes)} in {told.seconds:.1f} s; {told.memory:.0f} MB")


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
