"""Retry: what passes is tried again, and nothing ever happens twice because of it."""

from __future__ import annotations

import asyncio
import gc
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolpost import (
    Call,
    Caller,
    ConfigError,
    Denied,
    Executor,
    InternalError,
    InvalidArguments,
    Limits,
    QueueFull,
    RateLimited,
    Registry,
    Result,
    Runtime,
    ToolFailed,
    Unavailable,
    tool,
)
from toolpost import Retry as Repeats
from toolpost.authoring import FunctionTool
from toolpost.contracts import Walk
from toolpost.extensions.retry import Retry, RetryOptions
from toolpost.extensions.slots import Slots
from toolpost.testing import Clock

pytestmark = pytest.mark.anyio
LIMIT = 30.0


class Hands:
    """A clock that is moved by whoever sleeps, from where the real one stands."""

    def __init__(self) -> None:
        self.clock = Clock(time.monotonic())
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds)

    def retry(self, chance: float = 1.0, **options: Any) -> Retry:
        return Retry(
            RetryOptions(**options), clock=self.clock, sleep=self.sleep, chance=lambda: chance
        )


class Service:
    """What is behind a tool: fails in the ways it is told to, then answers."""

    def __init__(self, failures: Iterable[Exception] = ()) -> None:
        self.failures = list(failures)
        self.runs = 0

    def tool(self, name: str = "work", **spec: Any) -> FunctionTool:
        spec = {"effects": "read", **spec}

        @tool(name=name, **spec)
        async def work() -> str:
            """Work."""
            self.runs += 1
            if self.failures:
                raise self.failures.pop(0)
            return f"{name} {self.runs}"

        return work


def down(times: int, **more: Any) -> list[Exception]:
    return [Unavailable("Down.", **more) for _ in range(times)]


async def once(retry: Retry, *tools: FunctionTool, **call: Any) -> Result:
    async with Executor(Registry(tools), guards=[retry]) as executor:
        return await executor.execute("work", **call)


# When it is tried again


@pytest.mark.req("FM-11")
async def test_a_transient_failure_is_tried_again_with_a_growing_pause() -> None:
    hands, service = Hands(), Service(down(2))
    result = await once(hands.retry(backoff=0.2), service.tool())
    assert result.output == "work 3"
    assert result.metadata.attempts == 3
    assert hands.slept == [0.2, 0.4]
    assert result.metadata.trail == [
        "retry",
        "road: UNAVAILABLE",
        "retry: attempt 2 after 0.20s",
        "road: UNAVAILABLE",
        "retry: attempt 3 after 0.40s",
    ]


async def test_the_pause_has_full_jitter_and_an_end() -> None:
    hands, service = Hands(), Service(down(2))
    await once(hands.retry(chance=0.0), service.tool())
    assert hands.slept == [0, 0]
    hands, service = Hands(), Service(down(2))
    await once(hands.retry(chance=0.5, backoff=4, longest_backoff=6), service.tool())
    assert hands.slept == [2, 3]


@pytest.mark.req("FM-11")
async def test_the_cooldown_of_a_rate_limit_is_waited_for() -> None:
    hands, service = Hands(), Service([RateLimited("Slowly.", retry_after=12)])
    result = await once(hands.retry(chance=0.0), service.tool())
    assert result.success
    assert hands.slept == [12]


async def test_a_cooldown_that_is_too_long_is_given_back_at_once() -> None:
    hands, service = Hands(), Service([RateLimited("Slowly.", retry_after=31)])
    result = await once(hands.retry(), service.tool())
    assert result.error is not None
    assert (result.error.code, result.error.retry_after) == ("RATE_LIMITED", 31)
    assert hands.slept == []
    assert service.runs == 1


@pytest.mark.parametrize("seconds", [float("nan"), -5.0])
async def test_a_senseless_cooldown_is_none(seconds: float) -> None:
    hands, service = Hands(), Service([RateLimited("Slowly.", retry_after=seconds)])
    assert (await once(hands.retry(chance=0.0), service.tool())).success
    assert hands.slept == [0]


