"""The FaultMaven contract: its tools, written for it, on the road."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from tests.redact_corpus import made
from toolpost import (
    Executor,
    InvalidArguments,
    InvalidSpec,
    NameTaken,
    RateLimited,
    Registry,
    Result,
    SetupError,
    TimedOut,
    ToolFailed,
    ToolNotFound,
    ToolOptions,
    tool,
)
from toolpost.bridges.faultmaven import (
    BaseTool,
    TimeoutException,
    ToolContainer,
    ToolExecutionException,
    ToolRegistry,
    ToolResult,
    ValidationException,
    register_tool,
    tool_registry,
    tools,
    tools_in,
)
from toolpost.contracts import Walk
from toolpost.extensions.sanitize import Sanitize

pytestmark = pytest.mark.anyio
QUERY = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What to look for."}},
    "required": ["query"],
}


class Base(BaseTool):
    """Finds what it is asked for; ``says`` is more for its schema."""

    own = "find"
    says: dict[str, Any] = {}

    async def execute(self, params: dict[str, Any]) -> ToolResult:
        return ToolResult(success=True, data=params)

    def get_schema(self) -> dict[str, Any]:
        return {"name": self.own, "description": "Find it.", "parameters": QUERY, **self.says}


def doing(does: Any, **more: Any) -> type[Base]:
    async def execute(self: Base, params: dict[str, Any]) -> Any:
        done = does(self, params)
        return await done if asyncio.iscoroutine(done) else done

    return type("Doing", (Base,), {"execute": execute, **more})


def holding(*kinds: type[BaseTool], **more: Any) -> ToolContainer:
    registry = ToolRegistry()
    for number, kind in enumerate(kinds):
        registry.register("find" if not number else f"find{number}", kind)
    return ToolContainer(registry=registry, **more)


async def called(kind: type[BaseTool], **params: Any) -> ToolResult:
    async with holding(kind) as container:
        return await container.get_tools()[0].execute(params or {"query": "redis"})


# --- the values ---------------------------------------------------------------------------------


@pytest.mark.req("FM-2")
def test_a_failure_says_why_and_data_may_be_left_out() -> None:
    assert ToolResult(success=True).data is None
    assert ToolResult(success=True, data=[1]) == ToolResult(True, [1])
    assert ToolResult(success=False, error="No.") == ToolResult(False, None, "No.")
    assert ToolResult.model_validate({"success": True, "data": 1}).model_dump() == {
        "success": True,
        "data": 1,
        "error": None,
    }
    for error in (None, "", "  "):
        with pytest.raises(ValidationError, match="a failure says why"):
            ToolResult(success=False, error=error)


@pytest.mark.req("FM-1")
@pytest.mark.parametrize(
    ("raised", "ours", "code"),
    [
        (ToolExecutionException, ToolFailed, "EXECUTION_ERROR"),
        (ValidationException, InvalidArguments, "VALIDATION_ERROR"),
        (TimeoutException, TimedOut, "TIMEOUT"),
    ],
)
async def test_the_three_exceptions_say_on_the_road_what_they_mean(
    raised: type[Exception], ours: type[Exception], code: str
) -> None:
    def work(self: Base, params: Any) -> None:
        raise raised("It is so.")

    assert issubclass(raised, ours)
    assert str(raised())
    result = await called(doing(work))
    assert (result.success, (result.error or "").startswith("It is so.")) == (False, True)
    async with Executor(Registry(tools(doing(work)()))) as executor:
        error = (await executor.execute("find", {"query": "a"})).error
    assert error is not None
    assert error.code == code


@pytest.mark.req("FM-1")
async def test_a_tool_gets_its_parameters_and_gives_its_result() -> None:
    assert await called(Base) == ToolResult(success=True, data={"query": "redis"})
    for missing in ("execute", "get_schema"):
        half = type("Half", (BaseTool,), {missing: getattr(Base, missing)})
        with pytest.raises(TypeError, match="abstract"):
            half()


@pytest.mark.req("FM-6", "FM-10")
async def test_no_exception_escapes_and_the_errors_read_as_the_document_has_them() -> None:
    def broken(self: Base, params: Any) -> None:
        raise KeyError("/etc/secret")

    async def slow(self: Base, params: Any) -> None:
        await asyncio.Event().wait()

    assert (await called(Base, limit=1)).error == "Missing required parameter: query"
    assert (await called(doing(broken))).error == "Internal tool error. See logs for details."
    quick = doing(slow, TOOLPOST=ToolOptions(timeout=0.05, effects="read"))
    assert "Operation timed out after 0.05s" in ((await called(quick)).error or "")
    limited = doing(lambda self, params: ToolResult(False, None, "API rate limit exceeded."))
    assert (await called(limited)).error == "API rate limit exceeded."
    async with holding(Base) as container:
        for params in ([], "query", None, {1: 2}):
            given: Any = params
            assert not (await container.execute("find", given)).success
        assert (await container.execute("nothing", {})).error == (
            "There is no tool 'nothing' in this container."
        )


class Point(BaseModel):
    x: int


@pytest.mark.req("FM-10", "FM-11")
async def test_the_cooldown_of_a_rate_limit_is_in_the_error_and_in_the_result() -> None:
    class Spoken(Base):
        async def execute(self, params: dict[str, Any]) -> ToolResult:
            return ToolResult(False, error="API rate limit exceeded. Retry after 60 seconds.")

    class Said(Base):
        async def execute(self, params: dict[str, Any]) -> ToolResult:
            return ToolResult(False, error="API rate limit exceeded.", retry_after=59.5)

    class Raised(Base):
        async def execute(self, params: dict[str, Any]) -> ToolResult:
            raise RateLimited("API rate limit exceeded.", retry_after=60, effects="none")

    class Other(Base):
        async def execute(self, params: dict[str, Any]) -> ToolResult:
            return ToolResult(False, error="No disk. Retry after lunch.")

    for kind in (Spoken, Said, Raised):
        (item,) = tools(kind())
        async with Executor(Registry([item])) as executor:
            result = await executor.execute("find", {"query": "a"})
        assert result.error is not None and result.error.code == "RATE_LIMITED"
        told = await told_by(kind)
        assert told.error in (
            "API rate limit exceeded. Retry after 60 seconds.",
            "API rate limit exceeded. Retry after 60s",
        )
        assert told.retry_after == (59.5 if kind is Said else 60)
        assert told.model_dump()["retry_after"] == told.retry_after
    told = await told_by(Other)
    assert (told.error, told.retry_after) == ("No disk. Retry after lunch.", None)
    assert "retry_after" not in told.model_dump()


async def told_by(kind: type[BaseTool]) -> ToolResult:
    registry = ToolRegistry()
    registry.register("find", kind)
    async with ToolContainer(registry=registry) as container:
        return await container.execute("find", {"query": "a"})


@pytest.mark.req("FM-11")
async def test_a_tool_that_does_not_say_what_a_repeat_does_is_told_of_and_not_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []

    class Unmarked(Base):
        async def execute(self, params: dict[str, Any]) -> ToolResult:
            calls.append(type(self).__name__)
            raise ConnectionError("away")

    class Marked(Unmarked):
        TOOLPOST = ToolOptions(effects="read")

    assert not (await told_by(Unmarked)).success
    assert not (await told_by(Unmarked)).success
    assert not (await told_by(Marked)).success
    assert calls == ["Unmarked"] * 2 + ["Marked"] * 3
    said = [one.getMessage() for one in caplog.records if "is not retried" in one.getMessage()]
    assert [one.partition(" does")[0] for one in said] == ["find (Unmarked)"]
    assert 'ToolOptions(effects="read")' in said[0]


@pytest.mark.parametrize(
    "garbage", [None, "text", {"success": True}, object(), Result(output=1), ToolResult]
)
async def test_what_is_no_result_is_a_failure(garbage: Any) -> None:
    error = (await called(doing(lambda self, params: garbage))).error
    assert error == "The tool did not return a ToolResult. Use another tool."


async def test_what_comes_back_is_json_data() -> None:
    whole = ToolResult(success=True, data={"at": (Point(x=1),)})
    assert (await called(doing(lambda self, params: whole))).data == {"at": [{"x": 1}]}
    for what in (object(), b"\xff", float("inf")):
        odd = ToolResult(success=True, data=what)
        assert not (await called(doing(lambda self, params, odd=odd: odd))).success


async def test_a_tool_that_is_not_async_gets_a_thread() -> None:
    def execute(self: Base, params: dict[str, Any]) -> ToolResult:
        return ToolResult(True, threading.current_thread().name)

    async def later(self: Base, params: dict[str, Any]) -> ToolResult:
        return ToolResult(True, "later")

    assert (await called(type("Sync", (Base,), {"execute": execute}))).data == "toolpost-tool"
    wrapped = type("Wrapped", (Base,), {"execute": lambda self, params: later(self, params)})
    assert (await called(wrapped)).data == "later"


async def test_a_cancellation_reaches_the_tool() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(self: Base, params: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with holding(doing(work)) as container:
        task = asyncio.ensure_future(container.execute("find", {"query": "a"}))
        await asyncio.wait_for(begun.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert ended.is_set()


async def test_what_a_tool_writes_into_its_parameters_stays_there() -> None:
    def work(self: Base, params: dict[str, Any]) -> ToolResult:
        params["query"] = "changed"
        return ToolResult(True)

    given = {"query": "a"}
    async with Executor(Registry(tools(doing(work)()))) as executor:
        await executor.execute("find", given)
    assert given == {"query": "a"}


# --- schemas and specs --------------------------------------------------------------------------


@pytest.mark.req("FM-3", "FM-13")
def test_what_a_schema_says_is_in_the_spec() -> None:
    plain = tools(Base())[0].spec  # type: ignore[union-attr]
    assert (plain.name, plain.timeout, plain.requires_approval) == ("find", 30, False)
    assert plain.input_schema == QUERY
    more = {"examples": [{"query": "a"}], "context_aware": True, "requires_confirmation": True}
    spec = tools(type("More", (Base,), {"says": more})())[0].spec  # type: ignore[union-attr]
    assert (spec.examples, spec.context_aware, spec.requires_approval) == (
        ({"query": "a"},),
        True,
        True,
    )
    dangerous = type("Dangerous", (Base,), {"REQUIRES_CONFIRMATION": True})
    assert tools(dangerous())[0].spec.requires_approval  # type: ignore[union-attr]
    said = type("Said", (Base,), {"TOOLPOST": ToolOptions(tier=0, effects="read", timeout=5)})
    spec = tools(said())[0].spec  # type: ignore[union-attr]
    assert (spec.tier, spec.effects, spec.timeout) == (0, "read", 5)


@pytest.mark.req("FM-3")
@pytest.mark.parametrize(
    "says",
    [
        {"name": "a b"},
        {"name": None},
        {"description": " "},
        {"parameters": {"type": "strnig"}},
        {"parameters": {"type": "object", "properties": {"a": {"pattern": "("}}}},
        {"parameters": []},
        {"examples": [1]},
    ],
)
def test_a_schema_that_is_none_is_refused(says: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        tools(type("Bad", (Base,), {"says": says})())


@pytest.mark.req("FM-3")
def test_a_schema_that_is_not_there_is_refused() -> None:
    def broken(self: Base) -> Any:
        raise RuntimeError("not now")

    for gives, why in [(lambda self: None, "no mapping"), (lambda self: {}, "has no name"),
                       (broken, "RuntimeError: not now")]:  # fmt: skip
        with pytest.raises(InvalidSpec, match=why):
            tools(type("Bad", (Base,), {"get_schema": gives})())


@pytest.mark.req("FM-3")
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", "a", 1),
        ("integer", 42, True),
        ("number", 3.14, "3"),
        ("boolean", True, 1),
        ("array", [1], {}),
        ("object", {"k": 1}, []),
        ("null", None, 0),
    ],
)
async def test_each_of_the_seven_types_is_held_to(kind: str, good: Any, bad: Any) -> None:
    says = {"parameters": {"type": "object", "properties": {"x": {"type": kind}}}}
    typed = type("Typed", (Base,), {"says": says})
    assert (await called(typed, x=good)).data == {"x": good}
    assert not (await called(typed, x=bad)).success


@pytest.mark.req("FM-18")
async def test_a_tool_that_wants_to_know_is_told_the_phase() -> None:
    aware = type("Aware", (Base,), {"own": "aware", "says": {"context_aware": True}})
    async with holding(Base, aware) as container:
        container.get_tools()
        told = await container.execute("aware", {"query": "a", "phase": "x"}, phase="triage")
        assert told.data == {"query": "a", "phase": "triage"}
        told = await container.execute("find", {"query": "a"}, phase="triage")
        assert told.data == {"query": "a"}


# --- the registry -------------------------------------------------------------------------------


def test_what_is_registered_stands_on_the_class_of_the_registry() -> None:
    @register_tool("on_the_class")
    class OnTheClass(Base):
        pass

    try:
        assert ToolRegistry._tools["on_the_class"] is OnTheClass
        assert tool_registry._tools is ToolRegistry._tools
        assert "on_the_class" not in ToolRegistry()._tools
    finally:
        tool_registry.unregister("on_the_class")
    assert "on_the_class" not in ToolRegistry._tools


@pytest.mark.req("FM-4")
def test_the_decorator_registers_a_class_and_makes_nothing() -> None:
    class Never(Base):
        def __init__(self) -> None:
            raise AssertionError("made")

    registry = ToolRegistry()
    assert register_tool("never", registry=registry)(Never) is Never
    assert registry.get("never") is Never
    assert dict(registry.all()) == registry._tools == {"never": Never}
    try:
        assert register_tool("for_a_moment")(Never) is tool_registry.get("for_a_moment")
    finally:
        assert tool_registry.unregister("for_a_moment")
    assert not tool_registry.unregister("for_a_moment")
    registry.clear()
    assert registry.get("never") is None


@pytest.mark.req("FM-3", "FM-4")
def test_a_name_that_is_taken_and_what_is_no_tool_are_refused() -> None:
    registry = ToolRegistry()
    registry.register("find", Base)
    with pytest.raises(NameTaken, match="'find' is taken by Base"):
        register_tool("find", registry=registry)(doing(None))
    wrong: Any
    for name, wrong in [("a b", Base), ("x", BaseTool), ("x", int), ("x", Base()), (3, Base)]:
        with pytest.raises((SetupError, TypeError)):
            registry.register(name, wrong)
    assert dict(registry.all()) == {"find": Base}


def test_a_module_may_be_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
from tests.bridges.test_faultmaven import REGISTRY, Base, register_tool

@register_tool("again", registry=REGISTRY)
class Again(Base): pass
"""
    (tmp_path / "loaded_again.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("loaded_again")
    first = REGISTRY.get("again")
    second = importlib.reload(module).Again
    del sys.modules["loaded_again"]
    assert REGISTRY.get("again") is second is not first


REGISTRY = ToolRegistry()


def test_threads_share_the_registry_and_the_container() -> None:
    registry, made = ToolRegistry(), []

    class Counted(Base):
        def __init__(self) -> None:
            made.append(self)

    def work(number: int) -> int:
        try:
            registry.register(f"t{number % 4}", type(f"T{number}", (Counted,), {}))
        except NameTaken:
            return 0
        return 1

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(work, range(64))) == 4
        registry.clear()
        registry.register("find", Counted)
        container = ToolContainer(registry=registry)
        list(threads.map(lambda _: container.get_tools(), range(32)))
    assert len(made) == 1


