"""The store that forgets does not grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolpost import ConfigError, InvalidArguments
from toolpost.contracts import Line
from toolpost.stores.memory import MemoryStore
from toolpost.testing import Clock

pytestmark = pytest.mark.anyio


def size(store: MemoryStore) -> tuple[int, int]:
    return sum(map(len, store._records.values())), len(store._ending)


async def test_what_has_ended_makes_room_as_new_records_come() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    for i in range(5000):
        await store.put(f"space{i % 7}", f"{i}", i, ttl=10)
        clock.advance(0.1)
    assert size(store) <= (120, 120)
    assert await store.get(f"space{4999 % 7}", "4999") is not None


async def test_a_record_that_is_put_again_and_again_is_one_record() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    for i in range(10_000):
        await store.put("s", "k", i, ttl=1000)
        await store.put("s", f"other{i % 5}", i, ttl=100)
    records, ends = size(store)
    assert records == 6
    assert ends < 3000
    clock.advance(200)
    await store.put("s", "new", 1)
    assert await store.get("s", "k") is not None
    assert await store.get("s", "other1") is None


async def test_a_record_put_again_without_an_end_outlives_its_old_one() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    await store.put("s", "k", 1, ttl=1)
    await store.put("s", "k", 2)
    clock.advance(5)
    await store.put("s", "other", 1)
    record = await store.get("s", "k")
    assert record is not None
    assert record.value == 2


async def test_of_the_journal_the_last_lines_are_kept() -> None:
    store = MemoryStore.from_config({"lines": 10}, Path())
    for number in range(1, 101):
        await store.append([Line("w", number, b"x")])
    numbers = [line.number for line in await store.read()]
    assert 10 <= len(numbers) <= 20
    assert numbers == list(range(101 - len(numbers), 101))
    assert [line.position for line in await store.read(after=98)] == [99, 100]
    head = await store.head("w")
    assert head is not None
    assert head.number == 100


async def test_what_no_store_can_take_is_refused() -> None:
    store = MemoryStore()
    with pytest.raises(InvalidArguments, match="not a number"):
        await store.put("s", "k", 1, ttl=float("nan"))
    with pytest.raises(InvalidArguments, match="counted from 1"):
        await store.append([Line("w", 0, b"x")])
    with pytest.raises(ConfigError, match="did you mean 'lines'"):
        MemoryStore.from_config({"line": 1}, Path())


async def test_of_large_lines_fewer_are_kept() -> None:
    store = MemoryStore(size=1000)
    for number in range(1, 101):
        await store.append([Line("w", number, b"x" * 100)])
    kept = [line.number for line in await store.read()]
    assert kept == list(range(kept[0], 101))
    assert 10 <= len(kept) <= 20
    await store.append([Line("w", 101, b"x" * 5000)])
    assert [line.number for line in await store.read()] == [101]
