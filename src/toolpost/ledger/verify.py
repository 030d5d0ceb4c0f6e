"""Is the audit as it was written? The first record that is not is named, and what was done to it.

Above: ``toolpost audit verify``. Below: the lines of a journal or of an exported file, the anchors,
the keys. Per chain: every block says its own place; every link fits; every checkpoint's signature
holds; and the chain reaches as far as its anchor and the other chains say. In a block that does not
fit, checksums name the record; where they do not, the records of the block are named. It never
repairs anything.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from toolpost.contracts import Line
from toolpost.ledger.anchor import Anchor
from toolpost.ledger.block import Block, decode, link, sums_of
from toolpost.ledger.peers import heads_in
from toolpost.ledger.record import AuditRecord, sealed_text
from toolpost.seal import Verifier

_NOTHING: Final = (
    "there is a key and not one chain: all of them are gone with their anchors, if any had begun"
)
_REPLACED: Final = (
    "the key that signs the audit was replaced: records here are signed by {}, and the key of "
    "today is {}. If nobody ordered that, find out who removed the old one; if it is known, say so "
    "with: "
    "toolpost audit verify --accept-key"
)
Fault = Literal["edited", "deleted", "moved", "forged", "cut", "missing", "unreadable"]


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with a chain, at the first record where it is."""

    writer: str
    number: int
    fault: Fault
    what: str
    position: int = 0
    """Of the line it stands in."""
    last: int = 0
    """If it cannot be told which one it is: it is one up to this."""


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
    key: str = ""
    """The one of them that signs now, if that is known."""
    accepted: frozenset[str] = frozenset()
    """Those that signed before it, as a person knows."""
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
    async for line in lines:
        chain = chains.get(line.writer)
        if chain is None:
            chain = chains[line.writer] = _Reading(
                line.writer, trusted.get(line.writer), earlier.pop(line.writer, []), proof
            )
        chain.read(line)
    told = sorted({head for chain in chains.values() for head in chain.told})
    known = [(head.writer, head.number) for heads in earlier.values() for head in heads]
    if proof.whole:
        known += [(one.writer, one.number) for one in trusted.values()]
        known += [(one.writer, one.number) for one in told]
        if proof.keys and not proof.anchors and not chains:
            problems.append(Problem("", 0, "missing", _NOTHING))
    problems += [_gone(*one) for one in _furthest(known) if one[0] not in chains and one[1]]
    signers = {key for writer in trusted.keys() & chains for key in chains[writer].signers}
    if proof.key and (others := sorted(signers - proof.accepted - {proof.key})):
        what = _REPLACED.format(", ".join(others), proof.key)
        problems.append(Problem("", 0, "missing", what))
    for writer, chain in chains.items():
        chain.end([head for head in told if head.writer == writer])
        problems += chain.problems
    return Verified(
        records=sum(chain.count for chain in chains.values()),
        heads=tuple(chain.head() for chain in chains.values()),
        problems=tuple(sorted(problems, key=lambda p: (p.position or float("inf"), p.number))),
        unproven=tuple(text for chain in chains.values() for text in chain.unproven()),
    )


def _furthest(known: Iterable[tuple[str, int]]) -> Iterable[tuple[str, int]]:
    return dict(sorted(known)).items()  # of each writer the last, which is the highest


def _gone(writer: str, number: int) -> Problem:
    what = f"the whole chain is gone; it had at least {number} records"
    return Problem(writer, 1, "missing", what)


class _Told(NamedTuple):
    """How far one chain says that another had come."""

    writer: str
    number: int
    link: str


class _Place(msgspec.Struct, frozen=True):
    """Which records a line holds, and where it stands."""

    first: int = 0
    last: int = 0
    position: int = 0

    def named(self) -> str:
        return "it" if self.first == self.last else f"one of the records up to {self.last}"


