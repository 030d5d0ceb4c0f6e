"""What a tool, a caller or an accident does to a gateway, with tools in the sandbox: calls end in
time with an error that says what happened, nothing outlives them, and the other calls go on.

That a payload stays one word is in ``backends/shell/test_payloads.py``, what gets out of a sandbox
in ``sandbox/test_probes.py``, which layer is needed for what in ``sandbox/test_missing.py``.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.backends import confined_tools, pool_tools
from tests.processes import Watch, descendants, innermost, running
from tests.sandbox.elsewhere import as_ordinary_user, need_a_sandbox
from tests.sandbox.test_missing import WITHOUT_NAMESPACES
from toolpost import Executor, Registry, Result, Runtime, ToolSpec
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import AuditedCall, calls
from toolpost.sandbox import Sandbox
from toolpost.spec import Limits

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
FENCE = 100
WORKER = "backends/python/child.py"
STUBBORN = [
    "blocked_in_c",
    "blocked_in_regex",
    "swallows_everything",
    "daemonises",
    "multiprocesses",
]


@pytest.fixture(autouse=True, scope="module")
def sandbox() -> None:
    need_a_sandbox()


def python(function: str, module: Any = confined_tools, **options: Any) -> ToolSpec:
    return ToolSpec(
        name=function,
        description="It.",
        input_schema={"type": "object"},
        binding={"module": module.__name__, "function": function},
        **{"isolation": "sandbox", "timeout": 60, **options},
    )


def shell(script: str, **options: Any) -> ToolSpec:
    return ToolSpec(
        name="script",
        description="It.",
        kind="shell",
        binding={"command": ["sh", "-c", script]},
        **{"timeout": 60, **options},
    )


def executor(*specs: ToolSpec) -> Executor:
    settings = {"python": {"workers": 2}, "shell": {"programs": ["sh"]}}
    return Executor(Registry(list(specs)), settings=settings)


async def begun(start: Callable[..., Awaitable[Result]], name: str, **options: Any) -> Any:
    """A call that has reported something: it is under way."""
    heard = asyncio.Event()
    call = asyncio.ensure_future(start(name, on_progress=lambda _: heard.set(), **options))
    waiting = asyncio.ensure_future(heard.wait())
    await asyncio.wait((call, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    assert not call.done(), call.result()
    return call


def workers() -> set[int]:
    """The worker processes of this program that run in a sandbox, seen from outside."""
    return descendants(os.getpid()) & set(running(WORKER))


def tree(pids: set[int]) -> set[int]:
    return pids | {below for pid in pids for below in descendants(pid)}


async def audited(folder: Path) -> list[AuditedCall]:
    async with Runtime.open(folder / "toolpost.toml") as tools:
        await tools.store.open()
        return [one async for one in calls(lines_of(tools.store))]


CONFIG = """
watch = false
guards = ["retry"]
observers = ["audit"]
[[sources]]
kind = "files"
paths = ["tools.json"]
[backends.python]
workers = 10
[backends.shell]
programs = ["sh"]
"""


def project(folder: Path, *specs: ToolSpec) -> None:
    (folder / "toolpost.toml").write_text(CONFIG)
    (folder / "tools.json").write_bytes(msgspec.json.encode([one.to_dict() for one in specs]))


# Killed


@pytest.mark.req("NA-7", "NA-12")
async def test_attack_a_worker_is_killed_in_a_call(tmp_path: Path) -> None:
    project(tmp_path, python("report_and_wait", tier=2), python("add", tier=2))
    async with Runtime.open(tmp_path / "toolpost.toml") as tools, asyncio.timeout(FENCE):
        call = await begun(tools.execute, "report_and_wait")
        [worker] = workers() & innermost(os.getpid())
        os.kill(worker, signal.SIGKILL)
        result = await call
        assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3, "it is replaced"
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("UNAVAILABLE", "unknown")
    assert result.metadata.attempts == 1, "it may have done something: it is not tried again"
    one, _ = await audited(tmp_path)
    assert one.ended is not None
    assert (one.code, one.ended.outcome) == ("UNAVAILABLE", "unknown")
    assert one.asked.isolation.startswith("sandbox I")


GATEWAY = """
import asyncio, sys
from toolpost import Runtime

