"""Jobs: kept before they are acknowledged, run once, and what came of them is known; on every
store.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import time
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import msgspec
import pytest

from tests.jobs.houses import ANN, EVE, ROOT, config_of, lines, working, written
from tests.redact_corpus import made
from tests.stores.server import running_server
from toolpost import Call, Caller, Limits, Progress, Runtime, ToolSpec, incarnation, tool
from toolpost.approvals import Decision
from toolpost.contracts import Declared
from toolpost.errors import (
    CallError,
    Conflict,
    Denied,
    InvalidArguments,
    QueueFull,
    ToolNotFound,
    Unavailable,
)
from toolpost.jobs import Board, Job, Jobs
from toolpost.jobs import desk as desk_module
from toolpost.jobs import held as held_module
from toolpost.jobs import running as running_module
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import calls
from toolpost.stores.memory import MemoryStore
from toolpost.testing import Clock

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
server = pytest.fixture(scope="module")(running_server)
WAIT = 20


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param != "postgres":
        return {"kind": request.param}
    return {"kind": "postgres", "dsn": request.getfixturevalue("server").database()}


async def ended(jobs: Jobs, job: Job, caller: Caller = ANN) -> Job:
    async with asyncio.timeout(WAIT):
        return await jobs.wait(job.id, caller=caller)


async def reached(jobs: Jobs, job: Job, state: str) -> Job:
    async with asyncio.timeout(WAIT):
        while (now := await jobs.get(job.id, caller=ROOT)).state != state:
            await asyncio.sleep(0.01)
    return now


async def begun(folder: Path, times: int) -> None:
    async with asyncio.timeout(WAIT):
        while len(lines(folder / "done")) < times:
            await asyncio.sleep(0.01)


async def test_a_job_runs_and_its_result_is_kept(store: dict[str, Any], tmp_path: Path) -> None:
    async with working(tmp_path, store=store) as (_, jobs):
        job = await jobs.submit("pay", {"to": "bob"}, caller=ANN, session_id="s")
        assert (job.state, job.tool, job.arguments) == ("queued", "pay", '{"to":"bob"}')
        job = await ended(jobs, job)
        assert job.state == "succeeded" and job.result is not None
        assert (job.result.output, job.result.metadata.call_id) == ("paid bob", job.call_id)
        assert job.expires is not None and job.ended is not None
        assert lines(tmp_path / "done") == ["bob"]


async def test_a_job_runs_for_the_principal_that_submitted_it(
    store: dict[str, Any], tmp_path: Path
) -> None:
    agent = Caller("key:1", key="agent-a")
    async with working(tmp_path, store=store) as (_, jobs):
        job = await ended(jobs, await jobs.submit("pay", {"to": "bob"}, caller=agent), agent)
        assert job.caller.principal == agent.principal == "key:agent-a"


async def test_a_job_says_what_was_redacted_in_its_result_and_so_does_its_repeat(
    store: dict[str, Any], tmp_path: Path
) -> None:
    token = "gh" + "p_" + made(36)

    @tool(effects="once", labels={"external": "true"})
    async def fetch() -> dict[str, str]:
        """Fetch a token."""
        return {"token": token}

    async with working(tmp_path, fetch, store=store) as (runtime, jobs):
        job = await ended(jobs, await jobs.submit("fetch", caller=ANN, key="k"))
        again = await runtime.execute("fetch", caller=ANN, key="k")
    assert job.result is not None and again.metadata.cached
    for result in (job.result, again):
        assert result.output == {"token": "[redacted:github_token]"}
        assert "Redacted in the output: github_token at /token." in str(result.notices)


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_job_that_is_stopped_while_it_waits_for_a_slot_has_not_begun(
    stopped: bool, store: dict[str, Any], tmp_path: Path
) -> None:
    begun, go_on, ran = asyncio.Event(), asyncio.Event(), list[int]()

    @tool(effects="once", timeout=60, limits=Limits(concurrency=1))
    async def charge(amount: int) -> int:
        """Charge somebody."""
        ran.append(amount)
        begun.set()
        await go_on.wait()
        return amount

    async with working(tmp_path, charge, store=store) as (runtime, jobs):
        first = asyncio.ensure_future(runtime.execute("charge", {"amount": 1}, caller=ANN))
        await begun.wait()
        job = await jobs.submit("charge", {"amount": 2}, caller=ANN)
        while not runtime.extension("slots").gauges()["slots_waiting"][1].get("charge"):
            await asyncio.sleep(0.01)
        if stopped:
            job = await jobs.cancel(job.id, caller=ANN)
            assert job.result is not None and job.result.error is not None
            assert (job.state, job.result.error.effects) == ("cancelled", "none")
        await jobs.close()
        go_on.set()
        await first
        if not stopped:
            assert (await jobs.get(job.id, caller=ANN)).state == "queued"
            async with Jobs(runtime) as others:
                job = await ended(others, job)
            assert job.state == "succeeded" and job.result is not None and job.result.output == 2
    assert ran == ([1] if stopped else [1, 2])


async def test_what_is_acknowledged_is_there_for_whoever_comes_next(
    store: dict[str, Any], tmp_path: Path
) -> None:
    async with working(tmp_path, store=store) as (runtime, jobs):
        await jobs.close()
        idle = Jobs(runtime)  # takes in, and runs nothing
        job = await idle.submit("pay", {"to": "bob"}, caller=ANN)
        assert (await idle.get(job.id, caller=ANN)).state == "queued"
        async with Jobs(runtime) as other:
            assert (await ended(other, job)).state == "succeeded"
    assert lines(tmp_path / "done") == ["bob"]


@pytest.mark.parametrize("over", [False, True])
async def test_what_a_job_reports_while_it_is_looked_for_is_heard(
    over: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, reported, end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool(tier=0, effects="read", timeout=60)
    async def tell(call: Call) -> None:
        """Say how far it is, once somebody looks for it."""
        await begin.wait()
        call.progress(1, 2, "half way")
        reported.set()
        await end.wait()

    async with working(tmp_path, tell) as (_, jobs), asyncio.timeout(WAIT):
        find = jobs.board.find

        async def slowly(*given: Any, **more: Any) -> Any:
            begin.set()
            await reported.wait()
            if over:
                end.set()
                await jobs.until_idle()
            return await find(*given, **more)

        job = await jobs.submit("tell", {}, caller=ANN)
        monkeypatch.setattr(jobs.board, "find", slowly)
        told: list[Job | Progress] = []
        async for one in jobs.follow(job.id, caller=ANN):
            told.append(one)
            if one == Progress(1, 2, "half way"):
                end.set()
    assert Progress(1, 2, "half way") in told
    assert isinstance(told[-1], Job) and told[-1].over


async def test_who_follows_hears_what_a_job_reports_and_how_it_ends(
    store: dict[str, Any], tmp_path: Path
) -> None:
    async with working(tmp_path, store=store) as (runtime, jobs):
        job = await jobs.submit("look_slowly", {"to": "x"}, caller=ANN)
        told: list[Job | Progress] = []
        async with asyncio.timeout(WAIT):
            async for one in jobs.follow(job.id, caller=ANN):
                told.append(one)
                if one == Progress(partial="a piece"):
                    (tmp_path / "go").touch()
        assert Progress(1, 2, "half way") in told
        assert isinstance(told[0], Job) and isinstance(told[-1], Job)
        assert told[0].state in ("queued", "running") and told[-1].state == "succeeded"
        assert told[-1].result is not None and told[-1].result.output == "seen x"

        (tmp_path / "go").unlink()
        job = await jobs.submit("look_slowly", {"to": "x"}, caller=ANN)
        elsewhere = Board(runtime.store, clock=jobs.board._clock)
        async with asyncio.timeout(WAIT):
            async for one in elsewhere.follow(job.id, caller=ANN):
                if one == Progress(1, 2, "half way"):
                    (tmp_path / "go").touch()
        assert isinstance(one, Job) and one.state == "succeeded"


@pytest.mark.parametrize("here", [True, False])
async def test_a_job_that_runs_is_stopped_by_who_cancels_it(
    store: dict[str, Any], tmp_path: Path, here: bool
) -> None:
    async with working(tmp_path, store=store, hangs=True) as (runtime, jobs):
        job = await jobs.submit("pay_slowly", {"to": "bob"}, caller=ANN)
        await reached(jobs, job, "running")
        if here:
            job = await jobs.cancel(job.id, caller=ANN)
        else:
            await Board(runtime.store, clock=jobs.board._clock).cancel(job.id, caller=ANN)
            job = await ended(jobs, job)
        assert job.state == "cancelled" and job.result is not None
        assert job.result.error is not None
        assert (job.result.error.code, job.result.error.effects) == ("CANCELLED", "unknown")
        assert await jobs.cancel(job.id, caller=ANN) == job, "once more changes nothing"


async def test_a_job_that_is_cancelled_in_time_never_begins(
    store: dict[str, Any], tmp_path: Path
) -> None:
    async with working(tmp_path, store=store, jobs={"running": 1}) as (_, jobs):
        first = await jobs.submit("look_slowly", {"to": "first"}, caller=ANN)
        second = await jobs.submit("pay", {"to": "second"}, caller=ANN)
        gone = await jobs.cancel(second.id, caller=ANN)
        assert gone.state == "cancelled" and gone.result is not None and gone.result.error
        assert gone.result.error.effects == "none"
        (tmp_path / "go").touch()
        assert (await ended(jobs, first)).state == "succeeded"
        assert (await jobs.get(second.id, caller=ANN)).state == "cancelled"
    assert lines(tmp_path / "done") == ["first"]


@pytest.mark.req("NA-12")
async def test_the_job_of_another_is_not_found_and_both_are_on_record(
    store: dict[str, Any], tmp_path: Path
) -> None:
    async with working(tmp_path, store=store) as (runtime, jobs):
        job = await ended(jobs, await jobs.submit("pay", {"to": "bob"}, caller=ANN))
        for work in (jobs.get, jobs.cancel, jobs.wait):
            with pytest.raises(ToolNotFound, match="There is no job"):
                await work(job.id, caller=EVE)
        with pytest.raises(ToolNotFound):
            await anext(aiter(jobs.follow(job.id, caller=EVE)))
        assert await jobs.list(caller=EVE) == []
        for hostile in ("", "jb-", "../jobs", job.id + "/1", "jb-" + "0" * 20, "jb-\0" + "0" * 19):
            with pytest.raises(ToolNotFound):
                await jobs.get(hostile, caller=ANN)
        assert [one.id for one in await jobs.list(caller=ROOT)] == [job.id]
        await runtime.extension("audit").close()
        refused = [one async for one in calls(lines_of(runtime.store)) if one.code == "NOT_FOUND"]
        assert {(one.asked.caller.id, one.asked.details["of"]["id"]) for one in refused} == {
            ("eve", "ann")
        }


async def test_what_would_be_refused_is_refused_at_once(
    store: dict[str, Any], tmp_path: Path
) -> None:
    async with working(tmp_path, store=store) as (_, jobs):
        for name, arguments, error in (
            ("pya", {}, ToolNotFound),
            ("pay", {"to": 5}, InvalidArguments),
            ("pay", {"to": "bob", "amount": 5}, InvalidArguments),
        ):
            with pytest.raises(error):
                await jobs.submit(name, arguments, caller=ANN)
        with pytest.raises(CallError):
            await jobs.submit("pay", {"to": "bob"}, caller=ANN, timeout=-1)
        assert await jobs.list(caller=ANN) == []


async def test_one_key_is_one_job_however_many_submit_it(
    store: dict[str, Any], tmp_path: Path
) -> None:
    async with working(tmp_path, store=store) as (_, jobs):
        wanted = [jobs.submit("pay", {"to": "bob"}, caller=ANN, key="k") for _ in range(10)]
        assert len({job.id for job in await asyncio.gather(*wanted)}) == 1
        again = await jobs.submit("pay", {"to": "bob"}, caller=ANN, key="k")
        again = await ended(jobs, again)
        assert again.result is not None and again.result.output == "paid bob"
        with pytest.raises(Conflict, match="other arguments"):
            await jobs.submit("pay", {"to": "eve"}, caller=ANN, key="k")
        other = await jobs.submit("pay", {"to": "bob"}, caller=EVE, key="k")
        assert other.id != again.id, "a key is its caller's"
        await ended(jobs, other, EVE)
        assert await jobs.submit("pay", {"to": "bob"}, caller=ANN, key="k") == again
    assert lines(tmp_path / "done") == ["bob", "bob"]


async def test_a_job_that_needs_a_yes_waits_for_it_through_a_restart(
    store: dict[str, Any], tmp_path: Path
) -> None:
    async with working(tmp_path, store=store) as (runtime, jobs):
        yes, no = [await jobs.submit("ask", {"to": to}, caller=ANN) for to in ("bob", "eve")]
        waits = [await reached(jobs, job, "waiting") for job in (yes, no)]
        await jobs.close()
        desk = runtime.extension("approval").approvals
        for job, approve in zip(waits, (True, False), strict=True):
            assert job.approval is not None
            decision = Decision(approve=approve)
            await desk.decide(job.approval, decision, by=ROOT, channel="terminal")
        assert lines(tmp_path / "done") == []
        async with Jobs(runtime) as later:
            assert (await ended(later, yes)).state == "succeeded"
            denied = await ended(later, no)
            assert denied.state == "failed" and denied.result is not None and denied.result.error
            assert denied.result.error.code == "APPROVAL_DENIED"
            third = await reached(
                later, await later.submit("ask", {"to": "zoe"}, caller=ANN), "waiting"
            )
            assert (await later.cancel(third.id, caller=ANN)).state == "cancelled"
    assert lines(tmp_path / "done") == ["bob"]


@pytest.mark.parametrize(("edited", "state"), [(False, "succeeded"), (True, "failed")])
async def test_a_job_that_was_approved_runs_only_the_code_that_was_approved(
    tmp_path: Path, edited: bool, state: str
) -> None:
    module = tmp_path / "job_tools_of_the_test.py"
    module.write_text("def send():\n    return 'old'\n")
    spec = ToolSpec(
        name="send",
        description="Send.",
        requires_approval=True,
        binding={"module": module.stem, "function": "send"},
        timeout=60,
    )
    async with working(tmp_path, Declared(spec, str(tmp_path))) as (runtime, jobs):
        job = await reached(jobs, await jobs.submit("send", {}, caller=ANN), "waiting")
        assert job.approval is not None
        if edited:
            module.write_text("def send():\n    return 'new'\n")
        desk = runtime.extension("approval").approvals
        await desk.decide(job.approval, Decision(approve=True), by=ROOT, channel="terminal")
        done = await ended(jobs, job)
    assert done.state == state and done.result is not None
    if edited:
        assert done.result.error is not None and done.result.error.code == "CONFLICT"
        assert "The code of send has changed" in done.result.error.message
    else:
        assert done.result.output == "old"


@pytest.mark.parametrize(
    ("approve", "state", "done"), [(True, "succeeded", ["bob"]), (False, "failed", [])]
)
async def test_a_job_that_was_answered_while_its_tool_was_gone_says_so_and_goes_on(
    tmp_path: Path, approve: bool, state: str, done: list[str]
) -> None:
    async with working(tmp_path) as (runtime, jobs):
        job = await reached(jobs, await jobs.submit("ask", {"to": "bob"}, caller=ANN), "waiting")
        entry = runtime.registry.entry("ask")
        assert entry is not None and job.approval is not None
        runtime.registry.update((), gone={"ask"})
        desk = runtime.extension("approval").approvals
        await desk.decide(job.approval, Decision(approve=approve), by=ROOT, channel="terminal")
        told = await reached(jobs, job, "queued")
        async with asyncio.timeout(WAIT):
            while told.progress is None:
                await asyncio.sleep(0.01)
                told = await jobs.get(job.id, caller=ANN)
        assert told.progress.message == "It waits: nobody here has the tool 'ask'."
        runtime.registry.update([entry], gone=set())
        assert (await ended(jobs, job)).state == state
    assert lines(tmp_path / "done") == done


async def test_jobs_wait_for_their_turn_where_a_rate_sends_them_away(tmp_path: Path) -> None:
    settings = {"extensions": {"rate": {"tools": {"pay": "2/s"}}}, "store": {"kind": "memory"}}
    async with working(tmp_path, **settings) as (_, jobs):
        job = await jobs.submit("pay", {"to": "a"}, caller=ANN)
        done = await ended(jobs, job)
        assert done.state == "succeeded"
        late: list[Job] = []
        while len(late) < 2:
            try:
                late.append(await jobs.submit("pay", {"to": f"{len(late)}"}, caller=ANN))
            except CallError as fault:
                assert fault.code == "RATE_LIMITED"
                await asyncio.sleep(0.05)
        assert {(await ended(jobs, one)).state for one in late} == {"succeeded"}


async def test_jobs_that_wait_for_a_slot_are_queued_and_callers_take_turns(tmp_path: Path) -> None:
    begun: list[str] = []
    turns = asyncio.Semaphore(0)

    @tool(tier=0, effects="read", timeout=60, limits=Limits(concurrency=2, queue=0))
    async def hold(name: str) -> str:
        """Hold on until it is told to go on."""
        begun.append(name)
        await turns.acquire()
        return name

    async with working(tmp_path, hold, store={"kind": "memory"}) as (_, jobs):
        mine = [await jobs.submit("hold", {"name": f"a{n}"}, caller=ANN) for n in range(20)]
        async with asyncio.timeout(WAIT):
            while len(begun) < 2:
                await asyncio.sleep(0.01)
        other = await jobs.submit("hold", {"name": "e"}, caller=EVE)
        states = [(await jobs.get(one.id, caller=ROOT)).state for one in (*mine, other)]
        assert states == ["running"] * 2 + ["queued"] * 19
        paid = await ended(jobs, await jobs.submit("pay", {"to": "bob"}, caller=ANN))
        assert paid.state == "succeeded", "jobs of another tool go on"
        for _ in range(21):
            turns.release()
        assert (await ended(jobs, other, EVE)).state == "succeeded"
        done = [await ended(jobs, one) for one in mine]
        assert {one.state for one in done} == {"succeeded"}
        assert {one.attempts for one in done} == {1}, "none was sent away by a full queue"
    assert begun.index("e") <= 4, "one with many jobs does not keep others waiting"


async def test_when_a_program_ends_its_jobs_are_left_to_the_next(
    store: dict[str, Any], tmp_path: Path
) -> None:
    async with working(tmp_path, store=store, hangs=True) as (runtime, jobs):
        look = await jobs.submit("look_slowly", {"to": "look"}, caller=ANN)
        pay = await jobs.submit("pay_slowly", {"to": "pay"}, caller=ANN)
        await begun(tmp_path, 2)
        await jobs.close()
        assert (await jobs.get(look.id, caller=ANN)).state == "queued"
        gone = await jobs.get(pay.id, caller=ANN)
        assert gone.state == "unknown" and gone.result is not None and gone.result.error
        assert gone.result.error.effects == "unknown"
        async with Jobs(runtime):
            await begun(tmp_path, 3)
    assert sorted(lines(tmp_path / "done")) == ["look", "look", "pay"]


async def test_a_report_that_waits_while_its_job_is_let_go_does_not_bring_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_module, "_TELL", 0.0)
    change, leaving, go = Board.change, asyncio.Event(), asyncio.Event()

    async def slowly(self: Board, job: Job, version: int) -> int | None:
        if job.state == "queued":
            leaving.set()
            await go.wait()
        return await change(self, job, version)

    async with working(tmp_path, store={"kind": "memory"}, hangs=True) as (_, jobs):
        job = await jobs.submit("look_slowly", {"to": "x"}, caller=ANN)
        await begun(tmp_path, 1)
        monkeypatch.setattr(Board, "change", slowly)
        held = jobs._held[job.id]
        closing = asyncio.create_task(jobs.close())
        async with asyncio.timeout(WAIT):
            await leaving.wait()
            held._heard(Progress(2, 2, "late"))
            telling = held._telling
            assert telling is not None
            await asyncio.wait([telling], timeout=0.05)  # it waits for its turn
            go.set()
            await closing
            await telling
        left = await jobs.get(job.id, caller=ANN)
        assert (left.state, left.holder) == ("queued", "")


async def test_what_may_be_repeated_and_has_a_key_goes_on_in_the_next_program(
    tmp_path: Path,
) -> None:
    async with working(tmp_path, hangs=True) as (_, jobs):
        job = await jobs.submit("put_slowly", {"to": "bob"}, caller=ANN, key="order-17")
        await begun(tmp_path, 1)
    (tmp_path / "go").touch()
    async with working(tmp_path) as (_, jobs):
        assert (await found(jobs, job.id)).state == "succeeded"
    assert lines(tmp_path / "done") == ["bob", "bob"]


async def test_what_was_broken_off_and_has_lost_its_tool_may_have_had_effects(
    tmp_path: Path,
) -> None:
    async with working(tmp_path, hangs=True) as (_, jobs):
        job = await jobs.submit("put_slowly", {"to": "bob"}, caller=ANN)
        await begun(tmp_path, 1)
    clock = Clock(time())
    async with without(tmp_path, clock) as jobs:
        clock.advance(3601)
        gone = await found(jobs, job.id)
    assert gone.state == "failed" and gone.result is not None and gone.result.error is not None
    assert (gone.result.error.code, gone.result.error.effects) == ("NOT_FOUND", "unknown")


async def test_given_time_a_program_sees_its_jobs_through(tmp_path: Path) -> None:
    async with working(tmp_path, store={"kind": "memory"}) as (_, jobs):
        job = await jobs.submit("pay_slowly", {"to": "bob"}, caller=ANN)
        await reached(jobs, job, "running")
        closing = asyncio.create_task(jobs.close(grace=WAIT))
        await asyncio.sleep(0)
        (tmp_path / "go").touch()
        await closing
        assert (await jobs.get(job.id, caller=ANN)).state == "succeeded"


async def test_what_a_job_was_given_is_kept_no_longer_than_it_is_needed(
    store: dict[str, Any], tmp_path: Path
) -> None:
    async with working(tmp_path, store=store) as (runtime, jobs):
        job = await jobs.submit("look_slowly", {"to": "x"}, caller=ANN, key="k")
        assert await runtime.store.scan("jobs.given")
        (tmp_path / "go").touch()
        await ended(jobs, job)
        async with asyncio.timeout(WAIT):
            while await runtime.store.scan("jobs.open"):
                await asyncio.sleep(0.01)
        for space in ("jobs.given", "jobs.cancel"):
            assert await runtime.store.scan(space) == []
        secret = "ghp_" + "a1B2" * 9
        with pytest.raises(Denied, match="github_token at /to"):
            await jobs.submit("look_slowly", {"to": f"x {secret}"}, caller=ANN)
        assert secret not in str([await runtime.store.scan(s) for s in ("jobs", "jobs.results")])
        assert secret not in str(await runtime.store.scan("jobs.given"))
        assert secret not in "".join(lines(tmp_path / "done"))


async def test_a_result_is_kept_for_a_while(tmp_path: Path) -> None:
    settings = {"jobs": {"ttl": 0.2}, "store": {"kind": "memory"}}
    async with working(tmp_path, **settings) as (_, jobs):
        job = await ended(jobs, await jobs.submit("pay", {"to": "bob"}, caller=ANN))
        assert job.result is not None
        async with asyncio.timeout(WAIT):
            with pytest.raises(ToolNotFound):
                while await jobs.get(job.id, caller=ANN):
                    await asyncio.sleep(0.02)
        assert await jobs.list(caller=ANN) == []


async def test_one_caller_has_so_many_open_jobs_and_no_more(tmp_path: Path) -> None:
    settings = {"jobs": {"most": 3}, "store": {"kind": "memory"}}
    async with working(tmp_path, **settings) as (_, jobs):
        for _ in range(3):
            await jobs.submit("look_slowly", {"to": "x"}, caller=ANN)
        with pytest.raises(QueueFull):
            await jobs.submit("look_slowly", {"to": "x"}, caller=ANN)
        await jobs.submit("look_slowly", {"to": "x"}, caller=EVE)


async def test_jobs_are_listed_in_their_order_page_by_page(
    store: dict[str, Any], tmp_path: Path
) -> None:
    async with working(tmp_path, store=store) as (_, jobs):
        submitted = []
        for turn in range(6):
            caller = ANN if turn % 2 else EVE
            job = await jobs.submit("pay", {"to": str(turn)}, caller=caller)
            submitted.append(await ended(jobs, job, caller))
            await asyncio.sleep(0.002)  # ids are in the order of milliseconds
        mine = [job.id for job in submitted if job.caller == ANN]
        first = await jobs.list(caller=ANN, limit=2)
        rest = await jobs.list(caller=ANN, after=first[-1].id)
        assert [job.id for job in (*first, *rest)] == mine
        assert [job.id for job in await jobs.list(caller=ROOT)] == [job.id for job in submitted]
        assert await jobs.list(caller=ANN, state="failed") == []
        for wrong in ({"after": "x"}, {"limit": 0}):
            with pytest.raises(InvalidArguments):
                await jobs.list(caller=ANN, **wrong)


async def test_a_job_that_may_hand_over_to_one_with_effects_is_not_repeated_lightly(
    tmp_path: Path,
) -> None:
    @tool(tier=0, effects="read", fallback="pay")
    async def price(to: str) -> str:
        """Look up a price; if that fails, pay."""
        raise RuntimeError

    async with working(tmp_path, price, store={"kind": "memory"}) as (_, jobs):
        assert (await jobs.submit("price", {"to": "x"}, caller=ANN)).effects == "once"


class Away:
    """The store of a program, which is away at times."""

    def __init__(self, runtime: Runtime) -> None:
        self.store, self.fails = runtime.store, 0
        self._put = runtime.store.put
        runtime.store.put = self.put  # type: ignore[method-assign]

    async def put(self, space: str, key: str, value: Any, **more: Any) -> int | None:
        if self.fails and space.startswith("jobs"):
            self.fails -= 1
            if self.fails % 2:
                await self._put(space, key, value, **more)  # done, but nobody hears of it
            raise Unavailable("The store is away.", retry_after=0.05)
        return await self._put(space, key, value, **more)


@pytest.mark.parametrize("fails", [1, 2, 3, 6])
async def test_a_store_that_is_away_for_a_moment_neither_loses_a_job_nor_repeats_it(
    tmp_path: Path, fails: int
) -> None:
    guards = ["slots"]  # no other ring helps
    async with working(tmp_path, store={"kind": "memory"}, guards=guards) as (runtime, jobs):
        away = Away(runtime)
        job = await jobs.submit("pay_slowly", {"to": "bob"}, caller=ANN)
        await reached(jobs, job, "running")
        away.fails = fails
        (tmp_path / "go").touch()
        job = await ended(jobs, job)
        assert job.state == "succeeded" and lines(tmp_path / "done") == ["bob"]

        job = await jobs.submit("pay", {"to": "zoe"}, caller=ANN)
        away.fails = fails
        assert (await ended(jobs, job)).state == "succeeded"
        assert lines(tmp_path / "done") == ["bob", "zoe"]


@pytest.mark.parametrize(("tool_name", "method"), [("pay", "put"), ("erase", "append")])
async def test_an_accepted_job_waits_for_a_store_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool_name: str, method: str
) -> None:
    """Its call is refused before it runs: its key, or its record, cannot be written."""

    @tool(tier=2, effects="once")
    async def erase(to: str) -> str:
        """Erase somebody, on record."""
        written(tmp_path / "done", to)
        return f"erased {to}"

    monkeypatch.setattr(running_module, "PATIENCE", 0.0)  # not so long for a rate
    async with working(tmp_path, erase, jobs={"running": 1}) as (runtime, jobs):
        inner, refused, away = runtime.store._store, 0, True
        whole = getattr(inner, method)

        async def broken(*given: Any, **more: Any) -> Any:
            nonlocal refused
            if away and (method == "append" or given[0] == "once"):
                refused += 1
                raise Unavailable("The store is away.", retry_after=0.01)
            return await whole(*given, **more)

        first = await jobs.submit("look_slowly", {"to": "ann"}, caller=ROOT)
        await begun(tmp_path, 1)
        job = await jobs.submit(tool_name, {"to": "bob"}, caller=ROOT)
        monkeypatch.setattr(inner, method, broken)
        (tmp_path / "go").touch()
        async with asyncio.timeout(WAIT):
            while refused < 3:
                await asyncio.sleep(0.01)
        assert (await jobs.get(job.id, caller=ROOT)).state in ("queued", "running")
        away = False
        assert (await ended(jobs, first, ROOT)).state == "succeeded"
        job = await ended(jobs, job, ROOT)
        assert job.state == "succeeded" and job.attempts > 1
    assert lines(tmp_path / "done") == ["ann", "bob"]


async def test_that_the_store_is_away_is_said_once_and_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = 0

    async def scan(*_: Any, **__: Any) -> Any:
        nonlocal asked
        asked += 1
        raise Unavailable("The store is away.")

    async with working(tmp_path, store={"kind": "memory"}) as (runtime, _):
        whole, runtime.store.scan = runtime.store.scan, scan  # type: ignore[method-assign]
        async with asyncio.timeout(WAIT):
            while asked < 3:
                await asyncio.sleep(0.05)
        runtime.store.scan = whole  # type: ignore[method-assign]
    said = [one for one in caplog.records if "looked after" in one.getMessage()]
    assert 0 < len(said) < asked
    assert all("The store is away." in one.getMessage() and not one.exc_info for one in said)


class Jumping(Clock):
    """A clock whose wall time jumps."""

    ahead = 0.0

    def time(self) -> float:
        return self.now + self.ahead


TEN_YEARS = 10 * 365 * 86_400.0


async def jump(runtime: Runtime, store: dict[str, Any]) -> None:
    """By the clock of the store ten years pass at once."""
    if store["kind"] == "postgres":
        connection = await asyncpg.connect(store["dsn"])
        await connection.execute(
            "UPDATE toolpost.records SET ends = now() - interval '1 s' WHERE ends IS NOT NULL"
        )
        await connection.close()
    else:
        runtime.store._store._clock = Clock(time() + TEN_YEARS)  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", [None, "order-1"])
async def test_a_clock_that_jumps_drops_no_job_that_runs_or_waits(
    store: dict[str, Any], tmp_path: Path, key: str | None
) -> None:
    settings = {"store": store, "jobs": {"running": 1}}
    async with working(tmp_path, **settings) as (runtime, jobs):
        job = await jobs.submit("pay_slowly", {"to": "bob"}, caller=ANN, key=key)
        await begun(tmp_path, 1)
        waits = await jobs.submit("pay", {"to": "zoe"}, caller=ANN)
        await jump(runtime, store)
        await jobs._take_up()
        assert (await jobs.get(job.id, caller=ANN)).state == "running"
        if key is not None:
            again = await jobs.submit("pay_slowly", {"to": "bob"}, caller=ANN, key=key)
            assert again.id == job.id
        (tmp_path / "go").touch()
        done = await ended(jobs, job)
        assert done.state == "succeeded" and done.result is not None
        assert done.result.output == "paid bob"
        assert (await ended(jobs, waits)).state == "succeeded"
    assert lines(tmp_path / "done") == ["bob", "zoe"]


async def test_a_clock_that_jumps_leaves_a_job_to_the_process_that_runs_it(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.jobs.houses", str(tmp_path), "pay_slowly", "", ""]
    program = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    assert program.stdout is not None
    try:
        told = {(await program.stdout.readline()).decode().strip() for _ in range(2)}
        (job_id,) = told - {"running"}
        async with working(tmp_path) as (runtime, _):
            await jump(runtime, {"kind": "sqlite"})
            async with Jobs(runtime, clock=Clock(time() + TEN_YEARS)) as jobs:
                await jobs._take_up()
                assert (await jobs.get(job_id, caller=ANN)).state == "running"
                program.kill()
                await program.wait()
                async with asyncio.timeout(WAIT):
                    while not (job := await jobs.get(job_id, caller=ANN)).over:
                        await asyncio.sleep(0.01)
                assert job.state == "unknown"
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    assert lines(tmp_path / "done") == ["bob"]


async def test_a_holder_elsewhere_is_dead_when_it_is_silent_and_not_when_a_clock_jumps() -> None:
    clock = Jumping(time())
    board = Board(MemoryStore(clock=clock), clock=clock)
    holder = "another-boot/1/7-7#0"
    await board.hold(holder, "here")
    assert await board.alive(holder)
    clock.ahead = TEN_YEARS
    assert await board.alive(holder), "its word has ended by the clock only"
    clock.advance(15)
    await board.hold(holder, "here")
    assert await board.alive(holder)
    clock.ahead = -TEN_YEARS
    clock.advance(59)
    assert await board.alive(holder)
    clock.advance(2)
    assert not await board.alive(holder), "and a clock that goes back keeps nobody alive"


async def test_a_program_waits_for_what_may_be_left_by_a_holder_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "_LEFT", 0.01)
    clock = Jumping(time())
    async with working(tmp_path) as (runtime, first):
        await first.close()
        taking = Jobs(runtime, clock=clock)
        job = await taking.submit("pay", {"to": "bob"}, caller=ANN)
        found = await taking.board.found(job.id)
        assert found is not None
        held = msgspec.structs.replace(found[0], holder="another-boot/1/7-7#0")
        assert await taking.board.change(held, found[1]) is not None
        async with Jobs(runtime, clock=clock) as jobs, asyncio.timeout(WAIT):
            idle = asyncio.create_task(jobs.until_idle())
            while not jobs.board.in_doubt:
                await asyncio.sleep(0.01)
            assert not idle.done() and lines(tmp_path / "done") == []
            clock.advance(31)
            await idle
            assert (await jobs.get(job.id, caller=ANN)).state == "succeeded"


async def test_what_is_left_of_a_job_that_was_not_put_down_to_the_end_goes(tmp_path: Path) -> None:
    clock = Jumping(time())
    async with working(tmp_path, store={"kind": "memory"}) as (runtime, first):
        await first.close()
        jobs, put = Jobs(runtime, clock=clock), runtime.store.put

        async def broken(space: str, key: str, value: Any, **more: Any) -> int | None:
            if space == "jobs":
                raise Unavailable("The store is away.")
            return await put(space, key, value, **more)

        runtime.store.put = broken  # type: ignore[method-assign]
        with pytest.raises(Unavailable):
            await jobs.submit("pay", {"to": "bob"}, caller=ANN)
        runtime.store.put = put  # type: ignore[method-assign]
        for seconds, left in ((0, 1), (59, 1), (2, 0)):
            clock.advance(seconds)
            assert [one async for one in jobs.board.left()] == []
            for space in ("jobs.given", "jobs.of", "jobs.open"):
                assert len(await runtime.store.scan(space)) == left


async def test_a_job_that_has_not_begun_waits_a_month_for_its_tool(tmp_path: Path) -> None:
    clock = Clock(time())
    async with working(tmp_path) as (runtime, first):
        await first.close()
        job = await Jobs(runtime, clock=clock).submit("pay", {"to": "bob"}, caller=ANN)
    async with without(tmp_path, clock) as jobs:
        await jobs._take_up()
        assert (await jobs.get(job.id, caller=ANN)).state == "queued"
        clock.advance(31 * 86_400)
        await jobs._take_up()
        job = await jobs.get(job.id, caller=ANN)
    assert job.state == "failed" and job.result is not None and job.result.error is not None
    assert (job.result.error.code, job.result.error.effects) == ("NOT_FOUND", "none")


@pytest.fixture
async def killed(tmp_path: Path) -> AsyncIterator[Any]:
    """Kills a program in the middle of a job, and says the job's id."""

    def hung(name: str, guards: str = "", key: str = "") -> str:
        words = [sys.executable, "-m", "tests.jobs.houses", str(tmp_path), name, guards, key]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            told = {program.stdout.readline().strip() for _ in range(2)} - {"running"}
            program.kill()
        return told.pop()

    yield hung


