"""A chain as its one writer holds it: records get their place, go to the journal, and the anchor
follows.

Above: the audit. Below: the journal, the anchor file, the seal. It refuses to know what a call is:
it counts what was begun and what was ended by the names it is given.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from toolpost.contracts import Clock, Journal, Line
from toolpost.ledger.anchor import Anchor, Slot
from toolpost.ledger.record import AuditRecord, encode, link, sealed_text
from toolpost.seal import Seal

_log = logging.getLogger("toolpost.audit")
CHECKPOINT_EVERY: Final = 1000


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
    ) -> None:
        self.anchor, self.slot = anchor, slot
        self.number, self.link = anchor.number, anchor.link
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
        return len(self._unsent)

    def begin(self) -> None:
        """Say who goes on with it, and which key signs from here on."""
        note = f"process {os.getpid()} on {socket.gethostname()}"
        self.add(
            [AuditRecord(kind="start", time=self._clock.time(), note=note, key=self._seal.key)]
        )

    def add(self, records: Iterable[AuditRecord]) -> None:
        """Give records their place; ``write`` brings them to the journal."""
        for record in records:
            self._place(record)
            if self._since_checkpoint >= self._every:
                self.checkpoint()

    def checkpoint(self, note: str = "") -> None:
        """A signature over everything up to here."""
        text = sealed_text("checkpoint", self.anchor.writer, self.number + 1, self.link)
        self._place(
            AuditRecord(
                kind="checkpoint",
                time=self._clock.time(),
                note=note,
                key=self._seal.key,
                signature=self._seal.sign(text),
            )
        )
        self._since_checkpoint = 0

    async def write(self, *, clean: bool = False) -> None:
        """Returns when everything is on the disk. What failed is sent again, the very same lines:
        a journal takes no line twice.
        """
        lines = list(self._unsent)
        if lines:
            await self._journal.append(lines)
            del self._unsent[: len(lines)]
            await self._mark(lines)
            self._moved(number=lines[-1].number, link=link(lines[-1].body), clean=clean)

    def keep_from(self, number: int) -> None:
        """What is before this number is about to be dropped."""
        self._moved(base=number)

    def release(self) -> None:
        if self.slot is not None:
            self.slot.release()

    def _place(self, record: AuditRecord) -> None:
        number = self.number + 1
        placed = msgspec.structs.replace(
            record, writer=self.anchor.writer, number=number, prev=self.link
        )
        body = _encoded(placed)
        self._unsent.append(Line(self.anchor.writer, number, body))
        self.number, self.link = number, link(body)
        self._since_checkpoint += 1
        if record.kind == "intent":
            self.open[record.call_id] = number
        elif record.kind in ("outcome", "call"):
            self.open.pop(record.call_id, None)

    async def _mark(self, lines: list[Line]) -> None:
        """Now and then, remember where in the journal the chain stands: who takes it up after a
        crash looks for open calls from the last mark before the oldest of them.
        """
        if lines[-1].number - self._marks[-1][0] >= self._every:
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


def _encoded(record: AuditRecord) -> bytes:
    """Whatever somebody put into a record, the chain goes on."""
    try:
        return encode(record)
    except (TypeError, ValueError, RecursionError) as fault:
        return encode(
            AuditRecord(
                writer=record.writer,
                number=record.number,
                prev=record.prev,
                kind=record.kind,
                time=record.time,
                call_id=record.call_id,
                code=record.code,
                note=f"the rest of it cannot be written: {type(fault).__name__}",
            )
        )
