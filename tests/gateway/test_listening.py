"""What a gateway listens on."""

from __future__ import annotations

import asyncio
import socket

import pytest

from toolpost.config import Config
from toolpost.gateway.serving import bind
from toolpost.gateway.settings import settings_of

pytestmark = pytest.mark.anyio


async def test_an_answer_does_not_wait_for_more_to_send() -> None:
    (listening,) = bind(settings_of(Config.of({"gateway": {"port": 0}})))
    delays: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def met(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        one = writer.get_extra_info("socket")
        delays.set_result(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(met, sock=listening), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        assert await delays == 1
        await reader.read()
        writer.close()
        await writer.wait_closed()
