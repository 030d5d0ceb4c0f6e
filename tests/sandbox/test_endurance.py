"""After hundreds of calls, some of them killed or given up, everything is as it was before."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.processes import Watch, descendants
from tests.sandbox.leftovers import groups_of
from toolpost import incarnation
from toolpost.process import unhurried
from toolpost.sandbox import Confinement, Sandbox

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240), pytest.mark.verify]
MIB = 1024 * 1024
CALLS = 500
AT_ONCE = 4
KILLED_EVERY, GIVEN_UP_EVERY = 40, 41
GROWTH = 8 * MIB


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ours_in(folder: Path) -> set[str]:
    """The folders of this process: others run beside it."""
    found = set()
    for life in folder.glob("toolpost-*/life"):
        with contextlib.suppress(OSError):  # gone meanwhile
            if life.read_text() == incarnation.mine():
                found.add(life.parent.name)
    return found


async def footprint(sandbox: Sandbox) -> Mapping[str, object]:
    """What is held once everything that waits is there."""
    await sandbox.settled()
    gc.collect()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "processes": len(descendants(os.getpid())),
        "groups": len(groups_of(os.getpid())),
        "mounts": Path("/proc/self/mounts").read_text(),
        "temporary": ours_in(Path(tempfile.gettempdir())),
        "threads": len(os.listdir("/proc/self/task")),
    }


async def one(sandbox: Sandbox, confinement: Confinement, number: int) -> str:
    """A call as a backend makes it: some are killed, some are given up while they start."""
    doomed = not number % KILLED_EVERY or not number % GIVEN_UP_EVERY
    argv = ["sleep", "600"] if doomed else ["printf", "%d", str(number)]
    starting = asyncio.ensure_future(sandbox.spawn(argv, confinement))
    if not number % GIVEN_UP_EVERY:
        await asyncio.sleep(0)
        starting.cancel()
        try:
            child = await starting
        except asyncio.CancelledError:
            return "given up"
    else:
        child = await starting
    if doomed:
        await child.kill()
        return "killed"
    ending = await child.ended()
    assert (ending.code, child.stdout and child.stdout.tail) == (0, str(number).encode())
    await unhurried(child.exited)
    return "ended"


async def many(sandbox: Sandbox, confinement: Confinement, numbers: range) -> list[str]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def taken(number: int) -> str:
        async with turn:
            return await one(sandbox, confinement, number)

    return await asyncio.gather(*map(taken, numbers))


@pytest.mark.req("NA-7")
async def test_five_hundred_calls_leave_nothing_behind(tmp_path: Path) -> None:
    confinement = Confinement(write=(str(tmp_path),), memory=64 * MIB)
    async with await Sandbox.open() as sandbox, asyncio.timeout(200):
        await sandbox.warm_up(confinement)
        await many(sandbox, confinement, range(1, 81))
        before, small = await footprint(sandbox), memory()
        ways = await many(sandbox, confinement, range(81, CALLS + 1))
        assert await footprint(sandbox) == before
        assert memory() - small < GROWTH
        assert {way: ways.count(way) > 5 for way in ("ended", "killed", "given up")} == {
            "ended": True,
            "killed": True,
            "given up": True,
        }
        below = descendants(os.getpid())
    with Watch(below) as watch:
        assert watch.living() == set()
    assert groups_of(os.getpid()) == []


async def test_a_sandbox_is_closed_only_when_what_had_ended_is_cleared_away() -> None:
    async with await Sandbox.open() as sandbox, asyncio.timeout(60):
        await sandbox.warm_up(Confinement())
        children = [await sandbox.spawn(["true"], Confinement()) for _ in range(4)]
        for child in children:
            await child.ended()
    assert all(child.exited.done() for child in children)
    assert groups_of(os.getpid()) == []
