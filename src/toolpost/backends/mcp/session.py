"""One live session with a server: spoken to over a wire, watched while it is idle, and ended.

Above: ``server.py`` keeps one and makes another when it is over. Below: the SDK's client session,
whose own check of results is left out, for it would run a stranger's patterns. Both eras are
spoken: the handshake of 2024-11-05 to 2025-11-25, and 2026-07-28, which has none.

A session lives in a task of its own, because what the SDK opens has to be closed where it was
opened; calls are made from the tasks of their callers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Any, Final, NoReturn

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolpost.backends.http.statuses import meaning_of
from toolpost.backends.mcp.remote import Refusal, refusal_in, remote_streams
from toolpost.backends.mcp.results import output_of
from toolpost.backends.mcp.stdio import child_streams
from toolpost.backends.mcp.tools import Listing, listing_of
from toolpost.backends.mcp.wire import FLOODED, IDLE, UNAUTHORIZED, Forgotten, Wire
from toolpost.call import Call
from toolpost.characters import stripped
from toolpost.contracts import Answer, Elicits, Question
from toolpost.deadline import paused
from toolpost.errors import (
    CallError,
    InvalidArguments,
    InvalidOutput,
    InvalidSchema,
    Outcome,
    OutputTooLarge,
    RateLimited,
    ResourceLimit,
    ToolFailed,
    ToolNotFound,
    Unauthorized,
    Unavailable,
)
from toolpost.process import Child
from toolpost.schema import verify
from toolpost.wording import redacted_and_shortened, short

__all__ = ["Session", "child_streams", "remote_streams"]

_log = logging.getLogger("toolpost.mcp")
PING_EVERY: Final = 30.0
_PING_WITHIN: Final = 10.0
_CLOSE_WITHIN: Final = 5.0
_RELISTEN: Final = 5.0
_MOST_PAGES: Final = 100
_MOST_TOOLS: Final = 2000
_MOST_ROUNDS: Final = 10
_PAUSE: Final = 0.2
_MOST_MESSAGE: Final = 500
_CUT_OFF: Final = ("Connection closed", "SSE stream")
"""How the SDK says that an answer will not come; servers have the same code for other things."""
_ELSEWHERE: Final = "Redirect to "
_NO_ANSWER: Final = ("Unexpected content type", "server answered a request", "Failed to parse")
"""How the SDK says that what came back is none."""
_UNREAD: Final = "it answered with something that is not in the protocol"
_NOBODY: Final = "The tool wants to ask something, and nobody can be asked here."
_UNREADABLE: Final = (
    "The server behind this tool answered with something that cannot be read. Use another tool."
)
_NO_SERVER_THERE: Final = (
    "At the address that the config has for it is no MCP server: whoever runs this system has to "
    "correct the url. Use another tool."
)
_UNACCEPTED: Final = 401
_US: Final = types.Implementation(name="toolpost", version="1")


class _GaveUpWaiting(Unavailable):
    """The SDK stopped waiting for an answer."""


class _Client(ClientSession):
    async def validate_tool_result(self, name: str, result: types.CallToolResult) -> None:
        """Nothing: it would run the server's own patterns here. The road checks the output."""


