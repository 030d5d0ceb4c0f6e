"""Time limits: what is stopped, what is left behind, whose cancellation is whose."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import weakref
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import pytest
import uvloop

from toolpost import TimedOut, ToolSpec, deadline, invoke
from toolpost.call import OWNER, Call
from toolpost.deadline import timed_out
from toolpost.invoke import invoking
from toolpost.result import Metadata
from toolpost.schema import Schema

pytestmark = pytest.mark.usefixtures("as_raised")
LIMIT = 0.02
FENCE = 20.0
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a coroutine on either loop, within a fence, with a short grace."""
    monkeypatch.setattr(deadline, "GRACE", 0.02)

    def runner(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(main, FENCE))

    return runner


class Running:
    """A handle of a tool that has been called already."""

    def __init__(self, tool: Coroutine[Any, Any, Any]) -> None:
        self.run = lambda call: tool


def limited(
    tool: Coroutine[Any, Any, Any], seconds: float, strays: set[asyncio.Task[Any]]
) -> Coroutine[Any, Any, Any]:
    """A run under a limit, by the last step of the road; what is raised there is raised here."""
    spec = ToolSpec(name="tool", description="A tool.", kind="python", timeout=seconds)
    walk = invoking(spec, Running(tool), strays, Schema(spec.input_schema), alone=True)  # type: ignore[arg-type]
    call = Call("tool", spec, {}, OWNER, "call", Metadata("call"), started=time.monotonic())

    async def awaited() -> Any:
        return (await walk(call)).output

    return awaited()


@pytest.fixture
def as_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(call: Call, exc: Exception, speaker: str) -> None:
        raise exc

    monkeypatch.setattr(invoke, "failed", failed)


def forever() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def stubborn(release: asyncio.Event, cancelled: list[int]) -> str:
    while not release.is_set():
        try:
            await release.wait()
        except asyncio.CancelledError:
            cancelled.append(1)
    return "at last"


def test_a_result_in_time_passes(run: Any) -> None:
    async def tool() -> int:
        await asyncio.sleep(0)
        return 5

    async def main() -> int:
        return await limited(tool(), FENCE, set())

    assert run(main()) == 5


class Counting(asyncio.SelectorEventLoop):
    """A loop that counts the timers it is asked for."""

    armed = 0

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        self.armed += 1
        return super().call_at(when, callback, *args, context=context)


@pytest.mark.req("AF-8")
def test_no_timer_is_armed_for_a_tool_that_does_not_suspend() -> None:
    async def at_once() -> int:
        return 1

    async def suspends() -> int:
        await asyncio.sleep(0)
        return 2

    loop = Counting()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(_await(limited(at_once(), FENCE, set()))) == 1
        assert loop.armed == 0
        assert runner.run(_await(limited(suspends(), FENCE, set()))) == 2
        assert loop.armed == 1


def test_a_timer_is_disarmed_when_the_tool_is_done() -> None:
    async def suspends() -> None:
        await asyncio.sleep(0)

    loop = Counting()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(_await(limited(suspends(), LIMIT, set())))
        assert all(timer.cancelled() for timer in loop._scheduled)


