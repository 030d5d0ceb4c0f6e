"""What is kept and can be read; what cannot is left out everywhere, and named.

Above: ``desk.py`` and ``lasting.py``. Below: ``Records``.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec

from toolpost.contracts import Record, Records
from toolpost.errors import Conflict, ToolNotFound
from toolpost.wording import short

_log = logging.getLogger("toolpost.approvals")
T = TypeVar("T")


class Shelf:
    """``unreadable``: why, by handle."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.unreadable: dict[str, str] = {}

    async def entries(
        self, space: str, kind: type[T], prefix: str = ""
    ) -> AsyncIterator[tuple[str, Record, T]]:
        """What is kept and can be read."""
        after = ""
        while page := await self.records.scan(space, prefix=prefix, after=after, limit=200):
            for key, record in page:
                if (value := self.readable(key, record, kind)) is not None:
                    yield key, record, value
            after = page[-1][0]

    def readable(self, key: str, record: Record, kind: type[T]) -> T | None:
        """As ``read``, for those who look at many."""
        try:
            return msgspec.convert(record.value, kind)
        except msgspec.ValidationError as fault:
            handle = key.rpartition("/")[2]
            if handle not in self.unreadable:
                _log.error("%s cannot be read, and is left out: %s", handle, fault)
            self.unreadable[handle] = str(fault)
            return None


def read(handle: str, record: Record, kind: type[T]) -> T:
    try:
        return msgspec.convert(record.value, kind)
    except msgspec.ValidationError as fault:
        raise Conflict(f"{handle} cannot be read: {fault}. Ask anew, without a grant.") from None


def unknown(handle: str) -> ToolNotFound:
    return ToolNotFound(f"There is no approval {short(handle)!r}.", remedy="stop")


def several(beginning: str) -> ToolNotFound:
    return ToolNotFound(f"{short(beginning)!r} may be several: type more of it.", remedy="stop")