class Session:
    """``alive`` until the server goes, does not answer, or is idle for too long; then ``why``."""

    def __init__(
        self, wire: Wire, *, idle: float, changed: Callable[[], None], elicits: Elicits | None
    ) -> None:
        self._wire, self._idle, self._changed, self._elicits = wire, idle, changed, elicits
        self._client: _Client | None = None
        self._calls: dict[int, Call] = {}
        self._numbers = count()
        self._used = monotonic()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._child: Child | None = None
        self.behind = False
        """The call that was given up last waited behind an older one."""
        self.hung = False
        """It was killed because it did not answer."""
        self.answered = False
        """It has answered a call, or a question whether it is there."""
        self.listening = False
        """It was told that we want to hear of changes; in the earlier era that is a matter of
        course.
        """
        self.why = ""

    @property
    def alive(self) -> bool:
        return self._client is not None and not self._stop.is_set()

    @property
    def modern(self) -> bool:
        return (
            self._client is not None and self._client.protocol_version in MODERN_PROTOCOL_VERSIONS
        )

    @property
    def is_child(self) -> bool:
        """Whether the server is a process of ours."""
        return self._child is not None

    def started(self, child: Child) -> None:
        """The server's process, as soon as there is one."""
        self._child = child

    async def open(self, *, legacy: bool) -> None:
        """Start, and be introduced; raises what kept it from that."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(ready, legacy=legacy), name="toolpost-mcp")
        try:
            await ready
        except BaseException:
            await self._end_now()
            raise

    async def close(self) -> None:
        """End it; what takes too long for that is cancelled."""
        self._stop.set()
        if self._task is not None and not self._task.done():
            done, _ = await asyncio.wait([self._task], timeout=_CLOSE_WITHIN)
            if not done:
                await self._end_now()

    def give_up(self, why: str) -> None:
        """End it at once, with its process and all below it: it hangs."""
        if self.alive:
            self.hung = True
            self._over(why)
            if self._child is not None:
                self._child.kill_soon()

    async def _end_now(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task], timeout=_CLOSE_WITHIN)

    async def tools(self) -> Listing:
        """Its tools, page by page, up to a bound."""
        found: list[dict[str, Any]] = []
        left_out: dict[str, str] = {}
        seen: set[str | None] = set()
        cursor: str | None = None
        while cursor not in seen:
            seen.add(cursor)
            page = await self._page(cursor)
            found += map(_definition, page.tools)
            cursor = page.next_cursor
            if cursor is None:
                break
            if len(seen) >= _MOST_PAGES or len(found) >= _MOST_TOOLS:
                left_out["…"] = f"there are more than {len(found)} tools: the rest is not listed"
                break
        return listing_of(found[:_MOST_TOOLS], left_out=left_out)

    async def _page(self, cursor: str | None) -> types.ListToolsResult:
        params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
        try:
            page: types.ListToolsResult = await self._asked(
                self._live_client.list_tools(params=params)
            )
        except InvalidOutput as fault:  # no model reads this, but who looks after the server
            raise InvalidOutput(
                f"its list of tools is not in the protocol{_where(fault)}"
            ) from fault
        return page

    async def call(self, tool: str, call: Call) -> Any:
        """One call of a tool: its output; what goes wrong is raised as what it means."""
        number = next(self._numbers)
        quota = None if self._child is None else self._child.quota
        if quota is not None and not self._calls:
            quota.begin()
        self._calls[number] = call
        try:
            result = await self._asked(self._called(tool, call))
        except asyncio.CancelledError:
            self.behind = min(self._calls) < number
            raise
        finally:
            del self._calls[number]
            self._used = monotonic()
            if quota is not None and not self._calls:
                quota.end()
        self.answered = True
        return output_of(call.spec, result)

    async def ping(self, within: float | None = None) -> None:
        """Raises unless the server answers."""
        async with asyncio.timeout(_PING_WITHIN if within is None else within):
            while not await self._pinged():
                pass
        self.answered = True

    async def _pinged(self) -> bool:
        """False if the SDK gave up waiting, which is no answer: it does so after some seconds."""
        client = self._live_client
        try:
            if self.modern:  # of the later era, in which there is no ping
                assert client.protocol_version is not None
                await self._asked(client.send_discover(client.protocol_version))
            else:
                await self._asked(client.send_ping())
        except _GaveUpWaiting:
            return False
        return True

    @property
    def _live_client(self) -> _Client:
        if self._client is None or self._stop.is_set():
            raise Forgotten
        return self._client

    # --- in the session's own task ----------------------------------------------------------

    async def _live(self, ready: asyncio.Future[None], *, legacy: bool) -> None:
        try:
            async with self._wire(self._over) as (read, write):
                client = _Client(
                    read,
                    write,
                    client_info=_US,
                    message_handler=self._heard,
                    elicitation_callback=None if self._elicits is None else self._asked_back,
                )
                async with client:
                    await _introduced(client, legacy=legacy)
                    self._client = client
                    ready.set_result(None)
                    await self._attended()
        except Exception as exc:  # noqa: BLE001 - whatever a wire raises, the session is over
            self._fail(ready, exc)
        finally:
            self._stop.set()
            if not ready.done():
                ready.set_exception(self._closed())

    def _fail(self, ready: asyncio.Future[None], exc: Exception) -> None:
        cause = _leaves(exc)[0]
        code = cause.code if isinstance(cause, MCPError) else None
        words = _UNREAD if code == types.PARSE_ERROR else str(cause) or type(cause).__name__
        refusal = refusal_in(cause.error.data) if isinstance(cause, MCPError) else None
        if refusal is not None:
            words = (
                UNAUTHORIZED if refusal.status == _UNACCEPTED else f"it {words}".removesuffix(".")
            )
        self.why = self.why or short(words, 300)
        if not ready.done():
            told = refusal is not None or code in (types.CONNECTION_CLOSED, types.PARSE_ERROR)
            cause = ConnectionError(self.why) if told else cause
            ready.set_exception(_unaccepted("none") if self.why == UNAUTHORIZED else cause)

    def _over(self, words: str) -> None:
        self.why = self.why or words
        self._stop.set()

    async def _attended(self) -> None:
        """Until it is over: told to stop, gone, silent when asked, or idle for too long."""
        async with anyio.create_task_group() as tasks:
            if self.modern and _tells_changes(self._live_client):
                tasks.start_soon(self._listening)
            while not self._stop.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(PING_EVERY, self._idle)):
                        await self._stop.wait()
                if self._stop.is_set() or self._calls:
                    continue
                if monotonic() - self._used >= self._idle:
                    self._over(IDLE)
                elif not await self.answers():
                    self._over("it did not answer when asked whether it is there")
            tasks.cancel_scope.cancel()

    async def answers(self, within: float | None = None) -> bool:
        """Whether the server answers when it is asked if it is there."""
        try:
            await self.ping(within)
        except (CallError, TimeoutError, Forgotten) as exc:
            return isinstance(exc, ToolFailed | RateLimited)  # an error is an answer, too
        return True

    async def _listening(self) -> None:
        """In the later era a server tells of changes to those who have asked for it."""
        while True:
            with suppress(MCPError, SubscriptionLost, TimeoutError):
                async with listen(self._live_client, tools_list_changed=True) as events:
                    self.listening = True
                    async for _ in events:
                        self._changed()
            await asyncio.sleep(_RELISTEN)

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed()

    # --- calls ------------------------------------------------------------------------------

    async def _called(self, tool: str, call: Call) -> types.CallToolResult:
        client = self._live_client
        progress = None if call.on_progress is None else _telling(call)
        result = await client.call_tool(
            tool, call.arguments, progress_callback=progress, allow_input_required=True
        )
        for _ in range(_MOST_ROUNDS):
            if not isinstance(result, types.InputRequiredResult):
                return result
            answers = await self._answered(call, result)
            result = await client.call_tool(
                tool,
                call.arguments,
                progress_callback=progress,
                input_responses=answers,
                request_state=result.request_state,
                allow_input_required=True,
            )
        raise ToolFailed("The tool keeps asking for more and does not come to an end.")

    async def _answered(
        self, call: Call, wanted: types.InputRequiredResult
    ) -> types.InputResponses | None:
        answers: dict[str, Any] = {}
        for key, request in (wanted.input_requests or {}).items():
            if not isinstance(request, types.ElicitRequest) or self._elicits is None:
                raise ToolFailed(_NOBODY, remedy="other_tool")
            found = await _elicited(self._elicits, call, request.params, name=key)
            if isinstance(found, types.ErrorData):
                raise ToolFailed(f"The tool asked something that cannot be asked: {found.message}")
            answers[key] = found
        if not answers:
            await asyncio.sleep(_PAUSE)
        return answers or None

    async def _asked_back(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """A question of the earlier era does not say to which call it belongs: it is put to whoever
        calls, as long as that is one, and to nobody where it could be another's.
        """
        calls = list(self._calls.values())
        assert self._elicits is not None, "else nothing was said of it"
        if len({call.caller.principal for call in calls}) != 1:
            _log.warning("a question of a server is declined: it is not clear whose call it is")
            return types.ElicitResult(action="cancel")
        return await _elicited(self._elicits, calls[-1], params)

    async def _asked(self, request: Awaitable[Any]) -> Any:
        """What came back; what the SDK raises, in one table."""
        try:
            answer = await request
        except MCPError as error:
            self._translate(error)
        except ValidationError as exc:
            _log.warning("a server's answer is not in the protocol: %s", exc)
            raise InvalidOutput(_UNREADABLE, effects="unknown") from exc
        return answer

    def _translate(self, error: MCPError) -> NoReturn:
        said = redacted_and_shortened(stripped(error.message), _MOST_MESSAGE)
        if (refusal := refusal_in(error.error.data)) is not None:
            raise self._refused(refusal, said) from error
        if self.why == UNAUTHORIZED:
            raise self._closed() from error
        match error.code:
            case types.CONNECTION_CLOSED if not self.alive or said.startswith(_CUT_OFF):
                raise self._closed() from error
            case types.INVALID_REQUEST if said == "Session terminated":
                self._over("it has forgotten the session")
                raise Forgotten from error
            case types.REQUEST_TIMEOUT if said.startswith("Request ") and said.endswith(
                "timed out"
            ):
                raise _GaveUpWaiting(said) from error
            case types.INVALID_PARAMS:
                raise InvalidArguments(
                    f"The server refused the call: {said}", effects="none"
                ) from error
            case types.URL_ELICITATION_REQUIRED:
                raise Unauthorized(said, effects="none", details=_urls(error)) from error
            case types.INVALID_REQUEST if said.startswith(_ELSEWHERE):
                raise ToolFailed(
                    "The server behind this tool sends us to another address, which is not "
                    "followed. Use another tool.",
                    remedy="other_tool",
                    effects="unknown",
                ) from error
            case types.INVALID_REQUEST | types.PARSE_ERROR if said.startswith(_NO_ANSWER):
                raise InvalidOutput(_UNREADABLE, effects="unknown") from error
            case _:
                self.answered = True
                raise ToolFailed(said) from error

    def _refused(self, refusal: Refusal, said: str) -> CallError:
        """This request, by its status; what else was under way may have been done."""
        if refusal.status == _UNACCEPTED:
            self._over(UNAUTHORIZED)
            return _unaccepted("none")
        kind, remedy, retryable, effects = meaning_of(refusal.status)
        said = f"The server behind this tool {said}"
        if kind is ToolNotFound:
            said = f"{said.rstrip('.')}. {_NO_SERVER_THERE}"
        return kind(
            said,
            retryable=retryable,
            retry_after=refusal.retry_after,
            remedy="other_tool" if kind is ToolNotFound else remedy,  # not what it was asked for
            effects=effects,
            details={"status": refusal.status},
        )

    def _closed(self) -> CallError:
        """It ended while somebody waited for it, or just before."""
        if self.why == UNAUTHORIZED:
            return _unaccepted("unknown")
        quota = None if self._child is None else self._child.quota
        if quota is not None and quota.exceeded is not None:
            return ResourceLimit(
                "The server behind this tool wrote more than it may "
                f"(limits.{quota.exceeded}) and was stopped. What it wrote until then is still "
                "there. Ask for less at a time.",
                details={"limit": quota.exceeded},
            )
        if self.hung:
            return Unavailable(
                "The server behind this tool stopped answering and is restarted. Whether the call "
                "was done is not known.",
                effects="unknown",
            )
        if self.why == FLOODED:
            return OutputTooLarge(
                "The server behind this tool sent more than can be taken. Ask for less at a time.",
                effects="unknown",
            )
        return Unavailable(
            "The server behind this tool ended before it answered. Try again later.",
            effects="unknown",
        )


def _unaccepted(effects: Outcome) -> Unauthorized:
    return Unauthorized(
        "The server behind this tool does not accept our credentials.", effects=effects
    )


async def _introduced(client: ClientSession, *, legacy: bool) -> None:
    """Which era it speaks: whoever does not know the later one is met with the handshake."""
    if not legacy:
        with suppress(MCPError, RuntimeError, ValidationError):
            await client.discover()
            return
    try:
        await client.initialize()
    except MCPError as error:
        if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await client.discover()


def _definition(tool: types.Tool) -> dict[str, Any]:
    return tool.model_dump(by_alias=True, mode="json", exclude_none=True)


def _where(fault: InvalidOutput) -> str:
    """The first place at which an answer is not in the protocol, and what is wrong there."""
    if not isinstance(fault.__cause__, ValidationError):
        return ""
    first = fault.__cause__.errors(include_url=False, include_input=False)[0]
    return short(f": {'/'.join(map(str, first['loc']))}: {first['msg']}", _MOST_MESSAGE)


def _tells_changes(client: ClientSession) -> bool:
    told = client.server_capabilities
    return bool(told and told.tools and told.tools.list_changed)


def _telling(call: Call) -> Any:
    async def tell(done: float, total: float | None, message: str | None) -> None:
        text = None if message is None else redacted_and_shortened(stripped(message), _MOST_MESSAGE)
        call.progress(done, total, text)

    return tell


async def _elicited(
    elicits: Elicits, call: Call, params: types.ElicitRequestParams, *, name: str | None = None
) -> types.ElicitResult | types.ErrorData:
    message = redacted_and_shortened(stripped(params.message), _MOST_MESSAGE)
    if isinstance(params, types.ElicitRequestURLParams):
        if not params.url.startswith(("https://", "http://")):
            return types.ErrorData(code=types.INVALID_PARAMS, message="a page has an http address")
        question = Question(message=message, url=params.url, name=name)
    else:
        try:
            verify(params.requested_schema)
        except InvalidSchema as fault:
            return types.ErrorData(code=types.INVALID_PARAMS, message=fault.message)
        question = Question(message=message, schema=params.requested_schema, name=name)
    with paused(call):
        answer: Answer = await elicits(call, question)
    content = answer.content if answer.action == "accept" and question.url is None else None
    return types.ElicitResult(action=answer.action, content=content)


def _urls(error: MCPError) -> Mapping[str, Any] | None:
    with suppress(ValidationError):
        wanted = types.ElicitationRequiredErrorData.model_validate(error.error.data)
        return {"urls": [one.url for one in wanted.elicitations]}
    return None


def _leaves(exc: BaseException) -> list[Exception]:
    """What is inside a group of exceptions."""
    if isinstance(exc, BaseExceptionGroup):
        return [leaf for one in exc.exceptions for leaf in _leaves(one)]
    return [exc] if isinstance(exc, Exception) else []