def test_long_limits_share_their_timers_and_ring_all_the_same(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many runs that end in one tick have one timer; those that are done are not called."""
    monkeypatch.setattr(deadline, "COARSE", 0.0)
    done: list[int] = []

    async def tool(number: int) -> None:
        await (asyncio.sleep(0) if number % 2 else forever())
        done.append(number)

    async def main() -> list[Any]:
        began = time.monotonic()
        runs = [_await(limited(tool(number), 0.5, set())) for number in range(40)]
        ends = await asyncio.gather(*runs, return_exceptions=True)
        assert time.monotonic() - began >= 0.5
        return ends

    ends = run(main())
    assert done == [*range(1, 40, 2)]
    assert [type(end) for end in ends] == [TimedOut, type(None)] * 20


def test_a_thousand_runs_at_once_have_one_timer_a_tick() -> None:
    async def suspends() -> None:
        await asyncio.sleep(0)

    async def main() -> float:
        began = time.monotonic()
        await asyncio.gather(*(_await(limited(suspends(), FENCE, set())) for _ in range(1000)))
        return time.monotonic() - began

    loop = Counting()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        ticks = runner.run(main()) / deadline.TICK
    assert loop.armed <= ticks + 2, "so many ticks it took to begin them"


async def _suspends() -> None:
    await asyncio.sleep(0)


def test_of_runs_that_ended_long_before_their_limits_little_is_kept(run: Any) -> None:
    """Each has a tick of its own, an hour away; those that still run are not forgotten."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        held = [asyncio.create_task(_await(limited(_forever(), 3000 + n, set()))) for n in range(9)]
        for number in range(5000):
            await limited(_suspends(), 3600 + number, set())
        ticks = deadline._wheel(loop)._ticks
        assert len(ticks) < 2000
        assert sum(map(len, ticks.values())) == len(held)
        timers = getattr(loop, "_scheduled", ())  # uvloop does not show them
        assert sum(not timer.cancelled() for timer in timers) < 2000
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)

    run(main())


async def _forever() -> None:
    await forever()


def test_a_tick_that_was_dropped_comes_back_and_rings(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "COARSE", 0.0)
    monkeypatch.setattr(deadline, "_CROWD", 1)

    async def main() -> None:
        for number in range(20):
            await limited(_suspends(), 0.5 + number / 10, set())
        for _ in range(3):
            with pytest.raises(TimedOut):
                await limited(_forever(), 0.1, set())

    run(main())


def test_a_timer_keeps_nothing_of_who_was_first_in_its_tick(run: Any) -> None:
    class Large:
        """What somebody has in a context."""

    given: ContextVar[Large] = ContextVar("given")

    async def caller(large: Large) -> None:
        given.set(large)
        await limited(_suspends(), FENCE, set())

    async def main() -> None:
        large = Large()
        gone = weakref.ref(large)
        await asyncio.create_task(caller(large))
        del large
        await asyncio.sleep(0)
        gc.collect()
        assert gone() is None

    run(main())


@pytest.mark.req("FM-10")
def test_a_tool_that_hangs_is_cancelled_at_the_limit(run: Any) -> None:
    ends = []

    async def hangs() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async def main() -> None:
        with pytest.raises(TimedOut) as caught:
            await limited(hangs(), LIMIT, set())
        assert caught.value.message.startswith("Operation timed out after 0.02s.")
        assert caught.value.details == {"seconds": LIMIT}
        assert caught.value.effects == "unknown"
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0)  # the cancellation is over: nothing comes after it

    run(main())
    assert ends == ["cancelled"]


def test_seconds_are_told_without_noise() -> None:
    assert timed_out(0.19998234).message.startswith("Operation timed out after 0.2s.")
    assert timed_out(120).message.startswith("Operation timed out after 120s.")


def test_a_tool_that_swallows_its_cancellation_is_left_behind(run: Any) -> None:
    async def main() -> None:
        release, cancelled, strays = asyncio.Event(), [], set()
        with pytest.raises(TimedOut):
            await limited(stubborn(release, cancelled), LIMIT, strays)
        assert len(strays) == 1
        [stray] = strays
        release.set()
        await stray
        assert len(cancelled) >= 2
        assert not strays

    run(main())


def test_a_tool_that_waits_for_a_task_that_swallows_cancellation_is_left_behind(run: Any) -> None:
    async def main() -> None:
        release, cancelled, strays = asyncio.Event(), [], set()
        inner = asyncio.ensure_future(stubborn(release, cancelled))

        async def tool() -> str:
            return await inner

        with pytest.raises(TimedOut):
            await limited(tool(), LIMIT, strays)
        assert cancelled, "the cancellation reached the task inside"
        assert not inner.done()
        release.set()
        assert await inner == "at last"

    run(main())


