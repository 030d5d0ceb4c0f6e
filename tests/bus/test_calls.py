"""Calls over a real bus: a gateway here, workers beside it or in processes that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.bus.house import bus, gateway, until, worker, worker_process
from toolpost import Call, Caller, Image, Output, ToolFailed, tool
from toolpost.backends.nats.backend import NatsBackend
from toolpost.backends.nats.calling import SILENCE
from toolpost.bus.embedded import Embedded
from toolpost.bus.ticket import Issuer
from toolpost.bus.wire import MEET, OBJECT, REQUEST, TICKET, Met, Request, said
from toolpost.seal import new_seal, open_seal

pytestmark = pytest.mark.anyio
ran: list[Any] = []


@tool(tier=0, effects="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(tier=1, requires_approval=True)
async def send(to: str) -> str:
    """Send something."""
    ran.append(to)
    return f"sent to {to}"


@tool(tier=0, effects="read")
async def who(call: Call) -> dict[str, Any]:
    """Say what is known of the call."""
    caller = call.caller
    return {"id": caller.id, "agent": caller.agent, "roles": sorted(caller.roles),
            "session": call.session_id, "call": call.call_id, "key": call.key}  # fmt: skip


@tool(tier=0, effects="read")
async def fail(how: str) -> Output:
    """Fail, or show a picture."""
    if how == "told":
        raise ToolFailed("There is no such day.", details={"day": 30})
    if how == "picture":
        return Output({"seen": True}, (Image(data=b"\x89PNG", mime="image/png"),))
    raise RuntimeError("secret internals")


@tool(tier=0, effects="read", timeout=30)
async def count(call: Call, upto: int, stop: bool = False) -> str:
    """Count."""
    try:
        for number in range(upto):
            call.progress(number + 1, upto, f"at {number + 1}")
            call.partial(number)
        if stop:
            await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        ran.append("cancelled")
        raise
    return "counted"


@tool(tier=0, effects="read", timeout=20)
async def mirror(text: str) -> str:
    """Give it back."""
    return text


TOOLS = [add, send, who, fail, count, mirror]


@pytest.mark.req("NA-6")
async def test_a_call_runs_on_a_worker_and_comes_back(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    me = Caller(id="me", agent="bot", roles=frozenset(("ops",)))
    async with worker(nats, prefix, tmp_path, TOOLS), gateway(nats, prefix, tmp_path) as tools:
        assert [s.name for s in tools.list()] == sorted(s.spec.name for s in TOOLS)
        assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3
        about = await tools.execute("who", {}, caller=me, session_id="s1", key="k1")
        assert about.output == {
            "id": "me", "agent": "bot", "roles": ["ops"], "session": "s1",
            "call": about.metadata.call_id, "key": "k1",
        }  # fmt: skip
        wrong = await tools.execute("add", {"a": "x"})
        assert wrong.error is not None
        assert wrong.error.code == "VALIDATION_ERROR"


async def test_what_a_tool_gives_or_says_of_its_failure_is_what_it_would_be_here(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with worker(nats, prefix, tmp_path, TOOLS), gateway(nats, prefix, tmp_path) as tools:
        shown = await tools.execute("fail", {"how": "picture"})
        assert shown.output == {"seen": True}
        assert shown.parts == (Image(data=b"\x89PNG", mime="image/png"),)
        told = await tools.execute("fail", {"how": "told"})
        assert told.error is not None
        assert (told.error.code, told.error.message) == ("EXECUTION_ERROR", "There is no such day.")
        assert told.error.details == {"day": 30}
        broken = await tools.execute("fail", {"how": "badly"})
        assert broken.error is not None
        assert broken.error.code == "INTERNAL_ERROR"
        assert "secret" not in broken.error.message


async def test_progress_and_pieces_arrive_in_order_before_the_result(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    heard: list[Any] = []
    async with worker(nats, prefix, tmp_path, TOOLS), gateway(nats, prefix, tmp_path) as tools:
        result = await tools.execute("count", {"upto": 20}, on_progress=heard.append)
        assert result.output == "counted"
        assert [one.done for one in heard if one.done is not None] == list(range(1, 21))
        assert [one.partial for one in heard if one.partial is not None] == list(range(20))


async def test_a_cancelled_call_is_cancelled_at_the_worker(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    ran.clear()
    heard: list[Any] = []
    async with (
        worker(nats, prefix, tmp_path, TOOLS) as one,
        gateway(nats, prefix, tmp_path) as tools,
    ):
        call = asyncio.create_task(
            tools.execute("count", {"upto": 1, "stop": True}, on_progress=heard.append)
        )
        await until(lambda: heard)
        call.cancel()
        await until(lambda: ran == ["cancelled"] and not one.running)
        ran.clear()
        heard.clear()
        while not heard:  # on a busy machine the time may be over before it has begun
            late = await tools.execute(
                "count", {"upto": 1, "stop": True}, timeout=0.3, on_progress=heard.append
            )
            assert late.error is not None
            assert late.error.code == "TIMEOUT"
        await until(lambda: ran and not one.running)
        assert set(ran) == {"cancelled"}


async def test_what_is_too_large_for_a_message_goes_through_the_object_store(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    text = "ä" * 1_500_000
    async with worker(nats, prefix, tmp_path, TOOLS), gateway(nats, prefix, tmp_path) as tools:
        result = await tools.execute("mirror", {"text": text})
        assert result.error is None, result.error
        assert result.output == text


async def test_a_tool_that_needs_a_yes_has_it_at_the_gateway(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    ran.clear()
    async with worker(nats, prefix, tmp_path, TOOLS):
        async with gateway(nats, prefix, tmp_path) as tools:
            asked = await tools.execute("send", {"to": "ada"})
            assert asked.error is not None
            assert asked.error.code == "APPROVAL_REQUIRED"
        async with gateway(nats, prefix, tmp_path, guards=["approval", "slots"]) as tools:
            assert not ran


# --- who is there -------------------------------------------------------------------------------


@pytest.mark.req("NA-9")
async def test_tools_come_with_the_first_worker_and_go_with_the_last(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with gateway(nats, prefix, tmp_path) as tools:
        assert not tools.list()
        async with worker(nats, prefix, tmp_path, [add]):
            await until(lambda: [s.name for s in tools.list()] == ["add"])
            async with worker(nats, prefix, tmp_path, [add, who]):
                await until(lambda: len(tools.list()) == 2)
            await until(lambda: [s.name for s in tools.list()] == ["add"])
            assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3
        await until(lambda: not tools.list())
        gone = (await tools.execute("add", {"a": 1, "b": 2})).error
        assert gone is not None
        assert (gone.code, gone.effects) == ("NOT_FOUND", "none")


async def test_a_gateway_meets_its_workers_and_signs_for_those_it_has_not_met(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with (
        worker(nats, prefix, tmp_path, [add]) as one,
        gateway(nats, prefix, tmp_path) as tools,
    ):
        directory = tools.executor.backends["nats"].directory  # type: ignore[attr-defined]
        await until(lambda: set(directory.met("add")) == {one.id})
        assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3
        one._inspector.met.clear()  # as if it were another
        assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3


async def test_attack_a_stranger_meets_nobody(nats: Embedded, prefix: str, tmp_path: Path) -> None:
    async with worker(nats, prefix, tmp_path, [add]) as one, bus(nats, prefix) as stranger:
        issuer = Issuer(new_seal())
        client, subject = await stranger.client(), stranger.subjects.meet(one.id)
        replies = await stranger.replies()
        waiting = replies.expect()
        body = said(MEET, Met(issuer.half.public), source="mallory", number="1")
        ticket = issuer.write(
            Caller("mallory"), tool=subject, spec=one._half.public, body=body,
            reply=waiting.subject, nonce="n",
        )  # fmt: skip
        for headers in ({TICKET: ticket}, None):
            await client.publish(subject, body, reply=waiting.subject, headers=headers)
        await client.request(stranger.subjects.specs(one.id), b"{}", timeout=5)  # both were heard
        assert not one._inspector.met


async def test_attack_a_gateway_whose_key_was_taken_away_is_believed_no_more(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    """Neither its signature, nor the key that it shares with the worker since they have met."""
    keys, trusted = tmp_path / ".toolpost" / "keys", tmp_path / "trusted"
    trusted.mkdir()
    seal = open_seal(keys, "bus")
    public = trusted / f"{seal.key}.pub"
    public.write_bytes((keys / public.name).read_bytes())
    async with (
        worker(nats, prefix, tmp_path, [add], trust=["trusted"]) as one,
        gateway(nats, prefix, tmp_path) as tools,
    ):
        backend = tools.executor.backends["nats"]
        assert isinstance(backend, NatsBackend)
        await until(lambda: backend.directory.met("add"))  # no signature is sent any more
        assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3
        public.unlink()
        async with asyncio.timeout(5):
            while (result := await tools.execute("add", {"a": 1, "b": 2})).error is None:
                await asyncio.sleep(0.02)
        assert result.error.code == "UNAUTHORIZED"
        assert not one._inspector.met


async def test_nobody_there_is_said_at_once(nats: Embedded, prefix: str, tmp_path: Path) -> None:
    async with (
        gateway(nats, prefix, tmp_path) as tools,
        worker(nats, prefix, tmp_path, [add]) as one,
    ):
        await until(tools.list)
        for subscription in one._serving.values():
            await subscription.unsubscribe()
        await (await one.bus.client()).flush()  # the server has heard of it
        result = await tools.execute("add", {"a": 1, "b": 2})
        assert result.error is not None
        assert (result.error.code, result.error.effects) == ("UNAVAILABLE", "none")
        assert "No worker" in result.error.message


@pytest.mark.req("NA-9")
async def test_several_workers_share_the_load(nats: Embedded, prefix: str, tmp_path: Path) -> None:
    async with (
        worker(nats, prefix, tmp_path, [who]) as one,
        worker(nats, prefix, tmp_path, [who]) as two,
        gateway(nats, prefix, tmp_path) as tools,
    ):
        await until(lambda: tools.executor.backends["nats"].directory.workers == 2)  # type: ignore[attr-defined]
        served = {one.id: 0, two.id: 0}
        for made in (one, two):
            made._executed = _counted(made, served)  # type: ignore[method-assign]
        results = await asyncio.gather(*(tools.execute("who", {}) for _ in range(60)))
        assert all(result.success for result in results)
        assert sum(served.values()) == 60
        assert all(count >= 10 for count in served.values()), served


def _counted(made: Any, served: dict[str, int]) -> Any:
    executed = type(made)._executed

    async def counted(*given: Any) -> Any:
        served[made.id] += 1
        return await executed(made, *given)

    return counted


# --- attacks and accidents ----------------------------------------------------------------------


async def test_attack_a_request_without_its_ticket_runs_nothing(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    """Attack 29, past the gateway."""
    ran.clear()
    async with worker(nats, prefix, tmp_path, [send]), bus(nats, prefix) as stranger:
        client = await stranger.client()
        request = Request(tool="send", call_id="1", arguments={"to": "mallory"}, timeout=5)
        body = said(REQUEST, request, source="mallory", number="1")
        for headers in (None, {TICKET: "x.y.z"}, {TICKET: ""}):
            answer = await client.request(
                stranger.subjects.request("send"), body, timeout=5, headers=headers
            )
            assert b"UNAUTHORIZED" in answer.data
        await client.publish(stranger.subjects.request("send"), body)
        for garbage in (b"", b"{", b"\xff" * 100, b"[" * 5000):
            answer = await client.request(stranger.subjects.request("send"), garbage, timeout=5)
            assert b"UNAUTHORIZED" in answer.data
    assert not ran


async def test_attack_a_recorded_request_is_refused_by_every_worker(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    """Attack 29, with another's ticket."""
    ran.clear()
    free = tool(tier=1, name="send")(send.function)
    heard: list[Any] = []

    async def overhear(message: Any) -> None:
        heard.append(message)

    async with bus(nats, prefix) as stranger:
        await stranger.listen(stranger.subjects.request("send"), overhear)
        client = await stranger.client()
        await client.flush()
        async with (
            worker(nats, prefix, tmp_path, [free]),
            worker(nats, prefix, tmp_path, [free]),
            gateway(nats, prefix, tmp_path) as tools,
        ):
            assert (await tools.execute("send", {"to": "ada"})).success
            await until(lambda: heard)
            answers: list[bytes] = []

            async def answered(message: Any) -> None:
                answers.append(message.data)

            await stranger.listen(heard[0].reply, answered)
            for _ in range(6):
                await client.publish(
                    heard[0].subject, heard[0].data, reply=heard[0].reply, headers=heard[0].headers
                )
            await until(lambda: len(answers) == 6)
            assert all(b"used before" in one or b"another worker" in one for one in answers)
    assert ran == ["ada"]


