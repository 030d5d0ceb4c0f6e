"""A table of specs in a SQLite file.

Above: ``tables``. Below: the standard library; everything happens in threads. A reader opens the
file for reading only, and learns of changes from SQLite itself, without reading the rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from toolpost.errors import SourceError
from toolpost.sources.tables import CHANGED, MOST_BYTES, MOST_ROWS, Row

T = TypeVar("T")

MIGRATIONS: Final = (
    (  # 1
        """CREATE TABLE {table} (
            name TEXT PRIMARY KEY NOT NULL,
            spec TEXT NOT NULL,
            digest TEXT,
            enabled INTEGER NOT NULL DEFAULT 1,
            updated TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
        )""",
    ),
)
"""The statements that lead from each version of the table to the next; only ever added to."""

_ROWS: Final = (
    "SELECT CAST(name AS TEXT), "
    "CASE WHEN length(CAST(spec AS BLOB)) <= ? THEN CAST(spec AS TEXT) END, "
    "CAST(digest AS TEXT), enabled FROM {table} ORDER BY name LIMIT ?"
)
"""As they have to be, whatever somebody has put there."""
_PUT: Final = (
    "INSERT INTO {table} (name, spec, digest) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
    "spec = excluded.spec, digest = excluded.digest, updated = CURRENT_TIMESTAMP"
)


class SqliteTable:
    """The table in a file; ``patience`` are the seconds that another writer is waited for."""

    def __init__(self, path: Path, *, table: str, patience: float) -> None:
        self._path = path.absolute()
        self._table, self._patience = table, patience
        self._watching: tuple[sqlite3.Connection, tuple[int, int]] | None = None
        self._lock = threading.Lock()

    async def rows(self) -> Sequence[Row] | None:
        return await asyncio.to_thread(self._told, self._rows)

    async def fingerprint(self) -> object:
        return await asyncio.to_thread(self._told, self._fingerprint)

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def write(self, rows: Sequence[Row], *, gone: Sequence[str], seen: Sequence[Row]) -> None:
        await asyncio.to_thread(self._told, lambda: self._write(rows, gone, seen))

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _told(self, job: Callable[[], T]) -> T:
        try:
            return job()
        except (sqlite3.Error, OSError) as fault:
            raise SourceError(f"{self._path}: {fault}") from fault

    def _rows(self) -> Sequence[Row] | None:
        if not self._path.exists():
            return None
        with self._connected("mode=ro") as connection:
            return self._read(connection)

    def _read(self, connection: sqlite3.Connection) -> Sequence[Row] | None:
        if not _has(connection, self._table):
            return None
        query = _ROWS.format(table=self._table)
        rows = connection.execute(query, (MOST_BYTES, MOST_ROWS + 1)).fetchall()
        if len(rows) > MOST_ROWS:
            raise SourceError(f"{self._path}: the table has more than {MOST_ROWS:,} rows")
        return [Row(name, spec, digest, bool(enabled)) for name, spec, digest, enabled in rows]

    def _fingerprint(self) -> object:
        """What SQLite counts on every change by somebody else, and which file it is."""
        with self._lock:
            now = self._path.stat()
            identity = (now.st_dev, now.st_ino)
            if self._watching is None or self._watching[1] != identity:
                self._forget()
                self._watching = (self._connect("mode=ro"), identity)
            (version,) = self._watching[0].execute("PRAGMA data_version").fetchone()
            return version, identity

    def _write(self, rows: Sequence[Row], gone: Sequence[str], seen: Sequence[Row]) -> None:
        with self._connected("mode=rwc") as connection, _transaction(connection):
            migrate(connection, self._table)
            if self._read(connection) != seen:
                raise SourceError(f"{self._path}: {CHANGED}")
            put = [(row.name, row.spec, row.digest) for row in rows]
            connection.executemany(_PUT.format(table=self._table), put)
            remove = f"DELETE FROM {self._table} WHERE name = ?"  # noqa: S608 - a name that was checked
            connection.executemany(remove, [(name,) for name in gone])

    def _close(self) -> None:
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        if self._watching is not None:
            self._watching[0].close()
        self._watching = None

    @contextlib.contextmanager
    def _connected(self, how: str) -> Iterator[sqlite3.Connection]:
        connection = self._connect(how)
        try:
            yield connection
        finally:
            connection.close()

    def _connect(self, how: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?{how}",
            uri=True,
            timeout=self._patience,
            isolation_level=None,
            check_same_thread=False,  # the threads of a pool take turns
        )
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        return connection


def migrate(
    connection: sqlite3.Connection,
    table: str,
    migrations: Sequence[Sequence[str]] = MIGRATIONS,
) -> None:
    """Whatever is missing of the table, inside the transaction that is open."""
    kept = f"{table}_version"
    if not _has(connection, kept):
        if _has(connection, table):
            raise SourceError(f"there is a table {table!r} already, and it is not ours")
        connection.execute(f"CREATE TABLE {kept} (version INTEGER NOT NULL)")
        connection.execute(f"INSERT INTO {kept} VALUES (0)")  # noqa: S608 - a name that was checked
    (version,) = connection.execute(f"SELECT version FROM {kept}").fetchone()  # noqa: S608 - as above
    if version > len(migrations):
        raise SourceError(
            f"the table {table!r} was made by a newer toolpost (version {version}, this one knows "
            f"{len(migrations)}): upgrade this one"
        )
    for statements in migrations[version:]:
        for statement in statements:
            connection.execute(statement.format(table=table))
    if version < len(migrations):
        connection.execute(f"UPDATE {kept} SET version = ?", (len(migrations),))  # noqa: S608 - as above


def _has(connection: sqlite3.Connection, name: str) -> bool:
    found = "SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?"
    return connection.execute(found, (name,)).fetchone() is not None


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
