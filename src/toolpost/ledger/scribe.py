"""Takes records down as fast as they come, and writes them behind the caller's back — or, for who
has to know, says when they are on the disk.

Above: the audit's rings, which hand over what happened as it is: a call in short as a row, anything
else as what a record is made of here, in the background. Below: a chain. What cannot be written is
kept, up to a bound, and sent again; what is beyond the bound is counted, and the count is a record
too. It refuses to know what must not be written: whoever makes it brings the function that says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final

import msgspec

from toolpost.contracts import Clock
from toolpost.errors import ToolpostError
from toolpost.ledger.block import Packed, Place, Short, Told, pack
from toolpost.ledger.record import AuditRecord
from toolpost.ledger.writing import Chain

_log = logging.getLogger("toolpost.audit")
BATCH: Final = 256
_RETRY: Final = 1.0
_HEAVY: Final = 131_072
"""Bytes of rows and arguments in a batch from which on another thread makes the block: of the hash,
which is the most of it, the calls then feel nothing."""
_SAMPLE: Final = 16
"""Of so many rows one is asked for its size."""
_LARGE: Final = 1024 * 1024
"""… and from which on the rest waits for the next block."""
_AT_ONCE: Final = 16_384
"""Records that are written in one go: the more wait, the less each costs."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""What may wait of arguments that are too long to be told in short."""

Waiter = asyncio.Future[bool]
Tidy = Callable[[Sequence[Short]], Sequence[Short]]
"""Takes out of rows what must not be written."""


class Untold(msgspec.Struct, frozen=True):
    """What a record will be made of. ``size``: how many bytes there are to look through."""

    make: Callable[..., AuditRecord]
    of: tuple[Any, ...]
    size: int = 0
    waiter: Waiter | None = None


Entry = Short | Untold


