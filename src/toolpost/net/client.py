"""A client for requests on behalf of a tool: it connects where it may and follows nowhere else.

Above: the http backend, and sources that fetch. Below: httpcore2, ``dialling.py``, ``decoding.py``.
Every hop of a redirect is a new request, looked at as the first one was; credentials go to the
origin they are for. What fails is a ``CallError`` that says whether anything was sent, and of what
was asked for it names the host alone: the rest may hold a secret. It refuses to know what an answer
means.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from functools import cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_plus

import httpcore2
import msgspec

from toolpost.errors import (
    CallError,
    Denied,
    InvalidArguments,
    InvalidOutput,
    OutputTooLarge,
    ToolFailed,
    Unavailable,
)
from toolpost.net.decoding import ACCEPTED, Decoder, Undecodable
from toolpost.net.destination import Granted, Refused, Unresolved
from toolpost.net.dialling import Dialling
from toolpost.net.url import Url, joined

Pairs = tuple[tuple[str, str], ...]
_FOLLOWED: Final = frozenset((301, 302, 303, 307, 308))
_UNDONE: Final = frozenset((307, 308))
"""Answers that say: not done, send it again over there."""
_NEUTRAL: Final = frozenset(("accept", "accept-language", "user-agent"))
"""What another host may be told."""
_IDLE: Final = 15.0
"""Seconds that a connection is kept for the next request."""
_MOST_IDLE: Final = 20
_QUOTING: Final = 2.0
"""Seconds for what is only wanted as a quotation."""
_SLACK: Final = 64 * 1024


class Credentials(msgspec.Struct, frozen=True):
    """What proves who asks; it goes to the origin of the first URL and to no other."""

    headers: Pairs = ()
    query: Pairs = ()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request; its body is there as a whole."""

    method: str
    url: Url
    headers: Pairs = ()
    body: bytes | None = None
    type: str | None = None
    credentials: Credentials = Credentials()


