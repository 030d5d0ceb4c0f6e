"""The file of a SQLite store: made private, opened, brought to the present schema; its failures
put into words.

Above: ``sqlite``, which asks for connections. It refuses to know what is read and written. Its
messages go to models: what is wrong, but no paths; the log has those.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from toolpost.errors import ConfigError, ToolpostError, Unavailable
from toolpost.stores.integrity import check_continuity
from toolpost.stores.kept import FORBIDDEN, FULL, READ_ONLY, UNREADABLE, unwritable
from toolpost.stores.sqlite_integrity import read_counters, told_damage

_log = logging.getLogger("toolpost.store")

MIGRATIONS: Final = (
    (  # 1
        # REPLACE gives a row a new number, and AUTOINCREMENT never the same one twice: the
        # version of a record that is gone does not come back with its successor
        """CREATE TABLE records (
            version INTEGER PRIMARY KEY AUTOINCREMENT,
            space TEXT NOT NULL,
            key TEXT NOT NULL,
            value BLOB NOT NULL,
            ends REAL,
            UNIQUE (space, key)
        )""",
        """CREATE TABLE journal (
            position INTEGER PRIMARY KEY AUTOINCREMENT,
            writer TEXT NOT NULL,
            number INTEGER NOT NULL,
            body BLOB NOT NULL,
            UNIQUE (writer, number)
        )""",
    ),
    (  # 2: what ends next is found, and a writer's lines are, without reading all
        "CREATE INDEX records_ends ON records (ends) WHERE ends IS NOT NULL",
        "CREATE INDEX journal_writer ON journal (writer, position)",
    ),
)
"""The statements that lead from each version of the schema to the next; only ever added to."""

_MANY_TRIES: Final = 0.01
"""Seconds between tries where SQLite itself does not wait for another process."""
_TOLD: Final = {
    sqlite3.SQLITE_FULL: f"{FULL}; it goes on as soon as there is room",
    sqlite3.SQLITE_BUSY: "another process has been writing for too long",
    sqlite3.SQLITE_LOCKED: "another process has been writing for too long",
    sqlite3.SQLITE_READONLY: FORBIDDEN,
    sqlite3.SQLITE_PERM: UNREADABLE,
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk or a file-size limit refuses it",
    sqlite3.SQLITE_CORRUPT: "its file is damaged",
    sqlite3.SQLITE_NOTADB: "its file is damaged",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
    sqlite3.SQLITE_PROTOCOL: "another process has been writing for too long",
}
"""What is wrong with the surroundings; any other fault is one of the statement."""
_UNCLEAR: Final = (
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM
)  # fmt: skip
_REFUSED: Final = "the database refuses it"
_REPLACED: Final = "Its file was truncated, replaced or restored from an older copy"


def from_outside(fault: BaseException) -> bool:
    """Whether the surroundings failed, so that every other statement would fail just so."""
    return isinstance(fault, OSError) or _code(fault) in _TOLD


def translated(fault: Exception, path: Path) -> Exception:
    """The error for whoever asked; the log gets the details."""
    if isinstance(fault, ToolpostError):
        return fault
    if not isinstance(fault, sqlite3.Error | OSError):
        return fault
    _log.error("store %s: %s: %s", path, _name(fault), fault)
    code = _code(fault)
    why = (_found_out(path) if code in _UNCLEAR else None) or _TOLD.get(code, _REFUSED)
    told = f"What must be kept cannot be: {why}."
    if told_damage(fault) is not None:  # which no waiting mends
        return Unavailable(told, retryable=False, remedy="stop")
    return Unavailable(told, retry_after=1.0)


def _found_out(path: Path) -> str | None:
    """What is wrong with the place: SQLite tells only that a file could not be opened."""
    folder = path.parent
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    if disk.f_flag & os.ST_RDONLY:
        return READ_ONLY
    if not disk.f_bavail:
        return FULL
    if not os.access(path, os.R_OK):
        return UNREADABLE
    if not os.access(path, os.W_OK) or not os.access(folder, os.W_OK | os.X_OK):
        return FORBIDDEN
    return None


def _code(fault: BaseException) -> int:
    if isinstance(fault, OSError) and fault.errno == errno.ENOSPC:
        return sqlite3.SQLITE_FULL
    return getattr(fault, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF


def _name(fault: Exception) -> str:
    return getattr(fault, "sqlite_errorname", type(fault).__name__)


class File:
    """A file by its path; every thread asks for a connection of its own."""

    def __init__(self, path: Path, patience: float, *, read_only: bool = False) -> None:
        self.path = path.absolute()
        self._patience, self._read_only = patience, read_only
        self._identity: tuple[int, int] | None = None
        self.damage: str | None = None
        """What is to be done, once anybody who used it has met damage."""

    def translated(self, fault: Exception) -> Exception:
        """The error for whoever asked, and damage kept in mind."""
        self.damage = self.damage or told_damage(fault)
        return translated(fault, self.path)

    def writer(self) -> sqlite3.Connection:
        """A connection to a file that is there and up to date."""
        if self._read_only:
            raise Unavailable("What must be kept cannot be: it is open for reading only.")
        if self._identity is None:
            _make(self.path)
        connection = self._connect()
        try:
            self._wal(connection)
            # a line that was appended survives a power cut, and so does everything else
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA journal_size_limit=16777216")
            migrate(connection, self.path)
        except BaseException:
            connection.close()
            raise
        if self._identity is None:
            self._identity = self._now()
            check_continuity(read_counters(connection), self.path, _REPLACED)
        return connection

    def reader(self) -> sqlite3.Connection:
        connection = self._unwritten() if self._read_only else self._connect()
        connection.execute("PRAGMA query_only=ON")
        return connection

    def _unwritten(self) -> sqlite3.Connection:
        """A connection that needs no room on the disk, and no right to write."""
        try:
            return self._present(self._connect("mode=ro"))
        except sqlite3.Error as fault:
            # the file beside it that readers and writers share is missing and cannot be made; if
            # no log waits there either, this file has everything, and nobody is writing to it
            if not from_outside(fault) or self._has_log():
                raise
        return self._present(self._connect("mode=ro&immutable=1"))

    def _present(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        """The same, if its schema is of today: it cannot be changed now."""
        try:
            if (version := _version(connection)) != len(MIGRATIONS):
                raise ConfigError(
                    f"{self.path} has schema {version}, this toolpost reads {len(MIGRATIONS)}, and "
                    "it cannot be changed as long as it cannot be written to"
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def _has_log(self) -> bool:
        try:
            return os.stat(f"{self.path}-wal").st_size > 0  # noqa: PTH116 - as below
        except OSError:
            return False

    def check(self) -> None:
        """What is written to a file that was removed is lost without a word: refuse it."""
        if self._now() != self._identity:
            _log.error("store %s: the file was moved or removed while it was in use", self.path)
            raise Unavailable("What must be kept cannot be: its file is gone. Restart the program.")

    def _now(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)  # noqa: PTH116 - on every write: half the time of Path.stat
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _connect(self, how: str = "mode=rw") -> sqlite3.Connection:
        if self.path.exists() and not self.path.is_file():  # of a pipe SQLite would wait for data
            raise Unavailable(
                "What must be kept cannot be: a folder, or something else that is no file, has the "
                "name of its file. Move that away.",
                remedy="stop",
            )
        # mode=rw: SQLite must not make a file of its own, with other rights, where one is missing
        uri = f"{self.path.as_uri()}?{how}"
        return sqlite3.connect(uri, uri=True, timeout=self._patience, isolation_level=None)

    def _wal(self, connection: sqlite3.Connection) -> None:
        end = time.monotonic() + self._patience
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            except sqlite3.OperationalError as fault:  # two first openers: no waiting built in
                if _code(fault) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(_MANY_TRIES)
            except sqlite3.DatabaseError as fault:
                if _code(fault) == sqlite3.SQLITE_NOTADB:
                    raise ConfigError(
                        f"{self.path} is not a SQLite file, or it is damaged: restore a copy, or "
                        "name another file"
                    ) from fault
                raise
            else:
                if mode != "wal":
                    raise ConfigError(
                        f"{self.path}: this file system cannot share a SQLite file (WAL): "
                        "put the store on a local disk, or use PostgreSQL"
                    )
                return


def _make(path: Path) -> None:
    """For its owner alone: what is kept tells who did what."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if path.parent.is_dir():
            return
        raise unwritable(path.parent, "it is no folder") from None
    except OSError as fault:
        if fault.errno == errno.ENOSPC:  # that passes, and is no fault of the config
            raise
        raise unwritable(path.parent, fault.strerror or str(fault)) from fault
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Whatever is missing of the schema, all or nothing, while other processes wait."""
    if _version(connection) == len(MIGRATIONS):
        return
    with transaction(connection):
        version = _version(connection)  # another process may have been first
        if version is None:
            if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
                raise ConfigError(f"{path} is the database of something else: name another file")
            connection.execute("CREATE TABLE schema (version INTEGER NOT NULL)")
            connection.execute("INSERT INTO schema VALUES (0)")
            version = 0
        if version > len(MIGRATIONS):
            raise ConfigError(
                f"{path} was written by a newer toolpost (schema {version}, this one knows "
                f"{len(MIGRATIONS)}): upgrade this one"
            )
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute("UPDATE schema SET version = ?", (len(MIGRATIONS),))


def _version(connection: sqlite3.Connection) -> int | None:
    tables = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema'"
    if connection.execute(tables).fetchone() is None:
        return None
    version: int = connection.execute("SELECT version FROM schema").fetchone()[0]
    return version


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing; the write lock is taken first, so that what is read stays true."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