async def found(jobs: Jobs, job_id: str) -> Job:
    async with asyncio.timeout(WAIT):
        return await jobs.wait(job_id, caller=ANN)


@pytest.mark.parametrize("key", ["", "order-17"])
@pytest.mark.parametrize("name", ["look_slowly", "put_slowly"])
async def test_what_may_be_repeated_is_when_its_process_was_killed(
    tmp_path: Path, killed: Any, name: str, key: str
) -> None:
    job_id = await asyncio.to_thread(killed, name, "", key)
    (tmp_path / "go").touch()
    async with working(tmp_path) as (_, jobs):
        job = await found(jobs, job_id)
    assert (job.state, job.attempts) == ("succeeded", 2)
    assert lines(tmp_path / "done") == ["bob", "bob"]


@pytest.mark.parametrize("guards", ["", "slots"])
async def test_what_may_have_had_effects_is_unknown_when_its_process_was_killed(
    tmp_path: Path, killed: Any, guards: str
) -> None:
    job_id = await asyncio.to_thread(killed, "pay_slowly", guards)
    settings = {"guards": guards.split(",")} if guards else {}
    async with working(tmp_path, **settings) as (_, jobs):
        job = await found(jobs, job_id)
    assert job.state == "unknown" and job.result is not None and job.result.error is not None
    assert (job.result.error.code, job.result.error.effects) == ("CONFLICT", "unknown")
    assert lines(tmp_path / "done") == ["bob"]


