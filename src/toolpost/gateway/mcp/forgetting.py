"""A session of the handshake forgets what was large.

Above: ``app.py``. Below: the SDK, in which a session has a loop for what comes and one for what
goes. Each keeps the last message until there is another, and that of what comes the whole request
with it: a client that has gone leaves them there until its session is idle for too long. So what
was large is followed by something small: a ping, which is answered.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import msgspec
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from toolpost.gateway.bodies import Receive, Scope

LARGE: Final = 8 * 1024
"""Bytes, of a request and its answer. What they are read into may be many times as large."""
SESSION: Final = b"mcp-session-id"
_WITHIN: Final = 10.0


async def follow(manager: StreamableHTTPSessionManager, scope: Scope) -> None:
    """Put something small after a request, if it was one of a session."""
    session = next((value for key, value in scope["headers"] if key == SESSION), None)
    if session is None:
        return
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": uuid4().hex, "method": "ping"})
    headers = [
        (b"accept", b"application/json, text/event-stream"),
        (b"content-type", b"application/json"),
        (SESSION, session),
    ]
    small = {"type": "http", "method": "POST", "headers": headers, "user": scope["user"]}
    with suppress(TimeoutError, RuntimeError):  # the server is closed
        async with asyncio.timeout(_WITHIN):
            await manager.handle_request(small, again(body, _nothing), _nowhere)


def again(body: bytes, receive: Receive) -> Receive:
    """The body once more, and then not here any longer; then whatever comes after it."""
    rest = [body]

    async def replay() -> Any:
        if rest:
            return {"type": "http.request", "body": rest.pop(), "more_body": False}
        return await receive()

    return replay


async def _nothing() -> Any:
    await asyncio.get_running_loop().create_future()


async def _nowhere(message: Any) -> None:
    pass
