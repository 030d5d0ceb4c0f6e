"""Connections that lead where they were looked at: resolve, check every address, connect to those.

Above: ``client.py``, and any other pool of httpcore2. Below: ``destination.py`` and the network.
There is no second look-up between the check and the connection. It refuses to know HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import httpcore2

from toolpost.net.destination import Granted

_PATIENCE: Final = 30.0
_MOST: Final = 4
"""Addresses of one name that are tried."""


class Dialling(httpcore2.AsyncNetworkBackend):
    """What a pool connects with; raises ``Refused`` where it may not."""

    def __init__(self, granted: Granted) -> None:
        self._granted = granted
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        clock = asyncio.get_running_loop().time
        end = clock() + (timeout or _PATIENCE)
        try:
            async with asyncio.timeout_at(end):
                addresses = (await self._granted.addresses(host, port))[:_MOST]
        except TimeoutError:
            raise httpcore2.ConnectTimeout("the name was not resolved in time") from None
        for left in range(len(addresses) - 1, -1, -1):
            try:
                return await self._network.connect_tcp(
                    addresses[-1 - left],
                    port,
                    timeout=max(end - clock(), 0.0) / (left + 1),
                    local_address=local_address,
                    socket_options=socket_options,
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if not left:
                    raise
        raise httpcore2.ConnectError("no address")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
