"""What the tests of the MCP server share: tools, a server that is really there, and clients."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from toolpost import Caller, Runtime
from toolpost.clock import SystemClock
from toolpost.config import Config
from toolpost.contracts import Elicits
from toolpost.gateway.access_log import AccessLog
from toolpost.gateway.app import application
from toolpost.gateway.connection import protocol
from toolpost.gateway.identity.callers import Identity
from toolpost.gateway.inflight import InFlight
from toolpost.gateway.mcp.app import mounted
from toolpost.gateway.mcp.asking import ask
from toolpost.gateway.mcp.settings import McpSettings
from toolpost.gateway.settings import GatewaySettings, settings_of
from toolpost.jobs import Jobs

WITHIN = 60.0
MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
LOCAL = Caller(id="local", owner=True)
META = "io.modelcontextprotocol/"


class Running:
    """A server on loopback. ``caller`` is who every request comes from, until it is changed."""

    def __init__(self, runtime: Runtime, app: Any) -> None:
        self.runtime, self._app = runtime, app
        self.caller: Caller | None = LOCAL
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            given = None if self.caller is None else {"toolpost.caller": self.caller}
            await self._app({**scope, **(given or {})}, receive, send)


@asynccontextmanager
async def serving(
    tools: Sequence[Any],
    base: Path,
    *,
    settings: McpSettings | None = None,
    within: float = WITHIN,
    **config: Any,
) -> AsyncIterator[Running]:
    data = {"store": {"kind": "memory"}, "observers": [], "guards": [], **config}
    given = {Elicits: ask}
    async with (
        asyncio.timeout(within),
        Runtime(Config.of(data, base=base), tools=tools, provide=given) as runtime,
        mounted(runtime, settings) as app,
    ):
        running = Running(runtime, app)
        async with listening(running) as address:
            running.url = f"{address}/mcp"
            yield running


@asynccontextmanager
async def gateway(
    tools: Sequence[Any],
    base: Path,
    *,
    within: float = WITHIN,
    mcp: Any = None,
    table: Mapping[str, Any] | None = None,
    access_log: AccessLog | None = None,
    **config: Any,
) -> AsyncIterator[Running]:
    """The whole gateway, with everything that stands in front of its MCP server."""
    table = {"port": 0, "access_log": False, "mcp": mcp or {}, **(table or {})}
    data = {"store": {"kind": "memory"}, "observers": [], "guards": [], **config}
    chosen = Config.of({**data, "gateway": table}, base=base)
    settings = settings_of(chosen)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(within))
        given = Runtime(chosen, tools=tools, provide={Elicits: ask})
        runtime = await stack.enter_async_context(given)
        identity = Identity.of(settings.auth, records=runtime.store, clock=SystemClock())
        await identity.open()
        stack.push_async_callback(identity.close)
        jobs = await stack.enter_async_context(Jobs(runtime))
        inflight = InFlight(settings.calls_each)
        app = await stack.enter_async_context(
            mounted(runtime, settings.mcp, jobs=jobs, inflight=inflight)
        )
        served = application(
            runtime, settings, identity=identity, mcp=app, access_log=access_log, inflight=inflight
        )
        running = Running(runtime, served)
        running.caller = None
        running.url = f"{await stack.enter_async_context(listening(running))}/mcp"
        yield running


async def ended(
    words: Sequence[str], *, seconds: float = 60.0, **environment: str
) -> tuple[int, str, str]:
    """How a program ended, and what it said."""
    child = await asyncio.create_subprocess_exec(
        *words, stdin=-3, stdout=-1, stderr=-1, env={**os.environ, **environment}
    )
    try:
        out, err = await asyncio.wait_for(child.communicate(), seconds)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode is not None
    return child.returncode, out.decode(), err.decode()


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """A real server in this process, whose connections behave as the gateway's."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            port=0,
            lifespan="off",
            log_config=None,
            http=protocol(GatewaySettings()),
            timeout_graceful_shutdown=1,
        )
    )
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
        if task.done():
            await task
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task


async def until(what: Callable[[], object], within: float = 20.0) -> None:
    """Wait, looking often; the caller's test says what for."""
    async with asyncio.timeout(within):
        while not what():
            await asyncio.sleep(0.01)


def envelope(can: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """What a request of the later revision says of its client."""
    return {
        f"{META}protocolVersion": MODERN,
        f"{META}clientInfo": {"name": "test", "version": "1"},
        f"{META}clientCapabilities": dict(can or {}),
        **more,
    }


def headers_for(method: str, name: str | None = None) -> dict[str, str]:
    named = {} if name is None else {"Mcp-Name": name}
    return {
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": method,
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        **named,
    }


async def post(
    url: str, body: Any, headers: Mapping[str, str], *, seconds: float = 20.0
) -> httpx2.Response:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with httpx2.AsyncClient(timeout=seconds, verify=False, trust_env=False) as client:
        return await client.post(url, content=data, headers=dict(headers))


def call_of(name: str, arguments: Any = None, **params: Any) -> dict[str, Any]:
    """The message of a call of the later revision."""
    given = {"name": name, "arguments": arguments or {}, "_meta": envelope(), **params}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": given}


async def call(
    url: str, name: str, arguments: Any = None, *, slowly: bool = False, **params: Any
) -> Any:
    """One call, by hand, and the answer's body. ``slowly``: by the way that the SDK serves."""
    headers = headers_for("tools/call", name)
    if slowly:
        headers["Accept"] = "*/*"
    answer = await post(url, call_of(name, arguments, **params), headers)
    assert answer.headers["content-type"].startswith("application/json"), answer.text
    return answer.json()
