"""Where requests are kept and answered.

Above: the ring and the doors. Below: ``Records``; every change names the version it changes, so
that of two who race one wins, in this process or between several. A process may be killed between
any two lines: what was answered stays answered, and what was used is not used again.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import monotonic
from typing import Any, Final

import msgspec

from toolpost.approvals.deciding import answered, judge_yes, merge_edit, objection, verify_channel
from toolpost.approvals.fitting import bound, exact, fitting
from toolpost.approvals.lasting import LastingYes
from toolpost.approvals.scope import verify_edit, verify_where
from toolpost.approvals.shelf import Shelf, read, several, unknown
from toolpost.approvals.values import (
    Channel,
    Decision,
    Request,
    Settled,
    Standing,
    State,
    What,
    kept,
    kept_caller,
    principal,
)
from toolpost.call import OWNER, Call, Caller
from toolpost.contracts import Clock, Record, Records
from toolpost.digest import digest
from toolpost.errors import (
    ApprovalDenied,
    ApprovalRequired,
    Conflict,
    Denied,
    InvalidArguments,
    QueueFull,
)
from toolpost.redact import redact_text
from toolpost.spec import ToolSpec
from toolpost.wording import short

_log = logging.getLogger("toolpost.approvals")
_REQUESTS: Final = "approvals"
_SAME: Final = "approvals.same"
_OPEN: Final = "approvals.open"
_KEPT: Final = 7 * 86400.0
"""Seconds that a request stays readable after its end."""
_HANDLE: Final = re.compile(r"ap-[0-9a-f]{20}")
_BEGINNING: Final = re.compile(r"ap-[0-9a-f]{3,20}")
_SOONEST, _LATEST = 0.05, 0.5
"""Seconds between two looks at the store while somebody waits."""


class Edited(msgspec.Struct, frozen=True):
    """A yes for other arguments than those that were asked for."""

    arguments: dict[str, Any]


class Approvals:
    """``approvers``: the roles that may answer for others. ``spec_of`` knows the tools as they are
    now, and so what an edit or a lasting yes may name. ``tell`` hears of every answer that counts.
    ``most``: requests of one caller that nobody has answered; ``largest``: bytes of arguments.
    ``unreadable``: what is kept and could not be read, by its handle; it is left out everywhere.
    """

    def __init__(
        self,
        records: Records,
        *,
        clock: Clock,
        approvers: Iterable[str] = (),
        spec_of: Callable[[str], ToolSpec | None] = lambda tool: None,
        tell: Callable[[Settled], Awaitable[None]] | None = None,
        most: int = 100,
        largest: int = 256 * 1024,
    ) -> None:
        self._records, self._clock = records, clock
        self._most, self._largest = most, largest
        self._approvers = frozenset(approvers)
        self._spec_of = spec_of
        self.tell = tell
        self._shelf = Shelf(records)
        self._lasting = LastingYes(self._shelf, now=self.now, is_denied=self._is_denied)

    @property
    def unreadable(self) -> Mapping[str, str]:
        return self._shelf.unreadable

    def now(self) -> float:
        return self._clock.time()

    def may_answer(self, caller: Caller) -> bool:
        """Whether they may answer for others: not yet that they may answer a certain request."""
        return caller.owner or not self._approvers.isdisjoint(caller.roles)

    async def ask(
        self,
        call: Call,
        *,
        spec: str,
        reason: str,
        code: str | None = None,
        need: int = 1,
        seconds: float = 3600.0,
    ) -> Request:
        """Store a request; the same call asked again in the same session is the same request,
        unless the code of the tool has changed.

        ``spec`` is the digest of the call's spec, ``code`` that of the code it would run.
        """
        request = self._request(
            call, spec=spec, code=code, reason=reason, need=need, seconds=seconds
        )
        self._verify_size(request)
        _verify_kept(request)
        same = _same(request)
        while True:
            known = await self._records.get(_SAME, same)
            if known is not None and (old := await self._open(known.value)) is not None:
                if old.code == code:
                    return old
                why = f"The code of {call.tool} has changed since {old.handle} was asked for."
                request = msgspec.structs.replace(request, reason=f"{why} {redact_text(reason)}")
            await self._demand_room(request)
            await self._create(request)
            version = 0 if known is None else known.version
            put = self._records.put(_SAME, same, request.handle, version=version, ttl=seconds)
            if await put is not None:
                return request
            await self._records.put(_REQUESTS, request.handle, None)  # somebody else was first
            await self._records.put(_OPEN, _mark(request), None)

    async def own_yes(self, call: Call, *, spec: str, code: str | None = None) -> str | None:
        """The handle of a yes that was given for this very call and that nobody has used."""
        try:
            request = self._request(call, spec=spec, code=code, reason="", need=1, seconds=0.0)
        except InvalidArguments:
            return None  # nobody could be asked about it
        known = await self._records.get(_SAME, _same(request))
        if known is None or (old := await self._open(known.value)) is None:
            return None
        return old.handle if old.code == code and old.state(self.now()) == "approved" else None

    async def find(self, handle: str) -> Request:
        return read(handle, await self._found(handle), Request)

    async def like(self, beginning: str) -> Request:
        """The only request whose handle begins so: for people, who type."""
        if not _BEGINNING.fullmatch(beginning):
            raise unknown(beginning)
        found = await self._records.scan(_REQUESTS, prefix=beginning, limit=2)
        if not found:
            raise unknown(beginning)
        if len(found) > 1:
            raise several(beginning)
        return read(*found[0], Request)

    async def all(self) -> list[Request]:
        """Every request that is still kept, the oldest first."""
        kept = [request async for _, _, request in self._shelf.entries(_REQUESTS, Request)]
        return sorted(kept, key=lambda request: request.asked)

    async def waiting(self) -> list[Request]:
        now = self.now()
        return [request for request in await self.all() if request.state(now) == "waiting"]

    async def decide(
        self,
        handle: str,
        decision: Decision,
        *,
        by: Caller,
        channel: Channel,
        seen: str | None = None,
    ) -> Request:
        """Answer a request. ``seen`` is the ``Request.seen`` of what the person looked at. The
        arguments of a decision are those that change.

        A no also takes back a yes that no call has used: of two people who answer at the same
        moment, the one who says no is heard. Raises ``Denied`` for who may not answer,
        ``Conflict`` for who comes too late.
        """
        verify_channel(channel)
        by = kept_caller(by)
        states: tuple[State, ...] = ("waiting",) if decision.approve else ("waiting", "approved")
        request, was = await self._settle(
            handle, decision, by=by, channel=channel, seen=seen, states=states
        )
        if was == "approved":
            await self._lasting.end_of(request)
            await self._tell("take back", by, channel, request=request)
            return request
        standing = None
        if decision.approve and decision.lasting is not None:
            standing = await self._lasting.lay_down(request, decision.lasting, by)
        what: What = "approve" if decision.approve else "deny"
        await self._tell(what, by, channel, request=request, standing=standing)
        return request

    def verify(self, request: Request, decision: Decision) -> None:
        """Hold an edit and a lasting yes against the tool, if it is known here: what is misspelt
        would be a wider yes, or one that nobody can use. Who decides asks this first, too.
        """
        edit, lasting = merge_edit(request, decision).arguments, decision.lasting
        if edit is None and lasting is None:
            return
        spec = self._spec_of(request.tool)
        if spec is not None and spec.digest != request.spec:
            raise Conflict(f"{request.tool} has changed since {request.handle} was asked for.")
        if edit is not None and spec is not None:
            verify_edit(edit, spec, asked=request.exact())
        if lasting is not None:
            verify_where(lasting.where, spec)

    async def take_back(
        self, handle: str, *, by: Caller, channel: Channel, reason: str = ""
    ) -> Request:
        """Make a no of a yes that nobody has used yet, and end whatever lasts of it."""
        verify_channel(channel)
        by, no = kept_caller(by), Decision(approve=False, reason=reason)
        request, _ = await self._settle(
            handle, no, by=by, channel=channel, seen=None, states=("approved",)
        )
        await self._lasting.end_of(request)
        await self._tell("take back", by, channel, request=request)
        return request

    async def redeem(
        self,
        handle: str,
        call: Call,
        *,
        spec: str,
        admit: Callable[[Any], dict[str, Any]],
        code: str | None = None,
    ) -> Request | Edited:
        """Use a yes up for this very call, or say for which arguments it was given.

        Whatever is not exactly what was approved is refused.
        """
        while True:
            record = await self._get(handle)
            if record is None:
                raise ApprovalDenied(
                    f"There is no approval {short(handle)!r}. Ask anew, without a grant.",
                    remedy="ask_approval",
                )
            request = read(handle, record, Request)
            approved = fitting(request, call, spec=spec, code=code, admit=admit)
            self._demand_yes(request)
            if approved is not None:
                return Edited(approved)
            used = msgspec.structs.replace(request, status="used", used_by=call.call_id)
            if await self._replace(used, record.version):
                return used

    async def covered(self, call: Call, *, spec: str, code: str | None = None) -> Standing | None:
        """The lasting yes that this call falls under, one use of it taken."""
        return await self._lasting.covered(call, spec=spec, code=code)

    async def standing(self) -> list[Standing]:
        """Every yes that lasts, and still does."""
        return await self._lasting.all()

    async def revoke(
        self, handle: str, *, by: Caller = OWNER, channel: Channel = "api"
    ) -> Standing:
        """End the only lasting yes whose handle begins so."""
        verify_channel(channel)
        standing = await self._lasting.end(handle)
        await self._tell("revoke", kept_caller(by), channel, standing=standing)
        return standing

    async def wait(self, handle: str, *, seconds: float) -> Request:
        """The request when it is answered or has expired, or as it is after so many seconds."""
        ends, pause = monotonic() + seconds, _SOONEST
        while True:
            request = await self.find(handle)
            left = ends - monotonic()
            if request.state(self.now()) != "waiting" or left <= 0:
                return request
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, _LATEST)

    def required(self, request: Request) -> ApprovalRequired:
        """What the caller gets to hear while nobody has answered."""
        return ApprovalRequired(
            f"This call waits for a person's yes as {request.handle}: {request.reason} Somebody "
            f"else says it with: toolpost approvals approve {request.handle}, or at a gateway, "
            f"with a key of their own: POST /v1/approvals/{request.handle}:approve. Once it is "
            "approved, make the very same call again.",
            details={
                "approval": request.handle,
                "expires": request.expires,
                "reason": request.reason,
                "need": request.need,
                "have": sum(vote.approve for vote in request.votes),
            },
        )

    def _request(
        self,
        call: Call,
        *,
        spec: str,
        code: str | None,
        reason: str,
        need: int,
        seconds: float,
    ) -> Request:
        now = self.now()
        return Request(
            handle="ap-" + secrets.token_hex(10),
            tool=call.tool,
            spec=spec,
            arguments=exact(call.arguments),
            caller=kept_caller(call.caller),
            call_id=call.call_id,
            reason=redact_text(reason),
            asked=now,
            expires=now + seconds,
            session=call.session_id and kept(call.session_id),
            working_dir=call.working_dir,
            need=need,
            code=code,
        )

    def _verify_size(self, request: Request) -> None:
        if (size := len(request.arguments.encode())) > self._largest:
            raise InvalidArguments(
                f"The arguments have {size:,} bytes, and those of a call that a person has to "
                f"approve at most {self._largest:,}: send less at once."
            )

    async def _demand_room(self, request: Request) -> None:
        """The mark comes before the count: of many that ask at once none is overlooked."""
        mark, most = _mark(request), self._most
        ttl = request.expires - request.asked
        await self._records.put(_OPEN, mark, 1, ttl=ttl)
        others = mark.removesuffix(request.handle)
        if len(await self._records.scan(_OPEN, prefix=others, limit=most + 1)) > most:
            await self._records.put(_OPEN, mark, None)
            raise QueueFull(
                f"{most} of your calls wait for a person's yes, or you have taken them back. Ask "
                "for this one when some have been answered or have expired.",
                retry_after=min(ttl, 60.0),
            )

    async def _get(self, handle: str) -> Record | None:
        """What is no handle is not looked for: a store may not even take it for a key."""
        return await self._records.get(_REQUESTS, handle) if _HANDLE.fullmatch(handle) else None

    async def _found(self, handle: str) -> Record:
        record = await self._get(handle)
        if record is None:
            raise unknown(handle)
        return record

    async def _open(self, handle: Any) -> Request | None:
        """A request that can still be answered, used, or stand as a no."""
        record = await self._records.get(_REQUESTS, handle)
        if record is None:
            return None
        request, now = self._shelf.readable(handle, record, Request), self.now()
        if request is None:
            return None
        state = request.state(now)
        if state in ("waiting", "approved") or (state == "denied" and now < request.expires):
            return request
        return None

    async def _create(self, request: Request) -> None:
        ttl = request.expires - request.asked + _KEPT
        value = msgspec.to_builtins(request)
        await self._records.put(_REQUESTS, request.handle, value, version=0, ttl=ttl)

    async def _replace(self, request: Request, version: int) -> bool:
        ttl = max(0.0, request.expires - self.now()) + _KEPT
        put = self._records.put(
            _REQUESTS, request.handle, msgspec.to_builtins(request), version=version, ttl=ttl
        )
        return await put is not None

    async def _settle(
        self,
        handle: str,
        decision: Decision,
        *,
        by: Caller,
        channel: Channel,
        seen: str | None,
        states: tuple[State, ...],
    ) -> tuple[Request, State]:
        """Add an answer to a request that is in one of these states, and tell in which it was."""
        while True:
            record = await self._found(handle)
            request = read(handle, record, Request)
            seen = seen or request.seen
            if (why := self._objection(request, decision, by=by, channel=channel)) is not None:
                _log.warning("%s may not answer %s of %s", by.id, handle, request.caller.id)
                raise Denied(why)
            if (found := request.state(self.now())) not in states:
                already = " already" if "waiting" in states else ": there is no yes to take back"
                raise Conflict(f"{request.handle} is {found}{already}{_by(request)}.")
            if decision.approve and seen != request.seen:
                raise Conflict(f"{request.handle} was changed meanwhile: look at it again.")
            whole = merge_edit(request, decision)
            if decision.approve:
                judge_yes(request, whole, by)
                self.verify(request, whole)
            after = answered(request, whole, by=by, channel=channel, at=self.now())
            if await self._replace(after, record.version):
                own_no = not decision.approve and principal(by) == principal(request.caller)
                if after.status != "waiting" and not own_no:  # else it makes room for the next
                    await self._records.put(_OPEN, _mark(request), None)
                return after, found

    def _objection(
        self, request: Request, decision: Decision, *, by: Caller, channel: Channel
    ) -> str | None:
        yes = decision.approve
        return objection(request, by, channel=channel, approve=yes, approvers=self._approvers)

    async def _is_denied(self, handle: str) -> bool:
        """Whether a request was denied, before or after somebody approved it."""
        record = await self._get(handle)
        request = None if record is None else self._shelf.readable(handle, record, Request)
        return request is not None and request.status == "denied"

    def _demand_yes(self, request: Request) -> None:
        state = request.state(self.now())
        if state == "waiting":
            raise self.required(request)
        if state == "denied":
            said = request.votes[-1].reason.rstrip(".")
            raise ApprovalDenied(
                f"A person has said no{': ' + said if said else ''}. Do not try it again.",
                details={"approval": request.handle, "by": [request.votes[-1].who]},
            )
        if state == "used":
            raise ApprovalDenied(
                f"{request.handle} has been used: a yes is for one call.",
                details={"approval": request.handle},
            )
        if state == "expired":
            raise ApprovalDenied(
                f"{request.handle} has expired. Ask anew, without a grant.",
                remedy="ask_approval",
                details={"approval": request.handle},
            )

    async def _tell(
        self,
        what: What,
        by: Caller,
        channel: Channel,
        *,
        request: Request | None = None,
        standing: Standing | None = None,
    ) -> None:
        if self.tell is None:
            return
        settled = Settled(
            what=what, by=by, channel=channel, at=self.now(), request=request, standing=standing
        )
        try:
            await self.tell(settled)
        except Exception:  # noqa: BLE001 - foreign code: what was decided is decided
            _log.exception("nobody could be told of %s by %s", what, by.id)


def _verify_kept(request: Request) -> None:
    """What could not be read again would be in everybody's way."""
    try:
        msgspec.json.decode(msgspec.json.encode(request), type=Request)
    except (msgspec.MsgspecError, TypeError, ValueError) as fault:
        raise InvalidArguments(f"This call cannot be kept for a person to see: {fault}.") from None


def _same(request: Request) -> str:
    """Where the request for the same call in the same session is found."""
    return digest([bound(request), request.session])


def _mark(request: Request) -> str:
    """Where it counts among the open ones of its caller."""
    return f"{principal(request.caller)}/{request.handle}"


def _by(request: Request) -> str:
    return f" (by {request.votes[-1].person})" if request.votes else ""
