"""Slots: ten at once, a hundred in the queue, the rest refused at once, and no slot ever lost."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolpost import (
    Call,
    Caller,
    ConfigError,
    Executor,
    Limits,
    Registry,
    Result,
    Runtime,
    ToolFailed,
    tool,
)
from toolpost.authoring import FunctionTool
from toolpost.clock import SystemClock
from toolpost.contracts import Surroundings, Walk
from toolpost.extensions.slots import Share, Slots
from toolpost.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio
LIMIT = 30.0


class Work:
    """A tool that runs until it is let go, and remembers in which order its calls began."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.most = self.running = 0
        self.go = asyncio.Event()

    def tool(self, name: str = "work", **spec: Any) -> FunctionTool:
        @tool(name=name, effects="read", timeout=60, **spec)
        async def work(number: int) -> int:
            """Work until told to stop."""
            self.begun.append(number)
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await self.go.wait()
            finally:
                self.running -= 1
            return number

        return work


def surroundings() -> Surroundings:
    store = MemoryStore()
    return Surroundings(
        records=store,
        journal=store,
        clock=SystemClock(),
        base=Path(),
        state=Path(),
        mode="standard",
        secret=lambda name: None,
    )


async def until(condition: Any) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0)


def started(executor: Executor, which: Any, name: str = "work", **more: Any) -> list[Any]:
    return [asyncio.ensure_future(executor.execute(name, {"number": n}, **more)) for n in which]


def numbers(slots: Slots) -> dict[str, dict[str, float]]:
    return {metric: values for metric, (_, values) in slots.gauges().items()}


def totals(slots: Slots, name: str = "work") -> tuple[float, float]:
    gauges = numbers(slots)
    return gauges["slots_running"].get(name, -1), gauges["slots_waiting"].get(name, -1)


@pytest.mark.req("FM-9")
async def test_ten_calls_run_a_hundred_wait_and_the_111th_is_refused_at_once() -> None:
    work, slots = Work(), Slots()
    async with Executor(Registry([work.tool()]), guards=[slots]) as executor:
        calls = started(executor, range(110))
        await until(lambda: totals(slots) == (10, 100))
        refused = await asyncio.wait_for(executor.execute("work", {"number": 110}), LIMIT)
        assert refused.error is not None
        assert refused.error.code == "QUEUE_FULL"
        assert refused.error.message == (
            "work is busy: 10 calls are running and 100 are waiting. Try again later."
        )
        assert (refused.error.retryable, refused.error.effects) == (True, "none")
        work.go.set()
        results = await asyncio.gather(*calls)
    assert [r.output for r in results] == list(range(110))
    assert work.most == 10
    assert 110 not in work.begun


@pytest.mark.req("FM-9")
async def test_a_flood_of_ten_thousand_calls_admits_110_and_loses_no_reply() -> None:
    work, slots = Work(), Slots()
    async with Executor(Registry([work.tool()]), guards=[slots]) as executor:
        codes: Counter[str] = Counter()

        async def one(number: int) -> None:
            result = await executor.execute("work", {"number": number})
            codes[result.error.code if result.error else "ok"] += 1

        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
            for number in range(10_000):
                group.create_task(one(number))
            await until(lambda: codes.total() == 9_890)
            assert codes == {"QUEUE_FULL": 9_890}
            assert totals(slots) == (10, 100)
            work.go.set()
        assert totals(slots) == (0, 0)
    assert codes == {"QUEUE_FULL": 9_890, "ok": 110}
    assert work.begun == list(range(110))


@pytest.mark.req("FM-9")
async def test_a_flood_leaves_no_memory_behind() -> None:
    work, slots = Work(), Slots()
    async with Executor(Registry([work.tool()]), guards=[slots]) as executor:
        calls = started(executor, range(110))
        await until(lambda: totals(slots) == (10, 100))

        async def flood(times: int) -> None:
            for _ in range(times):
                assert not (await executor.execute("work", {"number": 0})).success

        await flood(500)
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        await flood(3_000)
        gc.collect()
        after, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        work.go.set()
        await asyncio.gather(*calls)
    assert after - before < 64 * 1024
    assert peak - before < 4 * 1024 * 1024


