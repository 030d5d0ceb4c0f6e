"""Where requests are kept and answered.

Above: the ring and the doors. Below: ``Records``; every change names the version it changes, so
that of two who race one wins, in this process or between several. A process may be killed between
any two lines: what was answered stays answered, and what was used is not used again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from time import monotonic
from typing import Any, Final, TypeVar

import msgspec

from toolpost.approvals.deciding import objection
from toolpost.approvals.scope import verify_edit, verify_where, wanted_of
from toolpost.approvals.values import (
    Channel,
    Decision,
    Lasting,
    Request,
    Settled,
    Standing,
    State,
    Vote,
    What,
    kept,
    kept_caller,
    principal,
)
from toolpost.call import OWNER, Call, Caller
from toolpost.contracts import Clock, Record, Records
from toolpost.digest import canonical, digest
from toolpost.errors import (
    ApprovalDenied,
    ApprovalRequired,
    Conflict,
    Denied,
    InvalidArguments,
    QueueFull,
    ToolNotFound,
)
from toolpost.redact import Rules, redact_text
from toolpost.schema import Schema
from toolpost.spec import ToolSpec
from toolpost.wording import short

_log = logging.getLogger("toolpost.approvals")
_REQUESTS: Final = "approvals"
_SAME: Final = "approvals.same"
_OPEN: Final = "approvals.open"
_STANDING: Final = "approvals.standing"
_KEPT: Final = 7 * 86400.0
"""Seconds that a request stays readable after its end."""
_SECRETS: Final = Rules(personal=False)
_HANDLE: Final = re.compile(r"ap-[0-9a-f]{20}")
_BEGINNING: Final = re.compile(r"ap-[0-9a-f]{3,20}")
_LASTING: Final = re.compile(r"st-[0-9a-f]{3,12}")
_LONGEST: Final = 30 * 86400.0
_SOONEST, _LATEST = 0.05, 0.5
"""Seconds between two looks at the store while somebody waits."""
T = TypeVar("T")


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
        self.unreadable: dict[str, str] = {}

    def now(self) -> float:
        return self._clock.time()

    def may_answer(self, caller: Caller) -> bool:
        """Whether they may answer for others: not yet that they may answer a certain request."""
        return caller.owner or not self._approvers.isdisjoint(caller.roles)

    async def ask(
        self, call: Call, *, spec: str, reason: str, need: int = 1, seconds: float = 3600.0
    ) -> Request:
        """Store a request; the same call asked again in the same session is the same request.

        ``spec`` is the digest of the call's spec.
        """
        request = self._request(call, spec=spec, reason=reason, need=need, seconds=seconds)
        self._verify_size(request)
        _verify_kept(request)
        same = digest([_bound(request), request.session])
        while True:
            known = await self._records.get(_SAME, same)
            if known is not None and (old := await self._open(known.value)) is not None:
                return old
            await self._demand_room(request)
            await self._create(request)
            version = 0 if known is None else known.version
            put = self._records.put(_SAME, same, request.handle, version=version, ttl=seconds)
            if await put is not None:
                return request
            await self._records.put(_REQUESTS, request.handle, None)  # somebody else was first
            await self._records.put(_OPEN, _mark(request), None)

    async def find(self, handle: str) -> Request:
        return _read(handle, await self._found(handle), Request)

    async def like(self, beginning: str) -> Request:
        """The only request whose handle begins so: for people, who type."""
        if not _BEGINNING.fullmatch(beginning):
            raise _unknown(beginning)
        found = await self._records.scan(_REQUESTS, prefix=beginning, limit=2)
        if not found:
            raise _unknown(beginning)
        if len(found) > 1:
            raise _several(beginning)
        return _read(*found[0], Request)

    async def all(self) -> list[Request]:
        """Every request that is still kept, the oldest first."""
        kept = [request async for _, _, request in self._entries(_REQUESTS, Request)]
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
        """Answer a request. ``seen`` is the ``Request.seen`` of what the person looked at.

        Raises ``Denied`` for who may not, ``Conflict`` for who comes too late.
        """
        by = kept_caller(by)
        request = await self._settle(
            handle, decision, by=by, channel=channel, seen=seen, state="waiting"
        )
        standing = None
        if decision.approve and decision.lasting is not None:
            standing = await self._lay_down(request, decision.lasting, by)
        what: What = "approve" if decision.approve else "deny"
        await self._tell(what, by, channel, request=request, standing=standing)
        return request

    def verify(self, request: Request, decision: Decision) -> None:
        """Hold an edit and a lasting yes against the tool, if it is known here: what is misspelt
        would be a wider yes, or one that nobody can use. Who decides asks this first, too.
        """
        edit, lasting = decision.arguments, decision.lasting
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
        by, no = kept_caller(by), Decision(approve=False, reason=reason)
        request = await self._settle(
            handle, no, by=by, channel=channel, seen=None, state="approved"
        )
        async for key, _, standing in self._entries(_STANDING, Standing):
            if standing.request == request.handle:
                await self._records.put(_STANDING, key, None)
        await self._tell("take back", by, channel, request=request)
        return request

    async def redeem(
        self, handle: str, call: Call, *, spec: str, admit: Callable[[Any], dict[str, Any]]
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
            request = _read(handle, record, Request)
            approved = _fitting(request, call, spec=spec, admit=admit)
            self._demand_yes(request)
            if approved is not None:
                return Edited(approved)
            used = msgspec.structs.replace(request, status="used", used_by=call.call_id)
            if await self._replace(used, record.version):
                return used

    async def covered(self, call: Call, *, spec: str) -> Standing | None:
        """The lasting yes that this call falls under, one use of it taken."""
        prefix = f"{principal(call.caller)}/{call.tool}/"
        async for key, record, standing in self._entries(_STANDING, Standing, prefix):
            if self._covers(standing, call, spec) and await self._take(key, standing, record):
                return standing
        return None

    async def standing(self) -> list[Standing]:
        """Every yes that lasts, and still does."""
        now = self.now()
        kept = [standing async for _, _, standing in self._entries(_STANDING, Standing)]
        return sorted((one for one in kept if one.holds(now)), key=lambda one: one.given)

    async def revoke(
        self, handle: str, *, by: Caller = OWNER, channel: Channel = "api"
    ) -> Standing:
        """End the only lasting yes whose handle begins so."""
        begins = _LASTING.fullmatch(handle) is not None
        found = [
            (key, standing)
            async for key, _, standing in self._entries(_STANDING, Standing)
            if begins and standing.handle.startswith(handle)
        ]
        if not found:
            raise ToolNotFound(f"There is no lasting approval {short(handle)!r}.", remedy="stop")
        if len(found) > 1:
            raise _several(handle)
        key, standing = found[0]
        await self._records.put(_STANDING, key, None)
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

    def _request(self, call: Call, *, spec: str, reason: str, need: int, seconds: float) -> Request:
        now = self.now()
        return Request(
            handle="ap-" + secrets.token_hex(10),
            tool=call.tool,
            spec=spec,
            arguments=_exact(call.arguments),
            caller=kept_caller(call.caller),
            call_id=call.call_id,
            reason=redact_text(reason),
            asked=now,
            expires=now + seconds,
            session=call.session_id and kept(call.session_id),
            working_dir=call.working_dir,
            need=need,
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
            raise _unknown(handle)
        return record

    async def _open(self, handle: Any) -> Request | None:
        """A request that can still be answered, used, or stand as a no."""
        record = await self._records.get(_REQUESTS, handle)
        if record is None:
            return None
        request, now = self._readable(handle, record, Request), self.now()
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
        state: State,
    ) -> Request:
        """Add an answer to a request that is in this state."""
        while True:
            record = await self._found(handle)
            request = _read(handle, record, Request)
            seen = seen or request.seen
            if (why := self._objection(request, decision, by=by, channel=channel)) is not None:
                _log.warning("%s may not answer %s of %s", by.id, handle, request.caller.id)
                raise Denied(why)
            if (found := request.state(self.now())) != state:
                already = " already" if state == "waiting" else ": there is no yes to take back"
                raise Conflict(f"{request.handle} is {found}{already}{_by(request)}.")
            if seen != request.seen:
                raise Conflict(f"{request.handle} was changed meanwhile: look at it again.")
            if decision.approve:
                _judge_yes(request, decision, by)
                self.verify(request, decision)
            answered = _answered(request, decision, _vote(decision, by, channel, self.now()))
            if await self._replace(answered, record.version):
                own_no = not decision.approve and principal(by) == principal(request.caller)
                if answered.status != "waiting" and not own_no:  # else it makes room for the next
                    await self._records.put(_OPEN, _mark(request), None)
                return answered

    def _objection(
        self, request: Request, decision: Decision, *, by: Caller, channel: Channel
    ) -> str | None:
        yes = decision.approve
        return objection(request, by, channel=channel, approve=yes, approvers=self._approvers)

    def _demand_yes(self, request: Request) -> None:
        state = request.state(self.now())
        if state == "waiting":
            raise self.required(request)
        if state == "denied":
            said = request.votes[-1].reason
            raise ApprovalDenied(
                f"A person has said no{': ' + said if said else '.'} Do not try it again.",
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

    async def _lay_down(self, request: Request, lasting: Lasting, by: Caller) -> Standing:
        now = self.now()
        standing = Standing(
            handle="st-" + secrets.token_hex(6),
            tool=request.tool,
            spec=request.spec,
            principal=principal(request.caller),
            caller=request.caller,
            expires=now + lasting.seconds,
            given=now,
            by=by.user or by.id,
            request=request.handle,
            session=request.session if lasting.session else None,
            where=dict(lasting.where),
            left=lasting.uses,
        )
        key = f"{standing.principal}/{standing.tool}/{standing.handle}"
        value = msgspec.to_builtins(standing)
        await self._records.put(_STANDING, key, value, version=0, ttl=lasting.seconds)
        return standing

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

    def _covers(self, standing: Standing, call: Call, spec: str) -> bool:
        return (
            standing.holds(self.now())
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
            ttl = max(0.0, standing.expires - self.now())
            put = self._records.put(
                _STANDING, key, msgspec.to_builtins(less), version=record.version, ttl=ttl
            )
            if await put is not None:
                return True
            again = await self._records.get(_STANDING, key)
            now = None if again is None else self._readable(key, again, Standing)
            if again is None or now is None:
                return False
            record, standing = again, now
        return True

    async def _entries(
        self, space: str, kind: type[T], prefix: str = ""
    ) -> AsyncIterator[tuple[str, Record, T]]:
        """What is kept and can be read."""
        after = ""
        while page := await self._records.scan(space, prefix=prefix, after=after, limit=200):
            for key, record in page:
                if (value := self._readable(key, record, kind)) is not None:
                    yield key, record, value
            after = page[-1][0]

    def _readable(self, key: str, record: Record, kind: type[T]) -> T | None:
        try:
            return msgspec.convert(record.value, kind)
        except msgspec.ValidationError as fault:
            handle = key.rpartition("/")[2]
            if handle not in self.unreadable:
                _log.error("%s cannot be read, and is left out: %s", handle, fault)
            self.unreadable[handle] = str(fault)
            return None


def _unknown(handle: str) -> ToolNotFound:
    return ToolNotFound(f"There is no approval {short(handle)!r}.", remedy="stop")


def _several(beginning: str) -> ToolNotFound:
    return ToolNotFound(f"{short(beginning)!r} may be several: type more of it.", remedy="stop")


def _read(handle: str, record: Record, kind: type[T]) -> T:
    try:
        return msgspec.convert(record.value, kind)
    except msgspec.ValidationError as fault:
        raise Conflict(f"{handle} cannot be read: {fault}. Ask anew, without a grant.") from None


def _verify_kept(request: Request) -> None:
    """What could not be read again would be in everybody's way."""
    try:
        msgspec.json.decode(msgspec.json.encode(request), type=Request)
    except (msgspec.MsgspecError, TypeError, ValueError) as fault:
        raise InvalidArguments(f"This call cannot be kept for a person to see: {fault}.") from None


