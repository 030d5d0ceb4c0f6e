"""The Forge contract: its tools, written for it, on the road."""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from toolpost import (
    Caller,
    Executor,
    Registry,
    Result,
    Runtime,
    ToolOptions,
    ToolpostError,
    tool,
)
from toolpost.bridges.forge import (
    BaseTool,
    ExecutionContext,
    ToolCategory,
    ToolError,
    ToolExecutor,
    ToolFactory,
    ToolParameter,
    ToolRegistry,
    ToolResult,
    tools,
    tools_in,
)
from toolpost.contracts import Walk
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import calls

pytestmark = pytest.mark.anyio
HERE = ExecutionContext(working_dir="/here", session_id="s-1", metadata={"a": 1})
TEXT = ToolParameter(name="text", type="string", description="A text.")


class Forged(BaseTool):
    """A tool of any shape: ``does`` is its work."""

    def __init__(
        self, does: Any = None, *params: ToolParameter, name: str = "forged", kind: str = "other"
    ) -> None:
        self._name, self._params, self._does = name, list(params), does
        self._kind = ToolCategory(kind)

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return "A tool for tests."

    @property
    def category(self) -> ToolCategory:
        return self._kind

    @property
    def parameters(self) -> list[ToolParameter]:
        return self._params

    async def _execute(self, context: ExecutionContext, **kwargs: Any) -> ToolResult:
        done = self._does(context, **kwargs) if self._does else kwargs
        done = await done if asyncio.iscoroutine(done) else done
        return done if isinstance(done, ToolResult) else ToolResult.ok(done)


class Blocking(Forged):
    """Not async, though the contract wants it."""

    def _execute(self, context: ExecutionContext, **kwargs: Any) -> Any:  # type: ignore[override]
        return ToolResult.ok(threading.current_thread().name)


@pytest.fixture
def registry() -> Iterator[ToolRegistry]:
    ToolRegistry._instance = None  # as the tests of such projects do
    yield ToolRegistry()
    ToolRegistry._instance = None


async def both(made: BaseTool, context: ExecutionContext = HERE, **kwargs: Any) -> ToolResult:
    """The same call by itself and through an executor: the contract makes no difference."""
    alone = await made.execute(context, **kwargs)
    ToolRegistry().clear()
    ToolRegistry().register(made)
    async with ToolExecutor(ToolRegistry()) as executor:
        through = await executor.execute(made.name, context, **kwargs)
    for result in (alone, through):  # how long it took and what was left is never quite the same
        assert result.duration_ms is not None and result.duration_ms >= 0
        result.metadata.pop("seconds", None)
        result.metadata.get("plan", {}).pop("timeout", None)
    assert through == alone
    return through


# --- the base -----------------------------------------------------------------------------------


@pytest.mark.req("FG-1", "FG-7")
async def test_a_tool_gets_its_context_and_its_arguments_and_gives_a_standard_result() -> None:
    seen: list[Any] = []

    def work(context: ExecutionContext, **kwargs: Any) -> ToolResult:
        seen.append((context, kwargs))
        return ToolResult.ok("done", lines=3)

    optional = ToolParameter(name="n", type="integer", description="n", required=False, default=7)
    result = await both(Forged(work, TEXT, optional), text="hello")
    assert result == ToolResult(success=True, output="done", metadata={"lines": 3})
    assert seen[0] == seen[1] == (HERE, {"text": "hello", "n": 7})
    assert seen[0][0] is HERE


@pytest.mark.req("FG-1", "FG-4")
@pytest.mark.parametrize(
    ("parameter", "value", "error"),
    [
        ({"type": "string"}, ..., "Missing required parameter: x"),
        ({"type": "string", "default": "a"}, ..., "Missing required parameter: x"),
        ({"type": "string"}, 3, "Invalid type for x: expected string"),
        ({"type": "string"}, None, "Invalid type for x: expected string"),
        ({"type": "number"}, "1", "Invalid type for x: expected number"),
        ({"type": "boolean"}, 1, "Invalid type for x: expected boolean"),
        ({"type": "array"}, {}, "Invalid type for x: expected array"),
        ({"type": "object"}, [], "Invalid type for x: expected object"),
        ({"type": "string", "enum": ["a"]}, "b", "Invalid value for x: must be one of ['a']"),
        ({"type": "integer", "minimum": 2}, 1, "Invalid value for x: below minimum 2"),
        ({"type": "number", "maximum": 2.5}, 3, "Invalid value for x: above maximum 2.5"),
        ({"type": "string", "min_length": 2}, "a", "… too short, it needs 2 characters or more"),
        ({"type": "string", "max_length": 1}, "ab", "… too long, it may have 1 characters at most"),
        ({"type": "array", "max_length": 1}, [1, 2], "… must have at most 1 items"),
        ({"type": "object", "min_length": 1}, {}, "… must have at least 1 properties"),
        ({"type": "string", "pattern": "^a"}, "b", '… must match the pattern "^a"'),
        ({"type": "array", "items": {"maximum": 1}}, [2], "… /0: must be at most 1"),
        (
            {"type": "array", "items": {"maximum": 1}, "max_length": 1},
            [2, 3],
            "… must have at most 1 items; /0: must be at most 1; /1: must be at most 1",
        ),
    ],
)  # fmt: skip
async def test_what_does_not_fit_a_parameter_is_refused_in_the_words_of_the_document(
    parameter: dict[str, Any], value: Any, error: str
) -> None:
    called: list[object] = []
    made = Forged(called.append, ToolParameter(name="x", description="x", **parameter))
    given = {} if value is ... else {"x": value}
    assert made.validate_params(**given)[0] is False
    result = await both(made, **given)
    assert (result.success, result.metadata["code"]) == (False, "VALIDATION_ERROR")
    assert result.error == error.replace("…", "Invalid value for x:")
    assert called == []


