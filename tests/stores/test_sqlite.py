"""The store in a file: private, up to date, whole after anything, shared by processes."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolpost import ConfigError, Runtime, Unavailable
from toolpost.contracts import Line, Record
from toolpost.stores.lane import Lane
from toolpost.stores.sqlite import SqliteStore, _Writer
from toolpost.stores.sqlite_file import MIGRATIONS, File

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parent.parent.parent
FENCE = 60


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, patience=0.2)
    await store.open()
    async with asyncio.timeout(FENCE):
        yield store
    await store.close()


def child(name: str, *arguments: str, before: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a child of ``children.py`` saw."""
    done = subprocess.run(
        [*before, sys.executable, "-m", "tests.stores.children", name, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * FENCE,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def raw(path: Path, statement: str, *values: Any) -> list[Any]:
    """Past the store, straight to the file."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


async def test_only_its_owner_can_read_the_file_and_what_lies_beside_it(
    store: SqliteStore, path: Path
) -> None:
    await store.append([Line("w", 1, b"x")])
    modes = {f.name: stat.S_IMODE(f.stat().st_mode) for f in path.parent.iterdir()}
    assert modes == {
        "store.db": 0o600,
        "store.db-wal": 0o600,
        "store.db-shm": 0o600,
        "store.db-note": 0o600,
    }
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_commit_waits_for_the_disk(store: SqliteStore) -> None:
    def settings(connection: sqlite3.Connection) -> list[Any]:
        names = ("journal_mode", "synchronous")
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    connection = File(store.path, 1).writer()
    assert settings(connection) == ["wal", 2]  # 2 is FULL
    connection.close()


async def test_an_old_file_is_brought_forward_with_all_it_holds(path: Path) -> None:
    path.parent.mkdir()
    old = sqlite3.connect(path)
    old.executescript(
        """
        CREATE TABLE schema (version INTEGER NOT NULL);
        INSERT INTO schema VALUES (1);
        CREATE TABLE records (
            version INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, key TEXT NOT NULL,
            value BLOB NOT NULL, ends REAL, UNIQUE (space, key));
        CREATE TABLE journal (
            position INTEGER PRIMARY KEY AUTOINCREMENT, writer TEXT NOT NULL,
            number INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (writer, number));
        INSERT INTO records VALUES (7, 's', 'k', CAST('{"a":1}' AS BLOB), NULL);
        INSERT INTO journal VALUES (3, 'w', 1, x'00ff');
        """
    )
    old.close()
    stores = [SqliteStore(path) for _ in range(5)]
    await asyncio.gather(*(one.open() for one in stores))
    assert await stores[0].get("s", "k") == Record({"a": 1}, 7)
    assert await stores[0].put("s", "k", 2, version=7) == 8
    assert await stores[0].read() == [Line("w", 1, b"\0\xff", 3)]
    for one in stores:
        await one.close()
    assert raw(path, "SELECT version FROM schema") == [(len(MIGRATIONS),)]
    fresh = SqliteStore(path.with_name("fresh.db"))
    await fresh.open()
    await fresh.close()
    look = "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    assert raw(path, look) == raw(fresh.path, look)


async def test_many_may_be_the_first_to_open_a_file(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(10)]
    await asyncio.gather(*(one.open() for one in stores))
    await asyncio.gather(*(one.put("s", str(i), i) for i, one in enumerate(stores)))
    assert len(await stores[0].scan("s")) == 10
    for one in stores:
        await one.close()


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE schema SET version = 99", "was written by a newer toolpost (schema 99"),
        ("DROP TABLE schema", "is the database of something else"),
        (None, "is not a SQLite file"),
    ],
)
async def test_a_file_that_is_not_ours_is_refused_and_left_alone(
    path: Path, statement: str | None, told: str
) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    if statement is None:
        path.write_bytes(b"a letter to my aunt, " * 100)
    else:
        raw(path, statement)
    before = path.read_bytes() if statement is None else raw(path, "SELECT * FROM sqlite_master")
    with pytest.raises(ConfigError) as caught:
        await store.open()
    assert told in caught.value.message
    after = path.read_bytes() if statement is None else raw(path, "SELECT * FROM sqlite_master")
    assert after == before
    with pytest.raises(Unavailable, match="not open"):
        await store.get("s", "k")


async def test_who_waits_too_long_for_another_process_is_told_and_goes_on_later(
    store: SqliteStore, path: Path
) -> None:
    await store.put("s", "k", 1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    outcomes = await asyncio.gather(
        store.put("s", "k", 2), store.append([Line("w", 1, b"x")]), return_exceptions=True
    )
    for outcome in outcomes:
        assert isinstance(outcome, Unavailable)
        assert "another process" in outcome.message
        assert str(path) not in outcome.message
        assert outcome.retryable
    assert await store.get("s", "k") == Record(1, 1)  # who reads does not wait
    other.execute("ROLLBACK")
    other.close()
    assert await store.put("s", "k", 2, version=1) == 2
    await store.append([Line("w", 1, b"x")])


@pytest.mark.parametrize("how", ["tmpfs", "limit"])
def test_a_full_disk_is_said_tears_nothing_and_is_over_when_there_is_room(
    how: str, tmp_path: Path
) -> None:
    namespace = ("--mount",) if os.geteuid() == 0 else ("--mount", "--user", "--map-root-user")
    before = ("unshare", *namespace) if how == "tmpfs" else ()
    seen = child("full", str(tmp_path / "disk"), how, before=before)
    assert len(seen["errors"]) == 1
    reason = {"tmpfs": "the disk is full", "limit": "file-size limit"}[how]
    assert reason in seen["errors"][0]
    assert (seen["sound"], seen["torn"]) == ("ok", [])
    assert len(seen["kept"]) > 5
    assert seen["found"] == seen["kept"]  # what was refused is not there, what was told is
    assert seen["readable"] == len(seen["kept"]) - 1
    full, relieved = seen["health"]
    if how == "tmpfs":
        assert (full["healthy"], "the disk is full" in full["error"]) == (False, True)
    else:  # a disk of two megabytes is as good as full
        assert relieved == {"healthy": True}


async def test_what_is_there_can_be_read_by_who_writes_nothing(
    store: SqliteStore, path: Path
) -> None:
    await store.put("s", "k", 1)
    reading = SqliteStore(path)
    await reading.open_to_read()
    assert await reading.get("s", "k") == Record(1, 1)  # what is in the log as well
    with pytest.raises(Unavailable, match="for reading only"):
        await reading.put("s", "k", 2)
    await store.put("s", "k", 3)
    assert await reading.get("s", "k") == Record(3, 2)
    await reading.close()


async def test_who_only_reads_makes_no_file(tmp_path: Path) -> None:
    reading = SqliteStore(tmp_path / "store.db")
    with pytest.raises(Unavailable, match="cannot be"):
        await reading.open_to_read()
    assert list(tmp_path.iterdir()) == []


async def test_a_schema_of_another_day_is_not_read_by_guess(tmp_path: Path) -> None:
    raw(tmp_path / "store.db", "CREATE TABLE schema AS SELECT 0 AS version")
    with pytest.raises(ConfigError, match="has schema 0"):
        await SqliteStore(tmp_path / "store.db").open_to_read()


@pytest.mark.parametrize("log", ["whole", "gone", "alone"])
def test_on_a_read_only_disk_nothing_is_shown_but_what_is_so(log: str, tmp_path: Path) -> None:
    """With the log beside the file, after a crash; without one; with one that cannot be read."""
    namespace = ("--mount",) if os.geteuid() == 0 else ("--mount", "--user", "--map-root-user")
    seen = child("read_only", str(tmp_path / "disk"), log, before=("unshare", *namespace))
    assert "its file system is read-only" in seen["closed"]
    found = {"whole": [1, 2], "gone": [1, 2], "alone": None}
    assert seen["found"] == found[log]


def test_of_racing_processes_one_wins_each_time(tmp_path: Path) -> None:
    seen = child("race", str(tmp_path), "4", "50")
    assert seen == {"failed": 0, "value": 200, "won": list(range(1, 201))}


def test_killed_in_the_middle_of_a_write_sixty_times_nothing_told_is_lost(tmp_path: Path) -> None:
    seen = child("crash", str(tmp_path), "60")
    assert (seen["lost"], seen["unsound"]) == ([], [])
    assert seen["told"] >= 60
    assert seen["unclean"] == 60  # each of them left work behind


async def test_what_has_ended_is_removed_a_bounded_number_at_a_time(path: Path) -> None:
    clock = Clock()
    store = SqliteStore(path, clock=clock)
    await store.open()
    await asyncio.gather(*(store.put("s", f"{i}", i, ttl=10) for i in range(1200)))
    await store.put("s", "stays", 1)

    def count() -> int:
        left: int = raw(path, "SELECT count(*) FROM records")[0][0]
        return left

    assert count() == 1201
    clock.now += 31
    counts = []
    for _ in range(4):
        await store.put("s", "stays", 1)
        counts.append(count())
    assert counts == [701, 201, 1, 1]
    await store.close()


async def test_many_lines_are_pruned_piece_by_piece(store: SqliteStore) -> None:
    await store.append([Line("w", n, b"x") for n in range(1, 12_001)])
    await store.prune("w", before=11_999)
    assert [line.number for line in await store.read(writer="w")] == [11_999, 12_000]


async def test_a_removed_file_is_noticed(store: SqliteStore, path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))
    for _ in range(2):
        with pytest.raises(Unavailable, match="its file is gone"):
            await store.append([Line("w", 1, b"x")])
    path.with_name("elsewhere.db").rename(path)
    await store.append([Line("w", 1, b"x")])


async def test_a_damaged_file_is_said(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await asyncio.gather(*(store.put("s", f"{i}", "x" * 1000) for i in range(200)))
    await store.close()
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 4096 * 20)
    with pytest.raises(Unavailable, match="its file is damaged"):
        await store.open()
        await store.scan("s")
    await store.close()


async def test_damage_to_one_table_leaves_the_other_of_use(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.put("s", "k", 1)
    await store.close()
    ((page,),) = raw(path, "SELECT rootpage FROM sqlite_master WHERE name = 'journal'")
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    await store.open()
    for _ in range(2):
        with pytest.raises(Unavailable, match="its file is damaged"):
            await store.read()
        assert await store.get("s", "k") == Record(1, 1)
    await store.close()


async def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = SqliteStore(tmp_path / "file" / "store.db")
    with pytest.raises(ConfigError, match=r'nothing can be kept in .*/file: .* state = "…"'):
        await store.open()


async def test_what_was_handed_over_is_written_before_the_end(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(Unavailable, match="not open"):
        await store.put("s", "k", 1)
    await store.open()
    writing = [asyncio.ensure_future(store.put("s", f"{i}", i)) for i in range(100)]
    await asyncio.sleep(0)
    await store.close()
    assert None not in await asyncio.gather(*writing)
    with pytest.raises(Unavailable, match="not open"):
        await store.get("s", "k")
    await store.open()
    assert len(await store.scan("s")) == 100
    await store.close()
    assert {f.name for f in path.parent.iterdir()} == {
        "store.db",
        "store.db-note",
    }  # closed cleanly


async def test_several_loops_share_one_handle(store: SqliteStore) -> None:
    async def write(name: str) -> None:
        await asyncio.gather(*(store.put("s", f"{name}{i}", i) for i in range(50)))

    threads = [threading.Thread(target=asyncio.run, args=(write(n),)) for n in "abc"]
    for thread in threads:
        thread.start()
    await write("d")
    for thread in threads:
        await asyncio.to_thread(thread.join, FENCE)
    assert len(await store.scan("s")) == 200


async def test_a_loop_that_has_ended_is_no_reason_to_stop(store: SqliteStore) -> None:
    async def leave() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.stop)
        await store.put("s", "left", 1)

    def thread() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(leave())
        loop.run_forever()
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()

    await asyncio.to_thread(thread)
    assert await store.put("s", "k", 1)
    assert await store.get("s", "left") is not None


async def test_one_bad_write_does_not_spoil_those_beside_it(path: Path) -> None:
    writer = _Writer(File(path, 1), Clock())

    def good(connection: sqlite3.Connection) -> str:
        connection.execute("INSERT INTO records (space, key, value) VALUES ('s', 'k', 'v')")
        return "done"

    def too_large(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO journal (writer, number, body) VALUES ('w', 1, 1)")
        connection.execute("SELECT zeroblob(2000000000)").fetchone()

    def odd(connection: sqlite3.Connection) -> None:
        raise ZeroDivisionError

    outcomes = writer.run([too_large, good, odd])
    writer.end()
    assert isinstance(outcomes[0], Unavailable)
    assert outcomes[1] == "done"
    assert isinstance(outcomes[2], ZeroDivisionError)
    assert raw(path, "SELECT count(*) FROM records") == [(1,)]
    assert raw(path, "SELECT count(*) FROM journal") == [(0,)]


async def test_what_gathers_during_one_batch_is_the_next() -> None:
    batches: list[int] = []
    going = threading.Event()

    def run(batch: Any) -> list[Any]:
        batches.append(len(batch))
        assert going.wait(FENCE)
        return [job(None) for job in batch]

    lane: Lane[None] = Lane("test", run, lambda: batches.append(0))
    first = asyncio.ensure_future(lane.do(lambda _: "first"))
    while not batches:
        await asyncio.sleep(0.001)
    rest = [asyncio.ensure_future(lane.do(lambda _, i=i: i)) for i in range(1500)]
    await asyncio.sleep(0)
    going.set()
    assert await first == "first"
    assert await asyncio.gather(*rest) == list(range(1500))
    await lane.stop()
    assert batches == [1, 1000, 500, 0]
    with pytest.raises(Unavailable, match="closed"):
        await lane.do(lambda _: "late")


async def test_a_fault_of_a_batch_reaches_all_who_wait() -> None:
    def run(batch: Any) -> list[Any]:
        raise OSError("no disk")

    lane: Lane[None] = Lane("test", run, lambda: None)
    async with asyncio.timeout(FENCE):
        outcomes = await asyncio.gather(
            lane.do(lambda _: 1), lane.do(lambda _: 2), return_exceptions=True
        )
    assert [type(outcome) for outcome in outcomes] == [OSError, OSError]
    await lane.stop()


async def test_a_config_names_it_and_it_lies_in_the_state_folder(tmp_path: Path) -> None:
    file = tmp_path / "toolpost.toml"
    file.write_text('[store]\nkind = "sqlite"\n')
    for value in (1, 2):
        async with Runtime.open(file) as tools:
            there = await tools.store.get("s", "k")
            assert (there.value if there else 0) == value - 1
            await tools.store.put("s", "k", value)
    assert (tmp_path / ".toolpost" / "store.db").exists()


def test_a_misspelt_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'path'"):
        SqliteStore.from_config({"pth": "x"}, tmp_path)


async def test_attack_a_line_that_was_made_another_type_is_read_as_a_changed_line(
    path: Path, store: SqliteStore
) -> None:
    await store.append([Line("w", number, b'{"to": "eve"}') for number in (1, 2)])
    with sqlite3.connect(path) as edited:
        edited.execute("UPDATE journal SET body = replace(body, 'eve', 'bob') WHERE number = 1")
        edited.execute("UPDATE journal SET number = 'abc' WHERE number = 2")
    lines = await store.read()
    assert [(line.number, line.body) for line in lines] == [
        (1, b'{"to": "bob"}'),
        (0, b'{"to": "eve"}'),
    ]
    assert (await store.head("w")) is not None
