"""One connection, bounded: how large a head may be, how long each part of a request may take.

Above: ``serving.py``. Below: uvicorn's protocol over httptools, which bounds none of it. Times are
not held by a timer for each request: one look around, a few times a second, finds whoever is late.
Where there is no room for another, one goes for which nothing is done: whose request is not whole,
or that is idle. A client that goes takes its request with it: the task is cancelled, and so is the
call.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from toolpost.errors import CallError, QueueFull
from toolpost.gateway.answers import WHOLE
from toolpost.gateway.bodies import Scope
from toolpost.gateway.problems import Refused, answer_to
from toolpost.gateway.rest.calls import WORK
from toolpost.gateway.settings import GatewaySettings
from toolpost.gateway.unheard import Unheard, household

_JSON: Final = b"content-type: application/json\r\ncontent-length: "
_FRAME: Final = 16
"""Bytes beside each byte of a body that its framing may have: chunks of one byte have six."""
_MANY: Final = "There are too many connections: come back later."
_SLOW: Final = "Too many connections from your address have not sent a whole request."
_AHEAD: Final = 64
"""Requests that a client may send before it has the answer to the first."""


def protocol(settings: GatewaySettings) -> type[asyncio.Protocol]:
    """The class that uvicorn makes one of for each connection."""

    class Bounded(Connection):
        limits = settings
        unheard = Unheard[Connection](settings.half_open)

    return Bounded


class Connection(HttpToolsProtocol):
    """uvicorn's, with limits."""

    limits: GatewaySettings
    unheard: Unheard[Connection]
    """Those of all of them, in this process, whose request is not whole."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.work: asyncio.Task[None] | None = None
        self._heading, self._head = True, 0
        """Whether a request line with its headers is what comes next, and how much of it came."""
        self._beside = 0
        """Bytes since the head that are no body: the framing of chunks, and trailers."""
        self._since = self.loop.time()
        """When the part of a request that is being read began."""
        self._stuck: float | None = None
        """Since when the client does not read what is there for it."""
        self._refusal: CallError | None = None
        self._told: list[tuple[bytes, bytes]] | None = None
        """The headers of every answer, of which ``_begin`` is made."""
        self._begin = b""
        self._unheard = False
        self._is_unheard()
        if len(self.connections) > self.limits.connections:
            (self.unheard.oldest(self._since) or self._idlest() or self).leave_room(_MANY)

    def data_received(self, data: bytes) -> None:
        if self._heading:
            if self._head == 0 and self.cycle is not None:
                self._since = self.loop.time()
            self._head += len(data)
        else:
            self._beside += len(data)
        super().data_received(data)
        if not self._unheard and self._is_partial():
            self._is_unheard()
        read = self._head if self._heading else self._beside
        if read > self.limits.header and not self.transport.is_closing():
            self.turn_away(self._too_large())

    def on_body(self, body: bytes) -> None:
        self._beside -= len(body) * (_FRAME + 1)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        if self._head > self.limits.header:  # some of it may be a body
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > self.limits.header:
                self._refusal = self._too_large()
                raise ValueError  # the parser stops, and the protocol says why
        if len(self.pipeline) >= _AHEAD:
            self._refusal = QueueFull("Read the answers before you send more requests.")
            raise ValueError  # as above
        self._heading, self._since, self._beside = False, self.loop.time(), 0
        super().on_headers_complete()
        self.headers = []  # what comes behind a body is too late to say who asks, or for what

    def on_message_complete(self) -> None:
        self._heading, self._head = True, 0
        if self.cycle.response_complete:
            self._since = self.loop.time()  # it was answered before it was whole
        if self._unheard:
            self._is_heard()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """What uvicorn does, but for a timer that each request would start and stop: how long it
        has been idle is seen by ``look``.
        """
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self._heading and self._head == 0:
            self._since = self.loop.time()
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        if self.pipeline:
            self.flow.pause_reading()  # what has come is answered before more is read

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            self.turn_away(self._refusal or Refused(400, "This is not a proper HTTP request."))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.work = work = self.loop.create_task(self._seen_through(cycle, app))
        cycle.scope[WORK] = work  # type: ignore[typeddict-unknown-key]
        cycle.scope[WHOLE] = self.whole  # type: ignore[typeddict-unknown-key]
        self.tasks.add(work)

    async def _seen_through(self, cycle: RequestResponseCycle, app: Any) -> None:
        try:
            await cycle.run_asgi(app)
        finally:
            self.tasks.discard(cycle.scope[WORK])  # type: ignore[typeddict-item]

    def whole(self, scope: Scope, body: bytes) -> bool:
        """Answer with JSON in one piece; ``False``: it takes ``send``, which can do all else."""
        cycle: RequestResponseCycle = self.cycle
        if (
            cycle.scope is not scope  # another request has come already, and waits
            or not cycle.keep_alive
            or cycle.response_started
            or cycle.disconnected
            or self.flow.write_paused
        ):
            return False
        if self._told is not cycle.default_headers:  # made anew each second: the time is in them
            self._told = cycle.default_headers
            lines = [name + b": " + value + b"\r\n" for name, value in self._told]
            self._begin = b"".join([STATUS_LINE[200], *lines, _JSON])
        self.transport.write(b"%b%d\r\n\r\n%b" % (self._begin, len(body), body))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        cycle.on_response()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_heard()
        super().connection_lost(exc)
        self.pipeline.clear()
        if self.cycle is not None:
            # they know each other: nothing else would part them
            self.cycle.scope.pop(WHOLE, None)  # type: ignore[typeddict-item]
        if self.work is not None and self.cycle.disconnected:
            self.work.add_done_callback(self.tasks.discard)  # it may not even have begun
            self.work.cancel()

    def pause_writing(self) -> None:
        self._stuck = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck = None
        super().resume_writing()

    def look(self, now: float) -> None:
        """Close the connection if its client is late with anything."""
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        limits, busy = self.limits, cycle is not None and not cycle.response_complete
        if self._stuck is not None and now - self._stuck > limits.write_time:
            self.transport.abort()
        elif not self._heading and now - self._since > limits.body_time:
            self._late("body", answered=cycle is not None and cycle.response_started)
        elif self._heading and not busy and now - self._since > limits.head_time:
            if self._head > 0:
                self._late("head", answered=False)
            elif cycle is None:
                self.transport.close()  # nothing ever came
        if self.is_idle and now - self._since > limits.idle_time:
            self.transport.close()

    def turn_away(self, fault: CallError) -> None:
        """Answer without a request, or in the middle of one, and close."""
        status, headers, body = answer_to(fault)
        headers += [(b"connection", b"close"), (b"content-length", b"%d" % len(body))]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self.transport.write(STATUS_LINE[status] + lines + b"\r\n" + body)
        self.transport.close()

    def leave_room(self, why: str) -> None:
        """Go, for others are there who say what they want."""
        self._is_heard()
        if self.is_idle or (not self._heading and self.cycle.response_started):
            self.transport.close()
        elif not self.transport.is_closing():
            self.turn_away(QueueFull(why, retry_after=1.0))

    @property
    def is_idle(self) -> bool:
        """Between two requests."""
        cycle: RequestResponseCycle | None = self.cycle
        done = cycle is not None and cycle.response_complete
        return done and self._heading and self._head == 0

    def _idlest(self) -> Connection | None:
        them = cast("set[Connection]", self.connections)
        idle = [one for one in them if one.is_idle and not one.transport.is_closing()]
        return min(idle, key=lambda one: one._since, default=None)

    def _is_partial(self) -> bool:
        """Whether something of a request has come, and not all, while nothing else is done here."""
        if not self._heading:
            return not self.pipeline
        cycle: RequestResponseCycle | None = self.cycle
        return self._head > 0 and (cycle is None or cycle.response_complete)

    def _is_unheard(self) -> None:
        if self.client is None:
            return  # a sibling, by a socket that is ours
        self._unheard = True
        for one in self.unheard.add(self, household(self.client[0]), self._since):
            one.leave_room(_SLOW)

    def _is_heard(self) -> None:
        self._unheard = False
        self.unheard.discard(self)

    def _late(self, part: str, *, answered: bool) -> None:
        if answered:
            self.transport.close()
        else:
            self.turn_away(Refused(408, f"The {part} of the request took too long to arrive."))

    def _too_large(self) -> Refused:
        return Refused(431, f"The headers have more than {self.limits.header:,} bytes.")
