"""Threads for synchronous tools: what they see, what is counted, what is refused."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from toolpost import Unavailable
from toolpost.backends.python.threads import Threads

pytestmark = pytest.mark.anyio
FENCE = 20


async def until(holds: Any) -> None:
    async with asyncio.timeout(FENCE):
        while not holds():
            await asyncio.sleep(0)


def ours() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name == "toolpost-tool"}


@pytest.fixture
async def threads() -> Any:
    before = ours()
    pool = Threads(most=4, most_stranded=2)
    yield pool
    pool.close()
    await until(lambda: not ours() - before)


async def test_a_function_runs_in_another_thread_and_its_result_comes_back(threads: Any) -> None:
    here = threading.get_ident()
    assert await threads.run(threading.get_ident) != here


async def test_what_it_raises_comes_back(threads: Any) -> None:
    with pytest.raises(KeyError, match="mine"):
        await threads.run(lambda: {}["mine"])


@pytest.mark.parametrize("exc", [SystemExit(3), asyncio.CancelledError(), KeyError()], ids=repr)
async def test_whatever_it_raises_the_thread_is_used_again(threads: Any, exc: Any) -> None:
    def raises() -> None:
        raise exc

    before = await threads.run(threading.get_ident)
    with pytest.raises(KeyError if isinstance(exc, KeyError) else RuntimeError):
        await threads.run(raises)
    assert threads.stranded == 0
    assert await threads.run(threading.get_ident) == before


async def test_a_stop_iteration_is_an_error_like_any_other(threads: Any) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.run(lambda: next(iter(())))


async def test_context_variables_are_seen_and_changes_stay_inside(threads: Any) -> None:
    variable = contextvars.ContextVar("variable", default="nothing")
    variable.set("mine")

    def change() -> str:
        seen = variable.get()
        variable.set("theirs")
        return seen

    assert await threads.run(change) == "mine"
    assert variable.get() == "mine"


async def test_no_more_threads_than_allowed_run_at_once(threads: Any) -> None:
    gate, lock, most, running = threading.Event(), threading.Lock(), 0, 0

    def work() -> None:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(FENCE)
        with lock:
            running -= 1

    calls = [asyncio.ensure_future(threads.run(work)) for _ in range(12)]
    await until(lambda: running == 4)
    gate.set()
    await asyncio.gather(*calls)
    assert most == 4


async def test_threads_that_were_given_up_are_counted_and_bounded(threads: Any) -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        gate.wait(FENCE)

    calls = [asyncio.ensure_future(threads.run(hang)) for _ in range(2)]
    for _ in calls:
        await asyncio.to_thread(begun.acquire, timeout=FENCE)
    for call in calls:
        call.cancel()
    assert await asyncio.gather(*calls, return_exceptions=True) != [None, None]
    assert threads.stranded == 2
    with pytest.raises(Unavailable, match="2 earlier calls were stopped but their threads still"):
        await threads.run(int)
    gate.set()
    await until(lambda: threads.stranded == 0)
    assert await threads.run(int) == 0


async def test_a_cancellation_that_comes_after_the_work_strands_nothing(threads: Any) -> None:
    call = asyncio.ensure_future(threads.run(int))
    settle = threads.back

    def back_and_cancel(thread: Any, stranded: bool) -> None:
        settle(thread, stranded)
        asyncio.get_running_loop().call_soon(call.cancel)

    threads.back = back_and_cancel
    await asyncio.wait((call,), timeout=FENCE)
    assert threads.stranded == 0


async def test_a_call_that_waits_for_a_thread_may_leave(threads: Any) -> None:
    gate = threading.Event()
    calls = [asyncio.ensure_future(threads.run(lambda: gate.wait(FENCE))) for _ in range(5)]
    await asyncio.sleep(0)
    calls[-1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls[-1]
    assert threads.stranded == 0
    gate.set()
    await asyncio.gather(*calls[:-1])


async def test_a_thread_at_work_when_the_pool_closes_ends_when_it_comes_back() -> None:
    before, gate, begun = ours(), threading.Event(), threading.Event()
    pool = Threads()

    def work() -> int:
        begun.set()
        gate.wait(FENCE)
        return 5

    call = asyncio.ensure_future(pool.run(work))
    await asyncio.to_thread(begun.wait, FENCE)
    pool.close()
    assert len(ours() - before) == 1
    gate.set()
    assert await call == 5
    await until(lambda: not ours() - before)


def test_a_thread_that_outlives_its_loop_ends_quietly() -> None:
    before, gate, begun = ours(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait(FENCE)

    async def main() -> None:
        call = asyncio.ensure_future(Threads().run(work))
        await asyncio.to_thread(begun.wait, FENCE)
        call.cancel()
        await asyncio.wait((call,))

    asyncio.run(main())
    [left] = ours() - before
    gate.set()
    left.join(FENCE)
    assert not left.is_alive()
