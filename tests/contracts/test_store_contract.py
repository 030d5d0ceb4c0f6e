"""The socket of stores: one suite over every occupant, and over what does not belong there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.stores.server import running_server
from toolpost.contracts import Line, Record, Store
from toolpost.stores.memory import MemoryStore
from toolpost.stores.postgres import PostgresStore
from toolpost.stores.sqlite import SqliteStore
from toolpost.testing import check_store

pytestmark = pytest.mark.anyio
server = pytest.fixture(scope="module")(running_server)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Gives handles on one store."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "state" / "store.db")
    dsn = request.getfixturevalue("server").database()
    return lambda: PostgresStore(dsn)


async def test_every_occupant_keeps_the_contract(make: Callable[[], Store]) -> None:
    (await check_store(make)).raise_if_failed()


async def test_what_is_there_already_does_not_matter(make: Callable[[], Store]) -> None:
    for _ in range(2):
        (await check_store(make)).raise_if_failed()


async def test_a_write_whose_caller_has_gone_away_harms_nobody(make: Callable[[], Store]) -> None:
    store = make()
    await store.open()
    async with asyncio.timeout(30):
        gone = [asyncio.ensure_future(store.append([Line("w", i, b"x")])) for i in range(1, 20)]
        await asyncio.sleep(0)
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        await store.append([Line("w", 20, b"x")])
        assert [line.number for line in await store.read(writer="w")] == list(range(1, 21))
    await store.close()


class Broken(MemoryStore):
    """Does one thing wrong."""


class CountsPerKey(Broken):
    """A successor begins with 1 again: who knew the old 1 takes it for his."""

    async def put(self, space: str, key: str, value: Any, **options: Any) -> int | None:
        if value is not None and await self.get(space, key) is None:
            self._versions = iter(range(1, 1000))  # type: ignore[assignment]
        return await super().put(space, key, value, **options)


class LastWins(Broken):
    async def put(self, space: str, key: str, value: Any, **options: Any) -> int | None:
        options.pop("version", None)
        return await super().put(space, key, value, **options)


class LooksThenWrites(Broken):
    async def put(
        self, space: str, key: str, value: Any, *, version: int | None = None, **options: Any
    ) -> int | None:
        there = await self.get(space, key)
        if version not in (None, there.version if there else 0):
            return None
        await asyncio.sleep(0)
        return await super().put(space, key, value, **options)


class NeverEnds(Broken):
    async def put(
        self, space: str, key: str, value: Any, *, ttl: float | None = None, **options: Any
    ) -> int | None:
        return await super().put(space, key, value, **options)


class SharesValues(Broken):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Any, Any] = {}

    async def put(self, space: str, key: str, value: Any, **options: Any) -> int | None:
        done = await super().put(space, key, value, **options)
        if done is not None:
            self.values[space, key] = value
        return done

    async def get(self, space: str, key: str) -> Record | None:
        found = await super().get(space, key)
        return found and msgspec.structs.replace(found, value=self.values[space, key])


class Unsorted(Broken):
    async def scan(self, space: str, **options: Any) -> Sequence[tuple[str, Record]]:
        return list(reversed(await super().scan(space, **options)))


class ReplacesLines(Broken):
    async def append(self, lines: Sequence[Line]) -> None:
        for line in lines:
            self._numbers.pop((line.writer, line.number), None)
        await super().append(lines)


class LosesLines(Broken):
    async def append(self, lines: Sequence[Line]) -> None:
        await super().append(lines[:1])


class PrunesTooMuch(Broken):
    async def prune(self, writer: str, *, before: int) -> None:
        await super().prune(writer, before=before + 1)


class Forgets(Broken):
    async def close(self) -> None:
        self._records.clear()


@pytest.mark.parametrize(
    ("store", "failed"),
    [
        (CountsPerKey, {"deletion"}),
        (LastWins, {"versions", "deletion", "time to live", "one winner"}),
        (LooksThenWrites, {"one winner"}),
        (NeverEnds, {"time to live"}),
        (SharesValues, {"values"}),
        (Unsorted, {"scan", "concurrency", "time to live"}),
        (ReplacesLines, {"repeated lines"}),
        (LosesLines, {"journal", "repeated lines", "pruning"}),
        (PrunesTooMuch, {"pruning"}),
        (Forgets, {"reopening"}),
    ],
)
async def test_what_does_not_keep_the_contract_is_found_out(
    store: type[Broken], failed: set[str]
) -> None:
    one = store()
    report = await check_store(lambda: one)
    assert {item.name for item in report.failed} == failed


async def test_handles_on_different_stores_are_found_out() -> None:
    report = await check_store(MemoryStore)
    assert {item.name for item in report.failed} >= {"one winner", "second handle"}


def test_the_servers_of_these_tests_do_not_run_as_root(server: Any) -> None:
    owner = os.stat(server.folder / "data" / "postmaster.pid").st_uid
    assert owner != 0
