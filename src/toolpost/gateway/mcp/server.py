"""What the SDK's server is told: lists, calls, questions and changes, for every revision.

Above: ``app.py`` and ``stdio.py``, which give it a wire. Below: ``calls.py``, and the SDK, which
knows the protocol. Who calls is said by the wire: every request over HTTP carries a caller that
the gateway has verified, and a program on stdio serves its owner.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from importlib.metadata import version as installed
from typing import Any, Final
from urllib.parse import parse_qsl
from uuid import uuid4

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolpost.call import Caller, Progress
from toolpost.contracts import Answer, Question
from toolpost.errors import CallError, InvalidArguments, MissingPart, ToolNotFound
from toolpost.extensions.artifacts import SCHEME, Artifacts
from toolpost.gateway.mcp.asking import Client, answer_from, form_of
from toolpost.gateway.mcp.calls import Calls, Refusal, Wanted
from toolpost.gateway.mcp.definitions import Definitions
from toolpost.gateway.mcp.settings import McpSettings
from toolpost.gateway.mcp.tasks import EXTENSION, Tasks, can_wait
from toolpost.runtime import Runtime
from toolpost.wording import shortened

_log = logging.getLogger("toolpost.mcp")
CALLER: Final = "toolpost.caller"
PRESENCE: Final = "toolpost.presence"
_TELL_WITHIN: Final = 5.0
_MOST_TOLD: Final = 100
_MOST_WORDS: Final = 500
_NOBODY: Final = Answer("cancel")
_TEXTS: Final = ("text/", "application/json")
"""How the kind of what is text begins."""
_PIECE: Final = "toolpost/piece"
Context = ServerRequestContext[Any, Any]


class _TaskParams(types.RequestParams):
    task_id: str


class ToolServer(Server[Any]):
    """``caller`` is who calls where the wire does not say it."""

    def __init__(
        self,
        runtime: Runtime,
        settings: McpSettings,
        *,
        calls: Calls,
        definitions: Definitions,
        tasks: Tasks | None = None,
        caller: Caller | None = None,
    ) -> None:
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus)
        super().__init__(
            "toolpost", version=installed("toolpost"), on_subscriptions_listen=self._listening
        )
        self.middleware.clear()  # spans are made on the road
        self._runtime, self._settings, self._caller = runtime, settings, caller
        self._calls, self._definitions, self._tasks = calls, definitions, tasks
        self._artifacts: Artifacts | None = None
        with suppress(MissingPart):
            self._artifacts = runtime.extension("artifacts")
        self._sessions: dict[int, ServerSession] = {}
        self._telling: asyncio.Task[None] | None = None
        self._deaf: Callable[[], None] | None = None
        paged = types.PaginatedRequestParams
        self.add_request_handler("tools/list", paged, self._list)
        self.add_request_handler("tools/call", types.CallToolRequestParams, self._call)
        for what in ("prompts", "resources"):
            self.add_request_handler(f"{what}/list", paged, partial(self._none, what))
        self.add_request_handler("resources/templates/list", paged, self._templates)
        self.add_request_handler("resources/read", types.ReadResourceRequestParams, self._read)
        for method in ("get", "update", "cancel") if tasks is not None else ():
            self.add_request_handler(f"tasks/{method}", _TaskParams, partial(self._task, method))
        self.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._met
        )

    def get_capabilities(self, *_: Any, **__: Any) -> types.ServerCapabilities:
        """The same for every revision: the list of tools changes, and nothing else does."""
        return types.ServerCapabilities(
            tools=types.ToolsCapability(list_changed=True),
            prompts=types.PromptsCapability(list_changed=False),
            resources=types.ResourcesCapability(list_changed=False, subscribe=False),
            extensions=None if self._tasks is None else {EXTENSION: {}},
        )

    def open(self) -> None:
        """Hear of changes from now on."""
        loop = asyncio.get_running_loop()

        def changed(names: frozenset[str]) -> None:
            loop.call_soon_threadsafe(self._changed, names)

        self._deaf = self._runtime.registry.listen(changed)

    def hush(self) -> None:
        """End what clients of the later revision hear changes by."""
        self._listening.close()

    async def close(self) -> None:
        if self._deaf is not None:
            self._deaf()
        self.hush()
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)

    # --- lists ------------------------------------------------------------------------------

    async def _list(self, ctx: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        """By name, so a page goes on where the last one ended, whatever has changed meanwhile."""
        after = _place(params.cursor) if params.cursor is not None else ""
        rest = [spec for spec in self._runtime.list(self._who(ctx)) if spec.name > after]
        page = rest[: self._settings.page]
        shown = [self._definitions.of(spec).shown for spec in page]
        more = len(rest) > len(page)
        return self._kept({"tools": shown}) | (
            {"nextCursor": _cursor(page[-1].name)} if more else {}
        )

    async def _none(self, what: str, ctx: Context, params: Any) -> dict[str, Any]:
        return self._kept({what: []})

    async def _templates(self, ctx: Context, params: Any) -> dict[str, Any]:
        """What a call gives that is too large to be handed over whole is read in pieces."""
        kept = {
            "name": "artifact",
            "uriTemplate": f"{SCHEME}{{handle}}{{?offset,length}}",
            "description": "A large output that was kept: so many bytes of it, from a place on.",
        }
        return self._kept({"resourceTemplates": [] if self._artifacts is None else [kept]})

    async def _read(self, ctx: Context, params: types.ReadResourceRequestParams) -> dict[str, Any]:
        caller, uri = self._who(ctx), params.uri
        try:
            if self._artifacts is None or not uri.startswith(SCHEME):
                raise ToolNotFound("There is no such resource.")
            handle, _, query = uri.removeprefix(SCHEME).partition("?")
            piece = await _piece(self._artifacts, handle, caller, _range(query))
        except CallError as fault:
            raise MCPError(types.INVALID_PARAMS, fault.message, {"uri": uri}) from None
        return self._kept({"contents": [{"uri": uri, **piece}]})

    def _kept(self, result: dict[str, Any]) -> dict[str, Any]:
        """What a caller may see is that caller's business."""
        ttl = int(self._settings.list_ttl * 1000)
        return {**result, "ttlMs": ttl, "cacheScope": "private", "resultType": "complete"}

    # --- calls ------------------------------------------------------------------------------

    async def _call(self, ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        given = ctx.params or {}
        client = _client(ctx)
        with _present(ctx):
            async with _told(ctx) as tell:
                wanted = Wanted(
                    name=params.name,
                    arguments=given.get("arguments"),
                    caller=self._who(ctx),
                    client=client,
                    meta=_meta(given),
                    answers=given.get("inputResponses") or {},
                    state=given.get("requestState"),
                    tell=tell,
                    put=None if _modern(ctx) else partial(_put, ctx, client),
                    note=None if (presence := _presence(ctx)) is None else presence.note,
                )
                try:
                    return await self._calls.answer(wanted)
                except Refusal as why:
                    raise MCPError(why.code, why.message, why.data) from None
        raise MCPError(types.REQUEST_TIMEOUT, "The client has gone.")

    async def _task(self, method: str, ctx: Context, params: _TaskParams) -> dict[str, Any]:
        """A task of another's is not there."""
        assert self._tasks is not None, "else the method is not there"
        if not can_wait(_client(ctx)):
            wanted: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY, "This needs a client with tasks.", wanted
            )
        caller, task = self._who(ctx), params.task_id
        try:
            match method:
                case "get":
                    version = ctx.protocol_version
                    return await self._tasks.get(task, caller=caller, version=version)
                case "cancel":
                    await self._tasks.cancel(task, caller=caller)
                case _:
                    answers = (ctx.params or {}).get("inputResponses") or {}
                    await self._tasks.update(task, answers, caller=caller)
        except CallError as fault:
            raise MCPError(types.INVALID_PARAMS, fault.message) from None
        return {"resultType": "complete"}

    def _who(self, ctx: Context) -> Caller:
        caller = self._caller if ctx.request is None else ctx.request.scope.get(CALLER)
        if not isinstance(caller, Caller):
            raise MCPError(types.INVALID_REQUEST, "Nobody has said who calls.")
        return caller

    # --- changes ----------------------------------------------------------------------------

    async def _met(self, ctx: Context, params: types.NotificationParams) -> None:
        """A client of the handshake is told of changes without asking for it."""
        connection = ctx.session._connection  # it is nowhere else said when a session ends
        self._sessions[id(connection)] = ctx.session
        connection.exit_stack.callback(self._sessions.pop, id(connection), None)

    def _changed(self, names: frozenset[str]) -> None:
        self._definitions.forget(names)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        await asyncio.sleep(0)  # a burst of changes is one
        await self._bus.publish(ToolsListChanged())
        sessions = list(self._sessions.values())
        await asyncio.gather(*map(_tell_change, sessions), return_exceptions=True)


