"""Is the audit as it was written? The first record that is not is named, and what was done to it.

Above: ``toolpost audit verify``. Below: the lines of a journal or of an exported file, the anchors,
the keys. Per chain: every record says its own place; every link fits; every checkpoint's signature
holds; and the chain reaches as far as its anchor says. It never repairs anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Literal

import msgspec

from toolpost.contracts import Line
from toolpost.ledger.anchor import Anchor
from toolpost.ledger.record import AuditRecord, decode, link, sealed_text
from toolpost.seal import Verifier

Fault = Literal["edited", "deleted", "moved", "forged", "cut", "missing", "unreadable"]


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with a chain, at the first record where it is."""

    writer: str
    number: int
    fault: Fault
    what: str
    position: int = 0


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a chain is proved: kept elsewhere, it is an anchor nobody here can move."""

    writer: str
    records: int
    first: int
    number: int
    link: str
    signed: int = 0
    """The number up to which a signature covers it."""
    open: int = 0
    """Calls that were begun and not ended."""


class Verified(msgspec.Struct, frozen=True):
    """``problems`` in the order of the journal; ``unproven`` is what cannot be checked here."""

    records: int
    heads: tuple[Head, ...]
    problems: tuple[Problem, ...]
    unproven: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What a journal is held against."""

    keys: Mapping[str, Verifier] = {}
    anchors: Mapping[str, Anchor | None] = {}
    """By file; ``None``: the file cannot be read."""
    earlier: Iterable[Head] = ()
    """What an earlier verification found."""
    whole: bool = True
    """Everything is here; an exported file may hold some chains, or the beginning of one."""


async def verify(lines: AsyncIterable[Line], proof: Proof) -> Verified:
    """Read everything once, in the journal's order."""
    chains: dict[str, _Reading] = {}
    problems: list[Problem] = []
    trusted: dict[str, Anchor] = {}
    for file, anchor in proof.anchors.items():
        if anchor is None or not anchor.holds(proof.keys):
            writer = "" if anchor is None else anchor.writer
            problems.append(Problem(writer, 0, "forged", f"the anchor {file} is not as signed"))
        else:
            trusted[anchor.writer] = anchor
    earlier: dict[str, list[Head]] = {}
    for head in proof.earlier:
        earlier.setdefault(head.writer, []).append(head)
    records = 0
    async for line in lines:
        records += 1
        chain = chains.get(line.writer)
        if chain is None:
            chain = chains[line.writer] = _Reading(
                line.writer, trusted.get(line.writer), earlier.pop(line.writer, []), proof
            )
        chain.read(line)
    missing = trusted.keys() - chains.keys() if proof.whole else ()
    problems += [_gone(one, trusted[one].number) for one in missing if trusted[one].number]
    problems += [_gone(head.writer, head.number) for heads in earlier.values() for head in heads]
    for chain in chains.values():
        chain.end()
        problems += chain.problems
    return Verified(
        records=records,
        heads=tuple(chain.head() for chain in chains.values()),
        problems=tuple(sorted(problems, key=lambda p: (p.position or float("inf"), p.number))),
        unproven=tuple(text for chain in chains.values() for text in chain.unproven()),
    )


def _gone(writer: str, number: int) -> Problem:
    return Problem(writer, 1, "missing", f"the whole chain is gone; it had {number} records")