async def test_nothing_is_tried_beyond_the_deadline() -> None:
    hands, service = Hands(), Service([RateLimited("Slowly.", retry_after=12)])
    result = await once(hands.retry(), service.tool(), timeout=10)
    assert not result.success
    assert hands.slept == []
    assert service.runs == 1


@pytest.mark.req("FM-11")
@pytest.mark.parametrize(
    "error",
    [
        InvalidArguments("No.", retryable=True),
        InternalError("No.", retryable=True),
        ValueError("a fault in the tool"),
        ToolFailed("No such city."),
        QueueFull("Full."),
        Denied("No.", retryable=True),
    ],
    ids=lambda e: type(e).__name__,
)
async def test_what_would_fail_again_is_not_tried_again(error: Exception) -> None:
    hands, service = Hands(), Service([error])
    result = await once(hands.retry(), service.tool(retry=Repeats(attempts=3)))
    assert not result.success
    assert result.metadata.attempts == 1
    assert service.runs == 1


@pytest.mark.parametrize("attempts", [1, 2, 3])
async def test_the_spec_says_how_often(attempts: int) -> None:
    hands, service = Hands(), Service(down(9))
    result = await once(hands.retry(), service.tool(retry=Repeats(attempts=attempts)))
    assert result.error is not None
    assert service.runs == result.metadata.attempts == attempts


async def test_waiting_to_try_again_holds_no_slot() -> None:
    service, slots = Service(down(1)), Slots()
    running: list[float] = []

    async def sleep(seconds: float) -> None:
        running.append(slots.gauges()["slots_running"][1]["work"])

    tools = Registry([service.tool(limits=Limits(concurrency=1, queue=0))])
    async with Executor(tools, guards=[Retry(sleep=sleep), slots]) as executor:
        result = await executor.execute("work")
    assert result.success
    assert running == [0]
    assert result.metadata.trail.count("slots") == 2


async def test_a_refusal_for_want_of_room_is_heard_at_once_and_not_repeated() -> None:
    hands, begun, go = Hands(), asyncio.Event(), asyncio.Event()

    @tool(effects="read", limits=Limits(concurrency=1, queue=0))
    async def work() -> None:
        """Work until told to stop."""
        begun.set()
        await go.wait()

    async with Executor(Registry([work]), guards=[hands.retry(), Slots()]) as executor:
        first = asyncio.ensure_future(executor.execute("work"))
        await asyncio.wait_for(begun.wait(), LIMIT)
        refused = await asyncio.wait_for(executor.execute("work"), LIMIT)
        go.set()
        assert (await first).success
    assert refused.error is not None
    assert refused.error.code == "QUEUE_FULL"
    assert hands.slept == []


async def test_a_cancelled_caller_is_not_kept_waiting() -> None:
    asleep = asyncio.Event()

    async def sleep(seconds: float) -> None:
        asleep.set()
        await asyncio.get_running_loop().create_future()

    service = Service(down(9))
    async with Executor(Registry([service.tool()]), guards=[Retry(sleep=sleep)]) as executor:
        call = asyncio.ensure_future(executor.execute("work"))
        await asyncio.wait_for(asleep.wait(), LIMIT)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(call, LIMIT)
    assert service.runs == 1


# What must not happen twice