@pytest.mark.req("FG-9")
@pytest.mark.parametrize("kind", ["integer", "number"])
async def test_a_boolean_is_no_number(kind: str) -> None:
    made = Forged(None, ToolParameter(name="x", type=kind, description="x"))
    assert made.validate_params(x=True) == (False, f"Invalid type for x: expected {kind}")
    assert (await both(made, x=True)).error == f"Invalid type for x: expected {kind}"
    assert (await both(made, x=1)).output == {"x": 1}


async def test_a_type_that_json_does_not_know_lets_everything_pass() -> None:
    made = Forged(None, ToolParameter(name="x", type="path", description="x"))
    assert made.parameters[0].to_json_schema() == {"description": "x"}
    assert (await both(made, x=[1])).output == {"x": [1]}


@pytest.mark.req("FG-1")
async def test_a_tool_that_takes_too_long_is_stopped_at_the_limit_of_its_context() -> None:
    stopped: list[str] = []

    async def work(context: ExecutionContext) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append("stopped")
            raise

    result = await both(Forged(work), ExecutionContext(working_dir=".", timeout=0.3))
    assert result.error == "Tool timed out after 0.3s"
    assert stopped == ["stopped", "stopped"]
    quick = type("Quick", (Forged,), {"TOOLPOST": ToolOptions(timeout=0.2)})(work)
    ToolRegistry().clear()
    ToolRegistry().register(quick)
    async with ToolExecutor(ToolRegistry()) as executor:
        assert (await executor.execute("forged", HERE)).error == "Tool timed out after 0.2s"
    assert tools(Forged(work))[0].spec.timeout == 120 == HERE.timeout  # type: ignore[union-attr]


@pytest.mark.req("FG-1")
async def test_a_cancellation_reaches_the_tool_and_is_not_swallowed(
    registry: ToolRegistry,
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(context: ExecutionContext) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    registry.register(Forged(work))
    executor = ToolExecutor(registry)
    for way in (Forged(work).execute(HERE), executor.execute("forged", HERE)):
        begun.clear()
        ended.clear()
        task = asyncio.ensure_future(way)
        await asyncio.wait_for(begun.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()
    await executor.close()


@pytest.mark.req("FG-4", "FM-6")
async def test_what_a_tool_raises_is_a_failure_without_its_internals() -> None:
    def work(context: ExecutionContext) -> None:
        raise KeyError("/etc/secret")

    result = await both(Forged(work))
    assert result.error == "Execution error: Internal tool error. See logs for details."


@pytest.mark.parametrize("garbage", [None, "text", {"success": True}, object(), Result(output=1)])
async def test_what_is_no_result_is_a_failure(garbage: Any) -> None:
    class Odd(Forged):
        async def _execute(self, context: ExecutionContext, **kwargs: Any) -> Any:
            return garbage

    result = await both(Odd())
    assert (result.success, result.metadata["code"]) == (False, "OUTPUT_INVALID")


class Point(BaseModel):
    x: int


async def test_what_comes_back_is_json_data() -> None:
    result = await both(Forged(lambda context: ToolResult.ok({"at": (Point(x=1),)}, of={1})))
    assert result == ToolResult.ok({"at": [{"x": 1}]}, of=[1])
    for what in (object(), b"\xff", float("nan"), {"a": object()}):
        result = await both(Forged(lambda context, what=what: ToolResult.ok(what)))
        assert (result.success, result.metadata["code"]) == (False, "OUTPUT_INVALID"), what


async def test_a_failure_says_why_and_keeps_what_the_tool_says_of_it() -> None:
    result = await both(Forged(lambda context: ToolResult.fail("No such file.", path="/x", code=2)))
    assert (result.error, result.metadata["path"]) == ("No such file.", "/x")
    assert (result.metadata["code"], result.metadata["remedy"]) == (2, "fix_args")
    silent = ToolResult(success=False)
    assert (await both(Forged(lambda context: silent))).error == (
        "The tool failed and did not say why."
    )


async def test_a_tool_that_blocks_gets_a_thread(registry: ToolRegistry) -> None:
    assert (await both(Blocking())).output == "toolpost-tool"
    registry.clear()

    class Slow(Forged):
        def _execute(self, context: ExecutionContext, **kwargs: Any) -> Any:  # type: ignore[override]
            release.wait(20)
            return ToolResult.ok()

    release = threading.Event()
    result = await Slow().execute(ExecutionContext(working_dir=".", timeout=0.05))
    release.set()
    assert result.error == "Tool timed out after 0.05s"


async def test_checks_and_wrappers_of_a_tools_own_are_kept() -> None:
    class Careful(Forged):
        def validate_params(self, **kwargs: Any) -> tuple[bool, str | None]:
            if kwargs.get("text") == "bad":
                return False, "Not that one."
            return super().validate_params(**kwargs)

        async def execute(self, context: ExecutionContext, **kwargs: Any) -> ToolResult:
            result = await super().execute(context, **kwargs)
            return result.model_copy(update={"metadata": {"wrapped": True}})

    assert (await both(Careful(None, TEXT), text="a")) == ToolResult.ok({"text": "a"}, wrapped=True)
    ToolRegistry().clear()
    ToolRegistry().register(Careful(None, TEXT))
    async with ToolExecutor(ToolRegistry()) as executor:
        assert (await executor.execute("forged", HERE, text="bad")).error == "Not that one."
    ToolRegistry().clear()


async def test_arguments_cannot_take_the_place_of_what_the_method_has_itself() -> None:
    async with Executor(Registry(tools(Forged()))) as executor:
        for name in ("self", "context"):
            result = await executor.execute("forged", {name: 1})
            assert result.error is not None
            assert result.error.message == f"/{name}: unknown parameter"
    taken = ToolParameter(name="context", type="string", description="x")
    with pytest.raises(ToolError, match="cannot be called 'context'"):
        tools(Forged(None, taken))


async def test_arguments_that_nobody_takes_are_refused_and_named() -> None:
    class Exact(Forged):
        async def _execute(self, context: ExecutionContext, text: str) -> ToolResult:  # type: ignore[override]
            return ToolResult.ok(text)

    result = await both(Exact(None, TEXT), text="a", txet="b")
    assert (result.success, result.metadata["code"]) == (False, "VALIDATION_ERROR")
    assert "txet" in (result.error or "")
    assert (await both(Forged(None, TEXT), text="a", more="b")).output == {"text": "a", "more": "b"}


async def test_a_copy_of_a_tool_is_a_tool_of_its_own() -> None:
    first = Forged(lambda context: "first")
    await first.execute(HERE)
    second = copy.deepcopy(first)
    second._does = lambda context: "second"
    assert (await second.execute(HERE)).output == "second"


def test_a_tool_runs_in_one_loop_after_another(registry: ToolRegistry) -> None:
    registry.register(Forged(lambda context: "here"))
    registry.register(Blocking(name="blocking"))
    executor = ToolExecutor(registry)

    async def calls() -> None:
        assert (await executor.execute("forged", HERE)).output == "here"
        assert (await executor.execute("blocking", HERE)).success

    for _ in range(5):
        asyncio.run(calls())
    assert len(registry.registry._listeners) == 1
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: asyncio.run(calls()), range(8)))
    asyncio.run(executor.close())


