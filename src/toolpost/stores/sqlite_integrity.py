"""Whether the file of a SQLite store is whole: its counters, its damage, the room on its disk."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from toolpost.stores.integrity import Counters

_LEAST_FREE: Final = 1024 * 1024
"""Bytes below which a disk counts as full: SQLite's log needs some room to grow."""
_DAMAGE: Final = (
    "its file is damaged ({}). Stop every program that uses it and restore a copy, or move the "
    "file away to start with an empty store"
)


def read_counters(connection: sqlite3.Connection) -> Counters:
    rows = connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
    return Counters(**{name: seq for name, seq in rows if name in Counters.__struct_fields__})


def find_damage(path: Path) -> str | None:
    """Read the whole file with ``PRAGMA quick_check``; what is wrong with it, in a sentence."""
    if not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.DatabaseError as fault:
        return told_damage(fault)
    return None if rows == [("ok",)] else _DAMAGE.format(rows[0][0].replace("\n", " "))


def told_damage(fault: BaseException) -> str | None:
    """What to do about it, if this fault of SQLite says that the file is damaged."""
    code = getattr(fault, "sqlite_errorcode", 0) & 0xFF
    is_damage = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return _DAMAGE.format(fault) if is_damage else None


def is_disk_full(path: Path) -> bool:
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LEAST_FREE
