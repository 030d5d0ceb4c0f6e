"""The proof: whatever is done to the audit, the first record that it was done to is named."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import adler32

import msgspec
import pytest

from tests.ledger.houses import bodies, house, journal, records, tamper, verified, written_over
from toolpost.clock import SystemClock
from toolpost.ledger.anchor import Anchor, anchors
from toolpost.ledger.block import link
from toolpost.ledger.opening import FOLDER, open_chain
from toolpost.ledger.record import AuditRecord
from toolpost.ledger.verify import Problem, Verified
from toolpost.seal import new_seal

pytestmark = pytest.mark.anyio
SIX = msgspec.msgpack.encode({"a": 666, "b": 1})


async def written(folder: Path, calls: int = 8, checkpoint: int = 1000) -> Verified:
    """A closed audit of so many calls, a line for each: start, the calls, a checkpoint."""
    async with journal(folder) as store:
        chain = await open_chain(state(folder), store, SystemClock(), every=checkpoint)
        for i in range(calls):
            chain.add([AuditRecord(kind="call", time=float(i), tool="add", call_id=str(i))])
            await chain.write()
        chain.checkpoint("closed")
        await chain.write(clean=True)
        chain.release()
    found = await verified(folder)
    assert found.ok
    return found


def changed(body: bytes, **changes: object) -> bytes:
    """A line whose one record says something else."""
    block = msgspec.msgpack.decode(body)
    record = msgspec.json.decode(block["rows"][0]) | changes
    return msgspec.msgpack.encode(block | {"rows": [msgspec.json.encode(record)]})


def first(found: Verified) -> tuple[int, str]:
    assert not found.ok
    return found.problems[0].number, found.problems[0].fault


def state(folder: Path) -> Path:
    return folder / ".toolpost" / FOLDER


def rechained(folder: Path, number: int, **changes: object) -> None:
    """Rewrite a record, and every link behind it: what a careful forger does."""
    kept, before = bodies(folder), ""
    for n in sorted(kept):
        body = kept[n]
        if n >= number:
            body = changed(body, **(changes if n == number else {}))
            body = msgspec.msgpack.encode(msgspec.msgpack.decode(body) | {"prev": before})
            written_over(folder, n, body)
        before = link(body)


async def test_what_nobody_touched_is_proved_to_its_end(tmp_path: Path) -> None:
    found = await written(tmp_path)
    (head,) = found.heads
    assert (found.records, head.records, head.first, head.number) == (10, 10, 1, 10)
    assert (head.signed, head.open, found.problems, found.unproven) == (10, 0, (), ())


@pytest.mark.parametrize("number", [1, 2, 5, 9, 10])
async def test_attack_an_edited_record_is_named(tmp_path: Path, number: int) -> None:
    await written(tmp_path)
    written_over(tmp_path, number, changed(bodies(tmp_path)[number], time=77.0))
    assert first(await verified(tmp_path)) in ((number, "edited"), (number, "forged"))


async def test_attack_an_edited_link_is_named(tmp_path: Path) -> None:
    await written(tmp_path)
    block = msgspec.msgpack.decode(bodies(tmp_path)[5])
    written_over(tmp_path, 5, msgspec.msgpack.encode(block | {"prev": "0" * 64}))
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
        "the whole chain is gone; it had at least 10 records",
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
    async with journal(tmp_path) as store:
        line = (await store.read(writer=one_writer))[1]
    tamper(
        tmp_path,
        "UPDATE journal SET body = ? WHERE number = 2 AND writer = ?",
        values=(line.body, two_writer),
    )
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.writer, problem.number, problem.fault) == (two_writer, 2, "moved")


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
    async with house(tmp_path) as tools:
        await tools.execute("add", {"a": 1, "b": 1})
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
    written_over(folder, cut.number, changed(bodies(folder)[cut.number], signature="AAAA"))
    for file in anchors(state(folder)):
        (state(folder) / file).unlink()
    assert first(await verified(folder)) == (cut.number, "forged")


async def test_attack_a_signature_that_is_spelt_otherwise_is_none(tmp_path: Path) -> None:
    """Base64 has several texts for the same bytes; a record has one."""
    await written(tmp_path, 30, checkpoint=10)
    cut = next(r for r in await records(tmp_path) if r.kind == "checkpoint")
    assert cut.signature is not None
    assert cut.signature.endswith("==")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = letters[letters.index(cut.signature[-3]) ^ 1]
    for other in (f"{cut.signature[:-3]}{last}==", f"{cut.signature}\n"):
        body = bodies(tmp_path)[cut.number]
        written_over(tmp_path, cut.number, changed(body, signature=other))
        assert not (await verified(tmp_path)).ok
        written_over(tmp_path, cut.number, body)
    assert (await verified(tmp_path)).ok
    seal = new_seal()
    anchor = Anchor(writer="w").signed(seal)
    respelt = msgspec.structs.replace(anchor, signature=f"{anchor.signature}\n")
    keys = {seal.key: seal.verifier}
    assert (anchor.holds(keys), respelt.holds(keys)) == (True, False)


def test_a_problem_is_plain_data() -> None:
    problem = Problem("w", 3, "cut", "the tail is cut", 7)
    assert msgspec.to_builtins(problem)["fault"] == "cut"


async def reads(folder: Path, number: int = 40) -> dict[str, Any]:
    """A closed audit of so many reads: start, a block with all of them, a checkpoint."""
    async with house(folder, seconds=60) as tools:
        for i in range(number):
            await tools.execute("add", {"a": i, "b": 1})
    assert sorted(bodies(folder)) == [1, number + 1, number + 2]
    block: dict[str, Any] = msgspec.msgpack.decode(bodies(folder)[number + 1])
    return block | {"rows": [msgspec.msgpack.decode(row) for row in block["rows"]]}


def rewritten(folder: Path, block: dict[str, Any], *, number: int = 41) -> None:
    rows = [row if isinstance(row, bytes) else msgspec.msgpack.encode(row) for row in block["rows"]]
    written_over(folder, number, msgspec.msgpack.encode(block | {"rows": rows}))


def summed(block: dict[str, Any]) -> dict[str, Any]:
    """With the checksums that the rows have now."""
    return block | {"sums": [adler32(msgspec.msgpack.encode(row)) for row in block["rows"]]}


async def test_many_reads_share_a_line_and_are_proved(tmp_path: Path) -> None:
    await reads(tmp_path)
    found = await verified(tmp_path)
    (head,) = found.heads
    assert (found.records, head.first, head.number, head.signed) == (42, 1, 42, 42)
    assert [r.number for r in await records(tmp_path)] == list(range(1, 43))


@pytest.mark.parametrize("place", [0, 7, 39])
@pytest.mark.parametrize("field", [1, 2, 3, 4])
async def test_attack_a_record_edited_inside_a_block_is_named(
    tmp_path: Path, place: int, field: int
) -> None:
    block = await reads(tmp_path)
    block["rows"][place][field] = {1: "c", 2: 5.0, 3: 1e9, 4: SIX}[field]
    rewritten(tmp_path, block)
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.number, problem.fault, problem.last) == (2 + place, "edited", 0)


@pytest.mark.parametrize("place", [0, 7, 39])
async def test_attack_a_record_deleted_from_a_block_is_named(tmp_path: Path, place: int) -> None:
    block = await reads(tmp_path)
    del block["rows"][place]
    rewritten(tmp_path, block)
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.number, problem.fault) == (2 + place, "deleted")


async def test_attack_a_record_put_into_a_block_is_named(tmp_path: Path) -> None:
    block = await reads(tmp_path)
    block["rows"].insert(10, [1, "c", 1.0, 2.0, b"\x80"])
    rewritten(tmp_path, block)
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.number, problem.fault) == (12, "edited")


async def test_attack_records_swapped_inside_a_block_are_named(tmp_path: Path) -> None:
    block = await reads(tmp_path)
    rows = block["rows"]
    rows[3], rows[9] = rows[9], rows[3]
    rewritten(tmp_path, block)
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.number, problem.fault) == (5, "moved")


def edit_shape(block: dict[str, Any]) -> None:
    next(iter(block["shapes"].values()))["tool"] = "harmless"


def edit_clock(block: dict[str, Any]) -> None:
    block["clock"] += 3600


def edit_row(block: dict[str, Any]) -> None:
    block["rows"][5][4] = SIX


@pytest.mark.parametrize("edit", [edit_shape, edit_clock, edit_row])
async def test_attack_what_no_checksum_tells_is_named_as_one_of_the_block(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None]
) -> None:
    block = await reads(tmp_path)
    edit(block)
    rewritten(tmp_path, summed(block))
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.number, problem.fault, problem.last) == (2, "edited", 41)
    assert "up to 41" in problem.what


@pytest.mark.parametrize("place", [0, 20, 39])
async def test_attack_a_record_deleted_with_its_checksum_and_its_number_is_found(
    tmp_path: Path, place: int
) -> None:
    block = await reads(tmp_path)
    del block["rows"][place]
    rewritten(tmp_path, summed(block))
    assert first(await verified(tmp_path)) == (2, "edited")
    tamper(tmp_path, "UPDATE journal SET number = 40 WHERE number = 41")
    assert first(await verified(tmp_path)) == (41, "deleted")


async def test_attack_a_block_that_became_rubbish_is_named(tmp_path: Path) -> None:
    await reads(tmp_path)
    written_over(tmp_path, 41, b"{}")
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.number, problem.last, problem.fault) == (2, 41, "edited")


async def test_attack_blocks_that_are_joined_do_not_step_over_what_was_known(
    tmp_path: Path,
) -> None:
    """Every link fits again, but the line that was anchored, or proved earlier, is none."""
    async with journal(tmp_path) as store:
        chain = await open_chain(state(tmp_path), store, SystemClock())
        for i in range(3):
            chain.add([AuditRecord(kind="call", time=float(i), call_id=str(i))])
            await chain.write()
            if i == 1:
                anchored = (state(tmp_path) / "chain-000.json").read_bytes()
        chain.release()
    (state(tmp_path) / "chain-000.json").write_bytes(anchored)
    kept = bodies(tmp_path)
    joined = msgspec.msgpack.decode(kept[3])
    joined["rows"] += msgspec.msgpack.decode(kept[4])["rows"]
    joined["sums"] = list(map(adler32, joined["rows"]))
    tamper(tmp_path, "DELETE FROM journal WHERE number = 3")
    rewritten(tmp_path, joined, number=4)
    assert not (await verified(tmp_path)).ok


async def test_what_is_in_a_block_twice_over_is_no_block(tmp_path: Path) -> None:
    await reads(tmp_path)
    written_over(tmp_path, 41, bodies(tmp_path)[1])
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.number, problem.fault) == (2, "moved")
    assert "stands record 1" in problem.what
