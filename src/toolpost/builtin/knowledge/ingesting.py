"""Folders become an index: what is new or changed is read, what has gone is forgotten.

Above: ``tool.py``. Below: ``splitting.py``, ``index.py``, and ``beneath``, which opens nothing
outside of the folders. Files are told apart by a digest of what is in them. Work is kept in
batches: an ingestion that is killed goes on where it was.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Final, NamedTuple

from toolpost import beneath, meaning
from toolpost.builtin import decoding
from toolpost.builtin.knowledge.index import Index
from toolpost.builtin.knowledge.settings import Knowledge
from toolpost.builtin.knowledge.splitting import Document, split
from toolpost.builtin.rooted import Root, legible, opened, place, told

ENDINGS: Final = (
    ".md", ".markdown", ".mdx", ".rst", ".txt", ".text", ".adoc", ".org", ".html", ".htm", ".xhtml",
)  # fmt: skip
_BATCH: Final = 50
_BATCH_SIZE: Final = 10_000_000
"""Bytes of the files of a batch: they are held until it is kept."""
_VECTORS: Final = 256
_MOST_TOLD: Final = 20
_LEFT_OUT: Final = frozenset(("node_modules", "__pycache__", "venv", "site-packages"))

Tell = Callable[[int, int | None, str], None]


class Target(NamedTuple):
    """A file to be read: in which folder it lies, its path there, and what it is called here."""

    folder: str
    path: str
    name: str
    size: int


class Read(NamedTuple):
    """A file that was read, and is to be kept."""

    name: str
    digest: str
    document: Document
    size: int


class Ingested:
    """What an ingestion did."""

    def __init__(self) -> None:
        self.files = self.added = self.updated = self.unchanged = self.removed = 0
        self.skipped: list[tuple[str, str]] = []
        self.skipped_count = 0
        self.complete = True

    def skip(self, name: str, why: str) -> None:
        self.skipped_count += 1
        if len(self.skipped) < _MOST_TOLD:
            self.skipped.append((name, why))


def ingest(
    index: Index, knowledge: Knowledge, path: str | None, *, until: float, tell: Tell
) -> Ingested:
    """Bring the index up to date with a folder, or with all of them."""
    done = Ingested()
    targets = list(_targets(knowledge, path, done))
    known = index.digests()
    held: list[Read] = []
    for number, target in enumerate(targets, start=1):
        if monotonic() >= until:
            done.complete = False
            break
        if (one := _one(knowledge, target, known=known, done=done)) is not None:
            held.append(one)
        if number % _BATCH == 0 or sum(one.size for one in held) > _BATCH_SIZE:
            _keep(index, held)
            tell(number, len(targets), "files read")
    _keep(index, held)
    if done.complete:
        _forget(index, known, targets, _under(knowledge, path), done)
    if knowledge.meaning:
        _add_meaning(index, done, until=until, tell=tell)
    return done


def _targets(knowledge: Knowledge, path: str | None, done: Ingested) -> Iterator[Target]:
    count = 0
    for root, start in _starts(knowledge.roots, path):
        with told(path or root.name, knowledge.roots), opened(root.folder) as folder:
            for entry in beneath.walk(folder, start, most=knowledge.files):
                if not _wanted(entry):
                    continue
                inside = entry.name if start == "." else f"{start}/{entry.name}"
                name = legible(f"{root.name}/{inside}" if root.name != "." else inside)
                if count >= knowledge.files:
                    done.skip(name, f"more than {knowledge.files} files")
                    done.complete = False
                    return
                count += 1
                yield Target(root.folder, inside, name, entry.size)


def _starts(roots: Sequence[Root], path: str | None) -> Iterator[tuple[Root, str]]:
    if path is None:
        yield from ((root, ".") for root in roots)
        return
    found = place(roots, path)
    yield next(root for root in roots if root.folder == found.folder), found.path


def _under(knowledge: Knowledge, path: str | None) -> tuple[str, ...]:
    """How the names begin that an ingestion of this folder answers for."""
    names = []
    for root, start in _starts(knowledge.roots, path):
        parts = [part for part in (root.name, start) if part != "."]
        names.append(legible("/".join(parts)) + "/" if parts else "")
    return tuple(names)


def _wanted(entry: beneath.Entry) -> bool:
    parts = entry.name.split("/")
    return (
        entry.kind == "file"
        and not any(part.startswith(".") or part in _LEFT_OUT for part in parts)
        and (entry.name.lower().endswith(ENDINGS) or parts[-1] in ("README", "CHANGELOG", "NOTES"))
    )


def _keep(index: Index, held: list[Read]) -> None:
    """Put into the index what was read; nobody else waits while it is read."""
    if held:
        with index.writing():
            for one in held:
                index.put(one.name, one.digest, one.document)
        held.clear()


def _one(
    knowledge: Knowledge, target: Target, *, known: dict[str, str], done: Ingested
) -> Read | None:
    """What a file says, unless it is known or cannot be used."""
    done.files += 1
    if target.size > knowledge.file_size:
        done.skip(target.name, f"larger than {knowledge.file_size} bytes")
        return None
    try:
        data = _read(target, knowledge.file_size)
    except OSError as exc:
        done.skip(target.name, exc.strerror or "cannot be read")
        return None
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    if known.get(target.name) == digest:
        done.unchanged += 1
        return None
    how = decoding.encoding(data, whole=True)
    if how is None:
        done.skip(target.name, "not a text")
        return None
    text = decoding.piece(data[len(how.mark) :], how, whole=True).text
    plain = text.encode("utf-8", "replace").decode().replace("\0", "")
    done.updated += target.name in known
    done.added += target.name not in known
    return Read(target.name, digest, split(plain, legible(target.path)), len(data))


def _read(target: Target, most: int) -> bytes:
    with opened(target.folder) as folder:
        fd = beneath.regular(folder, target.path)
        with os.fdopen(fd, "rb") as file:
            return file.read(most + 1)[:most]


def _forget(
    index: Index,
    known: dict[str, str],
    targets: Sequence[Target],
    under: tuple[str, ...],
    done: Ingested,
) -> None:
    """What is no longer there goes, within the folder that was looked at."""
    there = {target.name for target in targets}
    gone = [name for name in known if name.startswith(under) and name not in there]
    if gone:
        with index.writing():
            index.remove(gone)
        done.removed = len(gone)


def _add_meaning(index: Index, done: Ingested, *, until: float, tell: Tell) -> None:
    model = meaning.model()
    if model is None:
        return
    count = last = 0
    while rows := index.without_vectors(_VECTORS, after=last):
        if monotonic() >= until:
            done.complete = False
            return
        vectors = model.packed([text for _, text in rows])
        with index.writing():
            index.add_vectors(zip((number for number, _ in rows), vectors, strict=True))
        count += len(rows)
        last = max(number for number, _ in rows)
        tell(count, None, "passages understood")