async def _tell_change(session: ServerSession) -> None:
    async with asyncio.timeout(_TELL_WITHIN):
        await session.send_tool_list_changed()


class Presence:
    """Of one request over HTTP: what is done for it ends when its client goes. The earlier
    revisions run calls elsewhere than in the request.
    """

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self.call_id: str | None = None
        """Of the call that was made for it, the last if there was more than one."""

    def note(self, call_id: str) -> None:
        self.call_id = call_id

    @contextmanager
    def needed(self) -> Iterator[None]:
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    def end(self) -> None:
        for scope in tuple(self._scopes):
            scope.cancel()


def _presence(ctx: Context) -> Presence | None:
    return None if ctx.request is None else ctx.request.scope.get(PRESENCE)


@contextmanager
def _present(ctx: Context) -> Iterator[None]:
    presence = _presence(ctx)
    if presence is None:
        yield
    else:
        with presence.needed():
            yield


@asynccontextmanager
async def _told(ctx: Context) -> AsyncIterator[Callable[[Progress], None] | None]:
    """Progress as it comes, all of it before the result; who reads too slowly misses some."""
    if (ctx.meta or {}).get("progress_token") is None:
        yield None
        return
    reports: asyncio.Queue[Progress | None] = asyncio.Queue(_MOST_TOLD)

    def hear(report: Progress) -> None:
        with suppress(asyncio.QueueFull):
            reports.put_nowait(report)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_reporting, ctx, reports)
        yield hear
        await reports.put(None)