# --- the container ------------------------------------------------------------------------------


@pytest.mark.req("FM-4")
def test_a_tool_is_made_when_it_is_asked_for_with_what_its_constructor_names() -> None:
    made: list[Any] = []

    class All(Base):
        def __init__(self, settings: Any, sanitizer: Any, knowledge_ingester: Any) -> None:
            made.append((settings, sanitizer, knowledge_ingester))

    class Some(Base):
        own = "some"

        def __init__(self, settings: Any = None, *, more: int = 3) -> None:
            made.append((settings, more))

    class Rest(Base):
        own = "rest"

        def __init__(self, sanitizer: Any = None, **kwargs: Any) -> None:
            made.append((sanitizer, sorted(kwargs)))

    class None_(Base):
        own = "none"

    container = holding(All, Some, Rest, None_, settings="s", sanitizer="z", knowledge_ingester="k")
    assert made == []
    assert len(container.get_tools()) == 4
    container.get_tools()
    assert made == [("s", "z", "k"), ("s", 3), ("z", ["knowledge_ingester", "settings"])]
    assert container.get_settings() == "s"
    assert container.get_data_sanitizer() == "z"
    assert container.get_knowledge_ingester() == "k"


def test_without_a_sanitizer_a_tool_gets_ours() -> None:
    sanitizer = ToolContainer(registry=ToolRegistry()).get_data_sanitizer()
    assert sanitizer.sanitize("mail ada@example.org") == "mail [redacted:email]"
    assert sanitizer.sanitize({"to": ["ada@example.org"]}) == {"to": ["[redacted:email]"]}


