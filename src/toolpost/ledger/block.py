"""A block: a line of the journal that holds one record or many, and the link to the line before.

Above: who writes a chain, and who reads one. Below: ``record.py``, and a hash. A block's link is
the SHA-256 of exactly its bytes, and the next block of the same writer carries it: whoever changes,
drops or moves one breaks the link after it. What many records have in common stands in a block
once, as a ``Shape``; what is left of such a record is a row of five. Each row has a checksum, by
which the one that was changed is told from its neighbours; the proof is the link.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Self
from zlib import adler32

import msgspec

from toolpost.digest import digest
from toolpost.ledger.record import AuditRecord

_numbers: Final = count(1)


class Shape(msgspec.Struct, array_like=True, eq=False, dict=True):
    """What is the same in many records. In a row stands its number only."""

    number: int
    if TYPE_CHECKING:  # an attribute beside the fields: it is not written with every row
        said: msgspec.Raw = msgspec.Raw()

    @classmethod
    def of(cls, record: AuditRecord) -> Self:
        made = cls(next(_numbers))
        made.said = msgspec.Raw(_encode(record))
        return made


Row = tuple[Any, ...]
"""A whole call in short: its shape, its id, when it began and ended by the monotonic clock, the
JSON of its arguments; and their digest if that is not all of them."""
Told = Row | AuditRecord


class _Row(msgspec.Struct, frozen=True, array_like=True):
    shape: tuple[int]
    call_id: str
    began: float
    ended: float
    arguments: msgspec.Raw
    digest: str | None = None


class Block(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The records ``first`` to ``last`` of a writer."""

    writer: str
    first: int
    prev: str = ""
    """The link of the block before."""
    clock: float = 0.0
    """The time at which the monotonic clock of the rows stood at 0."""
    shapes: dict[int, AuditRecord] = {}
    sums: list[int] = []
    """A checksum for each of several rows."""
    rows: list[msgspec.Raw]

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1

    def records(self) -> Iterator[AuditRecord]:
        """What it tells, each in its place."""
        for number, row in enumerate(self.rows, self.first):
            if (record := self._record(number, row)) is not None:
                yield record

    def alone(self) -> AuditRecord | None:
        """Its record, if it has only one."""
        return self._record(self.first, self.rows[0]) if len(self.rows) == 1 else None

    def events(self) -> Iterator[AuditRecord]:
        """The records that begin or end something: those that are not told in short."""
        for number, row in enumerate(self.rows, self.first):
            if not _is_short(row) and (record := self._record(number, row)) is not None:
                yield record

    def time(self) -> float:
        """Of its last record."""
        last = self._record(self.last, self.rows[-1])
        return 0.0 if last is None else last.time

    def _record(self, number: int, row: msgspec.Raw) -> AuditRecord | None:
        try:
            if not _is_short(row):
                return msgspec.structs.replace(
                    _record_decoder.decode(row), writer=self.writer, number=number
                )
            return self._whole(number, _row_decoder.decode(row))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
            return None

    def _whole(self, number: int, row: _Row) -> AuditRecord:
        arguments = msgspec.json.decode(row.arguments)
        return msgspec.structs.replace(
            self.shapes[row.shape[0]],
            writer=self.writer,
            number=number,
            time=round(self.clock + row.began, 6),
            call_id=row.call_id,
            arguments=arguments,
            arguments_digest=_digest(arguments) if row.digest is None else row.digest,
            duration_ms=round((row.ended - row.began) * 1000, 3),
        )


_encoder: Final = msgspec.json.Encoder()
_encode: Final = _encoder.encode
_decoder: Final = msgspec.json.Decoder(Block)
_record_decoder: Final = msgspec.json.Decoder(AuditRecord)
_row_decoder: Final = msgspec.json.Decoder(_Row)


def _digest(arguments: Any) -> str:
    """Of arguments that stand in a row whole: nobody needs it before somebody asks."""
    try:
        return digest(arguments)
    except (ValueError, RecursionError):
        return ""


def _is_short(row: msgspec.Raw) -> bool:
    return memoryview(row)[0] == 0x5B  # [


class Packed(msgspec.Struct, frozen=True):
    """Records as they will stand in a block, before it is known where."""

    number: int
    shapes: dict[int, msgspec.Raw]
    sums: list[int]
    rows: msgspec.Raw
    events: Sequence[tuple[int, AuditRecord]]
    """Which of them begin or end something: how far from the first each is."""

    def placed(self, *, writer: str, first: int, prev: str, clock: float) -> bytes:
        """The block. One that tells of no call in short needs no clock."""
        head: dict[str, Any] = {"writer": writer, "first": first, "prev": prev}
        if self.shapes:
            head |= {"clock": clock, "shapes": self.shapes}
        if self.sums:
            head["sums"] = self.sums
        return _encode({**head, "rows": self.rows})


def pack(told: Sequence[Told]) -> Packed:
    """The long part of the work, which needs to know nothing else."""
    kinds = set(map(type, told))
    short: Any = told if kinds == {tuple} else [one for one in told if type(one) is tuple]
    shapes: set[Shape] = set(map(itemgetter(0), short))
    text = _lines(told)
    return Packed(
        number=len(told),
        shapes={shape.number: shape.said for shape in shapes},
        sums=list(map(adler32, text.split(b"\n"))) if len(told) > 1 else [],
        rows=msgspec.Raw(b"[%b]" % text.replace(b"\n", b",")),  # no JSON has one inside
        events=[] if kinds == {tuple} else _events(told),
    )


def _events(told: Sequence[Told]) -> list[tuple[int, AuditRecord]]:
    return [(place, one) for place, one in enumerate(told) if isinstance(one, AuditRecord)]


def _lines(told: Sequence[Told]) -> bytes:
    try:
        return _encoder.encode_lines(told)[:-1]
    except (TypeError, ValueError, RecursionError):
        return b"\n".join(map(_line, told))


def _line(told: Told) -> bytes:
    """Whatever somebody put into a record, the chain goes on."""
    try:
        return _encode(told)
    except (TypeError, ValueError, RecursionError) as fault:
        note = f"the rest of it cannot be written: {type(fault).__name__}"
        if not isinstance(told, AuditRecord):
            return _encode(AuditRecord(kind="lost", note=note))
        return _encode(
            AuditRecord(
                kind=told.kind, time=told.time, call_id=told.call_id, code=told.code, note=note
            )
        )


def decode(body: bytes) -> Block | None:
    """The block, or ``None`` if this is not one."""
    try:
        block = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return block if block.rows and block.first > 0 else None


def link(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def sums_of(block: Block) -> list[int]:
    """The checksums as the rows have them now."""
    return list(map(adler32, block.rows)) if block.sums or len(block.rows) > 1 else []
