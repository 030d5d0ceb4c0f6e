"""What a yes is bound to: the tool as it was, the arguments to the byte, the caller, the folder.

Above: ``desk.py``. It refuses to know where a request is kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from toolpost.approvals.values import Request, asker
from toolpost.call import Call
from toolpost.digest import canonical
from toolpost.errors import ApprovalDenied, Conflict, InvalidArguments

_log = logging.getLogger("toolpost.approvals")


def exact(arguments: Mapping[str, Any]) -> str:
    """One text for equal arguments."""
    try:
        return canonical(arguments).decode()
    except (TypeError, ValueError):
        raise InvalidArguments(
            "These arguments cannot be kept until a person has seen them: send plain JSON."
        ) from None


def bound(request: Request) -> list[Any]:
    """What a yes is bound to, the code apart: what asks for it with other code is told so."""
    who = asker(request.caller)
    return [request.tool, request.spec, request.arguments, who, request.working_dir]


def fitting(
    request: Request,
    call: Call,
    *,
    spec: str,
    code: str | None,
    admit: Callable[[Any], dict[str, Any]],
) -> dict[str, Any] | None:
    """Refuse a call that is not the one asked for; else the approver's arguments, if those are
    others than the call's.
    """
    if asker(call.caller) != asker(request.caller):
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
    if code != request.code:
        raise Conflict(
            f"The code of {call.tool} has changed since {request.handle} was asked for. Ask again, "
            "without a grant.",
            remedy="ask_approval",
        )
    given = exact(call.arguments)
    if request.edited is None:
        if given == request.arguments:
            return None
    else:
        edited = admit(json.loads(request.edited))
        if given == exact(edited):
            return None
        if given == request.arguments:
            return edited
    raise Conflict(
        f"The arguments are not those that {request.handle} was asked for. Send those, or ask "
        "anew, without a grant.",
        remedy="ask_approval",
    )
