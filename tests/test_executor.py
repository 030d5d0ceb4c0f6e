"""The road: one call from a name to a result, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections import UserDict
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pydantic
import pytest

from toolpost import (
    Call,
    Caller,
    Executor,
    Image,
    InvalidSpec,
    Limits,
    MissingPart,
    Output,
    Progress,
    Registry,
    Result,
    Text,
    Tool,
    ToolFailed,
    ToolSpec,
    deadline,
    tool,
)
from toolpost.call import OWNER
from toolpost.contracts import Health, Walk, Watch
from toolpost.given import NEVER
from toolpost.result import Metadata
from toolpost.testing import sample_executor

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "GRACE", 0.02)


@tool(tier=0, effects="read")
async def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def deep(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


class Given:
    """A backend in a few lines: what it runs is a function of the call."""

    def __init__(self, function: Any, **about: Any) -> None:
        self.function = function
        self.about = about
        self.events: list[str] = []

    def bind(self, spec: ToolSpec, target: object | None) -> Given:
        self.events.append(f"bind {spec.name}")
        return self

    async def run(self, call: Call) -> Any:
        return await self.function(call)

    async def health(self) -> Health:
        return Health(True)

    async def close(self) -> None:
        self.events.append("close")


def given(function: Any, **spec: Any) -> tuple[Executor, Given]:
    backend = Given(function)
    described = ToolSpec(name="it", description="It.", kind="given", **spec)
    return Executor(Registry([described]), backends={"given": backend}), backend


async def run(function: Any, **spec: Any) -> Result:
    executor, _ = given(function, **spec)
    async with executor:
        return await executor.execute("it")


# A call that goes well


@pytest.mark.req("UX-3", "FG-4")
async def test_a_tool_is_called_by_name_with_its_arguments_checked_and_filled_in() -> None:
    async with Executor(Registry([add])) as executor:
        result = await executor.execute("add", {"a": 1})
    assert result.success
    assert result.output == 3
    assert result.error is None
    assert result.metadata.duration_ms > 0
    assert not result.metadata.trail


@pytest.mark.req("NA-4")
async def test_every_call_has_its_own_id_and_the_session_of_its_caller() -> None:
    calls: list[Call] = []

    @tool
    async def remembers(call: Call) -> str:
        """Remember the call."""
        calls.append(call)
        return call.call_id

    async with Executor(Registry([remembers, add])) as executor:
        results = [await executor.execute("remembers", session_id="s1") for _ in range(3)]
        bad = await executor.execute("add", {"a": "x"}, session_id="s1")
        unknown = await executor.execute("nobody", session_id="s1")
    assert [r.output for r in results] == [r.metadata.call_id for r in results]
    assert {call.session_id for call in calls} == {"s1"}
    ids = {r.metadata.call_id for r in (*results, bad, unknown)}
    assert len(ids) == 5


async def test_a_tool_sees_all_that_came_with_its_call() -> None:
    calls: list[Call] = []

    @tool
    async def remembers(call: Call) -> None:
        """Remember the call."""
        calls.append(call)

    me = Caller("me", roles=frozenset({"admin"}))
    async with Executor(Registry([remembers])) as executor:
        await executor.execute(
            "remembers",
            caller=me,
            session_id="s",
            timeout=9,
            working_dir="/w",
            metadata={"trace": "t"},
            key="k",
            grant="g",
        )
    [call] = calls
    assert (call.caller, call.session_id, call.working_dir) == (me, "s", "/w")
    assert (call.metadata, call.key, call.grant, call.dry_run) == ({"trace": "t"}, "k", "g", False)
    assert call.deadline is not None
    assert not call.cancelled


async def test_the_callers_own_arguments_are_never_changed() -> None:
    async with Executor(Registry([add])) as executor:
        mine = {"a": 1}
        await executor.execute("add", mine)
        assert mine == {"a": 1}
        assert (await executor.execute("add", UserDict(a=5))).output == 7


async def test_warnings_of_a_tool_are_in_the_result() -> None:
    @tool
    async def warns(call: Call) -> int:
        """Warn."""
        call.warn("careful")
        return 1

    async with Executor(Registry([warns])) as executor:
        assert (await executor.execute("warns")).metadata.warnings == ["careful"]


async def test_progress_and_pieces_of_output_reach_the_caller() -> None:
    @tool
    async def works(call: Call) -> int:
        """Work."""
        call.progress(1, 2, "half")
        call.partial("piece")
        return 1

    heard: list[Progress] = []
    async with Executor(Registry([works])) as executor:
        await executor.execute("works", on_progress=heard.append)
        assert (await executor.execute("works")).success
    assert heard == [Progress(1, 2, "half"), Progress(partial="piece")]


@pytest.mark.req("FM-18")
async def test_the_phase_is_seen_only_by_a_tool_that_is_aware_of_it() -> None:
    @tool(context_aware=True)
    async def aware(call: Call) -> str | None:
        """Tell the phase."""
        return call.phase

    @tool
    async def unaware(call: Call) -> str | None:
        """Tell the phase."""
        return call.phase

    async with Executor(Registry([aware, unaware])) as executor:
        assert (await executor.execute("aware", phase="triage")).output == "triage"
        assert (await executor.execute("unaware", phase="triage")).output is None


@pytest.mark.req("FM-7", "UX-3")
async def test_functions_objects_classes_and_specs_are_called_alike() -> None:
    class Adder(Tool):
        """Add two numbers."""

        async def run(self, a: int, b: int) -> int:
            return a + b

    async def run(call: Call) -> int:
        return call.arguments["a"] + call.arguments["b"]

    numbers = {"type": "integer"}
    spec = ToolSpec(
        name="by_spec",
        description="Add two numbers.",
        kind="given",
        input_schema={"type": "object", "properties": {"a": numbers, "b": numbers}},
    )
    async with Executor(Registry([add, Adder, spec]), backends={"given": Given(run)}) as executor:
        for name in ("add", "adder", "by_spec"):
            assert (await executor.execute(name, {"a": 1, "b": 2})).output == 3


@pytest.mark.req("FG-8")
async def test_a_tool_is_bound_when_it_is_first_called_and_only_then() -> None:
    async def run(call: Call) -> int:
        return 1

    executor, backend = given(run)
    async with executor:
        assert backend.events == []
        for _ in range(3):
            await executor.execute("it")
        assert backend.events == ["bind it"]
    assert backend.events == ["bind it", "close", "close"]


async def test_a_thousand_calls_at_once_are_kept_apart() -> None:
    @tool(timeout=60)
    async def waits(number: int, call: Call) -> int:
        """Wait a moment."""
        await asyncio.sleep(0)
        return number

    async with Executor(Registry([waits])) as executor:
        calls = (executor.execute("waits", {"number": i}) for i in range(1000))
        results = await asyncio.gather(*calls)
        assert executor.bound("waits").active == 0
    assert [r.output for r in results] == list(range(1000))
    assert len({r.metadata.call_id for r in results}) == 1000


# Names and arguments that are not right


@pytest.mark.req("FG-4")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ad", "There is no tool 'ad'; did you mean 'add'?"),
        ("zzz", "There is no tool 'zzz'; list the tools to see what there is"),
        ("", "There is no tool ''; list"),
        ("add\x1b[31m", "There is no tool 'add\N{REPLACEMENT CHARACTER}[31m'"),
        ("x" * 10_000, "xxx…'"),
        (None, "There is no tool '(NoneType)'"),
        (5, "There is no tool '(int)'"),
        ([], "There is no tool '(list)'"),
        ({"a": 1}, "There is no tool '(dict)'"),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_a_name_that_no_tool_has_is_answered_with_a_hint(name: Any, says: str) -> None:
    async with Executor(Registry([add])) as executor:
        result = await executor.execute(name, {"a": 1})
    assert result.error.code == "NOT_FOUND"
    assert says in result.error.message
    assert len(result.error.message) < 300
    assert result.error.effects == "none"
    assert result.metadata.trail == ["road: NOT_FOUND"]


@pytest.mark.req("FM-10")
async def test_a_missing_parameter_is_named() -> None:
    async with Executor(Registry([add])) as executor:
        result = await executor.execute("add", {"b": 1})
    assert result.error.code == "VALIDATION_ERROR"
    assert result.error.remedy == "fix_args"
    assert "a" in result.error.message
    assert "required" in result.error.message or "missing" in result.error.message


@pytest.mark.req("FG-4")
async def test_every_fault_of_the_arguments_is_named() -> None:
    async with Executor(Registry([add])) as executor:
        result = await executor.execute("add", {"b": "x", "c": 1})
    faults = str(result.error.details["faults"])
    assert all(f"/{name}" in faults or f"{name!r}" in faults for name in "abc")


@pytest.mark.parametrize("arguments", [[1, 2], "a=1", 5, True, [("a", 1)], {1}], ids=repr)
async def test_arguments_that_are_no_mapping_are_refused(arguments: Any) -> None:
    async with Executor(Registry([add])) as executor:
        result = await executor.execute("add", arguments)
    assert result.error.code == "VALIDATION_ERROR"
    assert "expected object" in result.error.message or "not a JSON value" in result.error.message


@pytest.mark.parametrize(
    "arguments",
    [{1: 2}, {"a": float("nan")}, {"a": object()}, {"a": {1, 2}}, {"a": b"1"}, {"a": "\ud800"}],
    ids=["key", "nan", "object", "set", "bytes", "surrogate"],
)
async def test_arguments_that_are_not_json_are_refused(arguments: Any) -> None:
    @tool
    async def anything(a: Any = None) -> None:
        """Take anything."""

    async with Executor(Registry([add, anything])) as executor:
        for name in ("add", "anything"):
            result = await executor.execute(name, arguments)
            assert result.error.code == "VALIDATION_ERROR", name


async def test_no_arguments_are_the_same_as_empty_ones() -> None:
    @tool
    async def nothing() -> str:
        """Take nothing."""
        return "fine"

    async with Executor(Registry([nothing])) as executor:
        for arguments in (None, {}):
            assert (await executor.execute("nothing", arguments)).output == "fine"


DEEP = """
import asyncio
from typing import Any
from toolpost import Executor, Registry, tool