async def test_who_came_first_is_served_first() -> None:
    work, slots = Work(), Slots()
    one = work.tool(limits=Limits(concurrency=1, queue=20))
    async with Executor(Registry([one]), guards=[slots]) as executor:
        calls = started(executor, range(20))
        await until(lambda: totals(slots) == (1, 19))
        work.go.set()
        await asyncio.gather(*calls)
    assert work.begun == list(range(20))
    assert work.most == 1


async def test_callers_take_turns_in_the_queue_and_who_has_many_waits_for_himself() -> None:
    work, slots = Work(), Slots()
    one = work.tool(limits=Limits(concurrency=1, queue=20))
    async with Executor(Registry([one]), guards=[slots]) as executor:
        noisy, other, gone = (Caller(name) for name in ("noisy", "other", "gone"))
        calls = started(executor, range(6), caller=noisy)
        calls += started(executor, (10, 11), caller=other)
        calls += started(executor, (20,), caller=gone)
        await until(lambda: totals(slots) == (1, 8))
        calls.pop().cancel()
        await until(lambda: totals(slots) == (1, 7))
        work.go.set()
        await asyncio.gather(*calls)
        assert totals(slots) == (0, 0)
    assert work.begun == [0, 1, 10, 2, 11, 3, 4, 5]


async def test_nobody_waits_beyond_his_deadline() -> None:
    work, slots = Work(), Slots()
    one = work.tool(limits=Limits(concurrency=1))
    async with Executor(Registry([one]), guards=[slots]) as executor:
        (first,) = started(executor, [0])
        await until(lambda: totals(slots) == (1, 0))
        late = await asyncio.wait_for(executor.execute("work", {"number": 1}, timeout=0.02), LIMIT)
        already = await asyncio.wait_for(executor.execute("work", {"number": 1}, timeout=-1), LIMIT)
        assert totals(slots) == (1, 0)
        work.go.set()
        assert (await first).success
        assert (await executor.execute("work", {"number": 2}, timeout=30)).success
        work.go.clear()
        calls = started(executor, [3, 4], timeout=float("inf"))
        await until(lambda: totals(slots) == (1, 1))
        work.go.set()
        assert all(r.success for r in await asyncio.gather(*calls))
    for result in (late, already):
        assert result.error is not None
        assert (result.error.code, result.error.effects) == ("TIMEOUT", "none")
        assert result.error.remedy == "wait"
        assert "work is busy" in result.error.message
    assert work.begun == [0, 2, 3, 4]


async def test_who_is_refused_is_told_when_to_come_again_by_how_fast_the_queue_moves() -> None:
    work, slots = Work(), Slots()
    one = work.tool(limits=Limits(concurrency=1, queue=20))

    async def refused() -> float | None:
        calls = started(executor, range(21))
        await until(lambda: totals(slots) == (1, 20))
        result = await executor.execute("work", {"number": 21})
        assert result.error is not None and result.error.code == "QUEUE_FULL"
        work.go.set()
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*calls)
        work.go.clear()
        return result.error.retry_after

    async with Executor(Registry([one]), guards=[slots]) as executor:
        assert await refused() == 1.0  # nothing is known yet
        after = await refused()
        assert after is not None and 0.05 <= after < 1.0


async def test_a_queue_of_none_refuses_whatever_does_not_run_at_once() -> None:
    work, slots = Work(), Slots()
    one = work.tool(limits=Limits(concurrency=1, queue=0))
    async with Executor(Registry([one]), guards=[slots]) as executor:
        (first,) = started(executor, [0])
        await until(lambda: totals(slots) == (1, 0))
        refused = await executor.execute("work", {"number": 1})
        work.go.set()
        await first
    assert refused.error is not None
    assert refused.error.code == "QUEUE_FULL"


