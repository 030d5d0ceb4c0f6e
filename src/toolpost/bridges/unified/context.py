"""``ToolContext``: who calls a tool, and for what; and to extensions, which call it is.

Above: the executor and the extensions of this bridge. Below: our own ``Call`` and ``Caller``. It
refuses to know what anybody may do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, Final

import msgspec

from toolpost.bridges.unified.specs import ToolSpec
from toolpost.call import NOTHING, OWNER, Call, Caller

ANONYMOUS: Final = Caller("anonymous")


class ToolContext(msgspec.Struct, kw_only=True):
    """A caller fills in the first half. Without an identity it is whoever runs the process, unless
    an ``AuthExtension`` is there: then it is nobody in particular, and ``owner=True`` says so.

    An extension finds the second half filled in. ``args`` it may change: they are checked again.
    ``state`` is shared by all extensions of one call.
    """

    session_id: str | None = None
    user_id: str | None = None
    agent_id: str | None = None
    roles: Iterable[str] | None = ()
    owner: bool = False
    metadata: Mapping[str, Any] = NOTHING
    timeout: float | None = None
    """Seconds that the whole call may take."""
    working_dir: str | None = None
    dry_run: bool = False
    approval: str | None = None
    """The handle of an approval that was given for this call."""

    tool_name: str = ""
    spec: ToolSpec | None = None
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    call_id: str = ""
    state: dict[str, Any] = msgspec.field(default_factory=dict)

    def caller(self, *, otherwise: Caller = OWNER) -> Caller:
        """Who asks; ``otherwise`` where no identity was given."""
        user, agent = self.user_id, self.agent_id
        roles: Any = self.roles or ()
        if not isinstance(roles, str):  # a single text is refused on the road, as a slip
            roles = frozenset(roles)
        if user is None and agent is None and not roles:
            return OWNER if self.owner else otherwise
        name = user if user is not None else ANONYMOUS.id if agent is None else f"agent:{agent}"
        return Caller(name, user, agent, roles, self.owner)


def context_of(call: Call, spec: ToolSpec, state: dict[str, Any]) -> ToolContext:
    """What an extension is told of a call; what it does to it is done to a copy."""
    caller = call.caller
    return ToolContext(
        session_id=call.session_id,
        user_id=_user(caller),
        agent_id=caller.agent,
        roles=caller.roles,
        owner=caller.owner,
        metadata=call.metadata,
        working_dir=call.working_dir,
        dry_run=call.dry_run,
        approval=call.grant,
        tool_name=call.tool,
        spec=spec,
        args=deepcopy(call.arguments),
        call_id=call.call_id,
        state=state,
    )


def _user(caller: Caller) -> str | None:
    """Who comes by another door may have no more than an id."""
    told = caller.user is None and caller.agent is None and not caller.owner
    return caller.id if told and caller.id != ANONYMOUS.id else caller.user