# --- schemas ------------------------------------------------------------------------------------


def test_a_parameter_says_in_json_schema_all_that_it_is() -> None:
    every = ToolParameter(
        name="x", type="array", description="Some.", required=False, default=[], enum=[[], [1]],
        min_length=0, max_length=3, items={"type": "integer"},
    )  # fmt: skip
    assert every.to_json_schema() == {
        "type": "array",
        "description": "Some.",
        "enum": [[], [1]],
        "default": [],
        "minItems": 0,
        "maxItems": 3,
        "items": {"type": "integer"},
    }
    flag = ToolParameter(name="x", type="boolean", description="x", default=False)
    assert flag.to_json_schema()["default"] is False


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "odd"]),
            st.booleans(),
            st.none() | st.integers(0, 5),
            st.none() | st.integers(0, 5),
        ),
        max_size=4,
    )
)
async def test_every_parameter_that_can_be_written_makes_a_tool(shapes: list[Any]) -> None:
    params = [
        ToolParameter(
            name=f"p{n}", type=kind, description="p", required=required,
            min_length=low, max_length=high, minimum=low, maximum=high,
        )
        for n, (kind, required, low, high) in enumerate(shapes)
    ]  # fmt: skip
    made = Forged(None, *params)
    needed = [one.name for one in params if one.required]
    assert made.validate_params()[0] is not bool(needed)
    assert (await made.execute(HERE)).success is not bool(needed)


# --- the registry -------------------------------------------------------------------------------


@pytest.mark.req("FG-2", "FG-6")
def test_the_registry_is_one_and_knows_its_tools(registry: ToolRegistry) -> None:
    assert ToolRegistry() is registry
    read, search = Forged(name="read", kind="file"), Forged(name="search", kind="web")
    registry.register(read)
    registry.register(search)
    assert registry.get("read") is registry.get_or_raise("read") is read
    assert registry.list_all() == [read, search]
    assert registry.list_by_category(ToolCategory.WEB) == [search]
    assert registry.exists("read") and not registry.exists("write")
    assert registry.get("write") is None
    with pytest.raises(ToolError, match="write: Tool not found"):
        registry.get_or_raise("write")
    assert registry.deregister("read") is True
    assert registry.deregister("read") is False
    registry.clear()
    assert registry.list_all() == []
    assert len(registry.registry) == 0


@pytest.mark.req("FG-2")
def test_a_name_that_is_taken_is_refused(registry: ToolRegistry) -> None:
    first = Forged(name="read_file")
    registry.register(first)
    with pytest.raises(ToolError) as taken:
        registry.register(Forged(name="read_file"))
    assert (taken.value.tool_name, taken.value.message) == ("read_file", "Tool already registered")
    with pytest.raises(ToolError, match="looks like 'read_file'"):
        registry.register(Forged(name="read-file"))
    assert registry.list_all() == [first]
    assert registry.registry.list() == tuple(entry.spec for entry in tools(first))  # type: ignore[union-attr]


