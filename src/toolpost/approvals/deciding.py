"""Who may answer.

The requesting agent or key never approves itself. The user behind it may, on a channel that the
agent does not hold. Anybody else needs a role that the config names, or owns the process.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from toolpost.approvals.values import Channel, Request, principal
from toolpost.call import Caller

_HELD_BY_AGENTS: Final = frozenset(("api",))
_VOUCHED_FOR: Final = frozenset(("callback", "webhook"))
"""Whoever comes here was let in by the program itself or by a signature."""


def objection(
    request: Request, by: Caller, *, channel: Channel, approve: bool, approvers: Set[str]
) -> str | None:
    """Why this caller may not answer here, or ``None``."""
    asker = request.caller
    if not approve and (by.owner or principal(by) == principal(asker)):
        return None  # taking back, and the owner's no, are always safe
    if by.agent is not None:
        return "An agent does not approve: a person has to."
    if channel in _HELD_BY_AGENTS and _behind(by, asker):
        return (
            "Whoever asked does not approve by the way they asked. The user behind the call may, "
            "at a terminal where this runs: toolpost approvals approve. Somebody else with a role "
            "in approvers may anywhere."
        )
    if channel in _VOUCHED_FOR or by.owner or _behind(by, asker) or by.roles & approvers:
        return None
    return "This takes the user behind the call, or a role that may approve."


def _behind(by: Caller, asker: Caller) -> bool:
    """The same key, the same person, or both the owner."""
    return (
        by.id == asker.id
        or (by.user is not None and by.user == asker.user)
        or (by.owner and asker.owner)
    )
