"""Specs from a table, in SQLite and in PostgreSQL: what is right is taken, what was right stays."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.stores.server import Server, running_server
from toolpost import Config, ConfigError, MissingPart, Runtime, SourceError
from toolpost.digest import canonical
from toolpost.sources.database import DatabaseSource
from toolpost.sources.tables import Row, Table, password_in, shown, table_at
from toolpost.sources.tables import postgres as in_postgres
from toolpost.sources.tables import sqlite as in_sqlite
from toolpost.spec import spec_from

pytestmark = pytest.mark.anyio
server = pytest.fixture(scope="module")(running_server)
FENCE = 60
TOOL = {
    "name": "ask",
    "description": "Ask.",
    "kind": "http",
    "binding": {"url": "https://api.example.com/"},
}


def row(name: str = "ask", **fields: Any) -> Row:
    spec = spec_from({**TOOL, "name": name, **fields})
    return Row(name, canonical(spec.to_dict()).decode(), spec.digest)


def ignore(done: int, total: int) -> None:
    pass


class Database:
    """A table somewhere, as seen by who writes into it, and past us by hand."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder

    def table(self) -> Table:
        return table_at(self.url, base=self.folder)

    async def push(self, *rows: Row, gone: tuple[str, ...] = ()) -> None:
        table = self.table()
        try:
            await table.write(rows, gone=gone, seen=list(await table.rows() or ()))
        finally:
            await table.close()

    async def sql(self, statement: str) -> list[tuple[Any, ...]]:
        if self.url.startswith("sqlite"):
            connection = sqlite3.connect(self.folder / self.url.removeprefix("sqlite:///"))
            try:
                with connection:
                    return connection.execute(statement).fetchall()
            finally:
                connection.close()
        connection = await asyncpg.connect(self.url)
        try:
            return [tuple(one) for one in await connection.fetch(statement)]
        finally:
            await connection.close()

    def source(self, **options: Any) -> DatabaseSource:
        given = {"url": self.url, "interval": 0.1, **options}
        return DatabaseSource.from_config(given, self.folder)

    def runtime(self, **options: Any) -> Runtime:
        given = {"kind": "database", "url": self.url, "interval": 0.1, **options}
        settings = {"sources": [given], "observers": [], "guards": []}
        return Runtime.open(Config.of(settings, base=self.folder))


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return Database("sqlite:///tools.db", tmp_path)
    server: Server = request.getfixturevalue("server")
    return Database(server.database(), tmp_path)


@pytest.fixture
async def source(database: Database) -> AsyncIterator[DatabaseSource]:
    made = database.source()
    yield made
    await made.close()


async def names(source: DatabaseSource) -> list[str]:
    return [spec.name for spec in await source.load(ignore)]


async def until(holds: Any) -> None:
    async with asyncio.timeout(FENCE):
        while not holds():
            await asyncio.sleep(0.02)


@pytest.mark.req("UX-2")
async def test_a_row_that_looks_like_another_is_the_only_one_that_is_missing(
    database: Database,
) -> None:
    await database.push(row("get_time"), row("ask"))
    async with database.runtime() as tools:
        await database.push(row("get-time"), row("tell"))  # it would come first
        await until(lambda: "tell" in tools.registry)
        assert [spec.name for spec in tools.list()] == ["ask", "get_time", "tell"]
        (problem,) = tools.problems.values()
        assert problem.endswith(
            "/toolpost_tools/get-time: it looks like 'get_time', which stays: make them easier to "
            "tell apart"
        )
        await database.push(gone=("get_time",))
        await until(lambda: "get-time" in tools.registry)
        assert [spec.name for spec in tools.list()] == ["ask", "get-time", "tell"]
        assert not tools.problems


async def test_a_row_that_is_not_taken_does_not_stand_in_the_way_of_one_that_looks_like_it(
    database: Database, source: DatabaseSource
) -> None:
    shell = {"kind": "shell", "binding": {"command": "true"}}
    await database.push(row("get-time", **shell), row("get_time"))
    assert await names(source) == ["get_time"]
    assert (source.problem, [*source.left_out]) == (None, ["get-time"])


@pytest.mark.req("UX-2")
async def test_what_is_pushed_is_there_without_a_restart(database: Database) -> None:
    await database.push(row("ask"), row("tell"))
    async with database.runtime() as tools:
        assert [spec.name for spec in tools.list()] == ["ask", "tell"]
        await database.push(row("ask", description="Ask anew."), gone=("tell",))
        await until(lambda: len(tools.list()) == 1)
        assert tools.list()[0].description == "Ask anew."
        assert tools.problems == {}


