"""Tools of the Nachos contract: as its document has them, and on the road with all it gives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolpost import Config, Executor, InvalidSpec, Registry, Runtime, known
from toolpost.bridges import nachos
from toolpost.bridges.nachos import (
    CalculatorTool,
    FilesystemTool,
    HealthStatus,
    SecurityTier,
    Tool,
    ToolConfig,
    ToolError,
    ToolLimits,
    ToolMetadata,
    ToolResult,
    ValidationResult,
    tools,
    tools_in,
)
from toolpost.errors import ConfigError
from toolpost.testing import check_tool

pytestmark = pytest.mark.anyio
IDS = {"sessionId": "test", "callId": "test"}
KEY = "sesame-0123456789"


class Echo:
    """A tool as somebody wrote it: it says what it was given."""

    tool_id = "echo"
    name = "Echo"
    description = "Give back what it was given."
    security_tier = SecurityTier.STANDARD
    parameters: Any = {"type": "object", "properties": {"say": {}}, "required": ["say"]}

    def __init__(self, answer: Any = None) -> None:
        self.answer, self.seen, self.configs, self.closed = answer, [], [], 0  # type: ignore[var-annotated]

    async def initialize(self, config: ToolConfig) -> None:
        self.configs.append(config)

    async def execute(self, params: Any) -> Any:
        self.seen.append(params)
        return ToolResult(True, params) if self.answer is None else self.answer

    def validate(self, params: Any) -> Any:
        if params["say"] == "nonsense":
            return {"valid": False, "errors": ["that is nonsense", "and long"]}
        return ValidationResult(True)

    async def health_check(self) -> Any:
        return HealthStatus(False, "not at all well")

    async def close(self) -> None:
        self.closed += 1


class OfTier(Echo):
    def __init__(self, tier: int) -> None:
        super().__init__()
        self.tool_id, self.security_tier = f"tier_{tier:d}", SecurityTier(tier)


# --- the contract ---------------------------------------------------------------------------------


@pytest.mark.req("NA-1", "NA-4")
async def test_a_tool_is_initialized_once_asked_and_given_both_ids_and_closed() -> None:
    echo, config = Echo(), ToolConfig({"loud": True})
    assert isinstance(echo, Tool)
    (item,) = tools(echo, config=config)
    async with Executor(Registry([item])) as executor:
        (spec,) = executor.registry.list()
        assert (spec.name, spec.title, spec.description) == ("echo", echo.name, echo.description)
        assert (spec.tier, spec.input_schema, spec.effects) == (1, echo.parameters, "once")
        first = await executor.execute("echo", {"say": 1}, session_id="s")
        assert first.output == {"say": 1, "sessionId": "s", "callId": first.metadata.call_id}
        alone = await executor.execute("echo", {"say": 2})
        assert alone.output["sessionId"] == alone.output["callId"] == alone.metadata.call_id
        refused = await executor.execute("echo", {"say": "nonsense"})
        assert refused.error is not None
        assert refused.error.code == "VALIDATION_ERROR"
        assert refused.error.message == "that is nonsense, and long"
        unfit = await executor.execute("echo", {})
        assert unfit.error is not None and unfit.error.code == "VALIDATION_ERROR"
        health = await executor.health("echo")
        assert (health.healthy, health.error) == (False, "not at all well")
    assert echo.configs == [config]
    assert [params["say"] for params in echo.seen] == [1, 2], "what is refused it never sees"
    assert echo.closed == 1


@pytest.mark.req("NA-4", "NA-10")
async def test_a_model_cannot_set_the_ids_and_a_tool_cannot_ask_it_to() -> None:
    async with Executor(Registry(tools(Echo()))) as executor:
        said = {"say": 1, "sessionId": "another's", "callId": "forged"}
        result = await executor.execute("echo", said, session_id="mine")
    assert result.output["sessionId"] == "mine"
    assert result.output["callId"] == result.metadata.call_id
    asking = Echo()
    asking.parameters = {"type": "object", "properties": {"sessionId": {"type": "string"}}}
    with pytest.raises(InvalidSpec, match="sessionId"):
        tools(asking)


async def test_what_is_no_tool_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(InvalidSpec, match="security_tier, parameters, initialize"):
        tools(type("Half", (), {"tool_id": "x", "name": "x", "description": "x"}))


@pytest.mark.req("NA-1")
async def test_a_plain_function_as_execute_leaves_the_loop_free() -> None:
    at_work, go = threading.Event(), threading.Event()

    class Slow(Echo):
        def execute(self, params: Any) -> Any:  # type: ignore[override]
            at_work.set()
            assert go.wait(20)
            return {"success": True, "result": "done"}

    async with Executor(Registry(tools(Slow()))) as executor:
        call = asyncio.ensure_future(executor.execute("echo", {"say": 1}))
        assert await asyncio.to_thread(at_work.wait, 20)
        go.set()
        assert (await call).output == "done"


async def test_a_schema_may_be_unchangeable_and_a_tier_has_to_be_one() -> None:
    echo = Echo()
    echo.parameters = MappingProxyType({"properties": MappingProxyType({}), "required": ("say",)})
    assert Registry(tools(echo)).list()[0].input_schema == {"properties": {}, "required": ["say"]}
    for wrong in (5, -1, True, "SAFE", None, 1.0):
        echo.security_tier = wrong  # type: ignore[assignment]
        with pytest.raises(InvalidSpec, match="tier"):
            tools(echo)


async def test_any_name_may_be_a_parameters_name() -> None:
    odd = Echo()
    names = ("call", "self", "arguments", "tool", "not-an-identifier")
    odd.parameters = {"type": "object", "properties": {name: {} for name in names}}
    odd.validate = lambda params: ValidationResult(True)  # type: ignore[method-assign]
    async with Executor(Registry(tools(odd))) as executor:
        result = await executor.execute("echo", dict.fromkeys(names, 1))
    assert result.success and set(names) < result.output.keys()


@pytest.mark.req("NA-1")
async def test_a_tool_whose_start_failed_is_started_again_by_the_next_call() -> None:
    class Late(Echo):
        async def initialize(self, config: ToolConfig) -> None:
            await super().initialize(config)
            if len(self.configs) == 1:
                raise RuntimeError("the disk at /srv/private is not there yet")

    async with Executor(Registry(tools(Late()))) as executor:
        first = await executor.execute("echo", {"say": 1})
        second = await executor.execute("echo", {"say": 1})
    assert first.error is not None and first.error.code == "INTERNAL_ERROR"
    assert "private" not in first.error.message
    assert second.success


# --- results --------------------------------------------------------------------------------------


@pytest.mark.req("NA-5", "NA-10")
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (ToolResult(True, {"a": [1]}), {"success": True, "result": {"a": [1]}}),
        ({"success": True, "result": None}, {"success": True}),
        (
            ToolResult(False, error=ToolError("EXECUTION_ERROR", "No such city.", {"tried": 2})),
            {
                "success": False,
                "error": {
                    "code": "EXECUTION_ERROR",
                    "message": "No such city.",
                    "details": {"tried": 2},
                },
            },
        ),
        (
            {
                "success": False,
                "error": {"code": "PAGE_TOO_BIG", "message": "Big.", "details": [1]},
            },
            {
                "success": False,
                "error": {"code": "PAGE_TOO_BIG", "message": "Big.", "details": [1]},
            },
        ),
        (
            {"success": False, "error": {"code": "POLICY_DENIED", "message": "I say so."}},
            {
                "success": False,
                "error": {
                    "code": "EXECUTION_ERROR",
                    "message": "I say so.",
                    "details": {"nachos_code": "POLICY_DENIED"},
                },
            },
        ),
        *(
            (
                broken,
                {
                    "success": False,
                    "error": {
                        "code": "INTERNAL_ERROR",
                        "message": "Internal tool error. See logs for details.",
                    },
                },
            )
            for broken in (
                {"success": False, "error": {"code": "INTERNAL_ERROR", "message": "line 3"}},
                {"success": "yes"},
                [],
                "done",
                {"success": True, "metadata": {"duration": "long"}},
            )
        ),
        (
            {"success": False},
            {
                "success": False,
                "error": {"code": "EXECUTION_ERROR", "message": "The tool failed."},
            },
        ),
    ],
)
async def test_a_result_comes_back_as_the_tool_said_it(said: Any, expected: Any) -> None:
    async with Executor(Registry(tools(Echo(said)))) as executor:
        runner = nachos.ToolRunner("echo", executor)
        answer = await runner.handle({"id": "1", "payload": {**IDS, "say": 1}})
    payload = dict(answer["payload"])
    assert payload.pop("metadata")["duration"] >= 0
    assert payload == expected


@pytest.mark.req("NA-5")
async def test_warnings_and_what_was_cached_are_told() -> None:
    said = ToolResult(True, 1, metadata=ToolMetadata(3, cached=True, warnings=["old"]))
    async with Executor(Registry(tools(Echo(said)))) as executor:
        result = await executor.execute("echo", {"say": 1})
        answer = await nachos.ToolRunner("echo", executor).handle(
            {"id": "1", "payload": {**IDS, "say": 1}}
        )
    assert (result.metadata.cached, list(result.metadata.warnings)) == (True, ["old"])
    about = answer["payload"]["metadata"]
    assert (about["cached"], about["warnings"]) == (True, ["old"])


# --- config, secrets, modes, limits ---------------------------------------------------------------

TOML = """
[security]
mode = "strict"