@pytest.mark.req("NA-9")
async def test_attack_1_a_worker_that_is_killed_is_told_at_once(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with gateway(nats, prefix, tmp_path) as tools:
        async with worker_process(nats, prefix, tmp_path) as child:
            await until(lambda: len(tools.list()) == 3)
            pid = await tools.execute("where", {})
            assert pid.output == child.pid
            paying = asyncio.create_task(tools.execute("pay", {"amount": 5, "seconds": 60}))
            waiting = asyncio.create_task(tools.execute("wait", {"seconds": 60}))
            await until(lambda: "waiting" in _done(tmp_path) and "paying 5" in _done(tmp_path))
            os.kill(child.pid, signal.SIGKILL)
            async with asyncio.timeout(10):  # their own limits are a minute
                paid, waited = await asyncio.gather(paying, waiting)
        assert paid.error is not None
        assert waited.error is not None
        assert (paid.error.code, paid.error.effects) == ("UNAVAILABLE", "unknown")
        assert (waited.error.code, waited.error.effects) == ("UNAVAILABLE", "none")
        await until(lambda: not tools.list())


async def test_a_worker_that_is_told_to_stop_ends_what_it_runs_and_takes_no_more(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with (
        gateway(nats, prefix, tmp_path) as tools,
        worker_process(nats, prefix, tmp_path) as child,
    ):
        await until(lambda: len(tools.list()) == 3)
        call = asyncio.create_task(tools.execute("wait", {"seconds": 1.5}))
        await until(lambda: "waiting" in _done(tmp_path))
        child.terminate()
        await until(lambda: not tools.list())
        assert (await call).output == "waited"
        async with asyncio.timeout(10):
            assert await child.wait() == 0


def _done(folder: Path) -> list[str]:
    file = folder / "done"
    return file.read_text().splitlines() if file.exists() else []


async def test_attack_without_a_ticket_no_large_body_is_fetched(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    async with worker(nats, prefix, tmp_path, [mirror]) as one, bus(nats, prefix) as stranger:
        fetched: list[Any] = []

        async def unpacked(*given: Any) -> bytes:
            fetched.append(given)
            return b""

        one._large.unpacked = unpacked  # type: ignore[method-assign]
        client = await stranger.client()
        answer = await client.request(
            stranger.subjects.request("mirror"), b"", timeout=5, headers={OBJECT: "x" * 32}
        )
        assert b"UNAUTHORIZED" in answer.data
        assert not fetched


async def test_a_gateway_that_was_busy_hears_what_came_meanwhile(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    async with (
        worker_process(nats, prefix, tmp_path),
        gateway(nats, prefix, tmp_path) as tools,
    ):
        await until(tools.list)
        call = asyncio.create_task(tools.execute("pay", {"amount": 1, "seconds": 2 * SILENCE}))
        await until(done.exists)
        deadline = time.monotonic() + 60
        while "paid" not in done.read_text() and time.monotonic() < deadline:
            time.sleep(0.02)  # nothing else runs here meanwhile
        assert (await call).output == "paid 1"
