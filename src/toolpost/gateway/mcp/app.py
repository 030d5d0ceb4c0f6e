"""The ASGI application for ``/mcp``: each request goes by hand or to the SDK, for its caller.

Above: the gateway, which has looked at Host and Origin and put a verified ``Caller`` into the
scope; without one nothing is answered. Below: ``fast.py`` and ``server.py``. Sessions of clients
that begin with a handshake belong to the caller who made them, end when they are idle, and are so
many at most.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from toolpost.approvals.values import principal
from toolpost.call import Caller
from toolpost.codes import STATUS
from toolpost.errors import Unauthorized
from toolpost.gateway.answers import send_whole
from toolpost.gateway.bodies import Gone, Receive, Scope, Send, body_of, json_of
from toolpost.gateway.inflight import InFlight
from toolpost.gateway.mcp.calls import Calls
from toolpost.gateway.mcp.definitions import Definitions
from toolpost.gateway.mcp.fast import Fast, is_plain, named
from toolpost.gateway.mcp.forgetting import LARGE, SESSION, again, follow
from toolpost.gateway.mcp.questions import Questions
from toolpost.gateway.mcp.sealed import leads_to
from toolpost.gateway.mcp.server import CALLER, PRESENCE, Presence, ToolServer
from toolpost.gateway.mcp.settings import McpSettings
from toolpost.gateway.mcp.tasks import Tasks
from toolpost.gateway.problems import Refused, answer_to
from toolpost.gateway.rest.calls import CALL, Answered
from toolpost.gateway.siblings import HANDED, Siblings
from toolpost.jobs import Jobs
from toolpost.jobs.desk import house
from toolpost.runtime import Runtime

_OF_TASKS: Final = (b"tasks/get", b"tasks/update", b"tasks/cancel")
_HEADER_MISMATCH: Final = -32020
_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600
_BATCH: Final = "A request is one message: send those of a batch one by one."
_NO_MESSAGE: Final = (
    "This is not a message of MCP: %s. Clients of MCP send messages such as "
    '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}. To call a tool without MCP: '
    "POST /v1/tools/NAME:call"
)
_FULL: Final = STATUS["QUEUE_FULL"].rpc
_MANY: Final = "You have too many sessions open: end one of them, or come back later."
_GREETING: Final = 64 * 1024
"""Bytes: what a client says of itself is kept for as long as its session."""
_LONG: Final = f"The greeting has more than {_GREETING:,} bytes, which is the most taken here."
_OPENS: Final = 10.0
"""Seconds that the opening of a session may take when nobody waits for it any more."""
_JSON: Final = (b"content-type", b"application/json")
_who: ContextVar[Caller] = ContextVar("toolpost_mcp_caller")


class Mcp:
    """``async with`` it while the server runs. ``body`` is the largest body, in bytes."""

    def __init__(
        self,
        runtime: Runtime,
        settings: McpSettings,
        *,
        body: int,
        jobs: Jobs | None = None,
        siblings: Siblings | None = None,
        inflight: InFlight | None = None,
    ) -> None:
        self._runtime, self._body, self._siblings = runtime, body, siblings
        self._each = settings.sessions_each
        self._definitions = Definitions(runtime.registry.get)
        tasks = None if jobs is None else self._tasks(jobs, settings.patience)
        mark = str if siblings is None else siblings.marked
        self._calls = Calls(
            runtime, settings, self._definitions, tasks=tasks, mark=mark, inflight=inflight
        )
        self._server = ToolServer(
            runtime, settings, calls=self._calls, definitions=self._definitions, tasks=tasks
        )
        self._server.get_tool_input_schema = self._schema
        self._manager = StreamableHTTPSessionManager(
            self._server,
            session_idle_timeout=settings.session_idle,
            max_sessions=settings.sessions,
            max_request_body_size=body,
        )
        self._fast = Fast(self._calls, self._definitions, self._server.server_info_stamp)
        self._stack = AsyncExitStack()

    def _tasks(self, jobs: Jobs, patience: float) -> Tasks:
        config, store = self._runtime.config, self._runtime.store
        questions = Questions(store, house=house(config), patience=patience)
        return Tasks(jobs, self._definitions, questions, ttl=config.settings.jobs.ttl)

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._manager.run())
        self._stack.push_async_callback(self._calls.close)
        self._stack.push_async_callback(self._server.close)
        self._server.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def leave(self) -> None:
        """Whoever only listens for changes is told that there will be none: the server stops."""
        self._server.hush()

    async def plain(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
        send: Send,
        caller: Caller,
    ) -> Answered | Receive:
        """Answer the plainest of calls; of any other, what is to be received for it."""
        single = len(headers) == len(scope["headers"])
        if not (single and scope["method"] == "POST" and is_plain(headers)):
            return receive
        try:
            body = await body_of(headers, receive, self._body)
        except Refused as why:
            await _sent(send, why.status, [_JSON], _unread(why.message))
            return why.status, None
        answered = await self._fast.plain(body, headers[b"mcp-name"], caller, scope)
        if answered is None:
            return again(body, receive)
        status, said, call_id = answered
        if status == 200:
            await send_whole(scope, send, said)
        else:
            await _sent(send, status, [_JSON], said)
        return status, call_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = scope.get(CALLER)
        if not isinstance(caller, Caller):
            nobody = Unauthorized("Nobody has said who calls.")
            status, headers, body = answer_to(nobody, challenge="Bearer")
            await _sent(send, status, headers, body)
            return
        if scope["method"] == "POST":
            await self._posted(scope, receive, send, caller)
        elif not await self._elsewhere(scope, None, b"", send):
            await self._by_sdk(scope, receive, send, caller)

    async def _posted(self, scope: Scope, receive: Receive, send: Send, caller: Caller) -> None:
        """Every body is read once, as strictly as everywhere at this gateway."""
        headers = dict(scope["headers"])
        try:
            body = await body_of(headers, receive, self._body)
            data = json_of(headers, body)
        except Gone:
            return
        except Refused as why:
            await _sent(send, why.status, [_JSON], _unread(why.message))
            return
        if isinstance(data, list):
            await _sent(send, 400, [_JSON], _error(_INVALID_REQUEST, _BATCH, None))
            return
        if (wrong := _fault_of(data)) is not None:
            await _sent(send, 400, [_JSON], _error(_INVALID_REQUEST, _NO_MESSAGE % wrong, data))
            return
        if headers.get(b"mcp-method") in _OF_TASKS and not _routed(data, headers):
            mismatch = _error(_HEADER_MISMATCH, "The header Mcp-Name is not the task's id.", data)
            await _sent(send, 400, [_JSON], mismatch)
            return
        if await self._elsewhere(scope, data, body, send):
            return
        name = named(scope["headers"])
        if name is not None:
            answered = await self._fast.answer(data, name, caller, scope)
            if answered is not None:
                await _sent(send, answered[0], [_JSON], answered[1])
                return
        if not isinstance(data, dict) or data.get("method") != "initialize":
            await self._by_sdk(scope, again(body, receive), send, caller, size=len(body))
        elif len(body) > _GREETING:
            await _sent(send, 413, [_JSON], _error(_INVALID_REQUEST, _LONG, data))
        elif self._has_many(caller):
            await _sent(send, 503, [_JSON], _error(_FULL, _MANY, data))
        else:
            await self._opened(scope, again(body, receive), send, caller)

    async def _elsewhere(self, scope: Scope, data: Any, body: bytes, send: Send) -> bool:
        """Whether it is of something that lives in another process, which has answered then."""
        if (siblings := self._siblings) is None:
            return False
        headers = dict(scope["headers"])
        marked = headers.get(SESSION, b"").decode("latin-1") or leads_to(data)
        process = siblings.split(marked)[1]
        if process is None or HANDED in headers:
            return False
        return await siblings.hand_over(process, scope, body, send)

    def _has_many(self, caller: Caller) -> bool:
        mine = authorization_context(_user(caller))
        owners = self._manager._session_owners.values()  # it counts all, and not those of one
        return sum(one == mine for one in owners) >= self._each

    async def _opened(self, scope: Scope, receive: Receive, send: Send, caller: Caller) -> None:
        """A client may leave as soon as it has its answer, before the stream has come to its end:
        the session that it has been told of is there all the same.
        """
        opening = asyncio.create_task(self._by_sdk(scope, receive, send, caller))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait([opening], timeout=_OPENS)
            opening.cancel()
            raise

    async def _by_sdk(
        self, scope: Scope, receive: Receive, send: Send, caller: Caller, *, size: int | None = None
    ) -> None:
        """``size``: of a message that came, its bytes."""
        presence = Presence()
        # what stands around a value is no part of it, and not every server takes it away
        headers = [(key, value.strip(b" \t")) for key, value in scope["headers"]]
        if (siblings := self._siblings) is not None:
            headers = [one if one[0] != SESSION else _own(siblings, one) for one in headers]
        own = {**scope, "headers": headers, PRESENCE: presence, "user": _user(caller)}
        _who.set(caller)
        answer = _Answer(send, siblings)
        try:
            await self._manager.handle_request(own, receive, answer)
            await answer.end()
        finally:
            presence.end()
            scope[CALL] = presence.call_id
            if size is not None and (not answer.whole or size + answer.size > LARGE):
                await follow(self._manager, own)

    def _schema(self, name: str) -> dict[str, Any] | None:
        """The schema of a tool that wants headers, for who may know of it."""
        definition = self._definitions.named(name)
        if definition is None or not definition.headers:
            return None
        known = definition.spec in self._runtime.list(_who.get())
        return definition.spec.input_schema if known else None


def mounted(
    runtime: Runtime,
    settings: McpSettings | None = None,
    *,
    body: int = 4 * 1024 * 1024,
    jobs: Jobs | None = None,
    siblings: Siblings | None = None,
    inflight: InFlight | None = None,
) -> Mcp:
    """What answers at ``/mcp``. With ``jobs``, open, long calls can be tasks; ``siblings`` are the
    other processes that serve the same; ``inflight`` has the calls of every door.
    """
    return Mcp(
        runtime,
        settings or McpSettings(),
        body=body,
        jobs=jobs,
        siblings=siblings,
        inflight=inflight,
    )


def _user(caller: Caller) -> AuthenticatedUser:
    """The SDK gives a session to who comes with the same name, and to nobody else."""
    return AuthenticatedUser(AccessToken(token="-", client_id=principal(caller), scopes=[]))  # noqa: S106 - none is kept


def _own(siblings: Siblings, header: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """A session by the name that its own process has for it."""
    return header[0], siblings.split(header[1].decode("latin-1"))[0].encode("latin-1")


class _Answer:
    """Hands an answer on. Clients know a session by a name that says in which process it lives."""

    def __init__(self, send: Send, siblings: Siblings | None) -> None:
        self._send, self._siblings, self._begun = send, siblings, False
        self.whole, self.size = False, 0

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start" and (siblings := self._siblings) is not None:
            headers = [
                (key, siblings.marked(value.decode()).encode() if key == SESSION else value)
                for key, value in message.get("headers", ())
            ]
            message = {**message, "headers": headers}
        self._begun = True
        self.whole = message["type"] == "http.response.body" and not message.get("more_body", False)
        self.size += len(message.get("body", b""))
        await self._send(message)

    async def end(self) -> None:
        """The SDK leaves the stream of a session that is over as it is."""
        if self._begun and not self.whole:
            await self._send({"type": "http.response.body", "body": b""})


def _fault_of(data: Any) -> str | None:
    """What keeps this from being a message; ``None``: nothing that can be seen from outside."""
    if not isinstance(data, dict):
        return "it must be a JSON object"
    if data.get("jsonrpc") != "2.0":
        return '"jsonrpc" must be "2.0"'
    if "method" not in data:
        return None if "result" in data or "error" in data else '"method" is missing'
    return None if isinstance(data["method"], str) else '"method" must be a text'


def _unread(message: str) -> bytes:
    return _error(_PARSE_ERROR, message, None)


def _error(code: int, message: str, data: Any) -> bytes:
    number = data.get("id") if isinstance(data, dict) else None
    error = {"code": code, "message": message}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "error": error})


def _routed(data: Any, headers: dict[bytes, bytes]) -> bool:
    """Whether the header names the task that the body does, which the SDK does not look at."""
    params = data.get("params") if isinstance(data, dict) else None
    task = params.get("taskId") if isinstance(params, dict) else None
    return headers.get(b"mcp-name", b"").strip().decode("latin-1") == (task or "")


async def _sent(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    start = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    await send(start)
    await send({"type": "http.response.body", "body": body})