def deep():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    return nested

@tool
async def takes(value: Any) -> int:
    "Take anything."
    return 1

@tool
async def gives() -> Any:
    "Give something deep."
    return deep()

@tool
async def gives_a_list() -> list[Any]:
    "Give something deep."
    return deep()

@tool
def gives_in_a_thread() -> list[Any]:
    "Give something deep."
    return deep()

async def main():
    async with Executor(Registry([takes, gives, gives_a_list, gives_in_a_thread])) as executor:
        print((await executor.execute("takes", {"value": deep()})).error.code)
        for name in ("gives", "gives_a_list", "gives_in_a_thread"):
            print((await executor.execute(name)).error.code)

asyncio.run(main())
"""


def test_what_is_a_hundred_thousand_levels_deep_is_refused_and_crashes_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DEEP], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["VALIDATION_ERROR", *["OUTPUT_INVALID"] * 3]


# Tools that fail


@pytest.mark.req("FM-6", "FM-10")
async def test_what_a_tool_raises_is_in_the_log_and_not_in_the_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    async def breaks() -> None:
        """Break."""
        raise ValueError("password=hunter2 in /etc/app.conf")

    async with Executor(Registry([breaks])) as executor:
        result = await executor.execute("breaks")
    assert result.error.code == "INTERNAL_ERROR"
    assert result.error.message == "Internal tool error. See logs for details."
    assert "hunter2" not in str(result.to_dict())
    assert "hunter2" in caplog.text
    assert "Traceback" in caplog.text
    assert result.metadata.call_id in caplog.text


class Odd(BaseException):
    pass


@pytest.mark.req("FM-6")
@pytest.mark.parametrize(
    ("exc", "code"),
    [
        (ToolFailed("Speak to the model."), "EXECUTION_ERROR"),
        (MemoryError(), "RESOURCE_LIMIT"),
        (ConnectionResetError(), "UNAVAILABLE"),
        (TimeoutError(), "UNAVAILABLE"),
        (RecursionError(), "INTERNAL_ERROR"),
        (StopIteration(), "INTERNAL_ERROR"),
        (StopAsyncIteration(), "INTERNAL_ERROR"),
        (ExceptionGroup("many", [ValueError()]), "INTERNAL_ERROR"),
        (SystemExit(1), "INTERNAL_ERROR"),
        (asyncio.CancelledError(), "INTERNAL_ERROR"),
        (Odd(), "INTERNAL_ERROR"),
    ],
    ids=lambda x: type(x).__name__ if not isinstance(x, str) else x,
)
@pytest.mark.parametrize("where", ["async", "sync"])
async def test_nothing_that_a_tool_raises_escapes(
    exc: BaseException, code: str, where: str
) -> None:
    @tool(name="async")
    async def raises() -> None:
        """Raise."""
        raise exc

    @tool(name="sync")
    def raises_in_a_thread() -> None:
        """Raise."""
        raise exc

    async with Executor(Registry([raises, raises_in_a_thread])) as executor:
        result = await executor.execute(where)
        assert (await executor.execute(where)).error is not None
    assert result.error.code == code
    assert result.output is None


async def test_an_exception_that_cannot_be_printed_does_not_escape() -> None:
    class Nasty(Exception):
        def __str__(self) -> str:
            raise ValueError

    async def breaks(call: Call) -> None:
        raise Nasty

    assert (await run(breaks)).error.code == "INTERNAL_ERROR"


async def test_a_failed_read_has_no_effects() -> None:
    async def breaks(call: Call) -> None:
        raise ValueError

    assert (await run(breaks, effects="read")).error.effects == "none"
    assert (await run(breaks, effects="once")).error.effects == "unknown"


async def test_a_kind_that_nobody_runs_is_refused_with_the_kinds_there_are() -> None:
    spec = ToolSpec(name="it", description="It.", kind="pyton")
    async with Executor(Registry([spec])) as executor:
        result = await executor.execute("it")
        health = await executor.health("it")
    assert result.error.code == "UNAVAILABLE"
    assert not result.error.retryable
    assert "no kind of tool 'pyton' is installed; did you mean 'python'?" in result.error.message
    assert health == Health(False, result.error.message)


async def test_a_tool_that_could_not_be_bound_is_tried_again() -> None:
    class Late(Given):
        ready = False

        def bind(self, spec: ToolSpec, target: object | None) -> Given:
            if not self.ready:
                raise InvalidSpec("Not yet.")
            return super().bind(spec, target)

    async def one(call: Call) -> int:
        return 1

    backend = Late(one)
    spec = ToolSpec(name="it", description="It.", kind="given")
    async with Executor(Registry([spec]), backends={"given": backend}) as executor:
        assert (await executor.execute("it")).error.message == "Not yet."
        backend.ready = True
        assert (await executor.execute("it")).output == 1


# Time


@pytest.mark.req("FM-10")
async def test_a_tool_that_takes_too_long_is_stopped_and_the_seconds_are_told() -> None:
    @tool(timeout=0.02)
    async def hangs() -> None:
        """Hang."""
        await asyncio.get_running_loop().create_future()

    async with Executor(Registry([hangs])) as executor:
        result = await executor.execute("hangs")
    assert result.error.code == "TIMEOUT"
    assert result.error.message.startswith("Operation timed out after 0.02s.")
    assert result.error.effects == "unknown"


async def test_a_caller_may_have_less_time_than_the_tool() -> None:
    async with sample_executor() as executor:
        result = await executor.execute("hang", timeout=0.02)
    assert result.error.code == "TIMEOUT"
    assert result.error.details["seconds"] <= 0.02


async def test_a_caller_cannot_have_more_time_than_the_tool() -> None:
    async def tells(call: Call) -> Any:
        return None

    executor, _ = given(tells, timeout=3)
    async with executor:
        result = await executor.execute("it", timeout=1e9, dry_run=True)
    assert result.metadata.plan["timeout"] == 3


@pytest.mark.parametrize("timeout", [float("nan"), "5", b"", 1j, object()])
async def test_a_timeout_that_is_no_number_of_seconds_is_refused(timeout: Any) -> None:
    async with Executor(Registry([add])) as executor:
        result = await executor.execute("add", {"a": 1}, timeout=timeout)
        rewalked = await executor.rewalk(
            Call("add", add.spec, {"a": 1}, OWNER, "c", Metadata(), None, NEVER)
        )
    assert result.error.code == rewalked.error.code == "VALIDATION_ERROR"
    assert result.error.message == "The timeout of this call is not a number of seconds."


@pytest.mark.parametrize("timeout", [10**400, float("inf"), 5])
async def test_a_timeout_may_be_longer_than_any_clock(timeout: float) -> None:
    async with Executor(Registry([add])) as executor:
        assert (await executor.execute("add", {"a": 1}, timeout=timeout)).output == 3


class Hostile(dict[str, Any]):
    """A mapping that raises when it is read."""

    def keys(self) -> Any:
        raise ZeroDivisionError

    def __iter__(self) -> Any:
        raise ZeroDivisionError


async def test_arguments_that_cannot_be_read_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with Executor(Registry([add])) as executor:
        result = await executor.execute("add", Hostile(a=1))
    assert result.error.code == "VALIDATION_ERROR"
    assert "Unreadable" in result.error.message
    assert "ZeroDivisionError" in caplog.text


FIRST = """
import asyncio
from toolpost import Executor, Registry
print(asyncio.run(Executor(Registry()).execute("it", caller=None)).error.message)
"""


def test_nobody_is_no_caller_in_the_first_call_of_all() -> None:
    said = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
    assert "caller is a NoneType" in said.stdout


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"caller": "root"}, "caller is a str"),
        ({"caller": None}, "caller is a NoneType"),
        ({"caller": Caller("x", owner="no")}, "owner of a Caller is true or false"),  # type: ignore[arg-type]
        ({"caller": Caller(5)}, "id of a Caller"),  # type: ignore[arg-type]
        ({"caller": Caller("x", roles=["admin"])}, "roles of a Caller"),  # type: ignore[arg-type]
        ({"caller": Caller("x", user="\ud800")}, "user and agent"),
        ({"session_id": 5}, "session_id must be a text"),
        ({"session_id": ""}, "session_id must be a text"),
        ({"key": ""}, "key must be a text that is not empty"),
        ({"key": "\ud800"}, "key must be a text"),
    ],
    ids=repr,
)
async def test_who_asks_is_checked_at_the_door_in_sight_of_the_observers(
    how: dict[str, Any], said: str
) -> None:
    ran, seen = [], []

    @tool(name="it", description="It.")
    async def it() -> None:
        ran.append(1)

    def hear(call: Call, result: Result | None) -> None:
        seen.append((call.tool, call.caller.id, call.session_id, call.key, result))

    async with Executor(Registry([it]), observers=[Watch(hear)]) as executor:
        result = await executor.execute("it", **how)
        assert (await executor.execute("it", caller=Caller("x"), session_id="s", key="k")).success
    assert result.error is not None and result.error.code == "VALIDATION_ERROR"
    assert said in result.error.message
    assert seen[0] == ("it", "(misgiven)", None, None, result)
    assert ran == [1]


async def test_a_tool_that_needs_a_yes_does_not_run_where_nobody_asks_for_it() -> None:
    ran = []

    @tool(requires_approval=True, tier=0, effects="read")
    async def pay() -> None:
        """Pay."""
        ran.append(1)

    async with Executor(Registry([pay])) as executor:
        result = await executor.execute("pay")
        plan = (await executor.execute("pay", dry_run=True)).metadata.plan
    assert result.error is not None and result.error.code == "APPROVAL_REQUIRED"
    assert plan is not None and plan["ask"] == "A person has to confirm pay before it runs."
    assert ran == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"txt": "x"}, "/txt: unknown parameter; did you mean 'text'?"), ({}, "/text: is missing")],
)
async def test_a_schema_wider_than_its_function_is_the_callers_to_mend(
    arguments: dict[str, Any], said: str
) -> None:
    async def shout(text: str) -> str:
        return text.upper()

    made = tool(description="Shout.")(shout)
    wider = msgspec.structs.replace(made.spec, input_schema={"type": "object"})
    wide = msgspec.structs.replace(made, spec=wider)
    async with Executor(Registry([wide])) as executor:
        result = await executor.execute("shout", arguments)
    assert result.error is not None and result.error.code == "VALIDATION_ERROR"
    assert result.error.message == said


def test_an_executor_in_a_second_loop_says_what_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[asyncio.Future[int]] = []

    async def asks(call: Call) -> int:
        if not answers:
            answers.append(asyncio.get_running_loop().create_future())
            return 0
        return await answers[0]

    async def execute(executor: Executor) -> Result:
        return await executor.execute("it")

    executor, _ = given(asks)
    assert asyncio.run(execute(executor)).output == 0
    result = asyncio.run(execute(executor))
    assert result.error is not None
    assert result.error.code == "INTERNAL_ERROR"
    assert "used from two event loops" in result.error.message
    assert "attached to a different loop" in caplog.text


@pytest.mark.parametrize("given", [None, [add]])
def test_an_executor_without_a_registry_says_what_to_write(given: Any) -> None:
    with pytest.raises(TypeError, match=r"is not a Registry: write Executor\(Registry\("):
        Executor(given)


@pytest.mark.parametrize("timeout", [0, -1, float("-inf"), -(10**400)])
async def test_no_time_left_means_that_the_tool_does_not_run(timeout: float) -> None:
    runs: list[Call] = []

    async def runs_it(call: Call) -> None:
        runs.append(call)

    executor, _ = given(runs_it)
    async with executor:
        result = await executor.execute("it", timeout=timeout)
    assert result.error.code == "TIMEOUT"
    assert result.error.effects == "none"
    assert not runs


async def test_time_spent_in_guards_is_the_callers_and_not_the_tools() -> None:
    now = asyncio.Event()

    async def waits(call: Call, call_next: Walk) -> Result:
        await now.wait()
        return await call_next(msgspec.structs.replace(call, deadline=0.0))

    async def runs_it(call: Call) -> int:
        return 1

    spec = ToolSpec(name="it", description="It.", kind="given")
    executor = Executor(Registry([spec]), guards=[waits], backends={"given": Given(runs_it)})
    async with executor:
        late = asyncio.ensure_future(executor.execute("it", timeout=30))
        await asyncio.sleep(0)
        now.set()
        assert (await late).error.code == "TIMEOUT"


async def test_a_tool_that_will_not_stop_is_counted_as_a_stray() -> None:
    release = asyncio.Event()

    @tool(timeout=0.02)
    async def clings() -> None:
        """Cling to life."""
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with Executor(Registry([clings])) as executor:
        result = await executor.execute("clings")
        assert result.error.code == "TIMEOUT"
        assert len(executor.strays) == 1
        [stray] = executor.strays
        release.set()
        await stray
        assert not executor.strays


async def test_strays_are_cancelled_when_the_executor_closes() -> None:
    last_words, gone = [], asyncio.Event()

    @tool(timeout=0.02)
    async def clings() -> None:
        """Cling to life, twice."""
        for _ in range(3):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                last_words.append("not yet")
        gone.set()

    async with Executor(Registry([clings])) as executor:
        assert (await executor.execute("clings")).error.code == "TIMEOUT"
        await settle()
        assert not gone.is_set()
    await asyncio.wait_for(gone.wait(), 20)
    assert len(last_words) == 3


async def test_a_blocking_tool_in_the_loop_is_late_and_not_a_success() -> None:
    @tool(timeout=0.01, isolation="inline")
    def blocks() -> str:
        """Block the loop."""
        until = time.monotonic() + 0.03
        while time.monotonic() < until:
            pass
        return "done"

    async with Executor(Registry([blocks])) as executor:
        result = await executor.execute("blocks")
    assert result.error.code == "TIMEOUT"
    assert result.error.effects == "done"


async def test_a_caller_who_leaves_takes_the_tool_along() -> None:
    begun, ends = asyncio.Event(), []

    @tool(timeout=60)
    async def hangs() -> None:
        """Hang."""
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async with Executor(Registry([hangs])) as executor:
        call = asyncio.ensure_future(executor.execute("hangs"))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert executor.bound("hangs").active == 0
    assert ends == ["cancelled"]


# What comes back


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Model(pydantic.BaseModel):
    name: str
    tags: set[str] = set()


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (1.5, 1.5),
        ("text", "text"),
        ((1, 2), [1, 2]),
        ({5}, [5]),
        ({"a": (1,)}, {"a": [1]}),
        ({1: "one"}, {"1": "one"}),
        (Point(1, 2), {"x": 1, "y": 2}),
        ([Point(1, 2)], [{"x": 1, "y": 2}]),
        (Model(name="m", tags={"t"}), {"name": "m", "tags": ["t"]}),
        ({"m": Model(name="m")}, {"m": {"name": "m", "tags": []}}),
        (2**70, 2**70),
    ],
    ids=repr,
)
async def test_what_a_function_returns_becomes_plain_data(value: Any, plain: Any) -> None:
    @tool
    async def gives() -> Any:
        """Give it."""
        return value

    async with Executor(Registry([gives])) as executor:
        assert (await executor.execute("gives")).output == plain


async def test_what_a_function_says_it_returns_becomes_plain_data() -> None:
    @tool
    async def points() -> tuple[Point, ...]:
        """Give points."""
        return (Point(1, 2), Point(3, 4))

    @tool
    async def model() -> Model:
        """Give a model."""
        return Model(name="m")

    async with Executor(Registry([points, model])) as executor:
        assert (await executor.execute("points")).output == [{"x": 1, "y": 2}, {"x": 3, "y": 4}]
        assert (await executor.execute("model")).output == {"name": "m", "tags": []}


@pytest.mark.parametrize(
    "value",
    [
        object(),
        float("nan"),
        float("inf"),
        [float("nan")],
        {"a": {"b": print}},
        "\ud800",
        deep(200),
    ],
    ids=lambda v: repr(v)[:20],
)
async def test_what_is_not_json_is_refused(value: Any) -> None:
    @tool
    async def gives() -> Any:
        """Give it."""
        return value

    async def returns(call: Call) -> Any:
        return value

    async with Executor(Registry([gives])) as executor:
        assert (await executor.execute("gives")).error.code == "OUTPUT_INVALID"
    assert (await run(returns)).error.code == "OUTPUT_INVALID"


async def test_an_output_that_does_not_fit_its_schema_is_refused_and_not_shown() -> None:
    async def gives(call: Call) -> Any:
        return {"token": "hunter2", "count": "hunter2"}

    schema = {"type": "object", "properties": {"count": {"type": "integer"}}}
    result = await run(gives, output_schema=schema)
    assert result.error.code == "OUTPUT_INVALID"
    assert result.error.effects == "done"
    assert result.output is None
    assert "hunter2" not in str(result.to_dict())


async def test_a_function_that_does_not_return_what_it_says_is_refused() -> None:
    @tool
    async def lies() -> list[Point]:
        """Say one thing and return another."""
        return "hunter2"  # type: ignore[return-value]

    async with Executor(Registry([lies])) as executor:
        result = await executor.execute("lies")
    assert result.error.code == "OUTPUT_INVALID"
    assert "hunter2" not in str(result.to_dict())


@pytest.mark.parametrize("value", ["x" * 1000, ["x"] * 1000, 10**1000], ids=["str", "list", "int"])
async def test_an_output_that_is_too_large_is_refused(value: Any) -> None:
    async def gives(call: Call) -> Any:
        return value

    result = await run(gives, limits=Limits(output=500))
    assert result.error.code in ("OUTPUT_TOO_LARGE", "OUTPUT_INVALID")
    assert result.output is None
    assert (await run(gives, limits=Limits(output=10_000))).success or isinstance(value, int)


async def test_parts_travel_beside_the_output() -> None:
    @tool
    async def chart(call: Call) -> Output:
        """Draw a chart."""
        return Output({"points": 2}, (Text("a chart"), Image(b"png")))

    @tool
    async def picture() -> Image:
        """Draw a picture."""
        return Image(b"png")

    @tool
    async def album() -> list[Image]:
        """Draw two pictures."""
        return [Image(b"1"), Image(b"2")]

    async with Executor(Registry([chart, picture, album])) as executor:
        result = await executor.execute("chart")
        assert (result.output, result.parts) == ({"points": 2}, (Text("a chart"), Image(b"png")))
        assert (await executor.execute("picture")).parts == (Image(b"png"),)
        assert (await executor.execute("album")).parts == (Image(b"1"), Image(b"2"))


# Dry runs


@pytest.mark.req("FG-4")
async def test_a_dry_run_says_what_would_happen_and_does_nothing() -> None:
    runs = []

    @tool(tier=2, effects="once", timeout=7)
    async def wipe(path: str, force: bool = False) -> None:
        """Wipe a disk."""
        runs.append(path)

    seen: list[Call] = []

    async def guard(call: Call, call_next: Walk) -> Result:
        seen.append(call)
        return await call_next(call)

    async with Executor(Registry([wipe]), guards=[guard]) as executor:
        result = await executor.execute("wipe", {"path": "/"}, dry_run=True)
        bad = await executor.execute("wipe", {"path": 5}, dry_run=True)
    assert result.success
    assert result.output is None
    assert result.metadata.plan == {
        "tool": "wipe",
        "kind": "python",
        "arguments": {"path": "/", "force": False},
        "effects": "once",
        "tier": 2,
        "timeout": 7,
        "isolation": "inline",
    }
    assert result.metadata.trail == ["guard"]
    assert seen[0].dry_run
    assert bad.error.code == "VALIDATION_ERROR"
    assert runs == []


async def test_a_real_run_has_no_plan() -> None:
    async with Executor(Registry([add])) as executor:
        assert (await executor.execute("add", {"a": 1})).metadata.plan is None


# New kinds


@pytest.mark.req("UX-10")
async def test_a_new_kind_of_tool_is_one_class_handed_to_the_executor() -> None:
    async def shouts(call: Call) -> str:
        return call.spec.binding["prefix"] + call.arguments["text"].upper()

    spec = ToolSpec(
        name="shout",
        description="Shout.",
        kind="given",
        binding={"prefix": "> "},
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
    )
    async with Executor(Registry([spec, add]), backends={"given": Given(shouts)}) as executor:
        assert (await executor.execute("shout", {"text": "hey"})).output == "> HEY"
        assert (await executor.execute("add", {"a": 1})).output == 3


@pytest.mark.req("UX-10", "FG-8")
async def test_a_new_kind_of_tool_may_come_from_an_installed_package(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shouting.py").write_text(
        "from toolpost.contracts import Health\n"
        "class Shouting:\n"
        "    def __init__(self, services): self.services = services\n"
        "    def bind(self, spec, target): return self\n"
        "    async def run(self, call): return call.arguments['text'].upper()\n"
        "    async def health(self): return Health(True)\n"
        "    async def close(self): pass\n"
    )
    info = tmp_path / "shouting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[toolpost.backends]\nshout = shouting:Shouting\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = ToolSpec(
        name="shout",
        description="Shout.",
        kind="shout",
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
    )
    settings = {"shout": {"loud": True}}
    async with Executor(Registry([spec]), settings=settings) as executor:
        assert (await executor.execute("shout", {"text": "hey"})).output == "HEY"
        assert executor.backends["shout"].services.settings == settings


# Changes while calls are inside


class Closing:
    """A backend whose handles tell when they close."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.release = asyncio.Event()
        self.entered = asyncio.Event()

    def bind(self, spec: ToolSpec, target: object | None) -> Any:
        return _ClosingHandle(self, spec)

    async def close(self) -> None:
        self.closed.append("backend")


