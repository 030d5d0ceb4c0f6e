"""What a status of HTTP means for a call.

Above: ``answering.py``, and the sessions with MCP servers behind a URL. Below: the error tree. It
refuses to know who answered.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, NamedTuple

from toolpost.errors import (
    CallError,
    Conflict,
    InvalidArguments,
    Outcome,
    RateLimited,
    Remedy,
    ToolFailed,
    ToolNotFound,
    Unauthorized,
    Unavailable,
)


class Meaning(NamedTuple):
    """The error that a status amounts to."""

    kind: type[CallError]
    remedy: Remedy | None
    retryable: bool
    effects: Outcome


_TABLE: Final[tuple[tuple[frozenset[int], Meaning], ...]] = (
    (frozenset((400, 413, 414, 422, 431)), Meaning(InvalidArguments, None, False, "none")),
    (frozenset((401, 403, 407, 511)), Meaning(Unauthorized, None, False, "none")),
    (frozenset((404, 410)), Meaning(ToolNotFound, "fix_args", False, "none")),
    (frozenset((409, 412, 423, 424, 428)), Meaning(Conflict, None, False, "none")),
    (frozenset((402, 451)), Meaning(ToolFailed, "stop", False, "none")),
    (frozenset((408, 425)), Meaning(Unavailable, None, True, "none")),
    (frozenset((429,)), Meaning(RateLimited, None, True, "none")),
    (frozenset((501, 505)), Meaning(ToolFailed, "other_tool", False, "none")),
    (frozenset((500,)), Meaning(ToolFailed, "other_tool", True, "unknown")),
    (frozenset(range(400, 500)), Meaning(ToolFailed, "other_tool", False, "none")),
    (frozenset(range(500, 600)), Meaning(Unavailable, None, True, "unknown")),
)
"""Looked through in order."""
_OTHERWISE: Final = Meaning(ToolFailed, "other_tool", False, "unknown")


def meaning_of(status: int) -> Meaning:
    """Of a status that is no success."""
    return next((meaning for those, meaning in _TABLE if status in those), _OTHERWISE)


def phrase(status: int) -> str:
    """Its name, behind its number: ``429 (Too Many Requests)``."""
    try:
        return f"{status} ({HTTPStatus(status).phrase})"
    except ValueError:
        return str(status)
