"""One record of the audit: what is known of a call, or of the chain itself.

Above: everything in this package. Below: nothing. How records are written down, many in a line, is
``block.py``'s to know.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

Kind = Literal["start", "call", "intent", "outcome", "decision", "checkpoint", "lost"]
"""``call`` tells of a whole call; ``intent`` and ``outcome`` of what was about to be done and of
what came of it; ``decision`` what a person said when they were asked for a yes, or took back, and
which API key they made or ended; ``lost`` how many records could not be kept while the disk was
full."""

OK: Final = "OK"
UNKNOWN: Final = "UNKNOWN"
"""The code of a call whose writer died before it could say what came of it."""
KEY_CREATED: Final = "KEY_CREATED"
KEY_REVOKED: Final = "KEY_REVOKED"
DECIDED: Final = ("APPROVED", "DENIED", "TAKEN_BACK", "REVOKED", KEY_CREATED, KEY_REVOKED)
"""The codes of decisions."""


class Who(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    user: str | None = None
    agent: str | None = None
    key: str | None = None
    """The name of the API key, whose id is in ``id``."""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``writer`` and ``number`` are its place: what it is given when it is written."""

    writer: str = ""
    number: int = 0
    """Counts the records of its writer from 1."""
    kind: Kind
    time: float = 0.0
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
    raw: list[str] = []
    """Which of the arguments are raw: kept from being sanitized."""
    grant: str | None = None
    dry_run: bool = False
    code: str = ""
    """``OK``, an error's code, or ``UNKNOWN``; of a decision, one of ``DECIDED``."""
    outcome: str = ""
    """What is known of the effects: none, unknown, done."""
    message: str = ""
    approver: str = ""
    """Who approved it, and on which channel."""
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


def sealed_text(what: str, *parts: object) -> bytes:
    """What a signature is made over: the purpose first, so that none serves for another."""
    return "\n".join(("toolpost audit 1", what, *map(str, parts))).encode()