async def main():
    async with Runtime.open(sys.argv[1]) as tools:
        begun = asyncio.Queue()
        names = ["script"] * 42 + ["report_and_wait"] * 8
        tasks = [
            asyncio.create_task(tools.execute(name, on_progress=begun.put_nowait))
            for name in names
        ]
        for _ in tasks:
            await begun.get()
        print("open", flush=True)
        await asyncio.gather(*tasks)

asyncio.run(main())
"""


@pytest.mark.req("NA-7", "NA-12")
async def test_attack_the_gateway_is_killed_with_fifty_calls_open(tmp_path: Path) -> None:
    waiting = shell("echo up; (setsid sleep 600 &); sleep 600", tier=2, timeout=300)
    project(tmp_path, waiting, python("report_and_wait", tier=2, timeout=300))
    path = os.pathsep.join(filter(None, sys.path))
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-c", GATEWAY, str(tmp_path / "toolpost.toml"),
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert gateway.stdout is not None
    async with asyncio.timeout(FENCE):
        assert await gateway.stdout.readline() == b"open\n"
        with Watch(descendants(gateway.pid)) as watch:
            assert len(watch.fds) >= 150
            gateway.kill()
            await gateway.wait()
            assert await watch.gone(within=30)
    found = await audited(tmp_path)
    assert [one.code for one in found] == ["UNKNOWN"] * 50
    assert {one.ended and one.ended.outcome for one in found} == {"unknown"}


@pytest.mark.req("NA-7")
@pytest.mark.parametrize("name", STUBBORN)
async def test_attack_a_tool_will_not_stop_when_its_caller_goes(name: str) -> None:
    stubborn = python(name, pool_tools)
    async with executor(stubborn) as tools, asyncio.timeout(FENCE):
        arguments = {"path": "/tmp/written", "seconds": 1000}
        call = await begun(tools.execute, name, arguments=arguments)
        with Watch(tree(workers())) as watch:
            assert watch.fds
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert watch.living() == set(), "they are gone before the caller hears of it"


@pytest.mark.req("NA-7")
async def test_attack_a_program_detaches_itself_when_its_caller_goes() -> None:
    lives = shell("trap '' TERM INT HUP; (setsid sh -c 'echo up; sleep 613' &); sleep 613")
    async with executor(lives) as tools, asyncio.timeout(FENCE):
        call = await begun(tools.execute, "script")
        with Watch(descendants(os.getpid()) & set(running("sleep 613"))) as watch:
            assert len(watch.fds) >= 2
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await watch.gone(within=20)


@pytest.mark.req("NA-7", "FM-8")
@pytest.mark.parametrize("name", STUBBORN)
async def test_attack_a_tool_blocks_at_its_limit_and_others_go_on(name: str) -> None:
    stubborn, other = python(name, pool_tools, timeout=2), python("add")
    arguments = {"path": "/tmp/written", "seconds": 1000}
    async with executor(stubborn, other) as tools, asyncio.timeout(FENCE):
        await tools.execute("add", {"a": 1, "b": 2})
        call = await begun(tools.execute, name, arguments=arguments)
        with Watch(tree(workers())) as watch:
            beside = [(await tools.execute("add", {"a": 1, "b": n})).output for n in range(20)]
            result = await call
            assert len(watch.living()) < len(watch.fds)
    assert beside == [1 + n for n in range(20)]
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("TIMEOUT", "unknown")


# Used up


@pytest.mark.req("NA-7", "FM-9")
async def test_attack_a_fork_bomb_stays_inside() -> None:
    bomb = python("fork_without_end", limits=Limits(processes=20))
    async with executor(bomb) as tools, asyncio.timeout(FENCE):
        result = await tools.execute("fork_without_end", {"most": 200})
        assert result.output < 40
        assert len(tree(workers())) < 10, "none of them is left"
    script = shell("while :; do sleep 60 & done", limits=Limits(processes=20), timeout=2)
    async with executor(script) as tools, asyncio.timeout(FENCE):
        result = await tools.execute("script")
    assert result.error is not None
    assert result.error.code in ("TIMEOUT", "RESOURCE_LIMIT", "EXECUTION_ERROR")


@pytest.mark.req("NA-7", "FM-9")
async def test_attack_a_memory_bomb_with_many_children_is_bounded_as_a_whole() -> None:
    async with await Sandbox.open() as found:
        if "cgroup" not in found.about["layers"]:
            pytest.skip("without a control group each process has its own bound")
    limits = Limits(memory=150 << 20)
    bomb, other = python("take_memory_with_children", limits=limits), python("add", limits=limits)
    async with executor(bomb, other) as tools, asyncio.timeout(FENCE):
        arguments = {"children": 10, "megabytes": 40}
        result = await tools.execute("take_memory_with_children", arguments)
        assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3
    if result.error is None:
        assert result.output < 4, "the kernel took some of the children"
    else:
        assert result.error.code == "RESOURCE_LIMIT"


@pytest.mark.req("NA-7", "FM-9")
@pytest.mark.parametrize(
    "flood",
    ["cat /dev/zero", "yes | tr -d '\\n'", "yes >&2", "head -c 1000000000 /dev/zero"],
    ids=["for ever", "one line", "errors", "a gigabyte"],
)
async def test_attack_a_flood_of_output_is_cut_and_memory_stays_flat(flood: str) -> None:
    spec = shell(flood, limits=Limits(output=1_000_000))
    async with executor(spec) as tools, asyncio.timeout(FENCE):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await tools.execute("script")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("OUTPUT_TOO_LARGE", "unknown")
    assert grown < 40, f"{grown} MiB for an output of 1"


@pytest.mark.req("NA-7", "FM-9")
async def test_attack_a_function_prints_a_gigabyte_and_memory_stays_flat() -> None:
    async with executor(python("print_without_end")) as tools, asyncio.timeout(FENCE):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await tools.execute("print_without_end", {"gigabytes": 1})
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert result.output == "printed", "what a function prints is no output: it is dropped"
    assert grown < 40, f"{grown} MiB"


@pytest.mark.req("NA-7", "FM-9")
async def test_attack_a_function_returns_more_than_it_may() -> None:
    async with executor(python("large")) as tools, asyncio.timeout(FENCE):
        error = (await tools.execute("large", {"megabytes": 64})).error
    assert error is not None
    assert error.code == "OUTPUT_TOO_LARGE"


# Missing

LACKING = """
import asyncio, json, os, sys
from pathlib import Path
from toolpost import Runtime
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import calls

