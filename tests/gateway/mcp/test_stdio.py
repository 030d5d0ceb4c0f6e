"""``toolpost mcp``: a program that a client starts, and speaks with over its standard streams."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from tests.backends.mcp.running import processes
from tests.gateway.mcp.running import HANDSHAKE, MODERN, envelope, until

pytestmark = pytest.mark.anyio
Mode = Literal["auto", "legacy"]

CONFIG = """
guards = ["approval"]
[store]
kind = "memory"
[[sources]]
kind = "modules"
modules = ["tools_on_stdio"]
"""
MODULE = '''
import subprocess, sys, time
from toolpost import Call, tool

@tool(effects="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("a tool that prints", flush=True)
    return a + b

@tool(timeout=60, isolation="process")
def hang(marker: str) -> None:
    """Start a program, and wait for it."""
    subprocess.run([sys.executable, "-c", "import time; time.sleep(60)", marker])

@tool
async def steps(call: Call) -> str:
    """Tell how far it is."""
    call.progress(1, 2, "half")
    return "done"

@tool(requires_approval=True)
async def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "toolpost.toml").write_text(CONFIG)
    (tmp_path / "tools_on_stdio.py").write_text(MODULE)
    return tmp_path


def program(project: Path, *words: str) -> StdioServerParameters:
    config = str(project / "toolpost.toml")
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "toolpost", "--config", config, "mcp", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(project), *sys.path])},
    )


@asynccontextmanager
async def connected(project: Path, *words: str, **more: Any) -> AsyncIterator[Client]:
    async with asyncio.timeout(60), Client(program(project, *words), **more) as client:
        yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_lists_calls_sees_progress_cancels_and_approves(
    project: Path, mode: Mode
) -> None:
    heard: list[str | None] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async def approve(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"approve": True})

    async with connected(project, "--approve", mode=mode, elicitation_callback=approve) as client:
        names = [one.name for one in (await client.list_tools()).tools]
        assert names == ["add", "hang", "send", "steps"]
        added = await client.call_tool("add", {"a": 1, "b": 2})
        assert added.structured_content == {"result": 3}
        await client.call_tool("steps", {}, progress_callback=hear)
        sent = await client.call_tool("send", {"to": "Ada"})
        assert sent.content == [types.TextContent(text="sent to Ada")]
        async with anyio.create_task_group() as tasks:
            marker = f"marker-{mode}"
            tasks.start_soon(client.call_tool, "hang", {"marker": marker})
            await until(lambda: processes(marker))
            tasks.cancel_scope.cancel()
        await until(lambda: not processes(marker), within=10)
        await until(lambda: heard == ["half"])


async def started(project: Path) -> asyncio.subprocess.Process:
    given = program(project)
    return await asyncio.create_subprocess_exec(
        given.command, *given.args, env=given.env, stdin=-1, stdout=-1, stderr=-1
    )


async def test_what_is_no_message_is_said_to_be_none_and_the_end_of_input_is_the_end(
    project: Path,
) -> None:
    child = await started(project)
    assert child.stdin is not None and child.stdout is not None
    params = {"_meta": envelope()}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": params}
    child.stdin.write(b"{\n\n[]\n" + json.dumps(hello).encode() + b"\n")
    async with asyncio.timeout(30):
        first, second, third = [json.loads(await child.stdout.readline()) for _ in range(3)]
        assert [first["error"]["code"], second["error"]["code"]] == [-32700, -32600]
        assert third["result"]["supportedVersions"] == [MODERN]
        out, _ = await child.communicate(b"")
    assert (out, child.returncode) == (b"", 0)


@pytest.mark.parametrize("size", [17, 40])
async def test_a_message_that_is_too_long_is_answered_and_the_next_one_is_heard(
    project: Path, size: int
) -> None:
    child = await started(project)
    long = b'{"jsonrpc":"2.0","id":7,"method":"ping","params":"' + b"x" * size * 1024 * 1024
    hello = {"jsonrpc": "2.0", "id": 8, "method": "server/discover"}
    hello["params"] = {"_meta": envelope()}
    async with asyncio.timeout(60):
        out, _ = await child.communicate(long + b'"}\n' + json.dumps(hello).encode() + b"\n" + long)
    said = {bool("error" in one): one for one in map(json.loads, out.splitlines())}
    assert said[True]["id"] == 7
    assert "more than 16,777,216 bytes" in said[True]["error"]["message"]
    assert said[False]["id"] == 8
    assert len(out.splitlines()) == 3
    assert child.returncode == 0


UNREAD = [
    (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"id":3,"a":"\\ud800"}}', 7, "surrogate"),
    (b'{"jsonrpc":"2.0","id":"a b","method":"\xff"}', "a b", "not UTF-8: byte 38"),
    (b'{"params":%b,"id":9}' % (b"[" * 5000 + b"]" * 5000), 9, "more than 64 levels"),
    (b'{"jsonrpc":"2.0","params":{"id":3},"method":"\xff"}', None, "not UTF-8"),
    (b'{"jsonrpc":"2.0","id":1,"id":2}', None, "twice"),
    (b'{"jsonrpc":"1.0","id":4,"method":"ping"}', 4, "no message of JSON-RPC 2.0"),
    (b'{"jsonrpc":"2.0","id":5,"method":"' + b'\\"' * 200_000, 5, "Unterminated string"),
]


async def test_who_sends_what_cannot_be_read_hears_why_and_about_which_request(
    project: Path,
) -> None:
    child = await started(project)
    async with asyncio.timeout(30):
        out, _ = await child.communicate(b"".join(line + b"\n" for line, _, _ in UNREAD))
    said = [json.loads(line) for line in out.splitlines()]
    assert [one["id"] for one in said] == [number for _, number, _ in UNREAD]
    for one, (_, _, why) in zip(said, UNREAD, strict=True):
        assert why in one["error"]["message"]


async def test_an_input_that_cannot_be_waited_for_is_read_to_its_end(project: Path) -> None:
    given = program(project)
    for source in (os.devnull, project / "empty"):
        (project / "empty").touch()
        with Path(source).open("rb") as nothing:
            child = await asyncio.create_subprocess_exec(
                given.command, *given.args, env=given.env, stdin=nothing, stdout=-1, stderr=-1
            )
        async with asyncio.timeout(30):
            out, err = await child.communicate()
        assert (out, err, child.returncode) == (b"", b"", 0)


async def test_a_signal_ends_it_with_everything_it_started(project: Path) -> None:
    child = await started(project)
    assert child.stdin is not None and child.stdout is not None
    about = {"name": "t", "version": "1"}
    hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": about}
    hang = {"name": "hang", "arguments": {"marker": "m-signal"}}
    for message in (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": hang},
    ):
        child.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    await until(lambda: processes("m-signal"))
    left = processes("m-signal")
    child.terminate()
    assert await asyncio.wait_for(child.wait(), 20) == 0
    child.stdin.close()
    assert child.stderr is not None
    assert b"Traceback" not in await asyncio.wait_for(child.stderr.read(), 20)
    await until(lambda: not any(one.is_running() and one.status() != "zombie" for one in left))
