"""A table of specs in PostgreSQL.

Above: ``tables``. Below: asyncpg, the extra ``postgres``. A reader has a session that cannot write,
and listens: whoever pushes tells it, so that it need not ask often.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]

from toolpost.errors import SourceError
from toolpost.sources.tables import CHANGED, MOST_BYTES, MOST_ROWS, Row, password_in, shown

MIGRATIONS: Final = (
    (  # 1
        """CREATE TABLE {table} (
            name text COLLATE "C" PRIMARY KEY,
            spec json NOT NULL,
            digest text,
            enabled boolean NOT NULL DEFAULT true,
            updated timestamptz NOT NULL DEFAULT now()
        )""",
    ),
)
"""The statements that lead from each version of the table to the next; only ever added to."""

_ROWS: Final = (
    "SELECT name, CASE WHEN octet_length(spec::text) <= $1 THEN spec::text END, digest, enabled "
    'FROM {table} ORDER BY name COLLATE "C" LIMIT $2'
)
_FINGERPRINT: Final = (
    "SELECT md5(string_agg(concat_ws(' ', name, md5(spec::text), digest, enabled), ',' "
    "ORDER BY name)) FROM {table}"
)
_PUT: Final = (
    "INSERT INTO {table} (name, spec, digest) "
    "SELECT * FROM unnest($1::text[], $2::json[], $3::text[]) ON CONFLICT (name) DO UPDATE "
    "SET spec = excluded.spec, digest = excluded.digest, updated = now()"
)
_LOCK: Final = 0x746F6F6D
"""Which advisory lock: one that pushes waits for another."""
_FAULTS: Final = (
    asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError, ValueError
)  # fmt: skip


class PostgresTable:
    """The table at a URL; ``patience`` are the seconds that the server may take to answer."""

    def __init__(self, url: str, *, table: str, patience: float) -> None:
        self._url, self._table, self._patience = url, table, patience
        self._connection: Any = None
        self._listening = False
        self._lock = asyncio.Lock()
        self._news = asyncio.Event()

    async def rows(self) -> Sequence[Row] | None:
        async with self._reading() as connection:
            return await self._read(connection)

    async def fingerprint(self) -> object:
        async with self._reading() as connection:
            if not await _has(connection, self._table):
                return None
            return await connection.fetchval(_FINGERPRINT.format(table=self._table))

    async def wait(self, seconds: float) -> None:
        """Until it is told of news, or for so long."""
        with contextlib.suppress(SourceError):  # then it only waits
            async with self._reading() as connection:
                if not self._listening:
                    await connection.add_listener(self._table, self._hear)
                    self._listening = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()

    async def write(self, rows: Sequence[Row], *, gone: Sequence[str], seen: Sequence[Row]) -> None:
        with self._told():
            connection = await self._connect(read_only=False)
            try:
                async with connection.transaction():
                    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
                    await migrate(connection, self._table)
                    await connection.execute(f"LOCK TABLE {self._table} IN EXCLUSIVE MODE")
                    if await self._read(connection) != seen:
                        raise SourceError(f"{shown(self._url)}: {CHANGED}")
                    columns = ([r.name for r in rows], [r.spec for r in rows])
                    put = _PUT.format(table=self._table)
                    await connection.execute(put, *columns, [r.digest for r in rows])
                    remove = f"DELETE FROM {self._table} WHERE name = ANY($1)"  # noqa: S608 - a name that was checked
                    await connection.execute(remove, list(gone))
                    await connection.execute("SELECT pg_notify($1, '')", self._table)
            finally:
                await connection.close(timeout=self._patience)

    async def close(self) -> None:
        async with self._lock:
            await self._forget()

    def _hear(self, *_: object) -> None:
        self._news.set()

    async def _read(self, connection: Any) -> Sequence[Row] | None:
        if not await _has(connection, self._table):
            return None
        query = _ROWS.format(table=self._table)
        rows = await connection.fetch(query, MOST_BYTES, MOST_ROWS + 1)
        if len(rows) > MOST_ROWS:
            raise SourceError(f"{shown(self._url)}: the table has more than {MOST_ROWS:,} rows")
        return [Row(*row) for row in rows]

    @contextlib.asynccontextmanager
    async def _reading(self) -> AsyncIterator[Any]:
        async with self._lock:
            with self._told():
                try:
                    if self._connection is None or self._connection.is_closed():
                        self._listening = False
                        self._connection = await self._connect(read_only=True)
                    yield self._connection
                except _FAULTS:
                    await self._forget()
                    raise

    async def _connect(self, *, read_only: bool) -> Any:
        settings = {"application_name": "toolpost"}
        if read_only:
            settings["default_transaction_read_only"] = "on"
        return await asyncpg.connect(
            self._url,
            timeout=self._patience,
            command_timeout=self._patience,
            server_settings=settings,
        )

    async def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            with contextlib.suppress(*_FAULTS):
                await connection.close(timeout=self._patience)

    @contextlib.contextmanager
    def _told(self) -> Any:
        try:
            yield
        except _FAULTS as fault:
            said = str(fault) or type(fault).__name__
            if password := password_in(self._url):
                said = said.replace(password, "…")
            raise SourceError(f"{shown(self._url)}: {said}") from None


async def migrate(
    connection: Any, table: str, migrations: Sequence[Sequence[str]] = MIGRATIONS
) -> None:
    """Whatever is missing of the table, inside the transaction that is open."""
    kept = f"{table}_version"
    if not await _has(connection, kept):
        if await _has(connection, table):
            raise SourceError(f"there is a table {table!r} already, and it is not ours")
        await connection.execute(f"CREATE TABLE {kept} (version int NOT NULL)")
        await connection.execute(f"INSERT INTO {kept} VALUES (0)")  # noqa: S608 - a name that was checked
    version: int = await connection.fetchval(f"SELECT version FROM {kept}")  # noqa: S608 - as above
    if version > len(migrations):
        raise SourceError(
            f"the table {table!r} was made by a newer toolpost (version {version}, this one knows "
            f"{len(migrations)}): upgrade this one"
        )
    for statements in migrations[version:]:
        for statement in statements:
            await connection.execute(statement.format(table=table))
    if version < len(migrations):
        await connection.execute(f"UPDATE {kept} SET version = $1", len(migrations))  # noqa: S608 - as above


async def _has(connection: Any, name: str) -> bool:
    return await connection.fetchval("SELECT to_regclass($1)", name) is not None
