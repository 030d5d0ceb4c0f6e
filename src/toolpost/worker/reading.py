"""What a worker is asked, read from bytes that somebody else has written."""

from __future__ import annotations

from typing import Final

import msgspec

from toolpost.bus.wire import REQUEST, Envelope, Request
from toolpost.errors import InvalidArguments

_request: Final = msgspec.json.Decoder(Envelope[Request])


def read_request(body: bytes, tool: str) -> Request:
    """The call of this tool, or ``InvalidArguments``."""
    try:
        told = _request.decode(body)
    except (msgspec.MsgspecError, ValueError) as fault:
        raise InvalidArguments(f"This is no request: {fault}", effects="none") from None
    if told.type != REQUEST:
        raise InvalidArguments("This is no request, by its type.", effects="none")
    if told.payload.tool != tool:
        raise InvalidArguments("The request names another tool than its subject.", effects="none")
    return told.payload
