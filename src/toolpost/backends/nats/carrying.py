"""Jobs over the bus: handed over to a queue, and asked after until somebody has seen them through.

Above: the handle of a tool, and whoever takes up the jobs of another gateway. Below: the queue of
the bus. A parcel that is in the queue runs, whatever becomes of this process; what came of it is
told to whoever asks. While the bus is away nothing fails: it is tried again. It refuses to know
what a job is.

A call may be made again by a guard: then the same parcel is in the queue again, under its next
number. Only the last of them can be open.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from toolpost.backends.nats.calling import outcome, request_of
from toolpost.bus.connection import Bus
from toolpost.bus.parcels import Parcels, Standing
from toolpost.bus.ticket import GRANT_LIFE, Issuer
from toolpost.bus.wire import ALIVE, ENDED, PROGRESS, REQUEST, Envelope, said
from toolpost.call import Call, Progress
from toolpost.contracts import Parcel
from toolpost.deadline import paused
from toolpost.document.strict import NotStrictJson, StrictDecoder
from toolpost.errors import CallError, Cancelled, Conflict, Unavailable
from toolpost.failure import failure
from toolpost.result import Result

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

_log = logging.getLogger("toolpost.bus")
_LOOK: Final = 4.0
"""Seconds of silence after which it is looked how a parcel stands."""
_AGAIN: Final = 0.5
_STOP: Final = 3.0
"""Seconds that a job may take to end when it is stopped."""
_envelope: Final = StrictDecoder[Envelope[Any]](Envelope[Any])
_progress: Final = StrictDecoder[Progress](Progress)
Hears = Callable[[Progress], None]


class _Waiting:
    """Somebody who waits for a parcel to end."""

    def __init__(self, hears: Hears | None) -> None:
        self.hears, self.news, self.heard = hears, asyncio.Event(), -inf


class Carrying:
    """Hands parcels over for a whole backend."""

    def __init__(self, bus: Bus, issuer: Issuer) -> None:
        self._bus, self._issuer, self._parcels = bus, issuer, Parcels(bus)
        self._waiting: dict[str, _Waiting] = {}
        self._listening: Subscription | None = None
        self._opening = asyncio.Lock()

    @property
    def waiting(self) -> int:
        """How many parcels are asked after here."""
        return len(self._waiting)

    async def close(self) -> None:
        if self._listening is not None:
            with suppress(Exception):  # a bus that is away forgets it by itself
                await self._listening.unsubscribe()

    async def carry(
        self, call: Call, parcel: Parcel, *, tool: str, digest: str, seconds: float
    ) -> Any:
        """Into the queue, and what came of it. How long it waits there is not the tool's time, and
        who runs it sees to the limit.
        """
        limit = seconds if parcel.timeout is None else min(seconds, parcel.timeout)
        body = said(
            REQUEST, request_of(call, tool, limit), source=self._bus.name, number=call.call_id
        )
        with paused(call):
            key = await self._handed_over(call, parcel, tool, digest, body)
            since = monotonic()
            result = await self._ended(key, call.on_progress)
        if result is not None:  # of all that time, the run itself was the tool's
            call.about.waited_ms -= min(result.metadata.duration_ms, call.about.waited_ms)
        if result is None and call.spec.effects == "once" and monotonic() - since < GRANT_LIFE:
            raise _lost()  # it was there, and is not: the bus has forgotten what it had
        if result is None:
            raise Unavailable("No worker has taken the job.", retry_after=1.0, effects="none")
        return outcome(result, call)

    async def collect(self, name: str, hears: Hears | None) -> Result | None:
        """What came of a parcel that somebody handed over: of the last time that it was."""
        last: Result | None = None
        for number in itertools.count(1):
            result = await self._ended(_key(name, number), hears)
            if result is None:
                return last
            last = result
        raise AssertionError("there is always a next number")

    async def recall(self, name: str) -> Result | None:
        """Stop it."""
        last: Result | None = None
        for number in itertools.count(1):
            key = _key(name, number)
            there = await self._parcels.standing(key)
            if there is None and await self._voided(key):
                return last
            there = there or await self._parcels.standing(key)
            if there is not None and there[0].state == "void":
                return last
            if there is not None and there[0].state == "begun":
                return await self._stopped(key)
            assert there is not None, "it could not be made void, so it stands"
            last = await self._parcels.result(there[0])
        raise AssertionError("there is always a next number")

    async def _handed_over(
        self, call: Call, parcel: Parcel, tool: str, digest: str, body: bytes
    ) -> str:
        ends, key = monotonic() + GRANT_LIFE, ""
        while True:
            try:
                await self._listen()
                key = key or await self._next(parcel.name)
                grant = self._issuer.write(
                    call.caller, tool=tool, spec=digest, body=body, nonce=key,
                    reply=self._bus.subjects.job(key, tool), life=GRANT_LIFE,
                )  # fmt: skip
                await self._parcels.put(key, tool=tool, body=body, grant=grant)
            except CallError as fault:
                if not fault.retryable or monotonic() > ends:
                    raise
                await asyncio.sleep(_AGAIN)
            else:
                return key

    async def _next(self, name: str) -> str:
        """The first number under which nothing is known."""
        for number in itertools.count(1):
            there = await self._parcels.standing(_key(name, number))
            if there is None:
                return _key(name, number)
        raise AssertionError("there is always a next number")

    async def _ended(self, key: str, hears: Hears | None) -> Result | None:
        """With what it has ended; ``None``: it has not begun, and never will."""
        waiting = self._waiting[key] = _Waiting(hears)
        try:
            while True:
                waiting.news.clear()
                pause = _LOOK
                try:
                    await self._listen()
                    if monotonic() - waiting.heard > _LOOK:
                        over, result = await self._looked(key)
                        if over:
                            return result
                except CallError as fault:
                    if not fault.retryable:
                        raise
                    pause = _AGAIN
                with suppress(TimeoutError):
                    await asyncio.wait_for(waiting.news.wait(), pause)
        finally:
            del self._waiting[key]

    async def _looked(self, key: str) -> tuple[bool, Result | None]:
        there = await self._parcels.standing(key)
        if there is None:
            if await self._parcels.queued(key):
                return False, None
            return await self._voided(key), None
        standing, version = there
        if standing.state == "void":
            return True, None
        if standing.state == "ended":
            return True, await self._parcels.result(standing)
        if await self._parcels.queued(key) or await self._parcels.standing(key) != there:
            return False, None
        # It was begun, and its message is gone without an end: a day has passed, or somebody has
        # emptied the queue. Nobody will take it up again.
        await self._parcels.end(key, _failed(_lost()), by=self._bus.name, version=version)
        return False, None

    async def _voided(self, key: str) -> bool:
        void = Standing(state="void", by=self._bus.name)
        return await self._parcels.stand(key, void) is not None

    async def _stopped(self, key: str) -> Result:
        client = await self._bus.client()
        await client.publish(self._bus.subjects.cancel(key))
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP):
                while True:
                    there = await self._parcels.standing(key)
                    if there is None and await self._voided(key):
                        break  # who had it has put it back: nobody is to take it again
                    if there is not None and there[0].state == "ended":
                        return await self._parcels.result(there[0])
                    await asyncio.sleep(_AGAIN / 5)
        return _failed(Cancelled("The job was cancelled."))

    async def _listen(self) -> None:
        if self._listening is None:
            async with self._opening:
                if self._listening is None:
                    subject = self._bus.subjects.progress("*")
                    self._listening = await self._bus.listen(subject, self._heard)

    async def _heard(self, message: Msg) -> None:
        waiting = self._waiting.get(message.subject.rpartition(".")[2])
        if waiting is None:
            return  # another gateway's
        try:
            told = _envelope.decode(message.data)
            if told.type == PROGRESS and waiting.hears is not None:
                waiting.hears(_progress.convert(told.payload))
        except NotStrictJson:
            return  # too large for a message, or no word of a worker
        if told.type == ENDED:
            waiting.heard = -inf
            waiting.news.set()
        elif told.type in (ALIVE, PROGRESS):
            waiting.heard = monotonic()


def _key(name: str, number: int) -> str:
    return f"{name}-{number}"


def _lost() -> Conflict:
    return Conflict(
        "The bus does not know this job any more, and it may have been begun. It is not run again: "
        "find out what it did before you repeat it.",
        effects="unknown",
    )


def _failed(error: CallError) -> Result:
    return Result(error=failure(error, tool="", call_id="", effects="once"))