def test_a_tool_that_waits_for_a_group_is_stopped_with_all_of_it(run: Any) -> None:
    ends = []

    async def part() -> None:
        try:
            await forever()
        finally:
            ends.append(1)

    async def tool() -> None:
        await asyncio.gather(part(), part())

    async def main() -> None:
        with pytest.raises(TimedOut):
            await limited(tool(), LIMIT, set())

    run(main())
    assert ends == [1, 1]


@pytest.mark.parametrize("how", ["returns", "fails", "is cancelled"])
def test_what_a_task_inside_a_tool_ends_with_reaches_the_tool(run: Any, how: str) -> None:
    async def inner() -> int:
        await asyncio.sleep(0)
        if how == "fails":
            raise KeyError("inner")
        if how == "is cancelled":
            raise asyncio.CancelledError
        return 3

    async def tool() -> object:
        try:
            return await asyncio.ensure_future(inner())
        except (KeyError, asyncio.CancelledError) as exc:
            return type(exc).__name__

    async def main() -> object:
        return await limited(tool(), FENCE, set())

    expected = {"returns": 3, "fails": "KeyError", "is cancelled": "CancelledError"}
    assert run(main()) == expected[how]


def test_a_caller_who_leaves_reaches_a_task_that_the_tool_waits_for(run: Any) -> None:
    async def main() -> None:
        begun, inner_saw = asyncio.Event(), []

        async def inner() -> None:
            begun.set()
            try:
                await forever()
            except asyncio.CancelledError:
                inner_saw.append(1)
                raise

        async def tool() -> None:
            await asyncio.ensure_future(inner())

        task = asyncio.ensure_future(_await(limited(tool(), FENCE, set())))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert inner_saw == [1]

    run(main())


async def _await(awaitable: Any) -> Any:
    return await awaitable


def test_a_cancellation_that_meets_a_finished_task_still_stops_the_tool(run: Any) -> None:
    async def main() -> None:
        inner = asyncio.get_running_loop().create_future()
        group = asyncio.gather(inner)
        ends = []

        async def tool() -> None:
            try:
                await group
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise

        task = asyncio.ensure_future(_await(limited(tool(), FENCE, set())))
        await asyncio.sleep(0)
        group.add_done_callback(lambda _: task.cancel())
        inner.set_result(1)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ends == ["cancelled"]

    run(main())


def test_an_outer_cancellation_reaches_the_tool_and_is_not_swallowed(run: Any) -> None:
    async def main() -> None:
        begun, saw = asyncio.Event(), []

        async def swallows() -> str:
            begun.set()
            try:
                await forever()
            except asyncio.CancelledError:
                saw.append(1)
            return "as if nothing had happened"

        task = asyncio.ensure_future(_await(limited(swallows(), FENCE, set())))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert saw == [1]

    run(main())


def test_an_outer_cancellation_wins_over_what_the_tool_raises(run: Any) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def breaks() -> None:
            begun.set()
            try:
                await forever()
            except asyncio.CancelledError:
                raise ValueError("while cleaning up") from None

        task = asyncio.ensure_future(_await(limited(breaks(), FENCE, set())))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_when_the_caller_leaves_at_the_limit_the_cancellation_is_kept(run: Any) -> None:
    async def main() -> None:
        begun = asyncio.Event()
        at_limit = asyncio.Event()

        async def slow_to_go() -> None:
            begun.set()
            try:
                await forever()
            except asyncio.CancelledError:
                at_limit.set()
                await forever()

        strays: set[Any] = set()
        task = asyncio.ensure_future(_await(limited(slow_to_go(), LIMIT, strays)))
        await at_limit.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not strays

    run(main())


def test_a_time_limit_inside_the_tool_is_the_tools_own(run: Any) -> None:
    async def tool() -> str:
        try:
            async with asyncio.timeout(0.01):
                await forever()
        except TimeoutError:
            return "gave up waiting"
        return "never"

    async def main() -> str:
        return await limited(tool(), FENCE, set())

    assert run(main()) == "gave up waiting"


