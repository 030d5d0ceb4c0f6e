"""Rate: how often, by whom, and when a session has to stop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

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
from toolpost.contracts import Walk
from toolpost.extensions.rate import Rate, RateOptions
from toolpost.result import Output
from toolpost.stores.memory import MemoryStore
from toolpost.stores.sqlite import SqliteStore
from toolpost.testing import Clock, echo, sample_executor

pytestmark = pytest.mark.anyio


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
        assert refused.error.message == "Rate limit exceeded. Retry after 12s."
        assert refused.error.retry_after == pytest.approx(12, rel=0.02)
        assert (refused.error.remedy, refused.error.retryable) == ("wait", True)
        assert refused.error.details == {"limit": "5/min", "of": "tool:ping"}
        clock.advance(refused.error.retry_after or 0)
        assert await calls(executor, 2) == {"ok": 1, "RATE_LIMITED": 1}
        clock.advance(60)
        assert await calls(executor, 9) == {"ok": 5, "RATE_LIMITED": 4}


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


_GATEWAY = """
import asyncio, sys
from pathlib import Path
from toolpost import Executor, Registry, tool
from toolpost.extensions.rate import Rate, RateOptions
from toolpost.stores.sqlite import SqliteStore

@tool(effects="read")
async def ping() -> str:
    "Answer."
    return "pong"

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    await store.open()
    guard = Rate(RateOptions(tools={"*": "20/h"}, shared=True), records=store)
    async with Executor(Registry([ping]), guards=[guard]) as executor:
        results = await asyncio.gather(*(executor.execute("ping") for _ in range(64)))
    await store.close()
    print(sum(r.success for r in results))

asyncio.run(main())
"""


async def test_two_processes_never_get_more_than_the_shared_limit(tmp_path: Path) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _GATEWAY, str(tmp_path / "store.db")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    admitted = [int(child.communicate(timeout=60)[0]) for child in children]
    assert sum(admitted) == 20


async def test_a_shared_limit_is_not_locked_by_a_clock_that_was_ahead() -> None:
    clock, store = Clock(1.7e9), MemoryStore()
    await store.put("rate", "tool:ping", 9e9)
    guard = Rate(RateOptions(tools={"*": "2/h"}, shared=True), clock=clock, records=store)
    async with Executor(Registry([ping]), guards=[guard]) as executor:
        refused = await executor.execute("ping")
        assert refused.error is not None
        assert refused.error.retry_after == pytest.approx(1800, rel=0.02)
        clock.advance(3700)
        assert await calls(executor, 3) == {"RATE_LIMITED": 3}
        await store.put("rate", "tool:ping", clock.time())
        assert await calls(executor, 3) == {"ok": 2, "RATE_LIMITED": 1}


async def test_shared_rates_need_records() -> None:
    with pytest.raises(ValueError, match="records"):
        rate(shared=True)


# Sessions


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