async def _reporting(ctx: Context, reports: asyncio.Queue[Progress | None]) -> None:
    """In MCP every report has a number, and each is above the last."""
    last = -1.0
    counted = True
    while (report := await reports.get()) is not None:
        words = report.message
        if report.partial is not None:
            words = report.partial if isinstance(report.partial, str) else str(report.partial)
        if report.done is not None and report.done > last:
            last, counted = report.done, False
        elif words is None:
            continue
        else:
            last = last + 1 if counted else math.nextafter(last, math.inf)
        text = None if words is None else shortened(words, _MOST_WORDS)
        await ctx.session.report_progress(last, report.total, text)


async def _put(ctx: Context, client: Client, question: Question) -> Answer:
    """Ask a client of the handshake, while its call runs."""
    if not client.can_show(question):
        return _NOBODY
    session, related = ctx.session, ctx.request_id
    try:
        if question.url is not None:
            said = await session.elicit_url(question.message, question.url, uuid4().hex, related)
        else:
            said = await session.elicit_form(question.message, form_of(question), related)
    except (MCPError, ValidationError) as fault:
        _log.warning("a client could not be asked: %s", fault)
        return _NOBODY
    return answer_from(said.model_dump(), question) or _NOBODY


def _modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def _client(ctx: Context) -> Client:
    can = ctx.session.client_capabilities
    told = {} if can is None else can.model_dump(by_alias=True, mode="json", exclude_none=True)
    return Client(ctx.protocol_version, told)


def _meta(given: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = given.get("_meta")
    return meta if isinstance(meta, Mapping) else {}


def _range(query: str) -> dict[str, int]:
    found = dict(parse_qsl(query))
    try:
        return {key: int(found[key]) for key in ("offset", "length") if key in found}
    except ValueError:
        raise InvalidArguments("offset and length are whole numbers.") from None


async def _piece(
    artifacts: Artifacts, handle: str, caller: Caller, wanted: dict[str, int]
) -> dict[str, Any]:
    """A piece of an artifact, and which it is. Of a text it has the characters that begin within
    it: pieces that lie side by side are the whole, and no character is in two halves.
    """
    about, offset = await artifacts.about(handle, caller=caller), wanted.get("offset", 0)
    data = await artifacts.read(handle, caller=caller, **wanted)
    content: dict[str, str] = {}
    if about.mime.startswith(_TEXTS):
        more = await artifacts.read(handle, caller=caller, offset=offset + len(data), length=3)
        first = _begins_at(data)
        whole = data[first:] + more[: _begins_at(more)] if first < len(data) else b""
        with suppress(UnicodeDecodeError):
            content["text"] = whole.decode()
            offset, data = offset + first, whole
    if not content:
        content["blob"] = base64.b64encode(data).decode()
    place = {"offset": offset, "length": len(data), "size": about.size}
    return {"mimeType": about.mime, **content, "_meta": {_PIECE: place}}


def _begins_at(data: bytes) -> int:
    """The first byte that is not the rest of a character."""
    rest = (at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80)
    return next(rest, min(len(data), 3))


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _place(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise MCPError(types.INVALID_PARAMS, "This cursor is none of ours.") from None
