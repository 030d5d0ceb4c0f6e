"""Takes records down as fast as they come, and writes them behind the caller's back — or, for who
has to know, says when they are on the disk.

Above: the audit's rings, which hand over what happened as it is; records are made of it here, in
the background. Below: a chain. What cannot be written is kept, up to a bound, and sent again; what
is beyond the bound is counted, and the count is a record too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from toolpost.contracts import Clock
from toolpost.ledger.record import AuditRecord
from toolpost.ledger.writing import Chain

_log = logging.getLogger("toolpost.audit")
BATCH: Final = 256
_RETRY: Final = 1.0
_HEAVY: Final = 65536
"""Bytes of arguments in a batch from which on another thread makes the records."""

Waiter = asyncio.Future[bool]
Entry = tuple[Any, ...]
"""A waiter or ``None``, how many bytes there are to look through, a function that makes a record,
and what it makes it of."""


class Scribe:
    """``problem`` says why nothing can be written right now.

    Who has no time to ``put`` appends to ``pending``, and calls ``press`` if that is filled to the
    ``brim``: to one while nothing is under way, then to a batch, then to the bound.
    """

    def __init__(
        self,
        opening: Callable[[], Awaitable[Chain]],
        clock: Clock,
        *,
        seconds: float,
        most: int,
        patience: float,
        tend: Callable[[Chain], Awaitable[object]] | None = None,
    ) -> None:
        self.pending: list[Entry] = []
        self.brim = 1
        self.problem: str | None = None
        self._opening, self._clock, self._tend = opening, clock, tend
        self._seconds, self._most, self._patience = seconds, most, patience
        self._chain: Chain | None = None
        self._lost = 0
        self._waiters: list[Waiter] = []
        self._wanted, self._room = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def press(self) -> None:
        """Something is there to be written: some time soon. If it is much, soon is now. Beyond the
        bound the caller waits for room; if nothing can be written, what it brought is only counted.
        """
        if self.brim == 1:
            self._soon()
            return
        self._now()
        if len(self.pending) < self._most:
            self.brim = self._most  # it is known now
            return
        if self.problem is not None:
            self.pending.pop()
            self._lost += 1
            return
        self._room.clear()
        await self._room.wait()

    def put(self, size: int, make: Callable[..., AuditRecord], *of: Any) -> None:
        """Hand a record over, for some time soon."""
        if len(self.pending) >= self._most and self.problem is not None:
            self._lost += 1
            return
        self.pending.append((None, size, make, *of))
        if self.brim == 1:
            self._soon()

    async def commit(self, size: int, make: Callable[..., AuditRecord], *of: Any) -> bool:
        """Hand a record over, and wait until it is on the disk. ``False``: it is not."""
        if len(self.pending) >= self._most and self.problem is not None:
            self._lost += 1
            self._now()
            await asyncio.sleep(0)  # so that whoever tries again and again lets it be written
            return False
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self.pending.append((waiter, size, make, *of))
        self._now()
        await asyncio.wait((waiter,), timeout=self._patience)
        return waiter.done() and waiter.result()

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
                if await self._drain():
                    await self._sign()
        except Exception as fault:  # noqa: BLE001 - the journal's fault; the house is closing
            self._fail(fault)
        if self._timer is not None:
            self._timer.cancel()
        left = len(self.pending) + (self._chain.waiting if self._chain else 0) + self._lost
        if left:
            _log.error("the audit closes with %d records that could not be written", left)
        if self._chain is not None:
            self._chain.release()
        self._chain, self.brim = None, 1

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

    async def _drain(self) -> bool:
        """Write everything there is; whether it could be written."""
        try:
            if self._chain is None and (self.pending or self._waiters):
                self._chain = await self._opening()
            while self._chain is not None and (self._chain.waiting or self.pending):
                await self._write(self._chain)
        except Exception as fault:  # noqa: BLE001 - a journal may fail in any way; it is tried again
            self._fail(fault)
            return False
        self._answer(True)
        self.brim = 1
        if self._tend is not None and self._chain is not None:
            await self._tended(self._chain, self._tend)
        return True

    async def _write(self, chain: Chain) -> None:
        if not chain.waiting:
            batch = self.pending[:BATCH]
            records = await _made(batch, self._clock)
            if self._lost:
                records.append(self._lost_record())
            chain.add(records)
            del self.pending[: len(batch)]
            self._waiters += [entry[0] for entry in batch if entry[0] is not None]
        await chain.write()
        self._answer(True)

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
        if not written or len(self.pending) < self._most // 2:
            self._room.set()

    def _fail(self, fault: Exception) -> None:
        if self.problem is None:
            _log.error("the audit cannot be written", exc_info=fault)
        self.problem = str(fault) or type(fault).__name__
        self._waiters += [entry[0] for entry in self.pending if entry[0] is not None]
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


async def _made(batch: Sequence[Entry], clock: Clock) -> list[AuditRecord]:
    def make() -> list[AuditRecord]:
        return [_one(entry, clock) for entry in batch]

    if sum(entry[1] for entry in batch) > _HEAVY:
        return await asyncio.to_thread(make)
    return make()


def _one(entry: Entry, clock: Clock) -> AuditRecord:
    try:
        record: AuditRecord = entry[2](*entry[3:])
        return record
    except Exception as fault:  # noqa: BLE001 - what cannot be told in full is told all the same
        _log.error("a record of the audit cannot be made in full", exc_info=fault)
        note = f"a call that cannot be told: {type(fault).__name__}"
        return AuditRecord(kind="lost", time=clock.time(), note=note)