def _exact(arguments: Mapping[str, Any]) -> str:
    try:
        return canonical(arguments).decode()
    except (TypeError, ValueError):
        raise InvalidArguments(
            "These arguments cannot be kept until a person has seen them: send plain JSON."
        ) from None


def _mark(request: Request) -> str:
    """Where it counts among the open ones of its caller."""
    return f"{principal(request.caller)}/{request.handle}"


def _bound(request: Request) -> list[Any]:
    """What a yes is bound to."""
    who = principal(request.caller)
    return [request.tool, request.spec, request.arguments, who, request.working_dir]


def _fitting(
    request: Request, call: Call, *, spec: str, admit: Callable[[Any], dict[str, Any]]
) -> dict[str, Any] | None:
    """Refuse a call that is not the one asked for; else the approver's arguments, if those are
    others than the call's.
    """
    if principal(call.caller) != principal(request.caller):
        _log.warning("%s tried to use %s of %s", call.caller.id, request.handle, request.caller.id)
        raise ApprovalDenied(f"{request.handle} was not given to you.")
    if (call.tool, call.working_dir) != (request.tool, request.working_dir):
        raise Conflict(f"{request.handle} was asked for another call.")
    if spec != request.spec:
        raise Conflict(
            f"{call.tool} has changed since {request.handle} was asked for. Ask anew, without a "
            "grant.",
            remedy="ask_approval",
        )
    given = _exact(call.arguments)
    if request.edited is None:
        if given == request.arguments:
            return None
    else:
        edited = admit(json.loads(request.edited))
        if given == _exact(edited):
            return None
        if given == request.arguments:
            return edited
    raise Conflict(
        f"The arguments are not those that {request.handle} was asked for. Send those, or ask "
        "anew, without a grant.",
        remedy="ask_approval",
    )