@pytest.mark.parametrize("fault", ["name", "description", "parameters", "category"])
def test_what_cannot_be_a_tool_is_refused_when_it_is_registered(
    registry: ToolRegistry, fault: str
) -> None:
    def broken(self: BaseTool) -> Any:
        raise RuntimeError("not now")

    with pytest.raises(ToolError, match="not now"):
        registry.register(type("Broken", (Forged,), {fault: property(broken)})())
    bad = ToolParameter(name="x", type="string", description="x", pattern="(")
    with pytest.raises(ToolError, match="pattern"):
        registry.register(Forged(None, bad))
    with pytest.raises(ToolError, match="option"):
        registry.register(type("Odd", (Forged,), {"TOOLPOST": {"teir": 1}})())
    assert registry.list_all() == []


@pytest.mark.req("FG-2", "FG-5")
@pytest.mark.parametrize(
    ("name", "known_as"),
    [("Read File", "Read_File"), ("a.b!", "a.b_"), ("-x", "_-x"), ("", "Forged"), ("ü", "Forged")],
)
async def test_a_name_that_no_spec_may_have_is_kept_and_spoken_of_as_another(
    registry: ToolRegistry, caplog: pytest.LogCaptureFixture, name: str, known_as: str
) -> None:
    made = Forged(lambda context: "ran", name=name)
    registry.register(made)
    assert registry.get(name) is made and registry.exists(name)
    assert f"know the tool {name!r} as {known_as}" in caplog.text
    async with ToolExecutor(registry) as executor:
        assert (await executor.execute(name, HERE)).output == "ran"
        (schema,) = executor.get_all_schemas("anthropic")
        assert (await executor.execute(schema["name"], HERE)).output == "ran"
        assert (await executor.execute(known_as, HERE)).output == "ran"
        assert {one.tool_name for one in executor.get_executions()} == {name}
    assert [spec.name for spec in registry.registry] == [known_as]
    with pytest.raises(ToolError, match="is taken"):
        registry.register(Forged(name=known_as))
    assert registry.deregister(name)
    assert len(registry.registry) == 0


@pytest.mark.req("FG-5", "FG-6")
async def test_schemas_are_in_the_order_of_registration(registry: ToolRegistry) -> None:
    registry.register_many(
        [
            Forged(name=name, kind="file" if name > "k" else "web")
            for name in ("zebra", "ape", "mule")
        ]
    )
    assert registry.list_names() == ["ape", "mule", "zebra"]
    assert registry.count() == 3
    async with ToolExecutor() as executor, Executor(Registry([ours])) as theirs:
        named = [one["function"]["name"] for one in executor.get_all_schemas()]
        assert named == ["zebra", "ape", "mule"]
        files = executor.get_schemas_by_category(ToolCategory.FILE, "anthropic")
        assert [one["name"] for one in files] == ["zebra", "mule"]
        assert executor.get_schemas_by_category(ToolCategory.TASK) == []
        with pytest.raises(ValueError, match="Unknown schema format"):
            executor.get_schemas_by_category(ToolCategory.FILE, "gemini")
        over = ToolExecutor(over=theirs)
        named = [one["function"]["name"] for one in over.get_all_schemas()]
        assert named == ["zebra", "ape", "mule", "ours"]
        await over.close()
    grouped = registry.group_by_category()
    assert {category.value: [one.name for one in found] for category, found in grouped.items()} == {
        "file": ["zebra", "mule"],
        "web": ["ape"],
    }


def test_registering_many_stops_at_the_first_that_is_refused(registry: ToolRegistry) -> None:
    registry.register(Forged(name="there"))
    with pytest.raises(ToolError):
        registry.register_many([Forged(name="new"), Forged(name="there"), Forged(name="never")])
    assert registry.list_names() == ["new", "there"]


def test_after_a_reset_there_is_a_new_registry(registry: ToolRegistry) -> None:
    registry.register(Forged())
    executor = ToolExecutor(registry)
    ToolRegistry.reset()
    assert ToolRegistry() is not registry
    assert (ToolRegistry().count(), registry.count()) == (0, 1)
    assert len(executor.get_all_schemas()) == 1


@pytest.mark.req("FG-4")
async def test_executions_are_kept_with_what_went_in_and_came_out(registry: ToolRegistry) -> None:
    registry.register(Forged(None, TEXT))
    async with ToolExecutor(registry) as executor:
        good = await executor.execute("forged", HERE, text="a")
        bad = await executor.execute("forged", HERE)
        await executor.execute("unknown", HERE)
        first, second = executor.get_executions()
        assert (first.tool_name, first.parameters) == ("forged", {"text": "a"})
        assert first.context is HERE and first.result is good and second.result is bad
        assert first.completed_at >= first.started_at
        assert first.duration_ms >= 0
        executor.get_executions().clear()
        assert len(executor.get_executions()) == 2
        executor.clear_executions()
        assert executor.get_executions() == executor.history() == []
    assert good.to_display() == "{'text': 'a'}"
    assert bad.to_display() == "Error: Missing required parameter: text"


