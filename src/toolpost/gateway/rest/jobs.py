"""``/v1/jobs``: the caller's detached calls, their results, and how to follow or stop one.

Above: ``routes.py``. Below: ``jobs`` of the package, which keeps them. One begins with ``Prefer:
respond-async`` on a call. Another's jobs are not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, get_args

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from toolpost.call import Caller, Progress
from toolpost.gateway.behind import Behind, caller_of
from toolpost.gateway.problems import Refused
from toolpost.gateway.rest.asked import MOST, queried, reply, whole
from toolpost.gateway.rest.streaming import HEARTBEAT, SILENCE, event
from toolpost.gateway.rest.wanted import wants_events
from toolpost.jobs import Job, Jobs
from toolpost.jobs.values import State

_PAGE: Final = 100
_STATES: Final[tuple[State, ...]] = get_args(State)


def routes(behind: Behind) -> list[Route]:
    if behind.jobs is None:
        return []
    kept = _Kept(behind.jobs)
    return [
        Route("/v1/jobs", kept.list, methods=["GET"]),
        Route("/v1/jobs/{job_id}", kept.one, methods=["GET", "DELETE"]),
    ]


class _Kept:
    """The jobs of whoever asks."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def list(self, request: Request) -> Response:
        query = queried(request, "state", "limit", "after")
        state = next((one for one in _STATES if one == query.get("state")), None)
        if "state" in query and state is None:
            raise Refused(400, f"state: must be one of {', '.join(_STATES)}.")
        most = whole(query, "limit", _PAGE, most=MOST) or _PAGE
        page = await self._jobs.list(
            caller=caller_of(request.scope), state=state, after=query.get("after", ""), limit=most
        )
        more = {"next": page[-1].id} if len(page) == most else {}  # there may be none after it
        return reply({"jobs": [job.to_dict() for job in page], **more})

    async def one(self, request: Request) -> Response:
        queried(request)
        if request.method == "DELETE":
            return await self._cancelled(request)
        job_id, caller = request.path_params["job_id"], caller_of(request.scope)
        job = await self._jobs.get(job_id, caller=caller)
        if not wants_events(dict(request.scope["headers"])):
            return reply(job.to_dict())
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        told = self._told(job_id, caller)
        return StreamingResponse(told, headers=headers, media_type="text/event-stream")

    async def _cancelled(self, request: Request) -> Response:
        job_id = request.path_params["job_id"]
        job = await self._jobs.cancel(job_id, caller=caller_of(request.scope))
        return reply(job.to_dict())

    async def _told(self, job_id: str, caller: Caller) -> AsyncIterator[bytes]:
        """The job and what it reports, until it has ended; and a sign of life meanwhile."""
        news = self._jobs.follow(job_id, caller=caller)
        following = asyncio.ensure_future(anext(news, None))
        try:
            while True:
                await asyncio.wait((following,), timeout=HEARTBEAT)
                if not following.done():
                    yield SILENCE
                    continue
                if (one := following.result()) is None:
                    return
                yield _event(one)
                following = asyncio.ensure_future(anext(news, None))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def _event(one: Job | Progress) -> bytes:
    if isinstance(one, Job):
        return event("job", one.to_dict())
    if one.partial is not None:
        return event("partial", {"output": one.partial})
    return event("progress", one)
