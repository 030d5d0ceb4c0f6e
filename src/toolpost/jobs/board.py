"""Where jobs are kept: put down, found, listed, changed, ended, followed.

Above: ``desk``, which runs them, and whoever only looks (the command line). Below: ``Records``;
every change of a job names the version that it changes, so that of two who want a job one gets it.
A process may be killed between any two lines: what a job was given is there before the job is, and
its result before its end. What belongs to an open job has no end by the clock: a clock that jumps
drops none. It refuses to know how a job is run.

    jobs            what is known of a job, by its id
    jobs.given      what it runs with; gone when it has ended
    jobs.results    what came of it, by its id and the attempt
    jobs.open       those that have not ended
    jobs.of         those of each caller
    jobs.keys       idempotency keys
    jobs.cancel     those that are to be stopped by who runs them
    jobs.absent     since when nobody has the tool of one, by its id and the attempt
    jobs.holders    who runs jobs right now
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any, Final

import msgspec

from toolpost import incarnation
from toolpost.approvals.values import principal
from toolpost.call import Caller, Progress
from toolpost.contracts import Clock, Record, Records
from toolpost.digest import canonical, digest
from toolpost.errors import Conflict, InvalidArguments, InvalidOutput, QueueFull, ToolNotFound
from toolpost.failure import failure
from toolpost.jobs.values import Given, Job, State, cancelled
from toolpost.ledger.record import AuditRecord
from toolpost.ledger.trespass import trespass
from toolpost.result import Result
from toolpost.wording import short

_log = logging.getLogger("toolpost.jobs")
_JOBS: Final = "jobs"
_GIVEN: Final = "jobs.given"
_RESULTS: Final = "jobs.results"
_OPEN: Final = "jobs.open"
_OF: Final = "jobs.of"
_KEYS: Final = "jobs.keys"
_CANCEL: Final = "jobs.cancel"
_ABSENT: Final = "jobs.absent"
_HOLDERS: Final = "jobs.holders"
_ID: Final = re.compile(r"jb-[0-9a-f]{20}")
_BEGINNING: Final = re.compile(r"jb-[0-9a-f]{3,20}")
LONGEST: Final = 30 * 86_400.0
"""Seconds that a job which has not begun waits for somebody who has its tool."""
_DAY: Final = 86_400.0
_SOONEST, _LATEST = 0.05, 0.5
"""Seconds between two looks at the store while somebody follows."""
LEASE: Final = 60.0
"""Seconds after which a holder that cannot be seen from here, and does not say that it is there, is
not there: by the monotonic clock of whoever listens."""
_MISSING: Final = LEASE / 2
"""The same for one of which nothing is in the store. It says that it is there more often."""


class Board:
    """``ttl``: seconds that a job which has ended is kept. ``keep`` takes down who asked for the
    job of another.
    """

    def __init__(
        self,
        records: Records,
        *,
        clock: Clock,
        ttl: float = _DAY,
        most: int = 1000,
        keep: Callable[[AuditRecord], Awaitable[bool]] | None = None,
    ) -> None:
        self._records, self._clock, self._ttl, self._most = records, clock, ttl, most
        self._keep = keep
        self._beats: dict[str, tuple[int, float]] = {}
        """Of holders that cannot be seen: the version of what they said last, and since when."""
        self._unborn: dict[str, float] = {}
        """Jobs of which there is a trace and no record: since when."""
        self.in_doubt = False
        """Whether the last look found jobs of holders that may or may not be there."""

    def now(self) -> float:
        return self._clock.time()

    def monotonic(self) -> float:
        """For how long something lasts: it never jumps."""
        return self._clock.monotonic()

    def new_id(self) -> str:
        """In the order of time, and nobody's to guess."""
        return f"jb-{int(self.now() * 1000):011x}{secrets.token_hex(5)[1:]}"

    async def put_down(self, job: Job, given: Given) -> tuple[Job, int | None]:
        """Keep a new job: it, and its version. The same with the same key is the job that is there
        already, without one. When this returns it is in the store.
        """
        who, own = principal(job.caller), job.id
        if given.key is not None:
            job = await self._named(job, who, given.key)
            if (there := await self.found(job.id)) is not None:
                return _same(job, there[0]), None
        try:
            await self._demand_room(who)
        except QueueFull:
            if job.keyed and job.id == own:
                await self._records.put(_KEYS, job.keyed, None)
            raise
        put, place = self._records.put, f"{job.id}/{job.given}"
        await asyncio.gather(
            put(_GIVEN, place, msgspec.to_builtins(given)),
            put(_OF, f"{who}/{job.id}", 1),
            put(_OPEN, f"{who}/{job.id}", 1),
        )
        version = await put(_JOBS, job.id, _kept(job), version=0)
        if version is not None:
            return job, version
        there = await self.found(job.id)  # it has this key, and somebody was faster
        if there is None or there[0].given != job.given:
            await put(_GIVEN, place, None)
        return _same(job, there and there[0]), None

    async def find(self, job_id: str, *, caller: Caller) -> tuple[Job, int]:
        """The job and its version, if it is there for this caller."""
        there = await self.found(job_id) if _ID.fullmatch(job_id) else None
        if there is None:
            raise _unknown(job_id)
        if not _may_see(caller, there[0]):
            await self._note(caller, there[0])
            raise _unknown(job_id)
        return there

    async def get(self, job_id: str, *, caller: Caller) -> Job:
        """The job as it is, with its result if it has ended."""
        job, _ = await self.find(job_id, caller=caller)
        if not job.over:
            return job
        return msgspec.structs.replace(job, result=await self.result(job))

    async def like(self, beginning: str, *, caller: Caller) -> Job:
        """The only job whose id begins so: for people, who type."""
        fits = _BEGINNING.fullmatch(beginning) is not None
        found = await self._records.scan(_JOBS, prefix=beginning, limit=2) if fits else ()
        if len(found) > 1:
            raise ToolNotFound(
                f"{short(beginning)!r} may be several: type more of it.", remedy="stop"
            )
        if not found:
            raise _unknown(beginning)
        return await self.get(found[0][0], caller=caller)

    async def list(
        self, *, caller: Caller, state: State | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Job]:
        """The caller's jobs, the oldest first, from the one after ``after`` on; without results."""
        if (after and not _ID.fullmatch(after)) or not 1 <= limit <= 1000:
            raise InvalidArguments("after is the id of a job, and limit 1 to 1000.")
        found: list[Job] = []
        while page := await self._page(caller, after):
            for job in page:
                if state in (None, job.state) and _may_see(caller, job):
                    found.append(job)
                if len(found) == limit:
                    return found
            after = page[-1].id
        return found

    async def cancel(self, job_id: str, *, caller: Caller) -> Job:
        """End a job that nobody runs; ask who runs it to stop it. One that has ended stays so."""
        while True:
            job, version = await self.find(job_id, caller=caller)
            if job.over:
                return await self.get(job_id, caller=caller)
            if job.state == "running" and (job.carrier or await self.alive(job.holder)):
                await self._records.put(_CANCEL, job.id, caller.id, ttl=_DAY)
                again, _ = await self.find(job_id, caller=caller)
                if again.holder == job.holder or again.over:
                    return again
                continue  # somebody else has it now
            result = cancelled(job, begun=job.state == "running")
            if (ended := await self.end(job, version, result, state="cancelled")) is not None:
                return ended

    async def follow(
        self, job_id: str, *, caller: Caller, heard: asyncio.Queue[Progress | None] | None = None
    ) -> AsyncIterator[Job | Progress]:
        """The job, what it reports, and the job again whenever its state is another; the last is
        the job with its result. ``heard`` brings what is reported here, as it is.
        """
        before: Job | None = None
        pause = _SOONEST
        while not (job := await self.get(job_id, caller=caller)).over:
            if before is None or job.state != before.state:
                yield job
            elif heard is None and job.progress not in (None, before.progress):
                yield job.progress
            pause = _SOONEST if job != before else min(pause * 1.5, _LATEST)
            before = job
            while report := await _next(heard, pause):
                yield report
        for report in _rest(heard):
            yield report
        yield job

    # For those who run jobs.

    async def given(self, job: Job) -> Given | None:
        record = await self._records.get(_GIVEN, f"{job.id}/{job.given}")
        return None if record is None else msgspec.convert(record.value, Given)

    async def result(self, job: Job) -> Result | None:
        """What came of its last attempt, if that is known."""
        record = await self._records.get(_RESULTS, f"{job.id}/{job.attempts}")
        return None if record is None else Result.from_dict(json.loads(record.value))

    async def version(self, job_id: str) -> int | None:
        record = await self._records.get(_JOBS, job_id)
        return None if record is None else record.version

    async def change(self, job: Job, version: int) -> int | None:
        """The job as it is now; ``None``: somebody else has changed it."""
        return await self._records.put(_JOBS, job.id, _kept(job), version=version)

    async def end(self, job: Job, version: int, result: Result, *, state: State) -> Job | None:
        """The job with its end, its result first; ``None``: somebody else has changed it."""
        now, ttl, put = self.now(), self._ttl, self._records.put
        ended = msgspec.structs.replace(
            job, state=state, ended=now, expires=now + ttl, holder="", progress=None
        )
        place = f"{job.id}/{job.attempts}"
        await put(_RESULTS, place, _text(job, result), ttl=ttl + LEASE)
        if await put(_JOBS, job.id, _kept(ended), version=version, ttl=ttl) is None:
            return None
        await self._clear(ended)
        return msgspec.structs.replace(ended, result=result)

    async def to_cancel(self) -> Sequence[str]:
        return [key for key, _ in await self._records.scan(_CANCEL)]

    async def is_to_be_cancelled(self, job: Job) -> bool:
        return await self._records.get(_CANCEL, job.id) is not None

    async def absent_since(self, job: Job) -> float:
        """When it was first seen, since its last attempt, that nobody has its tool."""
        place, now = f"{job.id}/{job.attempts}", self.now()
        await self._records.put(_ABSENT, place, now, version=0, ttl=_DAY)
        record = await self._records.get(_ABSENT, place)
        return now if record is None else float(record.value)

    async def left(self, but: Collection[str] = ()) -> AsyncIterator[tuple[Job, int]]:
        """Those that have not ended and that nobody holds; but for some."""
        after, alive, self.in_doubt = "", dict[str, bool](), False
        while page := await self._records.scan(_OPEN, after=after):
            for key, _ in page:
                job_id = key.rpartition("/")[2]
                if job_id in but:
                    continue
                if (there := await self.found(job_id)) is None:
                    await self._drop_traces(key, job_id)
                    continue
                self._unborn.pop(job_id, None)
                job, _ = there
                if job.over:  # whoever ended it did not get any further
                    await self._clear(job)
                    continue
                if job.holder not in alive:
                    alive[job.holder] = await self.alive(job.holder)
                if not alive[job.holder]:
                    yield there
                elif self._beats.get(job.holder, (1, 0.0))[0] == 0:
                    self.in_doubt = True
            after = page[-1][0]

    async def hold(self, holder: str, about: str) -> None:
        """Say that a holder is there, and whose tools it has."""
        await self._records.put(_HOLDERS, holder, about, ttl=LEASE)

    async def let_go(self, holder: str) -> None:
        await self._records.put(_HOLDERS, holder, None)

    async def held_by(self, about: str) -> bool:
        """Whether somebody with these tools takes up what is left."""
        for holder, record in await self._records.scan(_HOLDERS):
            if record.value == about and await self.alive(holder):
                return True
        return False

    async def alive(self, holder: str) -> bool:
        """A process that can be seen is there until it ends; another, as long as it says so."""
        life = holder.rpartition("#")[0]
        if incarnation.seen(life):
            return not incarnation.ended(life)
        if not holder:
            return False
        record = await self._records.get(_HOLDERS, holder)
        return self._is_heard(holder, 0 if record is None else record.version)

    def _is_heard(self, holder: str, beat: int) -> bool:
        """Whether a holder has said something lately. What it says may have outlived its time by a
        clock that jumped; so it is listened to for a while.
        """
        now = self.monotonic()
        last, since = self._beats.get(holder, (-1, now))
        if beat != last:
            if len(self._beats) >= self._most:  # of those that are long gone
                self._beats.clear()
            since = now
            self._beats[holder] = (beat, since)
        return now - since < (LEASE if beat else _MISSING)

    async def _drop_traces(self, key: str, job_id: str) -> None:
        """Who put down a job did not get as far as the job itself, unless it is about to."""
        now = self.monotonic()
        if now - self._unborn.setdefault(job_id, now) < LEASE:
            return
        put = self._records.put
        for place, _ in await self._records.scan(_GIVEN, prefix=f"{job_id}/"):
            await put(_GIVEN, place, None)
        await asyncio.gather(put(_OF, key, None), put(_OPEN, key, None))
        del self._unborn[job_id]

    async def _demand_room(self, who: str) -> None:
        open_ = await self._records.scan(_OPEN, prefix=f"{who}/", limit=self._most)
        if len(open_) >= self._most:
            raise QueueFull(
                f"{self._most} of your jobs have not ended. Submit this one when some have.",
                retry_after=10.0,
            )

    async def _named(self, job: Job, who: str, key: str) -> Job:
        """The job under the id that its key has; who gave it that may have died before it was
        there.
        """
        place = digest([who, job.tool, key])
        job = msgspec.structs.replace(job, keyed=place)
        while await self._records.put(_KEYS, place, job.id, version=0) is None:
            if (record := await self._records.get(_KEYS, place)) is not None:
                return msgspec.structs.replace(job, id=record.value)
        return job

    async def found(self, job_id: str) -> tuple[Job, int] | None:
        record = await self._records.get(_JOBS, job_id)
        return None if record is None else (_read(job_id, record), record.version)

    async def _page(self, caller: Caller, after: str) -> Sequence[Job]:
        if caller.owner:
            page = await self._records.scan(_JOBS, after=after, limit=200)
            return [_read(key, record) for key, record in page]
        prefix = f"{principal(caller)}/"
        page = await self._records.scan(_OF, prefix=prefix, after=prefix + after, limit=200)
        ids = [key.rpartition("/")[2] for key, _ in page]
        found = await asyncio.gather(*map(self.found, ids))
        jobs = [there[0] for there in found if there is not None]
        if ids and not jobs:  # all of them have ended long ago: there may be more
            return await self._page(caller, ids[-1])
        return jobs

    async def _clear(self, job: Job) -> None:
        """What only an open job needs."""
        put, mine = self._records.put, f"{principal(job.caller)}/{job.id}"
        await asyncio.gather(
            put(_GIVEN, f"{job.id}/{job.given}", None),
            put(_CANCEL, job.id, None),
            put(_OF, mine, 1, ttl=self._ttl),
            *([put(_KEYS, job.keyed, job.id, ttl=self._ttl)] if job.keyed else ()),
        )
        await put(_OPEN, mine, None)  # at last: whoever finds it there does all of this

    async def _note(self, caller: Caller, job: Job) -> None:
        _log.warning("%s asked for %s of %s", caller.id, job.id, job.caller.id)
        if self._keep is not None:
            await self._keep(
                trespass(caller, job.caller, what=job.id, tool=job.tool, at=self.now())
            )


