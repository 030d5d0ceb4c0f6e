"""The same call with the same key runs once: a repeat gets what the first one got.

Above: the road. Below: ``Records``. A key belongs to a caller and a tool, and to what the call was
given, before any guard took something out of it: of that a digest is kept. It is claimed in the
store before the tool runs, so that a process that dies leaves a claim without an outcome: the
answer to a repeat is then that nobody knows, and the tool does not run again. A failure that says
``effects: none`` frees the key, and so does a cancellation before the tool was reached. Tools that
only read need no key.

A repeat in the same process joins a call that is still running; in another it is told to come back.

The extension stands at two places. ``once.lookup`` stands before the guards that ask a person or
count a rate: a key that is known answers there. ``once`` stands next to the tool and claims the
key. What a call came to is stored under its key; if the store is away it is stored later, and until
then this process answers repeats from memory. The claim of a running call has no end by the clock:
it belongs to the process that wrote it for as long as that process lives.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Coroutine, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import cached_property
from time import monotonic
from typing import Any, Final, Literal, NamedTuple, Self

import msgspec

from toolpost import incarnation
from toolpost.call import Call, Caller
from toolpost.clock import SystemClock
from toolpost.contracts import (
    Check,
    Clock,
    Extension,
    Lined,
    Records,
    Ring,
    Road,
    Surroundings,
    Walk,
)
from toolpost.deadline import had_not_begun, timed_out
from toolpost.digest import canonical, digest
from toolpost.errors import Conflict, Denied, InvalidArguments
from toolpost.extensions.findings import Search
from toolpost.failure import failure
from toolpost.options import Options, options_from
from toolpost.redact import Rules
from toolpost.result import Failure, Notice, Result
from toolpost.schema import Schema
from toolpost.spec import ToolSpec, is_external

_log = logging.getLogger("toolpost")
_SPACE: Final = "once"
_SLACK: Final = 60.0
"""Seconds that a run may take beyond its tries, in queues and back-offs, before another host
that cannot see the process calls its outcome unknown."""
_SOONEST, _LATEST = 0.1, 5.0
"""Seconds between two attempts to store what could not be stored."""
_MOST_BYTES: Final = 64 * 1024 * 1024
_COST: Final = 1000
"""Bytes of outcomes that may wait for the store, and what each takes beside its result."""
_TIDY: Final = 60.0
_TIDY_AGAIN: Final = 3600.0
"""Seconds after which, and then how often at most, the claims of dead processes are looked for."""
_PAGE: Final = 100
_NOT_STORED: Final = (
    "The outcome of this call is not stored under its key yet, because the store cannot be "
    "reached. It is stored when the store is back. Until then only this process knows it: a repeat "
    "with this key elsewhere may be told that the call is running or that its outcome is unknown."
)
_NOT_FREED: Final = (
    "The key of this call may not be free yet, because the store cannot be reached. It is freed "
    "when the store is back. Until then a repeat with this key may be refused."
)
_COME_BACK: Final = 1.0
_SECRETS: Final = Rules(personal=False)
_RUNNING: Final[set[str]] = set()
"""The calls with keys that run in this process, whichever executor they came through."""


_RUNS_STILL: Final = Failure(
    code=Conflict.code,
    message="A call with this key is still running. Ask for its result with the same key later.",
    remedy="wait",
    retryable=True,
    effects="unknown",
    retry_after=_COME_BACK,
)
"""Not raised: of other tools with effects nobody is told to try again what may have been done."""


class OnceOptions(Options, frozen=True, kw_only=True):
    """The table ``[extensions.once]``. ``ttl``: seconds that a key is remembered, from the end of
    its call on.
    """

    ttl: float = 86400.0

    def __post_init__(self) -> None:
        if not self.ttl > 0:
            raise ValueError("ttl is a number of seconds above 0")


class _Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the store keeps under a key."""

    arguments: str
    life: str
    run: str
    until: float
    state: Literal["running", "done", "unknown", "free"] = "running"
    result: str | None = None