class Scribe:
    """``problem`` says why nothing can be written right now.

    Who has no time to ``put`` appends a row to ``pending``, and calls ``press`` if that is filled
    to the ``brim``: to one while nothing is under way, then to one batch after the other.
    """

    def __init__(
        self,
        opening: Callable[[], Awaitable[Chain]],
        clock: Clock,
        *,
        seconds: float,
        most: int,
        patience: float,
        tidy: Tidy,
        tend: Callable[[Chain], Awaitable[object]] | None = None,
    ) -> None:
        self.pending: list[Entry] = []
        self.brim = 1
        self.problem: str | None = None
        self._opening, self._clock, self._tidy, self._tend = opening, clock, tidy, tend
        self._seconds, self._most, self._patience = seconds, most, patience
        self._chain: Chain | None = None
        self._lost = self._bytes = 0
        self._waiters: list[Waiter] = []
        self._wanted, self._room = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._deadlines: deque[tuple[float, Waiter]] = deque()

    async def press(self) -> None:
        """Something is there to be written: some time soon. If it is much, soon is now, and whoever
        calls without a pause makes one. Beyond the bound the caller waits for room; if nothing can
        be written, what it brought is only counted.
        """
        if self.brim == 1:
            self._soon()
            return
        self._now()
        if not self._full():
            self.brim = min(len(self.pending) + BATCH, self._most)
            await asyncio.sleep(0)
        elif self.problem is not None:
            self._drop()
        else:
            self._room.clear()
            await self._room.wait()

    def put(self, make: Callable[..., AuditRecord], *of: Any, size: int = 0) -> None:
        """Hand a record over, for some time soon."""
        if self.problem is not None and self._full():
            self._lost += 1
            return
        self._bytes += size
        self.pending.append(Untold(make, of, size))
        if self.brim == 1:
            self._soon()
        if self._bytes >= _MOST_BYTES:
            self.brim = 2  # the next read waits for room

    async def commit(self, make: Callable[..., AuditRecord], *of: Any, size: int) -> bool:
        """Hand a record over, and wait until it is on the disk. ``False``: it is not."""
        if self.problem is not None and self._full():
            self._lost += 1
            self._now()
            await asyncio.sleep(0)  # so that whoever tries again and again lets it be written
            return False
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._bytes += size
        self.pending.append(Untold(make, of, size, waiter))
        self._now()
        self._deadlines.append((monotonic() + self._patience, waiter))
        if self._watchdog is None:
            self._watchdog = asyncio.get_running_loop().call_later(self._patience, self._expire)
        return await waiter

    async def open(self) -> None:
        """Begin the chain, and close what dead writers left open, before the first call."""
        self._now()
        if self._chain is None:
            waiter: Waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await asyncio.wait((waiter,), timeout=self._patience)

    async def close(self) -> None:
        """Write what there is, sign it, and let go of the chain."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        try:
            async with asyncio.timeout(self._patience):
                if await self._drain(whole=True):
                    await self._sign()
        except Exception as fault:  # noqa: BLE001 - the journal's fault; the house is closing
            self._fail(fault)
        for timer in (self._timer, self._watchdog):
            if timer is not None:
                timer.cancel()
        self._watchdog = None
        left = len(self.pending) + (self._chain.waiting if self._chain else 0) + self._lost
        if left:
            _log.error("the audit closes with %d records that could not be written", left)
        if self._chain is not None:
            self._chain.release()
        self._chain, self.brim = None, 1

    def _expire(self) -> None:
        """Tell those whose patience is over that nothing is on the disk. One timer serves all: a
        timer for each costs 8 µs a call.
        """
        now, self._watchdog = monotonic(), None
        while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][1].done()):
            _, waiter = self._deadlines.popleft()
            if not waiter.done():
                waiter.set_result(False)
        if self._deadlines:
            left = self._deadlines[0][0] - now
            self._watchdog = asyncio.get_running_loop().call_later(left, self._expire)

    def _full(self) -> bool:
        return len(self.pending) >= self._most or self._bytes >= _MOST_BYTES

    def _drop(self) -> None:
        last = self.pending.pop()
        self._bytes -= last.size if isinstance(last, Untold) else 0
        self._lost += 1

    def _soon(self) -> None:
        self.brim = BATCH
        self._later(self._seconds)

    def _now(self) -> None:
        self.brim = max(self.brim, BATCH)
        self._wanted.set()
        self._begin()

    def _later(self, seconds: float) -> None:
        self._begin()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._wanted.set)

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if not await self._drain():
                self._later(_RETRY)

    async def _drain(self, *, whole: bool = False) -> bool:
        """Write what there is; whether it could be written. The few that have come meanwhile wait
        for others, unless it is to be the ``whole``.
        """
        try:
            if self._chain is None and (self.pending or self._waiters):
                self._chain = await self._opening()
            due = True
            while self._chain is not None and (self._chain.waiting or (self.pending and due)):
                await self._write(self._chain)
                due = whole or len(self.pending) >= BATCH
        except Exception as fault:  # noqa: BLE001 - a journal may fail in any way; it is tried again
            self._fail(fault)
            return False
        self._answer(True)
        self.brim = 1
        if self.pending:
            self._soon()
        if self._tend is not None and self._chain is not None:
            await self._tended(self._chain, self._tend)
        return True

    async def _write(self, chain: Chain) -> None:
        if not chain.waiting:
            if chain.peers is not None and chain.peers.news():
                chain.checkpoint("another chain has begun")
            await self._gather(chain)
        await chain.write()
        self._answer(True)

    async def _gather(self, chain: Chain) -> None:
        while self.pending and chain.waiting < _AT_ONCE:
            batch = _share(self.pending, chain.room)
            untold = [entry for entry in batch if type(entry) is Untold]
            size = _size(batch) + sum(entry.size for entry in untold)
            work = partial(self._packed, batch, chain.place(), all_short=not untold)
            chain.take(work() if size <= _HEAVY else await asyncio.to_thread(work))
            del self.pending[: len(batch)]
            self._bytes -= sum(entry.size for entry in untold)
            self._waiters += [entry.waiter for entry in untold if entry.waiter is not None]
            if self.pending:
                await asyncio.sleep(0)  # calls go on between two blocks
        if self._lost:
            chain.add([self._lost_record()])

    def _packed(self, batch: Sequence[Any], place: Place, *, all_short: bool) -> Packed:
        if all_short:
            return pack(self._tidy(batch), place)
        tidied = iter(self._tidy([entry for entry in batch if type(entry) is tuple]))
        told: list[Told] = [
            _one(entry, self._clock) if isinstance(entry, Untold) else next(tidied)
            for entry in batch
        ]
        return pack(told, place)

    def _lost_record(self) -> AuditRecord:
        lost, self._lost = self._lost, 0
        note = f"{lost} records could not be kept while nothing could be written"
        return AuditRecord(kind="lost", time=self._clock.time(), note=note)

    def _answer(self, written: bool) -> None:
        if written and self.problem is not None:
            _log.warning("the audit can be written again")
            self.problem = None
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(written)
        while self._deadlines and self._deadlines[0][1].done():
            self._deadlines.popleft()
        if not written or len(self.pending) < self._most // 2:
            self._room.set()

    def _fail(self, fault: Exception) -> None:
        told = str(fault) or type(fault).__name__
        if isinstance(fault, TimeoutError):
            told = "the store did not answer in time, so the records cannot be written"
        if self.problem is None:
            trace = None if isinstance(fault, ToolpostError | OSError) else fault
            _log.error("the audit cannot be written: %s", told, exc_info=trace)
        self.problem = told
        untold = [entry for entry in self.pending if isinstance(entry, Untold)]
        self._waiters += [entry.waiter for entry in untold if entry.waiter is not None]
        self._answer(False)

    async def _sign(self) -> None:
        if self._chain is not None:
            self._chain.checkpoint("closed")
            await self._chain.write(clean=not self._chain.open)

    async def _tended(self, chain: Chain, tend: Callable[[Chain], Awaitable[object]]) -> None:
        try:
            await tend(chain)
        except Exception as fault:  # noqa: BLE001 - what is not tidied today is tidied tomorrow
            _log.error("old records of the audit cannot be dropped", exc_info=fault)


def _share(pending: Sequence[Entry], room: int) -> Sequence[Entry]:
    """As many of those that wait as make one block."""
    batch, size = pending[:room], 0
    if set(map(type, batch)) != {tuple}:
        for place, entry in enumerate(batch, 1):
            size += entry.size if isinstance(entry, Untold) else 0
            if size > _LARGE:
                return batch[:place]
    return batch


def _size(batch: Sequence[Entry]) -> int:
    """How many bytes of rows there are, about."""
    some = batch[::_SAMPLE]
    rows = sum(len(entry[1]) for entry in some if isinstance(entry, tuple))
    return rows * len(batch) // len(some)


def _one(entry: Untold, clock: Clock) -> AuditRecord:
    try:
        return entry.make(*entry.of)
    except Exception as fault:  # noqa: BLE001 - what cannot be told in full is told all the same
        _log.error("a record of the audit cannot be made in full", exc_info=fault)
        note = f"a call that cannot be told: {type(fault).__name__}"
        return AuditRecord(kind="lost", time=clock.time(), note=note)