async def test_an_approved_job_that_was_done_when_its_process_died_has_its_result(
    tmp_path: Path,
) -> None:
    dead = f"{incarnation.mine().rpartition('/')[0]}/2147483646-1#0"
    async with working(tmp_path) as (runtime, jobs):
        store, desk = runtime.store, runtime.extension("approval").approvals
        job = await jobs.submit("ask", {"to": "bob"}, caller=ANN)
        job = await reached(jobs, job, "waiting")
        kept = [(s, *one) for s in ("jobs.given", "jobs.open") for one in await store.scan(s)]
        assert job.approval is not None
        yes = Decision(approve=True)
        await desk.decide(job.approval, yes, by=ROOT, channel="terminal")
        job = await ended(jobs, job)
        await jobs.close()
        # it died before it could say so in the job
        before = msgspec.structs.replace(job, state="running", holder=dead, result=None)
        await store.put("jobs", job.id, msgspec.to_builtins(before))
        await store.put("jobs.results", f"{job.id}/{job.attempts}", None)
        for space, key, record in kept:
            await store.put(space, key, record.value)
        async with Jobs(runtime) as later:
            job = await ended(later, job)
    assert job.state == "succeeded" and job.result is not None and job.result.metadata.cached
    assert lines(tmp_path / "done") == ["bob"]


