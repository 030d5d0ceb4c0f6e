"""Jobs, approvals, artifacts and the audit of a gateway, with the methods that they have there.

Above: ``client.py``. Below: ``exchange.py``; ``values.py`` makes values of what it brings. Who asks
is said by the key. What goes wrong is raised as a ``CallError``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeVar

import msgspec

from toolpost.approvals.values import Lasting, State
from toolpost.call import Progress
from toolpost.client.events import Event
from toolpost.client.exchange import Exchange, inside
from toolpost.client.values import Approval, approval, artifact, audited, job, reported
from toolpost.client.wanted import key_header, wanted
from toolpost.errors import CallError, InvalidSpec
from toolpost.extensions.artifacts import MOST_READ, About
from toolpost.failure import failure
from toolpost.jobs.values import Job
from toolpost.jobs.values import State as JobState
from toolpost.ledger.reading import AuditedCall
from toolpost.ledger.verify import Verified
from toolpost.result import Result

T = TypeVar("T")
_PAGE: Final = 1000


def understood(exchange: Exchange, make: Callable[[Any], T], data: Any) -> T:
    """A value of what was said, or that this is no gateway."""
    try:
        return make(data)
    except (msgspec.ValidationError, InvalidSpec, KeyError, TypeError, ValueError):
        raise exchange.foreign() from None


async def every(
    exchange: Exchange,
    path: str,
    name: str,
    make: Callable[[Any], T],
    query: Mapping[str, Any],
) -> tuple[T, ...]:
    """All that is listed there, page by page."""
    found: list[T] = []
    after: str | None = None
    while True:
        page = await exchange.data("GET", path, query={**query, "limit": _PAGE, "after": after})
        items, following = understood(
            exchange, lambda said: ([*said[name]], said.get("next")), page
        )
        found += [understood(exchange, make, one) for one in items]
        if following is None or not items or following == after:
            return tuple(found)
        after = following


class Jobs:
    """Detached calls: they go on when nobody waits."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def submit(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        timeout: float | None = None,
        phase: str | None = None,
        key: str | None = None,
        grant: str | None = None,
    ) -> Job:
        """Have a tool called; when this returns, the gateway has the job in its store."""
        body, headers = wanted(
            arguments, session_id=session_id, timeout=timeout, phase=phase, key=key, grant=grant
        )
        path = f"/v1/tools/{inside(name)}:call"
        headers += (("Prefer", "respond-async"),)
        said = await self._exchange.data("POST", path, body=body, headers=headers, status=202)
        return understood(self._exchange, job, said)

    async def get(self, job_id: str) -> Job:
        """The job as it is, with its result if it has ended."""
        said = await self._exchange.data("GET", f"/v1/jobs/{inside(job_id)}")
        return understood(self._exchange, job, said)

    async def list(
        self, *, state: JobState | None = None, after: str = "", limit: int = 100
    ) -> tuple[Job, ...]:
        """A page of them, the oldest first: those behind the id ``after``."""
        query = {"state": state, "after": after or None, "limit": limit}
        page = await self._exchange.data("GET", "/v1/jobs", query=query)
        return understood(self._exchange, lambda page: tuple(map(job, page["jobs"])), page)

    async def cancel(self, job_id: str) -> Job:
        said = await self._exchange.data("DELETE", f"/v1/jobs/{inside(job_id)}")
        return understood(self._exchange, job, said)

    async def follow(self, job_id: str) -> AsyncGenerator[Job | Progress, None]:
        """The job whenever it changes, and what it reports, until it has ended."""
        over = False
        async with aclosing(self._exchange.follow(f"/v1/jobs/{inside(job_id)}")) as told:
            async for event in told:
                one = understood(self._exchange, _news, event)
                over = isinstance(one, Job) and one.over
                if one is not None:
                    yield one
        if not over:
            raise self._exchange.cut()


class Approvals:
    """What waits for a yes, the answers to it, and the call that it was for."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def list(self, *, status: State | None = "waiting") -> tuple[Approval, ...]:
        """Those of a status; ``None``: all."""
        query = {"status": status or "all"}
        return await every(self._exchange, "/v1/approvals", "approvals", approval, query)

    async def show(self, handle: str) -> Approval:
        said = await self._exchange.data("GET", f"/v1/approvals/{inside(handle)}")
        return understood(self._exchange, approval, said)

    async def approve(
        self,
        handle: str,
        *,
        reason: str = "",
        arguments: Mapping[str, Any] | None = None,
        lasting: Lasting | None = None,
        seen: str | None = None,
    ) -> Approval:
        """Say yes. ``arguments``: with these changed; the others stay as they were asked for.
        ``seen`` pins what you looked at: ``Approval.seen``.
        """
        return await self._answered(
            handle,
            "approve",
            reason=reason or None,
            arguments=None if arguments is None else dict(arguments),
            lasting=None if lasting is None else msgspec.to_builtins(lasting),
            seen=seen,
        )

    async def deny(self, handle: str, *, reason: str = "", seen: str | None = None) -> Approval:
        """Say no, or take back a yes that nobody has used."""
        return await self._answered(handle, "deny", reason=reason or None, seen=seen)

    async def resume(self, handle: str, *, key: str | None = None) -> Result:
        """Make the call that the yes was given for, as ``execute`` would have. ``key``: its
        idempotency key.
        """
        try:
            path, headers = f"/v1/approvals/{inside(handle)}:resume", key_header(key)
            return await self._exchange.result(path, body={}, headers=headers)
        except CallError as fault:
            return Result(error=failure(fault, tool=handle, call_id="", effects="once"))

    async def _answered(self, handle: str, verb: str, **said: Any) -> Approval:
        body = {name: value for name, value in said.items() if value is not None}
        path = f"/v1/approvals/{inside(handle)}:{verb}"
        answer = await self._exchange.data("POST", path, body=body)
        return understood(self._exchange, approval, answer)


class Artifacts:
    """Outputs that were too large to be handed over, by their handles."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def about(self, handle: str) -> About:
        said = await self._exchange.data("GET", f"/v1/artifacts/{inside(handle)}")
        return understood(self._exchange, artifact, said)

    async def read(self, handle: str, *, offset: int = 0, length: int = MOST_READ) -> bytes:
        """So many bytes from there on, or as many of them as there are."""
        path = f"/v1/artifacts/{inside(handle)}/content"
        return await self._exchange.piece(path, first=offset, length=length)


class Audit:
    """The calls on record, for who has the role."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def search(
        self,
        *,
        tool: str | None = None,
        caller: str | None = None,
        session: str | None = None,
        code: str | None = None,
        since: float | None = None,
        until: float | None = None,
        text: str | None = None,
        limit: int = 100,
    ) -> tuple[AuditedCall, ...]:
        """The latest that fit, the oldest of them first."""
        query = {
            "tool": tool, "caller": caller, "session": session, "code": code, "since": since,
            "until": until, "text": text, "limit": limit,
        }  # fmt: skip
        page = await self._exchange.data("GET", "/v1/audit", query=query)
        return understood(self._exchange, lambda page: tuple(map(audited, page["calls"])), page)

    async def show(self, call_id: str) -> AuditedCall:
        said = await self._exchange.data("GET", f"/v1/audit/{inside(call_id)}")
        return understood(self._exchange, audited, said)

    async def verify(self) -> Verified:
        """Whether the audit is as it was written, as the gateway finds."""
        said = await self._exchange.data("POST", "/v1/audit:verify", body={})
        return understood(self._exchange, lambda data: msgspec.convert(data, Verified), said)


def _news(event: Event) -> Job | Progress | None:
    return job(event.data) if event.name == "job" else reported(event)
