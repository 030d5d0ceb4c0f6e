"""MCP over standard input and output, for a client that starts this program.

Above: ``toolpost mcp``. Below: the SDK's loop, which speaks whichever era the client begins with.
The two streams are taken away from everything else: what a tool prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import selectors
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    jsonrpc_message_adapter,
)

from toolpost.call import Caller
from toolpost.document.strict import strict_json
from toolpost.gateway.bodies import strictly
from toolpost.gateway.mcp.calls import Calls
from toolpost.gateway.mcp.definitions import Definitions
from toolpost.gateway.mcp.server import ToolServer
from toolpost.gateway.mcp.settings import McpSettings
from toolpost.gateway.problems import Refused
from toolpost.runtime import Runtime

_log = logging.getLogger("toolpost.mcp")
_MOST_MESSAGE: Final = 16 * 1024 * 1024
_BEGINNING: Final = 64 * 1024
"""Bytes of a message that is too long in which its id is looked for."""
LOCAL: Final = Caller(id="local", owner=True)
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]')
_ID: Final = re.compile(
    rb'\s*:\s*(?:(-?[0-9]{1,18})|"([\x20\x21\x23-\x5b\x5d-\x7e]{1,200})")\s*[,}]'
)
"""What follows the key of an id: a number, or a text without anything odd in it."""


async def serve_stdio(
    runtime: Runtime, *, settings: McpSettings | None = None, caller: Caller = LOCAL
) -> None:
    """Serve whoever is at the other end, until there is nobody any more."""
    settings = settings or McpSettings()
    definitions = Definitions(runtime.registry.get)
    calls = Calls(runtime, settings, definitions)
    server = ToolServer(runtime, settings, calls=calls, definitions=definitions, caller=caller)
    async with _wire() as (read, write):
        server.open()
        try:
            await server.run(read, write, server.create_initialization_options())
        finally:
            await server.close()
            await calls.close()


@asynccontextmanager
async def _wire() -> AsyncIterator[tuple[Any, Any]]:
    heard, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, said = anyio.create_memory_object_stream[SessionMessage](0)
    async with AsyncExitStack() as stack:
        lines = await _Lines.of(stack.enter_context(_taken(0, os.O_RDONLY)))
        stack.callback(lines.close)
        out = stack.enter_context(_taken(1, os.O_WRONLY))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(_hear, lines, heard, write.clone())
        tasks.start_soon(_say, said, out)
        yield read, write
        write.close()
        heard.close()


@contextmanager
def _taken(fd: int, flags: int) -> Iterator[int]:
    """A standard stream for the wire alone: whoever else uses it reads nothing, and writes to
    standard error.
    """
    kept = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    instead = os.open(os.devnull, flags) if flags == os.O_RDONLY else os.dup(2)
    try:
        os.dup2(instead, fd)
        yield kept
    finally:
        os.dup2(kept, fd)
        os.close(instead)
        os.close(kept)


class _TooLong(Exception):
    """A line with more bytes than a message may have; its argument is how it begins."""


class _Lines:
    """Lines of a pipe, or of a file. Of a line that is too long only the beginning is kept."""

    def __init__(self, stream: asyncio.StreamReader, transport: asyncio.ReadTransport | None):
        self._stream, self._transport = stream, transport

    @classmethod
    async def of(cls, fd: int) -> Self:
        stream = asyncio.StreamReader(limit=_MOST_MESSAGE)
        if not _watchable(fd):
            stream.feed_data(await asyncio.to_thread(os.read, fd, _MOST_MESSAGE))
            stream.feed_eof()
            return cls(stream, None)
        loop, file = asyncio.get_running_loop(), os.fdopen(os.dup(fd), "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), file
        )
        return cls(stream, transport)

    async def next(self) -> bytes:
        """Empty at the end; ``_TooLong`` for a line that is not kept whole."""
        beginning = b""
        while True:
            try:
                line = await self._stream.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                line = end.partial
            except asyncio.LimitOverrunError as more:
                read = await self._stream.readexactly(more.consumed)
                beginning = beginning or read[:_BEGINNING]
                continue
            if beginning:
                raise _TooLong(beginning)
            return line

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _watchable(fd: int) -> bool:
    """Whether it can be waited for; a file and ``/dev/null`` always have all that they have."""
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return False
    with selectors.DefaultSelector() as selector:
        try:
            selector.register(fd, selectors.EVENT_READ)
        except PermissionError:
            return False
    return True


async def _hear(
    lines: _Lines,
    heard: MemoryObjectSendStream[SessionMessage | Exception],
    write: MemoryObjectSendStream[SessionMessage],
) -> None:
    """What is no message is answered as such: somebody may wait for it."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with heard, write:
            while True:
                try:
                    line = await lines.next()
                except _TooLong as fault:
                    await write.send(SessionMessage(_unheard(*fault.args)))
                    continue
                if not line:
                    return
                if not line.strip():
                    continue
                try:
                    strict_json(line, "message")
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    await write.send(SessionMessage(_unread(line)))
                    continue
                await heard.send(SessionMessage(message))


def _unheard(beginning: bytes) -> JSONRPCError:
    why = f"The message has more than {_MOST_MESSAGE:,} bytes, and was not read: send less."
    _log.warning("a message has more than %d bytes and was not read", _MOST_MESSAGE)
    error = ErrorData(code=INVALID_REQUEST, message=why)
    return JSONRPCError(jsonrpc="2.0", id=_id_in(beginning), error=error)


def _unread(line: bytes) -> JSONRPCError:
    """Why it is no message, to whoever waits for its answer."""
    try:
        strictly(line.rstrip(b"\r\n"), "message")
        code, why = INVALID_REQUEST, "This is JSON, and no message of JSON-RPC 2.0."
    except Refused as fault:
        code, why = PARSE_ERROR, fault.message
    return JSONRPCError(jsonrpc="2.0", id=_id_in(line), error=ErrorData(code=code, message=why))


def _id_in(line: bytes) -> int | str | None:
    """The id of what is no JSON, or too much of it: of the outermost object, and if there is only
    one.
    """
    depth, found = 0, list[int | str]()
    for token in _TOKEN.finditer(line):
        if token[0] in b"[{":
            depth += 1
        elif token[0] in b"]}":
            depth -= 1
        elif depth == 1 and token[0] == b'"id"' and (told := _ID.match(line, token.end())):
            found.append(int(told[1]) if told[1] else told[2].decode())
    return found[0] if len(found) == 1 and line.lstrip()[:1] == b"{" else None


async def _say(said: MemoryObjectReceiveStream[SessionMessage], fd: int) -> None:
    """In a thread, for a client that does not read holds up whoever writes to it."""
    async with said:
        async for one in said:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await asyncio.to_thread(_written, fd, text.encode() + b"\n")
            except OSError:  # nobody reads any more
                return


def _written(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
