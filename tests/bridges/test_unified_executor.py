"""The unified contract: one ``execute`` for every type of tool."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sources.endpoint import serving
from tests.sources.test_files import SEED
from toolpost import Config, ConfigError, Runtime, ToolFailed, Unavailable
from toolpost.bridges.unified import (
    ApprovalExtension,
    ApprovalMode,
    ExtensionManager,
    FileLoader,
    Result,
    ToolContext,
    ToolExecutor,
    ToolSpec,
    ToolSpecRegistry,
    ToolType,
    UnifiedToolExecutor,
    backends,
)

pytestmark = pytest.mark.anyio
FENCE = 60
SERVER = Path(__file__).parents[2] / "examples/contracts/unified/weather_server.py"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Reverse(ToolExecutor):
    tool_type = "reverse"

    def __init__(self) -> None:
        self.tries, self.closed = 0, False

    async def execute(self, spec: ToolSpec, args: dict[str, Any], context: ToolContext) -> Any:
        self.tries += 1
        match args["text"]:
            case "flaky" if self.tries < 3:
                raise Unavailable("Not now.", effects="none")
            case "slow":
                await asyncio.sleep(FENCE)
            case "bad":
                raise ToolFailed("Such a text cannot be reversed.")
            case "who":
                return [context.session_id, context.user_id, spec.implementation_config]
        return args["text"][::-1]

    async def close(self) -> None:
        self.closed = True


def reverse(**fields: Any) -> ToolSpec:
    return ToolSpec(
        name="reverse",
        description="Reverse.",
        tool_type="reverse",
        input_schema=TEXT,
        **fields,
    )


def code(result: Result) -> str | None:
    return None if result.error is None else result.error.code


@pytest.mark.req("UX-3", "UX-8")
async def test_python_commands_http_and_mcp_are_called_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").write_text(SEED)
    (tmp_path / "file_tools.py").write_text(
        "def read_file(path):\n    with open(path) as file:\n        return file.read()\n"
    )
    (tmp_path / "notes").mkdir()
    note = tmp_path / "notes" / "note"
    note.write_text("a note")
    asked = []

    async def yes(request: Any) -> bool:
        asked.append(request.tool)
        return True

    weather = ToolSpec(
        name="forecast",
        description="Tell the weather.",
        tool_type=ToolType.MCP,
        input_schema={"type": "object", "properties": {"town": {"type": "string"}}},
        implementation_config={"server": "weather", "tool": "forecast"},
    )
    with serving() as endpoint:
        http = ToolSpec.from_dict(endpoint.tool("add", "a", "b"))
        assert http.tool_type is ToolType.HTTP
        registry = ToolSpecRegistry(
            [FileLoader("tools.yaml", base=tmp_path)], specs=[weather, http]
        )
        await registry.load_all()
        server = {"command": [sys.executable, str(SERVER)], "isolation": "process"}
        executor = UnifiedToolExecutor(
            spec_registry=registry,
            extension_manager=ExtensionManager(
                [ApprovalExtension(ApprovalMode.UNSAFE_ONLY, ask=yes)]
            ),
            settings={
                "shell": {"programs": ["rm"], "write": [str(note.parent)]},
                "mcp": {"servers": {"weather": server}},
            },
        )
        context = ToolContext(session_id="123")
        async with executor, asyncio.timeout(FENCE):
            read = await executor.execute("file_reader", {"path": str(note)}, context)
            assert read.output == "a note", read
            told = await executor.execute("forecast", {"town": "Oslo"}, context)
            assert told.output == "Sun in Oslo.", told
            assert (await executor.execute("add", {"a": 1, "b": 2}, context)).output == 3
            for wrong in ("-rf", "@x"):  # neither a flag nor a file of arguments
                result = await executor.execute("dangerous_delete", {"path": wrong}, context)
                assert code(result) == "VALIDATION_ERROR"
            syntax = f"{note}; echo x"
            assert code(await executor.execute("dangerous_delete", {"path": syntax})) is not None
            assert note.exists()
            gone = await executor.execute("dangerous_delete", {"path": str(note)}, context)
            assert gone.success, gone
    assert not note.exists()
    assert asked == ["dangerous_delete"] * 2


@pytest.mark.req("UX-7", "UX-8")
@pytest.mark.parametrize("way", ["python", "config"])
async def test_the_file_of_the_document_runs_as_it_stands_after_one_line(
    tmp_path: Path, way: str
) -> None:
    (tmp_path / "tools.yaml").write_text(SEED)
    (tmp_path / "file_tools.py").write_text("def read_file(path):\n    return open(path).read()\n")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "note").write_text("a note")
    source = {"kind": "files", "paths": ["tools.yaml"]}

    async def yes(*_: Any) -> bool:
        return True

    async def both(execute: Any) -> None:
        read = await execute("file_reader", {"path": str(tmp_path / "files" / "note")})
        assert read.output == "a note", read
        gone = await execute("dangerous_delete", {"path": "note"})
        assert gone.success, gone

    async with asyncio.timeout(FENCE):
        if way == "python":
            registry = ToolSpecRegistry([FileLoader("tools.yaml", base=tmp_path)])
            await registry.load_all()
            async with UnifiedToolExecutor(
                registry,
                ExtensionManager([ApprovalExtension(approval_handler=yes)]),
                settings={"shell": {"programs": ["rm"], "write": [str(tmp_path / "files")]}},
            ) as executor:
                await both(executor.execute)
        else:
            allowed = {"shell": {"programs": ["rm"], "write": ["files"]}}
            config = Config.of({"sources": [source], "backends": allowed}, base=tmp_path)
            async with Runtime.open(config, ask=yes) as runtime:
                await both(runtime.execute)
    assert not (tmp_path / "files" / "note").exists()


async def test_a_program_that_nobody_allowed_is_refused_with_the_setting_that_would() -> None:
    spec = ToolSpec(
        name="say",
        description="Say it.",
        tool_type=ToolType.SHELL,
        implementation_config={"command": "printf x"},
    )
    async with UnifiedToolExecutor(ToolSpecRegistry(specs=[spec])) as executor:
        result = await executor.execute("say")
    assert result.error is not None
    assert 'settings={"shell": {"programs": ["printf"]}}' in result.error.message


@pytest.mark.req("UX-3", "UX-10")
async def test_a_type_of_ones_own_is_one_class_and_gets_what_the_road_gives() -> None:
    runs = Reverse()
    spec = reverse(
        implementation_config={"x": 1}, metadata={"timeout": 5}, options={"effects": "read"}
    )
    executor = UnifiedToolExecutor(ToolSpecRegistry(specs=[spec]), executors=[runs])
    async with executor, asyncio.timeout(FENCE):
        assert (await executor.execute("reverse", {"text": "abc"})).output == "cba"
        who = await executor.execute(
            "reverse", {"text": "who"}, ToolContext(session_id="1", user_id="ann")
        )
        assert who.output == ["1", "ann", {"x": 1}]
        runs.tries = 0
        flaky = await executor.execute("reverse", {"text": "flaky"})
        assert (flaky.output, flaky.metadata.attempts) == ("ykalf", 3)
        assert code(await executor.execute("reverse", {"text": 1})) == "VALIDATION_ERROR"
        bad = await executor.execute("reverse", {"text": "bad"})
        assert (code(bad), bad.error and bad.error.message) == (
            "EXECUTION_ERROR", "Such a text cannot be reversed.",
        )  # fmt: skip
        began = time.monotonic()
        slow = await executor.execute("reverse", {"text": "slow"}, ToolContext(timeout=0.05))
        assert code(slow) == "TIMEOUT"
        assert time.monotonic() - began < FENCE / 2
        assert code(await executor.execute("revers", {"text": "a"})) == "NOT_FOUND"
        plan = await executor.execute("reverse", {"text": "a"}, ToolContext(dry_run=True))
        assert plan.metadata.plan is not None
        with pytest.raises(TypeError, match="must be a ToolContext"):
            await executor.execute("reverse", {"text": "a"}, {"session_id": "1"})  # type: ignore[arg-type]
    assert runs.closed


@pytest.mark.req("UX-3")
async def test_no_more_calls_of_a_tool_run_at_once_than_its_spec_says() -> None:
    running = most = 0

    class Counts(ToolExecutor):
        tool_type = "reverse"

        async def execute(self, spec: ToolSpec, args: dict[str, Any], context: ToolContext) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    spec = reverse(options={"limits": {"concurrency": 2, "queue": 3}})
    executor = UnifiedToolExecutor(ToolSpecRegistry(specs=[spec]), executors=[Counts()])
    async with executor, asyncio.timeout(FENCE):
        results = await asyncio.gather(
            *(executor.execute("reverse", {"text": "a"}) for _ in range(9))
        )
    assert most == 2
    assert sorted(map(str, map(code, results))) == ["None"] * 5 + ["QUEUE_FULL"] * 4


@pytest.mark.req("UX-10")
async def test_what_runs_a_type_can_be_replaced_and_a_type_that_nothing_runs_is_refused() -> None:
    class Mock(ToolExecutor):
        tool_type = "python"

        async def execute(self, spec: ToolSpec, args: dict[str, Any], context: ToolContext) -> Any:
            return spec.implementation_config

    config = {"module": "never", "function_name": "imported"}
    spec = ToolSpec(name="add", description="Add.", implementation_config=config)
    registry = ToolSpecRegistry(specs=[spec, reverse()])
    async with UnifiedToolExecutor(registry, executors=[Mock()]) as executor:
        assert (await executor.execute("add")).output == config
        nothing = await executor.execute("reverse", {"text": "a"})
        assert nothing.error is not None
        assert "no kind of tool 'reverse' is installed" in nothing.error.message


def test_what_cannot_run_a_type_is_said_at_once() -> None:
    class Blocking(ToolExecutor):
        tool_type = "blocking"

        def execute(self, spec: ToolSpec, args: dict[str, Any], context: ToolContext) -> Any:
            return None

    class Nameless(ToolExecutor):
        async def execute(self, spec: ToolSpec, args: dict[str, Any], context: ToolContext) -> Any:
            return None

    for wrong in (Blocking, Nameless):
        with pytest.raises(ConfigError, match=f"{wrong.__name__} needs a tool_type and an async"):
            backends(wrong())
    with pytest.raises(ConfigError, match="two executors for tools of type 'reverse'"):
        backends(Reverse(), Reverse())


@pytest.mark.req("UX-2", "UX-3")
async def test_a_reload_reaches_an_executor_that_runs(tmp_path: Path) -> None:
    file = tmp_path / "tools.yaml"
    said = (
        "- {name: reverse, description: Reverse., tool_type: reverse, input_schema: {type: object}}"
    )
    file.write_text(said)
    registry = ToolSpecRegistry([FileLoader(file)])
    await registry.load_all()
    async with UnifiedToolExecutor(registry, executors=[Reverse()]) as executor:
        assert (await executor.execute("reverse", {"text": "ab"})).output == "ba"
        file.write_text(said.replace("type: object", "type: object, required: [n]"))
        await registry.reload()
        assert code(await executor.execute("reverse", {"text": "ab"})) == "VALIDATION_ERROR"
        file.write_text("[]")
        await registry.reload()
        assert code(await executor.execute("reverse", {"text": "ab"})) == "NOT_FOUND"


async def test_a_tool_that_needs_a_yes_does_not_run_where_nobody_can_be_asked() -> None:
    runs = Reverse()
    spec = reverse(metadata={"requires_approval": True})
    executor = UnifiedToolExecutor(ToolSpecRegistry(specs=[spec]), executors=[runs])
    async with executor:
        assert code(await executor.execute("reverse", {"text": "a"})) == "APPROVAL_REQUIRED"
    assert runs.tries == 0


@pytest.mark.req("UX-2", "UX-3")
async def test_a_tool_is_called_by_the_name_that_a_model_was_told() -> None:
    spec = ToolSpec(
        name="text.reverse", description="Reverse.", tool_type="reverse", input_schema=TEXT
    )
    registry = ToolSpecRegistry(specs=[spec])
    async with UnifiedToolExecutor(registry, executors=[Reverse()]) as executor:
        unknown = await executor.execute("text__reverse", {"text": "ab"})
        (told,) = registry.to_openai_tools()
        result = await executor.execute(told["function"]["name"], {"text": "ab"})
    assert (code(unknown), result.output) == ("NOT_FOUND", "ba")
