"""What is to be done with a job whose holder died while it ran.

Above: ``desk``. Below: ``board``, and the rings that remember what was done: ``once`` knows by a
key whether a tool was reached, ``approval`` whether a yes was used. It refuses to run anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from toolpost.errors import CallError
from toolpost.jobs.board import Board
from toolpost.jobs.values import Job, State, given_up, state_of, unknown
from toolpost.result import Result
from toolpost.runtime import Runtime

_DEATHS: Final = 5
_SLACK: Final = 120.0


class Recovery:
    def __init__(self, runtime: Runtime, board: Board) -> None:
        self._runtime, self._board = runtime, board

    async def end_of(self, job: Job) -> tuple[Result, State] | None:
        """How the job has ended; ``None``: it may be run again."""
        if (result := await self._board.result(job)) is not None:
            return result, state_of(result)
        if job.effects != "once":
            return (given_up(job), "failed") if job.deaths > _DEATHS else None
        return None if await self._can_tell(job) else (unknown(job), "unknown")

    async def release(self, job: Job) -> None:
        """Its attempt has done nothing, or nothing that may not be done again: the key that it had
        claimed is free.
        """
        if (given := await self._board.given(job)) is not None and job.call_id is not None:
            once = extension(self._runtime, "once")
            key = given.key or own_key(job)
            if once is not None and key is not None:
                await once.release(job.caller, tool=job.tool, key=key, run=job.call_id)

    async def _can_tell(self, job: Job) -> bool:
        """Whether the road itself knows if the job has been done: then it may walk it again."""
        ttl = getattr(extension(self._runtime, "once"), "ttl", None)
        rings = self._runtime.executor.bound(job.tool).rings
        if ttl is None or "once" not in rings or job.deaths > _DEATHS or job.started is None:
            return False
        if self._board.now() - job.started > ttl - _SLACK:
            return False
        given = await self._board.given(job)
        if given is None or (handle := job.approval or given.grant) is None:
            return given is not None
        if _looks_up_first(rings):  # the key is asked before a yes that may have been used
            return True
        try:
            request = await extension(self._runtime, "approval").approvals.find(handle)
        except (CallError, AttributeError):
            return False
        return bool(request.status != "used")


def _looks_up_first(rings: Sequence[str]) -> bool:
    """Whether a known key answers before the approval."""
    places = [rings.index(name) for name in ("once.lookup", "approval") if name in rings]
    return len(places) == 2 and places[0] < places[1]


def own_key(job: Job) -> str | None:
    """The key of a job that was given none, and must not be done twice."""
    return f"job:{job.id}" if job.effects == "once" else None


def extension(runtime: Runtime, name: str) -> Any:
    """The ring of this name, if one is in force."""
    every = (*runtime.executor.observers, *runtime.executor.guards)
    return next((one for one in every if one.name == name), None)
