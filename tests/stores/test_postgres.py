"""The store in PostgreSQL, against a server that the tests start: shared, in order, patient."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.stores.server import Server, running_server
from toolpost import ConfigError, MissingPart, Unavailable
from toolpost.contracts import Line, Record
from toolpost.plugins import load
from toolpost.stores.lazy import LazyStore
from toolpost.stores.postgres import MIGRATIONS, PostgresStore

pytestmark = pytest.mark.anyio
server = pytest.fixture(scope="module")(running_server)
FENCE = 60


@pytest.fixture
def dsn(server: Server) -> str:
    return server.database()


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(dsn)
    await store.open()
    async with asyncio.timeout(FENCE):
        yield store
    await store.close()


async def raw(dsn: str, *statements: str) -> Any:
    """Past the store, straight to the server."""
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            found = await connection.fetch(statement)
        return [tuple(row) for row in found]
    finally:
        await connection.close()


async def test_an_old_schema_is_brought_forward_with_all_it_holds(dsn: str) -> None:
    await raw(
        dsn,
        "CREATE SCHEMA toolpost",
        "SET search_path TO toolpost",
        "CREATE TABLE schema_version (version int NOT NULL)",
        "INSERT INTO schema_version VALUES (1)",
        "CREATE SEQUENCE versions",
        """CREATE TABLE records (space text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL,
            version bigint NOT NULL DEFAULT nextval('versions'), value bytea NOT NULL,
            ends timestamptz, PRIMARY KEY (space, key))""",
        """CREATE TABLE journal (position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            writer text COLLATE "C" NOT NULL, number bigint NOT NULL, body bytea NOT NULL,
            UNIQUE (writer, number))""",
        "INSERT INTO records (space, key, value) VALUES ('s', 'k', '[1]')",
        r"INSERT INTO journal (writer, number, body) VALUES ('w', 1, '\x00ff')",
    )
    stores = [PostgresStore(dsn) for _ in range(4)]
    await asyncio.gather(*(one.open() for one in stores))
    assert await stores[0].get("s", "k") == Record([1], 1)
    assert await stores[0].put("s", "k", 2, version=1) == 2
    assert await stores[0].read() == [Line("w", 1, b"\0\xff", 1)]
    for one in stores:
        await one.close()
    assert await raw(dsn, "SELECT version FROM toolpost.schema_version") == [(len(MIGRATIONS),)]
    other = PostgresStore(dsn, schema="fresh")
    await other.open()
    await other.close()
    look = "SELECT indexdef FROM pg_indexes WHERE schemaname = '{}' ORDER BY indexname"
    ours, fresh = await raw(dsn, look.format("toolpost")), await raw(dsn, look.format("fresh"))
    assert ours == [(line.replace("fresh.", "toolpost."),) for (line,) in fresh]


async def test_a_newer_schema_is_refused(dsn: str, store: PostgresStore) -> None:
    await raw(dsn, "UPDATE toolpost.schema_version SET version = 99")
    with pytest.raises(ConfigError, match="was written by a newer toolpost"):
        await PostgresStore(dsn).open()


async def test_schemas_of_one_database_are_apart(dsn: str, store: PostgresStore) -> None:
    other = PostgresStore(dsn, schema="other")
    await other.open()
    await store.put("s", "k", 1)
    assert await other.get("s", "k") is None
    await other.close()


async def test_who_reads_on_from_a_position_misses_no_line(dsn: str) -> None:
    stores = [PostgresStore(dsn, connections=2) for _ in range(3)]
    await asyncio.gather(*(one.open() for one in stores))
    seen: list[Line] = []

    async def write(store: PostgresStore, writer: str) -> None:
        for number in range(1, 101):
            await store.append([Line(writer, number, b"x")])

    async def follow(store: PostgresStore) -> None:
        while len(seen) < 600:
            seen.extend(await store.read(after=seen[-1].position if seen else 0))

    async with asyncio.timeout(FENCE):
        writing = [write(one, f"{i}{j}") for i, one in enumerate(stores) for j in range(2)]
        await asyncio.gather(follow(stores[0]), *writing)
    assert len({(line.writer, line.number) for line in seen}) == 600
    for one in stores:
        await one.close()


async def test_processes_that_race_have_one_winner_each_time(dsn: str) -> None:
    program = """