@pytest.mark.req("FM-5")
async def test_what_goes_in_is_sanitized_before_a_tool_sees_it() -> None:
    class Read(Base):
        TOOLPOST = ToolOptions(effects="read")

    found = await called(Read, query="ada@example.org has no mail", more={"a": ["ada@example.org"]})
    assert found.data == {
        "query": "[redacted:email] has no mail",
        "more": {"a": ["[redacted:email]"]},
    }


@pytest.mark.req("FM-5")
async def test_what_goes_in_is_sanitized_over_an_executor_of_ones_own_too() -> None:
    """Its own defaults would pass personal data on and refuse the secret."""
    key = "gh" + "p_" + made(36)

    class Read(Base):
        TOOLPOST = ToolOptions(effects="read", labels={"team": "a"})

    own = Executor(Registry(), guards=[Sanitize()])
    async with own, holding(Read, over=own) as container:
        found = await container.execute("find", {"query": f"ada@example.org has {key}"})
    assert found.data == {"query": "[redacted:email] has [redacted:github_token]"}


@pytest.mark.req("FM-4", "FM-6")
async def test_a_tool_that_cannot_be_made_is_left_out_and_the_others_are_there() -> None:
    ill = [True]

    class Sick(Base):
        own = "sick"

        def __init__(self) -> None:
            if ill:
                raise RuntimeError("no disk")

    class Greedy(Base):
        def __init__(self, database: Any) -> None: ...

    class Twin(Base): ...

    async with holding(Base, Sick, Greedy, Twin) as container:
        assert len(container.get_tools()) == 1
        assert container.problems["find1"] == "RuntimeError: no disk"
        assert "Greedy wants database" in container.problems["find2"]
        assert "'find' is taken" in container.problems["find3"]
        result = await container.execute("find1", {"query": "a"})
        assert result.error == "'find1' cannot be made. See logs for details."
        with pytest.raises(SetupError):
            container.get_tool("find1")
        ill.clear()
        assert (await container.execute("find1", {"query": "a"})).success
        assert "find1" not in container.problems


