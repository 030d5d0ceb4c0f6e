"""Tickets: what a gateway vouches for when it puts a call on the bus.

A ticket is a JSON Web Token signed with Ed25519. It says who calls which tool, as it was when that
was allowed, with exactly these bytes, and where the answer is to go; it is good for one call and a
few seconds. Publishing on a subject is no way round the policy: a worker refuses a call without
one. A job that waits in a queue has a grant: a ticket that lasts for a day, for its place there and
nothing else. Above: the backend ``nats`` and the worker. Below: the seal.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Callable, Mapping
from itertools import count
from secrets import token_urlsafe
from time import monotonic, time
from types import MappingProxyType
from typing import Final

import msgspec

from toolpost.bus.meeting import Half, digest_of, name_of
from toolpost.call import Caller
from toolpost.document.strict import BROKEN, StrictDecoder
from toolpost.errors import QueueFull, Unauthorized, Unavailable
from toolpost.seal import Seal, Verifier

LIFE: Final = 15.0
"""Seconds. It has to arrive in them; the call itself may take longer."""
GRANT_LIFE: Final = 86_400.0
"""Seconds. So long a job may wait for a worker."""
SKEW: Final = 5.0
"""Seconds that two hosts' clocks may differ by."""
_ANOTHER: Final = "its ticket is for another call"
_NOT_SO: Final = "its ticket is not as it was written, or for another call"
_UNREADABLE: Final = "its ticket cannot be read"
NOT_MET: Final = "This worker has not met the gateway yet. Try again."
NOBODY: Final[Mapping[str, bytes]] = MappingProxyType({})
_INSIDE: Final = b',"ticket":'
_MET: Final = b',"met":"'
_END: Final = b'"}}'
MOST_INSIDE: Final = 65_536
"""Bytes of a body; for a larger one a signature is made sooner than a digest for each worker."""
MET: Final = b"met"
"""What a worker answers to a gateway that it shares a key with now."""
CHANGED: Final = "The tool has changed since this call was allowed. Try again."
_MOST_SEEN: Final = 200_000
_MOST_MET: Final = 1000
"""Gateways with which keys are shared."""
_ASK_AGAIN: Final = 1.0
_SIGNATURE: Final = 86
"""64 bytes, in the letters of base64."""
_LONGEST: Final = 16_384