class _ClosingHandle:
    def __init__(self, backend: Closing, spec: ToolSpec) -> None:
        self.backend, self.spec = backend, spec

    async def run(self, call: Call) -> str:
        assert self.spec.version not in self.backend.closed
        if call.arguments.get("wait"):
            self.backend.entered.set()
            await self.backend.release.wait()
        assert self.spec.version not in self.backend.closed
        return str(self.spec.version)

    async def health(self) -> Health:
        raise RuntimeError("the pump is off")

    async def close(self) -> None:
        self.backend.closed.append(str(self.spec.version))


WAIT = {"type": "object", "properties": {"wait": {"type": "boolean"}}}


def versioned(version: str) -> ToolSpec:
    return ToolSpec(
        name="it", description="It.", kind="closing", version=version, input_schema=WAIT
    )


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["replace", "remove"])
async def test_a_handle_closes_when_its_last_call_has_left(how: str) -> None:
    backend, registry = Closing(), Registry([versioned("1")])
    async with Executor(registry, backends={"closing": backend}) as executor:
        old = asyncio.ensure_future(executor.execute("it", {"wait": True}))
        await backend.entered.wait()
        if how == "replace":
            registry.replace(versioned("2"))
            assert (await executor.execute("it")).output == "2"
        else:
            registry.remove("it")
            assert (await executor.execute("it")).error.code == "NOT_FOUND"
        await settle()
        assert backend.closed == []
        backend.release.set()
        assert (await old).output == "1"
        await settle()
        assert backend.closed == ["1"]
    assert backend.closed == (["1", "2", "backend"] if how == "replace" else ["1", "backend"])