class _Reading:
    """One chain, read from its first record to its last. After the first problem no other is
    looked for: everything behind it hangs in the air.
    """

    def __init__(
        self, writer: str, anchor: Anchor | None, earlier: list[Head], proof: Proof
    ) -> None:
        self.problems: list[Problem] = []
        self._writer, self._anchor, self._proof = writer, anchor, proof
        self._known = {head.number: head.link for head in earlier}
        if anchor is not None and anchor.number:
            self._known[anchor.number] = anchor.link
        self._count = self._first = self._number = self._signed = 0
        self._position = self._before = self._doubt = 0
        self._link = ""
        self._open: set[str] = set()
        self._keys: set[str] = set()

    def read(self, line: Line) -> None:
        if self._proof.whole and self._anchor is not None and line.number < self._anchor.base:
            return  # retention was about to drop it
        self._count += 1
        if self.problems:
            return
        record = decode(line.body)
        if record is None:
            self._bad(line, "edited", "it is not a record any more")
        elif (record.writer, record.number) != (line.writer, line.number):
            owner = record.writer or "nobody"
            self._bad(line, "moved", f"in its place stands record {record.number} of {owner}")
        elif not self._first:
            self._first = line.number
            self._begin(line, record)
        else:
            self._follow(line, record)
        if record is None or self.problems:
            return
        self._before, self._position = self._position, line.position
        self._number, self._link = line.number, link(line.body)
        self._signature(line, record)
        self._witness(line)
        self._count_open(record)

    def end(self) -> None:
        if self.problems:
            return
        reach = max(self._known, default=0)
        if self._doubt:  # nothing behind the broken link says which of the two was changed
            self._edited(self._doubt)
        elif self._proof.whole and reach > self._number:
            gone = f"the tail is cut: records {self._number + 1} to {reach} are gone"
            self._after(self._number + 1, "cut", gone)
        elif self._proof.whole and self._anchor is None and self._keys & self._proof.keys.keys():
            gone = "its anchor is gone: it cannot be said whether the tail is cut"
            self._after(self._number, "missing", gone)

    def head(self) -> Head:
        return Head(
            writer=self._writer,
            records=self._count,
            first=self._first,
            number=self._number,
            link=self._link,
            signed=self._signed,
            open=len(self._open),
        )

    def unproven(self) -> Iterable[str]:
        if strange := sorted(self._keys - self._proof.keys.keys()):
            yield f"chain {self._writer} is signed by {', '.join(strange)}, not a key of this house"
        elif not self._proof.whole and self._number > self._signed:
            yield f"chain {self._writer}: nothing signs the records after {self._signed}"

    def _begin(self, line: Line, record: AuditRecord) -> None:
        if line.number == 1:
            if record.prev:
                self._bad(line, "edited", "it is the first, and claims to follow another")
            return
        base = 1 if self._anchor is None else self._anchor.base
        archived = not self._proof.whole or self._anchor is None
        if record.kind != "checkpoint" or not (archived or line.number == base):
            what = f"records {base} to {line.number - 1} are gone"
            self._bad(line, "deleted", what, number=base)

    def _follow(self, line: Line, record: AuditRecord) -> None:
        if line.number > self._number + 1:
            gone = f"record {self._number + 1} is"
            if line.number > self._number + 2:
                gone = f"records {self._number + 1} to {line.number - 1} are"
            self._bad(line, "deleted", f"{gone} gone", number=self._number + 1)
        elif line.number <= self._number:
            self._bad(line, "moved", f"it stands after record {self._number}")
        elif self._doubt:
            # the record behind the doubtful pair vouches for the second: then it was the first
            self._edited(self._doubt - 1 if record.prev == self._link else self._doubt)
        elif record.prev != self._link:
            self._doubt = line.number

    def _signature(self, line: Line, record: AuditRecord) -> None:
        if record.key:
            self._keys.add(record.key)
        if record.kind != "checkpoint" or self._doubt:
            return
        verifier = self._proof.keys.get(record.key)
        if verifier is None:
            return
        text = sealed_text("checkpoint", line.writer, line.number, record.prev)
        if verifier.check(text, record.signature):
            self._signed = max(self._signed, line.number - 1)  # itself it does not cover
        elif line.number == self._first:
            self._bad(line, "forged", "the chain begins with a checkpoint that nobody signed")
        else:
            self._unsigned(line)

    def _witness(self, line: Line) -> None:
        """What was known of this record outside the journal."""
        known = self._known.get(line.number)
        if known is None or self.problems:
            return
        if self._doubt:  # the second of the doubtful pair is vouched for, or it is not
            self._edited(self._doubt - 1 if known == self._link else self._doubt)
        elif known == self._link:
            self._signed = line.number
        else:
            self._unsigned(line)

    def _count_open(self, record: AuditRecord) -> None:
        if record.kind == "intent":
            self._open.add(record.call_id)
        else:
            self._open.discard(record.call_id)

    def _unsigned(self, line: Line) -> None:
        first = self._signed + 1
        what = (
            f"it, or one up to record {line.number}, was rewritten with every link after it: what "
            f"was signed at record {line.number} is something else"
        )
        self._bad(line, "forged", what, number=max(first, self._first))

    def _edited(self, number: int) -> None:
        what = "it was changed after it was written: its link does not fit"
        position = self._position if number == self._number else self._before
        self.problems.append(Problem(self._writer, number, "edited", what, position))

    def _after(self, number: int, fault: Fault, what: str) -> None:
        self.problems.append(Problem(self._writer, number, fault, what, self._position))

    def _bad(self, line: Line, fault: Fault, what: str, *, number: int | None = None) -> None:
        found = line.number if number is None else number
        self.problems.append(Problem(self._writer, found, fault, what, line.position))
