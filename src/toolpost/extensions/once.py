"""The same call with the same key runs once: a repeat gets what the first one got.

Above: the road. Below: ``Records``. A key belongs to a caller and a tool, and to what the call was
given, before any guard took something out of it: of that a digest is kept. It is claimed in the
store before the tool runs, so that a process that dies leaves a claim without an outcome: the
answer to a repeat is then that nobody knows, and the tool does not run again. A failure that says
``effects: none`` frees the key. Tools that only read need no key.

A repeat in the same process joins a call that is still running; in another it is told to come back.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Coroutine, Mapping
from contextlib import suppress
from copy import deepcopy
from time import monotonic
from typing import Any, Final, Literal, Self

import msgspec

from toolpost import incarnation
from toolpost.call import Call, Caller
from toolpost.clock import SystemClock
from toolpost.contracts import Clock, Records, Ring, Road, Surroundings, Walk
from toolpost.deadline import timed_out
from toolpost.digest import canonical, digest
from toolpost.errors import Conflict, InvalidArguments
from toolpost.options import Options, options_from
from toolpost.redact import Rules
from toolpost.result import Failure, Result
from toolpost.spec import ToolSpec, is_external

_log = logging.getLogger("toolpost")
_SPACE: Final = "once"
_SLACK: Final = 60.0
"""Seconds that a run may take beyond its tries, in queues and back-offs, before another host
that cannot see the process calls its outcome unknown."""
_TRIES: Final = 3
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


class Once:
    """The guard for idempotency keys."""

    name = "once"

    def __init__(
        self, records: Records, *, ttl: float = 86400.0, clock: Clock | None = None
    ) -> None:
        self._records, self._clock, self._ttl = records, clock or SystemClock(), ttl
        self._runs: dict[str, _Run] = {}
        self._writing: set[asyncio.Task[None]] = set()

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
        if record is not None and msgspec.convert(record.value, _Claim).run == run:
            await self._put(place, None, record.version)

    async def close(self) -> None:
        """What is known of runs that have ended is still written."""
        await asyncio.gather(*self._writing, return_exceptions=True)

    async def _keyed(self, call: Call, call_next: Walk) -> Result:
        place, arguments = _pinned(call)
        while (run := self._runs.get(place)) is not None:
            if run.arguments != arguments:
                raise _other_arguments()
            if (result := await _joined(run, call)) is not None:
                call.about.size = result.metadata.size
                return _again(result, call, "joined the call that was running")
        run = self._runs[place] = _Run(arguments, asyncio.get_running_loop().create_future())
        result = None
        try:
            result = await self._first(place, call, call_next, arguments)
            return result
        finally:
            del self._runs[place]
            run.done.set_result(result)

    async def _first(self, place: str, call: Call, call_next: Walk, arguments: str) -> Result:
        """The first here: it runs, unless the store knows of one before."""
        claim = _Claim(arguments, incarnation.mine(), call.call_id, self._latest(call))
        _RUNNING.add(claim.run)
        try:
            while (version := await self._put(place, claim, 0)) is None:
                if (record := await self._records.get(_SPACE, place)) is not None:
                    _RUNNING.discard(claim.run)
                    return self._answer(msgspec.convert(record.value, _Claim), call, arguments)
        except BaseException:  # it may be written all the same
            if claim.run in _RUNNING:
                self._write(self._withdraw(place, claim))
            raise
        try:
            result = await call_next(call)
        except BaseException:  # cancelled: what the tool had done by then nobody knows
            unknown = msgspec.structs.replace(claim, state="unknown")
            self._write(self._settle(place, unknown, version))
            raise
        kept = _outcome(claim, result, external=is_external(call.spec))
        await asyncio.shield(self._write(self._settle(place, kept, version)))
        return result

    def _answer(self, claim: _Claim, call: Call, arguments: str) -> Result:
        """What a repeat gets."""
        if claim.arguments != arguments:
            raise _other_arguments()
        if claim.state == "done" and claim.result is not None:
            call.about.size = len(claim.result)
            return _again(Result.from_dict(json.loads(claim.result)), call, "the first result")
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
        return self._clock.time() < claim.until and not incarnation.ended(claim.life)

    def _latest(self, call: Call) -> float:
        """When it will have ended, for those who cannot see this process."""
        most = _TRIES * call.spec.time_limit
        if call.deadline is not None:
            most = min(most, max(0.0, call.deadline - monotonic()))
        return self._clock.time() + most + _SLACK

    async def _put(self, place: str, claim: _Claim | None, version: int) -> int | None:
        value, ttl = None if claim is None else msgspec.to_builtins(claim), self._ttl
        if claim is not None and claim.state == "running":  # not forgotten before its run ends
            ttl = max(ttl, claim.until - self._clock.time())
        return await self._records.put(_SPACE, place, value, version=version, ttl=ttl)

    def _write(self, writing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Written to the end, whatever becomes of the call."""
        task = asyncio.get_running_loop().create_task(writing)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    async def _settle(self, place: str, claim: _Claim, version: int) -> None:
        """The outcome; if it cannot be written, a repeat will hear that nobody knows."""
        try:
            await self._put(place, None if claim.state == "free" else claim, version)
        except Exception:  # noqa: BLE001 - the tool has run: its result must not be lost for this
            _log.exception("the outcome of call %s cannot be kept under its key", claim.run)
        finally:
            _RUNNING.discard(claim.run)

    async def _withdraw(self, place: str, claim: _Claim) -> None:
        """Take a claim back under which nothing has run."""
        try:
            record = await self._records.get(_SPACE, place)
            if record is not None and record.value.get("run") == claim.run:
                await self._put(place, None, record.version)
        except Exception:  # noqa: BLE001 - it stays, and says that nobody knows
            _log.exception("the key of call %s cannot be freed", claim.run)
        finally:
            _RUNNING.discard(claim.run)


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


def _outcome(claim: _Claim, result: Result, *, external: bool) -> _Claim:
    """What is kept of a run that has ended, exact to the last digit; without secrets where the
    caller does not get them either: in errors, and in what comes from outside.
    """
    if result.error is not None and result.error.effects == "none":
        return msgspec.structs.replace(claim, state="free")
    data = result.to_dict()
    for part in ("output", "parts", "error") if external else ("error",):
        data[part] = _without_secrets(data[part])
    try:
        text = canonical({part: data[part] for part in ("output", "parts", "error")}).decode()
    except (TypeError, ValueError):  # a ring of somebody's own has put in what is not JSON
        return msgspec.structs.replace(claim, state="unknown")
    return msgspec.structs.replace(claim, state="done", result=text)


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return _SECRETS.redact_text(value)
    if isinstance(value, dict):
        return {_SECRETS.redact_text(key): _without_secrets(one) for key, one in value.items()}
    return [_without_secrets(one) for one in value] if isinstance(value, list) else value


def _other_arguments() -> Conflict:
    return Conflict("This key was used with other arguments. Use a new key for another call.")