async def test_a_call_that_waits_in_a_guard_is_inside_too() -> None:
    backend, registry = Closing(), Registry([versioned("1")])
    asked, decided = asyncio.Event(), asyncio.Event()

    async def approval(call: Call, call_next: Walk) -> Result:
        asked.set()
        await decided.wait()
        return await call_next(call)

    async with Executor(registry, guards=[approval], backends={"closing": backend}) as executor:
        call = asyncio.ensure_future(executor.execute("it"))
        await asked.wait()
        registry.remove("it")
        await settle()
        assert backend.closed == []
        decided.set()
        assert (await call).output == "1"
        await settle()
        assert backend.closed == ["1"]


async def test_an_unchanged_tool_keeps_its_handle() -> None:
    backend, registry = Closing(), Registry([versioned("1")])
    async with Executor(registry, backends={"closing": backend}) as executor:
        await executor.execute("it")
        registry.replace(versioned("1"))
        await settle()
        assert backend.closed == []


async def test_a_registry_may_be_changed_from_another_thread() -> None:
    backend, registry = Closing(), Registry([versioned("1")])
    async with Executor(registry, backends={"closing": backend}) as executor:
        assert (await executor.execute("it")).output == "1"
        await asyncio.to_thread(registry.replace, versioned("2"))
        assert (await executor.execute("it")).output == "2"
        await settle()
        assert backend.closed == ["1"]


