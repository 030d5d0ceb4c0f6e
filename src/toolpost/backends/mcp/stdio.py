"""The wire to a server that is a child of ours: one JSON message a line, in and out.

Above: ``session.py``. Below: a program that was started by ``launching.py``. The SDK starts
children of its own; ours are confined, kept by a keeper and heard up to a bound, so this stands in
the place of its transport. It refuses to know what the messages mean.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from toolpost.backends.mcp.launching import Pipes
from toolpost.backends.mcp.wire import FLOODED, MOST_MESSAGE, Over, Streams
from toolpost.process import Child

_log = logging.getLogger("toolpost.mcp")
_GRACE: Final = 2.0
"""Seconds that a server has to end by itself once nobody speaks to it any more."""
_SOON: Final = 0.5
_MOST_WORDS: Final = 300


@asynccontextmanager
async def child_streams(
    start: Callable[[Pipes], Awaitable[Child]], over: Over
) -> AsyncIterator[Streams]:
    """Start the program, speak to it, end it; ``over`` hears when it has ended before that."""
    reader, writer, child = await _started(start)
    heard, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, said = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_hear, reader, heard, child, over)
            tasks.start_soon(_say, said, writer)
            try:
                yield read, write
            finally:
                tasks.cancel_scope.cancel()
    finally:
        for stream in (heard, read, write, said):
            stream.close()
        writer.close()
        reader.close()
        await _ended(child)


async def _started(
    start: Callable[[Pipes], Awaitable[Child]],
) -> tuple[_Reader, _Writer, Child]:
    ends = [*os.pipe(), *os.pipe()]
    try:
        child = await start(Pipes(ends[0], ends[3]))
        reader, writer = _Reader(ends[2]), _Writer(ends[1])
        ends = [ends[0], ends[3]]
    finally:
        for end in ends:
            os.close(end)
    try:
        await reader.open()
        await writer.open()
    except BaseException:
        await _ended(child)
        raise
    return reader, writer, child


async def _hear(
    reader: _Reader,
    heard: MemoryObjectSendStream[SessionMessage | Exception],
    child: Child,
    over: Over,
) -> None:
    why = ""
    try:
        while line := await reader.line():
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                _log.debug("a server wrote a line that is no message: %r", line[:_MOST_WORDS])
                continue
            await heard.send(SessionMessage(message))
    except asyncio.LimitOverrunError:
        why = FLOODED
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # as at the end of the stream
    over(why or await _ending(child))
    heard.close()


async def _say(said: MemoryObjectReceiveStream[SessionMessage], writer: _Writer) -> None:
    with suppress(OSError):  # the program has ended, which is heard elsewhere
        async for one in said:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            await writer.write(text.encode() + b"\n")


async def _ending(child: Child) -> str:
    """How it ended, and its last words."""
    how = "it closed its output"
    with suppress(TimeoutError):
        async with asyncio.timeout(_SOON):
            ending = await child.ended()
            how = f"it ended with status {ending.code}"
            if ending.signal is not None:
                how = f"it was ended by signal {ending.signal}"
    if child.quota is not None and child.quota.exceeded is not None:
        return f"it wrote more than it may (limits.{child.quota.exceeded})"
    tail = b"" if child.stderr is None else child.stderr.tail
    lines = tail.decode("utf-8", "replace").strip().splitlines()
    return f"{how}: {lines[-1][-_MOST_WORDS:]}" if lines else how


async def _ended(child: Child) -> None:
    """It has heard the end of its input; what does not go then is killed with all it started."""
    waiting = asyncio.ensure_future(_end(child))
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        child.kill_soon()
        raise


async def _end(child: Child) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_GRACE):
            await child.wait()
    await child.kill()


class _Reader:
    """Lines of a pipe, each up to a bound; a program that writes faster than it is heard waits."""

    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, "rb", buffering=0)
        self._stream = asyncio.StreamReader(limit=MOST_MESSAGE)
        self._transport: asyncio.ReadTransport | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._stream), self._file
        )

    async def line(self) -> bytes:
        try:
            return await self._stream.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return b""

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class _Writer(asyncio.BaseProtocol):
    """The other pipe; whoever writes waits while it is full."""

    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, "wb", buffering=0)
        self._free = asyncio.Event()
        self._free.set()
        self._lost = False
        self._transport: asyncio.WriteTransport | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_write_pipe(lambda: self, self._file)

    async def write(self, data: bytes) -> None:
        if self._lost or self._transport is None:
            raise BrokenPipeError
        self._transport.write(data)
        await self._free.wait()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        self._free.clear()

    def resume_writing(self) -> None:
        self._free.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._free.set()
