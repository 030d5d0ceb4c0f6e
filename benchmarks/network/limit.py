"""The limit: bare ASGI, the headers of the exchange checked, and a governed call in between.

Not a design anyone should keep: it reads the one kind of request that is measured, and has no
answer to any other. What it does not do, a gateway must: ask who calls and from where, read JSON
strictly, bound bodies and times, log. The governed call is toolpost's default chain; ``fused`` has
the bare road fused by hand in its place, so that what governing costs can be seen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from benchmarks.cases import add
from benchmarks.limit import Limit
from benchmarks.network.asgi import App, Opens, Receive, Send, answer
from toolpost import Caller, Runtime, tool
from toolpost.config import Config, Settings

Execute = Callable[[str, dict[str, Any]], Awaitable[Any]]


class _Params(msgspec.Struct):
    name: str
    arguments: dict[str, Any]


class _Asked(msgspec.Struct):
    id: int | str
    method: str
    params: _Params


_decode, _encode = msgspec.json.Decoder(_Asked).decode, msgspec.json.Encoder().encode


@asynccontextmanager
async def governed() -> AsyncIterator[App]:
    with TemporaryDirectory(prefix="toolpost-bench-") as folder:
        config = Config(Settings(watch=False), Path(folder))
        async with Runtime(config, tools=[tool(tier=0, effects="read")(add)]) as runtime:
            execute, caller = runtime.execute, Caller("local", owner=True)
            yield _by_hand(lambda name, arguments: execute(name, arguments, caller))


@asynccontextmanager
async def fused() -> AsyncIterator[App]:
    tools = Limit(stamped=True)
    tools.add("add", add)
    yield _by_hand(tools.execute)


def _by_hand(execute: Execute) -> App:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        message = await receive()
        body = message["body"]
        while message["more_body"]:
            message = await receive()
            body += message["body"]
        asked = _decode(body)
        name = asked.params.name
        if (
            headers.get(b"mcp-protocol-version") != b"2026-07-28"
            or headers.get(b"mcp-method") != asked.method.encode()
            or headers.get(b"mcp-name") != name.encode()
        ):
            await answer(send, 400, b"")
            return
        output = (await execute(name, asked.params.arguments)).output
        result = {
            "content": [{"type": "text", "text": _encode(output).decode()}],
            "structuredContent": {"result": output},
            "resultType": "complete",
        }
        await answer(send, 200, _encode({"jsonrpc": "2.0", "id": asked.id, "result": result}))

    return app


APPS: dict[str, Opens] = {"governed": governed, "fused": fused}
