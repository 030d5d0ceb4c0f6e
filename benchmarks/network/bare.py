"""Bare ASGI: the body is taken and not read, and the answer is always the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.network.asgi import App, Opens, Receive, Send, answer

_FIXED = b'{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"result":5}}}'


@asynccontextmanager
async def fixed() -> AsyncIterator[App]:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await receive()
        await answer(send, 200, _FIXED)

    yield app


APPS: dict[str, Opens] = {"fixed": fixed}
