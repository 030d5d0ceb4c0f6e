"""Jobs that are ours, run one by one: what an attempt is, and what it leads to.

Above: ``desk``, which says what is ours. Below: two lanes, for what runs here and for what runs
elsewhere (``carried``), ``held``, and the runtime's road. A run that breaks off is settled before
it is let go: it may have come to its end just before. It refuses to know who asked for a job, and
who else runs some.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from toolpost.call import Caller, Progress, new_call_id
from toolpost.contracts import PARCEL, Parcel
from toolpost.deadline import had_not_begun
from toolpost.errors import PART, CallError, InternalError
from toolpost.failure import failure
from toolpost.jobs.board import Board
from toolpost.jobs.carried import Carriers, parcel
from toolpost.jobs.held import Held
from toolpost.jobs.lane import Lane
from toolpost.jobs.recovery import Recovery, extension, own_key
from toolpost.jobs.values import Given, Job, State, cancelled, state_of, unknown
from toolpost.result import Failure, Result
from toolpost.runtime import Runtime

_log = logging.getLogger("toolpost.jobs")
_CARRIED: Final = 1000
"""Jobs that run elsewhere, at once; those that run here are counted by the setting ``running``."""
_ABSENT: Final = 1.0
PATIENCE: Final = 3600.0
"""Seconds that a job waits for its turn where a rate or a queue sends it away, or for its tool."""
_LATER: Final = ("RATE_LIMITED", "QUEUE_FULL")
_DOUBLED: Final = 6
"""How often the pause before the next attempt doubles while the store is away."""
_replace = msgspec.structs.replace


class Running:
    """``held``: what is ours, by id. ``seen_through``: how many have ended here."""

    def __init__(
        self, runtime: Runtime, board: Board, *, recovery: Recovery, carriers: Carriers, most: int
    ) -> None:
        self._runtime, self._board = runtime, board
        self._recovery, self._carriers = recovery, carriers
        self.held: dict[str, Held] = {}
        self.seen_through = 0
        self.here, self._elsewhere = (
            Lane(
                self._run,
                most=most,
                wanted=lambda held: held.job.id in self.held,
                at_once=self._at_once,
            )
            for most in (most, _CARRIED)
        )
        self._slots = getattr(extension(runtime, "slots"), "at_once", None)
        self._changed, self._begins = asyncio.Event(), False

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        return self.here.tasks | self._elsewhere.tasks

    def __contains__(self, held: Held) -> bool:
        """Whether it runs, or waits its turn."""
        return held.task is not None or held in self.here or held in self._elsewhere

    async def until_none_is_held(self) -> None:
        while self.held:
            self._changed.clear()
            await self._changed.wait()

    def begin(self) -> None:
        self._begins = True

    def begin_no_more(self) -> None:
        """What runs may go on; nothing else is begun, neither what waits nor what comes later."""
        self._begins = False
        self.here.clear()
        self._elsewhere.clear()

    def put(self, held: Held) -> None:
        """It is ours, and is run when its turn comes; unless this is the end."""
        if not self._begins:
            return
        self.held[held.job.id] = held
        (self._elsewhere if held.job.carrier else self.here).put(held)

    def drop(self, held: Held) -> None:
        """It is ours no more."""
        self.held.pop(held.job.id, None)
        held.tell(None)
        self._changed.set()

    def stop(self, job_id: str) -> None:
        """Break its run off, if it runs here."""
        held = self.held.get(job_id)
        if held is not None and held.task is not None and not held.stopped:
            held.stopped = True
            held.task.cancel()

    def _at_once(self, tool: str) -> int | None:
        """How many jobs of a tool may run: one more would only wait for a slot."""
        spec = self._runtime.registry.get(tool)
        return None if spec is None or self._slots is None else self._slots(spec)

    async def _run(self, held: Held) -> None:
        try:
            await self._attempt(held)
        except asyncio.CancelledError as gone:
            idle = had_not_begun(gone, held.job.call_id or "")
            await _to_the_end(self._broken_off(held, begun=not idle))
            raise
        except CallError as fault:  # of the store: it stays ours, and is tried again
            _log.error("%s cannot be run now: %s", held.job.id, fault)
            self._later(held, fault.retry_after or 1.0)
        except Exception:  # noqa: BLE001 - a fault of ours: nobody knows how far it got
            _log.exception("%s cannot be run", held.job.id)
            await self._over(held, unknown(held.job), "unknown")
        finally:
            held.task = None

    async def _attempt(self, held: Held) -> None:
        if held.outcome is not None:  # it has run, and that could not be kept as yet
            await _to_the_end(self._settled(held, held.outcome))
            return
        given = await self._board.given(held.job)
        if held.job.carrier and held.job.state == "running":
            await self._collected(held, given)
            return
        now, carrier = self._board.now(), self._carriers.of(held.job.tool)
        if held.job.carrier and self._is_absent(held):
            self._later(held, _ABSENT)
            return
        if not held.job.carrier and self._runtime.registry.get(held.job.tool) is None:
            # for whoever has it, or has it again; who was asked has answered, if somebody was
            await held.write(_replace(held.job, state="queued", holder=""))
            self.drop(held)
            return
        if held.job.attempts and held.job.effects != "once":
            await self._recovery.release(held.job)  # else its own key would keep it from its end
        job = _replace(
            held.job,
            state="running",
            holder=held.holder,
            started=held.job.started or now,
            attempts=held.job.attempts + 1,
            call_id=new_call_id(),
            progress=None,
            carrier=carrier,
        )
        held.settled = False
        if not await held.write(job):
            self.drop(held)  # cancelled, or another's
            return
        result = _lost(job) if given is None else await self._executed(held, job, given)
        held.outcome = result
        await _to_the_end(self._settled(held, result))

    async def _executed(self, held: Held, job: Job, given: Given) -> Result:
        given = _replace(given, key=given.key or own_key(job), grant=job.approval or given.grant)
        handed = None
        if job.carrier:  # its limit is that of the run, which may begin much later
            handed, given = parcel(job, given), _replace(given, timeout=None)
        return await walked(
            self._runtime,
            job.tool,
            json.loads(given.arguments),
            job.caller,
            given,
            handed=handed,
            call_id=job.call_id,
            on_progress=held.hearing(asyncio.get_running_loop()),
        )

    def _is_absent(self, held: Held) -> bool:
        """Whether nobody has its tool right now, and may have it again soon."""
        gone = self._runtime.registry.get(held.job.tool) is None
        return gone and held.waited() < PATIENCE

    async def _collected(self, held: Held, given: Given | None) -> None:
        """See a job through that somebody else has handed over."""
        if await self._board.is_to_be_cancelled(held.job):
            held.stopped = True
            await self._broken_off(held)
            return
        held.settled = False
        hears = held.hearing(asyncio.get_running_loop())
        result = await self._carriers.collect(held.job, hears)
        if result is None:  # whoever held it has not got so far
            await self._recovery.release(held.job)
            if await held.write(_replace(held.job, state="queued", approval=None)):
                self._later(held, 0.0)
            else:
                self.drop(held)
            return
        if given is not None:
            result = await self._carriers.brought_in(held.job, given, result)
        held.job = _replace(held.job, call_id=result.metadata.call_id)
        held.outcome = result
        await _to_the_end(self._settled(held, result))

    async def _settled(self, held: Held, result: Result) -> None:
        """What an attempt has led to."""
        error, job = result.error, held.job
        handle = (error.details or {}).get("approval") if error is not None else None
        if error is not None and error.code == "APPROVAL_REQUIRED" and handle is not None:
            if not await held.write(_replace(job, state="waiting", approval=handle)):
                self.drop(held)
        elif error is not None and self._may_come_again(held, result):
            if await held.write(_replace(job, state="queued")):
                pause = error.retry_after or 1.0
                if _is_ours(error):
                    pause *= 2 ** min(held.outages, _DOUBLED)
                    held.outages += 1
                self._later(held, pause)
            else:
                self.drop(held)
        else:
            await self._over(held, result, state_of(result))
        held.outcome, held.settled = None, True

    def _may_come_again(self, held: Held, result: Result) -> bool:
        """A full queue is no end, nor is a rate, nor a key whose call seems to run still, nor a
        store that is away: that is waited for, however long it takes.
        """
        error, job, waited = result.error, held.job, held.waited()
        assert error is not None
        if _is_ours(error):
            return True
        if error.code == "CONFLICT" and error.retryable:
            return waited < PATIENCE
        if job.carrier and error.code == "UNAVAILABLE" and error.retryable:
            return error.effects == "none" and waited < PATIENCE
        if error.code == "NOT_FOUND" and self._is_absent(held):
            return bool(job.carrier) or error.effects == "none"
        return error.code in _LATER and error.effects == "none" and waited < PATIENCE

    async def _broken_off(self, held: Held, *, begun: bool = True) -> None:
        """The run was stopped: by who cancelled it, or because this process ends. It may have come
        to its end just before, or its tool may not have been reached.
        """
        if held.outcome is not None:
            await self._settled(held, held.outcome)
        job = held.job
        if job.id not in self.held or (held.settled and not held.stopped):
            return
        if held.stopped:
            result = await self._stopped(job, begun=begun)
            await self._over(held, result, state_of(result))
        elif job.carrier and job.state == "running":  # it goes on, and others see it through
            await held.write(_replace(job, holder=""))
            self.drop(held)
        elif job.state != "running" or job.effects != "once" or not begun:
            if job.state == "running":
                job = _replace(job, state="queued", approval=None)
            await held.write(_replace(job, holder=""))
            self.drop(held)
        else:
            await self._over(held, unknown(job), "unknown")

    async def _stopped(self, job: Job, *, begun: bool) -> Result:
        """What a job has come to that is to be no more."""
        begun = begun and job.state == "running"
        if begun and job.carrier:
            with suppress(CallError):  # nobody can be told: it may run, or have run
                result = await self._carriers.recall(job)
                begun = result is not None
                given = await self._board.given(job)
                if result is not None and given is not None and state_of(result) != "cancelled":
                    return await self._carriers.brought_in(job, given, result)
        return cancelled(job, begun=begun)

    async def _over(self, held: Held, result: Result, state: State) -> None:
        if await held.end(result, state):
            self.seen_through += 1
        else:
            _log.error("%s was taken by another while it ran: its result is lost", held.job.id)
        self.drop(held)

    def _later(self, held: Held, seconds: float) -> None:
        pause = min(max(seconds, 0.05), 60.0) if math.isfinite(seconds) else 1.0
        asyncio.get_running_loop().call_later(pause, self._again, held)

    def _again(self, held: Held) -> None:
        if self.held.get(held.job.id) is held and held.task is None:
            self.put(held)


async def walked(
    runtime: Runtime,
    name: str,
    arguments: Mapping[str, Any] | None,
    caller: Caller,
    given: Given,
    *,
    dry_run: bool = False,
    handed: Parcel | None = None,
    call_id: str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Result:
    """The road, with what a job was given."""
    metadata = None if given.metadata is None else json.loads(given.metadata)
    if handed is not None:
        metadata = {**(metadata or {}), PARCEL: handed}
    return await runtime.execute(
        name,
        arguments,
        caller=caller,
        session_id=given.session_id,
        timeout=given.timeout,
        working_dir=given.working_dir,
        dry_run=dry_run,
        phase=given.phase,
        metadata=metadata,
        key=given.key,
        grant=given.grant,
        on_progress=on_progress,
        call_id=call_id,
    )


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Done, whatever becomes of who waits for it."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _is_ours(error: Failure) -> bool:
    """Whether the call was refused before it ran because the store, or the audit in it, is away."""
    refused = error.code == "UNAVAILABLE" and error.retryable and error.effects == "none"
    return refused and (error.details or {}).get(PART) in ("store", "audit")


def _lost(job: Job) -> Result:
    gone = InternalError("What this job was given is not there any more.", effects="none")
    return Result(error=failure(gone, tool=job.tool, call_id="", effects=job.effects))