@pytest.mark.req("FM-4")
async def test_what_an_agent_gets_is_the_tool_but_for_the_road() -> None:
    class Known(Base):
        REQUIRES_CONFIRMATION = True
        own = "known"

        def __init__(self, settings: Any) -> None:
            self.settings = settings

    async with holding(Known, settings=7) as container:
        got: Any = container.get_tool("find")
        assert isinstance(got, BaseTool)
        assert (got.settings, got.REQUIRES_CONFIRMATION) == (7, True)
        assert got.get_schema()["name"] == "known"
        assert container.get_tool("known").get_schema() == got.get_schema()
        with pytest.raises(AttributeError):
            got._nothing  # noqa: B018
        with pytest.raises(ToolNotFound):
            container.get_tool("nobody")
        assert "A person has to confirm known before it runs." in (
            (await got.execute({"query": "a"})).error or ""
        )


@pytest.mark.req("FM-4")
@pytest.mark.parametrize("way", ["reset", "shutdown", "remove"])
@pytest.mark.parametrize("hook", ["cleanup", "close", "aclose", None])
async def test_a_tool_is_cleaned_up_and_let_go(way: str, hook: str | None) -> None:
    told: list[int] = []

    async def later(self: Base) -> None:
        told.append(1)

    hooks = {} if hook is None else {hook: later if hook != "close" else lambda s: told.append(1)}
    container = holding(type("Kept", (Base,), hooks))
    got = container.get_tools()[0]
    assert (await got.execute({"query": "a"})).success
    alive = weakref.ref(container.alive("find").tool)
    await (container.remove("find") if way == "remove" else getattr(container, way)())
    assert told == ([] if hook is None else [1])
    gc.collect()
    assert alive() is None
    again = await got.execute({"query": "a"})
    assert again.success is (way == "reset")
    assert len(container.get_tools()) == (way == "reset")
    await container.reset()
    assert len(container.get_tools()) == (way != "shutdown")
    await container.shutdown()


