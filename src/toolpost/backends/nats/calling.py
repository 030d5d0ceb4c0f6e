"""One call over the bus: a ticket, a request, and what is heard of it until it has ended.

Above: the handle of a tool. Below: the bus. While a call runs its worker says so again and again:
silence means that it is dead, and is told at once, not at the time limit. It refuses to know who
may call.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from toolpost.bus.connection import Bus, Replies, Waiting
from toolpost.bus.large import Large
from toolpost.bus.ticket import CHANGED, MOST_INSIDE, NOBODY, NOT_MET, Issuer, new_nonce
from toolpost.bus.wire import ALIVE, PROGRESS, REQUEST, RESPONSE, TICKET, Envelope, Request, said
from toolpost.call import Call, Progress
from toolpost.document.strict import NotStrictJson, StrictDecoder
from toolpost.errors import CallError, QueueFull, Unavailable
from toolpost.result import Output, Result

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

SILENCE: Final = 1.6
"""Seconds. Workers speak every half second."""
_PATIENCE: Final = 3
"""So many silences for the bus to come back, while a call runs."""
_TRIES: Final = 4
"""Where workers are of two minds, or one is full, another is asked."""
_ELSEWHERE: Final = (CHANGED, NOT_MET)
_NO_RESPONDERS: Final = "503"
_envelope: Final = StrictDecoder[Envelope[Any]](Envelope[Any])
_progress: Final = StrictDecoder[Progress](Progress)
_answer: Final = StrictDecoder[Envelope[Result]](Envelope[Result]).decode


class Calling:
    """Sends calls for a whole backend."""

    def __init__(self, bus: Bus, issuer: Issuer) -> None:
        self._bus, self._issuer = bus, issuer
        self.large = Large(bus.subjects.prefix)

    async def call(
        self, call: Call, *, tool: str, digest: str, seconds: float, met: Mapping[str, bytes]
    ) -> Any:
        """What the tool gave, or its error as one of ours. ``met``: who can do without a signature,
        if all can who may take it.
        """
        last: CallError | None = None
        for _ in range(_TRIES):
            try:
                return await self._once(call, tool, digest, seconds, met)
            except (Unavailable, QueueFull) as refused:
                elsewhere = refused.message in _ELSEWHERE or isinstance(refused, QueueFull)
                if refused.effects != "none" or not elsewhere:
                    raise
                last, met = refused, NOBODY
        assert last is not None
        raise last

    async def _once(
        self, call: Call, tool: str, digest: str, seconds: float, met: Mapping[str, bytes]
    ) -> Any:
        client, replies = self._bus.ready or (await self._bus.client(), await self._bus.replies())
        waiting, nonce, reconnects = replies.expect(), new_nonce(), self._bus.reconnects
        try:
            body = said(
                REQUEST, request_of(call, tool, seconds), source=self._bus.name, number=call.call_id
            )
            headers = None
            if met and len(body) <= MOST_INSIDE and self.large.fits(client, body):
                body = self._issuer.inside(
                    body, call.caller, tool=tool, spec=digest, reply=waiting.subject, nonce=nonce,
                    met=met,
                )  # fmt: skip
            else:
                packed, headers = await self.large.packed(client, body)
                headers[TICKET] = self._issuer.write(  # now: what is large took its time
                    call.caller, tool=tool, spec=digest, body=body, reply=waiting.subject,
                    nonce=nonce,
                )  # fmt: skip
                body = packed
            try:
                await client.publish(
                    self._bus.subjects.request(tool), body, reply=waiting.subject, headers=headers
                )
            except Exception as fault:  # it was not sent
                raise self._bus.away() from fault
            message = await waiting.next(SILENCE)
            if message is not None and not message.headers:  # nearly always that is all
                answer = _answer_in(message.data)
                if answer is not None:
                    return outcome(answer, call)
            return await self._heard(client, call, waiting, message, reconnects)
        except BaseException:
            self._forget(client, replies, waiting, nonce)
            raise
        finally:
            replies.forget(waiting)

    async def _heard(
        self, client: Client, call: Call, waiting: Waiting, message: Msg | None, reconnects: int
    ) -> Any:
        away = 0
        while True:
            if message is None:
                if self._bus.problem is not None:
                    away += 1
                elif reconnects == self._bus.reconnects:
                    raise Unavailable(
                        "The worker that ran this tool is gone.", retryable=True, effects="unknown"
                    )
                reconnects = self._bus.reconnects  # of a bus that is back they are heard again
                if away > _PATIENCE:
                    raise Unavailable(
                        "The bus was lost while this tool ran, and is not back.", effects="unknown"
                    )
                message = await waiting.next(SILENCE)
                continue  # nobody can be heard, for a while
            if not message.data and (message.headers or {}).get("Status") == _NO_RESPONDERS:
                raise Unavailable(
                    "No worker is there for this tool. Try again later.",
                    retry_after=1.0,
                    effects="none",
                )
            body = (
                message.data if not message.headers else await self.large.unpacked(client, message)
            )
            answer = _answer_in(body)
            if answer is not None:
                return outcome(answer, call)
            told = _opened(body)
            if told.type == PROGRESS:
                with suppress(NotStrictJson):
                    report = _progress.convert(told.payload)
                    if call.on_progress is not None:
                        call.on_progress(report)
            elif told.type != ALIVE:
                raise _unreadable()
            message = await waiting.next(SILENCE)

    def _forget(self, client: Client, replies: Replies, waiting: Waiting, nonce: str) -> None:
        """Whoever still works at it may stop. Said without waiting: we may be cancelled."""
        if client.is_connected:
            self._bus.send_soon(self._bus.subjects.cancel(nonce))


def _answer_in(body: bytes) -> Result | None:
    """The result, if the message is one and can be read as such in one go."""
    try:
        told = _answer(body)
    except NotStrictJson:
        return None
    return told.payload if told.type == RESPONSE else None


def _opened(body: bytes) -> Envelope[Any]:
    try:
        return _envelope.decode(body)
    except NotStrictJson:
        raise _unreadable() from None


def request_of(call: Call, tool: str, left: float) -> Request:
    return Request(
        tool=tool,
        call_id=call.call_id,
        arguments=call.arguments,
        timeout=left if call.deadline is None else min(left, call.deadline - monotonic()),
        session_id=call.session_id,
        phase=call.phase,
        working_dir=call.working_dir,
        dry_run=call.dry_run,
        key=call.key,
        progress=call.on_progress is not None,
    )


def outcome(result: Result, call: Call) -> Any:
    """The output of a result that came over the bus; its error is raised."""
    for warning in result.metadata.warnings:
        call.warn(warning)
    try:
        if result.error is not None:
            result.raise_for_error()
    except CallError as told:  # what the worker says of its effects is not a guess
        raise type(told)(
            told.message, retryable=told.retryable, retry_after=told.retry_after,
            remedy=told.remedy, effects=told.effects, details=told.details,
        ) from None  # fmt: skip
    return Output(result.output, result.parts) if result.parts else result.output


def _unreadable() -> Unavailable:
    return Unavailable("The worker answered with something unreadable.", effects="unknown")