def test_a_time_limit_inside_the_tool_does_not_outlive_ours(run: Any) -> None:
    async def tool() -> None:
        async with asyncio.timeout(FENCE):
            await forever()

    async def main() -> None:
        with pytest.raises(TimedOut):
            await limited(tool(), LIMIT, set())

    run(main())


def test_a_time_limit_around_ours_is_the_callers(run: Any) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.01):
                await limited(_await(forever()), FENCE, set())
        assert not isinstance(caught.value, TimedOut)

    run(main())


def test_limits_nest(run: Any) -> None:
    async def inner() -> str:
        try:
            await limited(_await(forever()), 0.01, set())
        except TimedOut:
            return "the inner one"
        return "neither"

    async def main() -> str:
        return await limited(inner(), FENCE, set())

    assert run(main()) == "the inner one"


def test_a_blocking_tool_comes_back_late_but_not_as_a_success(run: Any) -> None:
    async def suspends_and_blocks() -> str:
        await asyncio.sleep(0)
        until = time.monotonic() + 2 * LIMIT
        while time.monotonic() < until:
            pass
        return "done"

    async def main() -> None:
        with pytest.raises(TimedOut) as caught:
            await limited(suspends_and_blocks(), LIMIT, set())
        assert caught.value.effects == "done"

    run(main())


def test_time_spent_before_the_first_suspension_counts(run: Any) -> None:
    async def blocks_then_hangs() -> None:
        until = time.monotonic() + 2 * LIMIT
        while time.monotonic() < until:
            pass
        await forever()

    loop = Counting()
    delays = []
    call_later = loop.call_later
    loop.call_later = lambda delay, *rest: delays.append(delay) or call_later(delay, *rest)
    with asyncio.Runner(loop_factory=lambda: loop) as runner, pytest.raises(TimedOut):
        runner.run(_await(limited(blocks_then_hangs(), LIMIT, set())))
    assert delays[0] == 0


class Odd(BaseException):
    """Not an ``Exception``, as some libraries have them."""


@pytest.mark.parametrize("late", [False, True], ids=["at once", "after suspending"])
@pytest.mark.parametrize("exc", [SystemExit(3), asyncio.CancelledError(), Odd()], ids=repr)
def test_a_tool_that_ends_in_an_odd_way_has_failed_and_nothing_else(
    run: Any, exc: BaseException, late: bool
) -> None:
    async def tool() -> None:
        if late:
            await asyncio.sleep(0)
        raise exc

    async def main() -> None:
        with pytest.raises(RuntimeError, match="gave up") as caught:
            await limited(tool(), FENCE, set())
        assert caught.value.__cause__ is exc

    run(main())


@pytest.mark.parametrize("late", [False, True], ids=["at once", "after suspending"])
def test_what_a_tool_raises_passes_as_it_is(run: Any, late: bool) -> None:
    async def tool() -> None:
        if late:
            await asyncio.sleep(0)
        raise KeyError("mine")

    async def main() -> None:
        with pytest.raises(KeyError, match="mine"):
            await limited(tool(), FENCE, set())

    run(main())


def test_ctrl_c_is_never_taken_for_a_failure_of_the_tool() -> None:
    async def tool() -> None:
        raise KeyboardInterrupt

    coroutine = _await(limited(tool(), FENCE, set()))
    with pytest.raises(KeyboardInterrupt):
        coroutine.send(None)


def test_a_run_that_is_closed_closes_its_tool(run: Any) -> None:
    ends = []

    async def tool() -> None:
        try:
            await asyncio.sleep(0)
            await forever()
        finally:
            ends.append(1)

    async def main() -> None:
        running = _await(limited(tool(), FENCE, set()))
        running.send(None)
        running.close()

    run(main())
    assert ends == [1]


