"""``/v1/calls``: the caller's own calls that are running, and how to stop one.

Above: ``routes.py``. Below: ``inflight.py``, which has those of this process; of several server
processes the others are asked for theirs.
"""

from __future__ import annotations

from typing import Any

import msgspec
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
        calls = [{"call_id": i, "tool": c.tool, "started": c.since} for i, c in found]
        for status, body in await _elsewhere(behind, request):
            calls += _calls(body) if status == 200 else []
        return reply({"calls": sorted(calls, key=lambda call: call["started"])})

    async def stop(request: Request) -> Response:
        call_id: str = request.path_params["call_id"]
        caller = caller_of(request.scope)
        queried(request)
        if (other := behind.inflight.another_s(call_id, caller)) is not None:
            await behind.note_trespass(caller, other.caller, what=call_id, tool=other.tool)
        elif behind.inflight.stop(call_id, caller) or any(
            status == 204 for status, _ in await _elsewhere(behind, request)
        ):
            return Response(status_code=204)
        raise ToolNotFound(f"No call {short(call_id)!r} of yours is running.", remedy="stop")

    return [
        Route("/v1/calls", listed, methods=["GET"]),
        Route("/v1/calls/{call_id}", stop, methods=["DELETE"]),
    ]


async def _elsewhere(behind: Behind, request: Request) -> list[tuple[int, bytes]]:
    siblings = behind.siblings
    return [] if siblings is None else await siblings.everywhere(request.scope)


def _calls(body: bytes) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = msgspec.json.decode(body)["calls"]
    return listed