@pytest.mark.req("FG-4")
async def test_a_call_is_logged_as_the_document_has_it(
    registry: ToolRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="toolpost.forge")
    registry.register(Forged(None, TEXT))
    async with ToolExecutor(registry) as executor:
        await executor.execute("forged", HERE, text="sk_live_4eC39HqLyjWDarjtT1zdp7dc")
        await executor.execute("forged", HERE)
    said = [(one.levelname, one.getMessage()) for one in caplog.records]
    said = [line for line in said if line[1].startswith(("Exec", "Param", "Tool"))]
    assert [line for line in said if not line[1].startswith("Param")] == [
        ("INFO", "Executing tool: forged"),
        ("INFO", "Tool forged succeeded"),
        ("INFO", "Executing tool: forged"),
        ("WARNING", "Tool forged failed: Missing required parameter: text"),
    ]
    assert said[1][0] == "DEBUG" and "sk_live" not in caplog.text


async def test_an_agent_is_named_by_the_context_unless_the_caller_is_one(
    registry: ToolRegistry,
) -> None:
    seen: list[tuple[str | None, bool]] = []

    async def guard(call: Any, call_next: Walk) -> Result:
        seen.append((call.caller.agent, call.caller.owner))
        return await call_next(call)

    registry.register(Forged(lambda context: context.max_output_size))
    context = ExecutionContext(working_dir=".", agent_id="scout")
    async with Executor(Registry(), guards=[guard]) as theirs:
        executor = ToolExecutor(registry, over=theirs)
        assert (await executor.execute("forged", context)).output == 100_000
        await executor.close()
        clerk = ToolExecutor(registry, over=theirs, caller=Caller("key", agent="clerk"))
        await clerk.execute("forged", context)
    assert seen == [("scout", True), ("clerk", False)]


async def test_a_class_may_show_the_text_of_its_exceptions(registry: ToolRegistry) -> None:
    def broken(context: ExecutionContext) -> None:
        raise RuntimeError("out of paper")

    assert "out of paper" not in str((await both(Forged(broken))).error)
    shows = type("Shows", (Forged,), {"SHOWS_EXCEPTIONS": True})
    result = await both(shows(broken))
    assert (result.error, result.metadata["code"]) == (
        "Execution error: out of paper",
        "EXECUTION_ERROR",
    )


@pytest.mark.req("FG-2")
def test_threads_share_the_registry(registry: ToolRegistry) -> None:
    ToolRegistry._instance = None
    start, won = threading.Barrier(8), []

    def work(number: int) -> None:
        start.wait(10)
        one = ToolRegistry()
        for name in range(20):
            try:
                one.register(Forged(name=f"t{name}"))
                won.append(name)
            except ToolError:
                one.list_all()
        one.deregister(f"t{number}")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    there = ToolRegistry()
    assert there is not registry
    names = {one.name for one in there.list_all()}
    assert names == {spec.name for spec in there.registry}
    assert set(won) == set(range(20))


# --- the executor -------------------------------------------------------------------------------


@pytest.mark.req("FG-4")
async def test_what_nobody_has_is_said_and_nothing_escapes(registry: ToolRegistry) -> None:
    registry.register(Forged(None, TEXT))
    async with ToolExecutor(registry) as executor:
        assert (await executor.execute("nothing", HERE)).error == "Unknown tool: nothing"
        wrong: Any = None
        result = await executor.execute("forged", wrong, text="a")
        assert result.error == "The context is no ExecutionContext"
        named = await executor.execute(tool_name="forged", context=HERE, text="a")
        assert named.output == {"text": "a"}
        for name in ("self", "context"):  # a model may send anything
            result = await executor.execute("forged", HERE, **{"text": "a", name: 1})
            assert result.error == f"/{name}: unknown parameter"
        result = await executor.execute("forged", HERE, text="a", tool_name="b")
        assert result.output == {"text": "a", "tool_name": "b"}
        for nobody in (None, 3, ["forged"]):
            odd: Any = nobody
            assert not (await executor.execute(odd, HERE)).success
        result = await executor.execute("forged", HERE, text=object())
        assert result.metadata["code"] == "VALIDATION_ERROR"
        empty = ExecutionContext(working_dir=".", session_id="")
        assert (await executor.execute("forged", empty, text="a")).success
        for timeout in (0, -1, float("nan")):
            hurried = ExecutionContext(working_dir=".", timeout=timeout)
            assert not (await executor.execute("forged", hurried, text="a")).success


@pytest.mark.req("FG-4", "FG-7")
async def test_a_dry_run_calls_no_tool_that_does_not_know_of_it() -> None:
    seen: list[ExecutionContext] = []
    dry = ExecutionContext(working_dir=".", dry_run=True)
    result = await both(Forged(lambda context, **_: seen.append(context), TEXT), dry, text="a")
    assert (result.success, result.metadata["dry_run"], seen) == (True, True, [])
    assert result.metadata["plan"]["arguments"] == {"text": "a"}
    assert not (await both(Forged(None, TEXT), dry)).success
    assert result.output == "[Dry Run] forged was not run. Its arguments: {'text': 'a'}"
    previewing = type("Previewing", (Forged,), {"PREVIEWS": True})
    result = await both(previewing(lambda context: f"would: {context.dry_run}"), dry)
    assert result == ToolResult.ok("would: True")


