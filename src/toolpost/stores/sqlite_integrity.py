"""Whether a SQLite store is whole: nothing in it is damaged, and nothing that was there is missing.

A note beside the file remembers how far its counters had come. A file that is behind its own note
was truncated, replaced or restored from an older copy. That is written to a second file, the loss
report, which stays until a person removes it with ``toolpost doctor --accept-loss``.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import msgspec

_log = logging.getLogger("toolpost.store")
_LEAST_FREE: Final = 1024 * 1024
"""Bytes below which a disk counts as full: SQLite's log needs some room to grow."""
_DAMAGE: Final = (
    "its file is damaged ({}). Stop every program that uses it and restore a copy, or move the "
    "file away to start with an empty store"
)


class Counters(msgspec.Struct, frozen=True):
    """How many records and journal lines a store has ever had; neither number goes back."""

    records: int = 0
    journal: int = 0


def read_counters(connection: sqlite3.Connection) -> Counters:
    rows = connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
    return Counters(**{name: seq for name, seq in rows if name in Counters.__struct_fields__})


def check_continuity(connection: sqlite3.Connection, path: Path) -> None:
    """Report a loss if the store is behind the note that its last writer left."""
    now, before = read_counters(connection), _read_note(path)
    if before is not None and (now.records < before.records or now.journal < before.journal):
        report = (
            f"the store lost data: it had {before.journal:,} journal lines and {before.records:,} "
            f"record versions, and has {now.journal:,} and {now.records:,}. Its file was "
            "truncated, replaced or restored from an older copy; keys, approvals, jobs and audit "
            "records of that time are missing. Restore a newer copy, or accept the loss with: "
            "toolpost doctor --accept-loss"
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
        return _loss_file(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def accept_loss(path: Path) -> None:
    _loss_file(path).unlink(missing_ok=True)


def find_damage(path: Path) -> str | None:
    """Read the whole file with ``PRAGMA quick_check``; what is wrong with it, in a sentence."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.DatabaseError as fault:
        code = getattr(fault, "sqlite_errorcode", 0) & 0xFF
        damaged = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        return _DAMAGE.format(fault) if damaged else None
    return None if rows == [("ok",)] else _DAMAGE.format(rows[0][0].replace("\n", " "))


def is_disk_full(path: Path) -> bool:
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LEAST_FREE


def _read_note(path: Path) -> Counters | None:
    try:
        return msgspec.json.decode(_note_file(path).read_bytes(), type=Counters)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(file: Path, body: bytes) -> None:
    """Replace the file at once: nobody reads half of it."""
    new = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as stream:
        stream.write(body)
    new.replace(file)


def _note_file(path: Path) -> Path:
    return path.with_name(f"{path.name}-note")


def _loss_file(path: Path) -> Path:
    return path.with_name(f"{path.name}-loss")
