"""An agent's side of the AgenticFramework contract: ``execute_tool``, three tries in all.

An agent has its tools and no others, and a session in which failures in a row are counted. What it
calls takes the road of an executor or a runtime: validated, limited in time, logged.

Above: an agent's loop. Below: ``contract.py``, the public API. It refuses to try again itself: that
is for the model, which may change the input.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Self

import msgspec

from toolpost import Caller, Executor, Failure, InvalidSpec, Registry, Result, Runtime
from toolpost.bridges.agentic.contract import (
    Tool,
    ToolAuthorizationError,
    ToolError,
    ToolExecutionError,
    ToolInput,
    ToolOutput,
    ToolTimeoutError,
    ToolValidationError,
    tools,
)
from toolpost.call import new_call_id
from toolpost.errors import BudgetExceeded
from toolpost.extensions.log import Log
from toolpost.failure import failure
from toolpost.wording import short

_log = logging.getLogger("toolpost.agentic")
TRIES: Final = 3
_KEPT: Final = 1000
_REFUSED: Final = frozenset(("UNAUTHORIZED", "POLICY_DENIED", "APPROVAL_DENIED"))
_NO_TRY: Final = _REFUSED | {"APPROVAL_REQUIRED", "BUDGET_EXCEEDED", "RATE_LIMITED", "QUEUE_FULL"}
_MISFIT: Final = frozenset(("VALIDATION_ERROR", "OUTPUT_INVALID"))


class Attempt(msgspec.Struct, frozen=True):
    """One try: the how many-th in a row it is, and the code of its error, if it failed."""

    tool: str
    number: int
    call_id: str
    duration_ms: float
    code: str | None = None


class Agent:
    """``Agent([read_file, weather])`` has a road of its own; ``over`` an executor or a runtime it
    takes that one, and ``tools`` are the names of those that it may use there.
    """

    def __init__(
        self,
        tools: Iterable[Tool | str],
        *,
        name: str = "agent",
        roles: Iterable[str] = (),
        over: Executor | Runtime | None = None,
        session: str | None = None,
    ) -> None:
        self._given = {one if isinstance(one, str) else one.name: one for one in tools}
        self._own = _road(self._given) if over is None else None
        self._road: Executor | Runtime = self._own if over is None else over  # type: ignore[assignment]
        self.caller = Caller(name, agent=name, roles=frozenset(roles), tools=tuple(self._given))
        self.session = session or new_call_id()
        self._attempts: deque[Attempt] = deque(maxlen=_KEPT)
        self._tries: dict[str, _Tries] = {}

    @property
    def attempts(self) -> Sequence[Attempt]:
        """The last tries, the newest at the end."""
        return tuple(self._attempts)

    async def execute_tool(self, tool: Tool | str, given: ToolInput) -> ToolOutput | ToolError:
        """Its output, or one of the four errors. After three failures in a row a fourth call is
        refused, whatever its input; of a tool that is not ``retryable``, a second call after one
        failed run. Of calls at the same time so many run that no more can fail; the others wait for
        these.
        """
        name = tool if isinstance(tool, str) else tool.name
        known = any(spec.name == name for spec in self._road.list(self.caller))
        entry = self._road.registry.entry(name)
        if known and isinstance(tool, Tool) and entry is not None and entry.target is not tool:
            _log.warning("%s: %s is not the tool of that name that it has", self.caller.id, name)
            return ToolAuthorizationError()
        target = None if entry is None else entry.target
        if known:
            limit = 1 if isinstance(target, Tool) and not target.retryable else TRIES
            result = await self._tried(name, given, limit)
        else:
            result = await self._run(name, given)
        if result.error is None:
            output: ToolOutput = result.output
            return output
        retryable = target.retryable if isinstance(target, Tool) else result.error.retryable
        return _left(result.error, known=known, retryable=retryable)

    async def _tried(self, name: str, given: ToolInput, limit: int) -> Result:
        tries, within = self._tries.setdefault(name, _Tries(limit)), _within.get()
        if not await tries.begin(wait=tries not in within):
            result = Result(error=_spent(name, limit))
            self._note(name, result, tries)
            return result
        outside = _within.set(within | {tries})
        try:
            return await self._run(name, given, tries)
        finally:
            _within.reset(outside)
            tries.end()

    async def _run(self, name: str, given: ToolInput, tries: _Tries | None = None) -> Result:
        """A tool that the agent has not, too, which is refused there: refusals are on record."""
        result = await self._road.execute(name, given, caller=self.caller, session_id=self.session)
        self._note(name, result, tries)
        return result

    def _note(self, name: str, result: Result, tries: _Tries | None) -> None:
        """Every try is kept and logged, without what was said in it; a refusal is none."""
        about, code = result.metadata, None if result.error is None else result.error.code
        if tries is None or code in _NO_TRY:
            _log.info("%s: %s was refused: %s", self.caller.id, short(name), code)
            return
        number = tries.failed + 1
        if tries.limit > 1 or code is None or _has_run(result):
            tries.failed = 0 if code is None else number
        self._attempts.append(Attempt(name, number, about.call_id, about.duration_ms, code))
        _log.info(
            "%s: %s, attempt %d of %d: %s",
            self.caller.id,
            name,
            number,
            tries.limit,
            code or "done",
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()


class _Tries:
    """Of one tool: failures in a row, and calls that are under way, which may become failures.
    Together these are never more than ``limit``, but for calls that a tool makes of itself.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.failed = self._under_way = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def begin(self, *, wait: bool) -> bool:
        """Whether there is a try left, which is taken. As long as that is not known, wait; not for
        a call that waits for this one.
        """
        while self.failed + self._under_way >= self.limit:
            if self.failed >= self.limit:
                return False
            if not wait:
                break
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._under_way += 1
        return True

    def end(self) -> None:
        self._under_way -= 1
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)


