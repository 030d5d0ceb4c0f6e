"""Python tools through the executor: in the loop, in a thread, in a worker process."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import os
import subprocess
import sys
import threading
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from tests.backends import python_tools
from toolpost import (
    Call,
    Caller,
    Executor,
    Image,
    Injected,
    Limits,
    Progress,
    Registry,
    Secret,
    Text,
    Tool,
    ToolSpec,
    create_tool,
    tool,
)
from toolpost.backends.python import loading
from toolpost.backends.python.backend import PythonBackend
from toolpost.contracts import Declared, Health, Services
from toolpost.registry import Entry

pytestmark = pytest.mark.anyio
FENCE = 20
MODULE = python_tools.__name__
NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a"],
}


def reference(function: str, *, module: str = MODULE, **fields: Any) -> ToolSpec:
    return ToolSpec(
        name="it",
        description="It.",
        binding={"module": module, "function": function},
        input_schema={"type": "object"},
        **fields,
    )


async def outcome(item: Any, arguments: Any = None, **options: Any) -> Any:
    """What one call of one tool gives: its output, or its error."""
    registry = Registry([item])
    async with Executor(registry, **options) as executor:
        [spec] = registry
        result = await executor.execute(spec.name, arguments)
        return result.output if result.error is None else result.error


# Where a tool runs


@pytest.mark.req("UX-5")
async def test_an_async_function_runs_in_the_loop_and_a_sync_one_in_a_thread() -> None:
    @tool
    async def in_the_loop() -> bool:
        """Tell whether this is the main thread."""
        return threading.current_thread() is threading.main_thread()

    @tool
    def in_a_thread() -> bool:
        """Tell whether this is the main thread."""
        return threading.current_thread() is threading.main_thread()

    assert await outcome(in_the_loop) is True
    assert await outcome(in_a_thread) is False


@pytest.mark.req("UX-5")
@pytest.mark.parametrize("function", ["sync", "object"])
async def test_a_sync_tool_never_blocks_the_loop(function: str) -> None:
    gate = threading.Event()

    def waits() -> str:
        """Wait until the loop opens the gate."""
        return "opened" if gate.wait(FENCE) else "the loop stood still"

    class Waits(Tool, name="waits"):
        """Wait until the loop opens the gate."""

        def run(self) -> str:
            return waits()

    asyncio.get_running_loop().call_soon(gate.set)
    assert await outcome(waits if function == "sync" else Waits()) == "opened"


async def test_a_sync_tool_runs_in_a_process_from_tier_two_on() -> None:
    registry = Registry([python_tools.elevated, python_tools.standard, python_tools.elevated_async])
    async with Executor(registry) as executor:
        elevated = await executor.execute("elevated")
        standard = await executor.execute("standard")
        elevated_async = await executor.execute("elevated_async")
        about = {
            name: executor.bound(name).handle.about["isolation"]
            for name in ("elevated", "standard", "elevated_async")
        }
    assert elevated.output["pid"] != os.getpid()
    assert standard.output == {"pid": os.getpid(), "main": False}
    assert elevated_async.output == {"pid": os.getpid(), "main": True}
    assert about == {"elevated": "process", "standard": "thread", "elevated_async": "inline"}


async def test_a_sync_tool_runs_in_the_loop_if_it_must() -> None:
    @tool(isolation="inline")
    def here() -> bool:
        """Tell whether this is the main thread."""
        return threading.current_thread() is threading.main_thread()

    assert await outcome(here) is True


async def test_an_async_tool_runs_in_a_thread_if_it_must() -> None:
    @tool(isolation="thread")
    async def there() -> bool:
        """Tell whether this is the main thread."""
        await asyncio.sleep(0)
        return threading.current_thread() is threading.main_thread()

    assert await outcome(there) is False


@pytest.mark.parametrize("isolation", ["inline", "thread"])
async def test_a_plain_function_around_an_async_one_is_awaited(isolation: Any) -> None:
    async def inner(a: int) -> int:
        """Add one."""
        await asyncio.sleep(0)
        return a + 1

    @tool(isolation=isolation)
    @functools.wraps(inner)
    def wrapper(a: int) -> Any:
        return inner(a)

    assert await outcome(wrapper, {"a": 1}) == 2


async def test_context_variables_are_seen_in_a_thread() -> None:
    variable = contextvars.ContextVar("variable", default="nothing")
    variable.set("mine")

    @tool
    def looks() -> str:
        """Look."""
        return variable.get()

    assert await outcome(looks) == "mine"


@pytest.mark.parametrize("isolation", ["process", "sandbox"])
async def test_what_another_process_cannot_import_is_refused(isolation: Any) -> None:
    @tool(isolation=isolation)
    def closure() -> int:
        """Be out of reach."""
        return 1

    error = await outcome(closure)
    assert error.code == "UNAVAILABLE"
    assert "move the function to the top level of a module" in error.message


async def test_an_object_with_a_state_does_not_go_to_another_process() -> None:
    class Counter(Tool, isolation="process"):
        """Count."""

        def run(self) -> int:
            return 1

    assert "an object with a state" in (await outcome(Counter())).message


async def test_an_object_of_this_process_does_not_go_to_another() -> None:
    error = await outcome(python_tools.queries, provide={python_tools.Db: python_tools.Db()})
    assert error.code == "UNAVAILABLE"
    assert "'db'" in error.message
    assert "cannot go to another process" in error.message


# By module path


@pytest.mark.req("UX-5", "UX-3")
@pytest.mark.parametrize("isolation", [None, "process", "thread", "inline"])
@pytest.mark.parametrize("function", ["plain_add", "plain_async_add"])
async def test_a_function_is_called_by_its_module_path(function: str, isolation: Any) -> None:
    assert await outcome(reference(function, isolation=isolation), {"a": 1, "b": 5}) == 6


@pytest.mark.parametrize("isolation", ["thread", "inline"])
async def test_a_tool_is_called_by_its_module_path(isolation: Any) -> None:
    assert (await outcome(reference("standard", isolation=isolation)))["pid"] == os.getpid()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"module": "no_such_module_anywhere", "function": "x"}, "no_such_module_anywhere"),
        ({"module": MODULE, "function": "no_such_function"}, "has no function"),
        ({"module": MODULE, "function": "Db.no.such"}, "has no function"),
        ({"module": MODULE}, "function"),
        ({"modul": MODULE, "function": "x"}, "has no setting 'modul'"),
    ],
    ids=["module", "function", "nested", "missing", "misspelt"],
)
async def test_a_module_path_that_leads_nowhere_is_refused_with_the_reason(
    fields: Any, says: str
) -> None:
    spec = ToolSpec(name="it", description="It.", binding=fields, isolation="thread")
    error = await outcome(spec)
    assert error.code == "UNAVAILABLE"
    assert says in error.message


async def test_a_module_that_exits_while_it_is_imported_ends_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "leaving.py").write_text("raise SystemExit(3)\n")
    error = await outcome(
        Declared(reference("x", module="leaving", isolation="thread"), str(tmp_path))
    )
    assert error.code == "UNAVAILABLE"
    assert "cannot be imported: SystemExit: 3" in error.message


@pytest.mark.parametrize("isolation", ["process", "thread"])
async def test_a_declared_tool_finds_the_module_beside_its_file(
    tmp_path: Path, isolation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"beside_{isolation}"
    (tmp_path / f"{name}.py").write_text("def shout(text): return text.upper()\n")
    spec = reference("shout", module=name, isolation=isolation)
    assert await outcome(Declared(spec, str(tmp_path)), {"text": "hey"}) == "HEY"


async def test_two_modules_of_one_name_are_never_mixed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    tools = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "namesake.py").write_text(f"def tell() -> str: return '{folder}'\n")
        spec = reference("tell", module="namesake", isolation="thread")
        tools.append(Declared(spec, str(tmp_path / folder)))
    assert await outcome(tools[0]) == "one"
    error = await outcome(tools[1])
    assert error.code == "UNAVAILABLE"
    assert "another module 'namesake' is loaded already" in error.message


# In a process


async def test_a_blocking_tool_in_a_process_is_killed_at_its_limit() -> None:
    async with Executor(Registry([python_tools.spins])) as executor:
        await executor.execute("spins", {"seconds": 0})  # there is a worker: it begins at once
        result = await executor.execute("spins", {"seconds": 60}, timeout=1)
        assert result.error.code == "TIMEOUT"
        assert result.error.effects == "unknown"
        again = await executor.execute("spins", {"seconds": 0})
    assert again.output == "done"


async def test_a_tool_in_a_process_knows_its_call_and_is_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[Progress] = []
    async with Executor(Registry([python_tools.reports])) as executor:
        result = await executor.execute(
            "reports",
            caller=Caller("me", roles=frozenset({"b", "a"})),
            session_id="s",
            metadata={"m": 1},
            key="k",
            phase="not for it",
            on_progress=heard.append,
        )
    assert result.output == {
        "tool": "reports",
        "call_id": result.metadata.call_id,
        "session_id": "s",
        "caller": "me",
        "roles": ["a", "b"],
        "phase": None,
        "metadata": {"m": 1},
        "key": "k",
    }
    assert heard == [Progress(1, 1, "all of it"), Progress(partial="piece")]
    assert result.metadata.warnings == ["careful"]


async def test_a_tool_in_a_process_knows_how_long_it_has_when_it_begins() -> None:
    settings = {"python": {"workers": 1}}
    tools = [python_tools.has_left, python_tools.spins]
    async with Executor(Registry(tools), settings=settings) as executor:
        assert (await executor.execute("has_left")).output is None
        assert (await executor.execute("has_left", timeout=float("inf"))).output is None
        before = asyncio.create_task(executor.execute("spins", {"seconds": 0.5}))
        await asyncio.sleep(0)  # it has the only worker now
        result = await executor.execute("has_left", timeout=60)
        assert (await before).output == "done"
    assert 0 < result.output < 59.9


async def test_what_a_tool_prints_in_a_process_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    assert await outcome(python_tools.chats) == 1
    assert "hello from the worker" in caplog.text


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("fails", {"message": "Try another."}, "EXECUTION_ERROR"),
        ("breaks", None, "INTERNAL_ERROR"),
        ("leaves", None, "INTERNAL_ERROR"),
        ("dies", None, "UNAVAILABLE"),
    ],
)
async def test_a_tool_that_fails_in_a_process_has_failed_and_nothing_else(
    name: str, arguments: Any, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = await outcome(getattr(python_tools, name), arguments)
    assert error.code == code
    assert "hunter2" not in error.message
    if name == "fails":
        assert error.message == "Try another."
        assert error.details == {"why": "on purpose"}
    if name == "breaks":
        assert "hunter2" in caplog.text


async def test_types_go_to_a_process_and_come_back() -> None:
    arguments = {"stay": {"first": "2026-11-15", "nights": 2}, "guests": ["a", "b"]}
    assert await outcome(python_tools.book, arguments) == arguments["stay"]


async def test_parts_come_back_from_a_process() -> None:
    async with Executor(Registry([python_tools.album])) as executor:
        result = await executor.execute("album")
    assert result.output == {"count": 1}
    assert result.parts == (Text("a picture"), Image(b"png"))


async def test_a_process_is_given_only_the_secrets_it_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOOLPOST_TEST_SECRET", "s3cret")
    assert await outcome(python_tools.knows) == "s3cret"


async def test_the_health_of_a_tool_in_a_process_is_whether_it_can_be_loaded() -> None:
    spec = reference("plain_add", isolation="process")
    broken = ToolSpec(
        name="broken",
        description="Broken.",
        binding={"module": MODULE, "function": "nothing_there"},
        isolation="process",
    )
    async with Executor(Registry([spec, broken])) as executor:
        assert await executor.health("it") == Health(True)
        health = await executor.health("broken")
    assert not health.healthy
    assert "nothing_there" in health.error


@pytest.mark.parametrize(
    ("module", "function", "says"),
    [
        (MODULE, "plain_add", None),
        (MODULE, "Db.__init__", None),
        ("no_such_module_anywhere", "x", "ModuleNotFoundError"),
        (MODULE, "no_such_function", "AttributeError"),
        (MODULE, "MODULE_DOC", "is not a function"),
    ],
)
def test_whether_a_function_can_be_loaded_is_told_with_the_reason(
    module: str, function: str, says: str | None
) -> None:
    told = loading.problem(module, function)
    assert told is None if says is None else says in told


SCRIPT = """
import asyncio, os
from toolpost import Executor, Registry, tool

