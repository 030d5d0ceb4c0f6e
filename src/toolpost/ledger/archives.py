"""Is everything there, and as it was written? The journal, and what retention put into the archive.

Above: ``toolpost audit verify``. Below: ``verify.py``, which proves one row of lines. An archive
says with its name where it begins and in which signed checkpoint it ends; the next one begins with
that checkpoint, and so does the journal after the last. Old archives may be kept elsewhere: that is
said. One that is cut or altered, or gone from between others, is a problem.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from toolpost.contracts import Journal, Line
from toolpost.ledger.anchor import Anchor, anchors
from toolpost.ledger.block import decode, link
from toolpost.ledger.copying import lines_in
from toolpost.ledger.opening import KEY, lines_of
from toolpost.ledger.verify import Head, Problem, Proof, Verified, verify
from toolpost.seal import KEY_SUFFIX, Verifier, accepted_keys, key_in, verifiers

ARCHIVE: Final = "archive"
_NAME: Final = re.compile(r"([0-9a-f]{12})-([0-9]{9,})-([0-9]{9,})\.jsonl")


def archive_name(first: Line, last: Line) -> str:
    """What a file is called that holds these lines and all between them."""
    return f"{first.writer}-{first.number:09}-{last.number:09}.jsonl"


async def verify_everything(
    journal: Journal, folder: Path, earlier: Sequence[Head] = ()
) -> Verified:
    """The journal, held against what stands in the folder of the audit, and the archive there."""
    keys = verifiers(folder, KEY)
    while True:
        # the anchors first: what is written meanwhile is beyond them, and not missing
        known = anchors(folder)
        found = await _held_against(known, keys, journal, folder, earlier)
        if (known or found.records) and (problem := _key_gone(folder)) is not None:
            return msgspec.structs.replace(found, problems=(problem, *found.problems))
        if found.ok or _bases(known, keys) == _bases(anchors(folder), keys):
            return found  # else retention has dropped something under our eyes


def _key_gone(folder: Path) -> Problem | None:
    """Whoever writes the audit makes a new key where there is none: that the old one is gone is
    seen here, or not at all.
    """
    file = folder / f"{KEY}{KEY_SUFFIX}"
    if file.exists():
        return None
    what = (
        f"the key that signs the audit is gone: {file}. What was written before is proved as far "
        "as is said here; what is written from now on will be signed by a new key. Restore it from "
        "a copy, or find out who removed it"
    )
    return Problem("", 0, "missing", what)


def _trusted(known: Mapping[str, Anchor | None], keys: Mapping[str, Verifier]) -> dict[str, Anchor]:
    return {a.writer: a for a in known.values() if a is not None and a.holds(keys)}


def _bases(known: Mapping[str, Anchor | None], keys: Mapping[str, Verifier]) -> dict[str, int]:
    return {writer: anchor.base for writer, anchor in _trusted(known, keys).items()}


async def _held_against(
    known: Mapping[str, Anchor | None],
    keys: Mapping[str, Verifier],
    journal: Journal,
    folder: Path,
    earlier: Sequence[Head],
) -> Verified:
    trusted, begins = _trusted(known, keys), dict[str, str]()
    lines = _noting(lines_of(journal), trusted, begins)
    found = await verify(
        lines,
        Proof(
            keys=keys,
            key=key_in(folder, KEY) or "",
            accepted=accepted_keys(folder, keys),
            anchors=known,
            earlier=earlier,
        ),
    )
    problems, unproven = [*found.problems], [*found.unproven]
    parts: dict[str, list[_Part]] = {writer: [] for writer in trusted}
    for file in sorted((folder / ARCHIVE).glob("*.jsonl")):
        if (named := _NAME.fullmatch(file.name)) is not None:
            read = await _read(file, named, keys, earlier)
            problems += read.found.problems
            unproven += read.found.unproven
            parts.setdefault(named[1], []).append(read)
    for writer, of_chain in parts.items():
        anchor = trusted.get(writer)
        if anchor is not None:
            bad, missing = _joined(anchor, begins.get(writer), of_chain)
            problems += bad
            unproven += missing
        elif all(head.writer != writer for head in found.heads):
            last = max(part.last for part in of_chain)
            what = f"only its archive is left, up to record {last}: the chain itself is gone"
            problems.append(Problem(writer, last, "missing", what))
    return msgspec.structs.replace(found, problems=tuple(problems), unproven=tuple(unproven))


async def verify_file(file: Path, folder: Path, earlier: Sequence[Head] = ()) -> Verified:
    """An archive, by its name; else an export, which may end anywhere."""
    keys = verifiers(folder, KEY)
    if (named := _NAME.fullmatch(file.name)) is not None:
        found = (await _read(file, named, keys, earlier)).found
    else:
        proof = Proof(keys=keys, anchors=anchors(folder), earlier=earlier, whole=False)
        found = await verify(lines_in(file), proof)
    nothing = () if found.records else (f"there is no record in {file}",)
    return msgspec.structs.replace(found, unproven=(*found.unproven, *nothing))


class _Part(NamedTuple):
    """One archive: which lines its name says, and how those at its ends are linked."""

    first: int
    last: int
    begins: str
    ends: str
    found: Verified


async def _read(
    file: Path, named: re.Match[str], keys: Mapping[str, Verifier], earlier: Iterable[Head]
) -> _Part:
    writer, first, last = named[1], int(named[2]), int(named[3])
    within = [h for h in earlier if h.writer == writer and first <= h.number <= last]
    ends = _Ends()
    proof = Proof(keys=keys, earlier=within, whole=False)
    try:
        found = await verify(ends.of(lines_in(file)), proof)
    except OSError as fault:
        what = f"the archive {file.name} cannot be read: {fault.strerror}"
        found = Verified(0, (), (Problem(writer, first, "unreadable", what),), ())
    if not found.problems and (problem := ends.problem(file.name, writer, first, last)):
        found = msgspec.structs.replace(found, problems=(problem,))
    begins, ended = ("", "") if found.problems else (ends.begins, ends.ends)
    return _Part(first, last, begins, ended, found)


class _Ends:
    """The first and the last line of a file, noted as they pass."""

    def __init__(self) -> None:
        self._first: Line | None = None
        self._last: Line | None = None
        self._writers: set[str] = set()
        self.begins = self.ends = ""

    async def of(self, lines: AsyncIterable[Line]) -> AsyncIterator[Line]:
        async for line in lines:
            self._first, self._last = self._first or line, line
            self._writers.add(line.writer)
            yield line
        if self._first is not None and self._last is not None:
            self.begins, self.ends = link(self._first.body), link(self._last.body)

    def problem(self, name: str, writer: str, first: int, last: int) -> Problem | None:
        """What its name says and it does not hold."""
        if self._first is None or self._last is None:
            return Problem(writer, first, "cut", f"the archive {name} is empty")
        if self._writers != {writer} or self._first.number != first or self._last.number > last:
            return Problem(writer, first, "moved", f"the archive {name} is not what its name says")
        block = decode(self._last.body)
        alone = None if block is None else block.alone()
        if self._last.number < last or alone is None or alone.kind != "checkpoint":
            what = f"the archive {name} is cut: records {self._last.number + 1} to {last} are gone"
            return Problem(writer, self._last.number + 1, "cut", what)
        return None


async def _noting(
    lines: AsyncIterable[Line], trusted: Mapping[str, Anchor], begins: dict[str, str]
) -> AsyncIterator[Line]:
    """How the line is linked with which each chain begins."""
    bases = {anchor.writer: anchor.base for anchor in trusted.values()}
    async for line in lines:
        if bases.get(line.writer) == line.number:
            begins[line.writer] = link(line.body)
        yield line


def _joined(
    anchor: Anchor, begins: str | None, parts: Sequence[_Part]
) -> tuple[list[Problem], list[str]]:
    """Walk back from where the journal begins, archive by archive: what is wrong, what is not here.

    A crash may have left a second copy of what another archive, or the journal, holds as well.
    """
    writer, reach, linked = anchor.writer, anchor.base, begins or ""
    while reach > 1:
        ending = [part for part in parts if part.first < part.last == reach]
        if not ending:
            break
        part = min(ending, key=lambda part: part.first)
        if linked and part.ends and part.ends != linked:
            what = f"its archive ends in another record {reach} than what follows begins with"
            return [Problem(writer, reach, "forged", what)], []
        reach, linked = (part.first, part.begins) if _goes_on(part) else (1, "")
    if reach <= 1:
        return [], []
    before = [part.last for part in parts if part.first < reach]
    if before:
        gone = f"the archive of the records {max(before) + 1} to {reach - 1} is gone"
        return [Problem(writer, max(before) + 1, "missing", gone)], []
    elsewhere = "retention has dropped them, or their archive is kept elsewhere"
    return [], [f"chain {writer}: the records up to {reach - 1} are not here: {elsewhere}"]


def _goes_on(part: _Part) -> bool:
    """Whether something stands before it: the first archive begins with record 1."""
    return bool(not part.found.heads or part.found.heads[0].first != 1)
