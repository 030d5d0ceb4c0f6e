"""Jobs that a worker takes from the queue of the bus: one loop for each of its tools.

Above: ``worker.py``. Below: ``bus.parcels``. Before a job runs it is claimed, and when it has ended
the claim says so and has its result; then its message is acknowledged. While it runs the queue is
told so; a message that comes again is that of a worker which has died, or cannot be heard. Of such
a job, what only reads or may be repeated is run again, a few times; of anything else nobody knows
what it did, and that is how it ends. It refuses to know how a tool is run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolpost.bus.connection import Bus
from toolpost.bus.parcels import ACK_WAIT, Dead, Parcels, Standing
from toolpost.bus.ticket import CHANGED, GRANT_LIFE, Inspector
from toolpost.bus.wire import ENDED, OBJECT, TICKET, Offered, Request, said
from toolpost.call import Caller
from toolpost.errors import CallError, Cancelled, Conflict, InternalError, Unavailable
from toolpost.failure import failure
from toolpost.result import Metadata, Result
from toolpost.spec import Effects, Limits
from toolpost.worker.reading import read_request
from toolpost.worker.running import Run, Runs

if TYPE_CHECKING:
    from nats.aio.msg import Msg

_log = logging.getLogger("toolpost.worker")
_LINGER: Final = 5.0
"""Seconds that one request for a job waits at the server."""
_BEAT: Final = ACK_WAIT / 5
_MOST_QUEUES: Final = 500
_AGAIN: Final = 1.0
_CANCEL_AGAIN: Final = 0.2
_ASK: Final = 1.5
"""Seconds that a worker has to say that it runs a job still."""
_REFUSALS: Final = 5
"""So often a job is offered to workers that refuse it; the next may know its tool, or its key."""
_DEATHS: Final = 5
_LAST: Final = 10.0
"""Seconds that the end of a job may take to be told when the worker stops."""
Execute = Callable[[str, Request, Caller, Run], Coroutine[Any, Any, Result]]


class _Taken:
    """A job that runs here; the message is that of its last delivery."""

    def __init__(self, key: str, tool: str, message: Msg) -> None:
        self.key, self.tool, self.message = key, tool, message


class Taking:
    """``offers`` is what the worker has right now; ``execute`` runs a call."""

    def __init__(
        self,
        bus: Bus,
        runs: Runs,
        inspector: Inspector,
        *,
        worker: str,
        offers: Callable[[], Mapping[str, Offered]],
        execute: Execute,
    ) -> None:
        self._bus, self._runs, self._inspector, self._worker = bus, runs, inspector, worker
        self._offers, self._execute = offers, execute
        self._parcels = Parcels(bus)
        self._loops: dict[str, asyncio.Task[None]] = {}
        """The loop of each tool that is offered."""
        self._pulling: set[asyncio.Task[None]] = set()
        """All that have not ended yet, those of tools that were dropped too."""
        self._taken: dict[str, _Taken] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._closing = False
        self.open = False
        """Whether there is a queue."""
        self.crowded = False
        """Whether there are too many tools to have one each."""

    async def serve(self) -> None:
        """Take jobs of every tool that is offered, and of no other; without JetStream, of none."""
        if self._closing:
            return
        if not self.open:
            if self._opening is None or self._opening.done():
                self._opening = asyncio.create_task(self._open())
            await asyncio.wait([self._opening], timeout=_AGAIN)
            if not self.open:
                return
        offers = self._offers()
        if self._too_many(len(offers)):
            offers = {}
        for tool in self._loops.keys() - offers.keys():
            del self._loops[tool]
        for loop in self._pulling - set(self._loops.values()):
            loop.cancel()  # each time, until it has ended: it may be lost
        for tool in offers.keys() - self._loops.keys():
            loop = self._loops[tool] = asyncio.create_task(self._pull(tool, offers[tool]))
            self._pulling.add(loop)
            loop.add_done_callback(self._pulling.discard)

    def _too_many(self, tools: int) -> bool:
        """A server keeps a thousand queues in a stream, for all of them: then gateways run the jobs
        and call, as for workers that know of no queue.
        """
        many = tools > _MOST_QUEUES
        if many and not self.crowded:
            _log.warning("%d tools are too many for queues: no jobs are taken from them", tools)
        self.crowded = many
        return many

    async def _open(self) -> None:
        try:
            await self._parcels.open()
            await self._bus.listen(self._bus.subjects.running(self._worker), self._asked)
        except CallError as fault:
            _log.debug("there is no queue of jobs: %r", fault.__cause__)
        else:
            self.open, self._beating = True, asyncio.create_task(self._beat())

    async def leave(self) -> None:
        """Take no more."""
        self._closing = True
        loops = set(self._pulling)
        while loops:  # a wait_for of Python 3.11 may lose it, if what it waits for has just come
            for loop in loops:
                loop.cancel()
            _, loops = await asyncio.wait(loops, timeout=_CANCEL_AGAIN)

    async def close(self) -> None:
        """What was stopped has said so."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST)
        rest = [*self._tasks, *(t for t in (self._opening, self._beating) if t is not None)]
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest)

    # --- the queue --------------------------------------------------------------------------

    async def _pull(self, tool: str, offer: Offered) -> None:
        limits = offer.spec.get("limits", {})  # those that are not the usual ones
        room = asyncio.Semaphore(limits.get("concurrency", Limits().concurrency))
        failures = 0
        while self._wanted(tool):
            try:
                await self._pulled(tool, room)
            except Exception as fault:  # noqa: BLE001 - whatever nats-py says: it is tried again
                failures += 1
                if failures == _REFUSALS and self._bus.problem is None:
                    why = fault.__cause__ or fault
                    _log.warning("jobs of %s cannot be taken, and wait: %r", tool, why)
                await asyncio.sleep(_AGAIN)

    def _wanted(self, tool: str) -> bool:
        """Whether the loop that asks is its tool's: that may be gone, or be back with another."""
        return not self._closing and self._loops.get(tool) is asyncio.current_task()

    async def _pulled(self, tool: str, room: asyncio.Semaphore) -> None:
        stream, name = await self._parcels.stream(), await self._parcels.consumer(tool)
        queue = await stream.pull_subscribe_bind(consumer=name, stream=self._parcels.queue)
        try:
            while self._wanted(tool):
                async with room:  # asked for only when it could be run
                    pass
                try:
                    (message,) = await queue.fetch(1, timeout=_LINGER)
                except TimeoutError:
                    continue
                if not self._wanted(tool):
                    await _quietly(message.nak())  # another takes it
                    break
                await room.acquire()
                self._begin(self._take(tool, message), room)
        finally:
            with suppress(Exception):  # a bus that is away forgets it by itself
                await queue.unsubscribe()

    def _begin(self, work: Coroutine[Any, Any, None], room: asyncio.Semaphore) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            room.release()
            if not task.cancelled() and (fault := task.exception()) is not None:
                _log.error("a job could not be run: it comes again", exc_info=fault)

        task.add_done_callback(ended)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT)
            for taken in tuple(self._taken.values()):
                with suppress(Exception):  # the bus is away; the claim holds
                    await taken.message.in_progress()

    async def _asked(self, message: Msg) -> None:
        runs = message.data.decode(errors="replace") in self._taken
        await message.respond(b"1" if runs else b"0")

    # --- one job ----------------------------------------------------------------------------

    async def _take(self, tool: str, message: Msg) -> None:
        key = message.subject.removeprefix(self._bus.subjects.job("")).partition(".")[0]
        if (taken := self._taken.get(key)) is not None:
            taken.message = message  # it runs here, and the queue did not hear that it does
            return
        taken = self._taken[key] = _Taken(key, tool, message)
        try:
            await self._seen_through(taken)
        except CallError as fault:  # the bus is away: it comes again
            _log.warning("the job %s comes again: %s", key, fault.message)
            await _quietly(taken.message.nak(_AGAIN))
        finally:
            del self._taken[key]

    async def _seen_through(self, taken: _Taken) -> None:
        try:
            request, caller, offer = await self._read(taken)
        except CallError as refused:
            await self._refused(taken, refused)
            return
        effects: Effects = offer.spec.get("effects", "once")
        claimed = await self._claimed(taken, request, effects)
        if claimed is None:
            return
        claim, version = claimed
        if self._offers().get(taken.tool) is not offer:  # it has changed while that was said
            await self._put_back(taken, claim, version)
            return
        run = Run(self._bus.subjects.progress(taken.key))
        run.call_id = request.call_id
        self._runs.hear(run)
        try:
            self._runs.begin(run)
            try:
                self._runs.named(run, taken.key)  # it may have been stopped while it was claimed
                result = await self._execute(taken.tool, request, caller, run)
            finally:
                self._runs.over(run)
                await self._runs.told(run)
        except asyncio.CancelledError:
            if not run.cancelled and effects != "once":
                await _to_the_end(_quietly(taken.message.nak()))
                raise  # the worker stops: another may do it again
            stopped = Cancelled("The job was cancelled.") if run.cancelled else _unknown()
            result = _failed(stopped, taken.tool, request.call_id, effects)
            await _to_the_end(self._end(taken, result, version))
            return
        except Exception:  # noqa: BLE001 - the border: whatever it is, the job has an end
            _log.exception("the job %s could not be run", taken.key)
            why = InternalError("The worker failed.")
            result = _failed(why, taken.tool, request.call_id, effects)
        await _to_the_end(self._end(taken, result, version))

    async def _read(self, taken: _Taken) -> tuple[Request, Caller, Offered]:
        """The job, if its grant is for this very place in the queue, and for which tool it is."""
        message, client = taken.message, await self._bus.client()
        headers = message.headers or {}
        body, place = message.data, headers.get(OBJECT)
        if place is not None:  # nothing is fetched for a stranger
            self._inspector.look(
                headers.get(TICKET), GRANT_LIFE, tool=taken.tool, reply=message.subject
            )
            body = await self._parcels.large.kept(client, place)
        offer = self._offers().get(taken.tool)
        if offer is None:
            raise Unavailable("The worker does not have the tool any more.", effects="none")
        ticket = self._inspector.grant(
            headers.get(TICKET), tool=taken.tool, spec=offer.digest, body=body,
            subject=message.subject,
        )  # fmt: skip
        return read_request(body, taken.tool), ticket.caller, offer

    async def _refused(self, taken: _Taken, refused: CallError) -> None:
        """Another worker may take it, or this one later; where nobody does, it has failed."""
        delivered = taken.message.metadata.num_delivered
        _log.warning("the job %s is refused (%d): %s", taken.key, delivered, refused.message)
        if delivered < _REFUSALS:
            await _quietly(taken.message.nak(_AGAIN))
            return
        there = await self._parcels.standing(taken.key)
        begun = there is not None and there[0].state == "begun"
        if there is not None and begun and await self._runs_there(there[0].by, taken.key):
            await _quietly(taken.message.nak(ACK_WAIT / 2))
            return
        if there is None:
            await self._bury(taken, refused)
            result = _failed(refused, taken.tool, "", "once")
            await self._parcels.end(taken.key, result, by=self._worker, version=0)
            await self._told(taken, result)
        await _quietly(taken.message.ack())

    async def _put_back(self, taken: _Taken, claim: Standing, version: int) -> None:
        """It was claimed and has not run: a claim that stays is that of a worker which has died. If
        one has, before us, it may have run there, and the claim has to go on saying so.
        """
        while not claim.deaths:
            try:
                await self._parcels.put_back(taken.key, version)
                break
            except CallError as fault:
                _log.warning("the job %s cannot be put back yet: %s", taken.key, fault.message)
                await asyncio.sleep(_AGAIN)
        changed = Unavailable(CHANGED, retryable=True, retry_after=1.0, effects="none")
        await self._refused(taken, changed)

    async def _claimed(
        self, taken: _Taken, request: Request, effects: Effects
    ) -> tuple[Standing, int] | None:
        """Our claim, and its version; ``None``: it is not ours to run."""
        while True:
            there = await self._parcels.standing(taken.key)
            if there is None:
                mine = Standing(state="begun", by=self._worker)
                if (made := await self._parcels.stand(taken.key, mine)) is not None:
                    return mine, made
                continue  # somebody was faster
            standing, version = there
            if standing.state != "begun":
                await self._tell_end(taken)
                await _quietly(taken.message.ack())
                return None
            if standing.by == self._worker:
                return there  # we claimed it, did not hear that we have, and did not run it
            if await self._runs_there(standing.by, taken.key):
                await _quietly(taken.message.nak(ACK_WAIT / 2))
                return None
            dead = msgspec.structs.replace(standing, by=self._worker, deaths=standing.deaths + 1)
            if (why := _too_late(effects, dead.deaths)) is not None:
                await self._bury(taken, why)
                result = _failed(why, taken.tool, request.call_id, effects)
                await self._end(taken, result, version)
                return None
            if (made := await self._parcels.stand(taken.key, dead, version)) is not None:
                return dead, made

    async def _runs_there(self, worker: str, key: str) -> bool:
        """Whether a worker that has claimed a job is there, and runs it. We ourselves do not: what
        runs here is not taken once more.
        """
        if worker == self._worker:
            return False
        client = await self._bus.client()
        try:
            answer = await client.request(
                self._bus.subjects.running(worker), key.encode(), timeout=_ASK
            )
        except Exception:  # noqa: BLE001 - nobody answers, whatever nats-py calls it
            return False
        return answer.data == b"1"

    async def _end(self, taken: _Taken, result: Result, version: int) -> None:
        """Say how it ended, as long as it takes, then let the queue forget it."""
        while True:
            try:
                if await self._parcels.end(taken.key, result, by=self._worker, version=version):
                    break
                there = await self._parcels.standing(taken.key)
                if there is not None and there[0].state == "begun":
                    _log.warning("the job %s is another's by now", taken.key)
                    return  # and so is its message: without that nobody would see it through
                if version == 0 or there is not None:
                    _log.warning("how the job %s ended was said by another", taken.key)
                    break
                version = 0  # the bus has forgotten it, and we have not
            except CallError as fault:
                _log.warning("the end of the job %s cannot be told yet: %s", taken.key, fault)
                if not fault.retryable:  # it is too large, for instance: that is how it ended
                    said_so = type(fault)(fault.message, retryable=False, effects="done")
                    result = _failed(said_so, taken.tool, result.metadata.call_id, "once")
                await asyncio.sleep(_AGAIN)
        await self._told(taken, result)
        await _quietly(taken.message.ack())

    async def _told(self, taken: _Taken, result: Result) -> None:
        place = (taken.message.headers or {}).get(OBJECT)
        if place is not None:
            await _quietly(self._dropped(place))
        await self._tell_end(taken)

    async def _tell_end(self, taken: _Taken) -> None:
        """Whoever waits for it may look. They look now and then in any case."""
        body = said(ENDED, None, source=self._bus.name, number=taken.key)
        client = await self._bus.client()
        await _quietly(client.publish(self._bus.subjects.progress(taken.key), body))

    async def _dropped(self, place: str) -> None:
        await self._parcels.large.drop(await self._bus.client(), place)

    async def _bury(self, taken: _Taken, why: CallError) -> None:
        """Before its end is said: whoever has heard of that finds it there, and nobody who dies in
        between leaves it out.
        """
        dead = Dead(
            parcel=taken.key, tool=taken.tool, code=why.code, reason=why.message,
            worker=self._worker,
        )  # fmt: skip
        await _quietly(self._parcels.bury(dead))


def _too_late(effects: Effects, deaths: int) -> CallError | None:
    """Why a job whose worker has died is not run again."""
    if effects == "once":
        return _unknown()
    if deaths < _DEATHS:
        return None
    return Unavailable(
        f"{deaths} workers have died while they ran this job: it is not tried again.",
        retryable=False,
        remedy="stop",
    )


def _unknown() -> Conflict:
    return Conflict(
        "The worker that ran this job ended before it could be said what came of it. It is not run "
        "again: find out what it did before you repeat it.",
        effects="unknown",
    )


def _failed(error: CallError, tool: str, call_id: str, effects: Effects) -> Result:
    told = failure(error, tool=tool, call_id=call_id, effects=effects)
    return Result(error=told, metadata=Metadata(call_id))


async def _quietly(work: Awaitable[Any]) -> None:
    """What is done in vain is done again by whoever needs it."""
    try:
        await work
    except Exception as fault:  # noqa: BLE001 - of nats-py, or of a bus that is away
        _log.debug("the queue of jobs: %r", fault)


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Done, whatever becomes of who waits for it; for some seconds at most, once it is stopped."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=_LAST)
        task.cancel()
        raise
