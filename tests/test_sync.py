"""The blocking bridge: the same tools for programs without an event loop."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated

import pytest

from toolpost import (
    Call,
    Executor,
    Injected,
    Progress,
    Registry,
    Result,
    Secret,
    SourceError,
    sync,
    tool,
)
from toolpost.approvals import Request
from toolpost.config import find
from toolpost.contracts import Walk

CONFIG = 'watch = false\n[[sources]]\nkind = "modules"\nmodules = ["{}"]\n'
MODULE = '''
from toolpost import tool

@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Db:
    answer = 42


def executor() -> Executor:
    return Executor(Registry([add]))


def test_the_tools_of_a_config_are_called_without_a_loop(tmp_path: Path) -> None:
    (tmp_path / "sync_tools.py").write_text(MODULE)
    (tmp_path / "toolpost.toml").write_text(CONFIG.format("sync_tools"))
    with sync.open(tmp_path / "toolpost.toml") as tools:
        assert [s.name for s in tools.list()] == ["add"]
        assert tools.execute("add", {"a": 1, "b": 2}).output == 3
        assert tools.execute("add", {"a": "x", "b": 2}).error is not None
        assert "add" in tools.registry


def test_a_program_gives_tools_secrets_and_answers_and_asks_how_things_are(tmp_path: Path) -> None:
    (tmp_path / "sync_more.py").write_text(MODULE)

    @tool(requires_approval=True)
    async def login(key: Annotated[str, Secret("NO_SUCH_KEY")]) -> int:
        """Log in."""
        return len(key)

    async def ask(request: Request) -> bool:
        return request.tool == "login"

    text = CONFIG.format("sync_more")
    (tmp_path / "toolpost.toml").write_text(text)
    with sync.open(
        find(tmp_path / "toolpost.toml"), tools=[login], secret=lambda name: "hunter2-", ask=ask
    ) as tools:
        assert [s.name for s in tools.list()] == ["add", "login"]
        assert tools.execute("login").output == 8
        assert tools.problems == {}
        assert tools.health()["store"].healthy
        assert tools.extension("approval").mode == "policy"
        (tmp_path / "tools.lock").write_text("not a lock")
        assert "lock" in tools.reload()
        assert "lock" in tools.problems


def test_an_executor_of_ones_own_is_called_without_a_loop() -> None:
    heard: list[Progress] = []
    with sync.over(executor) as tools:
        assert tools.execute("add", {"a": 1, "b": 2}, on_progress=heard.append).output == 3


def test_what_a_program_provides_reaches_its_tools(tmp_path: Path) -> None:
    @tool
    async def ask(db: Injected[Db]) -> int:
        """Ask."""
        return db.answer

    (tmp_path / "toolpost.toml").write_text("")
    with sync.open(tmp_path / "toolpost.toml", provide={Db: Db()}) as tools:
        tools.registry.add(ask)
        assert tools.execute("ask").output == 42


def test_many_threads_share_one_bridge() -> None:
    outputs: list[int] = []
    with sync.over(executor) as tools:

        def work(n: int) -> None:
            outputs.extend(tools.execute("add", {"a": n, "b": i}).output - i for i in range(20))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(outputs) == [n for n in range(4) for _ in range(20)]


def test_inside_a_running_loop_it_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="await the async API instead"), sync.over(executor):
            raise AssertionError("entered")

    asyncio.run(main())


def test_a_bridge_from_outside_is_refused_inside_a_loop() -> None:
    with sync.over(executor) as tools:

        async def main() -> None:
            with pytest.raises(RuntimeError, match="an event loop runs here"):
                tools.execute("add", {"a": 1, "b": 2})

        asyncio.run(main())
        assert tools.execute("add", {"a": 1, "b": 2}).output == 3


def test_a_fault_at_the_start_is_raised_and_no_thread_is_left(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(CONFIG.format("not_there_at_all"))
    with (
        pytest.raises(SourceError, match="not_there_at_all"),
        sync.open(tmp_path / "toolpost.toml"),
    ):
        raise AssertionError("entered")
    assert "toolpost-sync" not in [thread.name for thread in threading.enumerate()]


def test_after_the_block_the_tools_are_closed() -> None:
    with sync.over(executor) as tools:
        pass
    assert "toolpost-sync" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(RuntimeError, match="use them inside the with block"):
        tools.execute("add", {"a": 1, "b": 2})


def test_what_is_raised_inside_the_block_passes_and_closes_the_tools() -> None:
    with pytest.raises(ZeroDivisionError), sync.over(executor):
        raise ZeroDivisionError
    assert "toolpost-sync" not in [thread.name for thread in threading.enumerate()]


PROGRAM = '''
import asyncio, threading
from toolpost import Executor, Registry, sync, tool

cancelled = threading.Event()

@tool(timeout=60)
async def wait() -> None:
    """Wait for ever."""
    print("started", flush=True)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.set()
        raise

with sync.over(lambda: Executor(Registry([wait]))) as tools:
    try:
        tools.execute("wait")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        if cancelled.wait(20):  # while the tools are still open: it is Ctrl-C that stopped it
            print("cancelled", flush=True)
        raise SystemExit(7)
'''


def test_ctrl_c_stops_the_tool_and_ends_the_program() -> None:
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "started\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
        child.wait()
    assert out.split() == ["interrupted", "cancelled"]
    assert (child.returncode, err) == (7, "")


def test_ctrl_c_that_does_not_wake_the_waiting_thread_is_heard_all_the_same() -> None:
    """As when it comes the moment before that falls asleep: here another thread has it."""
    elsewhere = "signal.pthread_kill(threading.get_ident(), signal.SIGINT)"
    program = PROGRAM.replace("import asyncio,", "import asyncio, signal,")
    program = program.replace(
        "    await asyncio.Event()", f"    {elsewhere}; await asyncio.Event()"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["started", "interrupted", "cancelled"]
    assert (done.returncode, done.stderr) == (7, "")


FORKING = '''
import os
from toolpost import Executor, Registry, sync, tool

@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

def say(who, what):
    os.write(1, f"{who} {what}\\n".encode())  # at once: two processes speak

def answer(tools):
    try:
        return tools.execute("add", {"a": 1, "b": 2}).output
    except RuntimeError as refused:
        return refused

with sync.over(lambda: Executor(Registry([add]))) as tools:
    child = os.fork()
    say("child" if child == 0 else "parent", answer(tools))
    if child:
        os.waitpid(child, 0)
        say("parent", answer(tools))
with sync.over(lambda: Executor(Registry([add]))) as tools:
    say("again", answer(tools))
'''


def test_a_forked_child_is_told_to_open_tools_of_its_own(
    tmp_path: Path, measuring: list[str]
) -> None:
    program = tmp_path / "forking.py"
    program.write_text(FORKING)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *measuring, str(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    refusal = "child these tools stayed with the parent: open them after the fork"
    assert sorted(done.stdout.splitlines()) == ["again 3"] * 2 + [refusal] + ["parent 3"] * 2


def test_rings_of_ones_own_stand_around_the_tools_of_a_config(tmp_path: Path) -> None:
    seen: list[str] = []

    async def look(call: Call, call_next: Walk) -> Result:
        seen.append(call.tool)
        return await call_next(call)

    (tmp_path / "toolpost.toml").write_text("")
    with sync.open(tmp_path / "toolpost.toml", observers=[look], guards=[look]) as tools:
        tools.registry.add(add)
        assert tools.execute("add", {"a": 1, "b": 2}).output == 3
    assert seen == ["add", "add"]