async def test_a_cancelled_job_whose_process_was_killed_is_not_taken_up(
    tmp_path: Path, killed: Any
) -> None:
    job_id = await asyncio.to_thread(killed, "look_slowly")
    async with working(tmp_path) as (runtime, jobs):
        await jobs.close()
        board = Board(runtime.store, clock=jobs.board._clock)
        # whoever looked last did not see that it was dead
        await runtime.store.put("jobs.cancel", job_id, "ann")
        async with Jobs(runtime):
            job = await board.get(job_id, caller=ANN)
    assert job.state == "cancelled" and lines(tmp_path / "done") == ["bob"]


async def test_a_job_that_kills_whoever_runs_it_is_given_up(tmp_path: Path, killed: Any) -> None:
    job_id = await asyncio.to_thread(killed, "look_slowly")
    async with working(tmp_path) as (runtime, jobs):
        await jobs.close()
        record = await runtime.store.get("jobs", job_id)
        assert record is not None
        await runtime.store.put("jobs", job_id, {**record.value, "deaths": 5, "state": "running"})
        async with Jobs(runtime) as later:
            job = await found(later, job_id)
    assert job.state == "failed" and job.result is not None and job.result.error is not None
    assert job.result.error.code == "UNAVAILABLE" and lines(tmp_path / "done") in (
        ["bob"],
        ["bob", "bob"],
    )


