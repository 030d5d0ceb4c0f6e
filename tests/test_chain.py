"""Rings around a call: what guards and observers may do, and what they may not."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from toolpost import (
    Call,
    Caller,
    ConfigError,
    Denied,
    Executor,
    InvalidSpec,
    Registry,
    Result,
    ToolSpec,
    Unavailable,
    tool,
)
from toolpost.contracts import Around, Check, Ring, Road, Sure, Walk, Watch
from toolpost.testing import echo, hang

pytestmark = pytest.mark.anyio


class Tally:
    """A tool that remembers its calls, and the registry it stands in."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []

        @tool(tier=0, effects="once")
        async def add(a: int, b: int = 10) -> int:
            """Add two numbers."""
            self.runs.append({"a": a, "b": b})
            return a + b

        self.registry = Registry([add, echo, hang])


@pytest.fixture
def tally() -> Tally:
    return Tally()


def named(name: str, seen: list[Any] | None = None) -> Ring:
    async def ring(call: Call, call_next: Walk) -> Result:
        if seen is not None:
            seen.append((name, call.tool, dict(call.arguments)))
        return await call_next(call)

    ring.__name__ = name
    return ring


def refusing(exc: BaseException, name: str = "refusing") -> Ring:
    async def ring(call: Call, call_next: Walk) -> Result:
        raise exc

    ring.__name__ = name
    return ring


def rewriting(**changes: Any) -> Ring:
    async def rewrites(call: Call, call_next: Walk) -> Result:
        return await call_next(msgspec.structs.replace(call, arguments=changes))

    return rewrites


class Only:
    """An extension for one tool."""

    name = "only"

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.bound: list[str] = []
        self.road: Road | None = None

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
        self.bound.append(spec.name)
        self.road = road
        return named("only") if spec.name == self.tool else None


# Guards


async def test_guards_stand_in_the_order_of_their_list(tally: Tally) -> None:
    async with Executor(tally.registry, guards=[named("a"), named("b"), named("c")]) as executor:
        result = await executor.execute("add", {"a": 1})
        assert result.output == 11
        assert result.metadata.trail == ["a", "b", "c"]
        assert executor.bound("add").rings == ("a", "b", "c")


async def test_observers_stand_before_guards_in_the_order_of_their_list(tally: Tally) -> None:
    async with Executor(
        tally.registry, observers=[named("x"), named("y")], guards=[named("a")]
    ) as executor:
        result = await executor.execute("add", {"a": 1})
        assert result.metadata.trail == ["x", "y", "a"]
        assert executor.bound("add").rings == ("x", "y", "a")


async def test_an_extension_that_does_not_apply_leaves_no_trace(tally: Tally) -> None:
    only = Only("echo")
    async with Executor(tally.registry, guards=[only], observers=[only]) as executor:
        result = await executor.execute("add", {"a": 1})
        assert not result.metadata.trail
        assert executor.bound("add").rings == ()
        assert (await executor.execute("echo", {"text": "x"})).metadata.trail == ["only", "only"]


async def test_an_extension_is_bound_once_per_tool(tally: Tally) -> None:
    only = Only("echo")
    async with Executor(tally.registry, guards=[only]) as executor:
        for _ in range(3):
            await executor.execute("echo", {"text": "x"})
        assert only.bound == ["echo"]


@pytest.mark.parametrize(
    ("exc", "code"),
    [
        (Denied("No."), "POLICY_DENIED"),
        (RuntimeError("secret internals"), "INTERNAL_ERROR"),
        (ConnectionRefusedError(), "UNAVAILABLE"),
        (InvalidSpec("It cannot run."), "UNAVAILABLE"),
    ],
    ids=lambda x: type(x).__name__,
)
async def test_a_guard_that_raises_anything_keeps_the_tool_from_running(
    tally: Tally, exc: Exception, code: str
) -> None:
    async with Executor(tally.registry, guards=[named("a"), refusing(exc)]) as executor:
        result = await executor.execute("add", {"a": 1})
    assert result.error.code == code
    assert "secret" not in result.error.message
    assert result.metadata.trail == ["a", "refusing", f"refusing: {code}"]
    assert tally.runs == []