_within: Final[ContextVar[frozenset[_Tries]]] = ContextVar("within", default=frozenset())
"""The tries that whoever runs here is part of."""


async def execute_tool(
    tool: Tool, given: ToolInput, *, agent: Agent | None = None
) -> ToolOutput | ToolError:
    """Run a tool for an agent; without one, for an agent that has this tool and makes one call."""
    if agent is not None:
        return await agent.execute_tool(tool, given)
    async with Agent([tool]) as alone:
        return await alone.execute_tool(tool, given)


def _road(given: Mapping[str, Tool | str]) -> Executor:
    for name, one in given.items():
        if isinstance(one, str):
            raise InvalidSpec(f"there is no tool {name!r} without an executor: say over=…")
    items: list[Any] = tools(*given.values())  # type: ignore[arg-type] # there is no text among them
    return Executor(Registry(items), observers=[Log()])


def _has_run(result: Result) -> bool:
    """Whether a failed call has reached the tool; input that does not fit its schema has not."""
    error = result.error
    return error is None or error.code != "VALIDATION_ERROR" or error.effects != "none"


def _spent(name: str, limit: int) -> Failure:
    """The words are those of the guard ``rate``, which counts for all of a session."""
    why = f"{limit} times in a row in this session"
    if limit == 1:
        why = "in this session, and may not be tried again"
    fault = BudgetExceeded(
        f"{name} has failed {why}. Do not call it again: tell the user what you tried, or use "
        "another tool."
    )
    return failure(fault, tool=name, call_id="", effects="read")


def _left(failure: Failure, *, known: bool, retryable: bool) -> ToolError:
    """What the road said, as one of the four."""
    error: ToolError
    if not known or failure.code in _REFUSED:
        error = ToolAuthorizationError()
    elif failure.code == "TIMEOUT":
        error = ToolTimeoutError()
    elif failure.code in _MISFIT:
        error = ToolValidationError(failure.message)
    else:
        error = ToolExecutionError(failure.message)
    error.failure = failure
    stopped = isinstance(error, ToolAuthorizationError) or failure.remedy == "stop"
    error.retryable = retryable and not stopped
    return error
