"""Rate: how often, by whom, and when a session has to stop."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.stores.server import running_server
from tests.test_pace import most_within
from toolpost import (
    ApprovalRequired,
    Call,
    Caller,
    ConfigError,
    Executor,
    Registry,
    Result,
    Runtime,
    Text,
    ToolFailed,
    tool,
)
from toolpost.authoring import FunctionTool
from toolpost.contracts import Record, Walk
from toolpost.extensions.access import Access
from toolpost.extensions.log import Log
from toolpost.extensions.rate import Rate, RateOptions
from toolpost.extensions.sanitize import Sanitize
from toolpost.extensions.slots import Slots
from toolpost.result import Output
from toolpost.stores.memory import MemoryStore
from toolpost.stores.sqlite import SqliteStore
from toolpost.testing import Clock, echo, sample_executor

pytestmark = pytest.mark.anyio
server = pytest.fixture(scope="module")(running_server)
FENCE = 60


@tool(effects="read")
async def ping(text: str = "") -> str:
    """Answer."""
    return "pong"


def rate(clock: Clock | None = None, **options: Any) -> Rate:
    return Rate(RateOptions(**options), clock=clock or Clock(1000))


def codes(results: list[Result]) -> Counter[str]:
    return Counter(r.error.code if r.error else "ok" for r in results)


async def calls(executor: Executor, times: int, name: str = "ping", **call: Any) -> Counter[str]:
    return codes([await executor.execute(name, **call) for _ in range(times)])


# Rates


@pytest.mark.req("FM-10")
async def test_a_tool_called_too_often_says_how_long_to_wait() -> None:
    clock = Clock(1000)
    guard = rate(clock, tools={"ping": "5/min"})
    async with Executor(Registry([ping]), guards=[guard]) as executor:
        assert await calls(executor, 5) == {"ok": 5}
        refused = await executor.execute("ping")
        assert refused.error is not None
        assert refused.error.code == "RATE_LIMITED"
        assert refused.error.message == "Rate limit exceeded. Retry after 60s."
        assert refused.error.retry_after == pytest.approx(60)
        assert (refused.error.remedy, refused.error.retryable) == ("wait", True)
        assert refused.error.details == {"limit": "5/min", "of": "tool:ping"}
        clock.advance(12)
        assert await calls(executor, 2) == {"RATE_LIMITED": 2}
        clock.advance((refused.error.retry_after or 0) - 12)
        assert await calls(executor, 9) == {"ok": 5, "RATE_LIMITED": 4}


async def test_no_minute_has_more_calls_than_the_rate_wherever_it_begins() -> None:
    clock, moments = Clock(1000), []
    async with Executor(Registry([ping]), guards=[rate(clock, tools={"*": "60/min"})]) as executor:
        for _ in range(900):
            clock.advance(0.25)
            if (await executor.execute("ping")).success:
                moments.append(clock.now)
    assert most_within(60, moments) == 60
    assert len(moments) == 240, "and whoever asks four times a second gets all there is"


async def test_the_first_pattern_that_fits_is_the_tools_own_rate() -> None:
    guard = rate(tools={"ech*": "1/h", "*": "3/h"})
    async with Executor(Registry([ping, echo]), guards=[guard]) as executor:
        assert await calls(executor, 9) == {"ok": 3, "RATE_LIMITED": 6}
        said = await calls(executor, 9, "echo", arguments={"text": "a"})
        assert said == {"ok": 1, "RATE_LIMITED": 8}


async def test_every_caller_has_a_rate_of_his_own_over_all_tools() -> None:
    guard = rate(callers={"batch-*": "1/h", "*": "2/h"})
    async with Executor(Registry([ping, echo]), guards=[guard]) as executor:
        for name, most in (("ann", 2), ("bob", 2), ("batch-7", 1)):
            caller = Caller(name)
            assert (await calls(executor, 5, caller=caller))["ok"] == most
            more = await calls(executor, 5, "echo", arguments={"text": "a"}, caller=caller)
            assert more == {"RATE_LIMITED": 5}


async def test_who_has_no_rate_is_not_limited() -> None:
    guard = rate(callers={"batch-*": "1/h"})
    async with Executor(Registry([ping]), guards=[guard]) as executor:
        assert await calls(executor, 50, caller=Caller("ann")) == {"ok": 50}


async def test_tools_of_a_group_share_its_rate() -> None:
    @tool(effects="read", labels={"vendor": "acme"})
    async def one() -> None:
        """One."""

    @tool(effects="read", labels={"vendor": "acme"})
    async def two() -> None:
        """Two."""

    guard = rate(groups={"label:vendor=acme": "3/h"})
    async with Executor(Registry([one, two, ping]), guards=[guard]) as executor:
        assert await calls(executor, 2, "one") == {"ok": 2}
        assert await calls(executor, 2, "two") == {"ok": 1, "RATE_LIMITED": 1}
        assert await calls(executor, 50) == {"ok": 50}


async def test_what_one_limit_refuses_counts_for_none() -> None:
    clock = Clock(1000)
    guard = rate(clock, tools={"ping": "1/s"}, groups={"ping": "3/h"}, callers={"*": "3/h"})
    async with Executor(Registry([ping]), guards=[guard]) as executor:
        for _ in range(3):
            assert await calls(executor, 5) == {"ok": 1, "RATE_LIMITED": 4}
            clock.advance(1)
        assert await calls(executor, 1) == {"RATE_LIMITED": 1}


async def test_a_wall_clock_that_jumps_changes_nothing() -> None:
    class Jumps(Clock):
        def time(self) -> float:
            return self.now * 1e6

    clock = Jumps(1000)
    async with Executor(Registry([ping]), guards=[rate(clock, tools={"*": "2/h"})]) as executor:
        assert await calls(executor, 3) == {"ok": 2, "RATE_LIMITED": 1}
        clock.advance(1)
        assert await calls(executor, 3) == {"RATE_LIMITED": 3}


async def test_a_reload_does_not_give_new_calls() -> None:
    registry = Registry([ping])
    async with Executor(registry, guards=[rate(tools={"*": "2/h"})]) as executor:
        assert await calls(executor, 3) == {"ok": 2, "RATE_LIMITED": 1}
        registry.remove("ping")
        await asyncio.sleep(0)
        registry.add(ping)
        assert await calls(executor, 3) == {"RATE_LIMITED": 3}


async def test_callers_are_remembered_up_to_a_bound_and_those_who_wait_before_others() -> None:
    clock = Clock(1000)
    guard = rate(clock, callers={"*": "1/s"}, kept=10)
    async with Executor(Registry([ping]), guards=[guard]) as executor:
        for number in range(100):
            assert await calls(executor, 1, caller=Caller(f"c{number}")) == {"ok": 1}
            assert guard.gauges()["rate_callers"] == ("", {"": min(number + 1, 10)})
        assert await calls(executor, 1, caller=Caller("c99")) == {"RATE_LIMITED": 1}
        clock.advance(2)
        await calls(executor, 1, caller=Caller("new"))
        assert guard.gauges()["rate_callers"] == ("", {"": 1})


# Shared


async def test_64_clients_of_two_gateways_never_get_more_than_the_shared_limit(
    tmp_path: Path,
) -> None:
    """Attack 36."""
    clock, stores = Clock(1.7e9), [SqliteStore(tmp_path / "store.db") for _ in range(2)]
    options = RateOptions(tools={"*": "20/h"}, callers={"*": "15/h"}, shared=True)
    executors = []
    for store in stores:
        await store.open()
        guard = Rate(options, clock=clock, records=store)
        executors.append(Executor(Registry([ping]), guards=[guard]))
    try:
        waves = (
            executor.execute("ping", caller=Caller(f"client {n % 2}"))
            for n in range(64)
            for executor in executors
        )
        results = await asyncio.gather(*waves)
        assert codes(results) == {"ok": 20, "RATE_LIMITED": 108}
        clock.advance(3600)
        again = await asyncio.gather(
            *(e.execute("ping", caller=Caller("one")) for _ in range(32) for e in executors)
        )
        assert codes(again) == {"ok": 15, "RATE_LIMITED": 49}
    finally:
        for executor in executors:
            await executor.close()
        for store in stores:
            await store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is, for several processes."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    dsn: str = request.getfixturevalue("server").database()
    return dsn


def gateways(place: str, *works: dict[str, Any]) -> list[list[float]]:
    """For each process at work on the same store: when its calls were let in."""
    children = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.extensions.rate_child"),
                json.dumps({"store": place, **work}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for work in works
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        return [json.loads(child.communicate(timeout=FENCE)[0]) for child in children]
    finally:
        for child in children:
            child.kill()
            child.communicate()


def test_64_clients_of_each_of_two_processes_never_get_more_than_the_rate_in_any_second(
    place: str,
) -> None:
    """Attack 36, by processes that run at once."""
    work = {"rate": {"tools": {"*": "40/s"}, "shared": True, "tries": 0}, "seconds": 2.5}
    one, two = gateways(place, work, work)
    moments = sorted(one + two)
    assert len(moments) > 60, "more than one second was tried"
    assert most_within(0.999, moments) <= 40


async def test_a_shared_limit_is_not_locked_by_a_clock_that_was_ahead() -> None:
    clock, store = Clock(1.7e9), MemoryStore()
    await store.put("rate", "tool:ping", [[9e9, 1], [9e9 + 1, 1]])
    guard = Rate(RateOptions(tools={"*": "2/h"}, shared=True), clock=clock, records=store)
    async with Executor(Registry([ping]), guards=[guard]) as executor:
        refused = await executor.execute("ping")
        assert refused.error is not None
        assert refused.error.retry_after == pytest.approx(3599)
        clock.advance(3600)
        assert await calls(executor, 3) == {"ok": 2, "RATE_LIMITED": 1}


async def test_hosts_whose_clocks_differ_a_little_give_nothing_away_twice() -> None:
    store, fast, slow = MemoryStore(), Clock(1.7e9 + 20), Clock(1.7e9)
    executors = [
        Executor(
            Registry([ping]),
            guards=[Rate(RateOptions(tools={"*": "4/min"}, shared=True), clock=c, records=store)],
        )
        for c in (fast, slow)
    ]
    said: Counter[str] = Counter()
    for _ in range(8):
        for executor in executors:
            said += await calls(executor, 1)
        fast.advance(4)
        slow.advance(4)
    assert said == {"ok": 4, "RATE_LIMITED": 12}
    for executor in executors:
        await executor.close()


async def test_what_a_callers_own_rate_refuses_is_taken_from_nobody_else() -> None:
    options = RateOptions(tools={"*": "5/h"}, callers={"*": "1/h"}, shared=True)
    guard = Rate(options, clock=Clock(1.7e9), records=MemoryStore())
    async with Executor(Registry([ping]), guards=[guard]) as executor:
        for name in ("ann", "bob", "cy"):
            said = await calls(executor, 9, caller=Caller(name))
            assert said == {"ok": 1, "RATE_LIMITED": 8}
        for name in ("dan", "eve"):
            assert await calls(executor, 1, caller=Caller(name)) == {"ok": 1}


async def test_shared_rates_need_records() -> None:
    with pytest.raises(ValueError, match="records"):
        rate(shared=True)


# Sessions


def test_two_processes_and_a_third_after_them_share_the_budget_of_a_session(place: str) -> None:
    calls_ = {"rate": {"session_calls": 300}, "times": 4}
    both = gateways(place, calls_, calls_)
    after = gateways(place, calls_)
    assert sum(map(len, both)) <= 300
    assert sum(map(len, both + after)) == 300, "what was drawn and not used was given back"


def test_two_processes_share_the_cost_units_of_a_session(place: str) -> None:
    work = {"rate": {"session_cost": 20.0}, "times": 3}
    both = gateways(place, work, work)
    after = gateways(place, work)
    assert sum(map(len, both + after)) == 40, "each costs half a unit"


def test_a_process_that_is_killed_gives_no_call_of_a_session_back(tmp_path: Path) -> None:
    place, budget = str(tmp_path / "store.db"), {"session_calls": 100}
    killed = [
        len(gateways(place, {"rate": budget, "times": times, "killed": True})[0])
        for times in (1, 0, 1)
    ]
    rest = gateways(place, {"rate": budget, "times": 2})
    assert killed[0] == 64
    assert 90 <= sum(killed) + len(rest[0]) <= 100


async def test_a_budget_outlives_the_process_that_began_it() -> None:
    store = MemoryStore()
    for ok in (4, 0):
        guard = Rate(RateOptions(session_calls=4, repeats=0), clock=Clock(), records=store)
        async with Executor(Registry([ping]), guards=[guard]) as executor:
            assert (await calls(executor, 6, session_id="s"))["ok"] == ok
            assert (await calls(executor, 1, session_id=f"other {ok}"))["ok"] == 1


async def test_most_calls_of_a_large_budget_do_not_ask_the_store() -> None:
    class Counting(MemoryStore):
        asked = 0

        async def get(self, space: str, key: str) -> Record | None:
            self.asked += 1
            return await super().get(space, key)

    store = Counting()
    guard = Rate(RateOptions(session_calls=1000, repeats=0), clock=Clock(), records=store)
    async with Executor(Registry([ping]), guards=[guard]) as executor:
        assert await calls(executor, 500, session_id="s") == {"ok": 500}
        assert store.asked < 20


async def test_neither_session_nor_caller_is_in_the_store_by_name() -> None:
    store = MemoryStore()
    guard = Rate(RateOptions(session_calls=9), records=store)
    async with Executor(Registry([ping]), guards=[guard]) as executor:
        await calls(executor, 1, session_id="sk-session", caller=Caller("sk-caller"))
        kept = await store.scan("budgets")
    assert len(kept) == 1
    assert "sk-" not in str(kept)


@pytest.mark.req("AF-5")
async def test_after_three_failures_in_a_row_the_fourth_call_is_refused() -> None:
    ran: list[str] = []

    @tool(effects="read")
    async def flaky(ok: bool, n: int) -> str:
        """Fail or not."""
        ran.append("ok" if ok else "failed")
        if not ok:
            raise ToolFailed("No.")
        return "fine"

    async with sample_executor(flaky, guards=[rate()]) as executor:

        async def once(ok: bool, n: int = 0, session: str | None = "s") -> str:
            arguments = {"ok": ok, "n": n}
            result = await executor.execute("flaky", arguments, session_id=session)
            return result.error.code if result.error else "ok"

        assert [await once(False) for _ in range(2)] == ["EXECUTION_ERROR"] * 2
        assert await once(True) == "ok"
        assert [await once(False, n) for n in range(3)] == ["EXECUTION_ERROR"] * 3
        refused = await executor.execute("flaky", {"ok": True, "n": 0}, session_id="s")
        assert refused.error is not None
        assert (refused.error.code, refused.error.remedy) == ("BUDGET_EXCEEDED", "stop")
        assert refused.error.effects == "none"
        assert not refused.error.retryable
        assert refused.error.message == (
            "flaky has failed 3 times in a row in this session. Do not call it again: tell the "
            "user what you tried, or use another tool."
        )
        assert len(ran) == 6
        assert await once(False, session="another") == "EXECUTION_ERROR"
        assert [await once(False, session=None) for _ in range(9)] == ["EXECUTION_ERROR"] * 9
        assert (await executor.execute("echo", {"text": "a"}, session_id="s")).success


@pytest.mark.req("AF-5")
async def test_calls_with_wrong_arguments_are_tries_too_and_every_one_is_logged() -> None:
    log = Log()
    tools = sample_executor(ping, observers=[log], guards=[Access(), Sanitize(), rate(), Slots()])
    async with tools as executor:

        async def once(**arguments: Any) -> Result:
            return await executor.execute("ping", arguments, session_id="s")

        for wrong in ({"text": 5}, {"txt": "a"}, {"text": None}):
            result = await once(**wrong)
            assert result.error is not None
            assert (result.error.code, result.error.remedy) == ("VALIDATION_ERROR", "fix_args")
        for fourth in ({"text": 5}, {"text": "right at last"}):
            refused = await once(**fourth)
            assert refused.error is not None
            assert (refused.error.code, refused.error.remedy) == ("BUDGET_EXCEEDED", "stop")
            assert refused.metadata.trail[-1] == "rate: BUDGET_EXCEEDED"
        codes_ = [entry.code for entry in log.recent()]
        assert codes_ == ["VALIDATION_ERROR"] * 3 + ["BUDGET_EXCEEDED"] * 2
        assert await calls(executor, 9, arguments={"text": 5}) == {"VALIDATION_ERROR": 9}
        said = await calls(executor, 1, arguments={"text": 5}, session_id="t", dry_run=True)
        assert said == {"VALIDATION_ERROR": 1}


@pytest.mark.req("AF-5")
async def test_wrong_arguments_and_failures_count_together_and_a_success_forgives_them() -> None:
    @tool(effects="read")
    async def check(ok: bool) -> str:
        """Succeed or not."""
        if not ok:
            raise ToolFailed("No.")
        return "fine"

    async with sample_executor(check, guards=[rate(repeats=0)]) as executor:

        async def once(ok: object) -> str:
            result = await executor.execute("check", {"ok": ok}, session_id="s")
            return result.error.code if result.error else "ok"

        said = [await once(ok) for ok in ("?", False, True, False, "?", "?", True)]
    assert said == [
        *("VALIDATION_ERROR", "EXECUTION_ERROR", "ok"),
        *("EXECUTION_ERROR", "VALIDATION_ERROR", "VALIDATION_ERROR", "BUDGET_EXCEEDED"),
    ]


@pytest.mark.req("AF-5")
async def test_arguments_that_a_guard_made_wrong_count_once() -> None:
    async def spoils(call: Call, call_next: Walk) -> Result:
        return await call_next(call.with_arguments({"text": 5}))

    async with Executor(Registry([ping]), guards=[rate(), spoils, Slots()]) as executor:
        said = await calls(executor, 4, session_id="s")
    assert said == {"VALIDATION_ERROR": 3, "BUDGET_EXCEEDED": 1}


@pytest.mark.req("AF-5")
async def test_another_callers_failures_in_a_session_of_the_same_name_do_not_count() -> None:
    async with sample_executor(guards=[rate(repeats=0)]) as executor:
        for name in ("ann", "bob"):
            said = await calls(
                executor, 4, "fail", arguments={"message": "a"}, session_id="s", caller=Caller(name)
            )
            assert said == {"EXECUTION_ERROR": 3, "BUDGET_EXCEEDED": 1}


async def test_a_refusal_is_no_failed_try() -> None:
    async def asks(call: Call, call_next: Walk) -> Result:
        raise ApprovalRequired("Ask.")

    async with Executor(Registry([ping]), guards=[rate(repeats=0), asks]) as executor:
        assert await calls(executor, 9, session_id="s") == {"APPROVAL_REQUIRED": 9}


async def test_a_dry_run_neither_counts_nor_forgives() -> None:
    guard = rate(session_calls=4)
    async with sample_executor(guards=[guard]) as executor:
        arguments = {"message": "a"}
        assert (await calls(executor, 3, "fail", arguments=arguments, session_id="s")).total() == 3
        dry = await calls(executor, 3, "fail", arguments=arguments, session_id="s", dry_run=True)
        assert dry == {"ok": 3}
        said = await calls(executor, 1, "fail", arguments=arguments, session_id="s")
        assert said == {"BUDGET_EXCEEDED": 1}


async def test_the_same_call_with_the_same_result_is_refused_in_the_end() -> None:
    async with Executor(Registry([ping]), guards=[rate(repeats=4)]) as executor:
        assert await calls(executor, 4, session_id="s") == {"ok": 4}
        refused = await executor.execute("ping", session_id="s")
        assert refused.error is not None
        assert refused.error.remedy == "stop"
        assert refused.error.message == (
            "ping was called 4 times with these arguments and gave the same result each time. Do "
            "not repeat it: use what you have, or ask the user."
        )
        assert (await executor.execute("ping", {"text": "b"}, session_id="s")).success
        assert (await executor.execute("ping", session_id="other")).success
        assert await calls(executor, 50) == {"ok": 50}


async def test_a_call_that_makes_progress_may_be_repeated() -> None:
    seen = 0

    @tool(effects="read")
    async def status() -> Output:
        """Tell how far it is."""
        nonlocal seen
        seen += 1
        return Output("running", (Text(str(seen // 3)),))

    async with Executor(Registry([status]), guards=[rate(repeats=4)]) as executor:
        assert await calls(executor, 40, "status", session_id="s") == {"ok": 40}


async def test_a_tool_may_say_how_often_it_may_be_repeated() -> None:
    def polled(repeats: str) -> FunctionTool:
        @tool(effects="read", labels={"repeats": repeats})
        async def status() -> str:
            """Tell the status."""
            return "running"

        return status

    for repeats, ok in (("0", 40), ("20", 20)):
        async with Executor(Registry([polled(repeats)]), guards=[rate()]) as executor:
            assert (await calls(executor, 40, "status", session_id="s"))["ok"] == ok


@pytest.mark.parametrize("text", ["many", "-1", "inf", "nan"])
async def test_a_label_that_is_no_number_refuses_the_tool(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(effects="read", labels={"cost": text})
    async def dear() -> None:
        """Cost."""

    async with Executor(Registry([dear]), guards=[rate()]) as executor:
        result = await executor.execute("dear")
    assert result.error is not None
    assert (result.error.code, result.error.retryable) == ("UNAVAILABLE", False)
    assert "the label 'cost' of 'dear' is a number, 0 or more" in caplog.text


async def test_a_session_has_a_budget_of_calls() -> None:
    guard = rate(session_calls=5, repeats=0)
    async with sample_executor(ping, guards=[guard]) as executor:
        results = await asyncio.gather(
            *(executor.execute("ping", session_id="s") for _ in range(20))
        )
        assert codes(results) == {"ok": 5, "BUDGET_EXCEEDED": 15}
        refused = results[-1].error
        assert refused is not None
        assert refused.message == "This session has used up its 5 calls. Tell the user so."
        assert await calls(executor, 1, session_id="t") == {"ok": 1}


async def test_a_session_has_a_budget_of_cost_units() -> None:
    @tool(effects="read", labels={"cost": "2.5"})
    async def dear() -> None:
        """Cost."""

    guard = rate(session_cost=6, repeats=0)
    async with sample_executor(dear, ping, guards=[guard]) as executor:
        said = await calls(executor, 4, "dear", session_id="s")
        assert said == {"ok": 2, "BUDGET_EXCEEDED": 2}
        refused = await executor.execute("dear", session_id="s")
        assert refused.error is not None
        assert refused.error.message == (
            "This session has spent 5 of its 6 cost units, and dear costs 2.5. Tell the user so."
        )
        assert await calls(executor, 9, session_id="s") == {"ok": 9}


@pytest.mark.parametrize("shared", [False, True])
async def test_a_call_that_a_rate_refuses_does_not_eat_the_budget(shared: bool) -> None:
    clock = Clock(1000)
    options = RateOptions(tools={"*": "1/s"}, session_calls=3, repeats=0, shared=shared)
    guard = Rate(options, clock=clock, records=MemoryStore())
    async with Executor(Registry([ping]), guards=[guard]) as executor:
        for _ in range(3):
            said = await calls(executor, 5, session_id="s")
            assert said["ok"] == 1
            clock.advance(1)
        assert await calls(executor, 1, session_id="s") == {"BUDGET_EXCEEDED": 1}


async def test_sessions_are_remembered_up_to_a_bound_the_longest_unused_go_first() -> None:
    guard = rate(session_calls=2, repeats=0, kept=3)
    async with Executor(Registry([ping]), guards=[guard]) as executor:
        for session in ("a", "b", "c", "a", "d"):
            assert await calls(executor, 1, session_id=session) == {"ok": 1}
        assert guard.gauges()["rate_sessions"] == ("", {"": 3})
        assert await calls(executor, 1, session_id="a") == {"BUDGET_EXCEEDED": 1}
        assert await calls(executor, 3, session_id="b") == {"ok": 2, "BUDGET_EXCEEDED": 1}


async def test_arguments_that_are_not_json_are_not_watched() -> None:
    @tool(effects="read")
    async def any_text(text: str) -> str:
        """Take anything."""
        return "same"

    async with Executor(Registry([any_text]), guards=[rate(repeats=2)]) as executor:
        said = await calls(executor, 9, "any_text", arguments={"text": "\ud800"}, session_id="s")
    assert said["BUDGET_EXCEEDED"] == 0


# Settings


def applies(guard: Rate) -> bool:
    road: Any = None
    return guard.bind(ping.spec, road) is not None


async def test_a_tool_without_any_limit_pays_nothing() -> None:
    assert not applies(rate(tries=0, repeats=0))
    assert not applies(rate(tries=0, repeats=0, tools={"other": "1/s"}))
    assert applies(rate(tries=0, repeats=0, tools={"ping": "1/s"}))
    assert applies(rate())


async def test_settings_come_from_the_config(tmp_path: Path) -> None:
    file = tmp_path / "toolpost.toml"
    file.write_text(
        'guards = ["rate"]\n[extensions.rate]\nshared = true\ntools = {"*" = "2/h"}\n'
        '[[sources]]\nkind = "files"\npaths = ["tools.yaml"]\n'
    )
    (tmp_path / "tools.yaml").write_text("tools: []\n")
    async with Runtime.open(file) as tools:
        tools.registry.add(ping)
        said = codes([await tools.execute("ping") for _ in range(3)])
    assert said == {"ok": 2, "RATE_LIMITED": 1}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('tools = {"*" = "fast"}', "is no rate"),
        ('groups = {"tags:x" = "1/s"}', "is no pattern"),
        ("tries = -1", "tries must be 0 or more"),
        ("kept = 0", "kept must be 1 or more"),
        ("trys = 1", "no setting 'trys'"),
    ],
)
async def test_a_wrong_setting_is_refused_with_its_place(
    line: str, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "toolpost.toml"
    file.write_text(f'guards = ["rate"]\n[extensions.rate]\n{line}\n')
    with pytest.raises(ConfigError, match=says):
        Runtime.open(file)