@pytest.mark.parametrize("answer", [None, {"output": 1}, 5], ids=repr)
async def test_a_guard_that_returns_no_result_is_an_error(tally: Tally, answer: Any) -> None:
    async def forgets(call: Call, call_next: Walk) -> Any:
        return answer

    async with Executor(tally.registry, guards=[forgets]) as executor:
        result = await executor.execute("add", {"a": 1})
    assert result.error.code == "INTERNAL_ERROR"
    assert tally.runs == []


async def test_a_guard_that_is_not_async_is_an_error(tally: Tally) -> None:
    def plain(call: Call, call_next: Walk) -> Any:
        return Result(output=1)

    async with Executor(tally.registry, guards=[plain]) as executor:
        result = await executor.execute("add", {"a": 1})
    assert result.error.code == "INTERNAL_ERROR"
    assert tally.runs == []


async def test_a_plain_function_that_hands_on_is_a_guard(tally: Tally) -> None:
    async with Executor(tally.registry, guards=[lambda call, onward: onward(call)]) as executor:
        assert (await executor.execute("add", {"a": 1})).output == 11


async def test_a_guard_sees_results_where_the_tool_or_another_guard_failed(tally: Tally) -> None:
    seen = []

    async def looks(call: Call, call_next: Walk) -> Result:
        result = await call_next(call)
        seen.append(result.error.code)
        return result

    @tool
    async def breaks() -> None:
        """Break."""
        raise ValueError

    tally.registry.add(breaks)
    async with Executor(tally.registry, guards=[looks]) as executor:
        await executor.execute("breaks")
    async with Executor(tally.registry, guards=[looks, refusing(Denied("No."))]) as executor:
        await executor.execute("add", {"a": 1})
    async with Executor(tally.registry, guards=[looks, rewriting(a="bad")]) as executor:
        await executor.execute("add", {"a": 1})
    assert seen == ["INTERNAL_ERROR", "POLICY_DENIED", "VALIDATION_ERROR"]


async def test_a_guard_may_answer_in_the_place_of_the_tool(tally: Tally) -> None:
    async def answers(call: Call, call_next: Walk) -> Result:
        call.warn("from memory")
        return Result(output=42)

    async with Executor(tally.registry, guards=[answers]) as executor:
        result = await executor.execute("add", {"a": 1})
    assert result.output == 42
    assert result.metadata.call_id
    assert result.metadata.trail == ["answers"]
    assert result.metadata.warnings == ["from memory"]
    assert tally.runs == []


async def test_a_guard_may_try_twice(tally: Tally) -> None:
    async def twice(call: Call, call_next: Walk) -> Result:
        await call_next(call)
        return await call_next(call)

    async with Executor(tally.registry, guards=[twice, named("inner")]) as executor:
        result = await executor.execute("add", {"a": 1})
    assert result.metadata.trail == ["twice", "inner", "inner"]
    assert len(tally.runs) == 2


async def test_arguments_are_checked_once_for_all_guards(tally: Tally) -> None:
    seen = []

    async def looks(call: Call, call_next: Walk) -> Result:
        seen.append(call.arguments)
        return await call_next(call)

    async with Executor(tally.registry, guards=[looks, looks]) as executor:
        await executor.execute("add", {"a": 1})
    assert seen == [{"a": 1, "b": 10}] * 2
    assert seen[0] is seen[1]


async def test_bad_arguments_do_not_reach_a_guard(tally: Tally) -> None:
    seen = []
    async with Executor(tally.registry, guards=[named("a", seen)]) as executor:
        result = await executor.execute("add", {"a": "x"})
    assert result.error.code == "VALIDATION_ERROR"
    assert result.metadata.trail == ["road: VALIDATION_ERROR"]
    assert seen == []


@pytest.mark.parametrize("behind", [0, 1], ids=["last", "before another guard"])
async def test_what_a_guard_rewrites_is_checked_again_and_filled_in(
    tally: Tally, behind: int
) -> None:
    guards = [rewriting(a=5), *[named("behind")] * behind]
    async with Executor(tally.registry, guards=guards) as executor:
        result = await executor.execute("add", {"a": 1, "b": 2})
    assert result.output == 15
    assert tally.runs == [{"a": 5, "b": 10}]


