"""Durable jobs on a real bus: gateways here, workers beside them or in processes to be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.js import JetStreamContext

from tests.bus.house import bus, gateway, until, worker, worker_process
from toolpost import Call, Caller, Limits, Progress, Runtime, ToolFailed, incarnation, tool
from toolpost.bus.embedded import Embedded
from toolpost.bus.parcels import Parcels, Standing
from toolpost.bus.wire import TICKET
from toolpost.digest import digest
from toolpost.jobs import Job, Jobs
from toolpost.ledger.reading import last_calls
from toolpost.result import Result
from toolpost.worker import taking as taking_module
from toolpost.worker.taking import Taking

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
ANN = Caller("ann")
ran: list[str] = []
go = asyncio.Event()


SECRET = "AKIAQYLPMN5HHHFPZAM2"


@tool(tier=1, timeout=30)
async def pay(to: str) -> str:
    """Pay somebody, which must happen once."""
    if to == "nobody":
        raise ToolFailed("There is nobody.", effects="none")
    ran.append(to)
    return f"paid {to}"


@tool(tier=1, timeout=60)
async def slow(to: str) -> str:
    """Pay somebody when it is told to go on, and give away too much."""
    ran.append(to)
    await go.wait()
    return f"paid with {SECRET}"


@tool(tier=0, effects="read", timeout=30, limits=Limits(concurrency=1))
async def hold(call: Call, name: str) -> str:
    """Say how far it is, and wait until it is told to go on."""
    ran.append(name)
    call.progress(1, 2, "half way")
    await go.wait()
    return f"held {name}"


@tool(tier=0, effects="read", timeout=60, limits=Limits(concurrency=3))
async def few(to: str) -> str:
    """Wait until it is told to go on, three at once."""
    ran.append(to)
    await go.wait()
    return to


@pytest.fixture(autouse=True)
def _afresh() -> None:
    global go
    ran.clear()
    go = asyncio.Event()  # an event belongs to a loop, and each test may have its own


@asynccontextmanager
async def house(
    nats: Embedded, prefix: str, base: Path, *, queued: bool = True, **more: Any
) -> AsyncIterator[tuple[Runtime, Jobs]]:
    """``queued``: the workers that are there take jobs, once they have said so."""
    async with (
        gateway(nats, prefix, base, **{"store": {"kind": "sqlite"}, **more}) as tools,
        Jobs(tools) as jobs,
    ):
        await until(lambda: not queued or all(_takes(jobs, one.name) for one in tools.list()))
        yield tools, jobs


async def ended(jobs: Jobs, job: Job) -> Job:
    return await asyncio.wait_for(jobs.wait(job.id, caller=ANN), 40)


def code(job: Job) -> tuple[str, str]:
    assert job.result is not None and job.result.error is not None, job
    return job.result.error.code, job.result.error.effects


async def buried(nats: Embedded, prefix: str) -> list[dict[str, Any]]:
    """What stands in the stream of those that were given up."""
    async with bus(nats, prefix) as stranger:
        stream = (await stranger.client()).jetstream()
        count = (await stream.stream_info(f"{prefix}-dead")).state.messages
        found = [await stream.get_msg(f"{prefix}-dead", seq=n + 1) for n in range(count)]
        return [json.loads(one.data or b"")["payload"] for one in found]


async def in_queue(nats: Embedded, prefix: str) -> int:
    async with bus(nats, prefix) as stranger:
        stream = (await stranger.client()).jetstream()
        return (await stream.stream_info(f"{prefix}-jobs")).state.messages


async def test_a_job_of_a_worker_goes_through_the_queue_and_its_end_is_kept(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with worker(nats, prefix, tmp_path, [pay]), house(nats, prefix, tmp_path) as (_, jobs):
        job = await ended(jobs, await jobs.submit("pay", {"to": "bob"}, caller=ANN, key="k"))
        assert job.result is not None
        assert (job.state, job.result.output, ran) == ("succeeded", "paid bob", ["bob"])
        assert job.carrier == "nats"
        assert "carrier" not in job.to_dict()
        again = await jobs.submit("pay", {"to": "bob"}, caller=ANN, key="k")
        assert (again.id, ran) == (job.id, ["bob"])
        bad = await ended(jobs, await jobs.submit("pay", {"to": "nobody"}, caller=ANN))
        assert (bad.state, code(bad)) == ("failed", ("EXECUTION_ERROR", "none"))
        await until_empty(nats, prefix)
        large = await ended(jobs, await jobs.submit("pay", {"to": "x" * 2_000_000}, caller=ANN))
        assert large.state == "succeeded", large.result


async def until_empty(nats: Embedded, prefix: str) -> None:
    async with asyncio.timeout(20):
        while await in_queue(nats, prefix):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("name", "most"), [("slow", 10), ("few", 3)])
async def test_a_worker_runs_as_many_jobs_of_a_tool_at_once_as_its_limits_say(
    nats: Embedded, prefix: str, tmp_path: Path, name: str, most: int
) -> None:
    async with (
        worker(nats, prefix, tmp_path, [slow, few]),
        house(nats, prefix, tmp_path) as (_, jobs),
    ):
        await until(lambda: _takes(jobs, name))
        given = [{"to": str(number)} for number in range(most + 1)]
        begun = [await jobs.submit(name, one, caller=ANN) for one in given]
        await until(lambda: len(ran) == most)
        await until_queued(nats, prefix, most + 1)
        assert len(ran) == most
        go.set()
        assert {(await ended(jobs, job)).state for job in begun} == {"succeeded"}
        assert sorted(ran) == sorted(one["to"] for one in given)


async def test_what_a_job_reports_is_heard_and_it_can_be_stopped_in_the_queue_and_while_it_runs(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with (
        worker(nats, prefix, tmp_path, [hold]) as one,
        house(nats, prefix, tmp_path) as (_, jobs),
    ):
        first = await jobs.submit("hold", {"name": "first"}, caller=ANN)
        async with asyncio.timeout(20):
            async for told in jobs.follow(first.id, caller=ANN):
                if told == Progress(1, 2, "half way"):
                    break
        second = await jobs.submit("hold", {"name": "second"}, caller=ANN)
        await until_queued(nats, prefix, 2)
        stopped = await jobs.cancel(second.id, caller=ANN)
        assert (stopped.state, code(stopped)) == ("cancelled", ("CANCELLED", "none"))
        stopped = await jobs.cancel(first.id, caller=ANN)
        assert stopped.state == "cancelled"
        await until(lambda: not one.running)
        go.set()
        third = await ended(jobs, await jobs.submit("hold", {"name": "third"}, caller=ANN))
        assert third.state == "succeeded"
        await until_empty(nats, prefix)
        assert ran == ["first", "third"]


async def until_queued(nats: Embedded, prefix: str, count: int) -> None:
    async with asyncio.timeout(20):
        while await in_queue(nats, prefix) < count:
            await asyncio.sleep(0.02)


@pytest.mark.req("NA-9")
async def test_attack_a_worker_is_killed_what_reads_runs_elsewhere_and_the_rest_is_unknown(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    """Attack 1, of jobs."""
    async with house(nats, prefix, tmp_path) as (_, jobs):
        async with worker_process(nats, prefix, tmp_path) as child:
            await until(lambda: _takes(jobs, "pay") and _takes(jobs, "wait"))
            paying = await jobs.submit("pay", {"amount": 5, "seconds": 60}, caller=ANN)
            waiting = await jobs.submit("wait", {"seconds": 1.5}, caller=ANN)
            await until(lambda: {"waiting", "paying 5"} <= set(_done(tmp_path)))
            os.kill(child.pid, signal.SIGKILL)
            await child.wait()
            async with worker_process(nats, prefix, tmp_path):
                paid, waited = await ended(jobs, paying), await ended(jobs, waiting)
        assert (paid.state, code(paid)) == ("unknown", ("CONFLICT", "unknown"))
        assert waited.result is not None
        assert (waited.state, waited.result.output) == ("succeeded", "waited")
        assert sorted(_done(tmp_path)) == ["paying 5", "waiting", "waiting"]
        (dead,) = await buried(nats, prefix)
        assert (dead["tool"], dead["code"]) == ("pay", "CONFLICT")
        assert dead["parcel"].startswith(paying.id)


async def test_a_job_whose_workers_die_again_and_again_is_given_up_with_the_reason(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with house(nats, prefix, tmp_path) as (_, jobs), bus(nats, prefix) as stranger:
        go.set()
        async with worker(nats, prefix, tmp_path, [hold]) as one:
            await until(lambda: _takes(jobs, "hold"))
            await one._jobs.leave()  # it is there, and takes nothing
            job = await jobs.submit("hold", {"name": "x"}, caller=ANN)
            await until_queued(nats, prefix, 1)
            begun = Standing(state="begun", by="a-dead-worker", deaths=4)
            await Parcels(stranger).stand(f"{job.id}-1-1", begun)
        async with worker(nats, prefix, tmp_path, [hold]):
            job = await ended(jobs, job)
        assert (job.state, code(job)[0], ran) == ("failed", "UNAVAILABLE", [])
        (dead,) = await buried(nats, prefix)
        assert "5 workers have died" in dead["reason"]


def _takes(jobs: Jobs, name: str) -> bool:
    return jobs._carriers.of(name) == "nats"


async def test_attack_nats_is_killed_while_jobs_wait_and_run_and_none_is_lost_or_done_twice(
    prefix: str, tmp_path: Path
) -> None:
    """Attack 3, of jobs."""
    async with (
        Embedded(tmp_path / "nats") as nats,
        worker(nats, prefix, tmp_path, [pay, hold, slow]),
        house(nats, prefix, tmp_path) as (_, jobs),
    ):
        running = await jobs.submit("slow", {"to": "bob"}, caller=ANN)
        await until(lambda: ran == ["bob"])
        await nats.stop()
        waiting = await jobs.submit("pay", {"to": "cid"}, caller=ANN)
        assert waiting.state == "queued"
        go.set()
        await nats.start()
        paid = await ended(jobs, waiting), await ended(jobs, running)
        assert [one.state for one in paid] == ["succeeded", "succeeded"], paid
        assert ran == ["bob", "cid"]


async def test_attack_a_bus_that_has_forgotten_everything_repeats_nothing_that_has_effects(
    prefix: str, tmp_path: Path
) -> None:
    first = Embedded(tmp_path / "first")
    second = Embedded(tmp_path / "second", port=int(first.url.rpartition(":")[2]))
    await first.start()
    try:
        async with (
            worker(first, prefix, tmp_path, [slow, hold]),
            house(first, prefix, tmp_path) as (_, jobs),
        ):
            paying = await jobs.submit("slow", {"to": "bob"}, caller=ANN)
            holding = await jobs.submit("hold", {"name": "x"}, caller=ANN)
            await until(lambda: len(ran) == 2)
            await first.stop()
            await second.start()
            go.set()
            paid, held = await ended(jobs, paying), await ended(jobs, holding)
    finally:
        await second.stop()
    assert paid.state in ("succeeded", "unknown"), "by who was heard first"
    assert held.state == "succeeded"
    assert ran.count("bob") == 1


async def test_another_gateway_sees_through_what_one_has_handed_over(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    more: dict[str, Any] = {"guards": ["sanitize", "once", "slots"], "observers": ["audit"]}
    async with worker(nats, prefix, tmp_path, [slow]):
        async with house(nats, prefix, tmp_path, **more) as (_, jobs):
            job = await jobs.submit("slow", {"to": "bob"}, caller=ANN, key="k")
            await until(lambda: len(ran) == 1)
        async with house(nats, prefix, tmp_path, **more) as (tools, jobs):
            assert (await jobs.get(job.id, caller=ANN)).state == "running"
            go.set()
            job = await ended(jobs, job)
            assert job.result is not None
            assert job.state == "succeeded"
            assert SECRET not in str(job.result.output), "it is cleaned like any other"
            assert len(ran) == 1
            await tools.extension("audit").close()
            assert job.call_id in {one.asked.call_id for one in await last_calls(tools.store, 9)}


async def test_a_gateway_that_died_before_it_had_handed_a_job_over_loses_nothing(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    guards = ["once", "slots"]
    async with (
        worker(nats, prefix, tmp_path, [pay]),
        gateway(nats, prefix, tmp_path, store={"kind": "sqlite"}, guards=guards) as tools,
    ):
        closed = Jobs(tools)  # takes jobs in, and runs none
        await until(lambda: _takes(closed, "pay"))
        job = await closed.submit("pay", {"to": "bob"}, caller=ANN, key="k")
        found = await closed.board.found(job.id)
        assert found is not None
        gone = f"{incarnation.mine().rpartition('/')[0]}/2147483646-1"
        dead = msgspec.structs.replace(
            found[0], state="running", attempts=1, started=1.0, call_id="c1", holder=f"{gone}#0"
        )
        place = digest([ANN.id, ANN.user, "pay", "k"])
        claim = {"arguments": "x", "life": gone, "run": "c1", "until": 0.0}
        await tools.store.put("once", place, claim)
        assert await closed.board.change(dead, found[1]) is not None
        async with Jobs(tools) as jobs:
            job = await ended(jobs, job)
        assert (job.state, job.attempts, ran) == ("succeeded", 2, ["bob"])


async def test_attack_a_message_in_the_queue_without_its_grant_runs_nothing(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with house(nats, prefix, tmp_path) as (_, jobs), bus(nats, prefix) as stranger:
        async with worker(nats, prefix, tmp_path, [pay]) as one:
            await until(lambda: _takes(jobs, "pay"))
            await one._jobs.leave()
            job = await jobs.submit("pay", {"to": "bob"}, caller=ANN)
            await until_queued(nats, prefix, 1)
        stream = (await stranger.client()).jetstream()
        seen = await stream.get_last_msg(f"{prefix}-jobs", f"{prefix}.job.>")
        assert seen.headers is not None and seen.data is not None
        grant = {TICKET: seen.headers[TICKET]}
        with pytest.raises(Exception, match="maximum messages per subject"):
            await stream.publish(f"{prefix}.job.{job.id}-1-1.pay", seen.data, headers=grant)
        await stream.publish(f"{prefix}.job.{job.id}-9-1.pay", seen.data, headers=grant)
        await stream.publish(f"{prefix}.job.mallory.pay", seen.data)
        async with worker(nats, prefix, tmp_path, [pay]):
            client, subject = await stranger.client(), stranger.subjects.request("pay")
            answer = await client.request(subject, seen.data, timeout=5, headers=grant)
            assert b"UNAUTHORIZED" in answer.data, "a grant is no ticket"
            job = await ended(jobs, job)
            await until_empty(nats, prefix)
        assert (job.state, ran) == ("succeeded", ["bob"])
        assert {one["code"] for one in await buried(nats, prefix)} == {"UNAUTHORIZED"}


async def test_jobs_of_workers_that_take_none_are_calls(
    nats: Embedded, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(self: Any) -> None:
        """As a worker in another language, or without JetStream."""

    monkeypatch.setattr(Taking, "serve", never)
    async with (
        worker(nats, prefix, tmp_path, [pay]),
        house(nats, prefix, tmp_path, queued=False) as (_, jobs),
    ):
        job = await ended(jobs, await jobs.submit("pay", {"to": "bob"}, caller=ANN))
        assert (job.state, job.carrier, ran) == ("succeeded", "", ["bob"])


async def test_a_worker_that_stops_ends_its_jobs_or_leaves_them_to_another(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with house(nats, prefix, tmp_path) as (_, jobs):
        async with worker(nats, prefix, tmp_path, [hold, slow], drain=0.1):
            await until(lambda: _takes(jobs, "hold") and _takes(jobs, "slow"))
            holding = await jobs.submit("hold", {"name": "x"}, caller=ANN)
            paying = await jobs.submit("slow", {"to": "bob"}, caller=ANN)
            await until(lambda: len(ran) == 2)
        paid = await ended(jobs, paying)
        assert (paid.state, code(paid)) == ("unknown", ("CONFLICT", "unknown"))
        go.set()
        async with worker(nats, prefix, tmp_path, [hold, slow]):
            assert (await ended(jobs, holding)).state == "succeeded"
        assert sorted(ran) == ["bob", "x", "x"]


async def test_a_tool_that_is_dropped_is_taken_no_more_and_what_runs_of_it_ends(
    nats: Embedded, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropped, back, and dropped again; and each time the loop does not hear that it is to end."""
    fetch, lost = JetStreamContext.PullSubscription.fetch, iter(range(4))

    async def deaf(self: Any, batch: int, timeout: float) -> Any:
        try:
            return await fetch(self, batch, timeout)
        except asyncio.CancelledError:  # a wait_for of Python 3.11 may lose it
            if next(lost, None) is None:
                raise
            raise TimeoutError from None

    monkeypatch.setattr(JetStreamContext.PullSubscription, "fetch", deaf)
    async with (
        worker(nats, prefix, tmp_path, [pay, hold]) as one,
        house(nats, prefix, tmp_path) as (_, jobs),
    ):
        registry = one._runtime.registry
        running = await jobs.submit("hold", {"name": "x"}, caller=ANN)
        await until(lambda: ran == ["x"])
        for _ in range(2):
            registry.remove("hold", "pay")
            await until(lambda: not _pulling(), 5)
            registry.add(hold, pay)
            await until(lambda: len(_pulling()) == 2, 5)
        go.set()
        assert (await ended(jobs, running)).state == "succeeded"
        await until(lambda: _takes(jobs, "pay"))
        paid = await ended(jobs, await jobs.submit("pay", {"to": "bob"}, caller=ANN))
        assert (paid.state, ran) == ("succeeded", ["x", "bob"])
    assert not _pulling()


