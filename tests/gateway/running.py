"""A real server on loopback for the tests, in this process or in one of its own, and a client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from toolpost.clock import SystemClock
from toolpost.config import Config
from toolpost.gateway.access_log import AccessLog
from toolpost.gateway.app import Gateway, application
from toolpost.gateway.identity.callers import Identity
from toolpost.gateway.serving import Server, bind, server_of
from toolpost.gateway.settings import settings_of
from toolpost.jobs import Jobs
from toolpost.registry import Item
from toolpost.runtime import Runtime

JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass
class Client:
    """Asks a server; ``headers`` go with every request."""

    host: str
    port: int
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request on a connection of its own."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(
                request(
                    method,
                    path,
                    body,
                    {"host": f"{self.host}:{self.port}", **self.headers, **(headers or {})},
                )
            )
            async with asyncio.timeout(60):
                return await answer_from(reader)
        finally:
            writer.close()

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return await self.ask("GET", path, headers=headers)

    async def post(
        self, path: str, data: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        return await self.ask("POST", path, body, {**JSON, **(headers or {})})

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        body = {"arguments": dict(arguments or {}), **more}
        return await self.post(f"/v1/tools/{tool}:call", body, headers)


@dataclass(kw_only=True)
class Running(Client):
    """A server that runs in this process: ``runtime`` is what it serves."""

    gateway: Gateway
    server: Server

    @property
    def runtime(self) -> Runtime:
        return self.gateway.behind.runtime


def request(
    method: str, path: str, body: bytes | None, headers: Mapping[str, str], *, close: bool = True
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    if close:
        lines.append("connection: close")
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


async def answer_from(reader: asyncio.StreamReader) -> Answer:
    """The next answer on a connection, chunked or not."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ")[1])
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:]) if k}
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Answer(status, headers, body)


def events(body: bytes) -> list[tuple[str, Any]]:
    """The server-sent events of a body."""
    found = []
    for block in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


@asynccontextmanager
async def serving(
    folder: Path,
    *tools: Item,
    settings: Mapping[str, Any] | None = None,
    access_log: AccessLog | None = None,
    jobs: bool = False,
    **gateway: Any,
) -> AsyncIterator[Running]:
    """A server with these tools; ``settings`` is the config, ``gateway`` its table of that name."""
    table = {"port": 0, "access_log": False, **gateway}
    config = Config.of({"watch": False, **(settings or {}), "gateway": table}, base=folder)
    chosen = settings_of(config)
    async with Runtime(config, tools=tools) as runtime:
        identity = Identity.of(chosen.auth, records=runtime.store, clock=SystemClock())
        await identity.open()
        kept = Jobs(runtime) if jobs else None
        if kept is not None:
            await kept.open()
        app = application(runtime, chosen, identity=identity, jobs=kept, access_log=access_log)
        sockets = bind(chosen)
        host, port = sockets[0].getsockname()[:2]
        server = server_of(app)
        task = asyncio.create_task(server.serve(sockets))
        try:
            async with asyncio.timeout(20):
                while not server.started:
                    await asyncio.sleep(0.005)
            yield Running(host, port, gateway=app, server=server)
        finally:
            server.should_exit = True
            async with asyncio.timeout(60):
                await task
            if kept is not None:
                await kept.close()
            await identity.close()