class _Run(msgspec.Struct, frozen=True, eq=False):
    """A keyed call that is running here; ``done`` gives its result, or ``None`` if it has none."""

    arguments: str
    done: asyncio.Future[Result | None]


class _Ending(NamedTuple):
    """How a run ended, and the version of its claim in the store, if that is known."""

    claim: _Claim
    version: int | None

    @property
    def size(self) -> int:
        return _COST + len(self.claim.result or "")


class Once:
    """The guard for idempotency keys."""

    name = "once"
    options = OnceOptions

    def __init__(
        self, records: Records, *, ttl: float = 86400.0, clock: Clock | None = None
    ) -> None:
        self._records, self._clock, self._ttl = records, clock or SystemClock(), ttl
        self._runs: dict[str, _Run] = {}
        self._writing: set[asyncio.Task[bool]] = set()
        self._endings: dict[str, _Ending] = {}
        """What the store could not take yet, by the place of the key."""
        self._bytes = 0
        self._storing: asyncio.Task[None] | None = None
        self._tidying: asyncio.Task[None] | None = None

    @cached_property
    def parts(self) -> Mapping[str, Extension]:
        """Where else it stands: ``once.lookup``."""
        return {"lookup": LookUp(self)}

    @property
    def ttl(self) -> float:
        """Seconds that a key is remembered."""
        return self._ttl

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        ttl = options_from(options, OnceOptions, "extension once").ttl
        return cls(around.records, ttl=ttl, clock=around.clock)

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
        if spec.effects == "read":
            return None

        def ring(call: Call, call_next: Walk) -> Awaitable[Result]:
            if call.key is None or call.dry_run:
                return call_next(call)
            return self._keyed(call, call_next)

        return ring

    async def release(self, caller: Caller, *, tool: str, key: str, run: str) -> None:
        """Take back the claim of a call of which it is known that it did nothing."""
        place = digest([caller.principal, tool, key])
        record = await self._records.get(_SPACE, place)
        if record is not None and (claim := msgspec.convert(record.value, _Claim)).run == run:
            freed = msgspec.structs.replace(claim, state="free")
            await self._put(place, freed, record.version)

    async def open(self) -> None:
        """From now on the claims of dead processes are given an end."""
        if self._tidying is None:
            self._tidying = asyncio.get_running_loop().create_task(self._tidy())

    async def close(self) -> None:
        """What is known of runs that have ended is still written, and tried a last time."""
        await asyncio.gather(*self._writing, return_exceptions=True)
        for task in (self._storing, self._tidying):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._storing = self._tidying = None
        if not await self._store_endings():
            _log.error(
                "the outcomes of %d calls with keys are lost: the store is away", len(self._endings)
            )
        for place in tuple(self._endings):
            self._forget(place)

    async def find(self, call: Call) -> Result | None:
        """What a call with this key gets without running; ``None`` if its key is free."""
        place, arguments = _pinned(call)
        if (result := await self._known_here(place, call, arguments)) is not None:
            return result
        record = await self._records.get(_SPACE, place)
        if record is None:
            return None
        claim = msgspec.convert(record.value, _Claim)
        return None if self._is_freed(place, claim) else self._answer(claim, call, arguments)

    async def _keyed(self, call: Call, call_next: Walk) -> Result:
        place, arguments = _pinned(call)
        if (result := await self._known_here(place, call, arguments)) is not None:
            return result
        run = self._runs[place] = _Run(arguments, asyncio.get_running_loop().create_future())
        result = None
        try:
            result = await self._first(place, call, call_next, arguments)
            return result
        finally:
            del self._runs[place]
            run.done.set_result(result)

    async def _known_here(self, place: str, call: Call, arguments: str) -> Result | None:
        """What this process knows of the key: a call that runs, or an outcome that is not stored
        yet.
        """
        while (run := self._runs.get(place)) is not None:
            if run.arguments != arguments:
                raise _other_arguments()
            if (result := await _joined(run, call)) is not None:
                call.about.size = result.metadata.size
                return _again(result, call, "joined the call that was running")
        ending = self._endings.get(place)
        if ending is None or ending.claim.state == "free":
            return None
        return self._answer(ending.claim, call, arguments)

    async def _first(self, place: str, call: Call, call_next: Walk, arguments: str) -> Result:
        """The first here: it runs, unless the store knows of one before."""
        claim = _Claim(arguments, incarnation.mine(), call.call_id, self._latest(call))
        _RUNNING.add(claim.run)
        version: int | None = None
        try:
            known = 0
            while (version := await self._put(place, claim, known)) is None:
                known = 0
                if (record := await self._records.get(_SPACE, place)) is not None:
                    there = msgspec.convert(record.value, _Claim)
                    if not self._is_freed(place, there):
                        _RUNNING.discard(claim.run)
                        return self._answer(there, call, arguments)
                    known = record.version
        except BaseException as fault:  # it may be written all the same
            if claim.run in _RUNNING:
                freed = msgspec.structs.replace(claim, state="free")
                self._write(self._settle(place, freed, None))
                if isinstance(fault, Exception):
                    call.warn(_NOT_FREED)
            raise
        self._forget(place)
        try:
            result = await call_next(call)
        except BaseException as fault:  # cancelled: what the tool had done by then nobody knows
            idle = had_not_begun(fault, call.call_id)  # unless it was not reached
            ended = msgspec.structs.replace(claim, state="free" if idle else "unknown")
            if idle:  # whoever has waited for this call runs at once
                self._put_off(place, _Ending(ended, version))
            self._write(self._settle(place, ended, version))
            raise
        kept = _outcome(claim, result, call)
        if not await asyncio.shield(self._write(self._settle(place, kept, version))):
            if kept.state == "free":
                call.warn(_NOT_FREED)
            else:  # beside the output, so that a model reads it too
                parts = (*result.parts, Notice(_NOT_STORED))
                result = msgspec.structs.replace(result, parts=parts)
        return result

    def _answer(self, claim: _Claim, call: Call, arguments: str) -> Result:
        """What a repeat gets."""
        if claim.arguments != arguments:
            raise _other_arguments()
        if claim.state == "done" and claim.result is not None:
            call.about.size = len(claim.result)
            stored = Result.from_dict(json.loads(claim.result))
            for notice in stored.notices:
                call.warn(notice)
            return _again(stored, call, "the first result")
        if self._runs_still(claim):
            call.note(Once.name, _RUNS_STILL.code)
            return Result(error=_RUNS_STILL)
        raise Conflict(
            "A call with this key was begun, and how it ended is not known. It is not run again: "
            "find out what it did, and use a new key if it has to be repeated.",
            effects="unknown",
        )

    def _runs_still(self, claim: _Claim) -> bool:
        if claim.state != "running":
            return False
        if claim.life == incarnation.mine():
            return claim.run in _RUNNING
        if incarnation.seen(claim.life):
            return not incarnation.ended(claim.life)
        return self._clock.time() < claim.until

    def _is_freed(self, place: str, claim: _Claim) -> bool:
        """Whether a claim in the store is of a call that did nothing, which is not stored yet."""
        ending = self._endings.get(place)
        return ending is not None and ending.claim.state == "free" and ending.claim.run == claim.run

    def _latest(self, call: Call) -> float:
        """When it will have ended, for those who cannot see this process."""
        most = call.spec.total_limit
        if call.deadline is not None:
            most = min(most, max(0.0, call.deadline - monotonic()))
        return self._clock.time() + most + _SLACK

    async def _put(self, place: str, claim: _Claim, version: int) -> int | None:
        value = None if claim.state == "free" else msgspec.to_builtins(claim)
        ttl = None if claim.state == "running" else self._ttl  # a clock that jumps frees no run
        return await self._records.put(_SPACE, place, value, version=version, ttl=ttl)

    def _write(self, writing: Coroutine[Any, Any, bool]) -> asyncio.Task[bool]:
        """Written to the end, whatever becomes of the call."""
        task = asyncio.get_running_loop().create_task(writing)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    async def _settle(self, place: str, claim: _Claim, version: int | None) -> bool:
        """Store how a run ended; ``False``: the store is away, and it is stored later."""
        try:
            await self._end(place, claim, version)
        except Exception as fault:  # noqa: BLE001 - the tool has run: its result must not be lost for this
            _log.warning("the outcome of call %s is not stored yet: %s", claim.run, fault)
            self._put_off(place, _Ending(claim, version))
            return False
        _RUNNING.discard(claim.run)
        return True

    async def _end(self, place: str, claim: _Claim, version: int | None) -> None:
        """Replace a claim by how its run ended. An attempt before may have done so unheard."""
        if version is not None and await self._put(place, claim, version) is not None:
            return
        record = await self._records.get(_SPACE, place)
        if record is None:
            return
        there = msgspec.convert(record.value, _Claim)
        if there.run == claim.run and there.state == "running":
            await self._put(place, claim, record.version)

    def _put_off(self, place: str, ending: _Ending) -> None:
        self._forget(place)
        if self._bytes + ending.size > _MOST_BYTES:
            _RUNNING.discard(ending.claim.run)
            _log.error(
                "the outcome of call %s is lost: too many wait for the store", ending.claim.run
            )
            return
        self._endings[place] = ending
        self._bytes += ending.size
        if self._storing is None or self._storing.done():
            self._storing = asyncio.get_running_loop().create_task(self._keep_storing())

    def _forget(self, place: str) -> None:
        """Nothing waits for the store any more under this key."""
        if (ending := self._endings.pop(place, None)) is not None:
            self._bytes -= ending.size
            _RUNNING.discard(ending.claim.run)

    async def _keep_storing(self) -> None:
        """Try again and again, until nothing waits."""
        pause = _SOONEST
        while self._endings:
            await asyncio.sleep(pause)
            pause = _SOONEST if await self._store_endings() else min(2 * pause, _LATEST)

    async def _store_endings(self) -> bool:
        """Store what waits; ``False``: the store is still away."""
        for place, ending in tuple(self._endings.items()):
            try:
                await self._end(place, *ending)
            except Exception:  # noqa: BLE001 - it was logged, and stays; the others are next to be tried
                if self._endings.get(place) is ending:
                    self._endings[place] = self._endings.pop(place)
                return False
            if self._endings.get(place) is ending:
                self._forget(place)
        return True

    async def _tidy(self) -> None:
        """Now and then: short programs never do."""
        pause = _TIDY
        while True:
            await asyncio.sleep(pause)
            pause = max(_TIDY_AGAIN, self._ttl)
            try:
                await self.end_orphans()
            except Exception as fault:  # noqa: BLE001 - the store is away: the next time will do
                _log.warning("the claims of dead processes cannot be looked for: %s", fault)

    async def end_orphans(self) -> None:
        """Give the claims of dead processes an end: their outcome is unknown, and is kept as long
        as any other.
        """
        after = ""
        while page := await self._records.scan(_SPACE, after=after, limit=_PAGE):
            for place, record in page:
                if record.value.get("state", "running") == "running":
                    claim = msgspec.convert(record.value, _Claim)
                    if not self._runs_still(claim):
                        unknown = msgspec.structs.replace(claim, state="unknown")
                        await self._put(place, unknown, record.version)
            after = page[-1][0]


