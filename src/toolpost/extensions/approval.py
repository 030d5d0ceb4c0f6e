"""A call that needs a yes waits for one, or comes back with a handle to resume.

Above: the road; the policy before it may have set ``call.ask``. Below: ``approvals``, where
requests are kept and answered. How a person is reached, and who may answer, is not known here.

    never    nobody is asked: tools with ``requires_approval`` run unasked; what the policy wants
             asked does not run
    policy   what the policy wants asked, and tools with ``requires_approval``
    unsafe   these, and every tool from tier 3
    always   every call
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from time import monotonic
from typing import Any, Final, Literal, Self

import msgspec

from toolpost.approvals import Approvals, Channel, Decision, Edited, Request, Settled, Standing
from toolpost.approvals.terminal import Prompt, local_person
from toolpost.call import Call, Caller, new_call_id
from toolpost.clock import SystemClock
from toolpost.contracts import Check, Clock, HasCode, Plans, Records, Ring, Road, Surroundings, Walk
from toolpost.digest import digest
from toolpost.errors import ApprovalDenied, CallError
from toolpost.ledger.record import AuditRecord
from toolpost.ledger.trespass import who_of
from toolpost.options import Options, options_from
from toolpost.patterns import selector
from toolpost.redact import redact, redact_text
from toolpost.result import Approved, Result
from toolpost.schema import Schema
from toolpost.spec import TIERS, ToolSpec

_log = logging.getLogger("toolpost.approvals")
_UNSAFE: Final = 3
_CALLBACK: Final[Channel] = "callback"
_TERMINAL: Final[Channel] = "terminal"
_SCOPE: Final = ("handle", "session", "left", "given", "expires")
_CODES: Final = {
    "approve": "APPROVED",
    "deny": "DENIED",
    "take back": "TAKEN_BACK",
    "revoke": "REVOKED",
}
Mode = Literal["never", "policy", "unsafe", "always"]
Ask = Callable[[Request], Awaitable[Decision | bool | None]]
"""Reaches a person: the answer, or ``None`` if it is still to come, by whatever way."""


class ApprovalOptions(Options, frozen=True, kw_only=True):
    """The table ``[extensions.approval]``. ``wait``: seconds a call waits for the answer;
    ``expires``: seconds until a request nobody used is void; ``need``: how many people have to
    agree, ``needs`` the same by pattern of tools; ``approvers``: roles that may answer for others;
    ``prompt``: ask at the terminal this was started from; ``most``: requests of one caller that
    nobody has answered; ``largest``: bytes of arguments that are kept for a person.
    """

    mode: Mode = "policy"
    wait: float = 0.0
    expires: float = 3600.0
    need: int = 1
    needs: dict[str, int] = msgspec.field(default_factory=dict)
    approvers: tuple[str, ...] = ()
    prompt: bool = False
    most: int = 100
    largest: int = 262_144

    def __post_init__(self) -> None:
        if self.wait < 0:
            raise ValueError("wait is a number of seconds")
        if not 0 < self.expires <= 30 * 86400:
            raise ValueError("expires is a number of seconds, up to 30 days")
        if not all(1 <= need <= 10 for need in (self.need, *self.needs.values())):
            raise ValueError("between 1 and 10 people have to agree")
        if self.most < 1 or self.largest < 1:
            raise ValueError("most and largest are at least 1")


DEFAULTS: Final = ApprovalOptions()


class Approval:
    """The guard. ``ask`` reaches a person in a way of your own."""

    name = "approval"
    options = ApprovalOptions

    def __init__(
        self,
        records: Records,
        *,
        options: ApprovalOptions = DEFAULTS,
        ask: Ask | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.approvals = Approvals(
            records,
            clock=clock or SystemClock(),
            approvers=options.approvers,
            spec_of=self._spec_of,
            most=options.most,
            largest=options.largest,
        )
        self._road: Road | None = None
        self._options = options
        self._ask: Ask | None = ask
        self._channel = _CALLBACK
        if ask is None and options.prompt:
            self._ask, self._channel = Prompt(), _TERMINAL
        self._asking: set[str] = set()
        self.edited: dict[str, str | None] = {}
        """What calls were given that now run with edited arguments, as a digest, by the handle of
        their yes: a repeat of such a call has the same key and what was given first.
        """
        self._waiting = 0
        self._needs = [(selector((pattern,)), need) for pattern, need in options.needs.items()]

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        parsed = options_from(options, ApprovalOptions, "extension approval")
        return cls(around.records, options=parsed, clock=around.clock)

    @property
    def mode(self) -> Mode:
        return self._options.mode

    def reach(self, ask: Ask) -> None:
        """Reach a person this way from now on."""
        self._ask, self._channel = ask, _CALLBACK

    def record(self, keep: Callable[[AuditRecord], Awaitable[bool]]) -> None:
        """Have every answer kept this way from now on."""

        async def tell(settled: Settled) -> None:
            if not await keep(as_record(settled)):
                _log.error("an answer is not on record: %s by %s", settled.what, settled.by.id)

        self.approvals.tell = tell

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
        self._road = road
        if self._options.mode == "never":
            return Check(_unasked(spec)) if spec.requires_approval else None
        always, asked = _always(spec, self._options.mode), _Asked(self, spec, road)

        async def ring(call: Call, call_next: Walk) -> Result:
            return await asked(call, call_next, call.ask or always or "A grant was presented.")

        def look(call: Call) -> Ring | None:
            return None if call.ask is None and always is None and call.grant is None else ring

        return Check(look, plain=always is None)

    async def survey(self) -> None:
        """Count what waits for an answer: others ask and answer, too."""
        self._waiting = len(await self.approvals.waiting())

    def gauges(self) -> dict[str, tuple[str, dict[str, float]]]:
        """How many requests waited for an answer at the last look."""
        return {"approvals_waiting": ("", {"": self._waiting})}

    async def requested(
        self, call: Call, spec: str, reason: str, *, code: str | None = None
    ) -> Request:
        """The request for this call, after everybody who can be reached here was."""
        options = self._options
        need = next((need for fits, need in self._needs if fits(call.spec)), options.need)
        request = await self.approvals.ask(
            call, spec=spec, code=code, reason=reason, need=need, seconds=options.expires
        )
        if request.status != "waiting":
            return request
        ends = monotonic() + options.wait
        if call.deadline is not None:
            ends = min(ends, call.deadline)
        if self._ask is not None and request.handle not in self._asking:
            await self._reach(request, self._ask, call.deadline)
        if (left := ends - monotonic()) > 0:
            await self.approvals.wait(request.handle, seconds=left)
        return request

    def _spec_of(self, tool: str) -> ToolSpec | None:
        """As it would be called now; not before the first call of any tool."""
        spec = None if self._road is None else self._road.bound(tool).spec
        return spec if spec is not None and spec.name == tool else None

    def _who(self, request: Request) -> Caller:
        """Whose answer it is. Whom a callback reaches nobody knows: where several have to agree it
        may be the one who also answers on the command line, and counts as that one.
        """
        if self._channel == _TERMINAL:
            return local_person()
        user = local_person().user if request.need > 1 else None
        return Caller(self._channel, user=user, owner=True)

    async def _reach(self, request: Request, ask: Ask, deadline: float | None) -> None:
        """Ask in the way that was given; what goes wrong with it is no yes."""
        self._asking.add(request.handle)
        left = request.expires - self.approvals.now()
        if deadline is not None:
            left = min(left, deadline - monotonic())
        try:
            said = await asyncio.wait_for(ask(request), left)
            if said is not None:
                decision = said if isinstance(said, Decision) else Decision(approve=said is True)
                await self.approvals.decide(
                    request.handle,
                    decision,
                    by=self._who(request),
                    channel=self._channel,
                    seen=request.seen,
                )
        except TimeoutError:
            _log.warning("nobody has answered %s in time", request.handle)
        except CallError as late:  # somebody else has answered, or the answer was none
            _log.warning("an answer to %s does not count: %s", request.handle, late)
        except Exception:  # noqa: BLE001 - foreign code: the request stays, and waits
            _log.exception("nobody could be asked about %s", request.handle)
        finally:
            self._asking.discard(request.handle)


def as_record(settled: Settled) -> AuditRecord:
    """What was decided, for the audit: by whom, about which call, and how far it goes."""
    request, standing, by = settled.request, settled.standing, settled.by
    of = request or standing
    assert of is not None, "an answer is about a request, or ends a lasting yes"
    about: dict[str, Any] = {"asked_by": redact(msgspec.to_builtins(of.caller))}
    if request is not None:
        about |= {"call": request.call_id, "status": request.status, "need": request.need}
        about |= {"edited": True} if request.edited is not None else {}
    if standing is not None:
        told = msgspec.to_builtins(standing)
        about["lasting"] = {key: told.get(key) for key in _SCOPE} | {
            "where": redact(standing.where)
        }
    return AuditRecord(
        kind="decision",
        time=settled.at,
        call_id=new_call_id(),
        session=of.session,
        caller=who_of(by),
        tool=of.tool,
        spec=of.spec,
        arguments=None if request is None else request.shown(),
        arguments_digest="" if request is None else digest(request.exact()),
        grant=of.handle,
        code=_CODES[settled.what],
        outcome="none",
        message=request.votes[-1].reason if request is not None and request.votes else "",
        approver=f"{redact_text(by.user or by.id)} ({settled.channel})",
        details=about,
    )


class _Asked:
    """The calls of one tool that need a yes."""

    def __init__(self, approval: Approval, spec: ToolSpec, road: Road) -> None:
        self._approval, self._spec, self._road = approval, spec, road

    @cached_property
    def _digest(self) -> str:
        return self._spec.digest

    @cached_property
    def _schema(self) -> Schema:
        return Schema(self._spec.input_schema, coerce=self._spec.coerce)

    async def __call__(self, call: Call, call_next: Walk, reason: str) -> Result:
        if call.dry_run:
            return await call_next(msgspec.structs.replace(call, ask=call.ask or reason))
        self._refuse_hopeless(call)
        began = monotonic()
        code = await self._code(call)
        handle, found = await self._yes(call, reason, code)
        waited = monotonic() - began
        if isinstance(found, Standing):
            call.note(Approval.name, f"covered by {handle}, given by {found.by}")
            # now, and not only with a result: a call that is cut off has none
            call.about.approved = approved = Approved(handle, (found.by,))
            call.about.waited_ms += waited * 1000
            result = await call_next(msgspec.structs.replace(call, ask=None, code=code))
            return _told(call, result, approved, waited)
        if isinstance(found, Edited):
            edited = self._approval.edited
            edited[handle] = None if call.key is None else call.pinned()
            try:
                result = await self._road.rewalk(call, arguments=found.arguments, grant=handle)
            finally:
                del edited[handle]
            return _told(call, result, result.metadata.approved, waited)
        people = tuple(vote.who for vote in found.votes)
        call.note(Approval.name, f"{handle} approved by {', '.join(people)}")
        call.about.approved = approved = Approved(handle, people)
        call.about.waited_ms += waited * 1000
        given = self._approval.edited.get(handle) or call.given
        approved_call = msgspec.structs.replace(
            call, ask=None, grant=handle, code=code, given=given
        )
        result = await call_next(approved_call)
        return _told(call, result, approved, waited)

    async def _code(self, call: Call) -> str | None:
        """The digest of what would run; read in a thread, for a program may be large."""
        handle = self._road.bound(call.tool).handle
        if handle is None or not isinstance(handle, HasCode):
            return None
        return await asyncio.to_thread(handle.code, call)

    async def _yes(
        self, call: Call, reason: str, code: str | None
    ) -> tuple[str, Request | Edited | Standing]:
        """What it runs under, used up for it, and the handle of that: the grant, or a yes of its
        own, or one that lasts, which may be for so many calls. If there is none, somebody is asked.
        """
        approvals, spec, handle = self._approval.approvals, self._digest, call.grant
        if handle is None:
            handle = await approvals.own_yes(call, spec=spec, code=code)
        if handle is None:
            if (standing := await approvals.covered(call, spec=spec, code=code)) is not None:
                return standing.handle, standing
            handle = (await self._approval.requested(call, spec, reason, code=code)).handle
        try:
            admit = self._schema.admit
            found = await approvals.redeem(handle, call, spec=spec, code=code, admit=admit)
            return handle, found
        except ApprovalDenied:  # an equal call was faster; the answer may have been for all of them
            if call.grant is not None or (await approvals.find(handle)).status != "used":
                raise
            if (standing := await approvals.covered(call, spec=spec, code=code)) is None:
                raise
            return standing.handle, standing

    def _refuse_hopeless(self, call: Call) -> None:
        """What the tool itself would refuse, nobody is asked about, and no yes is used up for."""
        handle = self._road.bound(call.tool).handle
        if handle is not None and isinstance(handle, Plans):
            handle.plan(call)


def _unasked(spec: ToolSpec) -> Callable[[Call], Call | None]:
    """Takes away what the spec asks for, and leaves what the policy does."""
    wanted = _always(spec, "never")

    def look(call: Call) -> Call | None:
        return msgspec.structs.replace(call, ask=None) if call.ask == wanted else None

    return look


def _told(call: Call, result: Result, approved: Approved | None, waited: float) -> Result:
    """The result, which says who let the call run and how long that took."""
    result.metadata.approved = approved
    if result.metadata is not call.about:  # of another run; the call's own says it already
        result.metadata.waited_ms += waited * 1000
    return result


def _always(spec: ToolSpec, mode: Mode) -> str | None:
    """Why every call of this tool needs a yes, or ``None``."""
    if spec.requires_approval:
        return f"A person has to confirm {spec.name} before it runs."
    if mode == "always":
        return "Every call does."
    if mode == "unsafe" and spec.tier >= _UNSAFE:
        return f"{spec.name} is of tier {spec.tier} ({TIERS[spec.tier]})."
    return None
