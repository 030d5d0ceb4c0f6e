"""Processes on the default road, two at a time, each killed after so many steps of its program: a
step is a call of any function, Python's or the database's, in any thread.

``python -m tests.killed_child FOLDER PAIRS``. What a tool has done is a line in ``done``, what a
caller has heard one in ``said``; a kill takes neither back.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from tests.extensions.approval_child import die_after, written
from toolpost import Call, Runtime, tool
from toolpost.approvals import Decision
from toolpost.authoring import FunctionTool
from toolpost.call import OWNER
from toolpost.errors import Conflict
from toolpost.extensions.approval import Approval

CONFIG = "toolpost.toml"
OPENING, STEPS = 35_000, 30_000
"""About as many as it takes to open everything; and then, to see some calls through."""
YES = Decision(approve=True)


def paying(folder: Path) -> FunctionTool:
    @tool(tier=2, effects="once", requires_approval=True, timeout=60)
    async def pay(to: str, call: Call) -> str:
        """Pay somebody."""
        written(folder / "done", f"{to} {call.call_id} {call.grant}")
        return f"paid {to}"

    return pay


async def work(folder: Path, number: int, steps: int) -> None:
    """What others have left, then calls of its own, without end."""
    if number % 4 == 0:
        die_after(steps * OPENING // STEPS)
    async with Runtime.open(folder / CONFIG, tools=[paying(folder)]) as tools:
        await tools.execute("pay", {})  # its chain is made now, of some thousand steps
        desk = tools.extension("approval").approvals
        if number % 4:
            die_after(steps)
        for request in (await desk.all())[-3:]:
            await seen_through(tools, folder, request.exact()["to"], request.handle)
        for turn in itertools.count():
            to = f"{number}-{turn}"
            asked = await tools.execute("pay", {"to": to}, key=to)
            assert asked.error is not None and asked.error.details is not None, asked
            handle = asked.error.details["approval"]
            written(folder / "said", f"asked {handle} {to}")
            await seen_through(tools, folder, to, handle)


async def seen_through(tools: Runtime, folder: Path, to: str, handle: str) -> None:
    approval: Approval = tools.extension("approval")
    with suppress(Conflict):  # the other one was faster
        await approval.approvals.decide(handle, YES, by=OWNER, channel="terminal")
        written(folder / "said", f"approved {handle} {to}")
    if (await tools.execute("pay", {"to": to}, key=to, grant=handle)).success:
        written(folder / "said", f"ran {handle} {to}")


def born(folder: Path, number: int, steps: int) -> int:
    """Forked before there is a loop or a thread: each begins in a few milliseconds."""
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(asyncio.wait_for(work(folder, number, steps), 60))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


async def warmed(folder: Path) -> None:
    """What is loaded and compiled once is so before there are children: it is not their work."""
    folder.mkdir()
    (folder / CONFIG).touch()
    async with Runtime.open(folder / CONFIG, tools=[paying(folder)]) as tools:
        await tools.execute("pay", {"to": "nobody"})


def main(folder: Path, pairs: int) -> None:
    chance = random.Random(7)
    asyncio.run(warmed(folder / "warm"))
    for pair in range(pairs):
        both = [born(folder, 2 * pair + i, chance.randrange(1, STEPS)) for i in range(2)]
        for pid in both:
            _, status = os.waitpid(pid, 0)
            written(folder / "killed", str(os.WTERMSIG(status)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
