"""A store that is opened when it is first needed: by whom, how often, and what if it cannot be."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolpost.contracts import Health, Line, Prunes
from toolpost.errors import ConfigError, Unavailable
from toolpost.stores.lazy import LazyStore
from toolpost.stores.memory import MemoryStore
from toolpost.stores.sqlite import SqliteStore
from toolpost.testing import check_store

pytestmark = pytest.mark.anyio
FENCE = 60


class Slow(MemoryStore):
    """Counts how often it is opened and closed; opening waits for a word."""

    def __init__(self) -> None:
        super().__init__()
        self.opened, self.closed = 0, 0
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def open(self) -> None:
        self.opened += 1
        self.begun.set()
        await self.go.wait()

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / ".toolpost" / "store.db"


async def test_nothing_is_made_before_somebody_needs_it(file: Path) -> None:
    store = LazyStore(SqliteStore(file))
    assert (store.there, file.parent.exists()) == (False, False)
    assert await store.get("s", "k") is None
    assert (store.there, file.exists()) == (True, True)
    await store.close()


async def test_one_that_nobody_needed_is_closed_without_being_made(file: Path) -> None:
    store = LazyStore(SqliteStore(file))
    await store.close()
    assert not file.parent.exists()


async def test_it_is_opened_once_however_many_want_it_at_once() -> None:
    slow = Slow()
    store = LazyStore(slow)
    async with asyncio.timeout(FENCE), asyncio.TaskGroup() as group:
        puts = [group.create_task(store.put("s", f"{i}", i)) for i in range(20)]
        await slow.begun.wait()
        assert not any(one.done() for one in puts)
        slow.go.set()
    assert (slow.opened, len(await store.scan("s"))) == (1, 20)
    await store.close()
    assert slow.closed == 1


async def test_who_gives_up_while_it_is_opened_does_not_take_it_from_the_others() -> None:
    slow = Slow()
    store = LazyStore(slow)
    first = asyncio.ensure_future(store.get("s", "k"))
    second = asyncio.ensure_future(store.get("s", "k"))
    async with asyncio.timeout(FENCE):
        await slow.begun.wait()
        first.cancel()
        slow.go.set()
        assert await second is None
    assert first.cancelled()


async def test_it_is_closed_after_it_was_opened_even_if_both_are_wanted_at_once() -> None:
    slow = Slow()
    store = LazyStore(slow)
    wanting = asyncio.ensure_future(store.open())
    async with asyncio.timeout(FENCE):
        await slow.begun.wait()
        closing = asyncio.ensure_future(store.close())
        slow.go.set()
        await asyncio.gather(wanting, closing)
    assert (slow.opened, slow.closed) == (1, 1)
    with pytest.raises(Unavailable, match="closed"):
        await store.get("s", "k")
    assert slow.opened == 1


async def test_a_folder_that_cannot_be_made_is_told_to_people_and_tried_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "state").touch()
    store = LazyStore(SqliteStore(tmp_path / "state" / "store.db"))
    with pytest.raises(Unavailable) as told:  # a caller may be a model: no path, no setting
        await store.get("s", "k")
    assert str(tmp_path) not in str(told.value)
    with pytest.raises(ConfigError, match=r'state = "…".* store = \{ kind = "memory" \}'):
        await store.open()
    assert store.problem is not None and str(tmp_path / "state") in store.problem
    (tmp_path / "state").unlink()
    assert await store.get("s", "k") is None
    assert store.problem is None
    await store.close()


async def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    store = LazyStore(SqliteStore(tmp_path / "store.db"))
    with pytest.raises(Unavailable) as told:
        await store.open()
    assert str(tmp_path) not in str(told.value)
    assert store.problem == f"{tmp_path / 'store.db'}: {told.value}"


async def test_how_it_is_can_be_asked_and_nothing_is_made_for_it(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "store.db"
    store = LazyStore(SqliteStore(file))
    assert await store.health() == Health(True)
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").touch()
    told = await store.health()
    assert (told.healthy, str(file.parent) in str(told.error)) == (False, True)
    (tmp_path / "a").unlink()
    await store.open()
    assert await store.health() == Health(True)
    file.rename(tmp_path / "moved.db")
    told = await store.health()
    assert (told.healthy, "its file is gone" in str(told.error)) == (False, True)
    await store.close()


async def filled(file: Path, lines: int = 50) -> None:
    store = LazyStore(SqliteStore(file))
    await store.append([Line("w", number + 1, b"x" * 1000) for number in range(lines)])
    await store.put("s", "k", 1)
    await store.close()


async def test_a_damaged_file_is_found_when_it_is_verified(file: Path) -> None:
    await filled(file)
    store = LazyStore(SqliteStore(file))
    await store.verify()
    assert await store.health() == Health(True)
    await store.close()
    with file.open("r+b") as stream:  # in the middle, where nobody may look for days
        stream.truncate(file.stat().st_size // 2)
    store = LazyStore(SqliteStore(file))
    store.verify_soon()
    while store.damage is None:
        await asyncio.sleep(0.01)
    told = await store.health()
    assert (told.healthy, "damaged" in str(told.error)) == (False, True)
    assert "restore a copy" in str(told.error)
    await store.close()


async def test_damage_that_a_caller_meets_is_told_by_health_from_then_on(file: Path) -> None:
    await filled(file)
    store = LazyStore(SqliteStore(file))
    await store.verify()
    await store.open()
    with file.open("r+b") as stream:
        size = file.stat().st_size
        stream.seek(size // 3)
        stream.write(os.urandom(size - size // 3))
    with pytest.raises(Unavailable, match="damaged") as told:
        await store.read()
    assert (told.value.remedy, told.value.retryable) == ("stop", False)
    assert told.value.retry_after is None
    health = await store.health()
    assert (health.healthy, "restore a copy" in str(health.error)) == (False, True)
    await store.close()


async def test_an_opening_that_failed_slowly_is_not_waited_for_by_each_user() -> None:
    class Hanging(MemoryStore):
        tries = 0

        async def open(self) -> None:
            self.tries += 1
            await asyncio.sleep(1)
            raise Unavailable("it does not answer")

    hanging = Hanging()
    store = LazyStore(hanging)
    for _ in range(10):
        with pytest.raises(Unavailable, match="it does not answer"):
            await store.get("s", "k")
    assert hanging.tries < 5
    while hanging.tries < 2:  # and in the end it is tried again
        with pytest.raises(Unavailable):
            await store.get("s", "k")
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["emptied", "removed", "older copy"])
async def test_a_store_that_lost_data_says_so_until_a_person_accepts_it(
    file: Path, how: str
) -> None:
    await filled(file, 5)
    old = file.read_bytes()
    store = LazyStore(SqliteStore(file))
    await store.append([Line("w", number + 6, b"x") for number in range(5)])
    await store.close()
    assert store.loss is None
    if how == "removed":
        file.unlink()
    else:
        file.write_bytes(b"" if how == "emptied" else old)
    for _ in range(2):  # a restart changes nothing
        store = LazyStore(SqliteStore(file))
        await store.open()
        assert "it had 10 journal lines" in str(store.loss)
        assert "toolpost doctor --accept-loss" in str(store.loss)
        assert await store.health() == Health(True)  # what it has now, it keeps
        await store.close()
    store.accept_loss()
    store = LazyStore(SqliteStore(file))
    await store.open()
    assert store.loss is None
    await store.close()


async def test_what_a_probe_wrote_must_be_what_it_reads() -> None:
    class Forgetful(MemoryStore):
        async def put(self, space: str, key: str, value: Any, **more: Any) -> int | None:
            return 1

    told = await LazyStore(Forgetful()).health()
    assert (told.healthy, "not read back" in str(told.error)) == (False, True)


async def test_what_the_store_is_like_is_not_hidden() -> None:
    forgets = LazyStore(MemoryStore())
    assert (forgets.volatile, forgets.there, isinstance(forgets, Prunes)) == (True, True, True)
    await forgets.append([Line("w", 1, b"a"), Line("w", 2, b"b")])
    await forgets.prune("w", before=2)
    assert [line.body for line in await forgets.read(writer="w")] == [b"b"]


async def test_it_is_a_store_like_the_one_inside_but_for_its_end(file: Path) -> None:
    report = await check_store(lambda: LazyStore(SqliteStore(file)))
    assert [one.name for one in report.failed] == ["reopening"], str(report)


FORKED = """
import asyncio, os
from toolpost.errors import Unavailable
from toolpost.stores.lazy import LazyStore
from toolpost.stores.memory import MemoryStore

used, unused = LazyStore(MemoryStore()), LazyStore(MemoryStore())
asyncio.run(used.put("s", "k", 1))

async def child():
    try:
        await used.get("s", "k")
    except Unavailable as fault:
        print(fault, await unused.get("s", "k"), flush=True)
    await used.close()

if pid := os.fork():
    os.waitpid(pid, 0)
    print("parent", asyncio.run(used.get("s", "k")).value)
else:
    asyncio.run(child())
    os._exit(0)
"""


async def test_a_forked_process_does_not_use_what_its_parent_has_opened() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=FENCE, check=True
    )
    child, parent = done.stdout.splitlines()
    assert "before this process was forked off" in child and child.endswith(" None")
    assert parent == "parent 1"