@pytest.mark.req("FM-4")
async def test_nobody_is_cut_off_when_a_tool_is_removed() -> None:
    begun, release, order = asyncio.Event(), asyncio.Event(), []

    async def work(self: Base, params: Any) -> ToolResult:
        begun.set()
        await release.wait()
        order.append("done")
        return ToolResult(True)

    def cleanup(self: Base) -> None:
        order.append("cleaned up")

    container = holding(doing(work, cleanup=cleanup))
    call = asyncio.ensure_future(container.execute("find", {"query": "a"}))
    await asyncio.wait_for(begun.wait(), 5)
    await container.remove("find")
    assert order == []
    release.set()
    assert (await call).success
    assert order == ["done", "cleaned up"]
    await container.shutdown()


async def test_a_tool_stays_until_what_it_gave_back_to_be_awaited_is_there() -> None:
    begun, release, order = asyncio.Event(), asyncio.Event(), []

    class Wrapped(Base):
        def execute(self, params: Any) -> Any:  # type: ignore[override]
            return self.later()  # as a decorator does that is not async itself

        async def later(self) -> ToolResult:
            begun.set()
            await release.wait()
            order.append("done")
            return ToolResult(True)

        async def cleanup(self) -> None:
            order.append("cleaned up")

    container = holding(Wrapped)
    call = asyncio.ensure_future(container.execute("find", {"query": "a"}))
    await asyncio.wait_for(begun.wait(), 5)
    await container.reset()
    release.set()
    assert (await call).success
    assert order == ["done", "cleaned up"]
    await container.shutdown()


