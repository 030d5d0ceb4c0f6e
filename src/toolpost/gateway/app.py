"""The application: who asks, from where, and which route it is for.

    Host and Origin → who asks → route

Above: the server. Below: the routes. Calls take a way of their own, in raw ASGI; Starlette has the
others. Whatever goes wrong ends here as a problem, and every request is one line of the access log.
What a caller may do with a tool is for the road to decide.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, Final, Protocol

from toolpost.call import Caller
from toolpost.errors import CallError, Denied, ToolNotFound
from toolpost.gateway.access_log import AccessLog
from toolpost.gateway.answers import WHOLE, send_broken, send_bytes, send_fault, send_json
from toolpost.gateway.behind import CALLER, Behind
from toolpost.gateway.bodies import Gone, Receive, Scope, Send
from toolpost.gateway.identity.origins import Origins
from toolpost.gateway.identity.watch import CredentialWatch
from toolpost.gateway.inflight import InFlight, cut_off, this_task
from toolpost.gateway.nats import NatsDoor
from toolpost.gateway.problems import Refused
from toolpost.gateway.rest.calls import CALL, TOOL, Answered, Calls
from toolpost.gateway.rest.routes import rest
from toolpost.gateway.rest.streaming import LAST
from toolpost.gateway.settings import GatewaySettings
from toolpost.gateway.siblings import Siblings
from toolpost.jobs import Jobs
from toolpost.jobs.gravity import gravest
from toolpost.runtime import Runtime
from toolpost.spec import Effects

_log = logging.getLogger("toolpost.gateway")
_TOOLS: Final = "/v1/tools/"
_CALL: Final = ":call"
_ONCE: Final = frozenset(
    (
        *(b"host", b"origin", b"authorization", b"content-type", b"content-length"),
        *(b"content-encoding", b"idempotency-key", b"transfer-encoding"),
    )
)
"""Headers that mean nothing when there are two of them: who reads which?"""
_ALIVE: Final = "/healthz"
_ABOUT: Final = "/.well-known/oauth-protected-resource"
_OPEN: Final = frozenset((_ALIVE, "/readyz"))
"""What whoever watches over the process asks, without saying who they are."""
_GONE: Final = 499
"""Nobody had this status: the client went away first."""
_REFUSED: Final = 401
NOBODY: Final = Caller("nobody")
_WATCHED: Final = "toolpost.watched"
"""Where the scope has the task of a request that came with a credential."""
_EXPOSED: Final = b"toolpost-call-id, location, retry-after, www-authenticate"


class Identifies(Protocol):
    """Says who asks: at once where it knows, else after a look."""

    def known(self, authorization: bytes | None) -> Caller | None: ...

    async def caller(
        self, authorization: bytes | None, *, agent: str | None = None, peer: str | None = None
    ) -> Caller: ...

    @property
    def metadata(self) -> Mapping[str, Any] | None: ...

    @property
    def watch(self) -> CredentialWatch: ...

    def ended(self, *, effects: Effects) -> CallError: ...


class Mcp(Protocol):
    """What answers at ``/mcp``; ``leave`` ends the streams that nobody else would end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    async def plain(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
        send: Send,
        caller: Caller,
    ) -> Answered | Receive:
        """Answer the plainest of calls; of any other, what is to be received for it."""

    def leave(self) -> None: ...