async def test_postgresql_tells_of_a_push_before_anybody_asks(
    server: Server, tmp_path: Path
) -> None:
    database = Database(server.database(), tmp_path)
    await database.push(row("ask"))
    source = database.source(interval=3600)
    await source.load(ignore)
    change = asyncio.ensure_future(anext(source.changes()))
    pushes = 0
    async with asyncio.timeout(FENCE):
        while not change.done():  # it may not listen yet when the first is told
            await database.push(row("ask", version=str(pushes := pushes + 1)))
            await asyncio.wait((change,), timeout=1)
    await source.close()


@pytest.mark.req("UX-2")
async def test_a_row_that_goes_wrong_keeps_its_tool_and_the_others_theirs(
    database: Database, source: DatabaseSource
) -> None:
    await database.push(row("ask"), row("tell"))
    assert await names(source) == ["ask", "tell"]
    await database.sql("UPDATE toolpost_tools SET spec = '{\"name\": 1}' WHERE name = 'ask'")
    await database.push(row("tell", description="Tell anew."))
    kept, changed = await source.load(ignore)
    assert (kept.description, changed.description) == ("Ask.", "Tell anew.")
    label = shown(database.url)
    assert source.problem == f"{label}/toolpost_tools/ask:1:1: tool '1' has no description"
    await database.push(row("ask"))
    assert await names(source) == ["ask", "tell"]
    assert source.problem is None


async def test_a_row_that_was_never_right_is_a_problem_and_hides_nobody(
    database: Database,
) -> None:
    await database.push(row("ask"), row("tell"))
    await database.sql("UPDATE toolpost_tools SET digest = 'sha256:00' WHERE name = 'ask'")
    async with database.runtime() as tools:
        assert [spec.name for spec in tools.list()] == ["tell"]
        (problem,) = tools.problems.values()
        assert "ask: it has the digest sha256:" in problem and "null" in problem
        assert not (await tools.health())["source 1 (database)"].healthy
        await database.sql("UPDATE toolpost_tools SET digest = NULL WHERE name = 'ask'")
        await until(lambda: [spec.name for spec in tools.list()] == ["ask", "tell"])
        assert not tools.problems


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({**TOOL, "name": "other"}, "ask:1:10: the column says 'ask'"),
        ({**TOOL, "tier": 9}, "tier of 'ask' must be 0"),
        ({**TOOL, "binding": {"url": "http://10.0.0.5/"}}, "10.0.0.5 is not a public address"),
        ({**TOOL, "description": "x" * 2_000_000}, "ask: longer than 1,048,576 bytes"),
    ],
)
async def test_a_row_is_held_to_what_a_file_is_held_to(
    database: Database, source: DatabaseSource, spec: Any, said: str
) -> None:
    await database.push(row("ask"), row("tell"))
    await database.sql("UPDATE toolpost_tools SET digest = NULL")
    text = json.dumps(spec)
    await database.sql(f"UPDATE toolpost_tools SET spec = '{text}' WHERE name = 'ask'")
    assert await names(source) == ["tell"]
    assert said in (source.problem or "")


async def test_many_wrong_rows_are_one_message(database: Database, source: DatabaseSource) -> None:
    await database.push(*(row(f"t{n}") for n in range(9)))
    await database.sql("UPDATE toolpost_tools SET digest = 'x'")
    assert await names(source) == []
    assert (source.problem or "").count("it has the digest") == 5
    assert (source.problem or "").endswith("; and 4 more")


async def test_a_disabled_row_is_no_tool_and_stays_disabled_when_it_is_pushed(
    database: Database, source: DatabaseSource
) -> None:
    await database.push(row("ask"), row("tell"))
    false = "false" if database.url.startswith("postgres") else "0"
    await database.sql(f"UPDATE toolpost_tools SET enabled = {false} WHERE name = 'ask'")
    assert await names(source) == ["tell"]
    await database.push(row("ask", description="Anew."))
    assert await names(source) == ["tell"]


async def test_what_the_table_asks_of_this_machine_it_has_to_be_granted(
    database: Database, source: DatabaseSource
) -> None:
    local = {"kind": "python", "binding": {"module": "m", "function": "f"}}
    await database.push(row("ask"), row("run", **local))
    assert await names(source) == ["ask"]
    assert source.left_out.keys() == {"run"}
    granted = database.source(kinds=["http", "python"])
    assert await names(granted) == ["ask", "run"]
    await granted.close()