async def test_a_change_by_another_thread_while_a_tool_is_bound_is_not_missed() -> None:
    registry = Registry([versioned("1")])

    class Slow(Closing):
        def bind(self, spec: ToolSpec, target: object | None) -> Any:
            if spec.version == "1":
                changing = threading.Thread(target=registry.replace, args=[versioned("2")])
                changing.start()
                changing.join()
            return super().bind(spec, target)

    backend = Slow()
    async with Executor(registry, backends={"closing": backend}) as executor:
        assert (await executor.execute("it")).output == "1"
        assert (await executor.execute("it")).output == "2"
        await settle()
        assert backend.closed == ["1"]


def test_a_registry_may_be_changed_while_no_loop_runs() -> None:
    backend, registry = Closing(), Registry([versioned("1")])
    executor = Executor(registry, backends={"closing": backend})
    assert executor.bound("it").handle is not None
    registry.replace(versioned("2"))
    with asyncio.Runner() as runner:
        assert runner.run(executor.execute("it")).output == "2"
        registry.replace(versioned("3"))
        assert runner.run(executor.execute("it")).output == "3"
        runner.run(executor.close())
    assert sorted(backend.closed) == ["1", "2", "3", "backend"]


def test_a_registry_may_be_changed_after_the_loop_is_gone() -> None:
    backend, registry = Closing(), Registry([versioned("1")])
    executor = Executor(registry, backends={"closing": backend})
    asyncio.run(executor.execute("it"))
    registry.replace(versioned("2"))
    assert asyncio.run(executor.execute("it")).output == "2"


