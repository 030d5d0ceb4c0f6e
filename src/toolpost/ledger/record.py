"""One record of the audit, and the link that ties it to the one before.

A record is a line of JSON. Its link is the SHA-256 of exactly those bytes, and the next record of
the same writer carries it: whoever changes, drops or moves one breaks the link after it.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal

import msgspec

Kind = Literal["start", "call", "intent", "outcome", "checkpoint", "lost"]
"""``call`` tells of a whole call; ``intent`` and ``outcome`` of what was about to be done and of
what came of it; ``lost`` how many records could not be kept while the disk was full."""

OK: Final = "OK"
UNKNOWN: Final = "UNKNOWN"
"""The code of a call whose writer died before it could say what came of it."""


class Who(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    user: str | None = None
    agent: str | None = None


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``writer``, ``number`` and ``prev`` are its place in the chain, given when it is written."""

    writer: str = ""
    number: int = 0
    prev: str = ""
    """The link of the record before."""
    kind: Kind
    time: float
    call_id: str = ""
    session: str | None = None
    caller: Who | None = None
    tool: str = ""
    spec: str = ""
    """The digest of the tool's spec."""
    tier: int | None = None
    effects: str = ""
    isolation: str = ""
    arguments: Any = None
    """As they were sent, redacted and cut."""
    arguments_digest: str = ""
    """Of the exact arguments, as ``digest.py`` makes it."""
    grant: str | None = None
    dry_run: bool = False
    code: str = ""
    """``OK``, an error's code, or ``UNKNOWN``."""
    outcome: str = ""
    """What is known of the effects: none, unknown, done."""
    message: str = ""
    trail: list[str] = []
    """Which rings ran and what each said: the decisions."""
    details: Any = None
    attempts: int = 1
    cached: bool = False
    duration_ms: float | None = None
    note: str = ""
    key: str = ""
    signature: str = ""
    """Of a checkpoint: over the writer, the number and the link before it."""


_decoder = msgspec.json.Decoder(AuditRecord)
encode = msgspec.json.Encoder().encode


def decode(body: bytes) -> AuditRecord | None:
    """The record, or ``None`` if this is not one."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def link(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def sealed_text(what: str, *parts: object) -> bytes:
    """What a signature is made over: the purpose first, so that none serves for another."""
    return "\n".join(("toolpost audit 1", what, *map(str, parts))).encode()
