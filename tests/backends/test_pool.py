"""Warm workers: quick, bounded, and dead when they should be, with all their offspring."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.backends import pool_tools
from tests.processes import Watch, descendants, innermost, running
from tests.test_deadline import as_raised, limited  # noqa: F401 - a fixture
from toolpost.backends.python.pool import Target, WorkerPool
from toolpost.errors import (
    InternalError,
    InvalidArguments,
    InvalidOutput,
    OutputTooLarge,
    RateLimited,
    ResourceLimit,
    TimedOut,
    Unavailable,
)

pytestmark = pytest.mark.anyio

HERE = str(Path(pool_tools.__file__).parent)
STUBBORN = [
    "sleep_then_write",
    "await_then_write",
    "blocked_in_c",
    "blocked_in_regex",
    "swallows_everything",
    "daemonises",
    "multiprocesses",
]


def tool(name: str, *, call: bool = False) -> Target:
    return Target("pool_tools", name, (HERE,), described=call)


def make_pool(**changes: Any) -> WorkerPool:
    return WorkerPool(**{"python_path": sys.path, "size": 2, **changes})


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    async with make_pool() as made:
        yield made
    assert descendants(os.getpid()) == set()


@pytest.fixture(params=["namespace", "subreaper"])
def namespace(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "namespace")


@pytest.fixture(params=["shared", "caller"])
async def kept(request: pytest.FixtureRequest, namespace: bool) -> AsyncIterator[WorkerPool]:
    """A pool for each way of keeping processes, with and without a template in each worker."""
    async with make_pool(namespace=namespace, state=request.param) as made:
        yield made
    assert descendants(os.getpid()) == set()


class Events(list[dict[str, Any]]):
    """Collects a call's events, and lets a test wait for the first."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    def __call__(self, event: dict[str, Any]) -> None:
        self.append(event)
        self.begun.set()

    async def first(self) -> None:
        async with asyncio.timeout(30):
            await self.begun.wait()

    def text(self, **fields: str) -> str:
        return "".join(event["text"] for event in self if fields.items() <= event.items())


# What a call gives back


@pytest.mark.req("UX-5")
async def test_sync_and_async_functions_run_by_their_module_path(pool: WorkerPool) -> None:
    assert await pool.run(tool("add"), {"a": 1, "b": 2}) == 3
    assert await pool.run(tool("add_slowly"), {"a": 1, "b": 2}) == 3