# The end


async def test_a_closed_executor_runs_nothing_and_may_be_closed_again() -> None:
    backend = Closing()
    executor = Executor(Registry([versioned("1")]), backends={"closing": backend})
    assert (await executor.execute("it")).success
    await executor.close()
    await executor.close()
    result = await executor.execute("it")
    assert result.error.code == "UNAVAILABLE"
    assert result.error.message == "The executor is closed."
    assert backend.closed == ["1", "backend"]


async def test_a_call_inside_when_the_executor_closes_finishes() -> None:
    backend = Closing()
    executor = Executor(Registry([versioned("1")]), backends={"closing": backend})
    call = asyncio.ensure_future(executor.execute("it", {"wait": True}))
    await backend.entered.wait()
    await executor.close()
    assert backend.closed == ["backend"]
    backend.release.set()
    assert (await call).output == "1"
    await settle()
    assert backend.closed == ["backend", "1"]


async def test_what_cannot_be_closed_does_not_keep_the_rest_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = []

    class Bad(Given):
        async def close(self) -> None:
            closed.append("bad")
            raise OSError("stuck")

    class Last:
        name = "last"

        def bind(self, spec: ToolSpec, road: Any) -> None:
            return None

        async def close(self) -> None:
            closed.append("last")

    async def one(call: Call) -> int:
        return 1

    spec = ToolSpec(name="it", description="It.", kind="given")
    async with Executor(
        Registry([spec]), guards=[Last()], backends={"given": Bad(one)}
    ) as executor:
        await executor.execute("it")
    assert closed == ["bad", "bad", "last"]
    assert caplog.text.count("stuck") >= 2


