"""Ten thousand calls at once on a road with every default ring: 110 get in, the others hear so at
once, nobody is left without a reply or a record, and memory stays where it was.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from toolpost import Runtime, tool
from toolpost.config import GUARDS
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import calls

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240), pytest.mark.verify]
MANY, ADMITTED = 10_000, 110
FENCE = 100
ROUNDS = 3
"""The first fills what is kept of calls in any case: the rest adds nothing to it."""
CONFIG = "[extensions.audit]\npatience = 100\n"
"""On a machine that is busy, intents may have to wait longer than they do by default."""


@tool(tier=2)
async def after() -> None:
    """Come after the flood."""


class Work:
    """A tool that runs until it is let go."""

    def __init__(self, tier: Any, effects: Any) -> None:
        self.begun, self.go = 0, asyncio.Event()

        @tool(tier=tier, effects=effects, timeout=FENCE)
        async def work(number: int) -> int:
            """Work until told to stop."""
            self.begun += 1
            await self.go.wait()
            return number

        self.tool = work


async def flood(tools: Runtime, work: Work) -> Counter[str]:
    """What became of them; nobody is let go before everybody else was refused."""
    work.go.clear()
    codes: Counter[str] = Counter()

    async def one(number: int) -> None:
        result = await tools.execute("work", {"number": number})
        assert result.error is not None or result.output == number
        codes[result.error.code if result.error else "ok"] += 1
        if codes.total() == MANY - ADMITTED:
            assert set(codes) == {"QUEUE_FULL"}
            work.go.set()

    async with asyncio.timeout(FENCE), asyncio.TaskGroup() as group:
        for number in range(MANY):
            group.create_task(one(number))
    return codes


@pytest.mark.req("FM-9")
@pytest.mark.parametrize(("tier", "effects"), [(0, "read"), (2, "once")])
async def test_a_flood_on_the_default_road_admits_110_and_leaves_nothing_behind(
    tmp_path: Path, tier: Any, effects: Any
) -> None:
    work = Work(tier, effects)
    (tmp_path / "toolpost.toml").write_text(CONFIG, encoding="utf-8")
    held = []
    async with Runtime.open(tmp_path / "toolpost.toml", tools=[work.tool, after]) as tools:
        assert tuple(guard.name for guard in tools.executor.guards) == GUARDS
        tracemalloc.start()
        try:
            for _ in range(ROUNDS):
                codes = await flood(tools, work)
                assert codes == {"QUEUE_FULL": MANY - ADMITTED, "ok": ADMITTED}
                # its intent is written after all that waits to be written: that goes, too
                assert (await tools.execute("after")).success
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    assert work.begun == ROUNDS * ADMITTED
    assert held[-1] - held[1] < 256 * 1024, held
    async with Runtime.open(tmp_path / "toolpost.toml") as tools:
        kept = Counter([one.code async for one in calls(lines_of(tools.store))])
    assert kept == {
        "QUEUE_FULL": ROUNDS * (MANY - ADMITTED),
        "OK": ROUNDS * (ADMITTED + 1),
    }