@pytest.mark.parametrize("behind", [0, 1], ids=["last", "before another guard"])
async def test_a_bad_rewrite_is_refused(tally: Tally, behind: int) -> None:
    guards = [rewriting(a=5, c=1), *[named("behind")] * behind]
    async with Executor(tally.registry, guards=guards) as executor:
        result = await executor.execute("add", {"a": 1, "b": 2})
    assert result.error.code == "VALIDATION_ERROR"
    assert "behind" not in result.metadata.trail
    assert tally.runs == []


async def test_a_tool_whose_guard_cannot_be_bound_is_refused_and_closed(tally: Tally) -> None:
    class Broken:
        name = "broken"

        def bind(self, spec: ToolSpec, road: Road) -> Ring:
            raise RuntimeError("internals")

    seen: list[Any] = []
    async with Executor(
        tally.registry, guards=[Broken()], observers=[named("o", seen)]
    ) as executor:
        for _ in range(2):
            result = await executor.execute("add", {"a": 1})
            assert result.error.code == "INTERNAL_ERROR"
            assert "internals" not in result.error.message
    assert len(seen) == 2
    assert tally.runs == []


async def test_a_tool_whose_observer_cannot_be_bound_is_refused_in_sight_of_the_others(
    tally: Tally,
) -> None:
    class Broken:
        name = "broken"

        def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
            if spec.name == "add":
                raise Unavailable("The audit is not there.")
            return None

    seen: list[Any] = []
    observers = [named("outer", seen), Broken(), named("inner", seen)]
    async with Executor(tally.registry, observers=observers) as executor:
        result = await executor.execute("add", {"a": 1})
        assert result.error.message == "The audit is not there."
        assert [name for name, *_ in seen] == ["outer", "inner"]
        assert (await executor.execute("echo", {"text": "x"})).success
    assert tally.runs == []


def test_what_is_not_an_extension_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="a int is not an extension"):
        Executor(Registry(), guards=[5])


