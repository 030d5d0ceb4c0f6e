"""``/v1/calls``: the caller's own calls that are running, and how to stop one.

Above: ``routes.py``. Below: ``inflight.py``. Of several server processes each knows its own: what
must be stopped from anywhere is a job.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolpost.errors import ToolNotFound
from toolpost.gateway.behind import Behind, caller_of
from toolpost.gateway.rest.asked import queried, reply
from toolpost.wording import short


def routes(behind: Behind) -> list[Route]:
    async def listed(request: Request) -> Response:
        queried(request)
        found = behind.inflight.of(caller_of(request.scope))
        return reply(
            {"calls": [{"call_id": i, "tool": c.tool, "started": c.since} for i, c in found]}
        )

    async def stop(request: Request) -> Response:
        call_id: str = request.path_params["call_id"]
        caller = caller_of(request.scope)
        queried(request)
        if (other := behind.inflight.another_s(call_id, caller)) is not None:
            await behind.note_trespass(caller, other.caller, what=call_id, tool=other.tool)
        if not behind.inflight.stop(call_id, caller):
            raise ToolNotFound(f"No call {short(call_id)!r} of yours is running.", remedy="stop")
        return Response(status_code=204)

    return [
        Route("/v1/calls", listed, methods=["GET"]),
        Route("/v1/calls/{call_id}", stop, methods=["DELETE"]),
    ]
