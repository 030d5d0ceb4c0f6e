"""What a caller gives, whatever it is, in a form that a call can hold.

Above: the executor. Nothing is refused here: the road does that, in sight of its observers.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from toolpost.call import OWNER, Caller
from toolpost.plain import is_text

_log = logging.getLogger("toolpost")
NEVER: Final = -sys.float_info.max
"""The deadline of a call whose timeout is no number of seconds: it does not run."""


def as_name(name: object) -> str:
    return name if isinstance(name, str) else f"({type(name).__name__})"


def as_arguments(arguments: object) -> Any:
    """What is not a mapping goes on as it is: the check says what is wrong with it."""
    if arguments is None:
        return {}
    try:
        return dict(arguments) if isinstance(arguments, Mapping) else arguments
    except Exception:  # noqa: BLE001 - a mapping of the caller's own, which may do anything
        _log.exception("arguments that cannot be read")
        return Unreadable()


class Unreadable:
    """Stands for arguments that raised when they were read: the check refuses it by its name."""


class Misgiven(Caller, frozen=True):
    """Stands for who asked where that, the session or the key is not what it has to be: there are
    no tools for it.
    """

    fault: str = ""


_good: object = OWNER
"""The last caller that was as it has to be: mostly the next one is the same."""
Asked = tuple[Caller, str | None, str | None]


def as_asked(caller: Any, session_id: Any, key: Any) -> Asked:
    """Who asks, in which session, under which key; or a :class:`Misgiven` and nothing else."""
    global _good
    fault = None if caller is _good else _fault_of(caller)
    if fault is None:
        _good = caller
    for name, text in (("session_id", session_id), ("key", key)):
        if text is not None and not (type(text) is str and text and is_text(text)):
            fault = fault or f"{name} must be a text that is not empty; leave it out to have none"
    return (caller, session_id, key) if fault is None else (_misgiven(fault), None, None)


def _misgiven(fault: str) -> Misgiven:
    return Misgiven("(misgiven)", tools=(), fault=f"The call cannot be made: {fault}.")


def _fault_of(caller: Any) -> str | None:
    if not isinstance(caller, Caller):
        return f"caller is a {type(caller).__name__}, and must be a toolpost.Caller"
    who: dict[str, Any] = msgspec.structs.asdict(caller)
    if type(who["owner"]) is not bool:
        return "owner of a Caller is true or false"
    if not isinstance(who["roles"], frozenset) or not all(map(_is_name, who["roles"])):
        return "roles of a Caller are a frozenset of texts"
    if (tools := who["tools"]) is not None and not (
        isinstance(tools, tuple) and all(map(_is_name, tools))
    ):
        return "tools of a Caller are a tuple of texts"
    if not all(name is None or _is_name(name) for name in (who["user"], who["agent"])):
        return "user and agent of a Caller are texts"
    return None if _is_name(who["id"]) else "id of a Caller is a text"


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and is_text(name)


def as_deadline(started: float, timeout: Any) -> float:
    """When a call is over. What is no number of seconds is over before it began."""
    try:
        deadline = started + timeout
    except OverflowError:  # an integer beyond any clock
        return math.inf if timeout > 0 else -math.inf
    except Exception:  # noqa: BLE001 - an object of the caller's own, which may do anything
        return NEVER
    return deadline if isinstance(deadline, float) and not math.isnan(deadline) else NEVER
