"""What a worker is asked, read from bytes that somebody else has written."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from toolpost.bus.wire import REQUEST, Envelope, Request
from toolpost.document.strict import NotStrictJson, StrictDecoder
from toolpost.errors import InvalidArguments


class _Vouched(Envelope[Request], frozen=True, kw_only=True, rename="camel"):
    """A request as it is sent to a worker that has met the gateway: with a ticket in it, which was
    looked at before.
    """

    ticket: Any = UNSET


_request: Final = StrictDecoder[_Vouched](_Vouched, "request")


def read_request(body: bytes, tool: str) -> Request:
    """The call of this tool, or ``InvalidArguments``."""
    try:
        told = _request.decode(body)
    except NotStrictJson as fault:
        raise InvalidArguments(f"This is no request. {fault}", effects="none") from None
    if told.type != REQUEST:
        raise InvalidArguments("This is no request, by its type.", effects="none")
    if told.payload.tool != tool:
        raise InvalidArguments("The request names another tool than its subject.", effects="none")
    return told.payload
