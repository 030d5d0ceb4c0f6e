"""Dropping what is too old, so that what stays can still be proved.

A chain is cut at a signed checkpoint, which becomes its first record; the anchor says from which
number on it is kept, so a beginning that somebody else removed is found. What is dropped goes to an
archive first: a file of copied lines that ends with that same checkpoint, and that can be verified
alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolpost.contracts import Journal, Line, Prunes
from toolpost.ledger.archives import archive_name
from toolpost.ledger.block import decode
from toolpost.ledger.copying import copied
from toolpost.ledger.opening import lines_of
from toolpost.ledger.writing import Chain

_AT_ONCE: Final = 64 * 1024 * 1024
"""Bytes that are dropped in one go; the rest waits for the next time."""


async def prune(chain: Chain, journal: Journal, *, before: float, archive: Path | None) -> int:
    """Drop the lines of a chain from before a time; how many went."""
    if not isinstance(journal, Prunes):
        return 0
    old = await _old(chain, journal, before)
    if len(old) <= 1:
        return 0
    if archive is not None:
        _archived(old, archive)
    # the anchor first: a crash between the two leaves too much in the journal, not too little
    chain.keep_from(old[-1].number)
    await journal.prune(chain.anchor.writer, before=old[-1].number)
    return len(old) - 1


async def _old(chain: Chain, journal: Journal, before: float) -> Sequence[Line]:
    """The lines up to the last checkpoint from before that time, with nothing open among them."""
    oldest = min(chain.open.values(), default=chain.number + 1)
    lines: list[Line] = []
    cut = size = 0
    async for line in lines_of(journal, writer=chain.anchor.writer):
        if line.number < chain.anchor.base:  # a crash kept it from being dropped the last time
            continue
        block = decode(line.body)
        enough = cut and size >= _AT_ONCE
        if block is None or block.time() >= before or line.number >= oldest or enough:
            break
        lines.append(line)
        size += len(line.body)
        alone = block.alone()
        if alone and alone.kind == "checkpoint" and line.number <= chain.anchor.number:
            cut = len(lines)
    return lines[:cut]


def _archived(lines: Sequence[Line], folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / archive_name(lines[0], lines[-1])
    draft = file.with_suffix(".draft")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as opened:
        opened.writelines(map(copied, lines))
        opened.flush()
        os.fsync(fd)
    draft.rename(file)