async def test_a_program_without_the_tool_leaves_a_job_to_one_that_has_it(tmp_path: Path) -> None:
    @tool(tier=0, effects="read")
    async def rare() -> str:
        """Only here."""
        return "rare"

    async with working(tmp_path, rare) as (runtime, jobs):
        await jobs.close()
        job = await Jobs(runtime).submit("rare", {}, caller=ANN)
    async with working(tmp_path) as (_, jobs):
        await jobs._take_up()
        assert (await jobs.get(job.id, caller=ANN)).state == "queued"
    async with working(tmp_path, rare) as (_, jobs):
        assert (await found(jobs, job.id)).state == "succeeded"


async def test_a_job_whose_tool_is_gone_when_its_turn_comes_waits_for_it(tmp_path: Path) -> None:
    async with working(tmp_path, jobs={"running": 1}) as (runtime, jobs):
        first = await jobs.submit("look_slowly", {"to": "first"}, caller=ANN)
        job = await jobs.submit("pay", {"to": "bob"}, caller=ANN)
        entry = runtime.registry.entry("pay")
        assert entry is not None
        runtime.registry.update((), gone={"pay"})
        (tmp_path / "go").touch()
        assert (await ended(jobs, first)).state == "succeeded"
        async with asyncio.timeout(WAIT):
            while (now := await jobs.get(job.id, caller=ANN)).progress is None:
                assert now.state == "queued"
                await asyncio.sleep(0.01)
        assert now.progress.message == "It waits: nobody here has the tool 'pay'."
        runtime.registry.update([entry], gone=set())
        assert (await ended(jobs, job)).state == "succeeded"
    assert lines(tmp_path / "done") == ["first", "bob"]


