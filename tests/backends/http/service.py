"""A service on loopback that answers as a test says, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from toolpost import Executor, Registry, ToolSpec

Writer = asyncio.StreamWriter


@dataclass
class Asked:
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        said = [value for one, value in self.headers if one == name.lower()]
        assert len(said) < 2, f"{name} was sent {len(said)} times"
        return said[0] if said else None


@dataclass
class Reply:
    body: bytes | str = b""
    status: int = 200
    type: str | None = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


Answers = Callable[[Asked], Reply | Callable[[Writer], Awaitable[None]]]


class Service:
    """``gone`` is set when a client has closed a connection before it was answered."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[Asked] = []
        self.host, self.port = "", 0
        self.connections = self.open = self.most_open = 0
        self.gone = asyncio.Event()

    @property
    def authority(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.authority}"

    async def attend(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        self.connections += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    asked = await _read(reader)
                    self.asked.append(asked)
                    self.open += 1
                    self.most_open = max(self.most_open, self.open)
                    try:
                        await self._answer(asked, reader, writer)
                    finally:
                        self.open -= 1
        finally:
            writer.close()

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: Writer) -> None:
        reply = self.answers(asked)
        if not isinstance(reply, Reply):
            work = asyncio.ensure_future(reply(writer))
            gone = asyncio.ensure_future(reader.read(1))
            try:
                await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not work.done():
                    self.gone.set()
                for task in (work, gone):
                    task.cancel()
                await asyncio.gather(work, gone, return_exceptions=True)
            raise ConnectionError
        body = reply.body.encode() if isinstance(reply.body, str) else reply.body
        headers = {"Content-Length": str(len(body)), **reply.headers}
        if reply.type is not None:
            headers["Content-Type"] = reply.type
        writer.write(head(reply.status, headers))
        writer.write(b"" if asked.method == "HEAD" else body)
        await writer.drain()


def head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _read(reader: asyncio.StreamReader) -> Asked:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("utf-8").split("\r\n")
    method, target, _ = lines[0].split(" ")
    pairs = [line.partition(": ") for line in lines[1:] if line]
    headers = [(name.lower(), value) for name, _, value in pairs]
    length = int(dict(headers).get("content-length", "0"))
    return Asked(method, target, headers, await reader.readexactly(length))


@contextlib.asynccontextmanager
async def serving(
    answers: Answers | None = None,
    *,
    host: str = "127.0.0.1",
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[Service]:
    service = Service(answers or (lambda _: Reply("{}")))
    tasks: set[asyncio.Task[Any]] = set()

    async def attend(reader: asyncio.StreamReader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError):
            await service.attend(reader, writer)

    server = await asyncio.start_server(attend, host, 0, ssl=context)
    service.host, service.port = host, server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def forever(_: Writer) -> None:
    await asyncio.get_running_loop().create_future()


def http(url: str, *services: Service, **options: Any) -> ToolSpec:
    """A tool that may ask these services; what is no field of a spec goes into its binding."""
    fields = {k: options.pop(k) for k in tuple(options) if k in ToolSpec.__struct_fields__}
    given: dict[str, Any] = {
        "name": "it",
        "description": "A service.",
        "kind": "http",
        "egress": tuple(service.authority for service in services),
        "input_schema": {"type": "object"},
        "timeout": 30,
        **fields,
    }
    return ToolSpec(**given, binding={"url": url, **options})


def schema(*required: str, **properties: Any) -> dict[str, Any]:
    """Texts that are needed, and what may be left out."""
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in required} | properties,
        "required": list(required),
        "additionalProperties": False,
    }


async def call(spec: ToolSpec, arguments: Any = None, /, **options: Any) -> Any:
    """One call of one tool, through the whole of a bare road."""
    secrets = options.pop("secrets", {})
    made = {k: options.pop(k) for k in ("settings", "backends", "guards") if k in options}
    async with Executor(Registry([spec]), secret=secrets.get, **made) as executor:
        async with asyncio.timeout(60):
            return await executor.execute(spec.name, arguments or {}, **options)