def _vote(decision: Decision, by: Caller, channel: Channel, at: float) -> Vote:
    return Vote(
        by=by.id,
        user=by.user,
        channel=channel,
        at=at,
        approve=decision.approve,
        reason=redact_text(decision.reason),
    )


def _judge_yes(request: Request, decision: Decision, by: Caller) -> None:
    edit = None if decision.arguments is None else _exact(decision.arguments)
    if edit is not None and _SECRETS.find(edit) and not _SECRETS.find(request.arguments):
        raise InvalidArguments("There is a secret in these arguments: leave it out.")
    if edit is None and any(vote.person == (by.user or by.id) for vote in request.votes):
        raise Conflict(f"You have approved {request.handle}: somebody else has to as well.")
    if (lasting := decision.lasting) is None:
        return
    if request.need > 1:
        raise Conflict("What several people have to approve is approved for one call at a time.")
    if lasting.session and request.session is None:
        raise Conflict(f"{request.handle} belongs to no session.")
    if not lasting.session and not lasting.where:
        raise Conflict("Say for which arguments, or for this session: else it would be for all.")
    if not 0 < lasting.seconds <= _LONGEST or (lasting.uses is not None and lasting.uses < 1):
        raise Conflict("A lasting yes ends within 30 days and is for at least one call.")


def _answered(request: Request, decision: Decision, vote: Vote) -> Request:
    """The request with one more vote. Those who approved other arguments have to look again."""
    replace = msgspec.structs.replace
    if not decision.approve:
        return replace(request, status="denied", votes=(*request.votes, vote))
    votes = request.votes
    if decision.arguments is not None and (edited := _exact(decision.arguments)) != request.decided:
        request, votes = replace(request, edited=edited), ()
    votes = (*(v for v in votes if v.person != vote.person), vote)
    enough = len(votes) >= request.need
    return replace(request, votes=votes, status="approved" if enough else "waiting")


def _by(request: Request) -> str:
    return f" (by {request.votes[-1].person})" if request.votes else ""
