"""A server under load: it bears clients of every sort, ends without losing what it has promised,
and is one server where it is several processes."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.gateway.program import CONFIG, Program, program, until
from tests.gateway.running import Answer
from tests.gateway.soaking import soaked

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180), pytest.mark.verify]


async def test_hundreds_of_clients_of_every_sort_are_borne_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    """Attack 9, and what comes with it; ``soaking.py`` does the same for longer, by hand."""
    told = await soaked(tmp_path, warm=1.5, seconds=4.0, connections=200)
    print(told)
    assert told.calls > 100
    assert told.after < told.before + 30, "megabytes"
    assert told.among.half < 10 * told.alone.half + 500, "milliseconds; a machine may be busy"


# --- the end under load --------------------------------------------------------------------------

PROCESSES = pytest.mark.parametrize("processes", [1, 2])


@PROCESSES
async def test_a_signal_under_load_loses_no_call_and_no_job_that_was_acknowledged(
    tmp_path: Path, processes: int
) -> None:
    """Who has an answer has the truth, who has none was not promised one; a job is there again."""
    words = ("--processes", str(processes))
    async with program(tmp_path, *words, drain_time=1.5) as served:
        load = Load(served)
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(load.calling(number))
                group.create_task(load.submitting(number))
            long = [group.create_task(load.waiting(number)) for number in range(5)]
            await until(lambda: sum(one.endswith("began") for one in served.done) == 5)
            await until(lambda: len(load.paid) > 50 and len(load.jobs) > 30)
            began = asyncio.get_running_loop().time()
            assert await served.ended(signal.SIGTERM) == 0
            assert asyncio.get_running_loop().time() - began < 30
        assert [one.result() for one in long] == ["UNAVAILABLE"] * 5, "cancelled at the deadline"
        assert sum(one.endswith("was cancelled") for one in served.done) == 5
        assert not load.wrong, load.wrong
        paid = Counter(line for line in served.done if line.startswith("paid"))
        assert set(paid.values()) == {1}
        assert {f"paid {one}" for one in load.paid} <= set(paid)
        assert "OPEN" not in {call.code for call in await served.audited()}
    async with program(tmp_path, *words) as again:
        ends = Counter[str]()
        async with asyncio.timeout(40):
            for job_id, to in load.jobs.items():
                ends[await end_of(again, job_id, to)] += 1
        assert ends.total() == len(load.jobs) and ends["succeeded"] == len(load.jobs), ends
        assert set(Counter(line for line in again.done if line.startswith("paid")).values()) == {1}
        await (ended_in_a_hurry if processes == 1 else ended_while_somebody_waits)(again)


async def ended_while_somebody_waits(served: Program) -> None:
    """Who comes now is refused at once, and is not left to wait for nobody."""
    call = asyncio.create_task(served.call("nap", {"seconds": 50, "mark": "last"}))
    await served.until_done("last began")
    served.child.send_signal(signal.SIGTERM)
    await until_refused(served)
    assert served.child.returncode is None
    call.cancel()
    async with asyncio.timeout(15):
        assert await served.child.wait() == 0


async def ended_in_a_hurry(served: Program) -> None:
    """A second Ctrl-C waits for nobody: what may be done again is in the store."""
    given, later = {"seconds": 50, "mark": "last"}, {"prefer": "respond-async"}
    await served.call("nap", given, later)
    await served.until_done("last began")
    served.child.send_signal(signal.SIGTERM)
    await until_refused(served)
    served.child.send_signal(signal.SIGINT)
    async with asyncio.timeout(15):
        assert await served.child.wait() == 0
    assert served.done[-1] == "last was cancelled"


async def until_refused(served: Program) -> None:
    async with asyncio.timeout(15):
        with pytest.raises(ConnectionRefusedError):
            while True:
                with suppress(ConnectionResetError, asyncio.IncompleteReadError):
                    await served.get("/healthz")


class Load:
    """Clients that ask until nobody answers, and what they were told."""

    def __init__(self, served: Program) -> None:
        self._served = served
        self.paid: list[str] = []
        self.jobs: dict[str, str] = {}
        self.wrong: list[Answer] = []

    async def calling(self, number: int) -> None:
        async def ask(turn: int) -> None:
            to = f"call-{number}-{turn}"
            answer = await self._served.call("pay", {"to": to, "seconds": 0.05})
            if answer.status == 200 and answer.data["output"] == f"paid {to}":
                self.paid.append(to)
            else:
                self._refused(answer)

        await until_gone(ask)

    async def submitting(self, number: int) -> None:
        """Half of them may be done again, the others may not."""

        async def ask(turn: int) -> None:
            tool, to = ("put", "pay")[turn % 2], f"job-{number}-{turn}"
            given = {"to": to, "seconds": 0.1}
            answer = await self._served.call(tool, given, {"prefer": "respond-async"})
            if answer.status == 202:
                self.jobs[answer.data["id"]] = to
            else:
                self._refused(answer)
            await asyncio.sleep(0.2)

        await until_gone(ask)

    async def waiting(self, number: int) -> str:
        answer = await self._served.call("nap", {"seconds": 50, "mark": f"nap {number}"})
        return str(answer.data.get("code"))

    def _refused(self, answer: Answer) -> None:
        if answer.data.get("code") not in ("UNAVAILABLE", "QUEUE_FULL"):
            self.wrong.append(answer)


async def until_gone(ask: Callable[[int], Awaitable[None]]) -> None:
    """Again and again; whoever asks when the server is gone is not heard, and knows it."""
    with suppress(OSError, asyncio.IncompleteReadError):
        for turn in itertools.count():
            await ask(turn)


async def end_of(served: Program, job_id: str, to: str) -> str:
    """The state of a job that has ended, and has done what it says once."""
    while True:
        job = (await served.get(f"/v1/jobs/{job_id}")).data
        if job["state"] not in ("queued", "running"):
            break
        await asyncio.sleep(0.05)
    if job["state"] == "succeeded":
        assert job["result"]["output"] in (f"paid {to}", f"put {to}")
        assert job["result"]["output"] in served.done
    return str(job["state"])


# --- several processes ---------------------------------------------------------------------------

SHARED = """
[extensions.rate]
shared = true
tools = {limited = "5/min"}