async def test_a_table_that_is_not_there_says_how_to_make_it(
    database: Database, source: DatabaseSource
) -> None:
    with pytest.raises(SourceError, match="no table 'toolpost_tools': make it with: toolpost push"):
        await source.load(ignore)
    async with database.runtime() as tools:
        assert "toolpost push" in tools.problems["source 1 (database)"]
        await database.push(row("ask"))
        await until(lambda: not tools.problems)
        assert [spec.name for spec in tools.list()] == ["ask"]
    with pytest.raises(SourceError, match="there is no table"):
        async with database.runtime(table="other", required=True):
            pass


async def test_reading_cannot_write(server: Server, tmp_path: Path) -> None:
    (tmp_path / "tools.db").touch()
    file = in_sqlite.SqliteTable(tmp_path / "tools.db", table="t", patience=1)
    with file._connected("mode=ro") as connection, pytest.raises(sqlite3.OperationalError):
        connection.execute("CREATE TABLE x (y)")
    table = in_postgres.PostgresTable(server.database(), table="t", patience=10)
    async with table._reading() as session:
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await session.execute("CREATE TABLE x (y int)")
    await table.close()


async def test_a_server_that_comes_back_is_found_again(server: Server, tmp_path: Path) -> None:
    database = Database(server.database(), tmp_path)
    await database.push(row("ask"))
    async with database.runtime() as tools:
        server.stop()
        try:
            await until(lambda: tools.problems)
            assert [spec.name for spec in tools.list()] == ["ask"]
        finally:
            server.start()
        await until(lambda: not tools.problems)
        await database.push(row("ask"), row("tell"))
        await until(lambda: len(tools.list()) == 2)


async def test_a_file_that_is_replaced_is_seen(tmp_path: Path) -> None:
    database, other = (Database(f"sqlite:///{name}.db", tmp_path) for name in ("tools", "other"))
    await database.push(row("ask"))
    await other.push(row("tell"))
    async with database.runtime() as tools:
        (tmp_path / "other.db").replace(tmp_path / "tools.db")
        await until(lambda: [spec.name for spec in tools.list()] == ["tell"])


async def test_two_who_push_at_once_do_not_undo_each_other(database: Database) -> None:
    await database.push(row("ask"))
    table = database.table()
    seen = list(await table.rows() or ())
    await database.push(row("tell"))
    with pytest.raises(SourceError, match="somebody else has changed the table"):
        await table.write([], gone=["ask"], seen=seen)
    assert [one.name for one in await table.rows() or ()] == ["ask", "tell"]
    await table.close()


async def test_a_push_that_fails_half_way_has_written_nothing(database: Database) -> None:
    await database.push(row("ask"))
    table = database.table()
    bad = Row("tell", None)
    with pytest.raises(SourceError):
        await table.write(
            [row("ask", description="Anew."), bad], gone=[], seen=list(await table.rows() or ())
        )
    assert await table.rows() == [row("ask")]
    await table.close()


NEXT = ("ALTER TABLE {table} ADD COLUMN note text",)
"""The step after the last, as a later version would have it."""


async def migrated(database: Database, *more: Any) -> None:
    if database.url.startswith("sqlite"):
        connection = sqlite3.connect(database.folder / "tools.db", isolation_level=None)
        try:
            steps = (*in_sqlite.MIGRATIONS, *more)
            in_sqlite.migrate(connection, "toolpost_tools", steps)
        finally:
            connection.close()
        return
    session = await asyncpg.connect(database.url)
    try:
        steps = (*in_postgres.MIGRATIONS, *more)
        await in_postgres.migrate(session, "toolpost_tools", steps)
    finally:
        await session.close()


async def test_a_table_is_brought_forward_with_all_it_holds(
    database: Database, source: DatabaseSource
) -> None:
    await database.push(row("ask"))
    for _ in range(2):
        await migrated(database, NEXT)
        assert await database.sql("SELECT version FROM toolpost_tools_version") == [(2,)]
    assert await database.sql("SELECT name, note FROM toolpost_tools") == [("ask", None)]
    assert await names(source) == ["ask"]
    with pytest.raises(SourceError, match=r"a newer toolpost \(version 2, this one knows 1\)"):
        await database.push(row("tell"))