class Gateway:
    """An ASGI application. It is given what it serves, open, and closes none of it."""

    def __init__(
        self,
        behind: Behind,
        identity: Identifies,
        *,
        origins: Origins,
        mcp: Mcp | None = None,
        access_log: AccessLog | None = None,
    ) -> None:
        self.behind = behind
        self._identity = identity
        self._known, self._caller = identity.known, identity.caller
        self._watch = identity.watch
        self._refused = origins.refused
        self._calls = Calls(behind)
        self._mcp = mcp
        self._log = access_log
        self._rest = rest(behind, self._calls, identity)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await _otherwise(scope, receive, send)
        if self._log is None:
            await self._answer(scope, receive, send)
            return None
        began = perf_counter()
        status, call_id = 0, None
        try:
            status, call_id = await self._answer(scope, receive, send)
        finally:
            client, caller = scope.get("client"), scope.get(CALLER)
            self._log.note(
                scope["method"],
                scope["path"],
                status=status,
                began=began,
                peer=client and client[0],
                caller=caller and caller.id,
                call_id=call_id,
            )
        return None

    def leave(self) -> None:
        """The server is stopping: what only listens is not waited for."""
        self.behind.inflight.stopping = True
        if self._mcp is not None:
            self._mcp.leave()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> tuple[int, str | None]:
        """Whatever happens, an answer, unless nobody is there to have it."""
        try:
            return await self._routed(scope, receive, send)
        except CallError as fault:
            too_large = isinstance(fault, Refused) and fault.status == 413
            return await send_fault(send, fault, close=too_large), None
        except Gone:
            return _GONE, scope.get(CALL)
        except asyncio.CancelledError:
            if self._has_ended(scope):
                await self._watch.told(scope[_WATCHED])
                return _REFUSED, scope.get(CALL)
            # The end of the request's own task: the client has gone, or the server is stopping.
            status = await self._stopped(scope, send)
            return status if self.behind.inflight.stopping else _GONE, scope.get(CALL)
        except Exception as broken:  # noqa: BLE001 - the end of the line: a fault of our own
            if self._has_ended(scope):  # what it wanted to send is not sent any more
                await self._watch.told(scope[_WATCHED])
                return _REFUSED, scope.get(CALL)
            with suppress(RuntimeError):
                await send_broken(send, broken)
            return 500, None
        finally:
            if (task := scope.pop(_WATCHED, None)) is not None:
                self._watch.leave(task)

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> tuple[int, str | None]:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if len(headers) != len(scope["headers"]):
            _refuse_doubles(scope["headers"])
        origin = headers.get(b"origin")
        why = self._refused(headers.get(b"host"), origin)
        if why is not None:
            raise Denied(why)
        path, method = scope["path"], scope["method"]
        if origin is not None:
            if method == "OPTIONS":
                return await _preflight(send, origin, headers), None
            send = _shared(send, origin)
            scope.pop(WHOLE, None)
        if path.startswith(_ABOUT) and method == "GET":
            return await self._about(send), None
        caller = await self._who(scope, headers, path, send)
        if path.endswith(_CALL) and path.startswith(_TOOLS) and method == "POST":
            name = path[len(_TOOLS) : -len(_CALL)]
            return await self._calls.call(name, scope, headers, receive, send, caller)
        if path == _ALIVE and method == "GET":
            return await send_json(send, {"alive": True}), None
        told = _Told(send, lambda: self._has_ended(scope))
        if self._mcp is not None and (path == "/mcp" or path.startswith("/mcp/")):
            answered = await self._mcp.plain(scope, headers, receive, send, caller)
            if isinstance(answered, tuple):
                return answered
            await self._mcp(scope, answered, told)
        else:
            await self._rest(scope, receive, told)
        return told.status, told.call_id or scope.get(CALL)

    async def _about(self, send: Send) -> int:
        """Where clients get tokens for this gateway (RFC 9728)."""
        if (metadata := self._identity.metadata) is None:
            raise ToolNotFound("This gateway names no issuer of tokens.", remedy="stop")
        return await send_json(send, metadata)

    async def _stopped(self, scope: Scope, send: Send) -> int:
        """The status that the client has then; one that has gone has none."""
        effects = gravest(self.behind.runtime.registry, scope.get(TOOL, ""))
        try:
            return await send_fault(send, cut_off(effects), close=True, effects=effects)
        except RuntimeError:
            return 200  # what has begun cannot begin again: it was a stream

    def _has_ended(self, scope: Scope) -> bool:
        """Whether the credential of a request has ended while it was being answered."""
        task = scope.get(_WATCHED)
        return task is not None and self._watch.has_ended(task)

    async def _end(self, scope: Scope, send: Send) -> None:
        """Answer a request whose credential has ended: its own task is cancelled, and may take a
        while to be done.
        """
        effects: Effects = "read"
        if TOOL in scope:
            effects = gravest(self.behind.runtime.registry, scope[TOOL])
        try:
            await send_fault(send, self._identity.ended(effects=effects), close=True)
        except RuntimeError:  # the answer has begun: what is left is to end it
            last = scope.get(LAST)
            words = b"" if last is None else last(self._identity.ended(effects=effects))
            with suppress(RuntimeError):
                await send({"type": "http.response.body", "body": words, "more_body": False})

    async def _who(
        self, scope: Scope, headers: dict[bytes, bytes], path: str, send: Send
    ) -> Caller:
        """Who asks, also put where the routes look."""
        authorization, agent = headers.get(b"authorization"), headers.get(b"toolpost-agent")
        caller = self._known(authorization) if agent is None else None
        if caller is None:
            client = scope.get("client")
            try:
                caller = await self._caller(
                    authorization,
                    agent=None if agent is None else agent.decode("latin-1"),
                    peer=client and client[0],
                )
            except CallError:
                if path not in _OPEN:
                    raise
                caller = NOBODY
        scope[CALLER] = caller
        if authorization is not None and caller is not NOBODY:
            task = scope[_WATCHED] = this_task()
            self._watch.enter(task, authorization, partial(self._end, scope, send))
        return caller