class Lanes:
    """So many connections to one host at a time, whoever wants them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[tuple[str, int], tuple[asyncio.Semaphore, list[int]]] = {}

    @asynccontextmanager
    async def one(self, host: str, port: int, patience: float) -> AsyncIterator[None]:
        key = host, port
        lane, users = self._open.setdefault(key, (asyncio.Semaphore(self._most), [0]))
        users[0] += 1
        try:
            try:
                async with asyncio.timeout(patience):
                    await lane.acquire()
            except TimeoutError:
                raise Unavailable(
                    f"Too many requests to {host} are under way. Try again later.", effects="none"
                ) from None
            try:
                yield
            finally:
                lane.release()
        finally:
            users[0] -= 1
            if not users[0]:
                del self._open[key]


class Answer:
    """What came back: read it while the request is open."""

    def __init__(self, response: httpcore2.Response, url: Url) -> None:
        self.status = response.status
        self.url = url
        self.headers = [
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in response.headers
        ]
        self._response = response

    def header(self, name: str) -> str | None:
        """All that was said under a name, or ``None``."""
        said = [value for one, value in self.headers if one == name]
        return ", ".join(said) if said else None

    async def pieces(self, most: int) -> AsyncGenerator[bytes, None]:
        """The body, unpacked; ``OutputTooLarge`` as soon as it is longer than ``most``."""
        size = wire = 0
        try:
            decoder = Decoder(self.header("content-encoding") or "")
            async with aclosing(self._response.aiter_stream()) as stream:
                async for data in stream:
                    wire += len(data)
                    if wire > most + _SLACK:  # a great deal can amount to nothing
                        raise _too_large(self.url.host, most)
                    for piece in decoder.pieces(data):
                        size += len(piece)
                        if size > most:
                            raise _too_large(self.url.host, most)
                        yield piece
            decoder.finish()
        except Undecodable as fault:
            raise InvalidOutput(
                f"The answer of {self.url.host} cannot be read: {fault}. Use another tool."
            ) from None
        except _BROKEN as exc:
            raise _failed(exc, self.url.host, sent=True) from None

    async def read(self, most: int) -> bytes:
        """All of the body."""
        data = bytearray()
        async with aclosing(self.pieces(most)) as pieces:
            async for piece in pieces:
                data += piece
        return bytes(data)

    async def beginning(self, most: int) -> bytes:
        """The first of it, for an error to quote; whatever is wrong with the rest."""
        data = bytearray()
        with suppress(CallError, TimeoutError):
            async with asyncio.timeout(_QUOTING), aclosing(self.pieces(most)) as pieces:
                async for piece in pieces:
                    data += piece
        return bytes(data[:most])


class Proxy(NamedTuple):
    """A proxy that the config names: it resolves the names, and answers for where they lead."""

    url: str
    user: str = ""
    password: str = ""


class Client:
    """Requests under one grant; connections are kept for the next of them."""

    def __init__(
        self,
        granted: Granted,
        *,
        lanes: Lanes | None = None,
        trusted: str | None = None,
        proxy: Proxy | None = None,
    ) -> None:
        """``trusted`` is a file with certificates that are believed beside the system's."""
        self._granted = granted
        self._lanes = lanes or Lanes(10)
        self._trusted = trusted
        self._proxy = proxy
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}

    @asynccontextmanager
    async def answered(
        self, request: Request, *, redirects: int = 5, patience: float = 10.0
    ) -> AsyncIterator[Answer]:
        """The last answer of a request; ``patience`` are the seconds that connecting may take."""
        hop, sent = request, False
        for left in range(redirects, -1, -1):
            async with self._sent(hop, patience=patience, sent=sent) as answer:
                location = answer.header("location") if answer.status in _FOLLOWED else None
                if location is None or not redirects:
                    yield answer
                    return
                sent = sent or answer.status not in _UNDONE
                if not left:
                    break
                hop = _followed(hop, answer, location, sent=sent)
        raise ToolFailed(
            f"{request.url.host} redirected the request more than {redirects} times.",
            remedy="other_tool",
        )

    async def close(self) -> None:
        pools = list(self._pools.values())
        self._pools.clear()
        for pool in pools:
            await pool.aclose()

    @asynccontextmanager
    async def _sent(self, hop: Request, *, patience: float, sent: bool) -> AsyncIterator[Answer]:
        url = hop.url
        try:
            self._granted.verify(url.host, url.port)
        except Refused as fault:
            raise _failed(fault, url.host, sent=sent) from None
        async with self._lanes.one(url.host, url.port, patience):
            try:
                pool = await self._pool(url.scheme)
                response = await pool.handle_async_request(_wired(hop, patience))
            except (Refused, *_BROKEN) as exc:
                raise _failed(exc, url.host, sent=sent) from None
            try:
                yield Answer(response, url)
            finally:
                await response.aclose()

    async def _pool(self, scheme: str) -> httpcore2.AsyncConnectionPool:
        if scheme not in self._pools:
            context = None
            if scheme == "https":  # reading all certificates takes its time
                context = await asyncio.to_thread(_context, self._trusted)
            self._pools.setdefault(scheme, self._made(context))
        return self._pools[scheme]

    def _made(self, context: ssl.SSLContext | None) -> httpcore2.AsyncConnectionPool:
        proxy = self._proxy
        return httpcore2.AsyncConnectionPool(
            ssl_context=context,
            proxy=proxy
            and httpcore2.Proxy(
                proxy.url, auth=(proxy.user, proxy.password) if proxy.user else None
            ),
            max_connections=None,
            max_keepalive_connections=_MOST_IDLE,
            keepalive_expiry=_IDLE,
            network_backend=Dialling(self._granted) if proxy is None else None,
        )


@cache
def _context(trusted: str | None) -> ssl.SSLContext:
    context = httpcore2.default_ssl_context()
    if trusted is not None:
        context.load_verify_locations(cafile=trusted)
    return context


def _wired(hop: Request, patience: float) -> httpcore2.Request:
    headers = [("Host", hop.url.header), *hop.headers, *hop.credentials.headers]
    headers.append(("Accept-Encoding", ACCEPTED))
    if hop.body is not None:
        headers.append(("Content-Length", str(len(hop.body))))
        if hop.type is not None:
            headers.append(("Content-Type", hop.type))
    elif hop.method in ("POST", "PUT", "PATCH"):
        headers.append(("Content-Length", "0"))
    url, target = hop.url, _with_query(hop.url.target, hop.credentials.query)
    return httpcore2.Request(
        hop.method,
        httpcore2.URL(
            scheme=url.scheme,
            host=url.host,
            port=None if url.is_ordinary else url.port,
            target=target.encode("ascii"),
        ),
        headers=[(name.encode("ascii"), value.encode()) for name, value in headers],
        content=hop.body,
        extensions={"timeout": {"connect": patience, "pool": patience}},
    )