async def test_somebody_elses_table_is_left_alone(database: Database) -> None:
    await database.sql("CREATE TABLE toolpost_tools (name text, price int)")
    with pytest.raises(SourceError):
        await database.push(row("ask"))
    assert await database.sql("SELECT * FROM toolpost_tools") == []


async def test_a_table_of_ones_own_making_will_do(database: Database) -> None:
    await database.sql(
        "CREATE TABLE toolpost_tools (name text, spec text, digest text, enabled boolean)"
    )
    text = json.dumps(TOOL)
    await database.sql(f"INSERT INTO toolpost_tools VALUES ('ask', '{text}', NULL, true)")
    source = database.source()
    assert await names(source) == ["ask"]
    await source.close()


async def test_more_rows_than_anybody_can_use_are_refused(database: Database) -> None:
    await database.push(row("ask"))
    await database.sql(
        "INSERT INTO toolpost_tools (name, spec) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
        "SELECT i + 1 FROM n WHERE i < 20001) SELECT 't' || i, '{}' FROM n"
    )
    source = database.source()
    with pytest.raises(SourceError, match="more than 20,000 rows"):
        await source.load(ignore)
    await source.close()


async def test_what_no_column_should_hold_is_one_rows_problem(tmp_path: Path) -> None:
    database = Database("sqlite:///tools.db", tmp_path)
    await database.push(row("ask"), row("tell"))
    await database.sql("UPDATE toolpost_tools SET spec = x'ff00', digest = 3 WHERE name = 'ask'")
    await database.sql("INSERT INTO toolpost_tools (name, spec) VALUES (x'ff', 7)")
    source = database.source()
    assert await names(source) == ["tell"]
    assert (source.problem or "").count("sqlite:///tools.db/toolpost_tools/") == 2
    await source.close()


async def test_a_password_is_in_no_message(tmp_path: Path) -> None:
    url = "postgresql://me:hunter2-hunter2@127.0.0.1:1/tools?password=hunter3-hunter3"
    source = DatabaseSource.from_config({"url_secret": "TOOLS_URL"}, tmp_path)
    source.authenticate({"TOOLS_URL": url}.get)
    with pytest.raises(SourceError) as fault:
        await source.load(ignore)
    assert fault.value.message.startswith("postgresql://me@127.0.0.1:1/tools: ")
    assert "hunter" not in fault.value.message
    unset = DatabaseSource.from_config({"url_secret": "TOOLS_URL"}, tmp_path)
    unset.authenticate(lambda _: None)
    with pytest.raises(SourceError, match="the secret TOOLS_URL is not set"):
        await unset.load(ignore)
    await unset.close()


@pytest.mark.parametrize(
    ("url", "told", "password"),
    [
        ("postgresql://u:p%40ss@h:1/d?sslmode=require", "postgresql://u@h:1/d", "p@ss"),
        ("postgresql://u:a@b@h/d", "postgresql://u@h/d", "a@b"),
        ("postgresql://h/d?password=p", "postgresql://h/d", "p"),
        ("postgresql:///d?host=/run", "postgresql:///d", None),
        ("sqlite:////srv/tools.db", "sqlite:////srv/tools.db", None),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, told: str, password: str | None) -> None:
    assert (shown(url), password_in(url)) == (told, password)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs url or"),
        ({"url": "sqlite:///a", "url_secret": "B"}, "needs url or"),
        ({"url": "mysql://h/d"}, "begins with sqlite:/// or postgresql://"),
        ({"url": "sqlite://tools.db"}, "named as sqlite:///tools.db"),
        ({"url": "sqlite:///tools.db?mode=rwc"}, "named as sqlite:///tools.db"),
        ({"url": "postgresql://u:p@h/d"}, "a password does not belong in the config"),
        ({"url": "sqlite:///a", "table": 'x"; DROP'}, "small letters, digits and _"),
        ({"url": "sqlite:///a", "interval": 0}, "interval is at least"),
        ({"url": "sqlite:///a", "timeout": -1}, "timeout is at least"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        DatabaseSource.from_config(options, tmp_path)


def test_without_the_driver_the_message_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delitem(sys.modules, "toolpost.sources.tables.postgres")
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(MissingPart, match=r'pip install "toolpost\[postgres\]"'):
        DatabaseSource.from_config({"url": "postgresql://h/d"}, tmp_path)
