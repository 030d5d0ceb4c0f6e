"""What a tool that only reads has said stays good for a while.

Above: the road. Below: nothing: it is kept in this process, bounded by number and by bytes, the
least recently used goes first. Only tools with ``cache`` in their spec, only successes of their own
(not of a fallback, which may do more than read), and only for the very same caller, spec,
arguments, folder and phase. Equal calls at the same time run once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Hashable, Mapping
from time import monotonic
from typing import Any, Final, Self

import msgspec

from toolpost.call import Call
from toolpost.clock import SystemClock
from toolpost.contracts import Clock, Ring, Road, Surroundings, Walk
from toolpost.deadline import timed_out
from toolpost.digest import canonical
from toolpost.extensions.retry import handed_over
from toolpost.options import Options, options_from
from toolpost.result import Part, Result
from toolpost.spec import ToolSpec


class CacheOptions(Options, frozen=True, kw_only=True):
    """The table ``[extensions.cache]``: at most so many results, and so many bytes of them."""

    entries: int = 1000
    bytes: int = 32 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.entries < 1 or self.bytes < 1:
            raise ValueError("entries and bytes are above 0")


DEFAULTS: Final = CacheOptions()


class _Kept(msgspec.Struct, frozen=True):
    """What is kept of a result: as bytes, so that nobody changes what the next one gets."""

    output: Any
    parts: tuple[Part, ...]
    warnings: list[str]


class _Entry(msgspec.Struct, frozen=True):
    data: bytes
    ends: float


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Kept).decode
_COST: Final = 500
"""Bytes that an entry takes beside its data, roughly."""


class Cache:
    """The guard that answers from memory."""

    name = "cache"
    options = CacheOptions

    def __init__(
        self,
        *,
        options: CacheOptions = DEFAULTS,
        clock: Clock | None = None,
    ) -> None:
        self._options, self._clock = options, clock or SystemClock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._running: dict[Hashable, asyncio.Future[_Entry | None]] = {}
        self.size = 0
        """Bytes that are kept."""

    def __len__(self) -> int:
        return len(self._entries)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        return cls(
            options=options_from(options, CacheOptions, "extension cache"), clock=around.clock
        )

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
        if spec.cache is None or spec.effects != "read":
            return None
        pinned, ttl = spec.digest, spec.cache.ttl

        def ring(call: Call, call_next: Walk) -> Awaitable[Result]:
            if call.dry_run:
                return call_next(call)
            try:
                arguments = canonical(call.arguments)
            except (TypeError, ValueError):  # not plain JSON: it has no key
                return call_next(call)
            key = (pinned, arguments, call.caller, call.working_dir, call.phase)
            return self._looked_up(call, call_next, key, ttl)

        return ring

    async def close(self) -> None:
        self._entries.clear()
        self.size = 0

    async def _looked_up(self, call: Call, call_next: Walk, key: Hashable, ttl: float) -> Result:
        entry = self._entries.get(key)
        if entry is not None and self._clock.monotonic() < entry.ends:
            self._entries.move_to_end(key)
            return _served(entry, call, "hit")
        if (running := self._running.get(key)) is not None:
            entry = await _awaited(running, call)
            return await call_next(call) if entry is None else _served(entry, call, "joined")
        mine = self._running[key] = asyncio.get_running_loop().create_future()
        entry, before = None, len(call.warnings)
        try:
            result = await call_next(call)
            if result.error is None and not handed_over(call):
                entry = self._kept(key, result, before, ttl)
            return result
        finally:
            del self._running[key]
            mine.set_result(entry)

    def _kept(self, key: Hashable, result: Result, before: int, ttl: float) -> _Entry | None:
        kept = _Kept(result.output, result.parts, [*result.metadata.warnings[before:]])
        try:
            data = _encode(kept)
            exact = _decode(data) == kept
        except (TypeError, ValueError, RecursionError):
            return None
        if not exact:  # more than JSON can say
            return None
        entry = _Entry(data, self._clock.monotonic() + ttl)
        self._drop(key)
        if _weight(key, entry) <= self._options.bytes:
            self._entries[key] = entry
            self.size += _weight(key, entry)
            while len(self._entries) > self._options.entries or self.size > self._options.bytes:
                self._drop(next(iter(self._entries)))
        return entry

    def _drop(self, key: Hashable) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self.size -= _weight(key, entry)


def _weight(key: Any, entry: _Entry) -> int:
    return len(entry.data) + len(key[1]) + _COST


async def _awaited(running: asyncio.Future[_Entry | None], call: Call) -> _Entry | None:
    """What the equal call before got; ``None`` if that is nothing to share."""
    left = None if call.deadline is None else call.deadline - monotonic()
    done, _ = await asyncio.wait((running,), timeout=left)
    if not done:
        raise timed_out(left or 0, effects="none")
    return running.result()


def _served(entry: _Entry, call: Call, said: str) -> Result:
    kept = _decode(entry.data)
    call.note(Cache.name, said)
    call.about.cached, call.about.size = True, len(entry.data)
    if kept.warnings:
        call.about.open_warnings().extend(kept.warnings)
    return Result(kept.output, kept.parts, None, call.about)
