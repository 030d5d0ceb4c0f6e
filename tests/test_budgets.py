"""What a session may still do, drawn by several processes from one store: never more than all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

import pytest

from toolpost.budgets import Budgets, Purse
from toolpost.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio
SPACE, KEY = "budgets", "s1"


class Meanwhile(MemoryStore):
    """Before the next ``put``, something else happens: another process is as fast."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Callable[[], Awaitable[object]] | None = None

    async def put(
        self,
        space: str,
        key: str,
        value: Any,
        *,
        version: int | None = None,
        ttl: float | None = None,
    ) -> int | None:
        first, self.first = self.first, None
        if first is not None:
            await first()
        return await super().put(space, key, value, version=version, ttl=ttl)


async def spent(store: MemoryStore) -> list[float]:
    record = await store.get(SPACE, KEY)
    assert record is not None
    value: list[float] = record.value
    return value


@pytest.mark.parametrize(("calls", "cost"), [(10, 0), (0, 10), (10, 10)])
async def test_of_two_that_draw_at_once_each_gets_its_own_portion(calls: int, cost: int) -> None:
    store = Meanwhile()
    one, two = (Budgets(calls, cost, records=store) for _ in range(2))
    mine, theirs = one.purse(), two.purse()
    store.first = lambda: two.draw(theirs, KEY, 1.0)
    assert await one.draw(mine, KEY, 1.0) is None
    drawn = [2.0 if calls else 0.0, 2.0 if cost else 0.0]
    assert await spent(store) == pytest.approx(drawn)


@pytest.mark.parametrize("processes", [1, 3])
async def test_however_many_draw_no_session_gets_more_than_its_budget(processes: int) -> None:
    store = MemoryStore()
    houses = [Budgets(100, 30, records=store) for _ in range(processes)]
    purses = [house.purse() for house in houses]

    async def work(house: Budgets, purse: Purse) -> int:
        done = 0
        while purse.pay(0.5) or await house.draw(purse, KEY, 0.5) is None:
            done += 1
        return done

    counts = await asyncio.gather(*map(work, houses, purses))
    assert sum(counts) == 60  # 30 units at a half each; calls would last longer


async def test_who_has_no_calls_left_is_told_so_and_who_has_no_units_how_many_are_spent() -> None:
    store = MemoryStore()
    few, dear = Budgets(2, 0, records=store), Budgets(0, 5, records=store)
    purse = few.purse()
    said = [purse.pay(1) or await few.draw(purse, "a", 1) for _ in range(3)]
    assert said == [None, None, "calls"]
    purse = dear.purse()
    assert await dear.draw(purse, "b", 4) is None
    assert await dear.draw(purse, "b", 4) == 4
    assert await dear.draw(purse, "b", 1) is None


async def test_without_records_a_purse_is_the_whole_budget() -> None:
    house = Budgets(2, 3, records=None)
    purse = house.purse()
    assert purse.pay(1) and not purse.pay(2.5)
    assert await house.draw(purse, KEY, 2.5) == 1  # spent
    assert purse.pay(2) and not purse.pay(0)
    assert await house.draw(purse, KEY, 0) == "calls"
    await house.settle([purse])  # nothing to give back to
    assert (Budgets(0, 0, records=None).purse().calls, purse.calls) == (inf, 0)


async def test_what_was_drawn_and_not_spent_is_given_back_whoever_draws_meanwhile() -> None:
    store = Meanwhile()
    one, two = (Budgets(32, 32, records=store) for _ in range(2))
    mine, theirs = one.purse(), two.purse()
    assert await one.draw(mine, KEY, 1) is None
    assert await spent(store) == [2, 2]
    store.first = lambda: two.draw(theirs, KEY, 1)
    await one.settle([mine])
    assert await spent(store) == [1 + 1, pytest.approx(1 + 1.875)]
    assert not mine.pay(1)
    await one.settle([mine])  # once is enough
    await two.settle([theirs])
    assert await spent(store) == [2, 2]


async def test_what_was_drawn_of_a_budget_that_is_forgotten_is_not_given_back() -> None:
    store = MemoryStore()
    house = Budgets(32, 0, records=store)
    purse = house.purse()
    assert await house.draw(purse, KEY, 0) is None
    await store.put(SPACE, KEY, None)
    await house.settle([purse])
    assert await store.get(SPACE, KEY) is None
