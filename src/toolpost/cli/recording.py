"""Who sits at the command line, and what they decide there, on record.

Above: the commands that decide something, ``approvals`` and ``keys``. Below: the audit of the
config, over its store. What is decided goes on record as if a program had heard it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from toolpost.approvals import Channel
from toolpost.approvals.terminal import local_person
from toolpost.call import Caller
from toolpost.cli.terminal import err, safe
from toolpost.config import Config
from toolpost.ledger.record import AuditRecord
from toolpost.parts import audit_of
from toolpost.stores.lazy import LazyStore

Keep = Callable[[AuditRecord], Awaitable[bool]]


def me() -> Caller:
    return local_person()


def channel() -> Channel:
    return "terminal" if sys.stdin.isatty() else "api"


@asynccontextmanager
async def recording(config: Config, store: LazyStore) -> AsyncIterator[Keep | None]:
    """Takes down a decision; ``False``: it could not be, which has been said. ``None``: the config
    has no audit.
    """
    audit = audit_of(config, store)
    if audit is None:
        yield None
        return

    async def keep(record: AuditRecord) -> bool:
        kept = await audit.keep(record)
        if not kept:
            err(safe(f"warning: this is not on record: {audit.problem}"))
        return kept

    try:
        yield keep
    finally:
        await audit.close()