def test_a_stray_that_ends_badly_disturbs_nobody(run: Any) -> None:
    async def main() -> None:
        release, strays, told = asyncio.Event(), set(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

        async def tool() -> None:
            await stubborn(release, [])
            await asyncio.sleep(0)
            sys.exit(3)

        with pytest.raises(TimedOut):
            await limited(tool(), LIMIT, strays)
        [stray] = strays
        release.set()
        await stray
        assert not told

    run(main())


def test_awaiting_what_belongs_to_another_loop_fails_at_once(run: Any) -> None:
    other = asyncio.new_event_loop()
    foreign = other.create_task(asyncio.sleep(0))

    async def tool() -> None:
        await foreign

    async def main() -> None:
        with pytest.raises(RuntimeError, match="different loop"):
            await limited(tool(), FENCE, set())

    run(main())
    other.run_until_complete(foreign)
    other.close()


def test_a_loop_is_not_kept_alive_by_the_limits_that_ran_in_it() -> None:
    async def suspends() -> None:
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(_await(limited(suspends(), FENCE, set())))
        gone = weakref.ref(runner.get_loop())
    del runner
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("waits_for", ["a future", "a task"])
def test_a_run_that_was_cancelled_is_not_kept_by_what_it_leaves_behind(
    run: Any, waits_for: str
) -> None:
    """The task keeps its cancellation, that the frames it went through, and they the task."""

    class Large:
        pass

    async def tool(large: Large) -> None:
        await (forever() if waits_for == "a future" else asyncio.ensure_future(forever()))

    async def work(seen: list[weakref.ref[Large]]) -> None:
        large = Large()
        seen.append(weakref.ref(large))
        await limited(tool(large), FENCE, set())

    async def main() -> weakref.ref[Large]:
        seen: list[weakref.ref[Large]] = []
        task = asyncio.create_task(work(seen))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])  # and nobody asks it how it ended
        return seen[0]

    gone = run(main())
    gc.collect()
    assert gone() is None


async def asking(call: Call, question: asyncio.Future[None]) -> str:
    """A tool that asks somebody, twice as long as its own limit, and then works."""
    with deadline.paused(call):
        asyncio.get_running_loop().call_later(call.spec.timeout * 2, question.set_result, None)
        await question
    await asyncio.sleep(0)
    return "answered"


def called(seconds: float = LIMIT, deadline: float | None = None) -> tuple[Call, Any]:
    spec = ToolSpec(name="tool", description="A tool.", kind="python", timeout=seconds)
    now = time.monotonic()
    ends = None if deadline is None else now + deadline
    call = Call("tool", spec, {}, OWNER, "call", Metadata("call"), None, ends, started=now)

    async def run(tool: Coroutine[Any, Any, Any]) -> Any:
        walk = invoking(spec, Running(tool), set(), Schema(spec.input_schema), alone=True)  # type: ignore[arg-type]
        return await walk(call)

    return call, run


def test_the_time_that_a_person_takes_to_answer_is_not_the_tools(run: Any) -> None:
    async def main() -> None:
        call, under_its_limit = called(0.5)  # its own time is hardly any: a machine may be busy
        result = await under_its_limit(asking(call, forever()))
        assert result.output == "answered"
        assert result.metadata.waited_ms >= 500

    run(main())


def test_after_the_answer_the_limit_holds_again(run: Any) -> None:
    async def hanging(call: Call) -> None:
        await asking(call, forever())
        await forever()

    async def main() -> None:
        call, under_its_limit = called()
        with pytest.raises(TimedOut):
            await under_its_limit(hanging(call))

    run(main())


def test_nobody_answers_beyond_the_callers_deadline(run: Any) -> None:
    async def unanswered(call: Call) -> None:
        with deadline.paused(call):
            await forever()

    async def main() -> None:
        call, under_its_limit = called(deadline=LIMIT * 2)
        with pytest.raises(TimedOut):
            await under_its_limit(unanswered(call))
        assert not deadline._since

    run(main())