def _may_see(caller: Caller, job: Job) -> bool:
    """Whoever owns the process sees everybody's; else each their own."""
    return caller.owner or principal(caller) == principal(job.caller)


def _unknown(job_id: str) -> ToolNotFound:
    why = f"There is no job {short(job_id)!r}, or it is kept no longer."
    return ToolNotFound(why, remedy="stop")


def _same(job: Job, there: Job | None) -> Job:
    if there is None or there.same != job.same:
        raise Conflict("This key was used with other arguments. Use a new key for another job.")
    return there


def _read(job_id: str, record: Record) -> Job:
    try:
        return msgspec.convert(record.value, Job)
    except msgspec.ValidationError as fault:
        raise Conflict(f"{job_id} cannot be read: {fault}.") from None


def _kept(job: Job) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(job)
    data.pop("result", None)
    return data


def _text(job: Job, result: Result) -> str:
    """A result, exact to the last digit."""
    try:
        return canonical(result.to_dict()).decode()
    except (TypeError, ValueError):  # a ring of somebody's own has put in what is not JSON
        why = InvalidOutput("The tool returned something that is not JSON data.")
        error = failure(why, tool=job.tool, call_id=job.call_id or "", effects=job.effects)
        return canonical(Result(error=error).to_dict()).decode()


async def _next(heard: asyncio.Queue[Progress | None] | None, pause: float) -> Progress | None:
    """What is reported within so many seconds; ``None`` means: look."""
    if heard is None:
        await asyncio.sleep(pause)
        return None
    try:
        return await asyncio.wait_for(heard.get(), pause)
    except TimeoutError:
        return None


def _rest(heard: asyncio.Queue[Progress | None] | None) -> Iterator[Progress]:
    """What was reported while somebody looked, and the job has ended."""
    while heard is not None and not heard.empty():
        if report := heard.get_nowait():
            yield report
