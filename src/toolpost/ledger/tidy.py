"""What must not be written is taken out of rows: all of them are looked at as one, and each alone
only where something is found.

Above: the audit, which hands it to the scribe. Below: ``redact``. Arguments that somebody vouches
for were looked at on their way; what that look does not cover is looked at here: a card's number
that is no text, a text that hides one in a JSON pointer, and whatever is known to be a secret only
since.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import itemgetter
from time import monotonic
from typing import Final

import msgspec

from toolpost import redact
from toolpost.digest import digest
from toolpost.ledger.block import Row, Short, decode_row, encode_row, text_of, value_of

_SPLIT: Final = 8
LONG: Final = 0xCF
"""What stands before every number of 64 bits in MessagePack, and elsewhere: what somebody vouches
for is looked at closer if this is in it, or a ``POINT``."""
POINT: Final = ord("~")
_LONGS: Final = re.compile(rb"\xcf(?=(.{8}))", re.DOTALL)
_json: Final = msgspec.json.Encoder().encode
_began: Final = itemgetter(2)


class Tidy:
    """Of a call that began before the last new secret was heard of, nobody's word counts."""

    def __init__(self) -> None:
        self._known, self._since = redact.knows(), 0.0

    def __call__(self, rows: Sequence[Short]) -> Sequence[Short]:
        known = redact.knows()
        if known != self._known:
            self._known, self._since = known, monotonic()
        return tidied(rows, since=self._since)


def tidied(rows: Sequence[Short], *, since: float = 0.0) -> Sequence[Short]:
    """The rows as they may be written; ``since`` when somebody may have vouched for them."""
    if not rows or min(map(_began, rows)) > since:
        return rows
    return _searched([(short, decode_row(short[1])) for short in rows], since)


def _searched(rows: Sequence[tuple[Short, Row]], since: float) -> Sequence[Short]:
    doubtful = [row.sent for short, row in rows if not _vouched(short, row, since)]
    if redact.clean_json("\n".join(map(text_of, doubtful))):
        return [short for short, _ in rows]
    if len(rows) == 1:
        return [_tidied(*rows[0])]
    step = -(-len(rows) // _SPLIT)
    parts = [rows[place : place + step] for place in range(0, len(rows), step)]
    return [short for part in parts for short in _searched(part, since)]


def _tidied(short: Short, row: Row) -> Short:
    try:
        sent = value_of(row.sent)
        shown = redact.redact(sent)
        if shown == sent:
            return short
        tidy = msgspec.structs.replace(row, sent=_json(shown).decode(), digest=digest(sent))
    except (ValueError, RecursionError):
        tidy = msgspec.structs.replace(row, sent='"(not shown)"', digest="")
    return short[0], encode_row(tidy), 0.0


def _vouched(short: Short, row: Row, since: float) -> bool:
    if not short[0].clean or row.began <= since or type(row.sent) is not bytes:
        return False
    return b"~1" not in row.sent and not any(map(_is_card, _LONGS.findall(row.sent)))


def _is_card(eight: bytes) -> bool:
    """Whether eight bytes that may be a number would not be written as one."""
    number = int.from_bytes(eight)
    return bool(redact.redact(number) != number)