import asyncio, sys
from toolpost.stores.lazy import LazyStore
from toolpost.stores.postgres import PostgresStore

async def main():
    store = PostgresStore(sys.argv[1])
    await store.open()
    won = 0
    while won < 30:
        there = await store.get("race", "k")
        value, version = (there.value, there.version) if there else (0, 0)
        won += await store.put("race", "k", value + 1, version=version) is not None
    await store.close()

asyncio.run(main())
"""
    racing = [subprocess.Popen([sys.executable, "-c", program, dsn]) for _ in range(3)]
    assert [await asyncio.to_thread(one.wait, FENCE) for one in racing] == [0, 0, 0]
    store = PostgresStore(dsn)
    await store.open()
    record = await store.get("race", "k")
    assert record is not None
    assert record.value == 90
    await store.close()


async def test_a_killed_server_is_said_and_it_goes_on_when_it_is_back(
    server: Server, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(dsn, patience=10)
    await store.open()
    await store.put("s", "k", 1)
    await store.append([Line("w", 1, b"x")])
    server.stop(signal.SIGQUIT)  # at once, without a word to anybody
    try:
        for doing in (
            store.get("s", "k"),
            store.put("s", "k", 2),
            store.append([Line("w", 2, b"x")]),
            store.scan("s"),
            store.read(),
            store.head("w"),
        ):
            with pytest.raises(Unavailable, match="What must be kept cannot be") as caught:
                await doing
            assert caught.value.retryable
        with pytest.raises(Unavailable):
            await PostgresStore(dsn, patience=1).open()
    finally:
        server.start()
    assert await store.get("s", "k") == Record(1, 1)
    await store.append([Line("w", 2, b"x")])
    assert len(await store.read()) == 2
    await store.close()


async def test_a_server_that_stops_answering_is_waited_for_once_and_logged_in_a_line(
    server: Server, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(dsn, patience=3)
    await store.open()
    await store.put("s", "k", 1)
    waited: list[float] = []
    with server.suspended():
        for doing in (store.get("s", "k"), store.append([Line("w", 1, b"x")])):
            begun = time.monotonic()
            with pytest.raises(Unavailable, match="does not answer"):
                await doing
            waited.append(time.monotonic() - begun)
        await asyncio.wait_for(_until(lambda: "asyncpg.pool" in caplog.text), 60)
    assert min(waited) < 5.5, "it waits for its patience, and not once more to give up"
    assert all(record.exc_info is None and not record.exc_text for record in caplog.records)
    assert (await store.get("s", "k")) == Record(1, 1)
    await store.close()


DROP = "DROP SCHEMA toolpost CASCADE"


@pytest.mark.parametrize("how", ["get", "put", "create", "append"])
@pytest.mark.parametrize("recreated", [True, False])
async def test_a_schema_that_was_replaced_under_a_running_store_is_not_written_to(
    dsn: str, tmp_path: Path, how: str, recreated: bool
) -> None:
    config = {"dsn": dsn}
    running = LazyStore(PostgresStore.from_config(config, tmp_path))
    await running.put("s", "k", 1)
    await running.append([Line("w", 1, b"x")])
    await raw(dsn, DROP)
    if recreated:  # by somebody on another machine, who has come further than this one had
        other = PostgresStore(dsn)
        await other.open()
        for number in range(1, 9):
            await other.put("s", f"other-{number}", number)
            await other.append([Line("other", number, b"x")])
        await other.close()
    if how == "put":
        doing: Any = running.put("s", "k", 2)
    elif how == "create":
        doing = running.put("s", "k", 2, version=0)
    elif how == "append":
        doing = running.append([Line("w", 2, b"x")])
    else:
        doing = running.health() if recreated else running.get("s", "k")
    if how == "get" and recreated:
        await doing
    else:
        with pytest.raises(Unavailable, match="restart the program") as told:
            await doing
        assert (told.value.remedy, told.value.retryable) == ("stop", False)
    health = await running.health()
    assert (health.healthy, "dropped" in str(health.error)) == (False, True)
    await running.close()
    if recreated:
        assert await raw(dsn, "SELECT count(*) FROM toolpost.records WHERE key = 'k'") == [(0,)]


async def test_a_server_that_came_back_with_an_older_copy_is_noticed(
    dsn: str, tmp_path: Path
) -> None:
    running = LazyStore(PostgresStore.from_config({"dsn": dsn}, tmp_path))
    for number in range(5):
        await running.put("s", "k", number)
    await raw(
        dsn,
        "SELECT setval('toolpost.versions', 1)",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'toolpost' AND datname = current_database()",
    )
    assert not (await running.health()).healthy
    health = await running.health()
    assert (health.healthy, "older copy" in str(health.error)) == (False, True)
    await running.close()


@pytest.mark.parametrize("how", ["dropped", "older copy"])
async def test_a_schema_that_lost_data_says_so_until_a_person_accepts_it(
    dsn: str, tmp_path: Path, how: str
) -> None:
    def made() -> LazyStore:
        return LazyStore(PostgresStore.from_config({"dsn": dsn}, tmp_path / "state"))

    store = made()
    await store.put("s", "k", 1)
    await store.append([Line("w", number + 1, b"x") for number in range(10)])
    await store.close()
    store = made()
    await store.open()
    assert store.loss is None
    await store.close()
    older = "SELECT setval('toolpost.journal_position_seq', 3)"
    await raw(dsn, DROP if how == "dropped" else older)
    for _ in range(2):  # a restart changes nothing
        store = made()
        await store.open()
        assert "it had 10 journal lines" in str(store.loss)
        assert "toolpost doctor --accept-loss" in str(store.loss)
        await store.close()
    made().accept_loss()
    store = made()
    await store.open()
    assert store.loss is None
    await store.close()


def test_the_note_belongs_to_the_place_and_not_to_the_password(tmp_path: Path) -> None:
    def note(dsn: str, schema: str = "toolpost") -> Path | None:
        return PostgresStore.from_config({"dsn": dsn, "schema": schema}, tmp_path)._note

    mine = note("postgresql://a@h/d")
    assert mine == note("postgresql://b@h/d") and mine is not None and mine.parent == tmp_path
    others = {
        note("postgresql://a@h/e"),
        note("postgresql://a@i/d"),
        note("postgresql://a@h/d", "x"),
    }
    assert len({mine, *others}) == 4


async def test_a_command_waits_once_for_a_server_that_does_not_answer(
    server: Server, dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "tools_of_the_test.py").write_text("async def send(to): return to\n")
    (tmp_path / "tools.yaml").write_text(
        "- name: send\n  description: Send something.\n  tier: 2\n"
        "  input_schema: {type: object, properties: {to: {type: string}}}\n"
        "  binding: {module: tools_of_the_test, function: send}\n"
    )
    (tmp_path / "toolpost.toml").write_text(
        f'[store]\nkind = "postgres"\ndsn = "{dsn}"\npatience = 6.0\n'
        '[[sources]]\nkind = "files"\npaths = ["tools.yaml"]\n'
    )
    words = ["-m", "toolpost", "call", "send", "--key", "k", "to=ann"]

    async def called() -> tuple[int | None, str]:
        child = await asyncio.create_subprocess_exec(
            sys.executable, *words, cwd=tmp_path, stdout=-1, stderr=-1
        )
        out, err = await asyncio.wait_for(child.communicate(), FENCE)
        return child.returncode, (out + err).decode()

    code, told = await called()
    assert (code, "ann" in told) == (0, True), told
    begun = time.monotonic()
    with server.suspended():
        code, told = await called()
    waited = time.monotonic() - begun
    assert code != 0
    assert "TimeoutError" not in told
    assert waited < 20, f"each user of the store has waited by itself: {told}"


async def test_what_the_driver_itself_gets_wrong_is_unavailable(dsn: str) -> None:
    store = PostgresStore(dsn, patience=5)
    await store.open()
    pool, store._pool = store._pool, _Broken()
    with pytest.raises(Unavailable, match="What must be kept cannot be"):
        await store.get("s", "k")
    store._pool = pool
    await store.close()


class _Broken:
    """A pool in a state that only a fault of the driver brings about."""

    async def acquire(self, *, timeout: float) -> Any:
        raise asyncpg.InternalClientError("got result for unknown protocol state 3")


async def _until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.02)


async def test_a_journal_that_another_keeps_locked_is_said(dsn: str) -> None:
    store = PostgresStore(dsn, patience=0.5)
    await store.open()
    connection = await asyncpg.connect(dsn)
    async with connection.transaction():
        await connection.execute("LOCK TABLE toolpost.journal")
        outcomes = await asyncio.gather(
            *(store.append([Line("w", n, b"x")]) for n in (1, 2, 3)), return_exceptions=True
        )
        assert [type(one) for one in outcomes] == [Unavailable] * 3
        assert len({id(one) for one in outcomes}) == 3
    await connection.close()
    await store.append([Line("w", 1, b"x")])
    await store.close()


async def test_what_has_ended_is_removed_a_bounded_number_at_a_time(dsn: str) -> None:
    store = PostgresStore(dsn)
    await store.open()
    await store.put("s", "first", 1)
    await asyncio.gather(*(store.put("s", f"{i}", i, ttl=0) for i in range(700)))
    counts = []
    for _ in range(3):
        store._sweep_at = 0
        await store.put("s", "first", 1)
        counts += await raw(dsn, "SELECT count(*) FROM toolpost.records")
    assert counts == [(201,), (1,), (1,)]
    await store.close()


async def test_what_was_handed_over_is_written_before_the_end(dsn: str) -> None:
    store = PostgresStore(dsn)
    for doing in (store.get("s", "k"), store.append([Line("w", 1, b"x")])):
        with pytest.raises(Unavailable, match="not open"):
            await doing
    await store.open()
    writing = [asyncio.ensure_future(store.append([Line("w", i, b"x")])) for i in range(1, 50)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*writing)
    await store.open()
    assert len(await store.read()) == 49
    await store.close()


async def test_a_server_that_refuses_us_is_a_matter_of_the_config(server: Server) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        await PostgresStore(server.dsn.replace("/postgres?", "/nowhere?")).open()


PASSWORD = "a password does not belong in the config"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "store postgres needs dsn_secret"),
        ({"dsn": "postgresql://u:hunter2@h/d"}, PASSWORD),
        ({"dsn": "postgresql://u@h/d?password=hunter2"}, PASSWORD),
        ({"dsn": "postgresql://h/d", "dsn_secret": "X"}, "not both"),
        ({"dsn_secret": "TEST_NO_SUCH_DSN"}, "the environment has no variable 'TEST_NO_SUCH_DSN'"),
        ({"dsn": "postgresql://h/d", "schema": 'a"b'}, "is no name for a schema"),
        ({"dns": "postgresql://h/d"}, "did you mean 'dsn'"),
    ],
)
def test_a_config_that_cannot_be_right_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PostgresStore.from_config(options, Path())
    assert told in caught.value.message
    assert "hunter2" not in caught.value.message


@pytest.mark.req("NA-3")
async def test_the_config_has_the_name_of_a_variable_and_the_environment_the_secret(
    dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_STORE_DSN", dsn)
    store = PostgresStore.from_config({"dsn_secret": "TEST_STORE_DSN"}, tmp_path)
    await store.open()
    assert await store.put("s", "k", 1) == 1
    await store.close()


def test_without_the_driver_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "toolpost.stores.postgres")
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(MissingPart, match=r'pip install "toolpost\[postgres\]"'):
        load("stores", "postgres")


async def test_a_connection_that_somebody_keeps_does_not_keep_the_store_open(dsn: str) -> None:
    store = PostgresStore(dsn, patience=0.5)
    await store.open()
    async with asyncio.timeout(FENCE), store._pool.acquire():
        await store.close()
