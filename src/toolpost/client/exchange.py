"""One request to the gateway and its answer, or a ``CallError`` that says what may have been done.

Above: the client and its parts. Below: ``net``, which connects to the one host and port that were
named, and follows no redirect: the key goes nowhere else. What is no answer of a gateway is told as
trouble on the way, never as a result. It refuses to know what an answer is about.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from toolpost.client.events import Event, events
from toolpost.document.strict import NotStrictJson, strict_json
from toolpost.errors import CallError, ConfigError, InvalidArguments, Outcome, TimedOut, Unavailable
from toolpost.known import remember
from toolpost.net.client import Answer, Credentials, Lanes, Pairs, Request
from toolpost.net.client import Client as HttpClient
from toolpost.net.destination import Granted, Refused, is_public, resolved
from toolpost.net.url import Url, url_from
from toolpost.net.words import plainly
from toolpost.result import Failure, Metadata, Result

_CREDENTIAL: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,8000}")
_PATIENCE: Final = 10.0
"""Seconds until a connection is there."""
_GRACE: Final = 2.0
"""Seconds beyond a call's own timeout: the gateway is to say it first."""
_LONGEST: Final = 86_400.0
"""Seconds that a gateway lets a call take."""
_LARGEST: Final = 256 * 1024 * 1024
_ENDLESS: Final = 2**60
"""Bytes of a stream of events; each of them is bounded."""
_SILENCE: Final = 60.0
"""Seconds without a byte in a stream: a gateway gives a sign of life every fifteen."""
_AT_ONCE: Final = 1000
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_MOVED, _BAD = 300, 400
_UNDONE: Final = (307, 308)
"""Redirects that say: not done here."""


class Trouble(Unavailable):
    """The gateway cannot be asked, or what answers is none."""


class Exchange:
    """Requests to one gateway; connections are kept for the next of them."""

    def __init__(
        self, url: str, *, key: str | None, agent: str | None, trusted: str | None, longest: float
    ) -> None:
        self._base = _address(url)
        self._longest = longest
        self._credentials = Credentials() if key is None else _credentials(key)
        self._headers: Pairs = (("User-Agent", "toolpost"),)
        if agent is not None:
            self._headers += (("Toolpost-Agent", header("agent", agent)),)
        exposed = key is not None and self._base.scheme == "http"
        granted = Granted((self._base.authority,), resolve=inner if exposed else resolved)
        if exposed:
            _demand_inner(self._base)
        self._http = HttpClient(granted, lanes=Lanes(_AT_ONCE), trusted=trusted)

    async def close(self) -> None:
        await self._http.close()

    async def data(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Pairs = (),
        status: int = 200,
    ) -> Any:
        """The JSON of an answer with this status; a failure is raised."""
        accept = ("Accept", _JSON)
        async with self._asked(method, path, query, body, (accept, *headers)) as answer:
            text = await answer.read(_LARGEST)
        self._demand(answer, text)
        if answer.status != status:
            raise self._foreign(answer)
        return self._decoded(text)

    async def piece(self, path: str, *, first: int, length: int) -> bytes:
        """Some bytes of what is there, or as many of them as there are."""
        wanted = ("Range", f"bytes={first}-{first + length - 1}")
        async with self._asked("GET", path, None, None, (wanted,)) as answer:
            text = await answer.read(_LARGEST)
        self._demand(answer, text)
        partly = answer.status == 206
        return text[:length] if partly else text[first : first + length]

    async def result(
        self,
        path: str,
        *,
        body: Any,
        headers: Pairs = (),
        timeout: float | None = None,
        hear: Callable[[Event], None] | None = None,
    ) -> Result:
        """The result of a call, of a failed one too; ``hear`` is told what comes before it."""
        accept = ("Accept", _JSON if hear is None else f"{_EVENTS}, {_JSON}")
        limit = self._longest if timeout is None else _bounded(timeout) + _GRACE
        said: Any = None
        async with self._asked("POST", path, None, body, (accept, *headers), limit) as answer:
            if hear is None or not _is_stream(answer):
                text = await answer.read(_LARGEST)
                said = self._decoded(text) if answer.status < _MOVED else None
            else:
                said = await self._heard(answer, hear)
        if answer.status >= _MOVED:
            if (failed := _problem(text)) is None:
                raise self._foreign(answer)
            return failed
        return self._result(said)

    async def follow(self, path: str) -> AsyncGenerator[Event, None]:
        """The events of something that goes on, until the gateway ends them."""
        accept = ("Accept", _EVENTS)
        async with self._asked("GET", path, None, None, (accept,), endless=True) as answer:
            if _is_stream(answer):
                async with aclosing(self._events(answer)) as told:
                    async for event in told:
                        yield event
                return
            text = await answer.read(_LARGEST)
        self._demand(answer, text)
        raise self._foreign(answer)

    async def _heard(self, answer: Answer, hear: Callable[[Event], None]) -> Any:
        """The data of the result, once everything before it was heard."""
        async with aclosing(self._events(answer)) as told:
            async for event in told:
                if event.name == "result":
                    return event.data
                hear(event)
        raise self._trouble("its answer ended before there was a result")

    @asynccontextmanager
    async def _asked(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        headers: Pairs,
        limit: float = _SILENCE,
        endless: bool = False,
    ) -> AsyncIterator[Answer]:
        """The answer, to be read inside: all of it within ``limit`` seconds, or its beginning."""
        request = self._request(method, path, query, body, headers)
        patience = min(_PATIENCE, limit)
        try:
            async with (
                asyncio.timeout(limit) as clock,
                self._http.answered(request, redirects=0, patience=patience) as answer,
            ):
                if endless:
                    clock.reschedule(None)
                yield answer
        except TimeoutError:
            raise TimedOut(f"{self._name} did not answer within {limit:g} s.") from None
        except Trouble:
            raise
        except CallError as fault:
            unsent = fault.effects == "none"
            raise self._trouble(
                plainly(fault),
                effects="none" if unsent else "unknown",
                final=not (isinstance(fault, Unavailable) and fault.retryable),
            ) from None

    async def _events(self, answer: Answer) -> AsyncGenerator[Event, None]:
        try:
            async with (
                aclosing(answer.pieces(_ENDLESS)) as pieces,
                aclosing(events(pieces, silence=_SILENCE)) as told,
            ):
                async for one in told:
                    yield one
        except ValueError as fault:
            raise self._trouble(f"its events cannot be read: {fault}") from None

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        headers: Pairs,
    ) -> Request:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = self._base.target + path + (f"?{urlencode(given)}" if given else "")
        return Request(
            method=method,
            url=msgspec.structs.replace(self._base, target=target),
            headers=(*self._headers, *headers),
            body=None if body is None else _encoded(body),
            type=None if body is None else _JSON,
            credentials=self._credentials,
        )

    def _demand(self, answer: Answer, text: bytes) -> None:
        """Raise what the gateway says is wrong, or that this is no gateway."""
        if answer.status >= _MOVED:
            if (failed := _problem(text)) is None:
                raise self._foreign(answer)
            failed.raise_for_error()

    def _decoded(self, text: bytes) -> Any:
        try:
            return strict_json(text, "answer")
        except NotStrictJson:
            raise self._trouble("its answer cannot be read", final=True) from None

    def _result(self, data: Any) -> Result:
        try:
            if type(data) is dict and "metadata" in data and type(data["success"]) is bool:
                result = Result.from_dict(data)
                if result.success is data["success"]:
                    return result
        except (msgspec.ValidationError, KeyError):
            pass
        raise self._trouble("its answer is not a result", final=True)

    def foreign(self) -> CallError:
        """An answer that is JSON, and not what was asked for."""
        return self._trouble("its answer is not what a gateway says", final=True)

    def cut(self) -> CallError:
        """Of something that goes on: the news ended before it did."""
        return self._trouble("it stopped telling what goes on", effects="none")

    def _foreign(self, answer: Answer) -> CallError:
        if _MOVED <= answer.status < _BAD:
            done: Outcome = "none" if answer.status in _UNDONE else "unknown"
            why = "it redirects to another address, where a key must not go: give that one"
            return self._trouble(why, effects=done, final=True)
        why = f"it answers with status {answer.status} and not as a gateway does"
        return self._trouble(why, final=answer.status < 500)

    def _trouble(self, why: str, *, effects: Outcome = "unknown", final: bool = False) -> Trouble:
        return Trouble(
            f"{self._name} cannot be used: {why[:1].lower()}{why[1:]}.",
            effects=effects,
            retryable=not final,
            remedy="stop" if final else None,
        )

    @property
    def _name(self) -> str:
        return f"The gateway at {self._base.scheme}://{self._base.header}"