async def test_a_blocking_tool_is_cleaned_up_in_the_loop_that_let_it_go() -> None:
    begun, release, cleaned = threading.Event(), threading.Event(), asyncio.Event()

    class Blocking(Base):
        def execute(self, params: Any) -> Any:  # type: ignore[override]
            begun.set()
            release.wait(20)
            return ToolResult(True)

        async def cleanup(self) -> None:
            cleaned.set()

    container = holding(Blocking)
    call = asyncio.ensure_future(container.execute("find", {"query": "a"}))
    await asyncio.to_thread(begun.wait, 5)
    await container.reset()
    assert not cleaned.is_set()
    release.set()
    assert (await call).success
    await asyncio.wait_for(cleaned.wait(), 5)
    await container.shutdown()


async def test_a_cleanup_that_breaks_keeps_no_other_from_its_own() -> None:
    told: list[int] = []

    def broken(self: Base) -> None:
        raise RuntimeError("stuck")

    container = holding(
        type("A", (Base,), {"cleanup": broken}),
        type("B", (Base,), {"own": "b", "cleanup": lambda self: told.append(1)}),
    )
    container.get_tools()
    await container.shutdown()
    assert told == [1]


@pytest.mark.req("FM-12")
async def test_a_tool_that_fails_hands_over_to_the_one_it_names_and_the_result_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = doing(
        lambda self, params: ToolResult(False, None, "Down."),
        own="first",
        TOOLPOST=ToolOptions(effects="read", fallback="second"),
    )
    second = doing(lambda self, params: ToolResult(True, "second"), own="second")
    caplog.set_level(logging.INFO, "toolpost.faultmaven")
    async with holding(first, second) as container:
        assert (await container.execute("find", {"query": "a"})).data == "second"
        result = await container.get_tool("first").execute({"query": "a"})
        said = "first failed (EXECUTION_ERROR): this is the result of second."
        assert result == ToolResult(True, "second", warnings=[said])
        assert result.model_dump()["warnings"] == (said,)
        assert f"first: {said}" in caplog.text
        plain = await container.get_tool("second").execute({"query": "a"})
        assert (plain, plain.warnings) == (ToolResult(True, "second"), ())