class Previewing(Forged):
    """Looks at the context in a method of its own."""

    async def _execute(self, context: ExecutionContext, **kwargs: Any) -> ToolResult:
        return self._answer(context, **kwargs)

    def _answer(self, context: ExecutionContext, **kwargs: Any) -> ToolResult:
        return ToolResult.ok("would write" if context.dry_run else "written")


class Silent(Previewing):
    PREVIEWS = False


class SetUp(Forged):
    """Has a setting and an argument of the name, and does not look at its context."""

    dry_run = True

    async def _execute(self, context: ExecutionContext, **kwargs: Any) -> ToolResult:
        return ToolResult.ok((self.dry_run, kwargs.get("dry_run")))


@pytest.mark.req("FG-4", "FG-7")
async def test_a_tool_that_looks_at_dry_run_itself_is_called() -> None:
    dry = ExecutionContext(working_dir=".", dry_run=True)
    assert (await both(Previewing(), dry)).output == "would write"
    assert (await both(Previewing())).output == "written"
    assert (await both(Silent(), dry)).output.startswith("[Dry Run] forged was not run")
    assert (await both(SetUp(), dry)).output.startswith("[Dry Run] forged was not run")
    factory = ToolFactory()
    factory.add("forged", Previewing)
    assert (await both(factory.tool("forged"), dry)).output == "would write"


@pytest.mark.req("FG-4", "FG-5")
async def test_a_tool_is_called_by_the_name_that_its_schema_has(registry: ToolRegistry) -> None:
    registry.register(Forged(name="files.read"))
    async with ToolExecutor(registry) as executor:
        (schema,) = executor.get_all_schemas("anthropic")
        result = await executor.execute(schema["name"], HERE)
        assert (schema["name"], result.success) == ("files__read", True)
        assert executor.history()[0].tool_name == "files.read"
        registry.register(Forged(lambda context: "another", name="files__read"))
        assert (await executor.execute("files__read", HERE)).output == "another"


@pytest.mark.req("FG-4")
async def test_the_history_says_what_was_executed(registry: ToolRegistry) -> None:
    registry.register(Forged(None, TEXT))
    async with ToolExecutor(registry) as executor:
        await executor.execute("forged", HERE, text="geheim")
        await executor.execute("forged", HERE)
        first, second = executor.history()
        assert (first.tool_name, first.session_id, first.success) == ("forged", "s-1", True)
        assert (second.success, second.code) == (False, "VALIDATION_ERROR")
        assert first.call_id != second.call_id
        assert "geheim" not in repr(first)
        assert executor.history("other") == []
        told = executor.metrics()["forged"]
        assert (told["calls"], told["failures"]) == (2, 1)
        assert told["max_ms"] >= told["mean_ms"] > 0


async def test_more_than_a_tool_can_take_are_refused_at_once(registry: ToolRegistry) -> None:
    release = asyncio.Event()

    async def work(context: ExecutionContext) -> None:
        await release.wait()

    registry.register(Forged(work))
    async with ToolExecutor(registry) as executor:
        calls = [asyncio.ensure_future(executor.execute("forged", HERE)) for _ in range(111)]
        done, _ = await asyncio.wait(calls, timeout=20, return_when="FIRST_COMPLETED")
        assert [(await one).metadata["code"] for one in done] == ["QUEUE_FULL"]
        release.set()
        assert [one.success for one in await asyncio.gather(*calls)].count(True) == 110


@pytest.mark.req("FG-7")
async def test_a_context_can_be_longer_than_the_default_but_not_than_what_a_tool_says(
    registry: ToolRegistry,
) -> None:
    def plan(context: ExecutionContext, name: str) -> Any:
        dry = context.model_copy(update={"dry_run": True})
        return executor.execute(name, dry)

    registry.register(Forged())
    registry.register(type("Quick", (Forged,), {"TOOLPOST": ToolOptions(timeout=2)})(name="quick"))
    async with ToolExecutor(registry) as executor:
        long = ExecutionContext(working_dir=".", timeout=600)
        assert (await plan(long, "forged")).metadata["plan"]["timeout"] == pytest.approx(600, 0.1)
        assert (await plan(HERE, "forged")).metadata["plan"]["timeout"] == pytest.approx(120, 0.1)
        assert (await plan(long, "quick")).metadata["plan"]["timeout"] == 2


# --- beside tools of ours -----------------------------------------------------------------------


@tool
async def ours(text: str) -> str:
    """Say it louder."""
    return text.upper()


@pytest.mark.req("FG-8", "UX-9")
async def test_the_tools_run_beside_others_with_everything_that_stands_there(
    registry: ToolRegistry,
) -> None:
    seen: list[str] = []

    async def guard(call: Any, call_next: Walk) -> Result:
        seen.append(f"{call.tool} {call.spec.tier} {sorted(call.caller.roles)}")
        return await call_next(call)

    registry.register(Forged(lambda c: [c.working_dir, c.session_id], name="run", kind="execution"))
    async with Executor(Registry([ours]), guards=[guard]) as theirs:
        executor = ToolExecutor(registry, over=theirs, caller=Caller("me", roles=frozenset("ab")))
        may = ExecutionContext(working_dir="/w", session_id="s", permissions=frozenset("bc"))
        assert (await executor.execute("run", may)).output == ["/w", "s"]
        assert (await executor.execute("ours", HERE, text="a")).output == "A"
        assert seen == ["run 3 ['b']", "ours 1 ['a', 'b']"]
        assert len(executor.get_all_schemas()) == 2
        registry.register(Forged(name="later"))
        assert (await theirs.execute("later")).success
        registry.deregister("later")
        assert "later" not in theirs.registry
        registry.register(Forged(name="Ours"))  # that name is taken there
        assert (await executor.execute("Ours", HERE)).metadata["code"] == "CONFLICT"
        await executor.close()
        assert [spec.name for spec in theirs.registry] == ["ours"]
        with pytest.raises(ToolpostError, match="'Ours' looks like 'ours'"):
            ToolExecutor(registry, over=theirs)


