"""``Jobs``: detached calls, taken in and run.

Above: the doors. Below: ``board``, where jobs are kept, and the runtime, whose road a job walks
when its turn comes. A job is in the store before it is acknowledged. Whoever runs one says so in
the store first: of a process that has died others know what it had begun. What only reads, or may
be done again, is then done again; of anything else the guard ``once`` is asked, by the job's key,
whether it has been done (``recovery``). Where nobody can say, the job ends as ``unknown``. What was
handed over to be run elsewhere (``carried``) outlives who handed it over. It refuses to know by
which door a job came.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self

import msgspec

from toolpost import incarnation
from toolpost.approvals.values import kept, kept_caller
from toolpost.call import Caller, Progress, new_call_id
from toolpost.clock import SystemClock
from toolpost.config import Config
from toolpost.contracts import PARCEL, Clock, Parcel
from toolpost.digest import canonical, digest
from toolpost.errors import CallError, InternalError, InvalidArguments
from toolpost.failure import failure
from toolpost.jobs.board import LEASE, Board
from toolpost.jobs.carried import Carriers, parcel
from toolpost.jobs.held import Held
from toolpost.jobs.lane import Lane
from toolpost.jobs.recovery import Recovery, extension, own_key
from toolpost.jobs.values import Given, Job, State, cancelled, shown, state_of, unknown
from toolpost.result import Result
from toolpost.runtime import Runtime
from toolpost.spec import Effects

_log = logging.getLogger("toolpost.jobs")
_LOOK: Final = 0.25
"""Seconds between two looks for what is to be cancelled, while something runs."""
_ANSWERS: Final = 1.0
_LEFT: Final = 2.0
"""Seconds between two looks for answers of people, and for what nobody runs."""
_STOP: Final = 5.0
_CARRIED: Final = 1000
"""Jobs that run elsewhere, at once; those that run here are counted by the setting ``running``."""
_ABSENT: Final = 1.0
_PATIENCE: Final = 3600.0
"""Seconds that a job waits for its turn where a rate or a queue sends it away."""
_LATER: Final = ("RATE_LIMITED", "QUEUE_FULL")
_MOST_HEARD: Final = 1000
_NUMBERS: Final = itertools.count()
_GRAVITY: Final[tuple[Effects, ...]] = ("read", "idempotent", "once")
_replace = msgspec.structs.replace


class Jobs:
    """``async with Jobs(runtime) as jobs: job = await jobs.submit("report", {}, caller=me)``.

    Where it is not opened it takes jobs in and runs none: that is left to whoever is open.
    """

    def __init__(self, runtime: Runtime, *, clock: Clock | None = None) -> None:
        settings = runtime.config.settings.jobs
        self._runtime, self._settings = runtime, settings
        keep = extension(runtime, "audit")
        self.board = Board(
            runtime.store,
            clock=clock or SystemClock(),
            ttl=settings.ttl,
            most=settings.most,
            keep=keep and keep.keep,
        )
        self._recovery, self._carriers = Recovery(runtime, self.board), Carriers(runtime)
        self.seen_through = 0
        """How many have ended here."""
        self._name = ""
        self._held: dict[str, Held] = {}
        self._here, self._elsewhere = (
            Lane(self._run, most=most, wanted=lambda held: held.job.id in self._held)
            for most in (settings.running, _CARRIED)
        )
        self._tending: asyncio.Task[None] | None = None
        self._taking = asyncio.Lock()
        self._changed, self._closing = asyncio.Event(), asyncio.Event()

    async def open(self) -> None:
        """Take up what was left by those who have died, and run jobs from now on."""
        self._name = f"{incarnation.mine()}#{next(_NUMBERS)}"
        self._closing.clear()
        try:
            await self._say_hold()
            await self._take_up()
        except CallError as fault:  # it is tried again, and again
            _log.error("jobs cannot be taken up now: %s", fault)
        self._tending = asyncio.create_task(self._tend())

    async def close(self, *, grace: float = 0.0, hurry: Callable[[], bool] = lambda: False) -> None:
        """Run no more. What runs may take so many seconds to end, unless ``hurry`` says that this
        is too long; what then has not is stopped, and is left for the next who opens, or ends as
        unknown. What is queued stays so.
        """
        if self._tending is None:
            return
        self._closing.set()
        await asyncio.wait([self._tending])  # what it has begun to take it holds
        self._tending, name, self._name = None, self._name, ""
        self._here.clear()
        self._elsewhere.clear()
        loop = asyncio.get_running_loop()
        ends = loop.time() + grace
        while self._here.tasks and not hurry() and (left := ends - loop.time()) > 0:
            await asyncio.wait(self._here.tasks, timeout=min(left, _LOOK))
        tasks = self._here.tasks | self._elsewhere.tasks
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(CallError):  # a store that is gone knows when we are, too
            for held in tuple(self._held.values()):
                await held.write(_replace(held.job, holder=""))
            await self.board.let_go(name)
        self._held.clear()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def submit(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        caller: Caller,
        session_id: str | None = None,
        timeout: float | None = None,
        working_dir: str | None = None,
        phase: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
        grant: str | None = None,
    ) -> Job:
        """Take a call in. It is planned first: what would be refused is refused now, as the error
        that its result would have. When this returns it is in the store.

        With a key the same job again is the job that is there. ``timeout``: seconds that its run
        may take, once it has begun.
        """
        given = Given(
            arguments="",
            session_id=session_id,
            timeout=timeout,
            working_dir=working_dir,
            phase=phase,
            metadata=None if metadata is None else _exact(dict(metadata)),
            key=key,
            grant=grant,
        )
        planned = await self._walked(name, arguments, caller, given, dry_run=True)
        plan = planned.raise_for_error().metadata.plan or {}
        admitted = plan.get("arguments", arguments or {})  # as the guards have left them
        given = _replace(given, arguments=_exact(admitted))
        job = Job(
            id=self.board.new_id(),
            tool=name,
            caller=kept_caller(caller),
            state="queued",
            created=self.board.now(),
            effects=self._effects(name),
            given=digest(msgspec.to_builtins(given)),
            arguments=shown(admitted),
            same="" if key is None else digest([given.arguments, working_dir]),
            session=session_id and kept(session_id),
            holder=self._name,
            carrier=self._carriers.of(name),
        )
        job, version = await self.board.put_down(job, given)
        if version is None:
            return await self.board.get(job.id, caller=caller)
        self._queue(Held(self.board, job.holder, job, version))
        return job

    async def get(self, job_id: str, *, caller: Caller) -> Job:
        """The job as it is, with its result if it has ended; another caller's is not found."""
        return await self.board.get(job_id, caller=caller)

    async def list(
        self, *, caller: Caller, state: State | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Job]:
        """The caller's jobs, the oldest first, without results."""
        return await self.board.list(caller=caller, state=state, after=after, limit=limit)

    async def cancel(self, job_id: str, *, caller: Caller) -> Job:
        """Stop a job, wherever it runs: as it is when it has ended, or after some seconds."""
        job = await self.board.cancel(job_id, caller=caller)
        if not job.over:
            self._stop(job_id)
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP):
                    return await self.wait(job_id, caller=caller)
            return await self.get(job_id, caller=caller)
        if (held := self._held.get(job_id)) is not None and held.task is None:
            self._drop(held)
        return job

    async def wait(self, job_id: str, *, caller: Caller) -> Job:
        """The job when it has ended."""
        job = await self.get(job_id, caller=caller)
        async for one in self.follow(job_id, caller=caller):
            job = one if isinstance(one, Job) else job
        return job

    async def follow(self, job_id: str, *, caller: Caller) -> AsyncIterator[Job | Progress]:
        """The job; what it reports, as it comes if it runs here; and the job again whenever its
        state is another. The last is the job with its result.
        """
        await self.board.find(job_id, caller=caller)
        heard: asyncio.Queue[Progress | None] | None = None
        if (held := self._held.get(job_id)) is not None:
            heard = asyncio.Queue(_MOST_HEARD)
            held.listeners.add(heard)
        try:
            async for one in self.board.follow(job_id, caller=caller, heard=heard):
                yield one
        finally:
            if held is not None and heard is not None:
                held.listeners.discard(heard)

    async def until_idle(self) -> None:
        """Run until there is nothing left to run. Whoever relies on this being here is heard."""
        while True:
            while self._held:
                self._changed.clear()
                await self._changed.wait()
            await self.board.let_go(self._name)
            await self._take_up()
            if not self._held:
                return
            await self._say_hold()

    def _effects(self, name: str) -> Effects:
        """The tool's; where it may hand over to another, the gravest."""
        found, seen = list[Effects](), set[str]()
        spec = self._runtime.registry.get(name)
        while spec is not None and spec.name not in seen:
            seen.add(spec.name)
            found.append(spec.effects)
            spec = None if spec.fallback is None else self._runtime.registry.get(spec.fallback)
        return max(found, key=_GRAVITY.index, default="once")

    # What is done again and again.

    async def _tend(self) -> None:
        """Whatever goes wrong with the store is tried again."""
        every = {
            self._hear_cancels: _LOOK,
            self._hear_answers: _ANSWERS,
            self._take_up: _LEFT,
            self._say_hold: LEASE / 4,
        }
        due = dict.fromkeys(every, 0.0)
        loop = asyncio.get_running_loop()
        while not self._closing.is_set():
            for work, seconds in every.items():
                if loop.time() < due[work]:
                    continue
                due[work] = loop.time() + seconds
                try:
                    await work()
                except Exception:  # noqa: BLE001 - the store may be away; jobs go on when it is back
                    _log.exception("jobs cannot be looked after right now")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _LOOK)

    async def _say_hold(self) -> None:
        await self.board.hold(self._name, house(self._runtime.config))

    async def _hear_cancels(self) -> None:
        if self._here.tasks or self._elsewhere.tasks:
            for job_id in await self.board.to_cancel():
                self._stop(job_id)

    async def _hear_answers(self) -> None:
        """What people were asked has been answered, or nobody will."""
        desk = extension(self._runtime, "approval")
        for held in [one for one in self._held.values() if one.job.state == "waiting"]:
            if held.task is not None or held in self._here or held in self._elsewhere:
                continue
            if await self.board.version(held.job.id) != held.version:
                self._drop(held)  # somebody has cancelled it
                continue
            request = None
            with suppress(CallError, AttributeError):  # it is not there, or nobody asks any more
                request = await desk.approvals.find(held.job.approval)
            if request is None or request.state(self.board.now()) != "waiting":
                self._queue(held)

    async def _take_up(self) -> None:
        async with self._taking:
            async for job, version in self.board.left(self._held):
                there = self._runtime.registry.get(job.tool) is not None
                if there or (job.carrier and job.state == "running"):
                    await self._take(job, version)

    async def _take(self, job: Job, version: int) -> None:
        """A job that nobody holds is ours, unless somebody else is faster."""
        handed_over = job.carrier and job.state == "running" and not await self.board.result(job)
        if handed_over:
            await self._take_over(Held(self.board, self._name, job, version))
            return
        if await self.board.is_to_be_cancelled(job) and not await self.board.result(job):
            result = cancelled(job, begun=job.state == "running")
            await self.board.end(job, version, result, state="cancelled")
            return
        if job.state == "running":
            job = _replace(job, deaths=job.deaths + 1)
            if (end := await self._recovery.end_of(job)) is not None:
                await self.board.end(job, version, end[0], state=end[1])
                return
            job = _replace(job, state="queued")
            if job.effects != "once":
                job = _replace(job, approval=None)  # a yes is for one call: it may have been used
        await self._take_over(Held(self.board, self._name, job, version))

    async def _take_over(self, held: Held) -> None:
        if await held.take():
            self._held[held.job.id] = held
            if held.job.state != "waiting":
                self._queue(held)

    # Running.

    def _queue(self, held: Held) -> None:
        if not self._name:
            return
        self._held[held.job.id] = held
        (self._elsewhere if held.job.carrier else self._here).put(held)

    def _drop(self, held: Held) -> None:
        self._held.pop(held.job.id, None)
        held.tell(None)
        self._changed.set()

    def _stop(self, job_id: str) -> None:
        held = self._held.get(job_id)
        if held is not None and held.task is not None and not held.stopped:
            held.stopped = True
            held.task.cancel()

    async def _run(self, held: Held) -> None:
        try:
            await self._attempt(held)
        except asyncio.CancelledError:
            await _to_the_end(self._broken_off(held))
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
        given = await self.board.given(held.job)
        if held.job.carrier and held.job.state == "running":
            await self._collected(held, given)
            return
        now, carrier = self.board.now(), self._carriers.of(held.job.tool)
        if held.job.carrier and self._is_absent(held.job):
            self._later(held, _ABSENT)
            return
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
            self._drop(held)  # cancelled, or another's
            return
        result = _lost(job) if given is None else await self._executed(held, job, given)
        held.outcome = result
        await _to_the_end(self._settled(held, result))

    async def _executed(self, held: Held, job: Job, given: Given) -> Result:
        given = _replace(given, key=given.key or own_key(job), grant=job.approval or given.grant)
        handed = None
        if job.carrier:  # its limit is that of the run, which may begin much later
            handed, given = parcel(job, given), _replace(given, timeout=None)
        return await self._walked(
            job.tool,
            json.loads(given.arguments),
            job.caller,
            given,
            handed=handed,
            call_id=job.call_id,
            on_progress=held.hearing(asyncio.get_running_loop()),
        )

    async def _walked(
        self,
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
        metadata = None if given.metadata is None else json.loads(given.metadata)
        if handed is not None:
            metadata = {**(metadata or {}), PARCEL: handed}
        return await self._runtime.execute(
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

    def _is_absent(self, job: Job) -> bool:
        """Whether nobody has its tool right now, and may have it again soon."""
        waited = self.board.now() - job.created
        return self._runtime.registry.get(job.tool) is None and waited < _PATIENCE

    async def _collected(self, held: Held, given: Given | None) -> None:
        """See a job through that somebody else has handed over."""
        if await self.board.is_to_be_cancelled(held.job):
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
                self._drop(held)
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
                self._drop(held)
        elif error is not None and self._may_come_again(job, result):
            if await held.write(_replace(job, state="queued")):
                self._later(held, error.retry_after or 1.0)
            else:
                self._drop(held)
        else:
            await self._over(held, result, state_of(result))
        held.outcome, held.settled = None, True

    def _may_come_again(self, job: Job, result: Result) -> bool:
        """A full queue is no end, nor is a rate, nor a key whose call seems to run still."""
        error, waited = result.error, self.board.now() - job.created
        assert error is not None
        if error.code == "CONFLICT" and error.retryable:
            return waited < _PATIENCE
        if job.carrier and error.code == "UNAVAILABLE" and error.retryable:
            return error.effects == "none" and waited < _PATIENCE
        if job.carrier and error.code == "NOT_FOUND" and self._is_absent(job):
            return True
        return error.code in _LATER and error.effects == "none" and waited < _PATIENCE

    async def _broken_off(self, held: Held) -> None:
        """The run was stopped: by who cancelled it, or because this process ends. It may have come
        to its end just before.
        """
        if held.outcome is not None:
            await self._settled(held, held.outcome)
        job = held.job
        if job.id not in self._held or (held.settled and not held.stopped):
            return
        if held.stopped:
            result = await self._stopped(job)
            await self._over(held, result, state_of(result))
        elif job.carrier and job.state == "running":  # it goes on, and others see it through
            await held.write(_replace(job, holder=""))
            self._drop(held)
        elif job.state != "running" or job.effects != "once":
            if job.state == "running":
                job = _replace(job, state="queued", approval=None)
            await held.write(_replace(job, holder=""))
            self._drop(held)
        else:
            await self._over(held, unknown(job), "unknown")

    async def _stopped(self, job: Job) -> Result:
        """What a job has come to that is to be no more."""
        begun = job.state == "running"
        if begun and job.carrier:
            with suppress(CallError):  # nobody can be told: it may run, or have run
                result = await self._carriers.recall(job)
                begun = result is not None
                given = await self.board.given(job)
                if result is not None and given is not None and state_of(result) != "cancelled":
                    return await self._carriers.brought_in(job, given, result)
        return cancelled(job, begun=begun)

    async def _over(self, held: Held, result: Result, state: State) -> None:
        if await held.end(result, state):
            self.seen_through += 1
        else:
            _log.error("%s was taken by another while it ran: its result is lost", held.job.id)
        self._drop(held)

    def _later(self, held: Held, seconds: float) -> None:
        pause = min(max(seconds, 0.05), 60.0) if math.isfinite(seconds) else 1.0
        asyncio.get_running_loop().call_later(pause, self._again, held)

    def _again(self, held: Held) -> None:
        if self._held.get(held.job.id) is held and held.task is None:
            self._queue(held)


def house(config: Config) -> str:
    """Whose tools these are: those of a config."""
    return str(config.file.resolve() if config.file is not None else config.base)


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Done, whatever becomes of who waits for it."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _lost(job: Job) -> Result:
    gone = InternalError("What this job was given is not there any more.", effects="none")
    return Result(error=failure(gone, tool=job.tool, call_id="", effects=job.effects))


def _exact(arguments: Any) -> str:
    try:
        return canonical(arguments).decode()
    except (TypeError, ValueError):
        raise InvalidArguments("A job takes plain JSON: it has to be kept.") from None