@pytest.mark.req("UX-5")
async def test_a_tool_that_blocks_its_process_does_not_block_the_loop(
    pool: WorkerPool, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    blocked = asyncio.create_task(pool.run(tool("answer_from_fifo"), {"path": str(fifo)}))
    assert await pool.run(tool("add"), {"a": 1, "b": 2}) == 3
    assert not blocked.done()
    async with asyncio.timeout(30):
        await asyncio.to_thread(fifo.write_text, "from the loop")
        assert await blocked == "from the loop"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(value=json_values)
async def test_json_data_goes_in_and_comes_out_unchanged(value: Any) -> None:
    async with make_pool(size=1) as pool:
        assert await pool.run(tool("echo"), {"value": value}) == value


async def test_large_and_exact_values_survive_the_journey(pool: WorkerPool) -> None:
    for value in (2**200, -(10**300), "\U0001f600 \x00 é", "x" * 5_000_000, 0.1, [[]] * 300):
        assert await pool.run(tool("echo"), {"value": value}) == value


async def test_arguments_that_are_not_json_are_refused_and_the_worker_stays(
    pool: WorkerPool,
) -> None:
    for value in (object(), {object(): 1}, "half a pair: \ud800"):
        with pytest.raises(InvalidArguments):
            await pool.run(tool("echo"), {"value": value})
    assert await pool.run(tool("serve"), {}) == 1


async def test_an_output_that_is_not_json_is_invalid_output(pool: WorkerPool) -> None:
    for name in ("not_json", "not_a_number"):
        with pytest.raises(InvalidOutput):
            await pool.run(tool(name), {})
    assert await pool.run(tool("serve"), {}) == 1


async def test_an_output_beyond_the_limit_is_refused() -> None:
    async with make_pool(max_output=1_000_000) as pool:
        assert len(await pool.run(tool("large"), {"size": 999_000})) == 999_000
        with pytest.raises(OutputTooLarge):
            await pool.run(tool("large"), {"size": 1_000_001})
        assert await pool.run(tool("add"), {"a": 1, "b": 2}) == 3


async def test_tool_objects_are_unwrapped(pool: WorkerPool) -> None:
    assert await pool.run(tool("wrapped"), {"a": 1, "b": 2}) == 3


async def test_a_tool_gets_its_call_and_reports_through_it(pool: WorkerPool) -> None:
    context = {
        "call_id": "c-1",
        "session_id": "s-1",
        "caller": {"id": "me", "roles": ["admin"]},
        "dry_run": True,
        "phase": "analysis",
        "working_dir": "/somewhere",
        "metadata": {"k": 1},
    }
    events = Events()
    output = await pool.run(tool("report", call=True), {}, context=lambda: context, on_event=events)
    assert output == {**context, "caller": "me", "admin": True, "spec": "tool", "cancelled": False}
    assert events == [
        {"type": "progress", "done": 1, "total": 2, "message": "half"},
        {"type": "partial", "output": "first piece"},
        {"type": "warning", "text": "mind the gap"},
        {"type": "progress", "done": 2, "total": 2, "message": None},
    ]


async def test_what_a_tool_prints_and_logs_arrives_as_events_before_its_output(
    pool: WorkerPool,
) -> None:
    events = Events()
    assert await pool.run(tool("talk"), {}, on_event=events) == "done"
    assert events.text(stream="stdout") == "by print\nby descriptor\nby child\nno newline"
    assert events.text(stream="stderr") == "to stderr\n"
    logged = {"type": "log", "level": "warning", "logger": "my.tool", "text": "by logging"}
    assert logged in events


async def test_a_flood_of_prints_and_records_is_cut_and_the_tool_goes_on(pool: WorkerPool) -> None:
    events = Events()
    assert await pool.run(tool("flood"), {}, on_event=events) == "done"
    assert len(events.text(stream="stdout")) == 64 * 1024
    assert any(event.get("truncated") for event in events)
    assert len([event for event in events if "logger" in event]) <= 1000


async def test_records_that_a_worker_forges_are_cut_as_well() -> None:
    async with make_pool() as pool:
        events = Events()
        await pool.run(tool("logs_by_hand"), {"count": 3_000}, on_event=events)
    assert len(events) == 1_000


async def test_partial_output_without_end_is_too_large() -> None:
    async with make_pool(max_output=1_000_000) as pool:
        with pytest.raises(OutputTooLarge):
            await pool.run(tool("drown_in_parts", call=True), {}, on_event=Events())


async def test_a_listener_that_fails_does_not_harm_the_call(
    pool: WorkerPool, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: dict[str, Any]) -> None:
        raise LookupError("listener")

    assert await pool.run(tool("talk"), {}, on_event=broken) == "done"
    assert "LookupError" in caplog.text


async def test_events_of_a_call_that_is_over_reach_nobody(pool: WorkerPool, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    late, next_events = Events(), Events()
    target = tool("leaves_a_thread", call=True)
    await pool.run(target, {"path": str(fifo)}, on_event=late)
    await asyncio.to_thread(fifo.write_text, "go on")
    await pool.run(tool("talk"), {}, on_event=next_events)
    assert [event for event in [*late, *next_events] if event["type"] == "progress"] == []


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
async def test_a_tool_may_use_multiprocessing(kept: WorkerPool, method: str) -> None:
    assert await kept.run(tool("squares"), {"method": method}) == [1, 4, 9]


# What goes wrong


@pytest.mark.req("FM-6")
async def test_an_exception_of_a_tool_is_an_internal_error_and_its_details_are_in_the_log(
    pool: WorkerPool, caplog: pytest.LogCaptureFixture
) -> None:
    for name, kind in (("fail", "RuntimeError"), ("leave", "SystemExit")):
        with pytest.raises(InternalError) as caught:
            await pool.run(tool(name), {})
        assert caught.value.message == "Internal tool error. See logs for details."
        assert kind in caplog.text
    assert "the secret is in the cellar" in caplog.text
    assert {record.name for record in caplog.records} == {"toolpost.tools"}
    assert await pool.run(tool("serve"), {}) == 1


async def test_a_call_error_arrives_as_the_same_class_with_all_it_says(pool: WorkerPool) -> None:
    with pytest.raises(RateLimited) as caught:
        await pool.run(tool("refuse"), {})
    error = caught.value
    assert (error.message, error.retry_after) == ("Come back later.", 3.5)
    assert (error.details, error.retryable, error.remedy) == ({"left": 0}, True, "wait")


@pytest.mark.parametrize(
    "target",
    [
        Target("no_such_module_anywhere", "f"),
        Target("pool_tools", "no_such_function", (HERE,)),
        Target("pool_tools", "nothing", (HERE,)),
    ],
)
async def test_a_tool_that_cannot_be_imported_says_so_every_time(
    pool: WorkerPool, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        with pytest.raises(InternalError) as caught:
            await pool.run(target, {})
        assert caught.value.message == "The tool could not be loaded. See logs for details."
        assert caught.value.effects == "none"
    assert "Error" in caplog.text


@pytest.mark.req("FM-9")
@pytest.mark.req("NA-7")
async def test_a_tool_that_takes_too_much_memory_runs_into_its_limit() -> None:
    async with make_pool(memory=512 << 20) as pool:
        with pytest.raises(ResourceLimit) as caught:
            await pool.run(tool("hog"), {})
        assert "512 MiB" in caught.value.message
        assert await pool.run(tool("add"), {"a": 1, "b": 2}) == 3


@pytest.mark.parametrize("how", ["exit", "kill", "crash"])
async def test_a_worker_that_dies_in_a_call_is_unavailable_at_once_and_replaced(
    kept: WorkerPool, how: str
) -> None:
    async with asyncio.timeout(30):
        with pytest.raises(Unavailable) as caught:
            await kept.run(tool("die"), {"how": how})
        assert (caught.value.retryable, caught.value.effects) == (True, "unknown")
        assert await kept.run(tool("serve"), {}) == 1


async def test_a_worker_killed_from_outside_in_a_call_is_unavailable(kept: WorkerPool) -> None:
    events = Events()
    target = tool("sleep_then_write", call=True)
    arguments = {"path": "/nonexistent", "seconds": 1000}
    running_call = asyncio.create_task(kept.run(target, arguments, on_event=events))
    await events.first()
    os.kill(innermost(os.getpid()).pop(), 9)
    async with asyncio.timeout(30):
        with pytest.raises(Unavailable):
            await running_call


GARBAGE = [
    "text",
    "wrong shape",
    "wrong kind",
    "wrong number",
    "two values",
    "not a number",
    "not utf-8",
    "strange event",
    "deep",
]


@pytest.mark.parametrize("how", GARBAGE)
async def test_a_worker_that_speaks_garbage_is_killed(pool: WorkerPool, how: str) -> None:
    await pool.warm()
    with Watch(descendants(os.getpid())) as watch:
        async with asyncio.timeout(30):
            with pytest.raises(Unavailable):
                await pool.run(tool("speaks_garbage"), {"how": how})
        assert await watch.gone()
    assert await pool.run(tool("add"), {"a": 1, "b": 2}) == 3


async def test_a_frame_that_claims_a_gigabyte_is_not_waited_for(pool: WorkerPool) -> None:
    async with asyncio.timeout(30):
        with pytest.raises(OutputTooLarge):
            await pool.run(tool("claims_a_gigabyte"), {})


async def test_a_worker_that_hangs_up_is_unavailable(pool: WorkerPool) -> None:
    async with asyncio.timeout(30):
        with pytest.raises(Unavailable):
            await pool.run(tool("hangs_up"), {})


async def test_an_answer_in_pieces_counts_even_if_the_worker_dies_right_after() -> None:
    for _ in range(5):
        async with make_pool() as pool:
            assert await pool.run(tool("split_frame"), {}) == "in pieces"


async def test_an_answer_behind_many_events_counts_even_if_the_worker_dies_right_after() -> None:
    for _ in range(5):
        async with make_pool() as pool:
            events = Events()
            target = tool("answers_after_events")
            output = await pool.run(target, {"count": 12}, on_event=events)
            assert (output, len(events)) == ("after the events", 12)


async def test_a_worker_that_died_while_idle_costs_no_call(pool: WorkerPool) -> None:
    for _ in range(3):
        assert await pool.run(tool("add"), {"a": 1, "b": 2}) == 3
        with Watch(descendants(os.getpid())) as watch:
            os.kill(innermost(os.getpid()).pop(), 9)
            assert watch.living(within=20) == set()  # without a turn of the loop


async def test_a_careless_fork_gives_one_answer_and_no_second_worker(kept: WorkerPool) -> None:
    for value in ("one", "two"):
        assert await kept.run(tool("forks_and_comes_back"), {"value": value}) == value


async def test_a_pool_whose_workers_cannot_start_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with make_pool(cwd="/no/such/place") as pool:
        results = await asyncio.gather(
            *(pool.run(tool("add"), {"a": 1, "b": 2}) for _ in range(4)), return_exceptions=True
        )
    assert {type(result) for result in results} == {Unavailable}
    assert "/no/such/place" in caplog.text


async def test_a_worker_too_small_to_start_is_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    async with make_pool(memory=1 << 20) as pool:
        with pytest.raises(Unavailable):
            await pool.run(tool("add"), {"a": 1, "b": 2})


# Killing


@pytest.mark.req("NA-7")
@pytest.mark.parametrize("name", STUBBORN)
async def test_a_cancelled_call_is_dead_with_every_descendant_before_it_raises(
    kept: WorkerPool, name: str, tmp_path: Path
) -> None:
    written, events = tmp_path / "written", Events()
    arguments = {"path": str(written), "seconds": 1000}
    call = asyncio.create_task(kept.run(tool(name, call=True), arguments, on_event=events))
    await events.first()
    with Watch(descendants(os.getpid())) as watch:
        assert len(watch.fds) >= 2
        began = time.monotonic()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert watch.living() == set()
        assert time.monotonic() - began < 5
    assert not written.exists()
    assert await kept.run(tool("serve"), {}) == 1


@pytest.mark.req("FM-8")
async def test_a_tool_killed_at_its_limit_never_does_what_it_would_have_done(
    kept: WorkerPool, tmp_path: Path
) -> None:
    written = tmp_path / "written"
    arguments, events = {"path": str(written), "seconds": 1000}, Events()
    call = asyncio.create_task(
        kept.run(tool("sleep_then_write", call=True), arguments, on_event=events)
    )
    await events.first()
    with Watch(descendants(os.getpid())) as watch:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await call
        assert watch.living() == set()
    assert not written.exists()


async def test_a_second_cancel_does_not_cut_the_killing_short(
    kept: WorkerPool, tmp_path: Path
) -> None:
    events = Events()
    arguments = {"path": str(tmp_path / "written"), "seconds": 1000}
    call = asyncio.create_task(kept.run(tool("daemonises", call=True), arguments, on_event=events))
    await events.first()
    with Watch(descendants(os.getpid())) as watch:
        loop = asyncio.get_running_loop()
        call.cancel()
        loop.call_soon(call.cancel)
        loop.call_soon(lambda: loop.call_soon(call.cancel))
        with pytest.raises(asyncio.CancelledError):
            await call
        assert watch.living() == set()


async def test_what_a_tool_leaves_running_ends_with_its_call(kept: WorkerPool) -> None:
    mark = uuid.uuid4().hex
    await kept.warm()
    with Watch(descendants(os.getpid())) as watch:
        assert await kept.run(tool("leaves_a_daemon"), {"mark": mark}) == "left"
        assert await watch.gone()
    assert running(mark) == []
    assert await kept.run(tool("serve"), {}) == 1


PARENT = """
import asyncio, sys
from toolpost.backends.python.pool import Target, WorkerPool

async def main():
    begun = asyncio.Queue()
    tasks = []
    for namespace in (True, False):
        pool = WorkerPool(python_path=sys.path, size=3, namespace=namespace)
        for name in ("sleep_then_write", "daemonises", "multiprocesses"):
            target = Target("pool_tools", name, ({here!r},), described=True)
            arguments = {{"path": "/nonexistent", "seconds": 1000}}
            tasks.append(asyncio.create_task(
                pool.run(target, arguments, on_event=begun.put_nowait)))
    for _ in tasks:
        await begun.get()
    print("open", flush=True)
    await asyncio.gather(*tasks)

asyncio.run(main())
"""


@pytest.mark.req("NA-7")
async def test_nothing_is_left_when_the_parent_is_killed_with_open_calls() -> None:
    script = PARENT.format(here=HERE)
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=surroundings) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"open\n"
        with Watch(descendants(parent.pid)) as watch:
            assert len(watch.fds) >= 16
            parent.kill()
            assert watch.living(within=20) == set()


# The pool


async def test_calls_beyond_the_size_wait_their_turn_in_the_order_they_came() -> None:
    order: list[int] = []
    async with make_pool(size=1) as pool:

        async def call(number: int) -> None:
            await pool.run(tool("add"), {"a": number, "b": 0})
            order.append(number)

        calls = [asyncio.create_task(call(number)) for number in range(20)]
        await asyncio.sleep(0)
        for number in (0, 7, 8, 19):
            calls[number].cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert order == [number for number in range(20) if number not in (0, 7, 8, 19)]
        assert len(descendants(os.getpid())) <= 3


@pytest.mark.req("FM-9")
async def test_there_are_never_more_workers_than_the_size(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    async with make_pool(size=2, namespace=False) as pool:
        target = tool("add_slowly")
        await asyncio.gather(*(pool.run(target, {"a": n, "b": 1}) for n in range(50)))
        assert len(descendants(os.getpid())) <= 4


async def test_a_worker_serves_many_calls_and_is_replaced_after_its_last() -> None:
    async with make_pool(size=1, recycle_after=3) as pool:
        counts = [await pool.run(tool("serve"), {}) for _ in range(7)]
    assert counts == [1, 2, 3, 1, 2, 3, 1]


async def test_a_worker_that_grew_too_far_is_replaced() -> None:
    async with make_pool(size=1, growth=32 << 20) as pool:
        assert await pool.run(tool("grow"), {"size": 1 << 20}) == 1
        with Watch(descendants(os.getpid())) as watch:
            assert await pool.run(tool("grow"), {"size": 64 << 20}) == 2
            assert await watch.gone()
        assert await pool.run(tool("grow"), {"size": 1 << 20}) == 1


async def test_a_lost_worker_is_replaced_before_it_is_asked_for(pool: WorkerPool) -> None:
    with pytest.raises(Unavailable):
        await pool.run(tool("die"), {"how": "exit"})
    async with asyncio.timeout(30):
        while not descendants(os.getpid()):
            await asyncio.sleep(0)
    assert await pool.run(tool("serve"), {}) == 1


async def test_closing_ends_open_and_waiting_calls_and_leaves_nothing() -> None:
    before = set(os.listdir("/proc/self/fd"))
    pool, events = make_pool(size=1), Events()
    target = tool("daemonises", call=True)
    arguments = {"path": "/nonexistent", "seconds": 1000}
    opened = asyncio.create_task(pool.run(target, arguments, on_event=events))
    await events.first()
    waiting = asyncio.create_task(pool.run(target, arguments))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await pool.aclose()
        ends = await asyncio.gather(opened, waiting, return_exceptions=True)
    assert {type(end) for end in ends} == {Unavailable}
    assert descendants(os.getpid()) == set()
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(Unavailable):
        await pool.run(target, arguments)
    await pool.aclose()


async def test_closing_while_workers_start_leaves_nothing() -> None:
    pool = make_pool(size=3)
    calls = [asyncio.create_task(pool.run(tool("add"), {"a": 1, "b": n})) for n in range(3)]
    for _ in range(2):
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await pool.aclose()
        ends = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(end) for end in ends} == {Unavailable}
    assert descendants(os.getpid()) == set()


async def test_many_calls_many_cancels_and_the_pool_is_sound(pool: WorkerPool) -> None:
    before = len(os.listdir("/proc/self/fd"))

    async def one(number: int) -> object:
        if number % 5:
            return await pool.run(tool("add"), {"a": number, "b": 1})
        try:
            async with asyncio.timeout(0.05):
                target = tool("sleep_then_write", call=True)
                await pool.run(target, {"path": "/nonexistent", "seconds": 1000})
        except TimeoutError:
            return "stopped"

    async with asyncio.timeout(90):
        results = await asyncio.gather(*(one(number) for number in range(60)))
    assert results == [number + 1 if number % 5 else "stopped" for number in range(60)]
    assert len(os.listdir("/proc/self/fd")) <= before + 2 * 8


@pytest.mark.usefixtures("as_raised")
async def test_a_call_that_is_given_up_while_it_is_loaded_leaves_the_worker_loading(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "slow_import.py").write_text(
        f"open({str(gate)!r}).read()\ndef answer():\n    return 42\n"
    )
    target = Target("slow_import", "answer", (str(tmp_path),))
    async with make_pool(size=1) as pool, asyncio.timeout(30):
        await pool.warm()
        with pytest.raises(TimedOut) as given_up:
            await limited(pool.run(target, {}), 0.1, set())
        assert given_up.value.effects == "none"
        await asyncio.to_thread(gate.write_text, "open")
        assert await pool.run(target, {}) == 42


@pytest.mark.usefixtures("as_raised")
async def test_a_call_that_is_given_up_while_it_waits_for_a_worker_has_had_no_effects(
    tmp_path: Path,
) -> None:
    begun: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    async with make_pool(size=1) as pool, asyncio.timeout(30):
        arguments = {"path": str(tmp_path / "file"), "seconds": 1000}
        first = asyncio.create_task(
            pool.run(tool("sleep_then_write", call=True), arguments, on_event=begun.put_nowait)
        )
        await begun.get()
        with pytest.raises(TimedOut) as waited:
            await limited(pool.run(tool("add"), {"a": 1, "b": 2}), 0.1, set())
        assert waited.value.effects == "none"
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first


# Surroundings


async def test_what_a_call_changes_of_the_process_is_gone_for_the_next() -> None:
    async with make_pool(size=1) as pool:
        first = await pool.run(tool("where_am_i"), {})
        assert await pool.run(tool("where_am_i"), {}) == first


async def test_a_worker_sees_the_environment_it_is_given_and_no_other() -> None:
    async with make_pool(env={"ONLY": "this"}) as pool:
        assert await pool.run(tool("environment"), {}) == {"ONLY": "this"}


async def test_a_fresh_worker_has_nothing_of_toolpost_loaded(tmp_path: Path) -> None:
    (tmp_path / "lean.py").write_text(
        "import sys\ndef loaded():\n    return [name for name in sys.modules]\n"
    )
    async with make_pool() as pool:
        loaded = await pool.run(Target("lean", "loaded", (str(tmp_path),)), {})
    assert {"toolpost", "msgspec", "asyncio", "typing", "logging"} & set(loaded) == set()


async def test_two_folders_may_each_have_a_module_of_the_same_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "neighbour.py").write_text(f"here = {name!r}\n")
        (folder / "late.py").write_text(f"here = {name!r}\n")
        (folder / "tools.py").write_text(
            "import neighbour\ncount = 0\n"
            "def where():\n"
            "    global count\n    count += 1\n"
            "    import late\n    return [neighbour.here, late.here, count]\n"
        )
    a = Target("tools", "where", (str(tmp_path / "a"),))
    b = Target("tools", "where", (str(tmp_path / "b"),))
    async with make_pool(size=1) as pool:
        seen = [await pool.run(target, {}) for target in (a, b, a, b, a)]
    assert seen == [["a", "a", 1], ["b", "b", 1], ["a", "a", 2], ["b", "b", 2], ["a", "a", 3]]


MAIN = """
import asyncio, sys
from toolpost.backends.python.pool import Target, WorkerPool

class Pair:
    pass

def double(x):
    import pickle
    return [x * 2, __name__, pickle.loads(pickle.dumps(Pair())).__class__ is Pair]

async def main():
    async with WorkerPool(python_path=sys.path) as pool:
        print(await pool.run(Target("__main__", "double", main_path=__file__), {"x": 4}))

if __name__ == "__main__":
    print("main block")
    asyncio.run(main())
"""


async def test_a_function_of_the_main_script_runs_without_its_main_block(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(MAIN)
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        env=surroundings,
    )
    assert (run.stdout, run.stderr) == ("main block\n[8, '__mp_main__', True]\n", "")


def on_uvloop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_calls_deaths_and_kills_work_on_uvloop_as_well(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_pool(size=1) as pool:
            events = Events()
            assert await pool.run(tool("talk"), {}, on_event=events) == "done"
            assert "by print\n" in events.text(stream="stdout")
            assert await pool.run(tool("echo"), {"value": "x" * 3_000_000}) == "x" * 3_000_000
            with pytest.raises(Unavailable):
                await pool.run(tool("die"), {"how": "kill"})
            begun, written = Events(), tmp_path / "written"
            target = tool("daemonises", call=True)
            arguments = {"path": str(written), "seconds": 1000}
            call = asyncio.create_task(pool.run(target, arguments, on_event=begun))
            await begun.first()
            with Watch(descendants(os.getpid())) as watch:
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                assert watch.living() == set()
            assert not written.exists()
        assert descendants(os.getpid()) == set()

    on_uvloop(main)