folder = Path(sys.argv[1], "project")
folder.mkdir()
(folder / "own.py").write_text("def one():\\n    return 1\\n")
(folder / "tools.json").write_text(json.dumps([
    {"name": f"tier{tier}", "description": "It.", "tier": tier, "isolation": "sandbox",
     "timeout": 30, "binding": {"module": "own", "function": "one"}} for tier in (1, 2, 3)]))
config = 'watch = false\\nguards = []\\n[[sources]]\\nkind = "files"\\npaths = ["tools.json"]\\n'

async def told(more):
    (folder / "toolpost.toml").write_text(more + config)
    async with Runtime.open(folder / "toolpost.toml") as tools:
        results = [await tools.execute(f"tier{tier}") for tier in (1, 2, 3)]
        health = (await tools.health()).get("sandbox")
        plan = (await tools.execute("tier1", dry_run=True)).metadata.plan
    async with Runtime.open(folder / "toolpost.toml") as tools:
        await tools.store.open()
        audited = [one async for one in calls(lines_of(tools.store))]
    return {
        "outputs": [r.output if r.error is None else r.error.message for r in results],
        "health": health and health.error,
        "plan": plan["level"],
        "audited": [one.asked.isolation for one in audited],
    }

async def main():
    print(json.dumps([await told(""), await told('mode = "permissive"\\nsandbox.lower = true\\n')]))

asyncio.run(main())
"""


@pytest.mark.req("NA-10", "NA-11", "NA-12")
def test_attack_a_layer_is_missing(tmp_path: Path) -> None:
    text = as_ordinary_user(WITHOUT_NAMESPACES, "1000", LACKING, str(tmp_path), home=tmp_path)
    standard, lowered = json.loads(text)
    assert standard["outputs"][0] == 1
    for refusal in standard["outputs"][1:]:
        assert "needs isolation I2" in refusal
        assert "user namespaces is missing" in refusal
    assert (standard["health"], standard["plan"]) == (None, "I1")
    assert standard["audited"][0] == "sandbox I1"
    assert lowered["outputs"][:2] == [1, 1]
    assert "lower" in lowered["health"]
    assert "sandbox I1 lowered" in lowered["audited"]
