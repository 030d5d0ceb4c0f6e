"""Results and failures as HTTP answers, in two messages: no framework is needed for that.

Above: the routes. Below: ``problems.py``.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from toolpost.errors import CallError, InternalError
from toolpost.gateway.bodies import Scope, Send
from toolpost.gateway.problems import Headers, answer_to, headers_of, problem
from toolpost.result import Result
from toolpost.spec import Effects

_log = logging.getLogger("toolpost.gateway")
_encode: Final = msgspec.json.Encoder().encode
_JSON: Final = (b"content-type", b"application/json")
_PRIVATE: Final = (b"cache-control", b"no-store")
CALL_ID: Final = b"toolpost-call-id"
WHOLE: Final = "toolpost.whole"
"""Where the scope has a way to answer with JSON in one piece, under a server that has one."""


async def send_bytes(send: Send, status: int, headers: Headers, body: bytes) -> int:
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    return status


async def send_json(send: Send, data: Any, *, status: int = 200) -> int:
    return await send_bytes(send, status, [_JSON, _PRIVATE], _encode(data))


async def send_fault(
    send: Send, fault: CallError, *, close: bool = False, effects: Effects = "once"
) -> int:
    """What a door refuses by itself."""
    status, headers, body = answer_to(fault, effects=effects)
    if close:
        headers.append((b"connection", b"close"))
    return await send_bytes(send, status, headers, body)


async def send_whole(scope: Scope, send: Send, body: bytes) -> int:
    """JSON with 200, at once where the server can: two messages cost as much as reading one."""
    whole = scope.get(WHOLE)
    if whole is None or not whole(scope, body):
        headers = [_JSON, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
    return 200


async def send_result(send: Send, result: Result, call_id: str) -> int:
    """A result with 200, or its failure with the status of its code."""
    if result.error is None:
        body = b'{"success":true,' + _encode(result)[1:]
        headers = [_JSON, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return 200
    error = result.error
    status, body = problem(error, instance=f"/v1/calls/{call_id}", metadata=result.metadata)
    headers = [*headers_of(error), (CALL_ID, call_id.encode())]
    return await send_bytes(send, status, headers, body)


def result_bytes(result: Result) -> bytes:
    """As ``Result.to_dict`` has it."""
    success = b'{"success":true,' if result.error is None else b'{"success":false,'
    return success + _encode(result)[1:]


async def send_broken(send: Send, broken: Exception) -> int:
    """A fault of our own: told to the log, and no more than that to the client."""
    _log.error("a request failed", exc_info=broken)
    return await send_fault(send, InternalError("Internal error. See logs for details."))
