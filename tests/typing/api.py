"""The public API as type checkers see it. Never run: it must type-check, strictly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, assert_type

from toolpost import (
    Cache,
    Call,
    Caller,
    CallError,
    Config,
    Denied,
    Executor,
    Failure,
    FunctionTool,
    Image,
    Injected,
    Limits,
    Metadata,
    Output,
    Permissions,
    Progress,
    RateLimited,
    Registry,
    Result,
    Retry,
    Runtime,
    Secret,
    Text,
    Tool,
    ToolFailed,
    ToolSpec,
    create_tool,
    sync,
    tool,
    validate_tool_input,
    validate_tool_output,
)
from toolpost.approvals import Request
from toolpost.contracts import Backend, Extension, Handle, Health, Ring, Road, Source, Tell, Walk
from toolpost.extensions.approval import Approval
from toolpost.extensions.metrics import Metrics


class Db:
    answer: int = 42


# --- writing tools


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(
    name="search",
    tier=0,
    effects="read",
    timeout=5,
    tags=["web"],
    limits=Limits(concurrency=2, memory=2**25),
    permissions=Permissions(roles=("clerk",)),
    retry=Retry(attempts=2),
    cache=Cache(ttl=60),
    isolation="thread",
)
def search(query: str, db: Injected[Db], key: Annotated[str, Secret("KEY")], call: Call) -> Output:
    """Search."""
    assert_type(db, Db)
    assert_type(key, str)
    call.progress(1, 2, "half")
    call.partial({"so": "far"})
    call.warn("old")
    assert_type(call.cancelled, bool)
    assert_type(call.deadline, float | None)
    if not query:
        raise ToolFailed("Say what to search for.", remedy="fix_args")
    return Output({"answer": db.answer}, (Text("hello"), Image(b"")))


class Weather(Tool, tier=1, effects="read", description="The weather."):
    def __init__(self, db: Injected[Db]) -> None:
        self.db = db

    async def initialize(self) -> None: ...

    async def run(self, city: str) -> str:
        return city

    def validate(self, arguments: Mapping[str, Any]) -> Iterable[str]:
        return [] if arguments["city"] else ["city is empty"]

    async def health(self) -> Health:
        return Health(False, "no connection")


made = create_tool(
    "echo",
    "Say it again.",
    lambda arguments: arguments,
    input_schema={"type": "object"},
    output_schema={"type": "object"},
    tier=0,
)

assert_type(add, FunctionTool)
assert_type(search, FunctionTool)
assert_type(made, FunctionTool)
assert_type(add.spec, ToolSpec)
assert_type(Weather.spec, ToolSpec)
assert_type(validate_tool_input(add, {"a": 1}), str | None)
assert_type(validate_tool_output(Weather(Db()), "x"), str | None)
tool(tier=0)(print)
tool(timout=5)(print)  # type: ignore[call-overload]
tool(effects="reed")(print)  # type: ignore[call-overload]
create_tool("x", "X.", print, input_schema={}, name="y")  # type: ignore[misc]


# --- specs


spec = ToolSpec(name="plain", description="A plain tool.", timeout=5, tags=("a",))
assert_type(spec.tags, tuple[str, ...])
assert_type(spec.limits, Limits)
assert_type(spec.to_dict(), dict[str, Any])
assert_type(spec.public(), dict[str, Any])
assert_type(spec.digest, str)
assert_type(spec.time_limit, float)
spec.name = "other"  # type: ignore[misc]
ToolSpec("plain", "A plain tool.")  # type: ignore[call-arg]


# --- registries


registry = Registry([add, Weather, Weather(Db()), spec, print])
registry.add(made, namespace="mine", collision="namespace")
registry.replace(spec)
registry.update([spec], gone=["add"])
registry.remove("plain")
registry.add(spec, collision="other")  # type: ignore[arg-type]
assert_type(registry.get("add"), ToolSpec | None)
assert_type(registry.list(kind="python", tier=2), tuple[ToolSpec, ...])
assert_type(registry.groups(), Mapping[str, tuple[ToolSpec, ...]])
assert_type(registry.listen(print), Callable[[], None])
for one in registry:
    assert_type(one, ToolSpec)


# --- calling


async def guard(call: Call, call_next: Walk) -> Result:
    if call.caller.owner:
        raise Denied("No.")
    return await call_next(call)


class Everywhere:
    name = "everywhere"

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
        return guard


async def calling() -> None:
    extension: Extension = Everywhere()
    heard: list[Progress] = []
    async with Executor(
        registry, guards=[guard, extension], observers=[guard], provide={Db: Db()}
    ) as executor:
        result = await executor.execute(
            "add",
            {"a": 1, "b": 2},
            caller=Caller("me", roles=frozenset({"clerk"})),
            session_id="s",
            timeout=5,
            on_progress=heard.append,
        )
        assert_type(executor.list(), tuple[ToolSpec, ...])
        assert_type(await executor.health("add"), Health)
    assert_type(result, Result)
    assert_type(result.success, bool)
    assert_type(result.output, Any)
    assert_type(result.metadata, Metadata)
    assert_type(result.to_dict(), dict[str, Any])
    if result.error is not None:
        assert_type(result.error, Failure)
        assert_type(result.error.retry_after, float | None)


async def opening() -> None:
    async with Runtime.open(Path("toolpost.toml"), provide={Db: Db()}) as tools:
        assert_type(tools, Runtime)
        assert_type(await tools.execute("add", {"a": 1}), Result)
        assert_type(await tools.reload(), Mapping[str, str])


def blocking() -> None:
    with sync.open("toolpost.toml") as tools:
        assert_type(tools.execute("add", {"a": 1}, session_id="s"), Result)
        assert_type(tools.list(), tuple[ToolSpec, ...])
    with sync.over(lambda: Executor(registry)) as mine:
        assert_type(mine, sync.Tools)


async def asks(request: Request) -> bool:
    return True


async def governed() -> None:
    config = Config.of({"watch": False}, base=Path())
    async with Runtime.open(config, tools=[add, Weather], ask=asks) as runtime:
        assert_type(runtime.extension("metrics"), Metrics)
        assert_type(runtime.extension("approval"), Approval)
        assert_type(await runtime.extension("metrics").scrape(), str)
    with sync.open(config, tools=[add], secret=lambda name: None, ask=asks) as tools:
        assert_type(tools, sync.RuntimeTools)
        assert_type(tools.problems, Mapping[str, str])
        assert_type(tools.reload(), Mapping[str, str])
        assert_type(tools.health(), Mapping[str, Health])


def failing() -> None:
    try:
        raise RateLimited("Wait.", retry_after=3)
    except CallError as error:
        assert_type(error.message, str)
        assert_type(error.retryable, bool)


# --- sockets


class Mine:
    """A source and a backend in one."""

    async def load(self, tell: Tell) -> Iterable[ToolSpec]:
        tell(1, 1)
        return [spec]

    async def changes(self) -> Any:
        yield None

    def bind(self, spec: ToolSpec, target: object | None) -> Handle:
        return Ready()

    async def close(self) -> None: ...


class Ready:
    async def run(self, call: Call) -> Any:
        return call.arguments

    async def health(self) -> Health:
        return Health(True)

    async def close(self) -> None: ...


source: Source = Mine()
backend: Backend = Mine()