async def test_a_closed_executor_no_longer_listens() -> None:
    registry = Registry([add])
    async with Executor(registry) as executor:
        await executor.execute("add", {"a": 1})
    registry.remove("add")
    assert (await executor.execute("add", {"a": 1})).error.code == "NOT_FOUND"


async def test_a_tool_whose_guard_cannot_be_bound_leaves_no_handle_open() -> None:
    class Broken:
        name = "broken"

        def bind(self, spec: ToolSpec, road: Any) -> Any:
            raise MissingPart("Not installed.")

    backend = Closing()
    registry = Registry([versioned("1")])
    async with Executor(registry, guards=[Broken()], backends={"closing": backend}) as executor:
        assert (await executor.execute("it")).error.message == "Not installed."
        await settle()
        assert backend.closed == ["1"]


async def test_health_is_an_answer_even_where_the_tool_has_none() -> None:
    async with Executor(Registry([versioned("1"), add]), backends={"closing": Closing()}) as ex:
        assert await ex.health("add") == Health(True)
        assert await ex.health("it") == Health(False, "RuntimeError: the pump is off")
        assert await ex.health("nobody") == Health(False, "it cannot be run")


class Thing:
    """Something that a weak reference can be had of."""


@tool(tier=0)
async def breaks(call: Call) -> None:
    """Break."""
    raise ValueError


