"""``tools/call`` of the revision without sessions, by hand: what every agent waits for.

Above: ``app.py``, which has read the body. Below: ``calls.py``. Only what is plainly right is
answered here. Whatever is not — a header that is missing, a member of the wrong type, a question
being answered, progress being wanted — goes to the SDK, which knows what to say to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from toolpost.call import Caller, new_call_id
from toolpost.document.strict import BROKEN, count_keys, has_wide_integer
from toolpost.errors import CallError
from toolpost.exporters.mcp import RESULT
from toolpost.gateway.bodies import Scope
from toolpost.gateway.mcp.answers import CALL_ID, answer_of
from toolpost.gateway.mcp.asking import Client
from toolpost.gateway.mcp.calls import Calls, Refusal, Wanted, refusal
from toolpost.gateway.mcp.definitions import Definition, Definitions
from toolpost.gateway.rest.calls import CALL, TOOL

VERSION: Final = "2026-07-28"
_VERSION: Final = VERSION.encode()
_RESULT: Final = RESULT.encode()
_METHOD: Final = "tools/call"
_PREFIX: Final = "io.modelcontextprotocol/"
_META_VERSION: Final = f"{_PREFIX}protocolVersion"
_META_CLIENT: Final = f"{_PREFIX}clientInfo"
_META_CAN: Final = f"{_PREFIX}clientCapabilities"
_SERVER: Final = f"{_PREFIX}serverInfo"
_ROUTING: Final = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")
_ACCEPTS: Final = (b"application/json, text/event-stream", b"text/event-stream, application/json")
_BAD: Final = frozenset((-32602, -32021))
"""Errors that are 400 over HTTP."""
_USUAL: Final = frozenset(
    (
        *(b"host", b"content-type", b"content-length", b"accept", b"authorization", b"user-agent"),
        *(b"accept-encoding", b"accept-language", b"connection", b"sec-fetch-mode", *_ROUTING),
    )
)
"""Headers of which none has a say in how a call is answered, but for those that are looked at."""
_encode: Final = msgspec.json.Encoder().encode


class _Info(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    version: str


class _Meta(
    msgspec.Struct,
    forbid_unknown_fields=True,
    rename={"version": _META_VERSION, "can": _META_CAN, "info": _META_CLIENT},
):
    version: Literal["2026-07-28"]
    can: dict[str, dict[str, Any]]
    info: _Info | UnsetType = UNSET


class _Params(msgspec.Struct, forbid_unknown_fields=True, rename={"meta": "_meta"}):
    name: str
    meta: _Meta
    arguments: dict[str, Any] | UnsetType = UNSET


class _Plain(msgspec.Struct, forbid_unknown_fields=True):
    """A call that says nothing but what it must, as most do: that can be read in one go."""

    jsonrpc: Literal["2.0"]
    id: int | str
    method: Literal["tools/call"]
    params: _Params


_decode: Final = msgspec.json.Decoder(_Plain).decode


class Fast:
    """``info`` is what the server says of itself in every result."""

    def __init__(self, calls: Calls, definitions: Definitions, info: Mapping[str, Any]) -> None:
        self._calls, self._definitions = calls, definitions
        self._info = dict(info)
        self._tail = b',"resultType":"complete","_meta":{"%b":"' % CALL_ID.encode()
        self._end = b'","%b":%b}}}' % (_SERVER.encode(), _encode(self._info))

    async def answer(
        self, data: Any, name: str, caller: Caller, scope: Scope
    ) -> tuple[int, bytes] | None:
        """Status and body; ``None`` if it is not for us. The id of the call is in the scope."""
        wanted = self._wanted(data, name, caller, scope)
        if wanted is None:
            return None
        return await self._said(data["id"], self._calls.answer(wanted))

    async def plain(
        self, body: bytes, name: bytes, caller: Caller, scope: Scope
    ) -> tuple[int, bytes, str] | None:
        """Status, body and the id of the call; ``None`` if it is not as plain as that. The id is in
        the scope as soon as there is one.
        """
        message = _plain(body)
        if message is None or message.params.name.encode() != name:
            return None
        tool, arguments = message.params.name, message.params.arguments or None
        definition = self._definitions.named(tool)
        if definition is None or definition.headers or definition.needs:
            return None
        call_id = scope[CALL] = new_call_id()
        scope[TOOL] = tool
        try:
            result = await self._calls.plain(tool, arguments, caller, call_id)
        except CallError as many:
            result = refusal(many, tool, call_id)
        about = result.metadata
        if result.error is None:
            if result.parts or about.warnings or about.artifacts or result.output is None:
                said = answer_of(result, definition, VERSION)
                said["_meta"][_SERVER] = self._info
                return 200, _encode({"jsonrpc": "2.0", "id": message.id, "result": said}), call_id
            return 200, self._simple(message.id, result.output, definition, call_id), call_id
        client = Client(VERSION, message.params.meta.can)
        wanted = Wanted(name=tool, arguments=arguments, caller=caller, client=client)
        told = self._calls.told(wanted, definition, result)
        return *await self._said(message.id, told), call_id

    def _simple(
        self, number: int | str, output: Any, definition: Definition, call_id: str
    ) -> bytes:
        """What ``answer_of`` makes of an output alone, without the things in between."""
        data = _encode(output)
        text = data if type(output) is str else _encode(data.decode())
        if definition.wrapped:
            structured = b',"structuredContent":{"%b":%b}' % (_RESULT, data)
        else:
            structured = b',"structuredContent":' + data if type(output) is dict else b""
        return b"".join(
            (
                b'{"jsonrpc":"2.0","id":', _encode(number),
                b',"result":{"content":[{"type":"text","text":', text, b"}]", structured,
                self._tail, call_id.encode(), self._end,
            )
        )  # fmt: skip

    async def _said(
        self, number: int | str, answering: Awaitable[dict[str, Any]]
    ) -> tuple[int, bytes]:
        status = 200
        try:
            result = await answering
            result.setdefault("_meta", {})[_SERVER] = self._info
            said: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "result": result}
        except Refusal as why:
            error = {"code": why.code, "message": why.message}
            if why.data is not None:
                error["data"] = why.data
            said = {"jsonrpc": "2.0", "id": number, "error": error}
            status = 400 if why.code in _BAD else 200
        return status, _encode(said)

    def _wanted(self, data: Any, name: str, caller: Caller, scope: Scope) -> Wanted | None:
        """The call, if everything about it is as the protocol has it."""
        if type(data) is not dict or len(data) != 4 or data.get("jsonrpc") != "2.0":
            return None
        params = data.get("params")
        if type(data.get("id")) not in (int, str) or data.get("method") != _METHOD:
            return None
        if type(params) is not dict or params.get("name") != name:
            return None
        if not params.keys() <= {"name", "arguments", "_meta"}:
            return None
        meta, arguments = params.get("_meta"), params.get("arguments")
        if type(meta) is not dict or type(arguments) not in (dict, type(None)):
            return None
        can = _can(meta)
        definition = self._definitions.named(name)
        if can is None or (definition is not None and definition.headers):
            return None
        scope[TOOL] = name
        return Wanted(
            name=name,
            arguments=arguments,
            caller=caller,
            client=Client(VERSION, can),
            meta=meta,
            note=lambda call_id: scope.__setitem__(CALL, call_id),
        )


def is_plain(headers: Mapping[bytes, bytes]) -> bool:
    """Whether these are the headers of a call, and nothing in them wants a closer look."""
    return (
        headers.get(b"mcp-method") == b"tools/call"
        and headers.get(b"mcp-protocol-version") == _VERSION
        and headers.get(b"content-type") == b"application/json"
        and headers.get(b"accept") in _ACCEPTS
        and b"mcp-name" in headers
        and headers.keys() <= _USUAL
    )


def _plain(body: bytes) -> _Plain | None:
    """The call, if it is plain and every key is there once: as many keys as there are colons."""
    try:
        message = _decode(body)
    except BROKEN:
        return None
    params, can = message.params, message.params.meta.can
    keys = 8  # four, the name and what goes with it, and two in that
    if params.arguments is not UNSET:
        keys += 1 + count_keys(params.arguments, above=2)
    if params.meta.info is not UNSET:
        keys += 3
    if can:
        if "elicitation" in can or "extensions" in can:
            return None  # it may be asked something, or be given a task
        keys += count_keys(can, above=3)
    if body.count(b":") != keys or has_wide_integer(body):
        return None
    return message


def named(headers: list[tuple[bytes, bytes]]) -> str | None:
    """The tool that the headers name, if they are those of a call that can be answered here."""
    found: dict[bytes, bytes] = {}
    for key, value in headers:
        if key.startswith(b"mcp-"):
            if key not in _ROUTING or key in found:
                return None
            found[key] = value
        elif key == b"accept" and value not in _ACCEPTS:
            return None
        elif key in (b"accept", b"content-type"):
            found[key] = value
    if (
        len(found) != len(_ROUTING) + 2
        or found[b"mcp-protocol-version"] != _VERSION
        or found[b"mcp-method"] != b"tools/call"
        or not found[b"content-type"].startswith(b"application/json")
    ):
        return None
    name = found[b"mcp-name"]
    return name.decode("ascii") if name.isascii() and not name.startswith(b"=?") else None


def _can(meta: dict[str, Any]) -> dict[str, Any] | None:
    """What the client says that it can; ``None`` where something is said that needs a closer
    look.
    """
    if meta.get(_META_VERSION) != VERSION or "progressToken" in meta:
        return None
    can = meta.get(_META_CAN)
    if type(can) is not dict or not all(type(one) is dict for one in can.values()):
        return None
    info = meta.get(_META_CLIENT)
    if info is not None and not (
        type(info) is dict and type(info.get("name")) is str and type(info.get("version")) is str
    ):
        return None
    known = 2 + (_META_CLIENT in meta)
    if sum(key.startswith(_PREFIX) for key in meta) != known:
        return None
    return can
