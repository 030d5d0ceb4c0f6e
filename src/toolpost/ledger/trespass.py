"""Somebody asked for what is kept for somebody else: the record of it, with both.

Above: whoever keeps things by caller (artifacts, jobs); the one who asked is told that there is no
such thing. Below: ``record.py``, and ``redact`` for names that hold a secret.
"""

from __future__ import annotations

import msgspec

from toolpost.call import Caller, new_call_id
from toolpost.ledger.record import AuditRecord, Who
from toolpost.redact import redact, redact_text


def who_of(caller: Caller) -> Who:
    """A caller as the audit names it."""
    names = (caller.user, caller.agent, caller.key)
    return Who(redact_text(caller.id), *(name and redact_text(name) for name in names))


def trespass(by: Caller, of: Caller, *, what: str, tool: str, at: float) -> AuditRecord:
    """``by`` asked for ``what``, which came of a call of ``tool`` by ``of``."""
    return AuditRecord(
        kind="call",
        time=at,
        call_id=new_call_id(),
        caller=who_of(by),
        tool=tool,
        code="NOT_FOUND",
        outcome="none",
        message=f"{what} is another caller's.",
        details={"handle": what, "of": redact(msgspec.to_builtins(of))},
    )