# Observers


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("add", {"a": 1}, None),
        ("add", {"a": "x"}, "VALIDATION_ERROR"),
        ("subtract", {"a": 1}, "NOT_FOUND"),
        ([], {}, "NOT_FOUND"),
    ],
    ids=["good", "bad", "unknown", "unhashable"],
)
async def test_an_observer_sees_every_call_and_its_outcome(
    tally: Tally, name: Any, arguments: Any, code: str | None
) -> None:
    seen = []

    async def watches(call: Call, call_next: Walk) -> Result:
        result = await call_next(call)
        seen.append((call.call_id, result.error and result.error.code))
        assert isinstance(call.tool, str)
        return result

    async with Executor(tally.registry, observers=[watches]) as executor:
        result = await executor.execute(name, arguments)
    assert seen == [(result.metadata.call_id, code)]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_observer_that_breaks_changes_nothing(
    tally: Tally, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(call: Call, call_next: Walk) -> Result:
        if when == "after":
            await call_next(call)
        raise RuntimeError("the disk is full")

    async with Executor(tally.registry, observers=[breaks, named("inner")]) as executor:
        result = await executor.execute("add", {"a": 1})
    assert result.output == 11
    assert result.metadata.trail == ["breaks", "inner"]
    assert len(tally.runs) == 1
    assert "the observer breaks failed" in caplog.text
    assert "the disk is full" in caplog.text


async def test_an_observer_may_refuse_a_call_that_has_not_run(tally: Tally) -> None:
    no_record = Unavailable("No record can be written.")
    async with Executor(tally.registry, observers=[refusing(no_record, "audit")]) as executor:
        result = await executor.execute("add", {"a": 1})
    assert result.error.code == "UNAVAILABLE"
    assert result.error.message == "No record can be written."
    assert result.metadata.trail == ["audit", "audit: UNAVAILABLE"]
    assert tally.runs == []


async def test_an_observer_cannot_refuse_what_has_run(
    tally: Tally, caplog: pytest.LogCaptureFixture
) -> None:
    async def too_late(call: Call, call_next: Walk) -> Result:
        await call_next(call)
        raise Denied("Too late.")

    async with Executor(tally.registry, observers=[too_late]) as executor:
        assert (await executor.execute("add", {"a": 1})).output == 11
    assert "the observer too_late failed" in caplog.text


async def test_an_observer_cannot_change_the_call_the_result_or_how_often_it_runs(
    tally: Tally,
) -> None:
    async def meddles(call: Call, call_next: Walk) -> Result:
        await call_next(msgspec.structs.replace(call, arguments={"a": 100}))
        await call_next(call)
        return Result(output="mine")

    async def ignores(call: Call, call_next: Walk) -> Any:
        return None

    async with Executor(tally.registry, observers=[meddles, ignores]) as executor:
        assert (await executor.execute("add", {"a": 1})).output == 11
    assert tally.runs == [{"a": 1, "b": 10}]


@pytest.mark.parametrize("role", ["observers", "guards"])
async def test_a_cancellation_passes_through_rings(tally: Tally, role: str) -> None:
    begun, left = asyncio.Event(), []

    async def watches(call: Call, call_next: Walk) -> Result:
        begun.set()
        try:
            return await call_next(call)
        finally:
            left.append(1)

    async with Executor(tally.registry, **{role: [watches, watches]}) as executor:
        run = asyncio.ensure_future(executor.execute("hang"))
        await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert left == [1, 1]


async def test_an_observer_that_keeps_a_cancellation_does_not_make_the_tool_run_again() -> None:
    begun, runs = asyncio.Event(), []

    @tool(timeout=30)
    async def hangs() -> None:
        """Hang."""
        runs.append(1)
        begun.set()
        await asyncio.get_running_loop().create_future()

    async def keeps(call: Call, call_next: Walk) -> Any:
        try:
            return await call_next(call)
        except asyncio.CancelledError:
            return None

    async with Executor(Registry([hangs]), observers=[keeps]) as executor:
        run = asyncio.ensure_future(executor.execute("hangs"))
        await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert runs == [1]


# What a caller may know


class Sighted:
    name = "sighted"

    def __init__(self, hidden: str) -> None:
        self.hidden = hidden

    def bind(self, spec: ToolSpec, road: Road) -> None:
        return None

    def sees(self, caller: Caller, spec: ToolSpec) -> bool:
        if caller.id == "broken":
            raise RuntimeError("no idea")
        return spec.name != self.hidden or caller.owner


async def test_a_caller_is_shown_and_hinted_at_only_what_it_may_know_of(
    tally: Tally, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    stranger = Caller("stranger")
    async with Executor(tally.registry, guards=[Sighted("add")], observers=[Sighted("hang")]) as ex:
        assert [s.name for s in ex.list()] == ["add", "echo", "hang"]
        assert [s.name for s in ex.list(stranger)] == ["echo"]
        assert ex.list(Caller("broken")) == ()
        assert "did you mean 'add'?" in (await ex.execute("adds")).error.message
        hidden = await ex.execute("adds", caller=stranger)
        assert "add'?" not in hidden.error.message
        seen = await ex.execute("ech", caller=stranger)
        assert "did you mean 'echo'?" in seen.error.message
        assert (await ex.execute("ech", caller=Caller("broken"))).error.code == "NOT_FOUND"


async def test_without_judges_every_tool_is_listed(tally: Tally) -> None:
    async with Executor(tally.registry) as executor:
        assert executor.list() is tally.registry.list()


# Walking anew


async def test_a_ring_may_walk_the_road_anew_with_another_tool(tally: Tally) -> None:
    class Fallback:
        name = "fallback"

        def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
            async def ring(call: Call, call_next: Walk) -> Result:
                return await road.rewalk(call, tool="echo", arguments={"text": "instead"})

            return ring if spec.name == "add" else None

    seen: list[Any] = []
    async with Executor(
        tally.registry, guards=[Fallback()], observers=[named("o", seen)]
    ) as executor:
        result = await executor.execute("add", {"a": 1})
    assert result.output == "instead"
    assert seen == [("o", "add", {"a": 1}), ("o", "echo", {"text": "instead"})]


async def test_a_walk_anew_carries_all_that_the_call_had_and_the_grant(tally: Tally) -> None:
    calls: list[Call] = []

    async def edits(call: Call, call_next: Walk) -> Result:
        calls.append(call)
        if call.grant is None:
            return await executor.rewalk(call, arguments={"a": 7}, grant="g1")
        return await call_next(call)

    given: dict[str, Any] = {
        "caller": Caller("me"),
        "session_id": "s",
        "timeout": 20.0,
        "working_dir": "/w",
        "metadata": {"m": 1},
        "key": "k",
        "on_progress": print,
    }
    async with Executor(tally.registry, guards=[edits]) as executor:
        result = await executor.execute("add", {"a": 1}, **given)
    assert result.output == 17
    first, second = calls
    assert first.call_id != second.call_id
    assert (first.grant, second.grant) == (None, "g1")
    assert second.deadline == pytest.approx(first.deadline, abs=1)
    kept = ("caller", "session_id", "working_dir", "metadata", "key", "on_progress")
    assert [getattr(second, k) for k in kept] == [given[k] for k in kept]


async def test_a_walk_anew_without_changes_repeats_the_call(tally: Tally) -> None:
    async def again(call: Call, call_next: Walk) -> Result:
        if call.grant is None:
            return await executor.rewalk(call, grant="again")
        return await call_next(call)

    async with Executor(tally.registry, guards=[again]) as executor:
        assert (await executor.execute("add", {"a": 1})).output == 11
    assert tally.runs == [{"a": 1, "b": 10}]


# --- the light shapes ----------------------------------------------------------------------------


def passing(name: str) -> Check:
    def look(call: Call) -> None:
        assert call.arguments is call.admitted

    look.__name__ = name
    return Check(look)


async def test_checks_and_rings_stand_in_the_order_of_their_list(tally: Tally) -> None:
    guards = [passing("one"), passing("two"), named("three"), passing("four")]
    async with Executor(tally.registry, guards=guards) as executor:
        assert executor.bound("add").rings == ("one", "two", "three", "four")
        result = await executor.execute("add", {"a": 1})
    assert result.output == 11
    assert result.metadata.trail == ["one", "two", "three", "four"]
    assert result.metadata.duration_ms > 0


@pytest.mark.parametrize("why", [Denied("No."), ValueError("broken")], ids=["refuses", "breaks"])
@pytest.mark.parametrize("guards", [[], [passing("first")], [named("first")]], ids=len)
async def test_a_check_that_raises_keeps_the_tool_from_running(
    tally: Tally, why: Exception, guards: list[Any]
) -> None:
    def judge(call: Call) -> None:
        raise why

    async with Executor(tally.registry, guards=[*guards, Check(judge)]) as executor:
        result = await executor.execute("add", {"a": 1})
        bad = await executor.execute("add", {"a": "x"})
    code = "POLICY_DENIED" if isinstance(why, Denied) else "INTERNAL_ERROR"
    assert result.error is not None and result.error.code == code
    assert result.metadata.trail[-1] == f"judge: {code}"
    assert bad.error is not None and bad.error.code == "VALIDATION_ERROR"
    assert tally.runs == []


@pytest.mark.parametrize("behind", [0, 1])
async def test_what_a_check_hands_on_is_checked_again_and_filled_in(
    tally: Tally, behind: int
) -> None:
    def rewrite(call: Call) -> Call:
        return call.with_arguments({"a": call.arguments["a"] + 1 if call.arguments["a"] else "x"})

    guards = [Check(rewrite), *[passing("behind")] * behind]
    async with Executor(tally.registry, guards=guards) as executor:
        assert (await executor.execute("add", {"a": 1, "b": 2})).output == 12
        bad = await executor.execute("add", {"a": 0})
    assert bad.error is not None and bad.error.code == "VALIDATION_ERROR"
    assert tally.runs == [{"a": 2, "b": 10}]


async def test_a_watch_is_told_how_every_call_ended(tally: Tally) -> None:
    told: list[Any] = []

    def hear(call: Call, result: Result | None) -> None:
        told.append((call.tool, None if result is None else result.error and result.error.code))

    async with Executor(tally.registry, observers=[Watch(hear), named("ring")]) as executor:
        seen = await executor.execute("add", {"a": 1})
        await executor.execute("add", {"b": 1})
        await executor.execute("nothing")
        hanging = asyncio.ensure_future(executor.execute("hang"))
        await asyncio.sleep(0)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
    assert seen.output == 11 and seen.metadata.trail == ["hear", "ring"]
    errors = [("add", "VALIDATION_ERROR"), ("nothing", "NOT_FOUND")]
    assert told == [("add", None), *errors, ("hang", None)]


async def test_a_watch_may_refuse_a_call_and_all_of_them_hear_of_it(tally: Tally) -> None:
    told: list[Any] = []

    def hear(call: Call, result: Result | None) -> None:
        told.append(result)

    def full(call: Call) -> None:
        raise Unavailable("The disk is full.")

    def hear_more(call: Call, result: Result | None, value: None) -> None:
        told.append(result)

    observers = [Watch(hear), Watch(hear_more, full), Watch(hear_more, lambda call: None)]
    async with Executor(tally.registry, observers=observers) as executor:
        result = await executor.execute("add", {"a": 1})
    assert result.error is not None and result.error.code == "UNAVAILABLE"
    assert told == [result] * 2
    assert tally.runs == []


async def test_what_a_watch_saw_before_is_there_after_and_it_may_be_waited_for(
    tally: Tally,
) -> None:
    told: list[Any] = []

    async def settled() -> None:
        await asyncio.sleep(0)
        told.append("settled")

    def after(call: Call, result: Result | None, value: Any) -> Any:
        told.append(value)
        return settled()

    watch = Watch(after, lambda call: dict(call.arguments))
    async with Executor(tally.registry, observers=[watch]) as executor:
        await executor.execute("add", {"a": 1})
    assert told == [{"a": 1}, "settled"]


async def test_a_watch_that_breaks_changes_nothing(
    tally: Tally, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    def broken(call: Call, result: Any = None) -> None:
        raise ValueError("broken")

    def before(call: Call) -> None:
        raise ValueError("broken")

    def hear(call: Call, result: Result | None) -> None:
        told.append(result)

    observers = [Watch(hear), Watch(broken), Watch(broken, before)]
    async with Executor(tally.registry, observers=observers) as executor:
        result = await executor.execute("add", {"a": 1})
    assert told == [result] and result.output == 11
    assert caplog.text.count("broken failed") == 2


async def test_the_light_shapes_are_rings_like_others(tally: Tally) -> None:
    told: list[Any] = []
    watch = Watch(lambda call, result, tool: told.append((tool, result)), lambda call: call.tool)

    class Heavy:
        name = "heavy"

        def bind(self, spec: ToolSpec, road: Road) -> Ring:
            async def ring(call: Call, call_next: Walk) -> Result:
                async def inner(call: Call) -> Result:
                    return await watch(call, call_next)

                return await passing("check")(call, inner)

            return ring

    async with Executor(tally.registry, guards=[Heavy()]) as executor:
        result = await executor.execute("add", {"a": 1})
    assert told == [("add", result)]


async def test_a_check_may_ask_for_a_ring_around_those_behind_it(tally: Tally) -> None:
    def look(call: Call) -> Ring | None:
        return named("asked") if call.arguments["a"] else None

    guards = [passing("before"), Check(look), passing("behind")]
    async with Executor(tally.registry, guards=guards) as executor:
        light = await executor.execute("add", {"a": 0})
        full = await executor.execute("add", {"a": 1})
    assert (light.output, full.output) == (10, 11)
    assert light.metadata.trail == full.metadata.trail == ["before", "look", "behind"]


class Asking:
    """A guard that sets what a person must be asked, and one that would hear of it."""

    def __init__(self, ask: str | None) -> None:
        self.asked: list[str | None] = []

        def ask_first(call: Call) -> Call | None:
            return None if ask is None else msgspec.structs.replace(call, ask=ask)

        def heard(call: Call) -> Call:
            self.asked.append(call.ask)
            return msgspec.structs.replace(call, ask=None)

        self.guards = [Check(ask_first), Check(heard, plain=True), passing("last")]


@pytest.mark.parametrize(
    ("given", "looked"),
    [({}, False), ({"session_id": "s"}, True), ({"grant": "g"}, True)],
    ids=["plain", "session", "grant"],
)
async def test_a_check_that_has_nothing_to_say_of_plain_calls_does_not_look_at_them(
    tally: Tally, given: dict[str, Any], looked: bool
) -> None:
    asking = Asking(None)
    async with Executor(tally.registry, guards=asking.guards) as executor:
        result = await executor.execute("add", {"a": 1}, **given)
    assert result.output == 11 and asking.asked == ([None] if looked else [])
    assert result.metadata.trail == ["ask_first", "heard", "last"]


async def test_a_call_that_a_check_has_made_less_plain_is_looked_at(tally: Tally) -> None:
    asking = Asking("Why?")
    async with Executor(tally.registry, guards=asking.guards) as executor:
        result = await executor.execute("add", {"a": 1})
    assert result.output == 11 and asking.asked == ["Why?"]
    assert result.metadata.trail == ["ask_first", "heard", "last"]


def stepping(name: str, why: Exception | None = None) -> Any:
    """A guard that is a step of the road itself."""

    class Steps:
        def bind(self, spec: ToolSpec, road: Road) -> Ring:
            def around(inner: Walk, failed: Any, _: Any) -> Walk:
                async def step(call: Call) -> Result:
                    assert call.arguments is call.admitted
                    call.about.open_trail().append(name)
                    return await inner(call) if why is None else failed(call, why)  # type: ignore[no-any-return]

                return step

            return Around(around)

    steps: Any = Steps()
    steps.name = name
    return steps


@pytest.mark.parametrize(
    "guards",
    [
        [stepping("a"), stepping("b"), stepping("c")],
        [passing("a"), stepping("b"), stepping("c")],
        [stepping("a"), passing("b"), stepping("c")],
        [named("a"), stepping("b"), named("c")],
        [stepping("a"), named("b"), passing("c")],
    ],
    ids=["alone", "behind checks", "around checks", "between rings", "around rings"],
)
async def test_a_step_of_a_guards_own_has_its_place_and_sees_good_arguments_only(
    tally: Tally, guards: list[Any]
) -> None:
    async with Executor(tally.registry, guards=guards) as executor:
        assert executor.bound("add").rings == ("a", "b", "c")
        result = await executor.execute("add", {"a": 1})
        bad = await executor.execute("add", {"a": "x"})
    assert result.output == 11 and result.metadata.trail == ["a", "b", "c"]
    assert bad.error is not None and bad.error.code == "VALIDATION_ERROR"
    assert bad.metadata.trail == ["road: VALIDATION_ERROR"]


async def test_what_a_ring_puts_in_the_place_of_arguments_is_checked_before_a_step(
    tally: Tally,
) -> None:
    async with Executor(tally.registry, guards=[rewriting(a="x"), stepping("b")]) as executor:
        result = await executor.execute("add", {"a": 1})
    assert result.error is not None and result.error.code == "VALIDATION_ERROR"
    assert result.metadata.trail == ["rewrites", "road: VALIDATION_ERROR"]


async def test_a_step_that_refuses_says_so_in_its_own_name(tally: Tally) -> None:
    guards = [passing("a"), stepping("b", Denied("No.")), stepping("c")]
    async with Executor(tally.registry, guards=guards) as executor:
        result = await executor.execute("add", {"a": 1})
    assert result.error is not None and result.error.message == "No."
    assert result.metadata.trail == ["a", "b", "b: POLICY_DENIED"]
    assert tally.runs == []


async def test_a_step_is_a_ring_like_others(tally: Tally) -> None:
    async def outer(call: Call, call_next: Walk) -> Result:
        why = Denied("No.") if call.arguments["a"] else None
        return await stepping("inner", why).bind(call.spec, None)(call, call_next)

    async with Executor(tally.registry, guards=[outer]) as executor:
        assert (await executor.execute("add", {"a": 0})).output == 10
        result = await executor.execute("add", {"a": 1})
    assert result.error is not None and result.error.message == "No."


async def test_the_calls_inside_are_counted_for_every_watch_that_wants_it(tally: Tally) -> None:
    class Inside:
        running = 0

    insides = [Inside(), Inside()]
    counted: list[int] = []
    observers = [Watch(lambda call, result: None, inside=inside) for inside in insides]
    observers.append(Watch(lambda call, result: counted.append(insides[0].running)))

    async def look(call: Call, call_next: Walk) -> Result:
        counted.extend(inside.running for inside in insides)
        return await call_next(call)

    async with Executor(tally.registry, observers=observers, guards=[look]) as executor:
        await executor.execute("add", {"a": 1})
        hanging = asyncio.ensure_future(executor.execute("hang"))
        await asyncio.sleep(0)
        assert [inside.running for inside in insides] == [1, 1]
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
    assert counted[:2] == [1, 1]
    assert [inside.running for inside in insides] == [0, 0]


@pytest.mark.parametrize("session", [None, "s"])
async def test_a_check_does_not_look_at_arguments_of_which_native_code_is_sure(
    tally: Tally, session: str | None
) -> None:
    looked: list[Any] = []

    def look(call: Call) -> None:
        looked.append(call.arguments["a"])

    def fits(arguments: dict[str, Any]) -> bool:
        if arguments["a"] == 3:
            raise ValueError("that is no JSON")
        return bool(arguments["a"] == 1)

    sure = Sure()
    guards = [passing("before"), Check(look, sure=sure), passing("behind")]
    async with Executor(tally.registry, guards=guards) as executor:
        trails = [(await executor.execute("add", {"a": 1, "b": 1})).metadata.trail]
        sure.fits = fits
        for number in (1, 2, 3):
            result = await executor.execute("add", {"a": number, "b": 1}, session_id=session)
            assert result.output == number + 1
            trails.append(result.metadata.trail)
        bad = await executor.execute("add", {"a": "x", "b": 1})
    assert looked == [1, 2, 3] and trails == [["before", "look", "behind"]] * 4
    assert bad.error is not None and bad.error.code == "VALIDATION_ERROR"


async def test_what_a_check_before_puts_in_the_place_of_arguments_nobody_was_sure_of(
    tally: Tally,
) -> None:
    looked: list[Any] = []

    def rewrite(call: Call) -> Call:
        return call.with_arguments({"a": 2, "b": 1})

    def look(call: Call) -> None:
        looked.append(call.arguments)

    guards = [Check(rewrite), Check(look, sure=Sure(lambda arguments: arguments["a"] == 1))]
    async with Executor(tally.registry, guards=guards) as executor:
        assert (await executor.execute("add", {"a": 1, "b": 1})).output == 3
    assert looked == [{"a": 2, "b": 1}]


async def test_observers_hear_how_long_a_call_took_with_all_that_stands_around_it(
    tally: Tally,
) -> None:
    """A step may take its time once the tool has run, and puts its name on the trail unseen."""
    heard: list[float] = []

    class Slow:
        name = "slow"

        def bind(self, spec: ToolSpec, road: Road) -> Ring:
            def around(inner: Walk, failed: Any, _: Any) -> Walk:
                async def step(call: Call) -> Result:
                    call.about.passed("slow")
                    result = await inner(call)
                    await asyncio.sleep(0.05)
                    return result

                return step

            return Around(around)

    def after(call: Call, result: Result | None) -> None:
        assert result is not None
        heard.append(result.metadata.duration_ms)

    slow: Any = Slow()
    async with Executor(tally.registry, observers=[Watch(after)], guards=[slow]) as executor:
        result = await executor.execute("add", {"a": 1})
    assert heard == [result.metadata.duration_ms] and heard[0] >= 45
