"""A store that forgets: for tests, and for programs that keep nothing.

What has ended is removed as new records come, and of the journal the last lines are kept, as many
as fit, so that a program that runs for months does not grow.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from toolpost.clock import SystemClock
from toolpost.contracts import Clock, Line, Record
from toolpost.options import Options, options_from
from toolpost.stores.kept import checked, encoded, lifetime, lined, ranged, unwritten

_Ending = tuple[float, int, str, str]
"""When it ends, the version that does, its space and key."""
_SWEEP_MOST: Final = 8
_CROWD: Final = 1024
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Of the journal: some lines hold a thousand records."""


class MemoryOptions(Options, frozen=True, kw_only=True):
    """What ``[store]`` may say with ``kind = "memory"``."""

    lines: int = 100_000


class _Kept(msgspec.Struct, frozen=True):
    body: bytes
    version: int
    ends: float | None

    @property
    def record(self) -> Record:
        # read anew each time, as from a disk: what somebody does to a value is not stored
        return Record(msgspec.json.decode(self.body), self.version)


class MemoryStore:
    """Records and a journal in this process; of the journal at least the last ``lines``, or those
    that have ``size`` bytes if that is less.
    """

    options = MemoryOptions
    volatile = True  # nothing of it can be held against what was signed elsewhere

    def __init__(
        self, *, clock: Clock | None = None, lines: int = 100_000, size: int = _MOST_BYTES
    ) -> None:
        self._clock = clock or SystemClock()
        self._most, self._most_bytes = lines, size
        self._records: dict[str, dict[str, _Kept]] = {}
        self._versions = count(1)
        self._ending: list[_Ending] = []
        self._crowded = _CROWD
        self._lines: list[Line] = []
        self._bytes = 0
        self._positions = count(1)
        self._numbers: dict[tuple[str, int], bytes] = {}
        self._heads: dict[str, Line] = {}

    @classmethod
    def from_config(cls, options: Mapping[str, Any], state: Path) -> Self:
        return cls(lines=options_from(options, MemoryOptions, "store memory").lines)

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def get(self, space: str, key: str) -> Record | None:
        checked(space, key)
        kept = self._living(space, key)
        return None if kept is None else kept.record

    async def put(
        self,
        space: str,
        key: str,
        value: Any,
        *,
        version: int | None = None,
        ttl: float | None = None,
    ) -> int | None:
        checked(space, key)
        body, ttl = encoded(value), lifetime(ttl)
        kept = self._living(space, key)
        known = 0 if kept is None else kept.version
        if version is not None and version != known:
            return None
        self._sweep()
        if value is None:
            self._drop(space, key)
            return known + 1
        new = next(self._versions)  # never one twice: a successor is not what it succeeds
        ends = None if ttl is None else self._clock.time() + ttl
        self._records.setdefault(space, {})[key] = _Kept(body, new, ends)
        if ends is not None:
            self._note_end(ends, new, space, key)
        return new

    async def scan(
        self, space: str, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[tuple[str, Record]]:
        ranged(space, prefix, after)
        found: list[tuple[str, Record]] = []
        for key in sorted(self._records.get(space, {})):
            if len(found) >= limit:
                break
            if key.startswith(prefix) and key > after and (kept := self._living(space, key)):
                found.append((key, kept.record))
        return found

    async def append(self, lines: Sequence[Line]) -> None:
        for line in unwritten(lined(lines), self._numbers):
            placed = msgspec.structs.replace(line, position=next(self._positions))
            self._lines.append(placed)
            self._bytes += len(line.body)
            self._numbers[line.writer, line.number] = line.body
            head = self._heads.get(line.writer)
            if head is None or head.number < line.number:
                self._heads[line.writer] = placed
        # now and then many, so that each costs little
        if len(self._lines) > 2 * self._most:
            self._forget(self._lines[: -self._most or None])
        if self._bytes > 2 * self._most_bytes:
            self._forget(self._oldest(self._bytes - self._most_bytes))

    async def read(
        self, *, after: int = 0, limit: int = 1000, writer: str | None = None
    ) -> Sequence[Line]:
        found: list[Line] = []
        start = bisect_right(self._lines, after, key=lambda line: line.position)
        for index in range(start, len(self._lines)):
            if len(found) >= limit:
                break
            if writer in (None, self._lines[index].writer):
                found.append(self._lines[index])
        return found

    async def head(self, writer: str) -> Line | None:
        return self._heads.get(writer)

    async def prune(self, writer: str, *, before: int) -> None:
        self._forget([x for x in self._lines if x.writer == writer and x.number < before])
        head = self._heads.get(writer)
        if head is not None and head.number < before:
            del self._heads[writer]

    def _living(self, space: str, key: str) -> _Kept | None:
        kept = self._records.get(space, {}).get(key)
        if kept is None or (kept.ends is not None and kept.ends <= self._clock.time()):
            return None
        return kept

    def _drop(self, space: str, key: str) -> None:
        records = self._records.get(space, {})
        records.pop(key, None)
        if not records:
            self._records.pop(space, None)

    def _note_end(self, ends: float, version: int, space: str, key: str) -> None:
        heapq.heappush(self._ending, (ends, version, space, key))
        if len(self._ending) > self._crowded:  # records that are replaced leave their old ends
            self._ending = [entry for entry in self._ending if not self._stale(entry)]
            heapq.heapify(self._ending)
            self._crowded = 2 * len(self._ending) + _CROWD

    def _sweep(self) -> None:
        """What ends first goes first; a few at a time, but more than are added."""
        now = self._clock.time()
        for _ in range(_SWEEP_MOST):
            if not self._ending:
                return
            stale = self._stale(self._ending[0])
            if not stale and self._ending[0][0] > now:
                return
            _, _, space, key = heapq.heappop(self._ending)
            if not stale:
                self._drop(space, key)

    def _stale(self, entry: _Ending) -> bool:
        _, version, space, key = entry
        kept = self._records.get(space, {}).get(key)
        return kept is None or kept.version != version

    def _oldest(self, size: int) -> Sequence[Line]:
        """The oldest lines that have so many bytes together; never the last one."""
        for place, line in enumerate(self._lines[:-1]):
            if size <= 0:
                return self._lines[:place]
            size -= len(line.body)
        return self._lines[:-1]

    def _forget(self, lines: Sequence[Line]) -> None:
        gone = {line.position for line in lines}
        self._lines = [line for line in self._lines if line.position not in gone]
        for line in lines:
            del self._numbers[line.writer, line.number]
            self._bytes -= len(line.body)
