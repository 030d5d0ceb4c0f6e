"""A block: a line of the journal that holds one record or many, and the link to the line before.

Above: who writes a chain, and who reads one. Below: ``record.py``, and a hash. A block is
MessagePack; its link is the SHA-256 of exactly its bytes, and the next block of the same writer
carries it: whoever changes, drops or moves one breaks the link after it. What many records have in
common stands in a block once, as a ``Shape``; what is left of such a record is a row of five.
Whatever else is told stands in a row as the JSON of a record. Each row has a checksum, by which the
one that was changed is told from its neighbours; the proof is the link.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import count
from operator import itemgetter
from typing import Any, Final, Self
from zlib import adler32

import msgspec

from toolpost.digest import digest
from toolpost.ledger.record import AuditRecord

_numbers: Final = count(1)


Sent = bytes | str
"""Arguments as they were sent: MessagePack, which is made in half the time; or JSON, which can hold
any number and can be searched as it stands."""


class Shape(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What is the same in many records. In a row stands its number only."""

    number: int
    said: msgspec.Raw
    clean: bool
    """Somebody who may do so vouches for what is sent with such calls."""

    @classmethod
    def of(cls, record: AuditRecord, *, clean: bool = False) -> Self:
        return cls(next(_numbers), msgspec.Raw(_pack(record)), clean)


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A whole call in short."""

    shape: int
    call_id: str
    began: float
    """By the monotonic clock."""
    took: float
    """Milliseconds."""
    sent: Any
    """``Sent``, if nobody has meddled with it."""
    digest: str | None = None
    """Of what was sent, if it does not stand there whole."""


Short = tuple[Shape, bytes, float]
"""A row as it will be written, with its shape; and when its call began, if somebody vouches for
what was sent with it, else 0."""
Told = Short | AuditRecord


class Place(msgspec.Struct, frozen=True):
    """Where a block will stand: its writer, its first record, and the link of the block before."""

    writer: str
    first: int
    prev: str
    clock: float
    """The time at which the monotonic clock of the rows stood at 0."""


class Block(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The records ``first`` to ``last`` of a writer."""

    writer: str
    first: int
    prev: str = ""
    clock: float = 0.0
    shapes: dict[int, AuditRecord] = {}
    sums: list[int] = []
    """A checksum for each of several rows."""
    rows: list[bytes]

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
            if _is_whole(row) and (record := self._record(number, row)) is not None:
                yield record

    def time(self) -> float:
        """Of its last record."""
        last = self._record(self.last, self.rows[-1])
        return 0.0 if last is None else last.time

    def _record(self, number: int, row: bytes) -> AuditRecord | None:
        try:
            if _is_whole(row):
                return msgspec.structs.replace(
                    _record_decoder.decode(row), writer=self.writer, number=number
                )
            return self._whole(number, decode_row(row))
        except (*_NO_DATA, KeyError):
            return None

    def _whole(self, number: int, row: Row) -> AuditRecord:
        arguments = value_of(row.sent)
        return msgspec.structs.replace(
            self.shapes[row.shape],
            writer=self.writer,
            number=number,
            time=round(self.clock + row.began, 6),
            call_id=row.call_id,
            arguments=arguments,
            arguments_digest=_digest(arguments) if row.digest is None else row.digest,
            duration_ms=round(row.took, 3),
        )


_SUMMED: Final = 256
_json: Final = msgspec.json.Encoder().encode
_pack: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(Block)
_record_decoder: Final = msgspec.json.Decoder(AuditRecord)
decode_row: Final = msgspec.msgpack.Decoder(Row).decode
encode_row: Final = _pack
"""Of a ``Row``, or of a tuple of what is in one: that is made faster."""
_unpack: Final = msgspec.msgpack.Decoder().decode
_NO_DATA: Final = (
    msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, ValueError, OverflowError,
)  # fmt: skip
"""What is raised by data that is none, on its way in or out."""


def text_of(sent: Sent) -> str:
    """Arguments as the JSON that they are."""
    return sent if isinstance(sent, str) else _json(_unpack(sent)).decode()


def value_of(sent: Sent) -> Any:
    return msgspec.json.decode(text_of(sent))


def _digest(arguments: Any) -> str:
    """Of arguments that stand in a row whole: nobody needs it before somebody asks."""
    try:
        return digest(arguments)
    except (ValueError, RecursionError):
        return ""


def _is_whole(row: bytes) -> bool:
    return row[:1] == b"{"  # to MessagePack a number, and no row


class Packed(msgspec.Struct, frozen=True):
    """Records as they stand in a block."""

    number: int
    body: bytes
    link: str
    events: Sequence[tuple[int, AuditRecord]]
    """Which of them begin or end something: how far from the first each is."""


def pack(told: Sequence[Told], place: Place) -> Packed:
    """The long part of the work, which needs to know nothing else."""
    all_short = set(map(type, told)) == {tuple}
    short: Any = told if all_short else [one for one in told if type(one) is tuple]
    shapes: set[Shape] = set(map(itemgetter(0), short))
    rows: list[bytes] = list(map(itemgetter(1), short) if all_short else map(_row, told))
    head: dict[str, Any] = {"writer": place.writer, "first": place.first, "prev": place.prev}
    if shapes:  # one that tells of no call in short needs no clock
        head["clock"] = place.clock
        head["shapes"] = {shape.number: shape.said for shape in shapes}
    if len(rows) > 1:
        head["sums"] = _sums(rows)
    body = _pack({**head, "rows": rows})
    events = [] if all_short else _events(told)
    return Packed(number=len(told), body=body, link=link(body), events=events)


def _events(told: Sequence[Told]) -> list[tuple[int, AuditRecord]]:
    return [(place, one) for place, one in enumerate(told) if isinstance(one, AuditRecord)]


def _row(told: Told) -> bytes:
    """Whatever somebody put into a record, the chain goes on."""
    if not isinstance(told, AuditRecord):
        return told[1]
    try:
        return _json(told)
    except _NO_DATA as fault:
        note = f"the rest of it cannot be written: {type(fault).__name__}"
        return _json(
            AuditRecord(
                kind=told.kind, time=told.time, call_id=told.call_id, code=told.code, note=note
            )
        )


def decode(body: bytes) -> Block | None:
    """The block, or ``None`` if this is not one."""
    try:
        block = _decoder.decode(body)
    except _NO_DATA:
        return None
    return block if block.rows and block.first > 0 else None


def link(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def sums_of(block: Block) -> list[int]:
    """The checksums as the rows have them now."""
    return _sums(block.rows) if block.sums or len(block.rows) > 1 else []


def _sums(rows: Sequence[bytes]) -> list[int]:
    """They only say which row of a block is not what it was, and are all that is computed while
    calls wait: of a long row, its beginning has to do.
    """
    return list(map(adler32, [row[:_SUMMED] for row in rows]))
