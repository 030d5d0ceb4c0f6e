"""A part of a file: by bytes or by lines, never more than so much at once.

Above: ``reading.py``. Below: ``decoding.py``. A line ends with a line feed; what is before it is
counted without being kept, so that the millionth line of a big file takes no memory.
"""

from __future__ import annotations

import base64
import os
from typing import Final, NotRequired, TypedDict

from toolpost.builtin.decoding import Encoding, begun, piece
from toolpost.errors import ToolFailed

_BLOCK: Final = 1 << 20
_MOST_WIDE: Final = 16 * 1024 * 1024


class Part(TypedDict):
    """What was found, whether there is more behind it, and where to go on."""

    content: str
    truncated: bool
    next_offset: NotRequired[int]
    next_line: NotRequired[int]


def read(fd: int, offset: int, most: int) -> bytes:
    """At most so many bytes, from a place on; less only where the file ends."""
    blocks = []
    while most > 0 and (block := os.pread(fd, min(most, _BLOCK), offset)):
        blocks.append(block)
        offset += len(block)
        most -= len(block)
    return b"".join(blocks)


def of_bytes(fd: int, how: Encoding | None, *, offset: int, most: int) -> Part:
    """Bytes as text, or as base64 where there is no encoding."""
    if how is None:
        data = read(fd, offset, most)
        content, end = base64.b64encode(data).decode(), offset + len(data)
    else:
        offset = max(offset, len(how.mark))
        data = read(fd, offset, most)
        skipped = begun(data, how, at=offset)
        ends = not os.pread(fd, 1, offset + len(data))
        content, used = piece(data[skipped:], how, whole=ends)
        end = offset + skipped + used
        if not used and not ends:  # a character is longer than what was asked for
            return of_bytes(fd, how, offset=offset, most=most + 8)
    if os.pread(fd, 1, end):
        return {"content": content, "truncated": True, "next_offset": end}
    return {"content": content, "truncated": False}


def of_lines(fd: int, how: Encoding, *, first: int, lines: int | None, most: int) -> Part:
    """Lines as text, whole ones as long as they fit."""
    if how.width > 1:
        return _of_wide_lines(fd, how, first=first, lines=lines, most=most)
    offset, missing = _start(fd, first - 1, len(how.mark))
    if missing:
        return {"content": "", "truncated": False}
    data = read(fd, offset, most)
    data = _first_lines(data, lines) if lines is not None else data
    end = offset + len(data)
    if not os.pread(fd, 1, end):
        return {"content": piece(data, how, whole=True).text, "truncated": False}
    if not data.endswith(b"\n") and (last := data.rfind(b"\n")) >= 0:
        data = data[: last + 1]
    if not data.endswith(b"\n"):  # one line that is longer than what may be read at once
        text, used = piece(data, how, whole=False)
        return {"content": text, "truncated": True, "next_offset": offset + used}
    return {
        "content": piece(data, how, whole=True).text,
        "truncated": True,
        "next_offset": offset + len(data),
        "next_line": first + data.count(b"\n"),
    }


def _start(fd: int, lines: int, offset: int) -> tuple[int, bool]:
    """Where the text goes on after so many lines, and whether it has fewer."""
    while lines:
        block = os.pread(fd, _BLOCK, offset)
        if not block:
            return offset, True
        found = block.count(b"\n")
        if found >= lines:
            return offset + len(_first_lines(block, lines)), False
        lines -= found
        offset += len(block)
    return offset, False


def _first_lines(data: bytes, lines: int) -> bytes:
    at = -1
    for _ in range(lines):
        at = data.find(b"\n", at + 1)
        if at < 0:
            return data
    return data[: at + 1]


def _of_wide_lines(fd: int, how: Encoding, *, first: int, lines: int | None, most: int) -> Part:
    data = read(fd, len(how.mark), _MOST_WIDE + 1)
    if len(data) > _MOST_WIDE:
        raise ToolFailed(
            f"The lines of so large a file in {how.name} cannot be counted: ask for bytes",
            effects="none",
        )
    found = piece(data, how, whole=True).text.splitlines(keepends=True)
    wanted = found[first - 1 :][:lines]
    kept: list[str] = []
    size = 0
    for line in wanted:
        size += len(line) * how.width
        if size > most and kept:
            break
        kept.append(line)
    if first - 1 + len(kept) >= len(found):
        return {"content": "".join(kept), "truncated": False}
    return {"content": "".join(kept), "truncated": True, "next_line": first + len(kept)}