[tools.echo]
units = "metric"
secrets = ["ECHO_KEY"]

[tools.echo.limits]
timeout = 250
maxMemory = "512MB"
maxConcurrent = 2
"""


@pytest.mark.req("NA-3")
async def test_a_config_is_read_from_toml_and_its_secrets_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "nachos.toml"
    file.write_text(TOML, encoding="utf-8")
    with pytest.raises(ConfigError, match="ECHO_KEY"):
        ToolConfig.from_toml(file, "echo")
    monkeypatch.setenv("ECHO_KEY", KEY)
    config = ToolConfig.from_toml(file, "echo")
    assert (config.config, config.secrets) == ({"units": "metric"}, {"ECHO_KEY": KEY})
    assert (config.security_mode, config.base) == ("strict", tmp_path)
    assert config.limits.to_dict() == {"timeout": 250, "maxMemory": "512MB", "maxConcurrent": 2}
    assert KEY not in repr(config) and "ECHO_KEY" in repr(config)
    (item,) = tools(Echo(), config=config)
    spec = Registry([item]).list()[0]
    assert (spec.timeout, spec.limits.memory, spec.limits.concurrency) == (0.25, 512_000_000, 2)
    assert spec.total_timeout == 0.25, "however often it is tried"
    assert ToolConfig.from_toml(file, "another").config == {}


@pytest.mark.req("NA-3")
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[security]\nmode = "lax"', "strict, standard or permissive"),
        ("[tools]\necho = 1", "tools.echo"),
        ("tools = 1", "tools"),
        ("[tools.echo]\nsecrets = 'KEY'", "secrets"),
        ("[tools.echo.limits]\nmaxTime = 1", "maxTime"),
        ("[tools.echo.limits]\ntimeout = 0", "timeout"),
        ("[tools.echo.limits]\ntimeout = 'long'", "timeout"),
    ],
)
def test_a_wrong_config_is_refused_with_its_place(text: str, what: str, tmp_path: Path) -> None:
    file = tmp_path / "nachos.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=what):
        ToolConfig.from_toml(file, "echo")


@pytest.mark.req("NA-3", "NA-10")
async def test_a_tools_secret_is_in_no_result_log_or_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Leak(Echo):
        async def execute(self, params: Any) -> Any:
            key = self.configs[0].secrets["KEY"]
            how: dict[str, Any] = {
                "result": ToolResult(True, {"key": key, key: [f"x{key}y"]}),
                "object": ToolResult(True, HealthStatus(True, key)),
                "error": ToolResult(False, error=ToolError("EXECUTION_ERROR", key, {"k": key})),
                "internal": ToolResult(False, error=ToolError("INTERNAL_ERROR", key)),
                "warning": ToolResult(True, metadata=ToolMetadata(1, warnings=[key])),
            }
            return how[params["say"]]

    config = ToolConfig({}, {"KEY": KEY}, base=tmp_path)
    caplog.set_level("INFO")
    async with nachos.ToolRunner.open(Leak(), config) as runner:
        answers = [
            await runner.handle({"id": "1", "payload": {**IDS, "sessionId": how, "say": how}})
            for how in ("result", "object", "error", "internal", "warning")
        ]
    assert KEY not in str(answers)
    assert str(answers).count("[redacted:known_secret]") == 7
    assert KEY not in caplog.text
    kept = [file.read_bytes() for file in (tmp_path / ".toolpost").rglob("*") if file.is_file()]
    assert kept and not any(KEY.encode() in one for one in kept)


async def test_a_secret_that_is_a_common_word_blots_nothing_out() -> None:
    echo = Echo(ToolResult(True, "standard words"))
    async with Executor(Registry(tools(echo, config=ToolConfig({}, {"K": "standard"})))) as tool:
        assert (await tool.execute("echo", {"say": 1})).output == "standard words"
    assert "standard" not in known.values


VERDICTS = {
    "strict": ["ok", "ok", "ask", "ask", "deny"],
    "standard": ["ok", "ok", "ok", "ask", "deny"],
    "permissive": ["ok", "ok", "ok", "ask", "ask"],
}
CODES = {"ok": None, "ask": "APPROVAL_REQUIRED", "deny": "POLICY_DENIED"}


@pytest.mark.req("NA-2", "NA-3", "NA-5")
@pytest.mark.parametrize("mode", VERDICTS)
async def test_mode_and_tier_decide_on_every_road(mode: Any, tmp_path: Path) -> None:
    config = ToolConfig(security_mode=mode)
    bare, governed = ([OfTier(tier) for tier in SecurityTier] for _ in range(2))
    expected = [CODES[verdict] for verdict in VERDICTS[mode]]
    async with Executor(Registry(tools(*bare, config=config))) as executor:
        results = [await executor.execute(one.tool_id, {"say": 1}) for one in bare]
    assert [one.error and one.error.code for one in results] == expected
    settings = Config.of({"mode": mode}, base=tmp_path)
    async with Runtime(settings, tools=tools(*governed)) as runtime:
        results = [await runtime.execute(one.tool_id, {"say": 1}) for one in governed]
    assert [one.error and one.error.code for one in results] == expected
    for one in (*bare, *governed):
        assert len(one.seen) == (expected[one.security_tier] is None)


@pytest.mark.req("NA-3", "NA-10")
async def test_a_strict_config_holds_in_a_runtime_that_is_not_strict(tmp_path: Path) -> None:
    echo = OfTier(2)
    settings = Config.of({"mode": "permissive"}, base=tmp_path)
    items = tools(echo, config=ToolConfig(security_mode="strict"))
    async with Runtime(settings, tools=items) as runtime:
        result = await runtime.execute(echo.tool_id, {"say": 1})
    assert result.error is not None and result.error.code == "APPROVAL_REQUIRED"
    assert echo.seen == []


@pytest.mark.req("NA-3", "NA-10")
async def test_the_limits_of_a_config_are_held() -> None:
    class Endless(Echo):
        async def execute(self, params: Any) -> Any:
            await asyncio.Event().wait()

    config = ToolConfig(limits=ToolLimits(timeout=50))
    async with Executor(Registry(tools(Endless(), config=config))) as executor:
        async with asyncio.timeout(20):
            result = await executor.execute("echo", {"say": 1})
    assert result.error is not None and result.error.code == "TIMEOUT"
    config = ToolConfig(limits=ToolLimits(timeout=50))
    items = tools(Endless(), config=config)
    assert [spec.total_timeout for spec in Registry(items).list()] == [0.05]
    (item,) = tools(CalculatorTool(), config=ToolConfig(limits=ToolLimits(timeout=60_000)))
    assert Registry([item]).list()[0].timeout == 1, "a config does not loosen what a tool has"


# --- what a module holds --------------------------------------------------------------------------


def test_a_modules_tools_are_found_each_once() -> None:
    class Hostile:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("no")

    class Needy(Echo):
        def __init__(self, needed: int) -> None:
            super().__init__()

    here = Echo.__module__
    echo = Echo()
    namespace = {
        "__name__": here, "Echo": Echo, "echo": echo, "again": echo, "Needy": Needy,
        "OfTier": OfTier, "CalculatorTool": CalculatorTool, "hostile": Hostile(), "Tool": Tool,
    }  # fmt: skip
    assert [spec.name for spec in Registry(tools_in(namespace))] == ["echo"]
    assert [s.name for s in Registry(tools_in({"__name__": here, "E": Echo}))] == ["echo"]
    assert tools_in({"__name__": "elsewhere", "Echo": Echo}) == []
    assert len(tools_in({"calculator": CalculatorTool()})) == 1


# --- calculator and filesystem --------------------------------------------------------------------


@pytest.mark.req("NA-8", "NA-1")
async def test_the_calculator_is_as_documented() -> None:
    tool = CalculatorTool()
    assert tool.validate({**IDS, "expression": "2 + 2"}) == ValidationResult(True)
    assert tool.validate({**IDS, "expression": "evil()"}).valid is False
    result = await tool.execute({**IDS, "expression": "10 * 5"})
    assert result.success
    assert result.result == {"expression": "10 * 5", "answer": 50}
    assert result.metadata is not None and result.metadata.duration >= 0
    assert await tool.health_check() == HealthStatus(True)
    failed = await tool.execute({**IDS, "expression": "1 / 0"})
    assert failed.error is not None and failed.error.code == "EXECUTION_ERROR"


@pytest.mark.req("NA-8", "NA-10")
@pytest.mark.parametrize(
    "expression",
    [
        "evil()", "__import__('os')", "e", "𝐞val", "ｅｖａｌ", "π", "", None, 5, ["1"], "1" * 1001,
        "9**9**9**9", "(" * 999, "1/0", "1 if 1 else 2", "lambda: 1", "0x10", "\ud800", "1;2",
    ],
)  # fmt: skip
async def test_no_expression_gets_anywhere(expression: Any) -> None:
    tool = CalculatorTool()
    async with asyncio.timeout(20):
        direct = await tool.execute({**IDS, "expression": expression})
        async with Executor(Registry(tools(tool))) as executor:
            on_the_road = await executor.execute("calculator", {"expression": expression})
    assert direct.error is not None and on_the_road.error is not None
    assert direct.error.code == on_the_road.error.code
    assert direct.error.code in ("VALIDATION_ERROR", "EXECUTION_ERROR")


@settings(max_examples=50)
@given(st.one_of(st.text(), st.text(alphabet="0123456789+-*/().^%! ,e"), st.integers(), st.none()))
def test_any_expression_is_worked_out_or_refused(expression: Any) -> None:
    result = asyncio.run(CalculatorTool().execute({**IDS, "expression": expression}))
    assert result.success == (result.error is None)
    if result.success:
        assert not any(letter.isalpha() for letter in expression)
    else:
        assert result.error is not None and result.error.code != "INTERNAL_ERROR"


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[tuple[Path, Any]]:
    tool = FilesystemTool()
    await tool.initialize(ToolConfig(base=tmp_path))
    yield tmp_path, tool
    await tool.close()


@pytest.mark.req("NA-8")
async def test_the_filesystem_is_as_documented(files: tuple[Path, Any]) -> None:
    folder, tool = files

    async def done(action: str, path: str, **more: Any) -> Any:
        result = await tool.execute({**IDS, "action": action, "path": path, **more})
        return result.result if result.success else (result.error.code, result.error.message)

    assert (await tool.health_check()).to_dict() == {
        "healthy": False,
        "error": "Workspace not accessible",
    }
    assert await done("write", "./workspace/a.txt", content="one") == {"written": True}
    assert await tool.health_check() == HealthStatus(True)
    assert (folder / "workspace/a.txt").read_text(encoding="utf-8") == "one"
    assert await done("read", "./workspace/a.txt") == "one"
    assert await done("read", f"{folder}/workspace/a.txt") == "one"
    assert await done("list", "./workspace") == ["a.txt"]
    assert await done("delete", "./workspace/a.txt") == {"deleted": True}
    gone = await done("read", "./workspace/a.txt")
    assert gone == ("EXECUTION_ERROR", "File not found: workspace/a.txt")
    for content in ({}, {"content": ""}):
        assert await done("write", "./workspace/b.txt", **content) == (
            "VALIDATION_ERROR",
            "content is required for write action",
        )
    assert (await done("burn", "./workspace/b.txt"))[0] == "VALIDATION_ERROR"
    assert (await done("read", 5))[0] == "VALIDATION_ERROR"  # type: ignore[arg-type]


@pytest.mark.req("NA-8", "NA-10")
async def test_no_path_leads_out_of_the_allowed_folders(files: tuple[Path, Any]) -> None:
    folder, tool = files
    for name in ("workspace", "workspace-evil", "elsewhere"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "elsewhere/secret.txt").write_text("the-private-text", encoding="utf-8")
    (folder / "workspace-evil/secret.txt").write_text("the-private-text", encoding="utf-8")
    (folder / "workspace/link").symlink_to(folder / "elsewhere")
    (folder / "workspace/file").symlink_to(folder / "elsewhere/secret.txt")
    (folder / "workspace/up").symlink_to("..")
    paths = [
        "a.txt", "/etc/passwd", "./workspace-evil/secret.txt", "workspace-evil/secret.txt",
        "./workspace/../elsewhere/secret.txt", "./workspace/../../../../../../etc/passwd",
        "./workspace/link/secret.txt", "./workspace/file", "./workspace/up/elsewhere/secret.txt",
        "./workspace/link/../../elsewhere/secret.txt", f"{folder}/elsewhere/secret.txt",
        f"{folder}/workspace/../elsewhere/secret.txt", "", ".", "./workspace\0/../elsewhere",
        "file:///etc/passwd", "~/x", "/proc/self/root/etc/passwd", "./workspace/" + "x/" * 5000,
    ]  # fmt: skip
    for path in paths:
        is_a_link = path == "./workspace/file"  # which itself lies where it may be deleted
        for action in ("read", "write", "list", *([] if is_a_link else ["delete"])):
            given = {"action": action, "path": path, "content": "overwritten"}
            result = await tool.execute({**IDS, **given})
            assert result.error is not None, (action, path, result)
            assert result.error.code in ("VALIDATION_ERROR", "EXECUTION_ERROR"), (action, path)
            assert "the-private-text" not in str(result)
            break_out = "is not in allowed directories" in result.error.message
            assert break_out or path.startswith("./workspace"), (path, result.error)
    for name in ("elsewhere", "workspace-evil"):
        kept = (folder / name / "secret.txt").read_text(encoding="utf-8")
        assert kept == "the-private-text"


@pytest.mark.req("NA-8")
async def test_before_it_is_initialized_nothing_is_allowed_and_a_config_says_what_is(
    tmp_path: Path,
) -> None:
    tool = FilesystemTool()
    refused = await tool.execute({**IDS, "action": "list", "path": "./workspace"})
    assert refused.error is not None
    assert refused.error.message == "Path ./workspace is not in allowed directories"
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "two/x").write_text("there", encoding="utf-8")
    config = ToolConfig({"allowedPaths": ["./one", str(tmp_path / "two")]}, base=tmp_path)
    async with Executor(Registry(tools(tool, config=config))) as executor:
        given = {"action": "read", "path": "two/x"}  # from the base, as a shell would have it
        assert (await executor.execute("filesystem", given)).output == "there"
        missed = await executor.execute("filesystem", {"action": "read", "path": "x"})
        assert missed.error is not None and missed.error.code == "VALIDATION_ERROR"
    for wrong in ([1], "x", ["."], ["/"], [], None, [""]):
        with pytest.raises((ConfigError, InvalidSpec), match="allowedPaths"):
            tools(tool, config=ToolConfig({"allowedPaths": wrong}, base=tmp_path))


@pytest.mark.req("NA-8")
async def test_the_built_in_tools_pass_the_check_of_every_tool(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace/a").write_text("1", encoding="utf-8")
    (calculator, filesystem) = tools(
        CalculatorTool(), FilesystemTool(), config=ToolConfig(base=tmp_path)
    )
    reports = [
        await check_tool(
            calculator, arguments={"expression": "2 + 2"}, failing={"expression": "1 / 0"}
        ),
        await check_tool(
            filesystem,
            arguments={"action": "read", "path": "./workspace/a"},
            failing={"action": "read", "path": "./workspace/b"},
            parallel=3,
        ),
    ]
    for report in reports:
        assert report.failed == (), report


async def test_a_built_in_tool_keeps_the_limits_of_its_config(tmp_path: Path) -> None:
    tool = FilesystemTool()
    await tool.initialize(ToolConfig(limits=ToolLimits(timeout=0.001), base=tmp_path))
    result = await tool.execute({**IDS, "action": "list", "path": "./workspace"})
    await tool.close()
    assert result.error is not None and result.error.code == "TIMEOUT"


async def test_one_tool_serves_several_event_loops() -> None:
    tool = CalculatorTool()

    def elsewhere() -> Any:
        return asyncio.run(tool.execute({**IDS, "expression": "6 * 7"}))

    results = await asyncio.gather(*(asyncio.to_thread(elsewhere) for _ in range(4)))
    assert [one.result["answer"] for one in results] == [42] * 4
