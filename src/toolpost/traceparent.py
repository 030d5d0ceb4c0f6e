"""Which trace a call belongs to, in the words of W3C Trace Context, for whoever sends it on.

Above: the backends that talk to other services, and the ring that makes spans. Below: the call.
With no ring that makes spans the trace of the caller is handed through as it came. What a span is,
and who collects them, is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final

from toolpost.call import Call

_FORM: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_STATE: Final = re.compile(r"[ -~]{1,512}")
_NONE: Final[Mapping[str, str]] = {}

inside: ContextVar[Mapping[str, str]] = ContextVar("toolpost_traceparent", default=_NONE)
"""The headers of the span that is open around the running call; set by the ring that opened it."""


def incoming(call: Call) -> Mapping[str, str]:
    """What came with the call, if it has the form: ``traceparent``, and ``tracestate`` with it."""
    parent, state = call.metadata.get("traceparent"), call.metadata.get("tracestate")
    if not isinstance(parent, str) or not _FORM.fullmatch(parent):
        return _NONE
    if isinstance(state, str) and _STATE.fullmatch(state):
        return {"traceparent": parent, "tracestate": state}
    return {"traceparent": parent}


def outgoing(call: Call) -> Mapping[str, str]:
    """The headers to send along with whatever a backend asks of another service."""
    return inside.get() or incoming(call)
