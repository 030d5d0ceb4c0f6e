"""The wire to a server behind a URL: the SDK's streamable HTTP, over connections of ours.

Above: ``session.py``. Below: ``net``, which connects to the host and port that the config names and
to no other address than the one it has looked at. Redirects are followed within the origin only,
answers are bounded, and nothing is taken from the environment. It refuses to know what the messages
mean.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import httpcore2
import httpx2
from mcp.client.streamable_http import streamable_http_client

from toolpost.backends.mcp.wire import MOST_MESSAGE, Over, Streams
from toolpost.net.destination import Granted
from toolpost.net.dialling import Dialling
from toolpost.net.url import url_from

_PATIENCE: Final = httpx2.Timeout(30.0, read=None)
"""Of an answer only the call knows how long it may take."""
_STREAM: Final = b"text/event-stream"
UNAUTHORIZED: Final = "unauthorized"
_UNAUTHORIZED: Final = 401


@asynccontextmanager
async def remote_streams(
    url: str, headers: Mapping[str, str], over: Over
) -> AsyncIterator[Streams]:
    """``over`` hears when what we prove ourselves with is not accepted."""
    granted = Granted([url_from(url).authority])
    headers = {"accept-encoding": "identity", "user-agent": "toolpost", **headers}
    async with (
        httpx2.AsyncClient(
            transport=_Guarded(granted, over), headers=headers, timeout=_PATIENCE, trust_env=False
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MOST_MESSAGE) as (
            read,
            write,
        ),
    ):
        yield read, write


class _Guarded(httpx2.AsyncBaseTransport):
    def __init__(self, granted: Granted, over: Over) -> None:
        self._over = over
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(trust_env=False),
            network_backend=Dialling(granted),
            keepalive_expiry=15.0,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        url = httpcore2.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        answer = await self._pool.handle_async_request(
            httpcore2.Request(
                method=request.method,
                url=url,
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        if answer.status == _UNAUTHORIZED:
            self._over(UNAUTHORIZED)
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Bounded(answer),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """A body up to a bound; of a stream of events each has its own."""

    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer
        about = {name.lower(): value for name, value in answer.headers}
        self._endless = about.get(b"content-type", b"").lower().startswith(_STREAM)
        self._packed = about.get(b"content-encoding", b"identity").lower() != b"identity"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._packed:
            raise httpx2.DecodingError("the answer is packed in a way that was not asked for")
        size = 0
        async for piece in self._answer.aiter_stream():
            size += len(piece)
            if size > MOST_MESSAGE and not self._endless:
                raise httpx2.DecodingError(f"the answer is longer than {MOST_MESSAGE:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()
