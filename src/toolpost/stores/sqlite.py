"""A store in one file: SQLite, shared by any number of processes on this host.

One thread writes. What has gathered while the last transaction went to the disk goes into the
next, and each caller hears when its own is there, so that a thousand appends cost a few
transactions. Another thread reads, on a connection of its own, and never waits for the writer.

Below: ``lane`` (the threads), ``sqlite_file`` (the file). It refuses to know what is kept in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from toolpost.clock import SystemClock
from toolpost.contracts import Clock, Line, Record
from toolpost.errors import CallError, Unavailable
from toolpost.options import Options, options_from
from toolpost.stores.integrity import accept_loss, read_loss, write_note
from toolpost.stores.kept import FULL, behind, checked, encoded, lifetime, lined, ranged, unwritten
from toolpost.stores.lane import Do, Lane
from toolpost.stores.sqlite_file import File, from_outside, transaction
from toolpost.stores.sqlite_integrity import find_damage, is_disk_full, read_counters

T = TypeVar("T")
_Job = Do[sqlite3.Connection]
_LINE: Final = "CAST(writer AS TEXT), CAST(number AS INTEGER), CAST(body AS BLOB), position"
"""As it has to be, whatever somebody has put there: what was changed is told by its content."""
_SWEEP_EVERY: Final = 30.0
_SWEEP_MOST: Final = 500
_PRUNE_MOST: Final = 5000


class SqliteOptions(Options, frozen=True, kw_only=True):
    """What ``[store]`` may say with ``kind = "sqlite"``."""

    path: str = "store.db"
    patience: float = 5.0


class SqliteStore:
    """Records and a journal in a file. ``patience``: seconds to wait for another process."""

    options = SqliteOptions

    def __init__(self, path: Path, *, clock: Clock | None = None, patience: float = 5.0) -> None:
        self.path = path
        self._clock = clock or SystemClock()
        self._patience = patience
        self._file: File | None = None
        self._lanes: tuple[Lane[sqlite3.Connection], Lane[sqlite3.Connection]] | None = None

    @classmethod
    def from_config(cls, options: Mapping[str, Any], state: Path) -> Self:
        chosen = options_from(options, SqliteOptions, "store sqlite")
        return cls(state / chosen.path, patience=chosen.patience)

    async def open(self) -> None:
        self._start(File(self.path, self._patience))
        try:
            await self._write(_nothing)
            await self._read(_nothing)
        except BaseException:
            await self.close()
            raise

    async def open_to_read(self) -> None:
        """Without a right to write, and without room on the disk."""
        self._start(File(self.path, self._patience, read_only=True))
        try:
            await self._read(_nothing)
        except BaseException:
            await self.close()
            raise

    def _start(self, file: File) -> None:
        if self._lanes is None:
            self._file = file
            writer, reader = _Writer(file, self._clock), _Reader(file)
            self._lanes = (
                Lane("toolpost-store-writer", writer.run, writer.end),
                Lane("toolpost-store-reader", reader.run, reader.end),
            )

    async def find_damage(self) -> str | None:
        """Read the whole file, on a thread of its own; what is wrong with it, if anything is."""
        return await asyncio.to_thread(find_damage, self.path.absolute())

    @property
    def problem(self) -> str | None:
        """What a write need not show: that a part of the file is damaged, as somebody who used it
        has seen, or that the disk is all but full.
        """
        if self._file is not None and self._file.damage is not None:
            return self._file.damage
        return f"{FULL}; free some space" if is_disk_full(self.path) else None

    @property
    def loss(self) -> str | None:
        """What the store once held and holds no longer, until a person accepts it."""
        return read_loss(self.path)

    def accept_loss(self) -> None:
        accept_loss(self.path)

    async def close(self) -> None:
        """What was handed over is still written."""
        lanes, self._lanes = self._lanes, None
        for lane in reversed(lanes or ()):
            await lane.stop()

    async def get(self, space: str, key: str) -> Record | None:
        checked(space, key)
        return await self._read(partial(_get, space, key, self._clock.time()))

    async def put(
        self,
        space: str,
        key: str,
        value: Any,
        *,
        version: int | None = None,
        ttl: float | None = None,
    ) -> int | None:
        checked(space, key)
        body = None if value is None else encoded(value)
        now, ttl = self._clock.time(), lifetime(ttl)
        ends = None if ttl is None else now + ttl
        return await self._write(partial(_put, space, key, body, version, now, ends))

    async def scan(
        self, space: str, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[tuple[str, Record]]:
        ranged(space, prefix, after)
        return await self._read(partial(_scan, space, prefix, after, limit, self._clock.time()))

    async def append(self, lines: Sequence[Line]) -> None:
        await self._write(partial(_append, lined(lines)))

    async def read(
        self, *, after: int = 0, limit: int = 1000, writer: str | None = None
    ) -> Sequence[Line]:
        return await self._read(partial(_lines, after, limit, writer))

    async def head(self, writer: str) -> Line | None:
        return await self._read(partial(_head, writer))

    async def prune(self, writer: str, *, before: int) -> None:
        """Drop the lines of a writer below a number; their positions are not given again.

        The oldest first and piece by piece: others write in between.
        """
        while await self._write(partial(_prune, writer, before)) == _PRUNE_MOST:
            pass

    async def _write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        if self._lanes is None:
            raise Unavailable("The store is not open.")
        return await self._lanes[0].do(job)

    async def _read(self, job: Callable[[sqlite3.Connection], T]) -> T:
        if self._lanes is None:
            raise Unavailable("The store is not open.")
        return await self._lanes[1].do(job)


class _Writer:
    """What the writing thread does: each batch is one transaction."""

    def __init__(self, file: File, clock: Clock) -> None:
        self._file, self._clock = file, clock
        self._connection: sqlite3.Connection | None = None
        self._sweep_at = clock.monotonic()

    def run(self, batch: Sequence[_Job]) -> Sequence[Any]:
        try:
            return self._together(batch)
        except Exception as fault:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            if from_outside(fault):
                self.end()  # the next batch begins with a new connection
            elif len(batch) > 1 and not isinstance(fault, CallError):
                return [one for job in batch for one in self.run([job])]  # the others are sound
            return [self._file.translated(fault) for _ in batch]

    def end(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                write_note(self._file.path, read_counters(self._connection))
            self._connection.close()
        self._connection = None

    def _together(self, batch: Sequence[_Job]) -> Sequence[Any]:
        if self._connection is None:
            self._connection = self._file.writer()
        self._file.check()
        is_due = self._clock.monotonic() >= self._sweep_at
        with transaction(self._connection):
            outcomes = [_outcome(job, self._connection) for job in batch]
            if is_due:
                self._sweep(self._connection)
        if is_due:
            write_note(self._file.path, read_counters(self._connection))
        return outcomes

    def _sweep(self, connection: sqlite3.Connection) -> None:
        """Some of what has ended goes, now and then, along with somebody's write."""
        now = self._clock.monotonic()
        gone = connection.execute(
            "DELETE FROM records WHERE version IN "
            "(SELECT version FROM records WHERE ends <= ? LIMIT ?)",
            (self._clock.time(), _SWEEP_MOST),
        ).rowcount
        self._sweep_at = now if gone == _SWEEP_MOST else now + _SWEEP_EVERY


