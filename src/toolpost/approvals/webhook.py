"""Answers from outside: what goes to another system, and the signed answer that comes back.

Above: whoever sends and receives (a callback of the ring, a door). Below: HMAC-SHA256 over the
time and the very bytes. It refuses to know a network.

    send      body = outgoing(request, now=…); header = sign(body, secret=…, now=…)
    receive   await receive(approvals, body, header, secret=…)

A signature is good for five minutes; a repeated answer finds its request answered.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import msgspec

from toolpost.approvals.desk import Approvals
from toolpost.approvals.values import Decision, Request
from toolpost.call import Caller
from toolpost.document.strict import NotStrictJson, StrictDecoder
from toolpost.errors import InvalidArguments, Unauthorized

HEADER: Final = "Toolpost-Signature"
TOLERANCE: Final = 300.0
_SHORTEST: Final = 16
_LONGEST_BODY: Final = 1024 * 1024


class Answer(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What another system sends back. ``by`` is the person, as that system knows them."""

    handle: str
    seen: str
    decision: Decision
    by: str


_answer: Final = StrictDecoder[Answer](Answer, "answer")


def outgoing(request: Request, *, now: float) -> bytes:
    """The request as another system gets it: the arguments as people may see them."""
    return msgspec.json.encode(request.to_dict(now))


def sign(body: bytes, *, secret: str, now: float) -> str:
    """The value of the header."""
    at = str(int(now))
    return f"t={at},v1={_mac(body, secret, at)}"


def verify(body: bytes, signature: str, *, secret: str, now: float) -> None:
    """Raise ``Unauthorized`` unless these bytes were signed with the secret, just now."""
    fields = dict(part.partition("=")[::2] for part in signature.split(","))
    at, mac = fields.get("t", ""), fields.get("v1", "")
    good = hmac.compare_digest(_mac(body, secret, at).encode(), mac.encode())
    fresh = at.isascii() and at.isdigit() and len(at) < 16 and abs(now - int(at)) <= TOLERANCE
    if not (good and fresh):
        raise Unauthorized("The signature is wrong or too old.")


async def receive(approvals: Approvals, body: bytes, signature: str, *, secret: str) -> Request:
    """Do what a signed answer says."""
    if len(body) > _LONGEST_BODY:
        raise InvalidArguments("The answer is too large.")
    verify(body, signature, secret=secret, now=approvals.now())
    try:
        answer = _answer.decode(body)
    except NotStrictJson as fault:
        raise InvalidArguments(f"This is no answer. {fault}") from None
    by = Caller(f"webhook:{answer.by}", user=answer.by)
    return await approvals.decide(
        answer.handle, answer.decision, by=by, channel="webhook", seen=answer.seen
    )


def _mac(body: bytes, secret: str, at: str) -> str:
    if len(secret) < _SHORTEST:
        raise ValueError(f"a secret has at least {_SHORTEST} characters")
    key, data = secret.encode(), at.encode() + b"." + body
    return hmac.new(key, data, hashlib.sha256).hexdigest()
