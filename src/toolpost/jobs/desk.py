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
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self

import msgspec

from toolpost import incarnation
from toolpost.approvals.values import kept, kept_caller
from toolpost.call import Caller, Progress
from toolpost.clock import SystemClock
from toolpost.config import Config
from toolpost.contracts import Clock
from toolpost.digest import canonical, digest
from toolpost.errors import CallError, InvalidArguments
from toolpost.jobs.board import LEASE, LONGEST, Board
from toolpost.jobs.carried import Carriers
from toolpost.jobs.gravity import gravest
from toolpost.jobs.held import Held
from toolpost.jobs.recovery import Recovery, extension
from toolpost.jobs.running import PATIENCE, Running, walked
from toolpost.jobs.values import (
    Given,
    Job,
    State,
    cancelled,
    gone,
    not_begun,
    shown,
    state_of,
    unknown,
)
from toolpost.runtime import Runtime

_log = logging.getLogger("toolpost.jobs")
_LOOK: Final = 0.25
"""Seconds between two looks for what is to be cancelled, while something runs."""
_ANSWERS: Final = 1.0
_LEFT: Final = 2.0
"""Seconds between two looks for answers of people, and for what nobody runs."""
_STOP: Final = 5.0
_MOST_HEARD: Final = 1000
_NUMBERS: Final = itertools.count()
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
        self._running = Running(
            runtime,
            self.board,
            recovery=self._recovery,
            carriers=self._carriers,
            most=settings.running,
        )
        self._held = self._running.held
        self._name = ""
        self._tending: asyncio.Task[None] | None = None
        self._taking = asyncio.Lock()
        self._closing = asyncio.Event()

    @property
    def seen_through(self) -> int:
        """How many have ended here."""
        return self._running.seen_through

    async def open(self) -> None:
        """Take up what was left by those who have died, and run jobs from now on."""
        self._name = f"{incarnation.mine()}#{next(_NUMBERS)}"
        self._closing.clear()
        self._running.begin()
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
        running = self._running
        running.begin_no_more()
        loop = asyncio.get_running_loop()
        ends = loop.time() + grace
        while running.here.tasks and not hurry() and (left := ends - loop.time()) > 0:
            await asyncio.wait(running.here.tasks, timeout=min(left, _LOOK))
        tasks = running.tasks
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
        planned = await walked(self._runtime, name, arguments, caller, given, dry_run=True)
        plan = planned.raise_for_error().metadata.plan or {}
        admitted = plan.get("arguments", arguments or {})  # as the guards have left them
        given = _replace(given, arguments=_exact(admitted))
        job = Job(
            id=self.board.new_id(),
            tool=name,
            caller=kept_caller(caller),
            state="queued",
            created=self.board.now(),
            effects=gravest(self._runtime.registry, name),
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
        self._running.put(Held(self.board, job.holder, job, version))
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
            self._running.stop(job_id)
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP):
                    return await self.wait(job_id, caller=caller)
            return await self.get(job_id, caller=caller)
        if (held := self._held.get(job_id)) is not None and held.task is None:
            self._running.drop(held)
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
        heard: asyncio.Queue[Progress | None] | None = None
        if (held := self._held.get(job_id)) is not None:
            heard = asyncio.Queue(_MOST_HEARD)
            held.listeners.add(heard)  # at once: it may report while it is looked for
        try:
            await self.board.find(job_id, caller=caller)
            async for one in self.board.follow(job_id, caller=caller, heard=heard):
                yield one
        finally:
            if held is not None and heard is not None:
                held.listeners.discard(heard)

    async def until_idle(self) -> None:
        """Run until there is nothing left to run. Whoever relies on this being here is heard."""
        while True:
            await self._running.until_none_is_held()
            await self.board.let_go(self._name)
            await self._take_up()
            if not self._held and not self.board.in_doubt:
                return
            if not self._held:
                await asyncio.sleep(_LEFT)
            await self._say_hold()

    # What is done again and again.

    async def _tend(self) -> None:
        """Whatever goes wrong with the store is tried again."""
        every = {
            self._hear_cancels: _LOOK,
            self._hear_answers: _ANSWERS,
            self._take_up: _LEFT,
            self._say_hold: LEASE / 4,
        }
        due, failing = dict.fromkeys(every, 0.0), set[object]()
        loop = asyncio.get_running_loop()
        while not self._closing.is_set():
            for work, seconds in every.items():
                if loop.time() < due[work]:
                    continue
                due[work] = loop.time() + seconds
                try:
                    await work()
                    failing.discard(work)
                except Exception as fault:  # noqa: BLE001 - the store may be away; jobs go on when it is back
                    if work not in failing:  # once is enough
                        trace = None if isinstance(fault, CallError) else fault
                        _log.error("jobs cannot be looked after now: %s", fault, exc_info=trace)
                    failing.add(work)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _LOOK)

    async def _say_hold(self) -> None:
        await self.board.hold(self._name, house(self._runtime.config))

    async def _hear_cancels(self) -> None:
        if self._running.tasks:
            for job_id in await self.board.to_cancel():
                self._running.stop(job_id)

    async def _hear_answers(self) -> None:
        """What people were asked has been answered, or nobody will."""
        desk = extension(self._runtime, "approval")
        for held in [one for one in self._held.values() if one.job.state == "waiting"]:
            if held in self._running:
                continue
            if await self.board.version(held.job.id) != held.version:
                self._running.drop(held)  # somebody has cancelled it
                continue
            request = None
            with suppress(CallError, AttributeError):  # it is not there, or nobody asks any more
                request = await desk.approvals.find(held.job.approval)
            if request is None or request.state(self.board.now()) != "waiting":
                self._running.put(held)

    async def _take_up(self) -> None:
        async with self._taking:
            async for job, version in self.board.left(self._held):
                there = self._runtime.registry.get(job.tool) is not None
                if there or (job.carrier and job.state == "running"):
                    await self._take(job, version)
                elif job.state != "running" and self.board.now() - job.created >= LONGEST:
                    await self.board.end(job, version, not_begun(job), state="failed")
                elif not job.carrier and job.state != "waiting":
                    await self._leave(job, version)

    async def _leave(self, job: Job, version: int) -> None:
        """Nobody here has its tool. It may come back, with its source or its worker, or somebody
        else who shares the store has it and starts again: that is waited for, and not for ever.
        One that has never begun waits as long as it is kept.
        """
        if await self._is_cancelled(job, version):
            return
        waited = self.board.now() - await self.board.absent_since(job)
        begun = job.state == "running"
        if begun and (result := await self.board.result(job)) is not None:
            await self.board.end(job, version, result, state=state_of(result))
        elif begun and job.effects == "once":
            if waited >= LEASE:
                await self.board.end(job, version, unknown(job), state="unknown")
        elif job.attempts and waited >= PATIENCE:
            await self.board.end(job, version, gone(job), state="failed")
        elif begun or job.progress is None:
            why = Progress(message=f"It waits: nobody here has the tool {job.tool!r}.")
            left = _replace(job, holder="", deaths=job.deaths + begun, progress=why)
            await self.board.change(_from_anew(left) if begun else left, version)

    async def _take(self, job: Job, version: int) -> None:
        """A job that nobody holds is ours, unless somebody else is faster."""
        handed_over = job.carrier and job.state == "running" and not await self.board.result(job)
        if handed_over:
            await self._take_over(Held(self.board, self._name, job, version))
            return
        if await self._is_cancelled(job, version):
            return
        if job.state == "running":
            job = _replace(job, deaths=job.deaths + 1)
            if (end := await self._recovery.end_of(job)) is not None:
                await self.board.end(job, version, end[0], state=end[1])
                return
            job = _from_anew(job)
        await self._take_over(Held(self.board, self._name, job, version))

    async def _is_cancelled(self, job: Job, version: int) -> bool:
        """Whether somebody wanted it to be, before its holder died; then it is."""
        if not await self.board.is_to_be_cancelled(job) or await self.board.result(job):
            return False
        result = cancelled(job, begun=job.state == "running")
        await self.board.end(job, version, result, state="cancelled")
        return True

    async def _take_over(self, held: Held) -> None:
        if await held.take():
            self._held[held.job.id] = held
            if held.job.state != "waiting":
                self._running.put(held)


def _from_anew(job: Job) -> Job:
    """To be run again. A yes is for one call: it may have been used, where ``once`` cannot tell."""
    return _replace(job, state="queued", approval=job.approval if job.effects == "once" else None)


def house(config: Config) -> str:
    """Whose tools these are: those of a config."""
    return str(config.file.resolve() if config.file is not None else config.base)


def _exact(arguments: Any) -> str:
    try:
        return canonical(arguments).decode()
    except (TypeError, ValueError):
        raise InvalidArguments("A job takes plain JSON: it has to be kept.") from None