class _Reader:
    """What the reading thread does."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None

    def run(self, batch: Sequence[_Job]) -> Sequence[Any]:
        return [self._one(job) for job in batch]

    def end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _one(self, job: _Job) -> Any:
        try:
            if self._connection is None:
                self._connection = self._file.reader()
            return job(self._connection)
        except Exception as fault:  # noqa: BLE001 - whatever it is, who waits must hear of it
            if from_outside(fault):
                self.end()
            return self._file.translated(fault)


def _outcome(job: _Job, connection: sqlite3.Connection) -> Any:
    """A job that is refused has written nothing: the others of its batch go on."""
    try:
        return job(connection)
    except CallError as refused:
        return refused


def _nothing(connection: sqlite3.Connection) -> None:
    connection.execute("SELECT version FROM schema").fetchone()


def _get(space: str, key: str, now: float, connection: sqlite3.Connection) -> Record | None:
    row = connection.execute(
        "SELECT value, version FROM records "
        "WHERE space = ? AND key = ? AND (ends IS NULL OR ends > ?)",
        (space, key, now),
    ).fetchone()
    return None if row is None else Record(msgspec.json.decode(row[0]), row[1])


def _put(
    space: str,
    key: str,
    body: bytes | None,
    version: int | None,
    now: float,
    ends: float | None,
    connection: sqlite3.Connection,
) -> int | None:
    row = connection.execute(
        "SELECT version FROM records WHERE space = ? AND key = ? AND (ends IS NULL OR ends > ?)",
        (space, key, now),
    ).fetchone()
    known: int = 0 if row is None else row[0]
    if version is not None and version != known:
        return None
    if body is None:
        connection.execute("DELETE FROM records WHERE space = ? AND key = ?", (space, key))
        return known + 1
    return connection.execute(
        "INSERT OR REPLACE INTO records (space, key, value, ends) VALUES (?, ?, ?, ?)",
        (space, key, body, ends),
    ).lastrowid


def _scan(
    space: str, prefix: str, after: str, limit: int, now: float, connection: sqlite3.Connection
) -> Sequence[tuple[str, Record]]:
    bound = behind(prefix)
    bounded = "" if bound is None else "AND key < :bound "
    rows = connection.execute(
        "SELECT key, value, version FROM records "  # noqa: S608 - one of two constants
        f"WHERE space = :space AND key >= :prefix AND key > :after {bounded}"
        "AND (ends IS NULL OR ends > :now) ORDER BY key LIMIT :limit",
        {
            "space": space,
            "prefix": prefix,
            "after": after,
            "bound": bound,
            "now": now,
            "limit": max(0, limit),
        },
    )
    return [(key, Record(msgspec.json.decode(value), version)) for key, value, version in rows]


def _append(lines: Sequence[Line], connection: sqlite3.Connection) -> None:
    there: dict[tuple[str, int], bytes] = {}
    for writer in {line.writer for line in lines}:
        numbers = [line.number for line in lines if line.writer == writer]
        rows = connection.execute(  # mostly none: a line comes again only after a fault
            "SELECT number, CAST(body AS BLOB) FROM journal "
            "WHERE writer = ? AND number BETWEEN ? AND ?",
            (writer, min(numbers), max(numbers)),
        )
        there |= {(writer, number): body for number, body in rows}
    connection.executemany(
        "INSERT INTO journal (writer, number, body) VALUES (?, ?, ?)",
        [(line.writer, line.number, line.body) for line in unwritten(lines, there)],
    )


def _lines(
    after: int, limit: int, writer: str | None, connection: sqlite3.Connection
) -> Sequence[Line]:
    of_writer = "" if writer is None else "writer = :writer AND "
    rows = connection.execute(
        f"SELECT {_LINE} FROM journal WHERE {of_writer}position > :after "  # noqa: S608 - one of two constants
        "ORDER BY position LIMIT :limit",
        {"writer": writer, "after": after, "limit": max(0, limit)},
    )
    return [Line(*row) for row in rows]


def _head(writer: str, connection: sqlite3.Connection) -> Line | None:
    row = connection.execute(
        f"SELECT {_LINE} FROM journal WHERE writer = ? ORDER BY number DESC LIMIT 1",  # noqa: S608 - a constant
        (writer,),
    ).fetchone()
    return None if row is None else Line(*row)


def _prune(writer: str, before: int, connection: sqlite3.Connection) -> int:
    return connection.execute(
        "DELETE FROM journal WHERE position IN "
        "(SELECT position FROM journal WHERE writer = ? AND number < ? ORDER BY number LIMIT ?)",
        (writer, before, _PRUNE_MOST),
    ).rowcount
