"""A store in PostgreSQL: shared by processes on any number of hosts.

The server's clock says what has ended, for the hosts' clocks differ. Lines that several tasks
append meanwhile go into one transaction. One transaction at a time appends to the journal, in all
processes: positions are in the order of commits, so whoever reads on from a position misses none.

Below: asyncpg, the extra ``postgres``. It refuses to know what is kept in it. Its messages go to
models; what the server said is in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

import asyncpg  # type: ignore[import-untyped]
import msgspec

from toolpost.contracts import Line, Record
from toolpost.environ import secret
from toolpost.errors import CallError, ConfigError, InvalidArguments, Unavailable
from toolpost.options import Options, options_from
from toolpost.stores.integrity import (
    Counters,
    accept_loss,
    check_continuity,
    read_loss,
    write_note,
)
from toolpost.stores.kept import (
    behind,
    checked,
    encoded,
    lifetime,
    lined,
    ranged,
    unwritable,
    unwritten,
)

_log = logging.getLogger("toolpost.store")

MIGRATIONS: Final = (
    (  # 1
        "CREATE SEQUENCE versions",
        # one sequence for all, and never a number twice: the version of a record that is gone
        # does not come back with its successor
        """CREATE TABLE records (
            space text COLLATE "C" NOT NULL,
            key text COLLATE "C" NOT NULL,
            version bigint NOT NULL DEFAULT nextval('versions'),
            value bytea NOT NULL,
            ends timestamptz,
            PRIMARY KEY (space, key)
        )""",
        """CREATE TABLE journal (
            position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            writer text COLLATE "C" NOT NULL,
            number bigint NOT NULL,
            body bytea NOT NULL,
            UNIQUE (writer, number)
        )""",
    ),
    (  # 2: what ends next is found, and a writer's lines are, without reading all
        "CREATE INDEX records_ends ON records (ends) WHERE ends IS NOT NULL",
        "CREATE INDEX journal_writer ON journal (writer, position)",
    ),
    (  # 3: lines are appended in one round trip; the lock comes first, so that positions are in
        # the order of commits
        """CREATE FUNCTION append_lines(writers text[], numbers bigint[], bodies bytea[], lock int)
        RETURNS void LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_advisory_xact_lock(lock, to_regclass('journal')::oid::int);
            INSERT INTO journal (writer, number, body)
            SELECT new.writer, new.number, new.body
            FROM unnest(writers, numbers, bodies) WITH ORDINALITY AS new (writer, number, body, nth)
            ORDER BY new.nth;
        END $$""",
    ),
)
"""The statements that lead from each version of the schema to the next; only ever added to."""

_LIVING: Final = "(ends IS NULL OR ends > clock_timestamp())"
_ENDS: Final = "clock_timestamp() + make_interval(secs => $4)"
_PUT: Final = (
    "INSERT INTO records (space, key, value, ends, version) "  # noqa: S608 - constants
    f"VALUES ($1, $2, $3, {_ENDS}, nextval($5::oid::regclass)) "
    "ON CONFLICT (space, key) DO UPDATE "
    "SET value = excluded.value, ends = excluded.ends, version = excluded.version"
)
"""The sequence by its number, which no other schema of that name has: what would be written to one
that took the place of ours fails.
"""
_CREATE: Final = f"{_PUT} WHERE records.ends <= clock_timestamp() RETURNING version"
_WRITE: Final = f"{_PUT} RETURNING version"
_REPLACE: Final = (
    f"UPDATE records SET value = $3, ends = {_ENDS}, version = nextval($5::oid::regclass) "  # noqa: S608 - constants
    f"WHERE space = $1 AND key = $2 AND version = $6 AND {_LIVING} RETURNING version"
)
_DELETE: Final = (
    f"DELETE FROM records WHERE space = $1 AND key = $2 AND version = $3 AND {_LIVING} "  # noqa: S608 - constants
    "RETURNING version"
)
_GET: Final = f"SELECT value, version FROM records WHERE space = $1 AND key = $2 AND {_LIVING}"  # noqa: S608 - constants
_SWEEP: Final = (
    "DELETE FROM records WHERE (space, key) IN (SELECT space, key FROM records "
    "WHERE ends <= now() LIMIT 500 FOR UPDATE SKIP LOCKED)"
)
_PRUNE: Final = (
    "DELETE FROM journal WHERE position IN "
    "(SELECT position FROM journal WHERE writer = $1 AND number < $2 ORDER BY number LIMIT $3)"
)
_APPEND: Final = "SELECT append_lines($1, $2, $3, $4) FROM pg_sequence WHERE seqrelid = $5"
"""Into our schema alone, as above."""
_COUNTERS: Final = (
    "SELECT to_regclass('versions')::oid, "
    "(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM versions), "
    "(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM journal_position_seq)"
)
_REPLACED: Final = "Its schema was dropped, replaced or restored from an older copy"
_LOST: Final = (
    "its schema was dropped, replaced or restored from an older copy while it was in use. Restore "
    "it, then restart the program"
)
_PRUNE_MOST: Final = 5000
_SWEEP_EVERY: Final = 30.0
_AT_ONCE: Final = 1000
_LOCK: Final = 0x746F6F6C
"""Which advisory lock; together with the schema's number it is this store's alone."""


_FAULTS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # with TimeoutError
)
"""What the server, the driver and the way between them may raise."""
_GONE: Final = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.InternalServerError,  # of a sequence whose number nothing has any longer
)
"""What the server says where the schema, or a part of it, is not there."""


def _drop_traceback(record: logging.LogRecord) -> bool:
    """The driver logs a traceback each time it cannot reach a server; its message is enough."""
    if record.exc_info:
        fault = record.exc_info[1]
        record.msg, record.args = f"{record.getMessage()}: {type(fault).__name__}: {fault}", ()
        record.exc_info = record.exc_text = None
    return True


logging.getLogger("asyncpg.pool").addFilter(_drop_traceback)


class PostgresOptions(Options, frozen=True, kw_only=True):
    """What ``[store]`` may say with ``kind = "postgres"``."""

    dsn: str | None = None
    dsn_secret: str | None = None
    schema: str = "toolpost"
    connections: int = 10
    patience: float = 10.0


class PostgresStore:
    """Records and a journal in one schema of a database, made there if it is missing.

    ``patience``: seconds to wait for a connection, and for each answer. ``note``: the file, without
    its ending, that remembers on this machine how far the store has come.
    """

    options = PostgresOptions

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "toolpost",
        connections: int = 10,
        patience: float = 10.0,
        note: Path | None = None,
    ) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
            raise ConfigError(
                f"{schema!r} is no name for a schema: small letters, digits, _", at=("schema",)
            )
        self._dsn, self._schema = dsn, schema
        self._connections, self._patience = connections, patience
        self._note = note
        self._pool: Any = None
        self._sequence: int | None = None
        """The number of the sequence of versions, which tells this schema from any other."""
        self._counters = Counters()
        self._newest = 0
        """The highest version that was written here."""
        self._is_lost = False
        self._opening = asyncio.Lock()
        self._appends: list[tuple[Sequence[Line], asyncio.Future[None]]] = []
        self._appending: asyncio.Task[None] | None = None
        self._sweep_at = 0.0

    @classmethod
    def from_config(cls, options: Mapping[str, Any], state: Path) -> Self:
        chosen = options_from(options, PostgresOptions, "store postgres")
        dsn = _dsn(chosen)
        return cls(
            dsn,
            note=state / _note_name(dsn, chosen.schema),
            schema=chosen.schema,
            connections=chosen.connections,
            patience=chosen.patience,
        )

    async def open(self) -> None:
        async with self._opening:
            if self._pool is not None:
                return
            self._sequence, self._is_lost = None, False
            with _translated():
                pool = asyncpg.create_pool(
                    self._dsn,
                    min_size=1,
                    max_size=self._connections,
                    timeout=self._patience,
                    command_timeout=self._patience,
                    init=self._check,
                    reset=_keep_session,
                    server_settings={"search_path": self._schema, "application_name": "toolpost"},
                )
                try:
                    await pool
                    async with pool.acquire() as connection:
                        await migrate(connection, self._schema)
                        await self._begin(connection)
                except BaseException:
                    pool.terminate()
                    raise
            self._pool = pool

    async def close(self) -> None:
        """What was handed over is still written."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        if self._appending is not None:
            await asyncio.wait([self._appending])
        try:
            async with asyncio.timeout(self._patience):
                with contextlib.suppress(*_FAULTS, Unavailable):
                    async with pool.acquire() as connection:
                        await self._check(connection)
                await pool.close()
        except TimeoutError:
            pool.terminate()

    @property
    def problem(self) -> str | None:
        return _LOST if self._is_lost else None

    @property
    def loss(self) -> str | None:
        """What the store once held and holds no longer, until a person accepts it."""
        return None if self._note is None else read_loss(self._note)

    def accept_loss(self) -> None:
        if self._note is not None:
            accept_loss(self._note)

    async def find_damage(self) -> str | None:
        """The server looks after its own files."""
        return None

    async def get(self, space: str, key: str) -> Record | None:
        checked(space, key)
        async with self._connection() as connection:
            row = await connection.fetchrow(_GET, space, key)
        return None if row is None else Record(msgspec.json.decode(row[0]), row[1])

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
        body, ttl = encoded(value), lifetime(ttl)
        async with self._connection() as connection:
            if value is None:
                return await _deleted(connection, space, key, version)
            if version is None:
                new = await connection.fetchval(_WRITE, space, key, body, ttl, self._sequence)
            elif version == 0:
                new = await connection.fetchval(_CREATE, space, key, body, ttl, self._sequence)
            else:
                new = await connection.fetchval(
                    _REPLACE, space, key, body, ttl, self._sequence, version
                )
            await self._sweep(connection)
        found: int | None = new
        if found is not None and found > self._newest:
            self._newest = found
        return found

    async def scan(
        self, space: str, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[tuple[str, Record]]:
        ranged(space, prefix, after)
        bound = behind(prefix)
        bounded = "" if bound is None else "AND key < $5 "
        query = (
            "SELECT key, value, version FROM records "  # noqa: S608 - constants
            f"WHERE space = $1 AND key >= $2 AND key > $3 {bounded}AND {_LIVING} "
            "ORDER BY key LIMIT $4"
        )
        values = [space, prefix, after, max(0, limit), *([] if bound is None else [bound])]
        async with self._connection() as connection:
            rows = await connection.fetch(query, *values)
        return [(key, Record(msgspec.json.decode(value), number)) for key, value, number in rows]

    async def append(self, lines: Sequence[Line]) -> None:
        if self._pool is None:
            raise Unavailable("The store is not open.")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._appends.append((lined(lines), future))
        if self._appending is None:
            self._appending = asyncio.create_task(self._append_all(self._pool))
        await future

    async def read(
        self, *, after: int = 0, limit: int = 1000, writer: str | None = None
    ) -> Sequence[Line]:
        of_writer = "" if writer is None else "writer = $3 AND "
        query = (
            f"SELECT writer, number, body, position FROM journal WHERE {of_writer}position > $1 "  # noqa: S608 - one of two constants
            "ORDER BY position LIMIT $2"
        )
        values = [after, max(0, limit), *([] if writer is None else [writer])]
        async with self._connection() as connection:
            rows = await connection.fetch(query, *values)
        return [Line(*row) for row in rows]

    async def head(self, writer: str) -> Line | None:
        query = (
            "SELECT writer, number, body, position FROM journal WHERE writer = $1 "
            "ORDER BY number DESC LIMIT 1"
        )
        async with self._connection() as connection:
            row = await connection.fetchrow(query, writer)
        return None if row is None else Line(*row)

    async def prune(self, writer: str, *, before: int) -> None:
        """The oldest first and piece by piece: none takes longer than anybody waits."""
        gone = ""
        while gone in ("", f"DELETE {_PRUNE_MOST}"):
            async with self._connection() as connection:
                gone = await connection.execute(_PRUNE, writer, before, _PRUNE_MOST)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        if self._pool is None:
            raise Unavailable("The store is not open.")
        with _translated():
            async with self._acquired(self._pool) as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def _acquired(self, pool: Any) -> AsyncIterator[Any]:
        """A connection to the schema that was opened, and to no other."""
        if self._is_lost:
            raise _lost()
        try:
            async with _acquire(pool, self._patience) as connection:
                yield connection
        except _GONE:
            async with _acquire(pool, self._patience) as connection:
                await self._check(connection)
            raise

    async def _begin(self, connection: Any) -> None:
        self._sequence, *counters = await connection.fetchrow(_COUNTERS)
        self._counters, self._newest = Counters(*counters), 0
        if self._note is not None:
            try:
                check_continuity(self._counters, self._note, _REPLACED)
            except OSError as fault:  # a loss that nobody would hear of
                raise unwritable(self._note.parent, fault.strerror or str(fault)) from fault

    async def _check(self, connection: Any) -> None:
        """Note how far the schema has come, if it is still the one that was opened."""
        if self._sequence is None:
            return
        try:
            sequence, *found = await connection.fetchrow(_COUNTERS)
        except _GONE:
            sequence, found = None, []
        now = Counters(*found)
        is_behind = now.is_behind(self._counters) or now.records < self._newest
        if sequence != self._sequence or is_behind:
            if not self._is_lost:
                _log.error("store postgres: %s", _LOST)
            self._is_lost = True
            raise _lost()
        self._counters = now
        if self._note is not None:
            write_note(self._note, now)

    async def _sweep(self, connection: Any) -> None:
        """Some of what has ended goes, now and then, after somebody's write."""
        if (now := time.monotonic()) < self._sweep_at:
            return
        self._sweep_at = now + _SWEEP_EVERY
        try:
            gone = await connection.execute(_SWEEP)
            await self._check(connection)
        except _FAULTS as fault:
            _log.warning("store: what has ended could not be removed: %s", fault)
        else:
            if gone == "DELETE 500":
                self._sweep_at = now

    async def _append_all(self, pool: Any) -> None:
        """Whatever has gathered, in one transaction after the other, until nothing waits."""
        batch: Sequence[tuple[Sequence[Line], asyncio.Future[None]]] = ()
        try:
            while batch := self._appends[:_AT_ONCE]:
                del self._appends[:_AT_ONCE]
                for (_, future), failed in zip(
                    batch, await self._appended(pool, batch), strict=True
                ):
                    if future.done():
                        continue
                    if failed is None:
                        future.set_result(None)
                    else:
                        future.set_exception(failed)
        finally:
            self._appending = None
            for _, future in (*batch, *self._appends):  # the loop ends: nobody is left waiting
                future.cancel()

    async def _appended(
        self, pool: Any, batch: Sequence[tuple[Sequence[Line], Any]]
    ) -> Sequence[Exception | None]:
        lines = [line for lines, _ in batch for line in lines]
        try:
            with _translated(), contextlib.suppress(asyncpg.UniqueViolationError):
                async with self._acquired(pool) as connection:
                    await self._insert(connection, lines)
                    return [None] * len(batch)
            return await self._append_anew(pool, batch)
        except Exception as fault:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            return [_again(fault) for _ in batch]

    async def _append_anew(
        self, pool: Any, batch: Sequence[tuple[Sequence[Line], Any]]
    ) -> Sequence[Exception | None]:
        """Some of the lines are there already: a line comes again after a fault."""
        outcomes: list[Exception | None] = []
        with _translated():
            async with self._acquired(pool) as connection, connection.transaction():
                await connection.execute(
                    "SELECT pg_advisory_xact_lock($1, to_regclass('journal')::oid::int)", _LOCK
                )
                there = await _there(connection, [one for lines, _ in batch for one in lines])
                fresh: list[Line] = []
                for lines, _ in batch:
                    try:
                        new = unwritten(lines, there)
                    except CallError as refused:
                        outcomes.append(refused)
                        continue
                    there.update({(line.writer, line.number): line.body for line in new})
                    fresh += new
                    outcomes.append(None)
                await self._insert(connection, fresh)
        return outcomes

    async def _insert(self, connection: Any, lines: Sequence[Line]) -> None:
        done = await connection.execute(_APPEND, *_columns(lines), _LOCK, self._sequence)
        if done != "SELECT 1":
            await self._check(connection)
            raise Unavailable("What must be kept cannot be: the lines were not appended.")


def _dsn(options: PostgresOptions) -> str:
    if options.dsn_secret is not None:
        if options.dsn is not None:
            raise ConfigError("say dsn or dsn_secret, not both", at=("dsn",))
        found = secret(options.dsn_secret)
        if not found:
            raise ConfigError(
                f"the environment has no variable {options.dsn_secret!r}: set it to the DSN, "
                "postgresql://user:password@host/database",
                at=("dsn_secret",),
            )
        return found
    if options.dsn is None:
        raise ConfigError(
            "store postgres needs dsn_secret (the name of an environment variable that has the "
            "DSN) or, if there is no password in it, dsn"
        )
    parts = urlsplit(options.dsn)
    if parts.password is not None or "password" in parse_qs(parts.query):
        raise ConfigError(
            "a password does not belong in the config: put the DSN into an environment variable "
            "and name that with dsn_secret",
            at=("dsn",),
        )
    return options.dsn


def _note_name(dsn: str, schema: str) -> str:
    """By the place alone: a new password, or another user, finds the same note."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    place = [parts.netloc.rpartition("@")[2], parts.path, schema]
    place += [
        value for name in ("host", "port", "dbname", "database") for value in query.get(name, [])
    ]
    return f"postgres-{hashlib.sha256(repr(place).encode()).hexdigest()[:16]}"


async def migrate(connection: Any, schema: str) -> None:
    """Whatever is missing of the schema, all or nothing, while other processes wait."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if await connection.fetchval("SELECT to_regclass('schema_version')") is None:
            if await connection.fetchval("SELECT to_regnamespace($1)", schema) is None:
                await connection.execute(f"CREATE SCHEMA {schema}")
            await connection.execute("CREATE TABLE schema_version (version int NOT NULL)")
            await connection.execute("INSERT INTO schema_version VALUES (0)")
        version: int = await connection.fetchval("SELECT version FROM schema_version")
        if version > len(MIGRATIONS):
            raise ConfigError(
                f"the schema {schema!r} was written by a newer toolpost (version {version}, this "
                f"one knows {len(MIGRATIONS)}): upgrade this one"
            )
        if version == len(MIGRATIONS):
            return
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                await connection.execute(statement)
        await connection.execute("UPDATE schema_version SET version = $1", len(MIGRATIONS))


async def _deleted(connection: Any, space: str, key: str, version: int | None) -> int | None:
    if version is None:
        old = await connection.fetchval(
            "DELETE FROM records WHERE space = $1 AND key = $2 RETURNING version", space, key
        )
        return (old or 0) + 1
    if version == 0:
        return 1 if await connection.fetchrow(_GET, space, key) is None else None
    old = await connection.fetchval(_DELETE, space, key, version)
    return None if old is None else old + 1


async def _there(connection: Any, lines: Sequence[Line]) -> dict[tuple[str, int], bytes]:
    rows = await connection.fetch(
        "SELECT writer, number, body FROM journal JOIN "
        "unnest($1::text[], $2::bigint[]) AS wanted (writer, number) USING (writer, number)",
        [line.writer for line in lines],
        [line.number for line in lines],
    )
    return {(writer, number): body for writer, number, body in rows}


def _columns(lines: Sequence[Line]) -> tuple[list[str], list[int], list[bytes]]:
    return (
        [line.writer for line in lines],
        [line.number for line in lines],
        [line.body for line in lines],
    )


async def _keep_session(_: Any) -> None:
    """Nothing here changes a session, so there is nothing to reset, which takes a round trip."""


@contextlib.asynccontextmanager
async def _acquire(pool: Any, patience: float) -> AsyncIterator[Any]:
    """A connection of the pool. One whose server does not answer is closed at once: to give it back
    in good order would take the same patience again.
    """
    connection = await pool.acquire(timeout=patience)
    try:
        yield connection
    except (TimeoutError, asyncio.CancelledError):
        connection.terminate()
        raise
    finally:
        await pool.release(connection, timeout=patience)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """The one table of what a server and the way to it may do."""
    try:
        yield
    except asyncpg.DataError as fault:
        raise InvalidArguments("The database cannot hold this value.") from fault
    except (
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
        asyncpg.InsufficientPrivilegeError,
        asyncpg.ClientConfigurationError,
    ) as fault:
        raise ConfigError(f"the PostgreSQL server refuses: {fault}") from fault
    except _FAULTS as fault:
        told = "no answer in time" if isinstance(fault, TimeoutError) else fault
        _log.error("store postgres: %s: %s", type(fault).__name__, told)
        why = "the disk is full" if isinstance(fault, asyncpg.DiskFullError) else _WHY
        raise Unavailable(f"What must be kept cannot be: {why}.", retry_after=1.0) from fault


def _lost() -> Unavailable:
    return Unavailable(f"What must be kept cannot be: {_LOST}.", retryable=False, remedy="stop")


_WHY: Final = "the database does not answer as it should; it is tried again with the next call"


def _again(fault: Exception) -> Exception:
    """The same for each of those who wait: one exception raised in many tasks gathers traces."""
    if isinstance(fault, CallError):
        return copy.copy(fault)
    return fault
