"""How far a chain had come, signed, in a file outside the journal: a cut tail is found by it.

Above: who writes a chain, and who verifies one. Below: a folder. The file of a chain is locked by
the process that writes the chain; the kernel lets go of the lock when that process dies, however
it dies, so a lock that can be had means a writer that is dead. Chains are taken up again by the
next process: there are as many as there were ever processes at once.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

import msgspec

from toolpost.ledger.record import sealed_text
from toolpost.seal import Seal, Verifier

_SIZE: Final = 1024  # written in place and whole: a file that never grows needs no free space
_NAME: Final = "chain-{:03}.json"


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """The chain of ``writer`` has come to ``number``, whose link is ``link``."""

    writer: str
    number: int = 0
    link: str = ""
    base: int = 1
    """The first number that is kept; what is before has been dropped, by retention."""
    since: int = 0
    """A position in the journal: nothing that may be unfinished stands before it."""
    clean: bool = False
    """Nothing is open, and the writer said goodbye."""
    time: float = 0.0
    key: str = ""
    signature: str = ""

    def signed(self, seal: Seal) -> Self:
        named = msgspec.structs.replace(self, key=seal.key)
        return msgspec.structs.replace(named, signature=seal.sign(named._text()))

    def holds(self, keys: Mapping[str, Verifier]) -> bool:
        """Whether one of these keys signed it."""
        verifier = keys.get(self.key)
        return verifier is not None and verifier.check(self._text(), self.signature)

    def _text(self) -> bytes:
        return sealed_text(
            "anchor",
            self.writer,
            self.number,
            self.link,
            self.base,
            self.since,
            self.clean,
            self.time,
        )


class Slot:
    """The file of one chain, locked."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @property
    def is_new(self) -> bool:
        """Nobody has ever written to it."""
        return os.fstat(self._fd).st_size == 0

    def read(self) -> Anchor | None:
        """What it says; ``None`` if it cannot be read."""
        return _anchor(os.pread(self._fd, _SIZE, 0))

    def write(self, anchor: Anchor) -> None:
        os.pwrite(self._fd, msgspec.json.encode(anchor).ljust(_SIZE - 1) + b"\n", 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def free_slots(folder: Path) -> Iterator[Slot]:
    """The chains that nobody writes, each locked as it comes; whoever asks releases them."""
    for path in files(folder):
        if (slot := _locked(path)) is not None:
            yield slot


def new_slot(folder: Path) -> Slot:
    """A file for a chain that is yet to begin."""
    number = len(files(folder))
    while True:
        path = folder / _NAME.format(number)
        if not path.exists() and (slot := _locked(path)) is not None:
            return slot
        number += 1


def anchors(folder: Path) -> dict[str, Anchor | None]:
    """File name → what it says, without waiting for anybody; ``None``: it is not readable."""
    found: dict[str, Anchor | None] = {}
    for path in files(folder):
        body = path.read_bytes()
        if body:
            found[path.name] = _anchor(body)
    return found


def is_held(path: Path) -> bool:
    """Whether a living process writes this chain."""
    slot = _locked(path)
    if slot is None:
        return True
    slot.release()
    return False


def new_writer() -> str:
    return secrets.token_hex(6)


def files(folder: Path) -> list[Path]:
    """Of all chains, those that are yet to begin too. A pipe is none: to open it would wait."""
    return sorted(path for path in folder.glob(_NAME.replace("{:03}", "*")) if path.is_file())


def _anchor(body: bytes) -> Anchor | None:
    try:
        return msgspec.json.decode(body, type=Anchor)
    except msgspec.DecodeError:
        return None


def _locked(path: Path) -> Slot | None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return Slot(path, fd)