@pytest.mark.parametrize("groups", [{}, {"work": Share(concurrency=1, queue=0)}])
async def test_a_dry_run_takes_no_slot_and_is_not_refused_when_the_queue_is_full(
    groups: dict[str, Share],
) -> None:
    work, slots = Work(), Slots(groups=groups)
    limits = Limits(concurrency=1, queue=0)
    async with Executor(Registry([work.tool(limits=limits)]), guards=[slots]) as executor:
        calls = started(executor, [0])
        await until(lambda: work.begun == [0])
        async with asyncio.timeout(LIMIT):
            planned = await executor.execute("work", {"number": 1}, dry_run=True)
        assert planned.metadata.plan is not None and totals(slots) == (1, 0)
        assert [*planned.metadata.trail] == ["slots"]
        work.go.set()
        await asyncio.gather(*calls)
    assert work.begun == [0]


async def test_calls_cancelled_in_the_queue_or_while_running_lose_no_slot() -> None:
    work, slots = Work(), Slots()
    two = work.tool(limits=Limits(concurrency=2, queue=50))
    async with Executor(Registry([two]), guards=[slots]) as executor:
        calls = started(executor, range(20))
        await until(lambda: totals(slots) == (2, 18))
        for number in (0, 2, 3, 7, 19):  # 0 runs, the others wait
            calls[number].cancel()
        await until(lambda: sum(map(asyncio.Future.done, calls)) == 5)
        assert totals(slots) == (2, 13)
        work.go.set()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert totals(slots) == (0, 0)
    assert [n for n, d in enumerate(done) if isinstance(d, BaseException)] == [0, 2, 3, 7, 19]
    assert work.begun == [0, 1, *(n for n in range(20) if n not in (0, 1, 2, 3, 7, 19))]


async def test_a_slot_that_arrives_together_with_a_cancellation_goes_to_the_next() -> None:
    slots, go = Slots(), asyncio.Event()

    @tool(effects="read", limits=Limits(concurrency=1))
    async def work(number: int) -> int:
        """Work until told to stop."""
        await go.wait()
        return number

    async def meddles(call: Call, call_next: Walk) -> Result:
        result = await call_next(call)
        if call.arguments["number"] == 0:
            second.cancel()  # in the very step in which it was given the slot
        return result

    async with Executor(Registry([work]), guards=[meddles, slots]) as executor:
        _, second, third = started(executor, range(3))
        await until(lambda: totals(slots) == (1, 2))
        go.set()
        assert (await asyncio.wait_for(third, LIMIT)).output == 2
        with pytest.raises(asyncio.CancelledError):
            await second
        assert totals(slots) == (0, 0)


async def test_every_slot_comes_back_whatever_happens_to_the_calls() -> None:
    slots = Slots()

    @tool(effects="read", limits=Limits(concurrency=3, queue=1000))
    async def work(number: int) -> int:
        """Work a little, fail at times."""
        for _ in range(number % 4):
            await asyncio.sleep(0)
        if number % 5 == 0:
            raise ToolFailed("no")
        return number

    async with Executor(Registry([work]), guards=[slots]) as executor:
        calls = started(executor, range(1, 400))
        for step in range(1, 399):
            await asyncio.sleep(0)
            if step % 3 == 0:
                calls[-step].cancel()
            if step % 7 == 0:
                calls[step].cancel()
        async with asyncio.timeout(LIMIT):
            done = await asyncio.gather(*calls, return_exceptions=True)
        assert totals(slots) == (0, 0)
    kept = [(n, d) for n, d in enumerate(done, start=1) if isinstance(d, Result)]
    assert len(kept) > 100
    assert all(r.output == n or (n % 5 == 0 and not r.success) for n, r in kept)


