"""A call's answer as it comes: server-sent events ``progress``, ``partial`` and ``result``.

Above: ``calls.py``. Below: a task that runs the call. A call that is refused before it has anything
to tell is answered with its status, as without a stream. Reports of progress that nobody has read
yet give way to newer ones; pieces of output wait their turn, up to a limit, and what is beyond that
is counted: the result holds everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from toolpost.call import Progress
from toolpost.errors import CallError
from toolpost.failure import failure
from toolpost.gateway.answers import CALL_ID, result_bytes, send_result
from toolpost.gateway.bodies import Scope, Send
from toolpost.gateway.inflight import cut_off
from toolpost.result import Metadata, Result
from toolpost.spec import Effects

_PATIENCE: Final = 1.0
"""Seconds without a word until the stream begins."""
HEARTBEAT: Final = 15.0
"""Seconds without a word until one is sent that means nothing: proxies cut silent lines."""
SILENCE: Final = b": still here\n\n"
_MOST_WAITING: Final = 1024 * 1024
"""Bytes that wait for a client which does not read."""
_encode: Final = msgspec.json.Encoder().encode
LAST: Final = "toolpost.last"
"""Where the scope of a stream has what makes its last event, if it must end before its call."""
Run = Callable[[Callable[[Progress], None] | None], asyncio.Task[Result]]


class _Feed:
    """What a call has told and nobody has sent yet."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self._progress: Progress | None = None
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._left_out = 0

    def hear(self, report: Progress) -> None:
        if report.partial is None:
            self._progress = report
        elif self._waiting < _MOST_WAITING:
            self._pieces.append(event("partial", {"output": report.partial}))
            self._waiting += len(self._pieces[-1])
        else:
            self._left_out += 1
        self.news.set()

    def taken(self) -> bytes:
        """Everything so far, as events."""
        self.news.clear()
        events, self._pieces, self._waiting = self._pieces, [], 0
        if self._left_out:
            events.append(event("partial", {"left_out": self._left_out}))
            self._left_out = 0
        if self._progress is not None:
            events.append(event("progress", self._progress))
            self._progress = None
        return b"".join(events)


async def stream(run: Run, scope: Scope, send: Send, call_id: str, *, effects: Effects) -> int:
    """Run a call and tell of it; the status that was sent. ``effects``: its tool's."""
    feed = _Feed()
    scope[LAST] = lambda fault: event("result", result_bytes(_failed(fault, call_id, effects)))
    call = run(feed.hear)
    call.add_done_callback(lambda _: feed.news.set())
    try:
        await _news(feed, _PATIENCE)
        told = feed.taken()
        if call.done() and not told and call.result().error is not None:
            return await send_result(send, call.result(), call_id)
        await _begin(send, call_id)
        while not call.done():
            await _piece(send, told or SILENCE)
            await _news(feed, HEARTBEAT)
            told = feed.taken()
        await _end(send, told + event("result", result_bytes(call.result())))
    except asyncio.CancelledError:
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        feed.taken()  # nobody will read it, and what was cancelled may be kept for a while
        with suppress(RuntimeError):  # the stream had not begun, or its client has gone
            stopped = _failed(cut_off(effects), call_id, effects)
            await _end(send, event("result", result_bytes(stopped)))
        raise
    return 200


def event(name: str, data: Any) -> bytes:
    body = data if isinstance(data, bytes) else _encode(data)
    return b"event: %b\ndata: %b\n\n" % (name.encode(), body)


async def _news(feed: _Feed, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await feed.news.wait()


async def _begin(send: Send, call_id: str) -> None:
    headers = [
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
        (CALL_ID, call_id.encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await _piece(send, event("call", {"call_id": call_id}))


async def _piece(send: Send, piece: bytes) -> None:
    await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _end(send: Send, piece: bytes) -> None:
    await send({"type": "http.response.body", "body": piece, "more_body": False})


def _failed(fault: CallError, call_id: str, effects: Effects) -> Result:
    error = failure(fault, tool="", call_id=call_id, effects=effects)
    return Result(error=error, metadata=Metadata(call_id))