@asynccontextmanager
async def without(folder: Path, clock: Clock) -> AsyncIterator[Jobs]:
    """A program that has none of the tools."""
    async with Runtime(config_of(folder)) as runtime, Jobs(runtime, clock=clock) as jobs:
        yield jobs


async def test_what_may_have_had_effects_and_has_lost_its_tool_is_unknown_after_a_while(
    tmp_path: Path, killed: Any
) -> None:
    job_id = await asyncio.to_thread(killed, "pay_slowly")
    clock = Clock(time())
    async with without(tmp_path, clock) as jobs:
        assert (await jobs.get(job_id, caller=ANN)).state == "running", "it may come back"
    async with without(tmp_path, clock) as jobs:
        clock.advance(61)
        job = await found(jobs, job_id)
    assert job.state == "unknown" and job.result is not None and job.result.error is not None
    assert job.result.error.effects == "unknown"


async def test_what_may_be_repeated_waits_for_its_tool_says_so_and_then_fails(
    tmp_path: Path, killed: Any
) -> None:
    job_id = await asyncio.to_thread(killed, "put_slowly")
    clock = Clock(time())
    async with without(tmp_path, clock) as jobs:
        job = await jobs.get(job_id, caller=ANN)
        assert job.state == "queued" and job.progress is not None
        assert job.progress.message == "It waits: nobody here has the tool 'put_slowly'."
        clock.advance(3000)
        await jobs._take_up()
        assert (await jobs.get(job_id, caller=ANN)).state == "queued"
        clock.advance(601)
        job = await found(jobs, job_id)
    assert job.state == "failed" and job.result is not None and job.result.error is not None
    assert (job.result.error.code, job.result.error.effects) == ("NOT_FOUND", "unknown")


async def test_what_may_be_repeated_runs_when_its_tool_is_back(tmp_path: Path, killed: Any) -> None:
    job_id = await asyncio.to_thread(killed, "look_slowly")
    async with without(tmp_path, Clock(time())) as jobs:
        assert (await jobs.get(job_id, caller=ANN)).state == "queued"
    (tmp_path / "go").touch()
    async with working(tmp_path) as (_, jobs):
        job = await found(jobs, job_id)
    assert (job.state, job.attempts, job.progress) == ("succeeded", 2, None)


async def test_a_program_runs_what_is_left_and_then_has_nothing_to_do(tmp_path: Path) -> None:
    async with working(tmp_path) as (runtime, jobs):
        await jobs.close()
        idle = Jobs(runtime)
        left = [await idle.submit("pay", {"to": str(n)}, caller=ANN) for n in range(20)]
        async with Jobs(runtime) as other, asyncio.timeout(WAIT):
            await other.until_idle()
            states = {(await other.get(job.id, caller=ANN)).state for job in left}
        assert states == {"succeeded"} and len(lines(tmp_path / "done")) == 20
