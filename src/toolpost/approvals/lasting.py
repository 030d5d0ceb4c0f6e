"""A yes that lasts: given with an answer, taken from call by call, ended by hand or by time.

Above: ``desk.py``. Below: ``Records``; of two calls that take the last use, one gets it.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from toolpost.approvals.scope import wanted_of
from toolpost.approvals.shelf import Shelf, several
from toolpost.approvals.values import Lasting, Request, Standing, asker, kept
from toolpost.call import Call, Caller
from toolpost.contracts import Record
from toolpost.errors import ToolNotFound
from toolpost.schema import Schema
from toolpost.wording import short

_log = logging.getLogger("toolpost.approvals")
_STANDING: Final = "approvals.standing"
_HANDLE: Final = re.compile(r"st-[0-9a-f]{3,12}")


class LastingYes:
    """Those of everybody."""

    def __init__(
        self,
        shelf: Shelf,
        *,
        now: Callable[[], float],
        is_denied: Callable[[str], Awaitable[bool]],
    ) -> None:
        """``is_denied``: whether the request was taken back that a yes was given with."""
        self._shelf, self._records, self._now = shelf, shelf.records, now
        self._is_denied = is_denied

    async def lay_down(self, request: Request, lasting: Lasting, by: Caller) -> Standing:
        now = self._now()
        standing = Standing(
            handle="st-" + secrets.token_hex(6),
            tool=request.tool,
            spec=request.spec,
            principal=asker(request.caller),
            caller=request.caller,
            expires=now + lasting.seconds,
            given=now,
            by=by.user or by.key or by.id,
            request=request.handle,
            session=request.session if lasting.session else None,
            where=dict(lasting.where),
            left=lasting.uses,
            code=request.code,
        )
        key = f"{standing.principal}/{standing.tool}/{standing.handle}"
        value = msgspec.to_builtins(standing)
        await self._records.put(_STANDING, key, value, version=0, ttl=lasting.seconds)
        return standing

    async def covered(self, call: Call, *, spec: str, code: str | None) -> Standing | None:
        """The lasting yes that this call falls under, one use of it taken."""
        prefix = f"{asker(call.caller)}/{call.tool}/"
        async for key, record, standing in self._shelf.entries(_STANDING, Standing, prefix):
            if not self._covers(standing, call, spec):
                continue
            if standing.code != code:
                _log.warning(
                    "%s no longer covers %s: its code has changed", standing.handle, call.tool
                )
            elif await self._is_denied(standing.request):
                await self._records.put(_STANDING, key, None)  # it was written after the no
            elif await self._take(key, standing, record):
                return standing
        return None

    async def all(self) -> list[Standing]:
        """Every yes that lasts, and still does."""
        now = self._now()
        kept = [standing async for _, _, standing in self._shelf.entries(_STANDING, Standing)]
        return sorted((one for one in kept if one.holds(now)), key=lambda one: one.given)

    async def end(self, handle: str) -> Standing:
        """End the only one whose handle begins so."""
        begins = _HANDLE.fullmatch(handle) is not None
        found = [
            (key, standing)
            async for key, _, standing in self._shelf.entries(_STANDING, Standing)
            if begins and standing.handle.startswith(handle)
        ]
        if not found:
            raise ToolNotFound(f"There is no lasting approval {short(handle)!r}.", remedy="stop")
        if len(found) > 1:
            raise several(handle)
        key, standing = found[0]
        await self._records.put(_STANDING, key, None)
        return standing

    async def end_of(self, request: Request) -> None:
        """End what lasts of this request."""
        async for key, _, standing in self._shelf.entries(_STANDING, Standing):
            if standing.request == request.handle:
                await self._records.put(_STANDING, key, None)

    def _covers(self, standing: Standing, call: Call, spec: str) -> bool:
        return (
            standing.holds(self._now())
            and standing.spec == spec
            and standing.session in (None, call.session_id and kept(call.session_id))
            and not Schema(wanted_of(standing.where)).faults(call.arguments)
        )

    async def _take(self, key: str, standing: Standing, record: Record) -> bool:
        """One use, unless the last has gone meanwhile."""
        while standing.left is not None:
            if standing.left <= 0:
                return False
            less = msgspec.structs.replace(standing, left=standing.left - 1)
            ttl = max(0.0, standing.expires - self._now())
            put = self._records.put(
                _STANDING, key, msgspec.to_builtins(less), version=record.version, ttl=ttl
            )
            if await put is not None:
                return True
            again = await self._records.get(_STANDING, key)
            now = None if again is None else self._shelf.readable(key, again, Standing)
            if again is None or now is None:
                return False
            record, standing = again, now
        return True