@pytest.mark.req("FM-5", "NA-12")
async def test_under_a_runtime_the_whole_pipeline_holds(
    registry: ToolRegistry, tmp_path: Path
) -> None:
    (tmp_path / "toolpost.toml").write_text("watch = false\n")
    asked: list[str] = []

    async def ask(request: Any) -> bool:
        asked.append(request.tool)
        return len(asked) > 1

    def fetch(context: ExecutionContext, **kwargs: Any) -> ToolResult:
        return ToolResult.ok(f"{kwargs['text']}, bob@example.org", by="eve@example.org")

    registry.register(Forged(fetch, TEXT, name="fetch", kind="web"))
    registry.register(Forged(lambda context: "ran", name="run", kind="execution"))
    async with Runtime.open(tmp_path / "toolpost.toml", ask=ask) as runtime:
        executor = ToolExecutor(registry, over=runtime)
        result = await executor.execute("fetch", HERE, text="for ada@example.org")
        assert result.output == "for [redacted:email], [redacted:email]"
        assert result.metadata["by"] == "[redacted:email]"
        assert any("from outside" in one for one in result.metadata["warnings"])
        assert (await executor.execute("run", HERE)).metadata["code"] == "APPROVAL_DENIED"
        again = HERE.model_copy(update={"session_id": "s-2"})
        assert (await executor.execute("run", again)).output == "ran"
        assert asked == ["run", "run"]
    async with Runtime.open(tmp_path / "toolpost.toml") as runtime:
        await runtime.store.open()
        kept = [one async for one in calls(lines_of(runtime.store))]
    assert {one.asked.tool for one in kept} == {"fetch", "run"}


async def test_a_tool_that_is_called_without_a_context_gets_one_of_what_is_known() -> None:
    seen: list[ExecutionContext] = []
    items = tools(Forged(lambda context: seen.append(context)))
    async with Executor(Registry(items)) as executor:
        await executor.execute("forged", session_id="s", timeout=5, metadata={"k": 1})
        await executor.execute("forged", caller=Caller("me", roles=frozenset("r")))
    assert (seen[0].session_id, seen[0].metadata, seen[0].permissions) == ("s", {"k": 1}, None)
    assert 0 < seen[0].timeout <= 5
    assert seen[0].working_dir.startswith("/")
    assert (seen[1].timeout, seen[1].permissions) == (120, frozenset("r"))


def test_what_a_category_and_a_tool_say_is_in_the_spec() -> None:
    web, run, odd = (tools(Forged(kind=kind))[0].spec for kind in ("web", "execution", "other"))  # type: ignore[union-attr]
    assert (web.labels, web.category, web.tier) == ({"external": "true"}, "web", 1)
    assert (run.tier, run.labels, odd.tier, odd.effects) == (3, {}, 1, "once")
    said = type("Said", (Forged,), {"TOOLPOST": ToolOptions(tier=0, effects="read", timeout=3)})
    spec = tools(said(kind="execution"))[0].spec  # type: ignore[union-attr]
    assert (spec.tier, spec.effects, spec.timeout) == (0, "read", 3)


def test_the_tools_of_a_module_are_found() -> None:
    module = ModuleType("old_tools")
    source = """
from toolpost.bridges.forge import *
class Own(BaseTool):
    name = description = "own"
    category, parameters = ToolCategory.OTHER, []
    async def _execute(self, context, **kwargs): return ToolResult.ok()
class Made(Own):
    def __init__(self, name): self.name = name
class Half(BaseTool): pass
made = again = Made("made")
"""
    exec(source, module.__dict__)
    module.imported = Blocking  # type: ignore[attr-defined]
    assert [item.spec.name for item in tools_in(vars(module))] == ["made", "own"]  # type: ignore[union-attr]
    (item,) = tools(module.Own())
    module.item = item  # type: ignore[attr-defined]
    assert [one for one in tools_in(vars(module)) if one.spec.name == item.spec.name] == [item]  # type: ignore[union-attr]
    module.Other = type("Other", (module.Made,), {"__module__": "old_tools"})  # type: ignore[attr-defined]
    with pytest.raises(ToolpostError, match="Other wants name"):
        tools_in(vars(module))


# --- the factory --------------------------------------------------------------------------------


