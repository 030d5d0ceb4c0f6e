"""Whether anything that a store held is missing.

A note outside the store remembers how far its counters had come. A store that is behind its own
note was emptied, replaced or restored from an older copy. That is written to a second file, the
loss report, which stays until a person removes it with ``toolpost doctor --accept-loss``.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import msgspec

_log = logging.getLogger("toolpost.store")


class Counters(msgspec.Struct, frozen=True):
    """How many records and journal lines a store has ever had; neither number goes back."""

    records: int = 0
    journal: int = 0

    def is_behind(self, before: Counters) -> bool:
        return self.records < before.records or self.journal < before.journal


def check_continuity(now: Counters, path: Path, what: str) -> None:
    """Report a loss if the store is behind the note that its last writer left. ``path``: of the
    store, or the place where its note is, without its ending.
    """
    before = _read_note(path)
    if before is not None and now.is_behind(before):
        report = (
            f"the store lost data: it had {before.journal:,} journal lines and {before.records:,} "
            f"record versions, and has {now.journal:,} and {now.records:,}. {what}; keys, "
            "approvals, jobs and audit records of that time are missing. Restore a newer copy, or "
            "accept the loss with: toolpost doctor --accept-loss"
        )
        _log.error("store %s: %s", path, report)
        _write(_loss_file(path), report.encode())
    write_note(path, now)


def write_note(path: Path, counters: Counters) -> None:
    """Remember how far the store has come. Only what is committed may be noted."""
    with suppress(OSError):  # a full disk: the older note still holds
        _write(_note_file(path), msgspec.json.encode(counters))


def read_loss(path: Path) -> str | None:
    """What was lost and has not been accepted yet."""
    try:
        return _read(_loss_file(path)).decode(errors="replace")
    except OSError:
        return None


def accept_loss(path: Path) -> None:
    _loss_file(path).unlink(missing_ok=True)


def _read_note(path: Path) -> Counters | None:
    try:
        return msgspec.json.decode(_read(_note_file(path)), type=Counters)
    except (OSError, msgspec.MsgspecError):
        return None


def _read(file: Path) -> bytes:
    if not file.is_file():  # to open a pipe would wait for somebody who writes to it
        raise FileNotFoundError(file)
    return file.read_bytes()


def _write(file: Path, body: bytes) -> None:
    """Replace the file at once: nobody reads half of it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as stream:
        stream.write(body)
    new.replace(file)


def _note_file(path: Path) -> Path:
    return path.with_name(f"{path.name}-note")


def _loss_file(path: Path) -> Path:
    return path.with_name(f"{path.name}-loss")
