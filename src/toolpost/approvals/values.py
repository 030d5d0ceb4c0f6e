"""What is asked, and what is answered: frozen values, as the store keeps them.

Arguments are kept as canonical JSON, so that no store can change them; people are shown
``shown()``, where secrets are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from toolpost.call import Caller
from toolpost.digest import digest
from toolpost.redact import Rules, redact, redact_text

Status = Literal["waiting", "approved", "denied", "used"]
State = Literal["waiting", "approved", "denied", "used", "expired"]
What = Literal["approve", "deny", "take back", "revoke"]
Channel = Literal["terminal", "console", "callback", "webhook", "api"]
"""The way an answer came. Agents hold the ``api`` too: it is no place to approve one's own call."""

_SECRETS: Final = Rules(personal=False)
SKEW: Final = 60.0
"""Seconds by which the clocks of two hosts may differ. A clock that went further back than this
has not made an approval last longer: it has ended it."""


class Lasting(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A yes for more than one call of the same tool by the same caller.

    ``session``: only in the session that asked. ``where``: argument → JSON Schema that it must fit;
    an argument that is named must be there. ``uses``: at most so many calls.
    """

    session: bool = False
    where: Mapping[str, Any] = {}
    seconds: float = 3600.0
    uses: int | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person says. ``arguments``: yes, but with these changed; the others stay as they were
    asked for. ``lasting``: and not only now.
    """

    approve: bool
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    lasting: Lasting | None = None


class Vote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who said what, where and when."""

    by: str
    channel: Channel
    at: float
    approve: bool
    user: str | None = None
    reason: str = ""

    @property
    def person(self) -> str:
        return self.user or self.by

    @property
    def who(self) -> str:
        """The person, and the way they answered."""
        return f"{self.person} ({self.channel})"


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that needs a yes, exactly as it was admitted."""

    handle: str
    tool: str
    spec: str
    """The digest of the whole spec."""
    arguments: str
    caller: Caller
    call_id: str
    reason: str
    asked: float
    expires: float
    session: str | None = None
    working_dir: str | None = None
    need: int = 1
    status: Status = "waiting"
    votes: tuple[Vote, ...] = ()
    edited: str | None = None
    used_by: str | None = None
    """The id of the call that it was used for."""
    code: str | None = None
    """The digest of the tool's code, where it is in a file."""

    @property
    def decided(self) -> str:
        """The arguments as they stand: those asked for, or an approver's."""
        return self.arguments if self.edited is None else self.edited

    @property
    def seen(self) -> str:
        """Pins what a person looked at before they answered."""
        return digest([self.handle, self.decided])

    def state(self, now: float) -> State:
        """An answer counts until the request expires, and so does the lack of one."""
        if self.status in ("waiting", "approved") and not (self.asked - SKEW <= now < self.expires):
            return "expired"
        return self.status

    def exact(self) -> dict[str, Any]:
        """The arguments as they would be executed: not for the eyes of people."""
        data: dict[str, Any] = json.loads(self.decided)
        return data

    def shown(self) -> Any:
        """The arguments for people."""
        return redact(self.exact())

    def to_dict(self, now: float) -> dict[str, Any]:
        """For people and for programs that show it to people."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data | {
            "arguments": self.shown(),
            "edited": self.edited is not None,
            "reason": redact_text(self.reason),
            "votes": [vote | _unsaid(vote) for vote in data.get("votes", ())],
            "status": self.state(now),
            "need": self.need,
            "seen": self.seen,
        }


def _unsaid(vote: dict[str, Any]) -> dict[str, Any]:
    return {"reason": redact_text(vote["reason"])} if "reason" in vote else {}


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A yes that lasts: given once, for calls like the one that was asked for."""

    handle: str
    tool: str
    spec: str
    principal: str
    caller: Caller
    expires: float
    given: float
    by: str
    request: str
    session: str | None = None
    where: dict[str, Any] = {}
    left: int | None = None
    code: str | None = None
    """The digest of the tool's code, where it is in a file."""

    def holds(self, now: float) -> bool:
        return self.given - SKEW <= now < self.expires and self.left != 0


class Settled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer that counts, for the record: who gave it, and what it is for. ``request`` as it
    stands now; ``standing`` is the yes that lasts, or the one that has ended.
    """

    what: What
    by: Caller
    channel: Channel
    at: float
    request: Request | None = None
    standing: Standing | None = None


def principal(caller: Caller) -> str:
    """On whose behalf a call runs, as the store may keep it."""
    return digest(kept_caller(caller).principal)


def asker(caller: Caller) -> str:
    """Whom a yes is given to: a principal, and the agent that acts for it. The owner of the process
    is not taken for one of its users.
    """
    known = kept_caller(caller)
    return digest([known.principal, known.agent, known.owner])


def kept(name: str) -> str:
    """A name as the store may keep it: one that holds a secret is known by its digest."""
    return digest(name) if _SECRETS.find(name) else name


def kept_caller(caller: Caller) -> Caller:
    names = (caller.id, caller.user, caller.agent, caller.key)
    safe = tuple(name and kept(name) for name in names)
    if safe == names:
        return caller
    known: Caller = msgspec.structs.replace(
        caller, id=safe[0], user=safe[1], agent=safe[2], key=safe[3]
    )
    return known