@tool(tier=2)
def elsewhere() -> int:
    "Tell the process."
    return os.getpid()

async def main():
    async with Executor(Registry([elsewhere])) as executor:
        result = await executor.execute("elsewhere")
        print(result.output != os.getpid(), (await executor.health("elsewhere")).healthy)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_function_of_the_script_that_runs_goes_to_a_process_too(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["True", "True"], done.stderr


async def test_a_worker_that_cannot_start_is_why_a_tool_is_not_healthy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with Executor(Registry([reference("plain_add", isolation="process")])) as executor:
        executor.bound("it")
        monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
        health = await executor.health("it")
    assert not health.healthy


async def test_settings_of_the_backend_are_checked() -> None:
    settings = {"python": {"worker": 1}}
    error = await outcome(python_tools.standard, settings=settings)
    assert "has no setting 'worker'; did you mean 'workers'?" in error.message


# In a thread


async def test_a_thread_sees_that_its_call_was_stopped_and_is_counted() -> None:
    seen, gate, begun = [], threading.Event(), threading.Event()
    heard: list[Progress] = []

    @tool(timeout=1)
    def stubborn(call: Call) -> None:
        """Outlive the call."""
        call.progress(1, 2)
        begun.set()
        gate.wait(FENCE)
        seen.append(call.cancelled)
        call.progress(2, 2)

    backend = PythonBackend()
    registry = Registry([stubborn])
    async with Executor(registry, backends={"python": backend}) as executor:
        result = await executor.execute("stubborn", on_progress=heard.append)
        assert begun.is_set()
        assert result.error.code == "TIMEOUT"
        assert result.error.effects == "unknown"
        assert backend.threads.stranded == 1
        gate.set()
        async with asyncio.timeout(FENCE):
            while backend.threads.stranded:
                await asyncio.sleep(0)
    assert seen == [True]
    assert heard == [Progress(1, 2)]


async def test_too_many_stranded_threads_refuse_new_calls() -> None:
    gate = threading.Event()

    @tool(timeout=0.5)
    def hangs() -> None:
        """Hang."""
        gate.wait(FENCE)

    async with Executor(Registry([hangs, python_tools.standard])) as executor:
        calls = (executor.execute("hangs") for _ in range(16))
        assert {r.error.code for r in await asyncio.gather(*calls)} == {"TIMEOUT"}
        refused = await executor.execute("standard")
        assert refused.error.code == "UNAVAILABLE"
        assert "use isolation: process for tools that hang" in refused.error.message
        gate.set()
        threads = executor.backends["python"].threads
        async with asyncio.timeout(FENCE):
            while threads.stranded:
                await asyncio.sleep(0)
        assert (await executor.execute("standard")).success


async def test_what_a_thread_reports_is_heard_in_the_loop() -> None:
    heard: list[tuple[Progress, bool]] = []

    @tool
    def works(call: Call) -> int:
        """Work."""
        call.progress(1, 2)
        call.partial("piece")
        call.warn("careful")
        return 1

    def hear(progress: Progress) -> None:
        heard.append((progress, threading.current_thread() is threading.main_thread()))

    async with Executor(Registry([works])) as executor:
        result = await executor.execute("works", on_progress=hear)
        assert (await executor.execute("works")).success
    assert heard == [(Progress(1, 2), True), (Progress(partial="piece"), True)]
    assert result.metadata.warnings == ["careful"]


# What is injected


class Store:
    def __init__(self, name: str = "plain") -> None:
        self.name = name


class BetterStore(Store):
    pass


@pytest.mark.parametrize(
    ("provide", "expected"),
    [
        ({Store: Store("exact"), BetterStore: BetterStore("sub")}, "exact"),
        ({BetterStore: BetterStore("sub"), Store: Store("exact")}, "exact"),
        ({BetterStore: BetterStore("sub")}, "sub"),
    ],
    ids=["exact first", "exact last", "a subclass"],
)
async def test_a_dependency_is_found_by_its_type(provide: Any, expected: str) -> None:
    @tool
    async def wants(store: Injected[Store]) -> str:
        """Use the store."""
        return store.name

    assert wants.spec.input_schema["properties"] == {}
    assert await outcome(wants, provide=provide) == expected


async def test_a_dependency_that_nobody_provides_is_named() -> None:
    @tool
    async def wants(store: Injected[Store]) -> str:
        """Use the store."""
        return store.name

    error = await outcome(wants)
    assert error.code == "UNAVAILABLE"
    assert "wants a Store" in error.message
    assert "provide={Store: …}" in error.message


async def test_what_is_not_there_to_inject_is_what_the_function_says() -> None:
    @tool
    async def wants(
        one: Injected[Store | None],
        two: Injected[Store] = Store("default"),  # noqa: B008
        three: Annotated[str, Secret("TOOLPOST_NO_SUCH_SECRET")] = "anonymous",
    ) -> list[str | None]:
        """Use what is there."""
        return [one and one.name, two.name, three]

    assert await outcome(wants) == [None, "default", "anonymous"]


async def test_a_secret_is_found_by_its_name_and_a_missing_one_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    async def wants(key: Annotated[str, Secret("TOOLPOST_TEST_SECRET")]) -> int:
        """Use a key."""
        return len(key)

    monkeypatch.setenv("TOOLPOST_TEST_SECRET", "s3cret")
    assert await outcome(wants) == 6
    monkeypatch.delenv("TOOLPOST_TEST_SECRET")
    error = await outcome(wants)
    assert error.code == "UNAVAILABLE"
    assert "TOOLPOST_TEST_SECRET is not set" in caplog.text
    assert error.message == "This tool is not set up to run here. Use another tool."


async def test_a_tool_made_from_data_takes_its_arguments_as_one_mapping() -> None:
    async def add(arguments: dict[str, Any], call: Call) -> Any:
        return {"sum": sum(arguments.values()), "tool": call.tool}

    made = create_tool("add", "Add numbers.", add, input_schema=NUMBERS)
    assert await outcome(made, {"a": 1, "b": 2}) == {"sum": 3, "tool": "add"}


async def test_an_object_that_can_be_called_is_a_tool() -> None:
    class Adds:
        async def __call__(self, a: int) -> int:
            """Add one."""
            return a + 1

    made = create_tool("add", "Add one.", lambda args: args["a"] + 1, input_schema=NUMBERS)
    assert await outcome(made, {"a": 1}) == 2
    assert await outcome(tool(name="adds", description="Add one.")(Adds()), {"a": 1}) == 2


async def test_values_arrive_as_the_types_that_the_function_asks_for() -> None:
    @tool
    async def weekday(day: date, others: set[int]) -> list[Any]:
        """Tell the weekday."""
        return [day.isoweekday(), sorted(others), type(others).__name__]

    given = {"day": "2026-11-15", "others": [3, 1]}
    assert await outcome(weekday, given) == [7, [1, 3], "set"]


# The life of a tool object


class Lived(Tool, name="lived"):
    """Tell what happened so far."""

    def __init__(self, store: Store, key: Annotated[str, Secret("NO_SUCH_KEY")] = "none") -> None:
        self.store, self.key = store, key
        self.log: list[str] = ["made"]
        LIVES.append(self)

    async def initialize(self) -> None:
        self.log.append("initialized")

    async def run(self, step: int) -> list[str]:
        self.log.append(f"run {step}")
        return self.log

    def validate(self, arguments: Any) -> Any:
        return "not thirteen" if arguments["step"] == 13 else None

    async def health(self) -> Health:
        return Health(False, "tired")

    async def close(self) -> None:
        self.log.append("closed")


LIVES: list[Lived] = []


@pytest.mark.req("FG-8")
async def test_a_class_is_made_on_first_use_initialized_once_and_closed() -> None:
    LIVES.clear()
    async with Executor(Registry([Lived]), provide={Store: Store("s")}) as executor:
        assert LIVES == []
        await asyncio.gather(*(executor.execute("lived", {"step": 1}) for _ in range(3)))
        assert await executor.health("lived") == Health(False, "tired")
        refused = await executor.execute("lived", {"step": 13})
    [life] = LIVES
    assert life.store.name == "s"
    assert life.key == "none"
    assert life.log == ["made", "initialized", "run 1", "run 1", "run 1", "closed"]
    assert refused.error.code == "VALIDATION_ERROR"
    assert refused.error.message == "not thirteen"


async def test_a_class_that_was_never_called_is_never_made() -> None:
    LIVES.clear()
    async with Executor(Registry([Lived]), provide={Store: Store()}) as executor:
        executor.bound("lived")
    assert LIVES == []


async def test_an_object_that_finds_several_faults_names_them_all() -> None:
    class Picky(Tool):
        """Be picky."""

        async def run(self, a: int) -> int:
            return a

        def validate(self, arguments: Any) -> Any:
            yield "too small"
            yield "too odd"

    error = await outcome(Picky(), {"a": 1})
    assert error.message == "too small; too odd"
    assert error.details == {
        "faults": [{"at": "", "problem": "too small"}, {"at": "", "problem": "too odd"}]
    }


async def test_an_object_whose_start_failed_is_started_again() -> None:
    class Shaky(Tool):
        """Be shaky."""

        starts = 0

        async def initialize(self) -> None:
            Shaky.starts += 1
            if Shaky.starts == 1:
                raise ConnectionRefusedError

        def run(self) -> int:
            return self.starts

    async with Executor(Registry([Shaky])) as executor:
        assert not (await executor.health("shaky")).healthy
        assert (await executor.execute("shaky")).output == 2
        assert (await executor.execute("shaky")).output == 2
        assert await executor.health("shaky") == Health(True)


async def test_a_class_that_wants_what_nobody_provides_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = await outcome(Lived, {"step": 1})
    assert error.code == "UNAVAILABLE"
    assert "wants a Store" in caplog.text


async def test_a_class_may_take_anything_else_too() -> None:
    class Loose(Tool):
        """Be loose."""

        def __init__(self, *args: Any, size: int = 3, **rest: Any) -> None:
            self.size = size

        async def run(self) -> int:
            return self.size

    assert await outcome(Loose) == 3


async def test_a_backend_without_services_runs_what_needs_none() -> None:
    backend = PythonBackend(Services())
    handle = backend.bind(python_tools.standard.spec, python_tools.standard)
    assert await handle.health() == Health(True)
    await handle.close()
    await backend.close()


@pytest.mark.parametrize("isolation", ["inline", "thread", "process"])
async def test_what_a_tool_says_beside_its_output_is_bounded_wherever_it_runs(
    isolation: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def result_of(function: str) -> Any:
        async with Executor(Registry([reference(function, isolation=isolation)])) as executor:
            return await executor.execute("it")

    warned = await result_of("warns_without_end")
    assert warned.output == 1
    assert len(warned.metadata.warnings) == 101
    assert warned.metadata.warnings[-1] == "There were more warnings; they are left out."
    assert max(map(len, warned.metadata.warnings)) == 1_000
    failed = await result_of("fails_at_length")
    assert len(failed.error.message) <= 8 * 1024
    assert failed.error.details is None
    assert failed.metadata.warnings == ["careful"]


@pytest.mark.parametrize("isolation", ["inline", "thread", "process"])
async def test_an_error_that_does_not_speak_of_effects_leaves_them_unknown(isolation: Any) -> None:
    tool = python_tools.unavailable_after_its_effect
    spec = msgspec.structs.replace(tool.spec, isolation=isolation)
    async with Executor(Registry([Entry(spec, tool)])) as executor:
        result = await executor.execute(tool.spec.name)
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("UNAVAILABLE", "unknown")


async def test_tools_of_different_limits_do_not_share_a_worker() -> None:
    def probe(name: str, **limits: Any) -> ToolSpec:
        return msgspec.structs.replace(
            reference("loaded", isolation="process"), name=name, limits=Limits(**limits)
        )

    memory, output = 2**30, 2**20
    specs = [probe("a"), probe("b"), probe("c", memory=memory), probe("d", output=output)]
    settings = {"python": {"workers": 1}}
    async with Executor(Registry(specs), settings=settings) as executor:
        found = [(await executor.execute(spec.name)).output for spec in specs]
    assert found[0] == found[1]
    assert len(set(found)) == 3


async def test_calls_at_once_initialize_a_tool_once() -> None:
    begun: list[str] = []

    class Slow(Tool, name="slow"):
        """Take a while to get ready."""

        async def initialize(self) -> None:
            begun.append("initialize")
            for _ in range(10):
                await asyncio.sleep(0)

        async def run(self) -> int:
            return len(begun)

    async with Executor(Registry([Slow])) as executor:
        results = await asyncio.gather(*(executor.execute("slow") for _ in range(5)))
    assert [result.output for result in results] == [1] * 5


async def test_metadata_that_cannot_go_to_another_process_is_named_as_such() -> None:
    async with Executor(Registry([python_tools.reports])) as executor:
        result = await executor.execute("reports", metadata={"live": object()})
    assert result.error is not None
    assert result.error.code == "VALIDATION_ERROR"
    assert "metadata of this call is not plain JSON" in result.error.message


async def test_a_secret_that_is_missing_in_a_worker_is_named_in_the_log_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TOOLPOST_TEST_SECRET", raising=False)
    error = await outcome(python_tools.knows)
    assert error.message == "This tool is not set up to run here. Use another tool."
    assert "TOOLPOST_TEST_SECRET is not set" in caplog.text
