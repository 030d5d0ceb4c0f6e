"""A store that forgets: for tests, and for programs that keep nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from toolpost.clock import SystemClock
from toolpost.contracts import Clock, Line, Record
from toolpost.options import Options, options_from


class MemoryStore:
    """Records and a journal in this process."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._records: dict[str, dict[str, tuple[Record, float | None]]] = {}
        self._lines: list[Line] = []
        self._heads: dict[str, Line] = {}

    @classmethod
    def from_config(cls, options: Mapping[str, Any], state: Path) -> Self:
        options_from(options, Options, "store memory")
        return cls()

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def get(self, space: str, key: str) -> Record | None:
        record, ends = self._records.get(space, {}).get(key, (None, None))
        return None if ends is not None and ends <= self._clock.time() else record

    async def put(
        self,
        space: str,
        key: str,
        value: Any,
        *,
        version: int | None = None,
        ttl: float | None = None,
    ) -> int | None:
        there = await self.get(space, key)
        known = 0 if there is None else there.version
        if version is not None and version != known:
            return None
        records = self._records.setdefault(space, {})
        if value is None:
            records.pop(key, None)
            return known + 1
        ends = None if ttl is None else self._clock.time() + ttl
        # a copy, as a store on disk would make: what the caller changes later is not stored
        records[key] = (Record(_copied(value), known + 1), ends)
        return known + 1

    async def scan(
        self, space: str, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[tuple[str, Record]]:
        found: list[tuple[str, Record]] = []
        for key in sorted(self._records.get(space, {})):
            if key.startswith(prefix) and key > after and len(found) < limit:
                record = await self.get(space, key)
                if record is not None:
                    found.append((key, record))
        return found

    async def append(self, lines: Sequence[Line]) -> None:
        for line in lines:
            placed = msgspec.structs.replace(line, position=len(self._lines) + 1)
            self._lines.append(placed)
            self._heads[line.writer] = placed

    async def read(
        self, *, after: int = 0, limit: int = 1000, writer: str | None = None
    ) -> Sequence[Line]:
        start = bisect_right(self._lines, after, key=lambda line: line.position)
        wanted = (line for line in self._lines[start:] if writer in (None, line.writer))
        return [line for line, _ in zip(wanted, range(limit), strict=False)]

    async def head(self, writer: str) -> Line | None:
        return self._heads.get(writer)


def _copied(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
