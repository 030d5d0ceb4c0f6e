"""``/v1/artifacts``: outputs that were too large to be handed over, by their handles.

Above: ``routes.py``. Below: the extension ``artifacts``, which keeps them for a while and for their
caller alone. A browser is told to save them and to guess nothing: who wrote them is not known.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from toolpost.call import Caller
from toolpost.gateway.behind import Behind, caller_of
from toolpost.gateway.problems import Refused
from toolpost.gateway.rest.asked import queried, reply

_RANGE: Final = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")
_PIECE: Final = 256 * 1024


def routes(behind: Behind) -> list[Route]:
    async def about(request: Request) -> Response:
        queried(request)
        handle = request.path_params["handle"]
        found = await behind.artifacts.about(handle, caller=caller_of(request.scope))
        return reply(found.to_dict())

    async def content(request: Request) -> Response:
        queried(request)
        handle, caller = request.path_params["handle"], caller_of(request.scope)
        found = await behind.artifacts.about(handle, caller=caller)
        first, end = _asked(request.headers.get("range"), found.size)
        headers = {
            "accept-ranges": "bytes",
            "cache-control": "no-store",
            "content-disposition": "attachment",
            "content-length": str(end - first),
            "x-content-type-options": "nosniff",
        }
        partly = (first, end) != (0, found.size)
        if partly:
            headers["content-range"] = f"bytes {first}-{end - 1}/{found.size}"
        pieces = _pieces(behind.artifacts, handle, caller, first, end)
        return StreamingResponse(pieces, 206 if partly else 200, headers, found.mime)

    return [
        Route("/v1/artifacts/{handle}", about, methods=["GET"]),
        Route("/v1/artifacts/{handle}/content", content, methods=["GET"]),
    ]


def _asked(said: str | None, size: int) -> tuple[int, int]:
    """The bytes that are wanted; what is no range of this means all of it."""
    match = None if said is None else _RANGE.fullmatch(said)
    if match is None or not any(match.groups()):
        return 0, size
    if not match[1]:
        first, end = max(0, size - int(match[2])), size
    else:
        first, end = int(match[1]), min(size, int(match[2] or size) + 1)
    if first >= end:
        there = (b"content-range", b"bytes */%d" % size)
        raise Refused(416, f"There are {size:,} bytes, counted from 0.", there)
    return first, end


async def _pieces(
    artifacts: Any, handle: str, caller: Caller, first: int, end: int
) -> AsyncIterator[bytes]:
    while first < end:
        length = min(_PIECE, end - first)
        piece: bytes = await artifacts.read(handle, caller=caller, offset=first, length=length)
        if not piece:
            return
        yield piece
        first += len(piece)