def _bounded(timeout: Any) -> float:
    """Seconds to wait for a call; what is no number of seconds, the gateway refuses at once."""
    number = type(timeout) in (int, float)
    return float(min(max(timeout, 0.0), _LONGEST)) if number else _LONGEST


def inside(path: str) -> str:
    """A name as one step of a path."""
    return quote(path, safe="")


def header(name: str, text: str) -> str:
    """A text that a header can hold as it is."""
    if not (0 < len(text) <= 255 and text.isascii() and text.isprintable()):
        raise InvalidArguments(f"{name} must have 1 to 255 printable ASCII characters.")
    return text


def _address(text: str) -> Url:
    try:
        url = url_from(text)
        if "?" in url.target:
            raise Refused("it has a query")
    except Refused as fault:
        raise ConfigError(f"the URL of the gateway cannot be used: {fault}") from None
    base: Url = msgspec.structs.replace(url, target=url.target.rstrip("/"))
    return base


def _credentials(key: str) -> Credentials:
    if not _CREDENTIAL.fullmatch(key):
        raise ConfigError("the key of the gateway is neither an API key nor a token")
    remember(key)  # wherever it turns up from now on, it is taken out
    return Credentials(headers=(("Authorization", f"Bearer {key}"),))


def _demand_inner(base: Url) -> None:
    try:
        public = is_public(ip_address(base.host))
    except ValueError:
        return  # a name: seen when it is looked up
    if public:
        raise ConfigError(f"over http:// anybody on the way can read the key: {_SAFER}")


_SAFER: Final = "use https://, or an address of this machine or network"


async def inner(host: str, port: int) -> Sequence[str]:
    """As the resolver says, for what may be read on the way: never out of the house."""
    found = await resolved(host, port)
    if any(is_public(ip_address(one.partition("%")[0])) for one in found):
        raise Refused(f"over http:// anybody on the way to {host} can read the key: {_SAFER}")
    return found


def _encoded(body: Any) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        raise InvalidArguments("What is to be sent is not JSON.") from None


def _is_stream(answer: Answer) -> bool:
    kind = answer.header("content-type") or ""
    return answer.status == 200 and kind.partition(";")[0].strip().lower() == _EVENTS


def _problem(text: bytes) -> Result | None:
    """The failure that a gateway tells; ``None``: it is none of a gateway's."""
    try:
        said = strict_json(text, "answer")
        error = msgspec.convert({**said, "message": said["detail"]}, Failure)
        about = msgspec.convert(said.get("metadata", {}), Metadata)
    except (msgspec.MsgspecError, KeyError, ValueError, TypeError, AttributeError):
        return None
    return Result(error=error, metadata=about)
