"""What is too old goes; what stays is still proved, and so is what went."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extensions.around import surroundings
from tests.ledger.houses import TOOLS, bodies, records, tamper, verified
from toolpost import Executor, Registry
from toolpost.extensions.audit import Audit, AuditOptions
from toolpost.ledger.copying import lines_in
from toolpost.ledger.opening import FOLDER, KEY
from toolpost.ledger.verify import Proof, verify
from toolpost.seal import verifiers
from toolpost.stores.sqlite import SqliteStore
from toolpost.testing import Clock

pytestmark = pytest.mark.anyio
DAY = 86_400.0


async def day_of_work(
    folder: Path, clock: Clock, *, keep: float | None, archive: bool = True
) -> None:
    store = SqliteStore(folder / ".toolpost" / "store.db")
    await store.open()
    around = surroundings(folder, records=store, journal=store, clock=clock)
    options = AuditOptions(keep_days=keep, checkpoint=5, archive=archive)
    async with Executor(Registry(TOOLS), observers=[Audit(around, options)]) as tools:
        for i in range(20):
            await tools.execute("send", {"to": str(i)})
            await tools.execute("add", {"a": i, "b": 1})
    await store.close()


async def archives(folder: Path) -> list[Path]:
    return sorted((folder / ".toolpost" / FOLDER / "archive").glob("*"))


async def test_old_days_go_to_an_archive_and_both_parts_are_proved(tmp_path: Path) -> None:
    clock = Clock(1e9)
    for _ in range(5):
        await day_of_work(tmp_path, clock, keep=2.5)
        clock.advance(DAY)
    found = await verified(tmp_path)
    assert (found.problems, found.unproven) == ((), ())
    kept = await records(tmp_path)
    assert kept[0].kind == "checkpoint"
    assert kept[0].number > 1
    assert {round((r.time - 1e9) / DAY) for r in kept[1:]} == {2, 3, 4}

    keys = verifiers(tmp_path / ".toolpost" / FOLDER, KEY)
    number = 1
    for file in await archives(tmp_path):
        part = await verify(lines_in(file), Proof(keys=keys, whole=False))
        assert part.ok
        (head,) = part.heads
        assert (head.first, head.signed) == (number, head.number - 1)
        number = head.number  # the checkpoint ends one part and begins the next
    assert number == kept[0].number


async def test_without_an_archive_old_records_are_gone(tmp_path: Path) -> None:
    clock = Clock(1e9)
    for _ in range(3):
        await day_of_work(tmp_path, clock, keep=0.5, archive=False)
        clock.advance(DAY)
    assert (await verified(tmp_path)).ok
    assert await archives(tmp_path) == []
    assert min(bodies(tmp_path)) > 1


async def test_without_a_limit_everything_stays(tmp_path: Path) -> None:
    clock = Clock(1e9)
    for _ in range(3):
        await day_of_work(tmp_path, clock, keep=None)
        clock.advance(DAY * 1000)
    assert min(bodies(tmp_path)) == 1


async def test_attack_a_beginning_that_somebody_else_removed_is_found(tmp_path: Path) -> None:
    clock = Clock(1e9)
    for _ in range(3):
        await day_of_work(tmp_path, clock, keep=1.5)
        clock.advance(DAY)
    signed = [r.number for r in await records(tmp_path) if r.kind == "checkpoint"]
    tamper(tmp_path, f"DELETE FROM journal WHERE number < {signed[1]}")
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.number, problem.fault) == (signed[0], "deleted")


async def test_a_chain_that_nobody_writes_any_more_is_pruned_too(tmp_path: Path) -> None:
    clock = Clock(1e9)
    store = SqliteStore(tmp_path / ".toolpost" / "store.db")
    await store.open()
    around = surroundings(tmp_path, records=store, journal=store, clock=clock)
    one, two = (Audit(around, AuditOptions(checkpoint=5)) for _ in range(2))
    async with (
        Executor(Registry(TOOLS), observers=[one]) as first,
        Executor(Registry(TOOLS), observers=[two]) as second,
    ):
        for i in range(20):
            await first.execute("send", {"to": str(i)})
            await second.execute("send", {"to": str(i)})
    await store.close()
    clock.advance(10 * DAY)
    await day_of_work(tmp_path, clock, keep=1)
    found = await verified(tmp_path)
    assert found.ok
    assert all(head.first > 1 for head in found.heads)
    assert len(found.heads) == 2


async def test_what_a_crash_kept_from_being_dropped_is_dropped_the_next_time(
    tmp_path: Path,
) -> None:
    clock = Clock(1e9)
    await day_of_work(tmp_path, clock, keep=1.5)
    old = bodies(tmp_path)
    clock.advance(2 * DAY)
    await day_of_work(tmp_path, clock, keep=1.5)
    writer = (await records(tmp_path))[0].writer
    left = sorted(old)[1:3]
    for number in left:  # as if the process had died between two pieces
        tamper(
            tmp_path,
            "INSERT INTO journal (writer, number, body, position) VALUES (?, ?, ?, -?)",
            values=(writer, number, old[number], number),
        )
    assert (await verified(tmp_path)).ok
    clock.advance(2 * DAY)
    await day_of_work(tmp_path, clock, keep=1.5)
    assert (await verified(tmp_path)).ok
    assert min(bodies(tmp_path)) > left[-1]
