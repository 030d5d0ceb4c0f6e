"""``/v1/audit``: the calls on record that fit, one of them, and the proof; for who has the role.

Above: ``routes.py``. Below: ``ledger``, over the store. Nothing here writes to the audit.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolpost.errors import ToolNotFound
from toolpost.gateway.behind import Behind, caller_of
from toolpost.gateway.problems import Refused
from toolpost.gateway.rest.asked import MOST, queried, reply, sent, whole
from toolpost.gateway.rest.resources import LATEST
from toolpost.ledger.archives import verify_everything
from toolpost.ledger.opening import FOLDER, lines_of
from toolpost.ledger.reading import AuditedCall, Wanted, calls
from toolpost.wording import short

_PAGE: Final = 100
_TEXTS: Final = ("tool", "caller", "session", "code", "text")
_TIMES: Final = ("since", "until")
_NUMBER: Final = re.compile(r"[0-9]{1,20}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,3})?")


def routes(behind: Behind) -> list[Route]:
    kept = _Kept(behind)
    return [
        Route("/v1/audit", kept.search, methods=["GET"]),
        Route("/v1/audit:verify", kept.verify, methods=["POST"]),
        Route("/v1/audit/{call_id}", kept.show, methods=["GET"]),
    ]


class _Kept:
    """The audit of this store, where one is kept. Reading it all is work: one at a time."""

    def __init__(self, behind: Behind) -> None:
        self._behind = behind
        self._store = behind.runtime.store
        self._turn = asyncio.Lock()

    async def search(self, request: Request) -> Response:
        self._demand(request)
        query = queried(request, *_TEXTS, *_TIMES, "limit")
        most = whole(query, "limit", _PAGE, most=MOST) or _PAGE
        since, until = (_moment(name, query.get(name)) for name in _TIMES)
        texts = {name: query.get(name) for name in _TEXTS}
        found = await self._found(Wanted(**texts, since=since, until=until), most)
        return reply({"calls": [call.to_dict() for call in found]})

    async def show(self, request: Request) -> Response:
        self._demand(request)
        queried(request)
        call_id: str = request.path_params["call_id"]
        async with self._turn:
            async for call in calls(lines_of(self._store)):
                if call.asked.call_id == call_id:
                    return reply(call.to_dict())
        raise ToolNotFound(f"No call {short(call_id)!r} is on record.", remedy="stop")

    async def verify(self, request: Request) -> Response:
        self._demand(request)
        queried(request)
        await sent(request, self._behind)
        config = self._behind.runtime.config
        folder = config.base / config.settings.state / FOLDER
        async with self._turn:
            found = await verify_everything(self._store, folder)
        return reply({"ok": found.ok, **msgspec.to_builtins(found)})

    def _demand(self, request: Request) -> None:
        """The role, and a ring that takes calls down: without it nothing can be said of them."""
        self._behind.demand_admin(caller_of(request.scope))
        self._behind.runtime.extension("audit")

    async def _found(self, wanted: Wanted, most: int) -> deque[AuditedCall]:
        """The latest that fit, the oldest of them first."""
        last: deque[AuditedCall] = deque(maxlen=most)
        async with self._turn:
            async for call in calls(lines_of(self._store)):
                if wanted.fits(call):
                    last.append(call)
        return last


def _moment(name: str, text: str | None) -> float | None:
    """Seconds since 1970."""
    if text is None:
        return None
    moment = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not 0 <= moment <= LATEST:
        raise Refused(400, f"{name}: must be a number of seconds since 1970.")
    return moment