class Kept(Forged):
    made = 0

    def __init__(self, database: str, size: int = 1, name: str = "kept") -> None:
        super().__init__(self.work, name=name)
        type(self).made += 1
        self.number, self.database, self.size, self.closed = type(self).made, database, size, 0

    async def work(self, context: ExecutionContext) -> Any:
        assert not self.closed
        return [self.number, self.database, self.size]

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.req("FG-3", "FG-8")
async def test_a_singleton_is_made_once_when_it_is_needed_and_closed_with_the_factory(
    registry: ToolRegistry,
) -> None:
    one = type("One", (Kept,), {"made": 0})
    factory = ToolFactory({"database": "db", "other": 1})
    factory.add("kept", one, config={"size": 5})
    assert one.made == 0
    with ThreadPoolExecutor(8) as threads:
        made = set(threads.map(lambda _: factory.create("kept"), range(32)))
    assert len(made) == one.made == 1
    (kept,) = made
    registry.register(factory.tool("kept"))
    async with factory, ToolExecutor(registry) as executor:
        assert (await executor.execute("kept", HERE)).output == [1, "db", 5]
        assert (await executor.execute("kept", HERE)).output == [1, "db", 5]
    assert kept.closed == 1  # type: ignore[attr-defined]
    assert factory.create("kept") is not kept


@pytest.mark.req("FG-3")
async def test_each_request_has_an_instance_of_its_own_which_is_closed_behind_it() -> None:
    seen = []
    each = type(
        "Each", (Kept,), {"__init__": lambda s, d: (Kept.__init__(s, d), seen.append(s))[0]}
    )
    factory = ToolFactory({"d": "db"})
    factory.add("kept", each, scope="request")
    async with Executor(Registry(tools(*factory.tools()))) as executor:
        seen.clear()
        results = await asyncio.gather(*(executor.execute("kept") for _ in range(5)))
    assert len({result.output[0] for result in results}) == 5
    assert [one.closed for one in seen] == [1] * 5


@pytest.mark.req("FG-3")
async def test_a_tool_is_closed_when_the_last_call_has_left(registry: ToolRegistry) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    class Busy(Kept):
        async def work(self, context: ExecutionContext) -> Any:
            begun.set()
            await release.wait()
            return await super().work(context)

    factory = ToolFactory({"database": "db"})
    factory.add("kept", Busy)
    busy: Any = factory.create("kept")
    async with Executor(Registry(tools(factory.tool("kept")))) as executor:
        call = asyncio.ensure_future(executor.execute("kept"))
        await asyncio.wait_for(begun.wait(), 5)
        await factory.close()
        assert busy.closed == 0
        release.set()
        assert (await call).success
    assert busy.closed == 1


async def test_a_blocking_tool_of_a_factory_lives_in_threads() -> None:
    closed = []

    class Each(Blocking):
        async def close(self) -> None:
            closed.append(threading.current_thread().name)

    factory = ToolFactory()
    factory.add("forged", Each, scope="request")
    async with Executor(Registry(tools(*factory.tools()))) as executor:
        assert (await executor.execute("forged")).output == "toolpost-tool"
    assert closed == ["toolpost-tool"]


@pytest.mark.req("FG-3")
async def test_a_tool_stays_until_what_it_gave_back_to_be_awaited_is_there() -> None:
    order: list[str] = []

    class Wrapped(Forged):
        def _execute(self, context: ExecutionContext, **kwargs: Any) -> Any:  # type: ignore[override]
            return self.later()  # as a decorator does that is not async itself

        async def later(self) -> ToolResult:
            await asyncio.sleep(0)
            order.append("done")
            return ToolResult.ok()

        async def close(self) -> None:
            order.append("closed")

    factory = ToolFactory()
    factory.add("forged", Wrapped, scope="request")
    async with Executor(Registry(tools(*factory.tools()))) as executor:
        assert (await executor.execute("forged")).success
    assert order == ["done", "closed"]


@pytest.mark.req("FG-3")
async def test_what_cannot_be_made_is_said(registry: ToolRegistry) -> None:
    factory = ToolFactory()
    factory.add("kept", Kept)
    with pytest.raises(ToolError, match="kept: Kept wants database, which nobody provides"):
        factory.create("kept")
    with pytest.raises(ToolError, match="Tool already planned"):
        factory.add("kept", Kept)
    with pytest.raises(ToolError, match="nobody: Tool not found"):
        factory.create("nobody")
    factory.add("other", Kept, config={"database": "db"})
    with pytest.raises(ToolError, match="calls itself kept"):
        factory.create("other")

    class Sick(Kept):
        def __init__(self) -> None:
            if ills:
                raise RuntimeError("no room")
            super().__init__("db", name="sick")

        def close(self) -> None:  # type: ignore[override]
            raise RuntimeError("stuck")

    ills: list[int] = [1]
    factory.add("sick", Sick, scope="request")
    with pytest.raises(ToolError, match="sick: cannot be made: RuntimeError: no room"):
        factory.tool("sick")
    ills.clear()
    async with Executor(Registry(tools(factory.tool("sick")))) as executor:
        assert (await executor.execute("sick")).success
        ills.append(1)
        error = (await executor.execute("sick")).error
        assert error is not None
        assert (error.code, "no room" in error.message) == ("INTERNAL_ERROR", False)


@pytest.mark.req("FG-8")
async def test_the_contract_costs_little(registry: ToolRegistry) -> None:
    registry.register(Forged(lambda context, **kwargs: None, TEXT))
    took = []
    async with ToolExecutor(registry) as executor:
        for _ in range(200):
            began = time.perf_counter()
            await executor.execute("forged", HERE, text="a")
            took.append(time.perf_counter() - began)
    assert min(took) < 0.001
