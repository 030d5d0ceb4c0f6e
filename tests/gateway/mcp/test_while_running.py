"""What happens while a call runs: progress, a client that goes or cancels, tools that change."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import listen

from tests.gateway.mcp.running import (
    LOCAL,
    Running,
    call_of,
    envelope,
    gateway,
    headers_for,
    post,
    serving,
    until,
)
from toolpost import Call, Caller, tool
from toolpost.gateway.mcp.settings import McpSettings

pytestmark = pytest.mark.anyio
Mode = Literal["auto", "legacy"]
begun, ended = set[str](), set[str]()


@tool(timeout=30)
async def linger(name: str) -> str:
    """Run until it is stopped."""
    begun.add(name)
    try:
        await asyncio.sleep(60)
    finally:
        ended.add(name)
    return name


@tool
async def steps(call: Call) -> str:
    """Tell how far it is, in every way."""
    call.progress(1, 3, "one")
    call.progress(1, 3)
    call.progress(message="between")
    call.progress(2, 3)
    call.partial("a piece")
    return "done"


@tool
async def counting(call: Call) -> str:
    """Tell what it does, without numbers."""
    for word in ("a", "b"):
        call.progress(message=word)
    return "done"


@tool(tier=0, effects="read")
async def much(size: int) -> str:
    """Give much."""
    return "x" * size


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with serving([linger, steps, counting, much], tmp_path_factory.mktemp("t")) as running:
        yield running


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param


async def test_progress_arrives_before_the_result_and_only_ever_grows(
    running: Running, mode: Mode
) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, total, message))

    async with Client(running.url, mode=mode) as client:
        await client.call_tool("steps", {}, progress_callback=hear)
        await client.call_tool("counting", {}, progress_callback=hear)
        await until(lambda: len(heard) == 6)
    numbers = [one[0] for one in heard[:4]]
    assert numbers == sorted(set(numbers))
    assert [one[2] for one in heard] == ["one", "between", None, "a piece", "a", "b"]
    assert heard[0] == (1, 3, "one")
    assert [one[0] for one in heard[4:]] == [0, 1]


async def test_a_client_that_cancels_stops_the_tool(running: Running, mode: Mode) -> None:
    name = f"cancelled {mode}"
    async with Client(running.url, mode=mode) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "linger", {"name": name})
        await until(lambda: name in begun)
        tasks.cancel_scope.cancel()
    await until(lambda: name in ended)


def _message(method: str, params: dict[str, Any], number: int | None = 1) -> bytes:
    said = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(said if number is None else {**said, "id": number}).encode()


async def _posted(running: Running, body: bytes, headers: dict[str, str]) -> Any:
    host, port = running.url.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**22)
    head = {**headers, "Host": f"{host}:{port}", "Content-Length": str(len(body))}
    lines = "".join(f"{key}: {value}\r\n" for key, value in head.items())
    writer.write(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body)
    await writer.drain()
    return reader, writer


GREETING = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": "2025-11-25",
}


def _greeting() -> bytes:
    about = {"name": "t", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}
    return _message("initialize", hello)


async def _session(running: Running, *, hasty: bool = False) -> dict[str, str]:
    """A session of the handshake, and the headers that its requests have. ``hasty``: the client
    goes as soon as it knows the session's name.
    """
    reader, writer = await _posted(running, _greeting(), GREETING)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if hasty:
        writer.transport.abort()
    else:
        await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()
    session = next(one for one in head.split("\r\n") if one.startswith("mcp-session-id: "))
    return {**GREETING, "Mcp-Session-Id": session.split(": ")[1]}


@pytest.mark.parametrize("way", ["by hand", "by the SDK", "in a session"])
async def test_a_client_that_goes_takes_its_call_with_it(running: Running, way: str) -> None:
    arguments = {"name": way}
    if way == "in a session":
        headers = await _session(running)
        body = _message("tools/call", {"name": "linger", "arguments": arguments})
    else:
        headers = headers_for("tools/call", "linger")
        headers |= {"Accept": "*/*"} if way == "by the SDK" else {}
        body = json.dumps(call_of("linger", arguments)).encode()
    _, writer = await _posted(running, body, headers)
    await until(lambda: way in begun)
    writer.transport.abort()
    await until(lambda: way in ended, within=5)


async def test_a_notification_stops_a_call_of_a_session(running: Running) -> None:
    headers = await _session(running)
    body = _message("tools/call", {"name": "linger", "arguments": {"name": "told"}}, 7)
    _, first = await _posted(running, body, headers)
    await until(lambda: "told" in begun)
    cancel = _message("notifications/cancelled", {"requestId": 7}, None)
    _, second = await _posted(running, cancel, headers)
    await until(lambda: "told" in ended, within=5)
    first.close()
    second.close()


@pytest.mark.req("UX-2")
async def test_clients_hear_that_the_list_of_tools_has_changed(
    running: Running, mode: Mode
) -> None:
    heard = asyncio.Event()

    async def hear(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            heard.set()

    @tool(name=f"fresh_{mode}")
    async def fresh() -> int:
        """A new one."""
        return 1

    async with Client(running.url, mode=mode, message_handler=hear) as client:
        if mode == "legacy":
            await client.list_tools()
            await until(lambda: client.session is not None)
            async with asyncio.timeout(20):
                while not heard.is_set():  # its stream may not be there yet when the first is told
                    running.runtime.registry.add(fresh)
                    await asyncio.sleep(0.2)
                    if not heard.is_set():
                        running.runtime.registry.remove(fresh.spec.name)
        else:
            async with listen(client.session, tools_list_changed=True) as events:
                running.runtime.registry.add(fresh)
                await asyncio.wait_for(anext(aiter(events)), 10)
        assert f"fresh_{mode}" in [one.name for one in (await client.list_tools()).tools]


async def test_a_session_is_of_the_caller_who_made_it(running: Running) -> None:
    headers = await _session(running)
    try:
        for caller, status in ((Caller(id="mallory"), b" 404 "), (LOCAL, b" 200 ")):
            running.caller = caller
            reader, writer = await _posted(running, _message("tools/list", {}), headers)
            found = await reader.readline()
            writer.close()
            assert status in found
    finally:
        running.caller = LOCAL


async def test_a_session_is_there_for_who_has_not_waited_for_the_end_of_the_greeting(
    running: Running,
) -> None:
    for _ in range(5):
        headers = await _session(running, hasty=True)
        reader, writer = await _posted(running, _message("tools/list", {}), headers)
        assert b" 200 " in await reader.readline()
        writer.close()


async def test_nobody_takes_all_the_sessions_there_are(tmp_path: Path) -> None:
    settings = McpSettings(sessions=3, sessions_each=2)
    async with serving([steps], tmp_path, settings=settings) as running:
        for _ in range(2):
            await _session(running)
        answer = await post(running.url, _greeting(), GREETING)
        assert answer.status_code == 503
        assert "too many sessions" in answer.json()["error"]["message"]
        running.caller = Caller(id="somebody else")
        await _session(running)


async def test_what_the_envelope_says_of_a_trace_goes_with_the_call(running: Running) -> None:
    seen: list[Any] = []

    @tool
    async def traced(call: Call) -> None:
        """Look at the call."""
        seen.append((call.metadata.get("traceparent"), call.key))

    running.runtime.registry.add(traced)
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    meta = envelope(traceparent=parent, **{"toolpost/key": "k1"})
    async with Client(running.url) as client:
        await client.call_tool("traced", {}, meta=meta)
    assert seen == [(parent, "k1")]


MANY, SIZE = 5, 1_000_000
_large = "x" * SIZE
LARGE = {
    "a call that is refused": ("tools/call", {"name": "linger", "arguments": {"not": _large}}),
    "a call that is cut off": ("tools/call", {"name": "linger", "arguments": {"name": _large}}),
    "a result": ("tools/call", {"name": "much", "arguments": {"size": SIZE}}),
    "an unknown method": ("tools/dance", {"with": _large}),
    "a notification": ("notifications/dance", {"with": _large}),
}


@pytest.fixture
def held() -> Iterator[Callable[[], int]]:
    """How many bytes there are more than at the beginning."""

    def count() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    before = count()
    yield lambda: count() - before
    tracemalloc.stop()


@pytest.mark.parametrize("what", LARGE)
async def test_attack_sessions_that_are_left_open_keep_nothing_large(
    tmp_path: Path, what: str, held: Callable[[], int]
) -> None:
    async with gateway([linger, much], tmp_path) as running:
        sessions = [await _session(running) for _ in range(MANY)]
        for headers in sessions:
            await _leave(running, *LARGE[what], headers)
        # a part of it is what is loaded by who comes first
        await until(lambda: held() < MANY * SIZE // 2)
        for headers in sessions:
            reader, writer = await _posted(running, _message("tools/list", {}), headers)
            assert b" 200 " in await reader.readline(), "the session is there"
            writer.close()


async def _leave(
    running: Running, method: str, params: dict[str, Any], headers: dict[str, str]
) -> None:
    """Go when there is an answer, or when the tool has begun that would never end."""
    begun.clear()
    ended.clear()
    number = None if method.startswith("notifications/") else 1
    reader, writer = await _posted(running, _message(method, params, number), headers)
    if params.get("arguments") == {"name": _large}:
        await until(lambda: begun)
        writer.transport.abort()
        await until(lambda: ended)
    else:
        assert b"HTTP/1.1 20" in await reader.readline()
        await reader.readuntil(b"\r\n\r\n" if number is None else b"\r\n0\r\n\r\n")
        writer.close()
    begun.clear()
    ended.clear()


async def test_a_greeting_is_kept_and_may_not_be_long(running: Running) -> None:
    said = json.loads(_greeting())
    said["params"]["capabilities"] = {"experimental": {"x": {"y": "z" * 70_000}}}
    answer = await post(running.url, said, GREETING)
    assert (answer.status_code, answer.json()["id"]) == (413, 1)
    assert "65,536 bytes" in answer.json()["error"]["message"]