@pytest.mark.req("FM-9")
async def test_ten_run_and_a_hundred_wait_and_the_next_is_refused_at_once() -> None:
    release = asyncio.Event()

    async def work(self: Base, params: Any) -> ToolResult:
        await release.wait()
        return ToolResult(True)

    async with holding(doing(work)) as container:
        got = container.get_tools()[0]
        calls = [asyncio.ensure_future(got.execute({"query": "a"})) for _ in range(111)]
        done, _ = await asyncio.wait(calls, timeout=20, return_when="FIRST_COMPLETED")
        assert [(await one).success for one in done] == [False]
        release.set()
        assert [one.success for one in await asyncio.gather(*calls)].count(True) == 110


async def test_names_that_cross_are_not_mistaken_for_each_other() -> None:
    first = doing(lambda self, params: ToolResult(True, "first"), own="find1")
    second = doing(lambda self, params: ToolResult(True, "second"), own="other")
    async with holding(first, second) as container:
        given = [(await one.execute({"query": "a"})).data for one in container.get_tools()]
        assert given == ["first", "second"]
        assert (await container.execute("find1", {"query": "a"})).data == "first"
        assert (await container.execute("other", {"query": "a"})).data == "second"


# --- beside tools of ours -----------------------------------------------------------------------


@tool
async def ours() -> str:
    """Say something."""
    return "ours"


@pytest.mark.req("FM-4", "UX-9")
async def test_a_container_s_tools_run_where_you_have_yours() -> None:
    seen: list[str] = []

    async def guard(call: Any, call_next: Walk) -> Result:
        seen.append(call.tool)
        return await call_next(call)

    async with Executor(Registry([ours]), guards=[guard]) as theirs:
        container = holding(Base, over=theirs)
        (got,) = container.get_tools()
        assert (await got.execute({"query": "a"})).success
        assert (await theirs.execute("find", {"query": "a"})).success
        assert seen == ["find", "find"]
        await container.shutdown()
        assert [spec.name for spec in theirs.registry] == ["ours"]

        taken = holding(type("Taken", (Base,), {"own": "ours"}), over=theirs)
        result = await taken.execute("find", {"query": "a"})
        assert result.error == "Another tool has the name 'ours'."

    container = holding(Base)
    async with Executor(Registry([ours, *container.tools()])) as executor:
        assert (await executor.execute("find", {"query": "a"})).success
        await container.reset()
        assert (await executor.execute("find", {"query": "a"})).success
        await container.shutdown()
        error = (await executor.execute("find", {"query": "a"})).error
        assert error is not None
        assert error.code == "NOT_FOUND"


def test_a_container_serves_one_loop_after_another() -> None:
    container = holding(Base)
    for _ in range(3):
        assert asyncio.run(container.execute("find", {"query": "a"})).success
    asyncio.run(container.shutdown())


def test_the_tools_of_a_module_are_found() -> None:
    module = ModuleType("old_tools")
    module.One = type("One", (Base,), {"__module__": "old_tools", "own": "one"})  # type: ignore[attr-defined]
    module.imported = Base  # type: ignore[attr-defined]
    module.here = module.again = type("Two", (Base,), {"own": "two"})()  # type: ignore[attr-defined]
    assert [item.spec.name for item in tools_in(vars(module))] == ["two", "one"]  # type: ignore[union-attr]
    (item,) = tools(module.One())
    module.item = item  # type: ignore[attr-defined]
    assert [one for one in tools_in(vars(module)) if one.spec.name == item.spec.name] == [item]  # type: ignore[union-attr]
