"""Taking up a chain: what dead writers left open is closed as unknown, what does not fit is left
alone for ``audit verify`` to tell of.

Above: the audit, when it starts. Below: the anchor files and the journal. The calls of a living
writer are its own: its anchor file is locked.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from toolpost.contracts import Clock, Journal, Line
from toolpost.ledger.anchor import Anchor, Slot, free_slots, new_slot, new_writer
from toolpost.ledger.block import Block, decode, link
from toolpost.ledger.peers import Heads, Peers, heads_in
from toolpost.ledger.record import UNKNOWN, AuditRecord
from toolpost.ledger.writing import CHECKPOINT_EVERY, Chain
from toolpost.seal import Seal, Verifier, new_seal, open_seal, verifiers

_log = logging.getLogger("toolpost.audit")
FOLDER: Final = "audit"
"""In the state folder: the key, the anchors, the archive."""
KEY: Final = "audit"
_PAGE: Final = 64
"""Lines that are read at once: each may hold a thousand records."""


def is_there(folder: Path) -> bool:
    """Whether a folder exists; one in a place that may not be looked into does not."""
    return os.path.exists(folder)  # noqa: PTH110 - Path.exists raises PermissionError


async def lines_of(
    journal: Journal, *, after: int = 0, writer: str | None = None
) -> AsyncIterator[Line]:
    """Every line from a position on, in the journal's order."""
    while page := await journal.read(after=after, limit=_PAGE, writer=writer):
        for line in page:
            yield line
        after = page[-1].position


async def open_chain(
    folder: Path | None,
    journal: Journal,
    clock: Clock,
    *,
    every: int = CHECKPOINT_EVERY,
    tend: Callable[[Chain], Awaitable[object]] | None = None,
) -> Chain:
    """A chain to write, begun or taken up again. Without a folder it is kept nowhere else.

    ``tend`` is called with every other chain that nobody writes, while it can be had.
    """
    if folder is None:
        anchor, seal = Anchor(writer=new_writer()), new_seal()
        chain = Chain(anchor, journal, slot=None, seal=seal, clock=clock, every=every)
    else:
        chain = await _taken(folder, journal, clock, every, tend)
    chain.begin()
    try:
        await chain.write()
    except BaseException:
        chain.release()
        raise
    return chain


async def _taken(
    folder: Path,
    journal: Journal,
    clock: Clock,
    every: int,
    tend: Callable[[Chain], Awaitable[object]] | None,
) -> Chain:
    taking = _Taking(journal, open_seal(folder, KEY), verifiers(folder, KEY), clock, every)
    mine: Chain | None = None
    try:
        for slot in free_slots(folder):
            chain = await taking.resumed(slot)
            if chain is not None and mine is None:
                mine = chain
                continue
            try:
                if chain is not None and tend is not None:
                    await tend(chain)
            finally:
                slot.release()
        return mine or taking.begun(new_slot(folder))
    except BaseException:
        if mine is not None:
            mine.release()
        raise


class _Taking(msgspec.Struct, frozen=True):
    """What is needed to take up chains."""

    journal: Journal
    seal: Seal
    keys: Mapping[str, Verifier]
    clock: Clock
    every: int

    def begun(self, slot: Slot) -> Chain:
        """A new chain: its anchor is there before its first record."""
        anchor = Anchor(writer=new_writer(), time=self.clock.time())
        slot.write(anchor.signed(self.seal))
        return self._chain(anchor, slot, {})

    async def resumed(self, slot: Slot) -> Chain | None:
        """The chain of a slot, with everything closed that a dead writer left open; ``None`` if
        it cannot be gone on with.
        """
        try:
            return await self._resumed(slot)
        except BaseException:
            slot.release()
            raise

    async def _resumed(self, slot: Slot) -> Chain | None:
        if slot.is_new:
            return self.begun(slot)
        anchor = slot.read()
        if anchor is None or not anchor.holds(self.keys):
            _left_alone(slot, "it is not as a key that is known here signed it")
            return None
        head = await self.journal.head(anchor.writer)
        found = await _left(self.journal, anchor, head)
        if found is None:
            _left_alone(slot, "the journal does not have what it says")
            return None
        chain = self._chain(_at(anchor, head), slot, found.told)
        if found.open:
            chain.add([_unknown(record, self.clock) for record in found.open.values()])
            await chain.write()
            _log.warning("%d calls of a writer that died are closed as unknown", len(found.open))
        return chain

    def _chain(self, anchor: Anchor, slot: Slot, told: Heads) -> Chain:
        return Chain(
            anchor,
            self.journal,
            slot=slot,
            seal=self.seal,
            clock=self.clock,
            every=self.every,
            peers=Peers(slot.path.parent, anchor.writer, keys=self.keys, told=told),
        )


def _left_alone(slot: Slot, why: str) -> None:
    _log.error(
        "the audit chain of %s is left as it is: %s. See: toolpost audit verify", slot.path, why
    )


def _at(anchor: Anchor, head: Line | None) -> Anchor:
    if head is None:
        return anchor
    return Anchor(
        writer=anchor.writer,
        number=head.number,
        link=link(head.body),
        base=anchor.base,
        since=anchor.since if not anchor.clean else head.position,
        time=anchor.time,
    )


class _Left(msgspec.Struct):
    """What a writer left behind."""

    open: dict[str, AuditRecord] = {}
    """The intents without an outcome."""
    told: Heads = {}
    """What it had said of the other chains."""

    def read(self, block: Block) -> None:
        for record in block.events():
            self.told = heads_in(record) or self.told
            if record.kind == "intent":
                self.open[record.call_id] = record
            else:
                self.open.pop(record.call_id, None)


async def _left(journal: Journal, anchor: Anchor, head: Line | None) -> _Left | None:
    """``None`` if the chain is not the one that was anchored."""
    if (0 if head is None else head.number) < anchor.number:
        return None
    left = _Left()
    if head is not None and head.number == anchor.number:
        if link(head.body) != anchor.link:
            return None
        if anchor.clean:
            if (block := decode(head.body)) is not None:  # what it said when it was closed
                left.read(block)
            return left
    before = ""
    async for line in lines_of(journal, after=anchor.since, writer=anchor.writer):
        block = decode(line.body)
        if block is None or (before and block.prev != before):
            return None
        before = link(line.body)
        if line.number == anchor.number and before != anchor.link:
            return None
        left.read(block)
    return left


def _unknown(intent: AuditRecord, clock: Clock) -> AuditRecord:
    return AuditRecord(
        kind="outcome",
        time=clock.time(),
        call_id=intent.call_id,
        tool=intent.tool,
        code=UNKNOWN,
        outcome="none" if intent.effects == "read" else "unknown",
        message="The process that ran this call died before it could say what came of it.",
    )
