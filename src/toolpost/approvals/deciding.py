"""Who may answer, and what an answer makes of a request.

The requesting agent or key never approves itself. The user behind it may, on a channel that the
agent does not hold. Anybody else needs a role that the config names, or owns the process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from typing import Any, Final, get_args

import msgspec

from toolpost.approvals.fitting import exact
from toolpost.approvals.values import Channel, Decision, Request, Vote, principal
from toolpost.call import Caller
from toolpost.errors import Conflict, InvalidArguments
from toolpost.redact import Rules, redact_text
from toolpost.wording import short

_HELD_BY_AGENTS: Final = frozenset(("api",))
_VOUCHED_FOR: Final = frozenset(("callback", "webhook"))
"""Whoever comes here was let in by the program itself or by a signature."""
_SECRETS: Final = Rules(personal=False)
_LONGEST: Final = 30 * 86400.0
_MARK: Final = re.compile(r"\[redacted:[^\[\]]*\]")


def verify_channel(channel: str) -> None:
    """Refuse a way that there is not: an answer that names one could be written, and not read."""
    if channel not in get_args(Channel):
        ways = ", ".join(get_args(Channel))
        raise InvalidArguments(f"An answer comes by one of {ways}, not by {short(channel)!r}.")


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
        or by.principal == asker.principal
        or (by.user is not None and by.user == asker.user)
        or (by.owner and asker.owner)
    )


def merge_edit(request: Request, decision: Decision) -> Decision:
    """The decision with all arguments that the call is to have: an edit says which ones change, and
    the others stay as they were asked for. People see those redacted, so a redaction mark in an
    edit is refused: the tool would take it for the value.
    """
    if decision.arguments is None or not decision.approve:
        return decision
    asked = request.exact()
    edited = asked | dict(decision.arguments)
    exact(edited)  # refuses what is not plain JSON
    for place in Counter(_marks(edited, "")) - Counter(_marks(asked, "")):
        at, mark = place
        raise InvalidArguments(
            f"{short(at)}: {short(mark)} stands for a value that is not shown, and would reach the "
            "tool in its place. Send only the arguments that change: the others stay as they were "
            "asked for. An argument that changes is replaced as a whole."
        )
    return msgspec.structs.replace(decision, arguments=edited)


def _marks(value: Any, at: str) -> Iterator[tuple[str, str]]:
    """Every redaction mark in names and texts, with its place."""
    if isinstance(value, str):
        yield from ((at, mark) for mark in _MARK.findall(value))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from ((f"{at}/{name}", mark) for mark in _MARK.findall(name))
            yield from _marks(item, f"{at}/{name}")
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _marks(item, f"{at}/{place}")


def judge_yes(request: Request, decision: Decision, by: Caller) -> None:
    """Refuse a yes that says too much, or that the same person has said before."""
    edit = None if decision.arguments is None else exact(decision.arguments)
    if edit is not None and _SECRETS.find(edit) and not _SECRETS.find(request.arguments):
        raise InvalidArguments("There is a secret in these arguments: leave it out.")
    if edit is None and any(vote.person == (by.user or by.key or by.id) for vote in request.votes):
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


def answered(
    request: Request, decision: Decision, *, by: Caller, channel: Channel, at: float
) -> Request:
    """The request with one more vote. Those who approved other arguments have to look again."""
    replace, vote = msgspec.structs.replace, _vote(decision, by, channel, at)
    if not decision.approve:
        return replace(request, status="denied", votes=(*request.votes, vote))
    votes = request.votes
    if decision.arguments is not None and (edited := exact(decision.arguments)) != request.decided:
        request, votes = replace(request, edited=edited), ()
    votes = (*(v for v in votes if v.person != vote.person), vote)
    enough = len(votes) >= request.need
    return replace(request, votes=votes, status="approved" if enough else "waiting")


def _vote(decision: Decision, by: Caller, channel: Channel, at: float) -> Vote:
    return Vote(
        by=by.key or by.id,
        user=by.user,
        channel=channel,
        at=at,
        approve=decision.approve,
        reason=redact_text(decision.reason),
    )
