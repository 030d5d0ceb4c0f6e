"""The wire to a server behind a URL: the SDK's streamable HTTP, over connections of ours.

Above: ``session.py``. Below: ``net``, which connects to the host and port that the config names and
to no other address than the one it has looked at. Redirects are followed within the origin only,
answers are bounded, and nothing is taken from the environment. A status that is no success would be
lost on its way through the SDK, so it travels as an error of the protocol, with our mark on it. It
refuses to know what the messages mean.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import httpcore2
import httpx2
import mcp_types as types
import msgspec
from mcp.client.streamable_http import streamable_http_client

from toolpost.backends.http.statuses import phrase
from toolpost.backends.mcp.wire import MOST_MESSAGE, UNAUTHORIZED, Over, Streams
from toolpost.net.destination import Granted
from toolpost.net.dialling import Dialling
from toolpost.net.url import url_from
from toolpost.net.waiting import retry_after

_PATIENCE: Final = httpx2.Timeout(30.0, read=None)
"""Of an answer only the call knows how long it may take."""
_STREAM: Final = b"text/event-stream"
_SESSION: Final = "mcp-session-id"
_MOST_ERROR: Final = 64 * 1024
"""Bytes of an error's body that are looked at."""
_BY_ITSELF: Final = frozenset((401, 403, 407, 429, 502, 503, 504))
"""Statuses that say what is wrong, be there an error of the protocol in the body or not."""
_MARK: Final = os.urandom(16).hex()
"""No server can say that."""


class Refusal(msgspec.Struct, frozen=True):
    """That a request was answered with a status that is no success."""

    by: str
    status: int
    retry_after: float | None = None


def refusal_in(data: Any) -> Refusal | None:
    """What was put into an error of the protocol here, and by nobody else."""
    try:
        found = msgspec.convert(data, Refusal)
    except msgspec.ValidationError:
        return None
    return found if found.by == _MARK else None


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
        if answer.status >= 400:
            if request.method == "POST" and not _is_forgotten(request, answer):
                return await _told(answer)
            if answer.status == 401:  # of a stream that nobody waits for
                self._over(UNAUTHORIZED)
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Bounded(answer),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


def _is_forgotten(request: httpx2.Request, answer: httpcore2.Response) -> bool:
    """So a server says that it does not know the session any more; the SDK knows that."""
    return answer.status == 404 and _SESSION in request.headers


async def _told(answer: httpcore2.Response) -> httpx2.Response:
    """The same refusal as an error of the protocol; one that the server gave itself is passed on,
    unless the status says more.
    """
    body = bytearray()
    async with aclosing(answer):
        async for piece in answer.aiter_stream():
            body += piece
            if len(body) > _MOST_ERROR:
                break
    fault = _said(bytes(body[:_MOST_ERROR]))
    if fault is None or answer.status in _BY_ITSELF:
        words = f": {fault.message}" if fault is not None and fault.message else "."
        waits = {name.lower(): value for name, value in answer.headers}.get(b"retry-after", b"")
        about = Refusal(_MARK, answer.status, retry_after(waits.decode("ascii", "replace")))
        fault = _Fault(types.INTERNAL_ERROR, f"answered {phrase(answer.status)}{words}", about)
    return httpx2.Response(
        status_code=answer.status,
        headers={"content-type": "application/json"},
        content=msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": fault}),
    )


class _Fault(msgspec.Struct, frozen=True):
    code: int
    message: str
    data: Any = None


class _Body(msgspec.Struct, frozen=True):
    error: _Fault


def _said(body: bytes) -> _Fault | None:
    """The error of the protocol, if that is what a body is."""
    try:
        return msgspec.json.decode(body, type=_Body).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


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
