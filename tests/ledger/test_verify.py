"""The proof: whatever is done to the audit, the first record that it was done to is named."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from tests.ledger.houses import bodies, house, journal, records, tamper, verified
from toolpost.ledger.anchor import anchors
from toolpost.ledger.opening import FOLDER
from toolpost.ledger.record import AuditRecord, decode, encode, link
from toolpost.ledger.verify import Problem, Verified

pytestmark = pytest.mark.anyio


async def written(folder: Path, calls: int = 8, **options: object) -> Verified:
    """A closed audit of so many calls: start, the calls, a checkpoint."""
    async with house(folder, **options) as tools:
        for i in range(calls):
            await tools.execute("add", {"a": i, "b": 1})
    found = await verified(folder)
    assert found.ok
    return found


def first(found: Verified) -> tuple[int, str]:
    assert not found.ok
    return found.problems[0].number, found.problems[0].fault


def state(folder: Path) -> Path:
    return folder / ".toolpost" / FOLDER


def rechained(folder: Path, number: int, **changes: object) -> None:
    """Rewrite a record, and every link behind it: what a careful forger does."""
    kept, before = bodies(folder), ""
    for n in sorted(kept):
        record = decode(kept[n])
        assert record is not None
        if n >= number:
            changed = changes if n == number else {}
            record = msgspec.structs.replace(record, prev=before, **changed)
            tamper(
                folder, "UPDATE journal SET body = ? WHERE number = ?", values=(encode(record), n)
            )
            before = link(encode(record))
        else:
            before = link(kept[n])


async def test_what_nobody_touched_is_proved_to_its_end(tmp_path: Path) -> None:
    found = await written(tmp_path)
    (head,) = found.heads
    assert (found.records, head.records, head.first, head.number) == (10, 10, 1, 10)
    assert (head.signed, head.open, found.problems, found.unproven) == (10, 0, (), ())


@pytest.mark.parametrize("number", [1, 2, 5, 9, 10])
async def test_attack_an_edited_record_is_named(tmp_path: Path, number: int) -> None:
    await written(tmp_path)
    body = bodies(tmp_path)[number]
    record = decode(body)
    assert record is not None
    changed = encode(msgspec.structs.replace(record, time=record.time + 1))
    tamper(tmp_path, "UPDATE journal SET body = ? WHERE number = ?", values=(changed, number))
    assert first(await verified(tmp_path)) in ((number, "edited"), (number, "forged"))


async def test_attack_an_edited_link_is_named(tmp_path: Path) -> None:
    await written(tmp_path)
    record = decode(bodies(tmp_path)[5])
    assert record is not None
    changed = encode(msgspec.structs.replace(record, prev="0" * 64))
    tamper(tmp_path, "UPDATE journal SET body = ? WHERE number = 5", values=(changed,))
    assert first(await verified(tmp_path)) == (5, "edited")


async def test_attack_a_record_that_became_rubbish_is_named(tmp_path: Path) -> None:
    await written(tmp_path)
    tamper(tmp_path, "UPDATE journal SET body = x'00ff' WHERE number = 4")
    assert first(await verified(tmp_path)) == (4, "edited")


@pytest.mark.parametrize("number", [1, 2, 6, 9])
async def test_attack_a_deleted_record_is_named(tmp_path: Path, number: int) -> None:
    await written(tmp_path)
    tamper(tmp_path, f"DELETE FROM journal WHERE number = {number}")
    assert first(await verified(tmp_path)) == (number, "deleted")


async def test_attack_a_deleted_stretch_is_named(tmp_path: Path) -> None:
    await written(tmp_path)
    tamper(tmp_path, "DELETE FROM journal WHERE number IN (4, 5, 6)")
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.number, problem.what) == (4, "records 4 to 6 are gone")


async def test_attack_swapped_records_are_named(tmp_path: Path) -> None:
    await written(tmp_path)
    kept = bodies(tmp_path)
    tamper(tmp_path, "UPDATE journal SET body = ? WHERE number = 3", values=(kept[6],))
    tamper(tmp_path, "UPDATE journal SET body = ? WHERE number = 6", values=(kept[3],))
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.number, problem.fault) == (3, "moved")
    assert "stands record 6" in problem.what


async def test_attack_records_swapped_in_place_are_named(tmp_path: Path) -> None:
    await written(tmp_path)
    tamper(
        tmp_path,
        "UPDATE journal SET position = -1 WHERE number = 3",
        "UPDATE journal SET position = 3 WHERE number = 4",
        "UPDATE journal SET position = 4 WHERE number = 3",
    )
    assert first(await verified(tmp_path)) == (3, "deleted")


@pytest.mark.parametrize("left", [1, 5, 9])
async def test_attack_a_cut_tail_is_found_through_the_anchor(tmp_path: Path, left: int) -> None:
    await written(tmp_path)
    tamper(tmp_path, f"DELETE FROM journal WHERE number > {left}")
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.number, problem.fault) == (left + 1, "cut")
    assert f"{left + 1} to 10" in problem.what


async def test_attack_a_cut_tail_of_records_that_no_checkpoint_covers_is_found(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, seconds=60) as tools:
        for i in range(5):
            await tools.execute("send", {"to": str(i)})
        # alive, and no checkpoint yet
        tamper(tmp_path, "DELETE FROM journal WHERE number > 4")
        assert first(await verified(tmp_path)) == (5, "cut")


async def test_attack_everything_deleted_is_found(tmp_path: Path) -> None:
    await written(tmp_path)
    tamper(tmp_path, "DELETE FROM journal")
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.fault, problem.what) == (
        "missing",
        "the whole chain is gone; it had 10 records",
    )


async def test_attack_the_tail_and_its_anchor_deleted_is_found(tmp_path: Path) -> None:
    await written(tmp_path)
    tamper(tmp_path, "DELETE FROM journal WHERE number > 6")
    for file in anchors(state(tmp_path)):
        (state(tmp_path) / file).unlink()
    assert first(await verified(tmp_path)) == (6, "missing")


async def test_attack_an_anchor_without_the_key_is_no_anchor(tmp_path: Path) -> None:
    await written(tmp_path)
    tamper(tmp_path, "DELETE FROM journal WHERE number > 6")
    ((file, anchor),) = anchors(state(tmp_path)).items()
    assert anchor is not None
    forged = msgspec.structs.replace(anchor, number=6, link=link(bodies(tmp_path)[6]))
    (state(tmp_path) / file).write_bytes(msgspec.json.encode(forged))
    found = await verified(tmp_path)
    assert {p.fault for p in found.problems} == {"forged", "missing"}
    (state(tmp_path) / file).write_bytes(b"?")
    assert not (await verified(tmp_path)).ok


async def test_attack_a_chain_rewritten_with_all_its_links_is_found(tmp_path: Path) -> None:
    await written(tmp_path, 30, checkpoint=10)
    signed = [r.number for r in await records(tmp_path) if r.kind == "checkpoint"]
    assert len(signed) >= 3
    rechained(tmp_path, signed[0] + 3, tool="harmless")
    number, fault = first(await verified(tmp_path))
    assert (number, fault) == (signed[0], "forged")


async def test_attack_a_rewritten_end_is_found_without_a_checkpoint_after_it(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as tools:
        for i in range(5):
            await tools.execute("send", {"to": str(i)})
        rechained(tmp_path, 6, tool="harmless")
        assert not (await verified(tmp_path)).ok


async def test_attack_a_line_of_one_writer_given_to_another_is_found(tmp_path: Path) -> None:
    async with house(tmp_path) as one, house(tmp_path) as two:
        await one.execute("send", {"to": "a"})
        await two.execute("send", {"to": "b"})
    found = await verified(tmp_path)
    assert found.ok
    one_writer, two_writer = (head.writer for head in found.heads)
    body = (await records(tmp_path))[1]
    tamper(
        tmp_path,
        "UPDATE journal SET body = ? WHERE number = 2 AND writer != ?",
        values=(encode(body), body.writer),
    )
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.number, problem.fault) == (2, "moved")
    assert problem.writer in {one_writer, two_writer} - {body.writer}


async def test_attack_whatever_byte_is_changed_is_found(tmp_path: Path) -> None:
    await written(tmp_path, 4)
    kept, dice = bodies(tmp_path), random.Random(7)
    for _ in range(60):
        number = dice.choice(list(kept))
        body = bytearray(kept[number])
        place = dice.randrange(len(body))
        body[place] ^= 1 << dice.randrange(8)
        tamper(
            tmp_path,
            "UPDATE journal SET body = ? WHERE number = ?",
            values=(bytes(body), number),
        )
        found = await verified(tmp_path)
        assert not found.ok
        assert found.problems[0].number <= number
        tamper(
            tmp_path, "UPDATE journal SET body = ? WHERE number = ?", values=(kept[number], number)
        )
    assert (await verified(tmp_path)).ok


async def test_what_was_proved_earlier_is_an_anchor_that_nobody_here_can_move(
    tmp_path: Path,
) -> None:
    earlier = (await written(tmp_path)).heads
    async with house(tmp_path) as tools:
        await tools.execute("add", {"a": 1, "b": 1})
    assert (await verified(tmp_path, earlier)).ok
    # whoever has the key can write another story, but not that one
    tamper(tmp_path, "DELETE FROM journal")
    for file in anchors(state(tmp_path)):
        (state(tmp_path) / file).unlink()
    assert (await verified(tmp_path)).ok
    assert (await verified(tmp_path, earlier)).problems[0].fault == "missing"


async def test_a_chain_signed_elsewhere_is_not_proved_and_says_so(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    await written(here)
    await written(there)
    async with journal(there) as other, journal(here) as store:
        await store.append(await other.read())
    found = await verified(here)
    assert found.ok
    (text,) = found.unproven
    assert "not a key of this house" in text


async def test_a_checkpoint_that_nobody_signed_does_not_begin_a_chain(tmp_path: Path) -> None:
    await written(tmp_path, 30, checkpoint=10)
    cut = next(r for r in await records(tmp_path) if r.kind == "checkpoint")
    tamper(tmp_path, f"DELETE FROM journal WHERE number < {cut.number}")
    assert first(await verified(tmp_path)) == (1, "deleted")
    await forged_beginning(tmp_path, cut)


async def forged_beginning(folder: Path, cut: AuditRecord) -> None:
    changed = encode(msgspec.structs.replace(cut, signature="AAAA"))
    tamper(folder, "UPDATE journal SET body = ? WHERE number = ?", values=(changed, cut.number))
    for file in anchors(state(folder)):
        (state(folder) / file).unlink()
    assert first(await verified(folder)) == (cut.number, "forged")


def test_a_problem_is_plain_data() -> None:
    problem = Problem("w", 3, "cut", "the tail is cut", 7)
    assert msgspec.to_builtins(problem)["fault"] == "cut"