def reports(call: Call) -> int:
    """Report."""
    call.progress(message="at it")
    call.warn("careful")
    return 1


async def waits(call: Call) -> None:
    """Wait."""
    await asyncio.Event().wait()


LEAVERS = {
    "breaks": breaks,
    "reports": tool(tier=0, isolation="inline")(reports),
    "reports from a thread": tool(tier=0, isolation="thread")(reports),
    "waits too long": tool(tier=0)(waits),
}


@pytest.mark.parametrize("leaver", LEAVERS)
async def test_a_call_leaves_nothing_behind(leaver: str, caplog: pytest.LogCaptureFixture) -> None:
    """The collector does not know calls: what they hold must go without it."""
    caplog.set_level(logging.CRITICAL)
    thing, tool_ = Thing(), LEAVERS[leaver]
    gone = weakref.ref(thing)
    async with Executor(Registry([tool_])) as executor:
        await executor.execute(
            tool_.spec.name,
            metadata={"thing": thing},
            on_progress=lambda _, held=thing: None,
            timeout=5 if leaver != "waits too long" else 0.01,
        )
        del thing
        for _ in range(500):  # the loop ends this turn, a thread lets go
            if gone() is None:
                break
            await asyncio.sleep(0)
            gc.collect()
        assert gone() is None
        assert not executor.strays
        assert not executor._leaving


# In a crowd


async def test_a_waiting_call_gives_the_collector_three_things_to_look_at() -> None:
    gate = asyncio.Event()

    @tool(tier=0)
    async def wait(a: int) -> int:
        """Wait."""
        await gate.wait()
        return a

    async def crowd(call: Callable[[], Coroutine[Any, Any, Any]]) -> int:
        gc.collect()
        gc.disable()
        try:
            before = len(gc.get_objects())
            tasks = [asyncio.create_task(call()) for _ in range(100)]
            for _ in range(3):
                await asyncio.sleep(0)
            held = len(gc.get_objects()) - before
            gate.set()
            await asyncio.gather(*tasks)
            gate.clear()
        finally:
            gc.enable()
        return held

    async with Executor(Registry([wait])) as executor:
        await crowd(lambda: executor.execute("wait", {"a": 1}))
        bare = await crowd(lambda: wait.function(1))
        ours = await crowd(lambda: executor.execute("wait", {"a": 1}))
    assert (ours - bare) / 100 < 4  # its coroutine, and two generators


@pytest.mark.anyio
@pytest.mark.parametrize("ends", ["cancelled", "late", "well"])
async def test_what_a_run_held_is_gone_with_it(ends: str) -> None:
    """Without the garbage collector, for which everybody would have to wait."""

    class Held:
        pass

    seen: list[weakref.ref[Held]] = []

    @tool(tier=0, effects="read")
    async def hold() -> None:
        """Hold something."""
        held = Held()
        seen.append(weakref.ref(held))
        await asyncio.sleep(0.01 if ends == "well" else 30)

    async with Executor(Registry([hold])) as executor:
        gc.collect()
        gc.disable()
        try:
            limit = 0.2 if ends == "late" else 20
            task = asyncio.create_task(executor.execute("hold", timeout=limit))
            while not seen and not task.done():
                await asyncio.sleep(0)
            if ends == "cancelled":
                task.cancel()
            await asyncio.wait([task])
            del task
            await asyncio.sleep(0)
            assert seen[0]() is None
        finally:
            gc.enable()