class LookUp:
    """Answers a call whose key is known, before anybody is asked and before a rate counts it."""

    name = f"{Once.name}.lookup"

    def __init__(self, once: Once) -> None:
        self._once = once

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
        if spec.effects == "read":
            return None
        idle = self._is_idle_for_plain_calls(spec, road)

        async def ring(call: Call, call_next: Walk) -> Result:
            result = await self._once.find(call)
            return await call_next(call) if result is None else result

        def look(call: Call) -> Ring | None:
            if call.key is None or call.dry_run:
                return None
            plain = call.session_id is None and call.ask is None and call.grant is None
            return None if plain and idle else ring

        return Check(look, plain=True)

    def _is_idle_for_plain_calls(self, spec: ToolSpec, road: Road) -> bool:
        """Whether no guard from here to the claim has anything to say of a plain call: then the
        claim finds a known key just as well, and one read of the store is saved.
        """
        guards = list(road.guards) if isinstance(road, Lined) else []
        if self not in guards or self._once not in guards:
            return False
        between = guards[guards.index(self) + 1 : guards.index(self._once)]
        rings = [guard.bind(spec, road) for guard in between]
        return all(ring is None or (isinstance(ring, Check) and ring.plain) for ring in rings)


def _pinned(call: Call) -> tuple[str, str]:
    """Where the claim is kept, and what it was given for."""
    caller, given = call.caller, call.pinned()
    if given is not None:
        with suppress(TypeError, ValueError):
            place = digest([caller.principal, call.tool, call.key])
            return place, digest([given, call.working_dir])
    raise InvalidArguments(
        "With a key, arguments must be plain JSON, and the key a text without half characters."
    )