[extensions.approval]
approvers = ["boss"]

[extensions.access.roles.boss]
call = ["*"]
tier = 4

[gateway.auth]
keys = true
"""


@pytest.fixture(scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Program, Program]]:
    """Two servers, each with an address of its own, that share one store: so that a test can choose
    whom it asks."""
    folder = tmp_path_factory.mktemp("both")
    async with (
        program(folder, config=CONFIG + SHARED) as one,
        program(folder, config=CONFIG + SHARED) as other,
    ):
        yield one, other


async def test_one_key_sent_to_two_processes_at_once_has_one_effect(
    both: tuple[Program, Program],
) -> None:
    agent = await both[0].key("payer")
    for turn in range(20):
        key = {**agent, "idempotency-key": f"turn-{turn}"}
        answers = await asyncio.gather(
            *(served.call("pay", {"to": f"turn {turn}"}, key) for served in both * 3)
        )
        for answer in answers:
            assert answer.status in (200, 409), answer
            if answer.status == 200:
                assert answer.data["output"] == f"paid turn {turn}"
            else:
                assert answer.data["retryable"] is True
        assert any(answer.status == 200 for answer in answers)
        assert both[0].done.count(f"paid turn {turn}") == 1
        later = await both[turn % 2].call("pay", {"to": f"turn {turn}"}, key)
        assert (later.status, later.data["output"]) == (200, f"paid turn {turn}")
    assert sum(line.startswith("paid turn") for line in both[0].done) == 20


async def test_one_key_for_a_job_at_two_processes_is_one_job(both: tuple[Program, Program]) -> None:
    agent = await both[0].key("submitter")
    for turn in range(5):
        key = {**agent, "idempotency-key": f"job {turn}", "prefer": "respond-async"}
        answers = await asyncio.gather(
            *(served.call("pay", {"to": f"job {turn}"}, key) for served in both * 2)
        )
        assert {answer.status for answer in answers} == {202}
        [job_id] = {answer.data["id"] for answer in answers}
        for served in both:
            served.headers.update(agent)
            assert await end_of(served, job_id, f"job {turn}") == "succeeded"
            served.headers.clear()
        assert both[0].done.count(f"paid job {turn}") == 1


async def test_a_rate_holds_for_two_processes_together(both: tuple[Program, Program]) -> None:
    agent = await both[0].key("hasty")
    answers = await asyncio.gather(*(served.call("limited", {}, agent) for served in both * 10))
    statuses = Counter(answer.status for answer in answers)
    assert statuses == {200: 5, 429: 15}
    assert all("retry-after" in one.headers for one in answers if one.status == 429)


async def test_a_yes_at_one_process_is_used_once_at_either(both: tuple[Program, Program]) -> None:
    one, _ = both
    agent = await one.key("asks here")
    bosses = [await one.key(f"boss {n}", user=f"boss{n}", roles=["boss"]) for n in range(2)]
    for amount in range(5):
        grant = (await one.call("wire", {"amount": amount}, agent)).data["details"]["approval"]
        votes = await asyncio.gather(
            *(
                served.post(f"/v1/approvals/{grant}:approve", {}, boss)
                for served, boss in zip(both, bosses, strict=True)
            )
        )
        assert sorted(vote.status for vote in votes) == [200, 409], "one of them was the first"
        used = await asyncio.gather(
            *(served.call("wire", {"amount": amount}, agent, grant=grant) for served in both * 2)
        )
        assert sorted(answer.status for answer in used) == [200, 403, 403, 403]
        assert one.done.count(f"wired {amount}") == 1


async def test_a_job_of_one_process_is_seen_and_stopped_from_the_other(
    both: tuple[Program, Program],
) -> None:
    one, other = both
    agent = await one.key("stops there")
    given = {"seconds": 50, "mark": "far job"}
    job = await one.call("nap", given, {**agent, "prefer": "respond-async"})
    await one.until_done("far job began")
    where = job.headers["location"]
    assert (await other.get(where, agent)).data["state"] == "running"
    ended = await other.ask("DELETE", where, headers=agent)
    assert (ended.status, ended.data["state"]) == (200, "cancelled")
    assert "far job was cancelled" in one.done


async def test_what_both_have_done_is_one_audit(both: tuple[Program, Program]) -> None:
    admin = await both[0].key("auditor", roles=["admin"])
    for served in both:
        assert (await served.post("/v1/audit:verify", {}, admin)).data["ok"] is True