@pytest.mark.parametrize(
    "error",
    [
        ToolFailed("The answer was lost.", retryable=True),
        ConnectionResetError("lost"),
        TimeoutError("late"),
        Unavailable("Gone.", effects="unknown"),
        Unavailable("Gone.", effects="done"),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize(
    "spec", [{}, {"retry": Repeats(attempts=3)}, {"retry": Repeats(honours_key=True)}]
)
async def test_a_tool_with_effects_once_that_fails_after_its_effect_runs_once(
    error: Exception, spec: dict[str, Any]
) -> None:
    hands, service, second = Hands(), Service([error]), Service()
    retry = hands.retry(budget_most=1000, breaker_failures=0, longest_wait=1000)
    result = await once(
        retry, service.tool(effects="once", fallback="other", **spec), second.tool("other")
    )
    assert not result.success
    assert (service.runs, second.runs) == (1, 0)
    assert result.metadata.attempts == 1
    assert result.metadata.warnings == [
        "work was not handed over to other: it may have had its effect already."
    ]


async def test_a_tool_with_effects_once_that_is_out_of_time_runs_once() -> None:
    hands, runs = Hands(), []

    @tool(effects="once", timeout=0.02, retry=Repeats(attempts=3))
    async def work() -> None:
        """Do it, and be late."""
        runs.append(1)
        await asyncio.get_running_loop().create_future()

    result = await once(hands.retry(), work)
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("TIMEOUT", "unknown")
    assert len(runs) == 1


async def test_effects_once_is_repeated_if_the_error_says_that_nothing_happened() -> None:
    hands, service = Hands(), Service([ConnectionRefusedError()])
    result = await once(hands.retry(), service.tool(effects="once"))
    assert result.success
    assert service.runs == 2


async def test_effects_once_is_repeated_if_the_tool_honours_the_key_of_the_call() -> None:
    spec = {"effects": "once", "retry": Repeats(honours_key=True)}
    hands, service = Hands(), Service([ConnectionResetError()])
    assert (await once(hands.retry(), service.tool(**spec), key="k1")).success
    assert service.runs == 2


async def test_an_idempotent_tool_is_repeated_whatever_is_known_of_its_effects() -> None:
    hands, service = Hands(), Service([ConnectionResetError()])
    assert (await once(hands.retry(), service.tool(effects="idempotent"))).success
    assert service.runs == 2


# A service that is down


async def test_a_storm_of_failures_is_repeated_within_the_budget_only() -> None:
    hands, service = Hands(), Service(down(10_000))
    retry = hands.retry(budget_share=0.1, budget_most=20, budget_per_second=0, breaker_failures=0)
    async with Executor(Registry([service.tool()]), guards=[retry]) as executor:
        results = [await executor.execute("work") for _ in range(1000)]
    repeats = service.runs - 1000
    assert 100 <= repeats <= 120
    assert not any(r.success for r in results)
    assert "retry: the budget for repeats is used up" in results[-2].metadata.trail


async def test_a_service_that_answers_503_a_thousand_times_is_soon_left_alone() -> None:
    hands, service = Hands(), Service(down(10_000))
    retry = hands.retry(chance=0.0, breaker_failures=5, breaker_seconds=30)
    async with Executor(Registry([service.tool()]), guards=[retry]) as executor:
        results = [await executor.execute("work") for _ in range(1000)]
        assert service.runs == 5
        assert retry.state("work") == "open"
        assert retry.gauges()["breaker_state"] == ("tool", {"work": 2})
        hands.clock.advance(30)
        assert retry.state("work") == "half-open"
        assert not (await executor.execute("work")).success
        assert service.runs == 6
        assert retry.state("work") == "open"
        hands.clock.advance(30)
        service.failures.clear()
        healed = await executor.execute("work")
        assert healed.success
        assert "retry: tries whether it works again" in healed.metadata.trail
        assert retry.state("work") == "closed"
    error = results[-1].error
    assert error is not None
    assert (error.code, error.retryable, error.effects) == ("UNAVAILABLE", True, "none")
    assert error.retry_after == pytest.approx(30)
    assert error.message == (
        "work has failed 5 times in a row and is left alone for now. Retry after 30s, or use "
        "another tool."
    )
    assert results[-1].metadata.trail == ["retry", "retry: left alone"]


async def test_only_one_call_tries_whether_a_service_is_back() -> None:
    hands, go, runs = Hands(), asyncio.Event(), []
    retry = hands.retry(breaker_failures=1, breaker_seconds=30)

    @tool(effects="read")
    async def work() -> None:
        """Fail at first, then wait."""
        runs.append(1)
        if len(runs) == 1:
            raise Unavailable("Down.")
        await go.wait()

    async with Executor(Registry([work]), guards=[retry]) as executor:
        assert not (await executor.execute("work")).success
        hands.clock.advance(30)
        calls = [asyncio.ensure_future(executor.execute("work")) for _ in range(20)]
        done, _ = await asyncio.wait(calls, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 19:
            done, _ = await asyncio.wait(calls, timeout=0.01)
        assert len(runs) == 2
        go.set()
        results = await asyncio.gather(*calls)
    assert sum(r.success for r in results) == 1


async def test_a_probe_that_is_cancelled_leaves_its_place_to_another() -> None:
    hands, begun, runs = Hands(), asyncio.Event(), []
    retry = hands.retry(breaker_failures=1, breaker_seconds=30)

    @tool(effects="read")
    async def work() -> str:
        """Fail, hang, work."""
        runs.append(1)
        if len(runs) == 1:
            raise Unavailable("Down.")
        if len(runs) == 2:
            begun.set()
            await asyncio.get_running_loop().create_future()
        return "back"

    async with Executor(Registry([work]), guards=[retry]) as executor:
        await executor.execute("work")
        hands.clock.advance(30)
        call = asyncio.ensure_future(executor.execute("work"))
        await asyncio.wait_for(begun.wait(), LIMIT)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await executor.execute("work")).output == "back"


async def test_a_caller_in_too_much_of_a_hurry_cannot_close_a_tool_to_the_others() -> None:
    retry, begun = Retry(RetryOptions(breaker_failures=2)), []

    @tool(effects="read")
    async def work() -> str:
        """Take a moment."""
        begun.append(1)
        await asyncio.sleep(0.05)
        return "done"

    async with Executor(Registry([work]), guards=[retry]) as executor:
        for _ in range(4):
            assert not (await executor.execute("work", timeout=0.005)).success
        assert retry.state("work") == "closed"
        assert (await executor.execute("work")).success
    assert begun


async def test_a_tool_that_answers_with_an_error_is_alive() -> None:
    hands = Hands()
    refusal = [ToolFailed("No such city.")]
    service = Service([*down(1), *refusal, *down(1), *refusal, *down(1)])
    retry = hands.retry(attempts=1, breaker_failures=2)
    async with Executor(Registry([service.tool()]), guards=[retry]) as executor:
        for _ in range(5):
            await executor.execute("work")
        assert retry.state("work") == "closed"
        service.failures = [*down(1), ValueError("a fault"), *down(1)]
        for _ in range(3):
            await executor.execute("work")
        assert retry.state("work") == "open"


async def test_a_dry_run_neither_closes_a_breaker_nor_forgives_failures() -> None:
    hands, service = Hands(), Service(down(2))
    retry = hands.retry(attempts=1, breaker_failures=2, breaker_seconds=30)
    guards = [retry, Slots()]
    async with Executor(Registry([service.tool()]), guards=guards) as executor:
        await executor.execute("work")
        assert (await executor.execute("work", dry_run=True)).success
        await executor.execute("work")
        assert retry.state("work") == "open", "a preview between them is no sign of health"
        hands.clock.advance(30)
        assert (await executor.execute("work", dry_run=True)).success
        assert retry.state("work") != "closed"


async def test_failures_between_successes_open_nothing() -> None:
    hands, service = Hands(), Service()
    retry = hands.retry(attempts=1, breaker_failures=2)
    async with Executor(Registry([service.tool()]), guards=[retry]) as executor:
        for _ in range(5):
            service.failures = down(1)
            assert not (await executor.execute("work")).success
            assert (await executor.execute("work")).success


async def test_a_call_that_waits_to_try_again_stops_when_others_find_the_service_down() -> None:
    hands, service = Hands(), Service(down(100))
    retry = hands.retry(breaker_failures=3, attempts=2)

    async def sleep(seconds: float) -> None:
        if retry.state("work") == "closed":
            await executor.execute("work")

    retry.sleep = sleep
    async with Executor(Registry([service.tool()]), guards=[retry]) as executor:
        result = await executor.execute("work")
    assert not result.success
    assert service.runs == 3


async def test_a_tool_that_goes_and_comes_back_is_still_left_alone() -> None:
    """Nothing of it is left in between: not its chain, and no call."""
    hands, service, registry = Hands(), Service(down(9)), Registry()
    retry = hands.retry(breaker_failures=3, attempts=1)
    registry.add(service.tool())
    async with Executor(registry, guards=[retry]) as executor:
        for _ in range(3):
            await executor.execute("work")
        registry.remove("work")
        await asyncio.sleep(0)
        gc.collect()
        assert retry.gauges()["breaker_state"] == ("tool", {"work": 2})
        registry.add(service.tool(title="New"))
        result = await executor.execute("work")
    assert result.error is not None
    assert "left alone" in result.error.message
    assert service.runs == 3


async def test_of_tools_that_fail_and_go_the_breakers_are_not_kept_for_ever() -> None:
    hands, registry = Hands(), Registry()
    retry = hands.retry(attempts=1)
    async with Executor(registry, guards=[retry]) as executor:
        for number in range(1100):
            name = f"work{number}"
            registry.add(Service(down(1)).tool(name))
            await executor.execute(name)
            registry.remove(name)
            for _ in range(5):  # its handle is closed, and then nothing holds it
                await asyncio.sleep(0)
        gc.collect()
        assert len(retry.gauges()["breaker_state"][1]) <= 1001


async def test_what_a_call_waited_for_its_next_attempt_is_told() -> None:
    hands, service = Hands(), Service(down(2))
    result = await once(hands.retry(), service.tool())
    assert result.success
    assert result.metadata.waited_ms == pytest.approx(sum(hands.slept) * 1000)
    assert result.metadata.waited_ms > 500


async def test_a_reloaded_tool_is_still_left_alone() -> None:
    hands, service = Hands(), Service(down(1))
    registry = Registry([service.tool()])
    retry = hands.retry(breaker_failures=1)
    async with Executor(registry, guards=[retry]) as executor:
        await executor.execute("work")
        registry.replace(service.tool(title="New"))
        assert not (await executor.execute("work")).success
    assert service.runs == 1


async def test_a_tool_that_was_never_called_is_not_left_alone() -> None:
    assert Retry().state("never") == "closed"


# The second tool


@pytest.mark.req("FM-12")
async def test_a_failed_tool_hands_over_to_a_second_and_the_result_says_so() -> None:
    hands, first, second = Hands(), Service(down(9)), Service()
    result = await once(hands.retry(), first.tool(fallback="other"), second.tool("other"))
    assert result.output == "other 1"
    assert (first.runs, result.metadata.attempts) == (3, 3)
    assert result.metadata.warnings == ["work failed (UNAVAILABLE): this is the result of other."]
    assert result.metadata.trail[-2:] == [
        "retry: handed over to other (UNAVAILABLE)",
        "other: retry",
    ]


@pytest.mark.req("FM-12")
async def test_a_tool_that_is_left_alone_hands_over_at_once() -> None:
    hands, first, second = Hands(), Service(down(9)), Service()
    retry = hands.retry(breaker_failures=1)
    tools = Registry([first.tool(fallback="other"), second.tool("other")])
    async with Executor(tools, guards=[retry]) as executor:
        results = [await executor.execute("work") for _ in range(3)]
    assert [r.output for r in results] == ["other 1", "other 2", "other 3"]
    assert first.runs == 1
    assert results[0].metadata.call_id != results[1].metadata.call_id != ""


async def test_the_result_of_a_hand_over_keeps_the_id_of_its_call() -> None:
    ids: list[str] = []

    async def notes(call: Call, call_next: Walk) -> Result:
        ids.append(call.call_id)
        return await call_next(call)

    hands, first = Hands(), Service(down(9))
    tools = Registry([first.tool(fallback="other"), Service().tool("other")])
    async with Executor(tools, guards=[notes, hands.retry()]) as executor:
        result = await executor.execute("work")
    assert len(set(ids)) == 2
    assert result.metadata.call_id == ids[0]


@pytest.mark.req("FM-12")
async def test_if_both_fail_the_first_failure_stands_and_the_worse_effects() -> None:
    hands, first, second = Hands(), Service(down(9)), Service([ToolFailed("No.")])
    tools = first.tool(fallback="other"), second.tool("other", effects="once")
    result = await once(hands.retry(), *tools)
    assert result.error is not None
    assert (result.error.code, result.error.message[:5]) == ("UNAVAILABLE", "Down.")
    assert result.error.effects == "unknown"
    assert result.metadata.warnings == [
        "work was handed over to other, which failed too (EXECUTION_ERROR)."
    ]


@pytest.mark.parametrize("error", [InvalidArguments("No."), Denied("No.")])
async def test_what_the_second_tool_could_not_do_better_is_not_handed_over(error: Any) -> None:
    hands, first, second = Hands(), Service([error]), Service()
    result = await once(hands.retry(), first.tool(fallback="other"), second.tool("other"))
    assert not result.success
    assert second.runs == 0


async def test_a_fallback_to_a_higher_tier_is_refused_with_a_warning() -> None:
    hands, first, second = Hands(), Service(down(9)), Service()
    tools = first.tool(tier=1, fallback="other"), second.tool("other", tier=3)
    result = await once(hands.retry(), *tools)
    assert result.error is not None
    assert result.error.code == "UNAVAILABLE"
    assert second.runs == 0
    assert result.metadata.warnings == [
        "work was not handed over to other: that is of a higher tier (3, not 1)."
    ]


async def test_a_fallback_is_authorised_anew() -> None:
    hands, first, second, asked = Hands(), Service(down(9)), Service(), []

    async def access(call: Call, call_next: Walk) -> Result:
        asked.append((call.tool, call.caller.id, call.grant))
        if call.tool == "other":
            raise Denied("Not you.")
        return await call_next(call)

    tools = Registry([first.tool(fallback="other"), second.tool("other")])
    async with Executor(tools, guards=[access, hands.retry()]) as executor:
        result = await executor.execute("work", caller=Caller("ann"), grant="for work")
    assert asked == [("work", "ann", "for work"), ("other", "ann", None)]
    assert second.runs == 0
    assert result.error is not None
    assert result.error.code == "UNAVAILABLE"
    assert "which failed too (POLICY_DENIED)" in result.metadata.warnings[0]


async def test_fallbacks_do_not_go_round_in_circles() -> None:
    hands, services = Hands(), [Service(down(9)) for _ in range(3)]
    names = ("work", "second", "third")
    tools = [
        service.tool(name, fallback=names[(i + 1) % 3], retry=Repeats(attempts=1))
        for i, (name, service) in enumerate(zip(names, services, strict=True))
    ]
    result = await once(hands.retry(), *tools)
    assert not result.success
    assert [s.runs for s in services] == [1, 1, 1]
    assert result.metadata.warnings == [
        "third was not handed over to work: it has failed before in this call.",
        "second was handed over to third, which failed too (UNAVAILABLE).",
        "work was handed over to second, which failed too (UNAVAILABLE).",
    ]


async def test_a_caller_cannot_make_fallbacks_go_round_by_what_he_sends_along() -> None:
    hands, first, second = Hands(), Service(down(9)), Service()
    tools = first.tool(fallback="other"), second.tool("other")
    for sent in (5, ["other"], ("work",)):
        first.failures = down(9)
        result = await once(
            hands.retry(attempts=1), *tools, metadata={"toolpost.fallback_from": sent}
        )
        assert result.success == (sent != ["other"])


async def test_a_fallback_that_does_not_exist_is_said() -> None:
    hands, first = Hands(), Service(down(9))
    result = await once(hands.retry(), first.tool(fallback="nobody"))
    assert result.metadata.warnings == [
        "work was not handed over to nobody: there is no such tool."
    ]


async def test_a_tool_cannot_be_its_own_fallback(caplog: pytest.LogCaptureFixture) -> None:
    result = await once(Retry(), Service().tool(fallback="work"))
    assert result.error is not None
    assert (result.error.code, result.error.retryable) == ("UNAVAILABLE", False)
    assert "'work' is its own fallback" in caplog.text


async def test_nothing_is_handed_over_when_the_time_is_up() -> None:
    hands, second = Hands(), Service()

    @tool(effects="read", fallback="other")
    async def work() -> None:
        """Be late."""
        hands.clock.advance(60)
        raise Unavailable("Down.")

    assert not (await once(hands.retry(), work, second.tool("other"), timeout=30)).success
    assert second.runs == 0


# Settings


def applies(guard: Retry, **spec: Any) -> bool:
    road: Any = None
    return guard.bind(Service().tool(**spec).spec, road) is not None


async def test_a_tool_it_has_nothing_to_do_for_pays_nothing() -> None:
    off = RetryOptions(attempts=1, breaker_failures=0)
    assert not applies(Retry(off))
    assert applies(Retry(off), fallback="other")
    assert applies(Retry(off), retry=Repeats(attempts=2))
    assert applies(Retry(RetryOptions(attempts=1)))


async def test_settings_come_from_the_config(tmp_path: Path) -> None:
    file = tmp_path / "toolpost.toml"
    file.write_text('guards = ["retry"]\n[extensions.retry]\nattempts = 2\nbreaker_seconds = 5\n')
    async with Runtime.open(file) as tools:
        (retry,) = tools.executor.guards
    assert isinstance(retry, Retry)
    assert retry.settings == RetryOptions(attempts=2, breaker_seconds=5.0)
    assert retry.gauges() == {"breaker_state": ("tool", {}), "retry_budget": ("", {"": 20.0})}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("attempts = 4", "attempts must be 1, 2 or 3"),
        ("backoff = -1.0", "backoff must be 0 or more"),
        ("atempts = 1", "did you mean"),
    ],
)
async def test_a_wrong_setting_is_refused_with_its_place(
    line: str, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "toolpost.toml"
    file.write_text(f'guards = ["retry"]\n[extensions.retry]\n{line}\n')
    with pytest.raises(ConfigError, match=says):
        Runtime.open(file)


def test_the_pause_is_drawn_at_random_unless_told_otherwise() -> None:
    chance: Callable[[], float] = Retry().chance
    assert len({chance() for _ in range(10)}) > 1


# With a gate behind it: one step for both, as long as that is open


async def test_every_attempt_takes_a_slot_and_gives_it_back() -> None:
    hands, slots, service = Hands(), Slots(), Service(down(2))
    async with Executor(Registry([service.tool()]), guards=[hands.retry(), slots]) as executor:
        result = await executor.execute("work")
        again = await executor.execute("work")
        assert slots.gauges()["slots_running"] == ("tool", {"work": 0})
    assert (result.output, result.metadata.attempts) == ("work 3", 3)
    assert [step for step in result.metadata.trail if ":" not in step] == [
        "retry", "slots", "slots", "slots"
    ]  # fmt: skip
    assert [*again.metadata.trail] == ["retry", "slots"]


async def test_who_finds_no_slot_waits_and_who_is_cancelled_gives_his_back() -> None:
    go, begun = asyncio.Event(), []

    @tool(effects="read", limits=Limits(concurrency=1, queue=1))
    async def work(number: int) -> int:
        """Work until told to stop."""
        begun.append(number)
        await go.wait()
        return number

    slots = Slots()
    async with Executor(Registry([work]), guards=[Hands().retry(attempts=1), slots]) as executor:
        calls = [asyncio.create_task(executor.execute("work", {"number": n})) for n in range(3)]
        refused = await calls[2]
        assert (refused.error.code, begun) == ("QUEUE_FULL", [0])
        calls[0].cancel()
        go.set()
        waited = await calls[1]
        assert (waited.output, [*waited.metadata.trail]) == (1, ["retry", "slots"])
        assert slots.gauges()["slots_running"] == ("tool", {"work": 0})


async def test_a_tool_that_is_left_alone_takes_no_slot() -> None:
    hands, slots, service = Hands(), Slots(), Service(down(9))
    retry = hands.retry(attempts=1, breaker_failures=1)
    async with Executor(Registry([service.tool()]), guards=[retry, slots]) as executor:
        await executor.execute("work")
        result = await executor.execute("work")
    assert service.runs == 1
    assert "slots" not in result.metadata.trail


# How long all attempts together may take


class Hanging:
    """A tool that never answers, and how often it was started."""

    def __init__(self, **spec: Any) -> None:
        self.runs = 0

        @tool(name="work", **{"effects": "read", "timeout": 0.05, **spec})
        async def work() -> None:
            """Wait for ever."""
            self.runs += 1
            await asyncio.get_running_loop().create_future()

        self.tool = work


async def test_a_tool_that_hangs_is_given_up_after_its_timeout() -> None:
    hanging = Hanging()
    result = await once(Hands().retry(), hanging.tool)
    assert result.error is not None
    assert result.error.message.startswith("Operation timed out after 0.05s. ")
    assert hanging.runs == result.metadata.attempts == 1


async def test_a_timeout_is_tried_again_while_the_total_has_room_and_the_message_says_so() -> None:
    hanging, hands = Hanging(total_timeout=60), Hands()
    result = await once(hands.retry(backoff=1.0), hanging.tool)
    assert hanging.runs == result.metadata.attempts == 3
    assert result.error is not None and result.error.details == {"seconds": 0.05}
    assert re.fullmatch(
        r"Operation timed out after 0.05s, 3 attempts, 3\.\ds in all\. .*", result.error.message
    ), result.error.message


async def test_an_attempt_that_would_end_after_the_total_is_not_begun() -> None:
    hanging = Hanging(total_timeout=0.09)
    result = await once(Retry(RetryOptions(backoff=0.0)), hanging.tool)
    assert hanging.runs == 1
    assert result.error is not None and result.error.code == "TIMEOUT"
    assert "retry: no time is left for another attempt" in result.metadata.trail


async def test_pauses_count_against_the_total() -> None:
    hands, service = Hands(), Service(down(2))
    result = await once(hands.retry(backoff=1.0), service.tool(timeout=1, total_timeout=2.5))
    assert service.runs == 2 and hands.slept == [1.0], "the second pause would be two seconds"
    assert result.error is not None
    assert re.fullmatch(r"Down\. Tried 2 times, 1\.\ds in all\.", result.error.message)


async def test_an_attempt_that_follows_a_failure_ends_with_the_total() -> None:
    limits: list[float | None] = []
    hands, service = Hands(), Service(down(1))

    async def watches(call: Call, call_next: Walk) -> Result:
        limits.append(None if call.deadline is None else call.deadline - call.started)
        return await call_next(call)

    made = service.tool(timeout=1, total_timeout=1.5)
    async with Executor(Registry([made]), guards=[hands.retry(backoff=1.0), watches]) as executor:
        assert (await executor.execute("work")).success
    first, second = limits
    assert first is None and second is not None and second <= 1.5 + 0.5


async def test_what_a_call_waited_for_a_person_is_not_counted_against_the_total() -> None:
    service, clock = Service(down(1)), Hands()

    async def asks(call: Call, call_next: Walk) -> Result:
        call.about.waited_ms += 3_600_000
        return await call_next(msgspec.structs.replace(call, started=call.started - 3600))

    made = service.tool(timeout=1, total_timeout=1.5)
    async with Executor(Registry([made]), guards=[asks, clock.retry(chance=0.0)]) as executor:
        assert (await executor.execute("work")).success


async def test_a_tool_that_says_itself_that_it_timed_out_is_tried_again() -> None:
    hands, service = Hands(), Service([TimeoutError()])
    result = await once(hands.retry(), service.tool())
    assert (result.output, result.metadata.attempts) == ("work 2", 2)
