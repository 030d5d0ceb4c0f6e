"""Jobs, approvals, artifacts and the audit of a gateway, as the commands know them from a store.

Above: the commands of these. Below: ``toolpost.client``. Who asks is known to the gateway: where a
store is told who, nobody is told here. What a gateway does not offer is said to be done where it
runs.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolpost.approvals import Channel, Decision, Request, Standing
from toolpost.call import Caller, Progress
from toolpost.cli.callids import may_mean
from toolpost.cli.options import only_here
from toolpost.errors import ToolNotFound
from toolpost.jobs import Job, State
from toolpost.ledger.reading import AuditedCall, Wanted
from toolpost.ledger.verify import Head, Verified
from toolpost.wording import short

if TYPE_CHECKING:  # only who gives a URL pays for a client
    from toolpost.client import Approval, Client
    from toolpost.extensions.artifacts import About

_MOST: Final = 1000


class RemoteBoard:
    """Jobs, as ``Board`` has them; ``caller`` is for those who see everybody's."""

    def __init__(self, client: Client) -> None:
        self._jobs = client.jobs

    async def like(self, beginning: str, *, caller: Caller) -> Job:
        found = [job.id for job in await self._every() if job.id.startswith(beginning)]
        if beginning and len(found) > 1:
            raise ToolNotFound(
                f"{short(beginning)!r} may be several: type more of it.", remedy="stop"
            )
        return await self._jobs.get(found[0] if beginning and found else beginning or "-")

    async def list(
        self, *, caller: Caller, state: State | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Job]:
        return await self._jobs.list(state=state, after=after, limit=limit)

    async def cancel(self, job_id: str, *, caller: Caller) -> Job:
        return await self._jobs.cancel(job_id)

    def follow(self, job_id: str, *, caller: Caller) -> AsyncIterator[Job | Progress]:
        return self._jobs.follow(job_id)

    async def _every(self) -> Sequence[Job]:
        found: list[Job] = []
        while page := await self._jobs.list(after=found[-1].id if found else "", limit=_MOST):
            found += page
        return found


class RemoteDesk:
    """What waits for a yes, as ``Approvals`` has it; the gateway knows by whom, and on which
    channel.
    """

    unreadable: Mapping[str, str] = {}

    def __init__(self, client: Client) -> None:
        self._approvals = client.approvals

    def now(self) -> float:
        return time.time()

    async def all(self) -> Sequence[Approval]:
        return await self._approvals.list(status=None)

    async def waiting(self) -> Sequence[Approval]:
        return await self._approvals.list()

    async def like(self, beginning: str) -> Approval:
        found = [one for one in await self.all() if one.handle.startswith(beginning)]
        if len(found) > 1:
            raise ToolNotFound(
                f"{short(beginning)!r} may be several: type more of it.", remedy="stop"
            )
        return found[0] if found else await self._approvals.show(beginning or "-")

    def verify(self, request: Request, decision: Decision) -> None:
        """The gateway verifies an answer when it gets it."""

    async def decide(
        self, handle: str, decision: Decision, *, by: Caller, channel: Channel, seen: str
    ) -> Approval:
        if not decision.approve:
            return await self._approvals.deny(handle, reason=decision.reason, seen=seen)
        return await self._approvals.approve(
            handle,
            reason=decision.reason,
            arguments=decision.arguments,
            lasting=decision.lasting,
            seen=seen,
        )

    async def take_back(
        self, handle: str, *, by: Caller, channel: Channel, reason: str = ""
    ) -> Approval:
        return await self._approvals.deny(handle, reason=reason)

    async def standing(self) -> list[Standing]:
        raise only_here("approvals standing")

    async def revoke(self, handle: str, *, by: Caller, channel: Channel) -> Standing:
        raise only_here("approvals revoke")


class RemoteArtifacts:
    """What was too large, as ``Artifacts`` has it."""

    def __init__(self, client: Client) -> None:
        self._artifacts = client.artifacts

    async def about(self, handle: str, *, caller: Caller) -> About:
        return await self._artifacts.about(handle)

    async def read(self, handle: str, *, caller: Caller, offset: int, length: int) -> bytes:
        return await self._artifacts.read(handle, offset=offset, length=length)


class RemoteAudit:
    """The calls on record, as the gateway tells them."""

    def __init__(self, client: Client) -> None:
        self._audit = client.audit

    async def last(self, number: int) -> Sequence[AuditedCall]:
        return await self._audit.search(limit=number)

    async def found(self, wanted: Wanted, limit: int) -> Sequence[AuditedCall]:
        said: dict[str, Any] = msgspec.structs.asdict(wanted)
        return await self._audit.search(**said, limit=limit)

    async def like(self, call_id: str) -> Sequence[AuditedCall]:
        latest = await self._audit.search(limit=_MOST)
        found = [one for one in latest if may_mean(call_id, one.asked.call_id)]
        return found or [await self._audit.show(call_id)]

    async def verified(self, earlier: Sequence[Head]) -> Verified:
        if earlier:
            raise only_here("audit verify --against")
        return await self._audit.verify()