def _with_query(target: str, pairs: Pairs) -> str:
    """A credential in the query, unless the URL repeats it already."""
    there = {unquote_plus(one.partition("=")[0]) for one in target.partition("?")[2].split("&")}
    missing = [f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in pairs if k not in there]
    if not missing:
        return target
    return target + ("&" if "?" in target else "?") + "&".join(missing)


def _followed(hop: Request, answer: Answer, location: str, *, sent: bool) -> Request:
    """The next request, as the answer asks for it, or the reason why it is not made.

    What is not for another host is gone for good: it does not come back with a later redirect.
    """
    method, status = hop.method, answer.status
    became_get = (status in (301, 302) and method == "POST") or (
        status == 303 and method not in ("GET", "HEAD")
    )
    body = None if became_get else hop.body
    try:
        url = joined(hop.url, location)
        same = url.origin == hop.url.origin
        if hop.url.scheme == "https" and url.scheme == "http":
            raise Refused("it leads from https to http")
        if body is not None and not same:
            raise Refused("what was sent is not for another host")
    except Refused as fault:
        raise Denied(
            f"{hop.url.host} redirected the request, and that is not followed: {fault}. "
            "Use another tool.",
            effects="unknown" if sent else "none",
        ) from None
    changed: Request = msgspec.structs.replace(
        hop, method="GET" if became_get else method, url=url, body=body
    )
    return changed if same else _stripped(changed)


def _stripped(hop: Request) -> Request:
    """For another host: without what proves who asks, and without headers of the tool's own."""
    names = {name for name, _ in hop.credentials.query}
    stripped: Request = msgspec.structs.replace(
        hop,
        url=_without(hop.url, names),
        headers=tuple(pair for pair in hop.headers if pair[0].lower() in _NEUTRAL),
        credentials=Credentials(),
    )
    return stripped


def _without(url: Url, names: set[str]) -> Url:
    path, mark, query = url.target.partition("?")
    kept = [one for one in query.split("&") if unquote_plus(one.partition("=")[0]) not in names]
    if not names or len(kept) == query.count("&") + 1:
        return url
    return msgspec.structs.replace(url, target=path + (mark + "&".join(kept) if kept else ""))


_BROKEN: Final = (
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)
_BEFORE: Final = (
    Refused,
    httpcore2.ConnectError,
    httpcore2.ConnectTimeout,
    httpcore2.PoolTimeout,
    httpcore2.LocalProtocolError,
    httpcore2.ProxyError,
)
"""What happens before anything is sent."""


def _failed(exc: Exception, host: str, *, sent: bool) -> CallError:
    """What the failure of a request means: the one table of this edge."""
    effects = "unknown" if sent or not isinstance(exc, _BEFORE) else "none"
    kind: type[CallError] = Unavailable
    retryable = None
    if isinstance(exc, Unresolved):
        said = f"{exc}. Try again later."
    elif isinstance(exc, Refused):
        kind, said = Denied, f"This tool may not connect there: {exc}. Use another tool."
    elif isinstance(exc, httpcore2.LocalProtocolError):
        kind, said = InvalidArguments, "The request cannot be sent with these arguments."
    elif isinstance(exc, httpcore2.ConnectError) and isinstance(exc.args[0], ssl.SSLError):
        retryable, said = False, f"{host} could not prove that it is {host}. Use another tool."
    elif isinstance(exc, httpcore2.ConnectTimeout):
        said = f"{host} did not accept a connection in time. Try again later."
    elif isinstance(exc, httpcore2.ConnectError | httpcore2.ProxyError):
        said = f"There is no connection to {host}. Try again later."
    elif isinstance(exc, httpcore2.ProtocolError) and not _closed(exc):
        retryable, said = False, f"{host} does not speak HTTP as it should. Use another tool."
    else:
        said = f"The connection to {host} broke. Try again later."
    return kind(
        said,
        effects=effects,  # type: ignore[arg-type] # it is one of the words
        retryable=retryable,
        remedy="other_tool" if retryable is False else None,
    )


def _closed(exc: Exception) -> bool:
    """A connection that ended too soon is told as a fault of the protocol too."""
    return bool(re.search("disconnect|closed|incomplete|without", str(exc)))


def _too_large(host: str, most: int) -> OutputTooLarge:
    return OutputTooLarge(
        f"The answer of {host} is longer than {most:,} bytes. Ask for less at a time.",
        details={"limit": most},
    )