async def test_tools_of_a_group_share_its_slots() -> None:
    work = Work()
    slots = Slots(groups={"tag:database": Share(concurrency=2, queue=3)})
    tools = [work.tool(name, tags=("database",)) for name in ("read", "count")]
    free = work.tool("free")
    async with Executor(Registry([*tools, free]), guards=[slots]) as executor:
        calls = started(executor, range(3), "read") + started(executor, range(3, 5), "count")
        await until(lambda: numbers(slots)["group_slots_waiting"]["tag:database"] == 3)
        assert numbers(slots)["group_slots_running"] == {"tag:database": 2}
        refused = await executor.execute("count", {"number": 9})
        assert refused.error is not None
        assert refused.error.message.startswith("The group tag:database is busy: 2 calls ")
        assert totals(slots, "count") == (2, 0)  # the one that was refused has left its own too
        calls += started(executor, [100], "free")
        await until(lambda: 100 in work.begun)
        work.go.set()
        assert all(r.success for r in await asyncio.gather(*calls))
        assert numbers(slots)["group_slots_running"] == {"tag:database": 0}
        assert numbers(slots)["slots_running"] == {"read": 0, "count": 0, "free": 0}


async def test_a_reloaded_tool_keeps_count_of_the_calls_that_are_inside() -> None:
    work, slots = Work(), Slots()
    registry = Registry([work.tool(limits=Limits(concurrency=2))])
    async with Executor(registry, guards=[slots]) as executor:
        calls = started(executor, range(4))
        await until(lambda: totals(slots) == (2, 2))
        registry.replace(work.tool(limits=Limits(concurrency=1)))
        calls += started(executor, [4])
        await until(lambda: totals(slots) == (2, 3))
        registry.replace(work.tool(limits=Limits(concurrency=4)))
        calls += started(executor, [5])
        await until(lambda: totals(slots) == (4, 2))
        registry.replace(work.tool(limits=Limits(concurrency=1)))
        calls += started(executor, [6])
        await until(lambda: totals(slots) == (4, 3))
        work.most = 0
        work.go.set()
        assert all(r.success for r in await asyncio.gather(*calls))
        assert totals(slots) == (0, 0)


async def test_a_tool_that_is_gone_leaves_nothing_behind() -> None:
    work, slots = Work(), Slots()
    work.go.set()
    registry = Registry([work.tool()])
    async with Executor(registry, guards=[slots]) as executor:
        await executor.execute("work", {"number": 1})
        registry.remove("work")
        await executor.execute("work", {"number": 1})
    gc.collect()
    assert numbers(slots)["slots_running"] == {}


async def test_groups_come_from_the_config(tmp_path: Path) -> None:
    file = tmp_path / "toolpost.toml"
    file.write_text(
        'guards = ["slots"]\n[extensions.slots.groups]\n"db_*" = {concurrency = 2}\n'
        '"label:vendor=acme" = {concurrency = 1, queue = 0}\n'
    )
    async with Runtime.open(file) as tools:
        (slots,) = tools.executor.guards
        assert isinstance(slots, Slots)
        assert set(numbers(slots)["group_slots_running"]) == {"db_*", "label:vendor=acme"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"group": {}}, "no setting 'group'"),
        ({"groups": {"a": {"concurrency": 0}}}, "at least 1"),
        ({"groups": {"a": {"queue": -1}}}, "at least 0"),
        ({"groups": {"a": {"concurency": 1}}}, "concurency"),
        ({"groups": {"a": "ten"}}, "groups"),
        ({"groups": {"tags:a": {}}}, "no pattern"),
    ],
)
async def test_a_wrong_setting_is_refused_with_its_place(options: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Slots.from_config(options, surroundings())


def test_the_share_of_a_group_is_a_value() -> None:
    assert msgspec.to_builtins(Share()) == {"concurrency": 10, "queue": 100}