async def _joined(run: _Run, call: Call) -> Result | None:
    """The result of the call that is running. Whoever waits may go: it is not theirs to stop."""
    left = None if call.deadline is None else call.deadline - monotonic()
    done, _ = await asyncio.wait((run.done,), timeout=left)
    if not done:
        raise timed_out(left or 0)
    return run.done.result()


def _again(result: Result, call: Call, said: str) -> Result:
    call.note(Once.name, said)
    call.about.cached = True
    return Result(
        deepcopy(result.output),
        result.parts,
        None if result.error is None else _final(result.error),
        call.about,
    )


def _final(error: Failure) -> Failure:
    """The same key will never say anything else; a key that was freed may be tried again, and so
    may one whose call runs elsewhere.
    """
    if error.effects == "none" or error is _RUNS_STILL:
        return error
    remedy = "stop" if error.remedy == "wait" else error.remedy
    return msgspec.structs.replace(error, retryable=False, retry_after=None, remedy=remedy)


def _outcome(claim: _Claim, result: Result, call: Call) -> _Claim:
    """What is kept of a run that has ended, exact to the last digit; without secrets where the
    caller does not get them either: in errors, and in what comes from outside.
    """
    if result.error is not None and result.error.effects == "none":
        return msgspec.structs.replace(claim, state="free")
    data = _without_secrets(result, call).to_dict()
    try:
        text = canonical({part: data[part] for part in ("output", "parts", "error")}).decode()
    except (TypeError, ValueError):  # a ring of somebody's own has put in what is not JSON
        return msgspec.structs.replace(claim, state="unknown")
    return msgspec.structs.replace(claim, state="done", result=text)


def _without_secrets(result: Result, call: Call) -> Result:
    """The redacted result says so itself: whoever gets it again has nothing left to find."""
    search, spec = Search(_SECRETS, _SECRETS, {}), call.spec
    if not is_external(spec):
        error = None if result.error is None else search.failure(result.error)
        return msgspec.structs.replace(result, error=error)
    schema = Schema(True if spec.output_schema is None else spec.output_schema)
    try:
        return search.result(call.tool, result, schema)
    except Denied as refusal:
        error = failure(refusal, tool=call.tool, call_id=call.call_id, effects=spec.effects)
        return Result(error=error)


def _other_arguments() -> Conflict:
    return Conflict("This key was used with other arguments. Use a new key for another call.")
