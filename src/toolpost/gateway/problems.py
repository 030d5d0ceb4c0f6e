"""Failures as ``application/problem+json``: one body and one status for each, by the one table.

Above: every route. Below: ``codes.py``, which knows the statuses. What HTTP itself can refuse and
no tool can, a body too large or a method that is not there, is :class:`Refused`.
"""

from __future__ import annotations

from http import HTTPStatus
from math import ceil
from typing import Any, Final

import msgspec

from toolpost.codes import STATUS
from toolpost.errors import CallError, InvalidArguments
from toolpost.failure import failure
from toolpost.result import Failure, Metadata
from toolpost.spec import Effects

Headers = list[tuple[bytes, bytes]]
MEDIA_TYPE: Final = b"application/problem+json"
_PHRASES: Final = {one.value: one.phrase for one in HTTPStatus} | {499: "Client Closed Request"}


class Refused(InvalidArguments):
    """A request that is not one, and the status that HTTP has for it, with the header that goes
    with that.
    """

    def __init__(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


def problem(
    error: Failure,
    *,
    instance: str | None = None,
    status: int | None = None,
    metadata: Metadata | None = None,
) -> tuple[int, bytes]:
    """The status and the body of a failure; ``instance`` is the address of what failed."""
    status = STATUS[error.code].http if status is None else status
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": _PHRASES.get(status, "Error"),
        "status": status,
        "detail": error.message,
    }
    if instance is not None:
        body["instance"] = instance
    said = msgspec.to_builtins(error)
    del said["message"]
    body |= said
    if metadata is not None:
        body["metadata"] = metadata
    return status, msgspec.json.encode(body)


def headers_of(error: Failure, *, challenge: str | None = None) -> Headers:
    """What goes with the body: when to come back, or how to say who one is."""
    headers: Headers = [(b"content-type", MEDIA_TYPE), (b"cache-control", b"no-store")]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(max(0, ceil(error.retry_after))).encode()))
    if challenge is not None:
        headers.append((b"www-authenticate", challenge.encode("latin-1", "replace")))
    return headers


def answer_to(
    fault: CallError,
    *,
    tool: str = "gateway",
    instance: str | None = None,
    challenge: str | None = None,
    effects: Effects = "once",
) -> tuple[int, Headers, bytes]:
    """What a door says to an error that never was on the road. A ``challenge``, given or the
    error's own, goes to who has not said who they are: with 401, and to nobody else.
    """
    error = failure(fault, tool=tool, call_id="", effects=effects)
    status = fault.status if isinstance(fault, Refused) else None
    challenge = challenge or getattr(fault, "challenge", None)
    if challenge is not None:
        status = HTTPStatus.UNAUTHORIZED.value
    status, body = problem(error, instance=instance, status=status)
    headers = headers_of(error, challenge=challenge)
    if isinstance(fault, Refused):
        headers += fault.headers
    return status, headers, body
