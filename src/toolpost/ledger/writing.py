"""A chain as its one writer holds it: records get their place in blocks, go to the journal, and the
anchor follows.

Above: the audit. Below: the journal, the anchor file, the seal. It refuses to know what a call is:
it counts what was begun and what was ended by the names it is given. The number of a line in the
journal is that of the last record in it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Any, Final

from toolpost.contracts import Clock, Journal, Line
from toolpost.ledger.anchor import Anchor, Slot
from toolpost.ledger.block import Packed, Place, Told, link, pack
from toolpost.ledger.peers import Peers
from toolpost.ledger.record import AuditRecord, sealed_text
from toolpost.seal import Seal

_log = logging.getLogger("toolpost.audit")
CHECKPOINT_EVERY: Final = 1000
_MOST_ROWS: Final = 1024
_MARK_EVERY: Final = 16
"""Checkpoints between two marks: as much may have to be read after a crash."""


class Chain:
    """``anchor`` is how far it has come, as the anchor file says it too."""

    def __init__(
        self,
        anchor: Anchor,
        journal: Journal,
        *,
        slot: Slot | None,
        seal: Seal,
        clock: Clock,
        every: int = CHECKPOINT_EVERY,
        peers: Peers | None = None,
    ) -> None:
        self.anchor, self.slot, self.peers = anchor, slot, peers
        self.number, self.link = anchor.number, anchor.link
        self._sent = anchor.number
        self.open: dict[str, int] = {}
        """Calls that were begun and not ended → the number of their intent."""
        self._journal, self._seal, self._clock = journal, seal, clock
        self._every, self._since_checkpoint = every, 0
        self._unsent: list[Line] = []
        self._marks: deque[tuple[int, int]] = deque([(anchor.number, anchor.since)])
        self._deaf = False

    @property
    def waiting(self) -> int:
        """How many records have their place and are not in the journal yet."""
        return self.number - self._sent

    @property
    def room(self) -> int:
        """How many records fit into the next block."""
        return max(1, min(self._every - self._since_checkpoint, _MOST_ROWS))

    def begin(self) -> None:
        """Say who goes on with it, and which key signs from here on."""
        note = f"process {os.getpid()} on {socket.gethostname()}"
        self.add(
            [
                AuditRecord(
                    kind="start",
                    time=self._clock.time(),
                    note=note,
                    key=self._seal.key,
                    details=self._beside(),
                )
            ]
        )

    def add(self, told: Sequence[Told]) -> None:
        """Give records their place; ``write`` brings them to the journal."""
        while told:
            some = told[: self.room]
            self.take(pack(some, self.place()))
            told = told[len(some) :]

    def place(self) -> Place:
        """Where the next block will stand, if ``take`` is told of it before any other."""
        clock = self._clock.time() - monotonic()  # by which a call knows when it set out
        return Place(self.anchor.writer, self.number + 1, self.link, clock)

    def take(self, packed: Packed) -> None:
        """The same as ``add`` for what has been packed already, if there is room for it."""
        self._take(packed)
        if self._since_checkpoint >= self._every:
            self.checkpoint()

    def checkpoint(self, note: str = "") -> None:
        """A signature over everything up to here."""
        text = sealed_text("checkpoint", self.anchor.writer, self.number + 1, self.link)
        signed = AuditRecord(
            kind="checkpoint",
            time=self._clock.time(),
            note=note,
            key=self._seal.key,
            signature=self._seal.sign(text),
            details=self._beside(),
        )
        self._take(pack([signed], self.place()))
        self._since_checkpoint = 0

    async def write(self, *, clean: bool = False) -> None:
        """Returns when everything is on the disk. What failed is sent again, the very same lines:
        a journal takes no line twice.
        """
        lines = list(self._unsent)
        if lines:
            await self._journal.append(lines)
            del self._unsent[: len(lines)]
            self._sent = lines[-1].number
            await self._mark(lines)
            last = self.link if self._sent == self.number else link(lines[-1].body)
            self._moved(number=self._sent, link=last, clean=clean)

    def keep_from(self, number: int) -> None:
        """What is before this number is about to be dropped."""
        self._moved(base=number)

    def release(self) -> None:
        if self.slot is not None:
            self.slot.release()

    def _beside(self) -> dict[str, Any] | None:
        return None if self.peers is None else self.peers.details()

    def _take(self, packed: Packed) -> None:
        first = self.number + 1
        self.number, self.link = self.number + packed.number, packed.link
        self._unsent.append(Line(self.anchor.writer, self.number, packed.body))
        self._since_checkpoint += packed.number
        for place, record in packed.events:
            if record.kind == "intent":
                self.open[record.call_id] = first + place
            elif record.kind in ("outcome", "call"):
                self.open.pop(record.call_id, None)

    async def _mark(self, lines: list[Line]) -> None:
        """Now and then, remember where in the journal the chain stands: who takes it up after a
        crash looks for open calls from the last mark before the oldest of them.
        """
        if lines[-1].number - self._marks[-1][0] >= self._every * _MARK_EVERY:
            head = await self._journal.head(self.anchor.writer)
            if head is not None:
                self._marks.append((head.number, head.position))
        oldest = min(self.open.values(), default=self.number + 1)
        while len(self._marks) > 1 and self._marks[1][0] < oldest:
            self._marks.popleft()

    def _moved(
        self,
        *,
        number: int | None = None,
        link: str | None = None,
        base: int | None = None,
        clean: bool = False,
    ) -> None:
        old = self.anchor
        self.anchor = Anchor(
            writer=old.writer,
            number=old.number if number is None else number,
            link=old.link if link is None else link,
            base=old.base if base is None else base,
            since=self._marks[0][1],
            clean=clean,
            time=self._clock.time(),
        )
        if self.slot is None:
            return
        try:
            self.slot.write(self.anchor.signed(self._seal))
            self._deaf = False
        except OSError as fault:  # the record itself is safe: only a cut tail would go unseen
            if not self._deaf:
                _log.error("the audit's anchor %s cannot be written: %s", self.slot.path, fault)
            self._deaf = True
