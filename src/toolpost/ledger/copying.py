"""Lines of a journal as lines of a text, for elsewhere: an export, an archive.

Above: ``toolpost audit``, and retention. Below: nothing. Each is a JSON object: the writer, the
number of the last record, and the very bytes as base64; whoever reads one has what was written, and
can prove it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from toolpost.contracts import Line


class _Copy(msgspec.Struct, frozen=True):
    writer: str
    number: int
    body: bytes


_decoder: Final = msgspec.json.Decoder(_Copy)


def copied(line: Line) -> bytes:
    return msgspec.json.encode(_Copy(line.writer, line.number, line.body)) + b"\n"


async def lines_in(file: Path) -> AsyncIterator[Line]:
    """The lines of a file; one that is no copy any more belongs to nobody."""
    with file.open("rb") as opened:
        for position, text in enumerate(opened, start=1):
            try:
                copy = _decoder.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                yield Line("", 0, text, position)
            else:
                yield Line(copy.writer, copy.number, copy.body, position)
