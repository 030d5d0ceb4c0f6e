"""Chains name each other: one that is gone with its anchor, or cut behind an old copy of that, is
missed by those beside it.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.cli.program import PROGRAM, environment
from tests.extensions.around import surroundings
from tests.ledger.houses import TOOLS, house, journal, records, tamper, verified
from toolpost import Executor, Registry
from toolpost.clock import SystemClock
from toolpost.extensions.audit import Audit, AuditOptions
from toolpost.ledger.anchor import Anchor, anchors
from toolpost.ledger.block import Place, pack
from toolpost.ledger.copying import copied, lines_in
from toolpost.ledger.opening import FOLDER, KEY, lines_of, open_chain
from toolpost.ledger.peers import Peers, heads_in
from toolpost.ledger.reading import records_of
from toolpost.ledger.record import AuditRecord
from toolpost.ledger.verify import Proof, verify
from toolpost.ledger.writing import Chain
from toolpost.seal import verifiers
from toolpost.stores.memory import MemoryStore
from toolpost.stores.sqlite import SqliteStore
from toolpost.testing import Clock

pytestmark = pytest.mark.anyio
DAY = 86_400.0


def state(folder: Path) -> Path:
    return folder / ".toolpost" / FOLDER


def anchor_of(folder: Path, file: str) -> Anchor:
    anchor = anchors(state(folder))[file]
    assert anchor is not None
    return anchor


def deleted(folder: Path, file: str) -> Anchor:
    """A chain, every record of it and its anchor: what was there."""
    anchor = anchor_of(folder, file)
    tamper(folder, "DELETE FROM journal WHERE writer = ?", values=(anchor.writer,))
    (state(folder) / file).unlink()
    return anchor


async def two_chains(folder: Path) -> None:
    async with house(folder) as one, house(folder) as two:
        await one.execute("send", {"to": "ann"})
        await two.execute("send", {"to": "bob"})
    found = await verified(folder)
    assert (found.ok, len(found.heads)) == (True, 2)


@pytest.mark.req("NA-12")
@pytest.mark.parametrize("file", ["chain-000.json", "chain-001.json"])
async def test_attack_a_chain_deleted_with_its_anchor_is_named(tmp_path: Path, file: str) -> None:
    await two_chains(tmp_path)
    gone = deleted(tmp_path, file)
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.writer, problem.fault) == (gone.writer, "missing")
    assert "the whole chain is gone" in problem.what


async def test_attack_the_command_names_a_chain_deleted_with_its_anchor(tmp_path: Path) -> None:
    await two_chains(tmp_path)
    (tmp_path / "toolpost.toml").touch()
    gone = deleted(tmp_path, "chain-000.json")
    done = subprocess.run(
        [*PROGRAM, "audit", "verify"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"MISSING: record 1 of chain {gone.writer}: the whole chain is gone" in done.stdout


async def test_a_chain_that_begins_beside_a_living_one_is_named_with_its_next_record(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as old:
        await old.execute("send", {"to": "ann"})
        async with house(tmp_path) as new:
            await new.execute("send", {"to": "bob"})
        await old.execute("send", {"to": "carl"})
        gone = deleted(tmp_path, "chain-001.json")
        (problem,) = (await verified(tmp_path)).problems
        assert (problem.writer, problem.fault) == (gone.writer, "missing")
    assert [p.writer for p in (await verified(tmp_path)).problems] == [gone.writer]


async def test_a_chain_is_told_of_once_and_not_with_every_record(tmp_path: Path) -> None:
    async with house(tmp_path) as old, house(tmp_path) as new:
        await new.execute("send", {"to": "bob"})
        for i in range(5):
            await old.execute("send", {"to": str(i)})
    told = [r for r in await records(tmp_path) if r.note == "another chain has begun"]
    assert len({r.writer for r in told}) == len(told) <= 2


async def test_attack_a_tail_cut_behind_an_old_copy_of_the_anchor_is_found(tmp_path: Path) -> None:
    async with house(tmp_path) as one:
        await one.execute("send", {"to": "ann"})
        old = (state(tmp_path) / "chain-000.json").read_bytes()
        before = anchor_of(tmp_path, "chain-000.json")
        await one.execute("send", {"to": "bob"})
        async with house(tmp_path) as two:
            await two.execute("send", {"to": "carl"})
    tamper(
        tmp_path,
        "DELETE FROM journal WHERE writer = ? AND number > ?",
        values=(before.writer, before.number),
    )
    (state(tmp_path) / "chain-000.json").write_bytes(old)
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.writer, problem.number, problem.fault) == (
        before.writer,
        before.number + 1,
        "cut",
    )


@pytest.mark.parametrize("blocks", [(1, 1), (3,)])
async def test_attack_an_end_rewritten_behind_an_old_copy_of_the_anchor_is_found(
    tmp_path: Path, blocks: tuple[int, ...]
) -> None:
    """Every link fits, nothing is too short, and the anchor is one that was signed."""
    async with journal(tmp_path) as store:
        one = await open_chain(state(tmp_path), store, SystemClock())
        old = (state(tmp_path) / "chain-000.json").read_bytes()
        writer, number, before = one.anchor.writer, one.number, one.link
        for _ in range(2):
            one.add([AuditRecord(kind="call", tool="harmful")])
            await one.write()
        two = await open_chain(state(tmp_path), store, SystemClock())  # knows record 3 of one
        one.release()
        two.release()
    tamper(tmp_path, "DELETE FROM journal WHERE writer = ? AND number > 1", values=(writer,))
    for rows in blocks:
        place = Place(writer, number + 1, before, 0.0)
        forged = pack([AuditRecord(kind="call", tool="harmless")] * rows, place)
        number, before = number + rows, forged.link
        insert = "INSERT INTO journal (writer, number, body) VALUES (?, ?, ?)"
        tamper(tmp_path, insert, values=(writer, number, forged.body))
    (state(tmp_path) / "chain-000.json").write_bytes(old)
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.writer, problem.number, problem.fault) == (writer, 3, "forged")
    assert "another chain knew" in problem.what


def _records(store: SqliteStore, writer: str) -> AsyncIterator[AuditRecord]:
    return records_of(lines_of(store, writer=writer))


async def days(
    folder: Path, clock: Clock, number: int, *, beside: bool = False, keep: float | None = None
) -> None:
    """So many days of work, in one chain or in two at once."""
    for _ in range(number):
        store = SqliteStore(folder / ".toolpost" / "store.db")
        await store.open()
        around = surroundings(folder, records=store, journal=store, clock=clock)
        options = AuditOptions(keep_days=keep, checkpoint=5)
        async with Executor(Registry(TOOLS), observers=[Audit(around, options)]) as one:
            for i in range(8):
                await one.execute("send", {"to": str(i)})
            if beside:
                async with Executor(Registry(TOOLS), observers=[Audit(around, options)]) as two:
                    for i in range(8):
                        await two.execute("send", {"to": str(i)})
        await store.close()
        clock.advance(DAY)


async def test_retention_drops_what_others_know_of_and_that_is_no_fault(tmp_path: Path) -> None:
    clock = Clock(1e9)
    await days(tmp_path, clock, 6, beside=True, keep=1.5)
    found = await verified(tmp_path)
    assert (found.problems, found.unproven) == ((), ())
    assert len(found.heads) == 2
    assert all(head.first > 1 for head in found.heads)
    told = [heads_in(r) for r in await records(tmp_path)]
    assert min(number for heads in told for number, _ in heads.values()) < min(
        head.number for head in found.heads
    )


async def test_attack_a_chain_that_is_gone_is_missed_when_old_records_have_been_dropped(
    tmp_path: Path,
) -> None:
    clock = Clock(1e9)
    await days(tmp_path, clock, 1, beside=True)
    gone = deleted(tmp_path, "chain-001.json")
    await days(tmp_path, clock, 5, keep=1.5)
    found = await verified(tmp_path)
    (head,) = found.heads
    assert head.first > 20
    assert [(p.writer, p.fault) for p in found.problems] == [(gone.writer, "missing")]


async def test_who_takes_up_the_chain_of_a_killed_writer_says_again_what_it_said(
    tmp_path: Path,
) -> None:
    async with journal(tmp_path) as store:
        one = await open_chain(state(tmp_path), store, SystemClock())
        two = await open_chain(state(tmp_path), store, SystemClock())
        two.add([AuditRecord(kind="intent", call_id="1", tool="send")])
        await two.write()
        two.release()  # as if killed: nothing signed, one call open
        one.release()
        writer = deleted(tmp_path, "chain-000.json").writer
        again = await open_chain(state(tmp_path), store, SystemClock())
        again.release()
        assert again.anchor.writer == two.anchor.writer
        said = [r async for r in _records(store, two.anchor.writer) if r.kind == "start"]
    assert [writer in heads_in(r) for r in said] == [True, True]


async def test_an_anchor_that_nobody_signed_is_not_believed(tmp_path: Path) -> None:
    async with house(tmp_path) as tools:
        await tools.execute("send", {"to": "ann"})
        planted = Anchor(writer="f" * 12, number=7, link="0" * 64, key="k", signature="s")
        (state(tmp_path) / "chain-005.json").write_bytes(msgspec.json.encode(planted))
        (state(tmp_path) / "chain-006.json").write_bytes(b"rubbish")
        await tools.execute("send", {"to": "bob"})
    for file in ("chain-005.json", "chain-006.json"):
        (state(tmp_path) / file).unlink()
    assert (await verified(tmp_path)).ok


async def test_what_a_chain_says_counts_only_with_a_key_of_this_house(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    await two_chains(there)
    async with house(here) as tools:
        await tools.execute("send", {"to": "ann"})
    deleted(there, "chain-000.json")
    async with journal(there) as other, journal(here) as store:
        await store.append(await other.read())
    found = await verified(here)
    assert (found.ok, len(found.unproven)) == (True, 1)


async def test_a_copy_of_some_chains_does_not_miss_the_others(tmp_path: Path) -> None:
    await two_chains(tmp_path)
    copy, writer = tmp_path / "copy.jsonl", anchor_of(tmp_path, "chain-001.json").writer
    async with journal(tmp_path) as store:
        copy.write_bytes(b"".join([copied(x) async for x in lines_of(store, writer=writer)]))
    proof = Proof(keys=verifiers(state(tmp_path), KEY), whole=False)
    assert (await verify(lines_in(copy), proof)).problems == ()


async def test_a_key_and_not_one_chain_is_an_alarm(tmp_path: Path) -> None:
    await two_chains(tmp_path)
    for file in ("chain-000.json", "chain-001.json"):
        deleted(tmp_path, file)
    (problem,) = (await verified(tmp_path)).problems
    assert (problem.fault, "not one chain" in problem.what) == ("missing", True)


async def test_when_all_is_gone_only_what_was_kept_elsewhere_tells(tmp_path: Path) -> None:
    await two_chains(tmp_path)
    earlier = (await verified(tmp_path)).heads
    for file in ("chain-000.json", "chain-001.json"):
        deleted(tmp_path, file)
    for left in state(tmp_path).iterdir():
        left.unlink()
    assert (await verified(tmp_path)).ok
    missed = {problem.writer for problem in (await verified(tmp_path, earlier)).problems}
    assert missed == {head.writer for head in earlier}


@pytest.mark.parametrize("details", [None, 3, {"chains": 3}, {"chains": {"a": ["x"]}}, {}])
def test_what_is_no_word_of_others_says_nothing(details: object) -> None:
    assert heads_in(AuditRecord(kind="checkpoint", details=details)) == {}


def test_only_records_of_the_chain_itself_speak_of_others() -> None:
    said = {"chains": {"a": [1, "l"]}}
    assert heads_in(AuditRecord(kind="call", details=said)) == {}
    assert heads_in(AuditRecord(kind="start", details=said)) == {"a": (1, "l")}


def test_a_folder_that_went_away_changes_nothing_of_what_is_known(tmp_path: Path) -> None:
    peers = Peers(tmp_path / "gone", "me", keys={}, told={"a": (1, "l")})
    assert not peers.news()
    assert peers.details() == {"chains": {"a": (1, "l")}}


async def test_a_chain_kept_nowhere_has_none_beside_it() -> None:
    chain: Chain = await open_chain(None, MemoryStore(), SystemClock())
    assert chain.peers is None