class _Told:
    """Hands an answer on, and remembers its status and the id of its call."""

    def __init__(self, send: Send, has_ended: Callable[[], bool]) -> None:
        self._send, self._has_ended = send, has_ended
        self.status = 0
        self.call_id: str | None = None

    async def __call__(self, message: Any) -> None:
        if self._has_ended():
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            for name, value in message.get("headers", ()):
                if name == b"toolpost-call-id":
                    self.call_id = value.decode("latin-1")
        await self._send(message)


def _refuse_doubles(raw: list[tuple[bytes, bytes]]) -> None:
    seen = set()
    for name, _ in raw:
        if name in _ONCE and name in seen:
            raise Refused(400, f"The header {name.decode('latin-1')} is there twice: send one.")
        seen.add(name)


def _shared(send: Send, origin: bytes) -> Send:
    """An answer that a page from elsewhere, which may ask, may read."""

    async def sharing(message: Any) -> None:
        if message["type"] == "http.response.start":
            more = [
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", _EXPOSED),
                (b"vary", b"origin"),
            ]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sharing


async def _preflight(send: Send, origin: bytes, headers: dict[bytes, bytes]) -> int:
    """What a browser asks before it lets a page ask."""
    answer = [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-max-age", b"600"),
        (b"vary", b"origin"),
    ]
    if wanted := headers.get(b"access-control-request-headers"):
        answer.append((b"access-control-allow-headers", wanted))
    return await send_bytes(send, 204, answer, b"")


async def _otherwise(scope: Scope, receive: Receive, send: Send) -> None:
    """The life of the server is its own business here; there are no web sockets."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    await receive()
    await send({"type": "websocket.close", "code": 1000})


def application(
    runtime: Runtime,
    settings: GatewaySettings,
    *,
    identity: Identifies,
    jobs: Jobs | None = None,
    mcp: Mcp | None = None,
    access_log: AccessLog | None = None,
    siblings: Siblings | None = None,
    inflight: InFlight | None = None,
    door: NatsDoor | None = None,
) -> Gateway:
    """The application over tools that are open. Any ASGI server can run it; ``toolpost serve`` does
    so with limits on connections and times, which are the server's business. ``inflight``: what
    ``mcp`` counts its calls with.
    """
    behind = Behind(
        runtime=runtime,
        settings=settings,
        inflight=InFlight(settings.calls_each) if inflight is None else inflight,
        jobs=jobs,
        siblings=siblings,
        door=door,
    )
    origins = Origins(host=settings.host, hosts=settings.hosts, origins=settings.origins)
    return Gateway(behind, identity, origins=origins, mcp=mcp, access_log=access_log)
