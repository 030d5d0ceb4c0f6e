"""What is too old goes; what stays is still proved, and so is what went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.extensions.around import surroundings
from tests.ledger.houses import TOOLS, bodies, records, tamper, verified
from toolpost import Executor, Registry
from toolpost.contracts import Line
from toolpost.extensions.audit import Audit, AuditOptions
from toolpost.ledger.archives import verify_everything, verify_file
from toolpost.ledger.copying import copied, lines_in
from toolpost.ledger.opening import FOLDER, KEY
from toolpost.ledger.verify import Proof, Verified, verify
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


# the archive


async def everything(folder: Path) -> Verified:
    store = SqliteStore(folder / ".toolpost" / "store.db")
    await store.open()
    try:
        return await verify_everything(store, folder / ".toolpost" / FOLDER)
    finally:
        await store.close()


async def worked(folder: Path, days: int) -> list[Path]:
    clock = Clock(1e9)
    for _ in range(days):
        await day_of_work(folder, clock, keep=1.5)
        clock.advance(DAY)
    return await archives(folder)


def faults(found: Verified) -> list[str]:
    return [problem.fault for problem in found.problems]


def cut(file: Path, lines: int) -> None:
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:lines]))


async def test_an_archive_is_proved_alone_and_as_what_comes_before_the_journal(
    tmp_path: Path,
) -> None:
    files = await worked(tmp_path, 5)
    assert len(files) == 3
    found = await everything(tmp_path)
    assert (found.problems, found.unproven) == ((), ())
    for file in files:
        alone = await verify_file(file, tmp_path / ".toolpost" / FOLDER)
        assert (alone.problems, alone.unproven) == ((), ())


@pytest.mark.parametrize("left", [0, 1, 2, 7, -1])
async def test_attack_an_archive_that_is_cut_is_found_wherever_it_is_cut(
    tmp_path: Path, left: int
) -> None:
    files = await worked(tmp_path, 4)
    for file in files:
        whole = file.read_bytes()
        cut(file, left)
        assert set(faults(await everything(tmp_path))) == {"cut"}
        assert faults(await verify_file(file, tmp_path / ".toolpost" / FOLDER)) == ["cut"]
        file.write_bytes(whole)


async def test_attack_an_archive_that_is_altered_or_replaced_is_found(tmp_path: Path) -> None:
    first, second = await worked(tmp_path, 4)
    whole = second.read_bytes()
    lines = whole.splitlines(keepends=True)
    second.write_bytes(b"".join((*lines[:3], *lines[4:])))
    assert faults(await everything(tmp_path)) == ["deleted"]
    second.write_bytes(whole.replace(b'"body":"', b'"body":"AAAA', 1))
    assert faults(await everything(tmp_path)) == ["edited"]
    second.write_bytes(first.read_bytes())
    assert faults(await everything(tmp_path)) == ["moved"]
    assert faults(await verify_file(second, tmp_path / ".toolpost" / FOLDER)) == ["moved"]


async def test_attack_an_archive_cut_at_a_checkpoint_and_renamed_does_not_reach_the_journal(
    tmp_path: Path,
) -> None:
    (file,) = await worked(tmp_path, 3)
    keys = verifiers(tmp_path / ".toolpost" / FOLDER, KEY)
    lines = file.read_bytes().splitlines(keepends=True)
    for place in range(len(lines) - 1, 1, -1):
        cut(file, place)
        part = await verify(lines_in(file), Proof(keys=keys, whole=False))
        if not part.unproven:  # it ends in an earlier checkpoint
            break
    (head,) = part.heads
    file.rename(file.with_name(f"{file.name[:23]}{head.number:09}.jsonl"))
    (problem,) = (await everything(tmp_path)).problems
    assert (problem.fault, problem.number) == ("missing", head.number + 1)


async def test_old_archives_may_be_kept_elsewhere_and_that_is_said(tmp_path: Path) -> None:
    first, second, third = await worked(tmp_path, 5)
    first.rename(tmp_path / first.name)
    found = await everything(tmp_path)
    assert found.ok and len(found.unproven) == 1
    assert "are not here: retention has dropped them, or their archive is kept" in found.unproven[0]
    assert (await verify_file(tmp_path / first.name, tmp_path / ".toolpost" / FOLDER)).ok
    second.unlink()
    assert (await everything(tmp_path)).ok
    (tmp_path / first.name).rename(first)
    (problem,) = (await everything(tmp_path)).problems  # one is gone from between
    assert problem.fault == "missing" and problem.what.endswith("is gone")
    third.unlink()
    assert faults(await everything(tmp_path)) == ["missing"]
    first.unlink()
    assert (await everything(tmp_path)).ok


async def test_a_copy_that_a_crash_left_in_the_archive_is_no_problem(tmp_path: Path) -> None:
    (file,) = await worked(tmp_path, 3)
    keys = verifiers(tmp_path / ".toolpost" / FOLDER, KEY)
    copy = tmp_path / "copy.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    for place in range(len(lines) - 1, 1, -1):
        copy.write_bytes(b"".join(lines[:place]))
        (head,) = (part := await verify(lines_in(copy), Proof(keys=keys, whole=False))).heads
        if not part.unproven:
            break
    copy.rename(file.with_name(f"{file.name[:23]}{head.number:09}.jsonl"))
    found = await everything(tmp_path)
    assert (found.problems, found.unproven) == ((), ())


async def test_attack_a_chain_of_which_only_the_archive_is_left_is_missed(tmp_path: Path) -> None:
    await worked(tmp_path, 3)
    tamper(tmp_path, "DELETE FROM journal")
    (tmp_path / ".toolpost" / FOLDER / "chain-000.json").unlink()
    assert "only its archive is left" in (await everything(tmp_path)).problems[-1].what


async def test_attack_an_archive_that_ends_in_another_checkpoint_than_the_journal_begins_with(
    tmp_path: Path,
) -> None:
    (file,) = await worked(tmp_path, 3)
    *lines, last = [line async for line in lines_in(file)]
    body = last.body.replace(b'"time":1', b'"time":2')  # which no signature covers
    file.write_bytes(b"".join(map(copied, (*lines, msgspec.structs.replace(last, body=body)))))
    assert (await verify_file(file, tmp_path / ".toolpost" / FOLDER)).ok
    assert faults(await everything(tmp_path)) == ["forged"]


async def test_an_archive_that_cannot_be_read_is_a_problem_that_is_named(tmp_path: Path) -> None:
    (file,) = await worked(tmp_path, 3)
    file.unlink()
    file.mkdir()
    (problem,) = (await everything(tmp_path)).problems
    assert problem.fault == "unreadable" and file.name in problem.what


async def test_what_retention_drops_while_somebody_reads_is_not_taken_for_deleted(
    tmp_path: Path,
) -> None:
    clock = Clock(1e9)
    await day_of_work(tmp_path, clock, keep=None)
    clock.advance(3 * DAY)

    class Pruned(SqliteStore):
        reads = 0

        async def read(self, **what: Any) -> Sequence[Line]:
            self.reads += 1
            if self.reads == 1:  # the anchors have been looked at
                await day_of_work(tmp_path, clock, keep=1.5)
            return await super().read(**what)

    store = Pruned(tmp_path / ".toolpost" / "store.db")
    await store.open()
    try:
        found = await verify_everything(store, tmp_path / ".toolpost" / FOLDER)
    finally:
        await store.close()
    assert found.ok and store.reads > 2
    assert found.heads[0].first > 1