def _pulling() -> list[Any]:
    """The loops that ask for jobs, in all of this process."""
    names = (getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
    return [name for name in names if name == Taking._pull.__qualname__]


async def test_what_changes_while_its_job_is_claimed_does_not_run_and_the_job_comes_again(
    nats: Embedded, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand, put_back = Parcels.stand, Parcels.put_back
    claims = list[str]()

    async with worker(nats, prefix, tmp_path, [pay]) as one, house(nats, prefix, tmp_path) as made:

        async def changing(self: Parcels, key: str, how: Standing, version: int = 0) -> Any:
            claimed = await stand(self, key, how, version)
            claims.append(f"{how.state} {version}")
            if len(claims) == 1:
                one._runtime.registry.replace(other)
            return claimed

        async def back(self: Parcels, key: str, version: int) -> bool:
            one._runtime.registry.replace(pay)
            return await put_back(self, key, version)

        monkeypatch.setattr(Parcels, "stand", changing)
        monkeypatch.setattr(Parcels, "put_back", back)
        monkeypatch.setattr(taking_module, "_AGAIN", 0.05)
        jobs = made[1]
        job = await ended(jobs, await jobs.submit("pay", {"to": "bob"}, caller=ANN))
        assert (job.state, ran) == ("succeeded", ["bob"])
        assert claims[:2] == ["begun 0", "begun 0"], "the first claim is gone, nobody has died"
        assert claims[2].startswith("ended ")
        assert len(claims) == 3


@tool(name="pay", tier=1, timeout=30)
async def other(to: str) -> str:
    """Pay somebody else."""
    ran.append(f"not {to}")
    return "paid"


async def test_a_claim_that_tells_of_a_death_is_not_taken_back_whatever_changes(
    nats: Embedded, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand, claims = Parcels.stand, list[tuple[str, int]]()
    go.set()
    async with house(nats, prefix, tmp_path) as (_, jobs), bus(nats, prefix) as stranger:
        async with worker(nats, prefix, tmp_path, [hold]) as one:
            await until(lambda: _takes(jobs, "hold"))
            await one._jobs.leave()
            job = await jobs.submit("hold", {"name": "x"}, caller=ANN)
            await until_queued(nats, prefix, 1)
            dead = await stand(
                Parcels(stranger), f"{job.id}-1-1", Standing(state="begun", by="a-dead-worker")
            )

        async def changing(self: Parcels, key: str, how: Standing, version: int = 0) -> Any:
            claimed = await stand(self, key, how, version)
            claims.append((how.state, how.deaths))
            if how.state == "begun":
                two._runtime.registry.remove("hold")
                two._runtime.registry.add(hold)
            return claimed

        monkeypatch.setattr(Parcels, "stand", changing)
        monkeypatch.setattr(taking_module, "_AGAIN", 0.05)
        async with worker(nats, prefix, tmp_path, [hold]) as two:
            job = await ended(jobs, job)
    assert dead is not None
    assert (job.state, ran) == ("succeeded", ["x"])
    assert claims == [("begun", 1), ("ended", 0)], "it is ours still when it comes again"


async def test_a_claim_of_ones_own_keeps_no_job_in_the_queue_that_is_refused_from_then_on(
    nats: Embedded, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Taking._refused

    async def claimed(self: Taking, taken: Any, why: Any) -> None:
        ours = Standing(state="begun", by=self._worker, deaths=1)
        await self._parcels.stand(taken.key, ours)
        await refused(self, taken, why)

    monkeypatch.setattr(Taking, "_refused", claimed)
    monkeypatch.setattr(taking_module, "_AGAIN", 0.05)
    async with house(nats, prefix, tmp_path) as (_, jobs):
        async with worker(nats, prefix, tmp_path, [pay]) as one:
            await until(lambda: _takes(jobs, "pay"))
            await one._jobs.leave()
            job = await jobs.submit("pay", {"to": "bob"}, caller=ANN)
            await until_queued(nats, prefix, 1)
        async with worker(nats, prefix, tmp_path, [other]):
            await until_empty(nats, prefix)
            job = await ended(jobs, job)
    assert ran == []
    assert (job.state, code(job)) == ("unknown", ("CONFLICT", "unknown"))


async def test_a_job_that_is_stopped_while_it_is_claimed_is_not_begun(
    nats: Embedded, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = Parcels.stand
    async with (
        worker(nats, prefix, tmp_path, [pay]) as one,
        house(nats, prefix, tmp_path) as (_, jobs),
    ):

        async def stopping(self: Parcels, key: str, how: Standing, version: int = 0) -> Any:
            if how.state == "begun":
                one._runs.cancel(key)
            return await stand(self, key, how, version)

        monkeypatch.setattr(Parcels, "stand", stopping)
        job = await ended(jobs, await jobs.submit("pay", {"to": "bob"}, caller=ANN))
        assert (code(job)[0], ran) == ("CANCELLED", [])


async def test_a_job_that_another_has_taken_over_is_left_to_it_with_its_message(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    """A worker that could not be heard for a while was taken for dead, and ends its job."""

    async def runs(message: Any) -> None:
        await message.respond(b"1")

    async with (
        worker(nats, prefix, tmp_path, [hold]) as one,
        house(nats, prefix, tmp_path) as (_, jobs),
        bus(nats, prefix) as stranger,
    ):
        parcels = Parcels(stranger)
        await stranger.listen(stranger.subjects.running("another"), runs)
        job = await jobs.submit("hold", {"name": "bob"}, caller=ANN)
        await until(lambda: ran)
        key = f"{job.id}-1-1"
        there = await parcels.standing(key)
        assert there is not None
        theirs = Standing(state="begun", by="another", deaths=1)
        version = await parcels.stand(key, theirs, there[1])
        assert version is not None
        go.set()
        await until(lambda: not one._jobs._taken)
        assert await parcels.queued(key)
        assert await parcels.end(key, Result("by another"), by="another", version=version)
        job = await ended(jobs, job)
        assert job.result is not None
        assert job.result.output == "by another"
        await until_empty(nats, prefix)


async def test_what_was_put_back_can_be_claimed_by_anybody_and_by_one_only(
    nats: Embedded, prefix: str
) -> None:
    async with bus(nats, prefix) as stranger:
        parcels, begun = Parcels(stranger), Standing(state="begun", by="one")
        version = await parcels.stand("k", begun)
        assert version is not None
        assert not await parcels.put_back("k", version + 1)
        assert await parcels.put_back("k", version)
        assert not await parcels.put_back("k", version), "once"
        assert await parcels.standing("k") is None
        tries = [parcels.stand("k", Standing(state="begun", by=who)) for who in ("two", "three")]
        assert [one is None for one in sorted(await asyncio.gather(*tries), key=str)] == [
            False, True,
        ]  # fmt: skip


async def test_a_job_that_is_stopped_just_when_it_is_put_back_is_never_run(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with (
        worker(nats, prefix, tmp_path, [pay]) as one,
        house(nats, prefix, tmp_path) as (_, jobs),
        bus(nats, prefix) as stranger,
    ):
        await until(lambda: _takes(jobs, "pay"))
        await one._jobs.leave()
        job = await jobs.submit("pay", {"to": "bob"}, caller=ANN)
        await until_queued(nats, prefix, 1)
        parcels, key = Parcels(stranger), f"{job.id}-1-1"
        version = await parcels.stand(key, Standing(state="begun", by="one"))
        assert version is not None

        async def put_back(message: Any) -> None:
            await parcels.put_back(key, version)

        await stranger.listen(stranger.subjects.cancel(key), put_back)
        await (await stranger.client()).flush()
        assert (await jobs.cancel(job.id, caller=ANN)).state == "cancelled"
        there = await parcels.standing(key)
        assert there is not None
        assert there[0].state == "void"


def _done(folder: Path) -> list[str]:
    file = folder / "done"
    return file.read_text().splitlines() if file.exists() else []


async def test_a_job_for_the_bus_is_accepted_though_every_slot_of_its_group_is_taken(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    groups = {"slots": {"groups": {"hold": {"concurrency": 1, "queue": 0}}}}
    async with (
        worker(nats, prefix, tmp_path, [hold]),
        house(nats, prefix, tmp_path, extensions=groups) as (_, jobs),
    ):
        first = await jobs.submit("hold", {"name": "x"}, caller=ANN)
        await until(lambda: ran == ["x"])
        later = [await jobs.submit("hold", {"name": name}, caller=ANN) for name in "yz"]
        assert [(await jobs.get(one.id, caller=ANN)).state for one in later] == ["queued"] * 2
        go.set()
        assert {(await ended(jobs, one)).state for one in (first, *later)} == {"succeeded"}