class _Reading:
    """One chain, read from its first block to its last. After the first problem no other is
    looked for: everything behind it hangs in the air.
    """

    def __init__(
        self, writer: str, anchor: Anchor | None, earlier: list[Head], proof: Proof
    ) -> None:
        self.problems: list[Problem] = []
        self.count = 0
        self._writer, self._anchor, self._proof = writer, anchor, proof
        self._known = {head.number: head.link for head in earlier}
        if anchor is not None and anchor.number:
            self._known[anchor.number] = anchor.link
        self._first = self._signed = self._seal = 0
        self._before = self._here = _Place()
        self._doubt = False
        self._link = ""
        self._open: set[str] = set()
        self.signers: set[str] = set()
        self.told: set[_Told] = set()
        # where each block ended, and its link: another chain may know of it
        self._ends, self._links = array("Q"), bytearray()

    def read(self, line: Line) -> None:
        if self._proof.whole and self._anchor is not None and line.number < self._anchor.base:
            return  # retention was about to drop it
        block = decode(line.body)
        self.count += 1 if block is None else len(block.rows)
        if self.problems:
            return
        if block is None:
            self._unreadable(line)
        elif (block.writer, block.last) != (line.writer, line.number):
            self._misplaced(line, block)
        elif not self._first:
            self._first = block.first
            self._begin(line, block)
        else:
            self._follow(line, block)
        if block is None or self.problems:
            return
        self._before = self._here
        self._here = _Place(block.first, block.last, line.position)
        self._link = link(line.body)
        self._ends.append(block.last)
        self._links += bytes.fromhex(self._link)
        for record in block.events():
            self._event(line, block, record)
        self._witness(line)

    def end(self, told: Sequence[_Told]) -> None:
        """``told`` is what the other chains say of it, in order."""
        if self.problems:
            return
        reach = max((*self._known, *(head.number for head in told)), default=0)
        if self._doubt:  # nothing behind the broken link says which of the two was changed
            self._edited(self._here)
        elif self._proof.whole and reach > self._here.last:
            gone = f"the tail is cut: records {self._here.last + 1} to {reach} are gone"
            self._after(self._here.last + 1, "cut", gone)
        elif self._proof.whole and self._anchor is None and self.signers & self._proof.keys.keys():
            gone = "its anchor is gone: it cannot be said whether the tail is cut"
            self._after(self._here.last, "missing", gone)
        else:
            self._held_against(told)

    def _held_against(self, told: Sequence[_Told]) -> None:
        for head in told:
            place = bisect_left(self._ends, head.number)
            if self._first <= head.number <= self._here.last and not (
                self._ends[place] == head.number
                and self._links[place * 32 : place * 32 + 32].hex() == head.link
            ):
                what = f"another chain knew record {head.number} as something else"
                self._after(head.number, "forged", what)
                return

    def head(self) -> Head:
        return Head(
            writer=self._writer,
            records=self.count,
            first=self._first,
            number=self._here.last,
            link=self._link,
            signed=self._signed,
            open=len(self._open),
        )

    def unproven(self) -> Iterable[str]:
        if strange := sorted(self.signers - self._proof.keys.keys()):
            yield f"chain {self._writer} is signed by {', '.join(strange)}, not a key of this house"
        elif not self._proof.whole and self._here.last > max(self._signed, self._seal):
            yield f"chain {self._writer}: nothing signs the records after {self._signed}"

    def _begin(self, line: Line, block: Block) -> None:
        alone = block.alone()
        if block.first == 1:
            if block.prev:
                self._bad(line, "edited", "it is the first, and claims to follow another", number=1)
            return
        base = 1 if self._anchor is None else self._anchor.base
        archived = not self._proof.whole or self._anchor is None
        signed = alone is not None and alone.kind == "checkpoint"
        if not signed or not (archived or block.first == base):
            what = f"records {base} to {block.first - 1} are gone"
            self._bad(line, "deleted", what, number=base)

    def _follow(self, line: Line, block: Block) -> None:
        here = self._here.last
        if block.first > here + 1:
            gone = f"record {here + 1} is"
            if block.first > here + 2:
                gone = f"records {here + 1} to {block.first - 1} are"
            self._bad(line, "deleted", f"{gone} gone", number=here + 1)
        elif block.first <= here:
            self._bad(line, "moved", f"it stands after record {here}", number=block.first)
        elif self._doubt:
            # the block behind the doubtful pair vouches for the second: then it was the first
            self._edited(self._before if block.prev == self._link else self._here)
        elif (inside := _inside(block)) is not None:
            number, fault, what = inside
            self._bad(line, fault, what, number=number)
        elif block.prev != self._link:
            self._doubt = True

    def _event(self, line: Line, block: Block, record: AuditRecord) -> None:
        if record.kind == "intent":
            self._open.add(record.call_id)
        else:
            self._open.discard(record.call_id)
        if record.key:
            self.signers.add(record.key)
        if record.key in self._proof.keys and not self._doubt:
            self.told |= {_Told(one, *head) for one, head in heads_in(record).items()}
        if record.kind != "checkpoint" or self._doubt:
            return
        verifier = self._proof.keys.get(record.key)
        if verifier is None:
            return
        text = sealed_text("checkpoint", line.writer, record.number, block.prev)
        if block.first == block.last and verifier.check(text, record.signature):
            self._signed = max(self._signed, record.number - 1)  # itself it does not cover
            self._seal = record.number
        elif record.number == self._first:
            what = "the chain begins with a checkpoint that nobody signed"
            self._bad(line, "forged", what, number=record.number)
        else:
            self._unsigned(line)

    def _witness(self, line: Line) -> None:
        """What was known of this block outside the journal."""
        if self.problems:
            return
        if any(self._here.first <= number < line.number for number in self._known):
            self._unsigned(line)  # a block ended there
        known = self._known.get(line.number)
        if known is None or self.problems:
            return
        if self._doubt:  # the second of the doubtful pair is vouched for, or it is not
            self._edited(self._before if known == self._link else self._here)
        elif known == self._link:
            self._signed = line.number
        else:
            self._unsigned(line)

    def _unreadable(self, line: Line) -> None:
        number = self._here.last + 1
        what = "it is not a record any more"
        if not self._writer:
            what = "this is no line as `audit export --format journal` writes them"
        if line.number > number:
            what = f"what held the records {number} to {line.number} is not a block any more"
        self._bad(line, "edited", what, number=number, last=line.number)

    def _misplaced(self, line: Line, block: Block) -> None:
        """Another block stands in its place, or it has more or fewer rows than it had."""
        here = self._here.last
        if block.writer == line.writer and block.first == here + 1 and block.sums:
            number, fault, what = _inside(block) or (block.first, "edited", "it was changed")
            self._bad(line, fault, what, number=number, last=line.number)
            return
        stands = f"in its place stands record {block.first} of {block.writer or 'nobody'}"
        number = here + 1 if self._first else line.number
        self._bad(line, "moved", stands, number=number, last=line.number)

    def _unsigned(self, line: Line) -> None:
        what = (
            f"it, or one up to record {line.number}, was rewritten with every link after it: what "
            f"was signed at record {line.number} is something else"
        )
        first = max(self._signed + 1, self._first)
        self._bad(line, "forged", what, number=first, last=line.number)

    def _edited(self, place: _Place) -> None:
        what = f"{place.named()} was changed after it was written: its link does not fit"
        last = 0 if place.first == place.last else place.last
        self.problems.append(
            Problem(self._writer, place.first, "edited", what, place.position, last)
        )

    def _after(self, number: int, fault: Fault, what: str) -> None:
        self.problems.append(Problem(self._writer, number, fault, what, self._here.position))

    def _bad(self, line: Line, fault: Fault, what: str, *, number: int, last: int = 0) -> None:
        last = 0 if last <= number else last
        self.problems.append(Problem(self._writer, number, fault, what, line.position, last))


def _inside(block: Block) -> tuple[int, Fault, str] | None:
    """Which of the rows of a block does not have the checksum that it was written with."""
    were, are = block.sums, sums_of(block)
    if were == are:
        return None
    place = next((i for i, (a, b) in enumerate(zip(were, are, strict=False)) if a != b), None)
    if place is None:  # all that are there are right
        place = min(len(were), len(are))
    number = block.first + place
    if len(were) > len(are) and were[place + len(were) - len(are) :] == are[place:]:
        return number, "deleted", "it is gone from its block"
    if len(were) < len(are):
        return number, "edited", "it stands in a block that had fewer records"
    if sorted(were) == sorted(are):
        return number, "moved", "it does not stand where it stood in its block"
    return number, "edited", "it was changed after it was written: its checksum does not fit"