class Ticket(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``jti``: the nonce, by which a call is also cancelled. ``body``: SHA-256 of the bytes."""

    caller: Caller
    tool: str
    spec: str
    body: str
    reply: str
    iat: float
    exp: float
    jti: str


class _Claims(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of a ticket between two who have met, what the worker cannot see for itself."""

    caller: Caller
    spec: str
    iat: float
    exp: float
    jti: str


class _Holding(msgspec.Struct, frozen=True):
    """A body with a ticket in it; the rest is for others to read."""

    ticket: _Claims


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = StrictDecoder[Ticket](Ticket, "ticket").decode
_decode_holding: Final = msgspec.json.Decoder(_Holding).decode
"""Of a body that a gateway vouches for; the worker reads all of it strictly afterwards."""


def new_nonce() -> str:
    """Nobody can guess the first of a process, and none comes twice."""
    return f"{_process}{next(_number):x}"


def _after_fork() -> None:
    global _process
    _process = token_urlsafe(16)


_process = token_urlsafe(16)
_number: Final = count()
os.register_at_fork(after_in_child=_after_fork)


def body_digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class Issuer:
    """Writes tickets."""

    def __init__(self, seal: Seal) -> None:
        self.half = Half()
        self.gateway = name_of(self.half.public)
        self._sign = seal.sign
        self._head = f"{_head(seal.key)}."

    def write(
        self, caller: Caller, *, tool: str, spec: str, body: bytes, reply: str, nonce: str,
        life: float = LIFE,
    ) -> str:  # fmt: skip
        now = time()
        ticket = Ticket(
            caller=caller,
            tool=tool,
            spec=spec,
            body=body_digest(body),
            reply=reply,
            iat=now,
            exp=now + life,
            jti=nonce,
        )
        signed = self._head + _text(_encode(ticket))
        return f"{signed}.{self._sign(signed.encode()).rstrip('=')}"

    def inside(
        self, body: bytes, caller: Caller, *, tool: str, spec: str, reply: str, nonce: str,
        met: Mapping[str, bytes],
    ) -> bytes:  # fmt: skip
        """The body, a JSON object, with a ticket as its last member: for these workers, by the keys
        that are shared with them, and without a signature.
        """
        now = time()
        claims = _encode(_Claims(caller, spec, now, now + LIFE, nonce))
        body = b"%b%b%b" % (body[:-1], _INSIDE, claims[:-1])
        digests = [f"{who}:{digest_of(key, tool, reply, body)}" for who, key in met.items()]
        return b"%b%b%b%b" % (body, _MET, f"{self.gateway}.{','.join(digests)}".encode(), _END)


class Inspector:
    """Reads tickets, each of them once. ``trusted`` tells whose are believed; it is asked again
    where a key is unknown, for gateways come and keys change, and now and then: keys are taken
    away, too.
    """

    def __init__(self, trusted: Callable[[], Mapping[str, Verifier]], *, worker: str = "") -> None:
        self.met: dict[str, bytes] = {}
        """The keys that are shared with gateways, by their names."""
        self._met_by: dict[str, str] = {}
        """The heads of the tickets that they have met us with."""
        self._mine = f"{worker}:"
        self._trusted, self._asked = trusted, 0.0
        self._heads: dict[str, Verifier] = {}
        self._seen: dict[str, float] = {}

    def read(self, text: str | None, *, tool: str, spec: str, body: bytes, reply: str) -> Ticket:
        """The ticket, if it is for this very call; else ``Unauthorized``."""
        ticket = _fitting(self.look(text, tool=tool, reply=reply), spec, body)
        self._once(ticket)
        return ticket

    def accept(self, looked: Ticket, *, spec: str, body: bytes) -> Ticket:
        """One that was looked at, and in time, when the body was still to be fetched."""
        ticket = _fitting(looked, spec, body)
        self._once(ticket, late=time())
        return ticket

    def read_inside(self, body: bytes, *, tool: str, spec: str, reply: str) -> tuple[Ticket, bytes]:
        """The ticket in a body, as ``read`` has one; and the body as it is vouched for. Nothing of
        it may be read before, nor anything else: behind that anybody may have written anything.
        """
        ticket, sure = self._inside(body, tool=tool, reply=reply)
        if ticket.spec != spec:
            raise _changed()
        self._once(ticket)
        return ticket, sure

    def meet(self, gateway: str, key: bytes, *, text: str) -> None:
        """Share a key with whom this ticket, which was read, is of; as long as that is trusted."""
        if len(self.met) >= _MOST_MET:
            oldest = next(iter(self.met))  # it is sent signatures by and by
            del self.met[oldest]
            self._met_by.pop(oldest, None)
        self.met[gateway], self._met_by[gateway] = key, text.partition(".")[0]

    def look_again(self) -> None:
        """Who is not trusted any more is not believed, by whatever it has vouched for a call."""
        if self._heads:  # else nobody is
            self._look_up()

    def grant(self, text: str | None, *, tool: str, spec: str, body: bytes, subject: str) -> Ticket:
        """The ticket of a job, if it is for this place in the queue. It may be read again, for a
        job is delivered again: that it runs once is seen to by its claim.
        """
        return _fitting(self.look(text, GRANT_LIFE, tool=tool, reply=subject), spec, body)

    def look(self, text: str | None, life: float = LIFE, *, tool: str, reply: str) -> Ticket:
        """What can be said of a signed one before the body is there. It may be looked at again."""
        ticket = self._believed(text)
        _in_time(ticket, life)
        if ticket.tool != tool or ticket.reply != reply:
            raise _refused(_ANOTHER)
        return ticket

    def _believed(self, text: str | None) -> Ticket:
        if not text:
            raise _refused("it has no ticket")
        head, _, rest = text.partition(".")
        said, _, signature = rest.partition(".")
        verifier = self._heads.get(head) or self._looked_up(head)
        if verifier is None:
            raise _refused("its ticket was signed by nobody who is trusted here")
        whole = len(text) <= _LONGEST and len(signature) == _SIGNATURE
        if not whole or not verifier.check(f"{head}.{said}".encode(), f"{signature}=="):
            raise _refused(_NOT_SO)
        return _read(said)

    def _inside(self, body: bytes, *, tool: str, reply: str) -> tuple[Ticket, bytes]:
        """Keys of the arguments may be called so, too; but then they are not the last."""
        place = body.rfind(_MET)
        said = body[place + len(_MET) : -len(_END)]
        if place < 0 or not body.endswith(_END) or len(said) > _LONGEST or not said.isascii():
            raise _refused("it has no ticket")
        gateway, _, digests = said.decode().partition(".")
        key = self.met.get(gateway)
        mine = [one for one in digests.split(",") if one.startswith(self._mine)]
        if key is None or not mine:
            raise Unavailable(NOT_MET, retryable=True, retry_after=1.0, effects="none")
        given, sure = mine[0][len(self._mine) :], body[:place] + b"}}"
        if not hmac.compare_digest(digest_of(key, tool, reply, body[:place]), given):
            raise _refused(_NOT_SO)
        try:
            told = _decode_holding(sure).ticket
        except BROKEN:
            raise _refused(_UNREADABLE) from None
        _in_time(told, LIFE)
        ticket = Ticket(
            caller=told.caller, tool=tool, spec=told.spec, body="", reply=reply,
            iat=told.iat, exp=told.exp, jti=told.jti,
        )  # fmt: skip
        return ticket, sure

    def _looked_up(self, head: str) -> Verifier | None:
        if monotonic() - self._asked > _ASK_AGAIN:
            self._look_up()
        return self._heads.get(head)

    def _look_up(self) -> None:
        self._asked = monotonic()
        self._heads = {
            _head(name): verifier
            for name, verifier in self._trusted().items()
            if verifier.algorithm == "ed25519"
        }
        self._met_by = {name: by for name, by in self._met_by.items() if by in self._heads}
        for name in self.met.keys() - self._met_by.keys():
            del self.met[name]

    def _once(self, ticket: Ticket, *, late: float = 0.0) -> None:
        if ticket.jti in self._seen:
            raise _refused("its ticket was used before")
        if len(self._seen) >= _MOST_SEEN:
            now = time()
            self._seen = {jti: ends for jti, ends in self._seen.items() if ends > now}
            if len(self._seen) >= _MOST_SEEN:  # who cannot remember them cannot refuse them
                raise QueueFull("Too many calls at once. Try again.", retry_after=1.0)
        self._seen[ticket.jti] = max(ticket.exp, late) + SKEW


def _in_time(ticket: Ticket | _Claims, life: float) -> None:
    now = time()
    if ticket.exp <= now - SKEW or ticket.iat > now + SKEW or ticket.exp > ticket.iat + life:
        raise _refused("its ticket is stale; do the clocks of both hosts agree?")


def _fitting(ticket: Ticket, spec: str, body: bytes) -> Ticket:
    """A signed one, if it is for this body, and for the tool as it is."""
    if ticket.body != body_digest(body):
        raise _refused(_ANOTHER)
    if ticket.spec != spec:
        raise _changed()
    return ticket


def _changed() -> Unavailable:
    return Unavailable(CHANGED, retryable=True, retry_after=1.0, effects="none")


def _read(said: str) -> Ticket:
    try:
        return _decode(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
    except ValueError:
        raise _refused(_UNREADABLE) from None


def _refused(why: str) -> Unauthorized:
    return Unauthorized(f"The worker refuses this call: {why}.", effects="none")


def _head(key: str) -> str:
    return _text(_encode({"alg": "EdDSA", "typ": "JWT", "kid": key}))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
