"""Chains outlive their writers: what a dead one left open is closed, a living one's is not."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.ledger.houses import audited, house, records, tamper, verified
from toolpost.clock import SystemClock
from toolpost.contracts import Line
from toolpost.ledger.anchor import anchors, is_held
from toolpost.ledger.block import Place, pack
from toolpost.ledger.opening import FOLDER, lines_of, open_chain
from toolpost.ledger.reading import records_of
from toolpost.ledger.record import AuditRecord
from toolpost.ledger.writing import Chain
from toolpost.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio
CHILD = (sys.executable, "-m", "tests.ledger.children")


def state(folder: Path) -> Path:
    return folder / ".toolpost" / FOLDER


def left_open(folder: Path, calls: int) -> None:
    """A writer with so many calls open, killed."""
    with subprocess.Popen([*CHILD, str(folder), "hang", str(calls)], stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"open\n"
        one.kill()


async def test_fifty_open_calls_of_a_killed_process_are_closed_as_unknown_by_the_next(
    tmp_path: Path,
) -> None:
    left_open(tmp_path, 50)
    before = await verified(tmp_path)
    assert before.ok
    assert before.heads[0].open >= 50
    async with house(tmp_path) as tools:
        await tools.execute("send", {"to": "carl"})
    after = await verified(tmp_path)
    assert (after.ok, [head.open for head in after.heads]) == (True, [0])
    codes = Counter((c.asked.tool, c.code) for c in await audited(tmp_path))
    assert codes["hold", "UNKNOWN"] == 50
    unknown = [r for r in await records(tmp_path) if r.code == "UNKNOWN"]
    assert {r.outcome for r in unknown} == {"unknown"}


async def test_what_a_living_writer_has_open_stays_open(tmp_path: Path) -> None:
    with subprocess.Popen([*CHILD, str(tmp_path), "hang", "5"], stdout=subprocess.PIPE) as living:
        try:
            assert living.stdout is not None
            assert living.stdout.readline() == b"open\n"
            async with house(tmp_path) as tools:
                await tools.execute("send", {"to": "carl"})
            found = await verified(tmp_path)
            assert found.ok
            assert sorted(head.open >= 5 for head in found.heads) == [False, True]
            assert not any(c.code == "UNKNOWN" for c in await audited(tmp_path))
            held = [is_held(state(tmp_path) / file) for file in anchors(state(tmp_path))]
            assert sorted(held) == [False, True]
        finally:
            living.kill()


async def test_the_next_process_goes_on_with_the_chain_of_the_last(tmp_path: Path) -> None:
    for _ in range(3):
        async with house(tmp_path) as tools:
            await tools.execute("add", {"a": 1, "b": 1})
    found = await verified(tmp_path)
    assert (found.ok, len(found.heads), found.records) == (True, 1, 9)


async def test_two_at_once_have_a_chain_each_and_both_are_taken_up_again(tmp_path: Path) -> None:
    for _ in range(2):
        async with house(tmp_path) as one, house(tmp_path) as two:
            await one.execute("send", {"to": "a"})
            await two.execute("send", {"to": "b"})
    found = await verified(tmp_path)
    assert (found.ok, len(found.heads)) == (True, 2)


@pytest.mark.parametrize("attack", ["cut", "edited", "anchor", "rubbish"])
async def test_a_chain_that_was_tampered_with_is_left_alone_as_evidence(
    tmp_path: Path, attack: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with house(tmp_path) as tools:
        for i in range(5):
            await tools.execute("send", {"to": str(i)})
    ((file, anchor),) = anchors(state(tmp_path)).items()
    assert anchor is not None
    if attack == "cut":
        tamper(tmp_path, "DELETE FROM journal WHERE number > 3")
    elif attack == "edited":
        tamper(tmp_path, f"UPDATE journal SET body = x'7b7d' WHERE number = {anchor.number}")
    elif attack == "anchor":
        forged = msgspec.structs.replace(anchor, number=3)
        (state(tmp_path) / file).write_bytes(msgspec.json.encode(forged))
    else:
        (state(tmp_path) / file).write_bytes(b"rubbish")
    evidence = (state(tmp_path) / file).read_bytes()
    with caplog.at_level(logging.ERROR, "toolpost.audit"):
        async with house(tmp_path) as tools:
            assert (await tools.execute("send", {"to": "x"})).success
    assert "is left as it is" in caplog.text
    assert (state(tmp_path) / file).read_bytes() == evidence
    found = await verified(tmp_path)
    assert not found.ok
    assert len(anchors(state(tmp_path))) == 2


@pytest.mark.verify
async def test_attack_killed_inside_a_write_two_hundred_times_the_chain_is_whole(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [*CHILD, str(tmp_path), "200"], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    finished = json.loads(done.stdout)
    assert len(finished) == 200
    found = await verified(tmp_path)
    assert (found.problems, found.unproven) == ((), ())
    async with house(tmp_path) as tools:
        await tools.execute("add", {"a": 1, "b": 1})
    found = await verified(tmp_path)
    assert (found.problems, [head.open for head in found.heads]) == ((), [0])
    sent = [c for c in await audited(tmp_path) if c.asked.tool == "send"]
    assert len(sent) >= sum(finished) > 200  # no call ran without its record
    assert {c.code for c in sent} == {"OK", "UNKNOWN"}


class Shaky(MemoryStore):
    """A journal that is kept, and whose disk may be full or gone."""

    volatile = False

    def __init__(self) -> None:
        super().__init__()
        self.full = self.gone = False

    async def append(self, lines: Sequence[Line]) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        await super().append(lines)

    async def head(self, writer: str) -> Line | None:
        if self.gone:
            raise OSError(5, "Input/output error")
        return await super().head(writer)


def record(kind: str, call_id: str = "") -> AuditRecord:
    return msgspec.convert({"kind": kind, "time": 1.0, "call_id": call_id}, AuditRecord)


async def test_a_start_that_fails_leaves_no_chain_taken(tmp_path: Path) -> None:
    store = Shaky()
    store.full = True
    with pytest.raises(OSError, match="No space"):
        await open_chain(tmp_path, store, SystemClock())
    store.full = False
    (await open_chain(tmp_path, store, SystemClock())).release()
    store.gone = True
    with pytest.raises(OSError, match="Input/output"):
        await open_chain(tmp_path, store, SystemClock())
    store.gone = False
    (await open_chain(tmp_path, store, SystemClock())).release()
    assert len(anchors(tmp_path)) == 1


async def test_a_fault_while_another_chain_is_tended_leaves_no_chain_taken(tmp_path: Path) -> None:
    store = Shaky()
    both = [await open_chain(tmp_path, store, SystemClock()) for _ in range(2)]
    for chain in both:
        chain.release()

    async def fails(chain: Chain) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        await open_chain(tmp_path, store, SystemClock(), tend=fails)
    again = [await open_chain(tmp_path, store, SystemClock()) for _ in range(2)]
    assert {c.anchor.writer for c in again} == {c.anchor.writer for c in both}


async def test_a_file_that_was_made_and_never_written_is_used(tmp_path: Path) -> None:
    (tmp_path / "chain-000.json").touch(mode=0o600)
    chain = await open_chain(tmp_path, Shaky(), SystemClock())
    chain.release()
    assert list(anchors(tmp_path)) == ["chain-000.json"]


@pytest.mark.parametrize("marks", [3, 1000])
async def test_a_writer_that_died_before_its_anchor_followed_is_taken_up_where_it_was(
    tmp_path: Path, marks: int
) -> None:
    store = Shaky()
    chain = await open_chain(tmp_path, store, SystemClock(), every=marks)
    old = (tmp_path / "chain-000.json").read_bytes()
    for i in range(20):
        chain.add([record("intent", str(i)), record("outcome", str(i) if i != 13 else "")])
        await chain.write()
        if i == 12:
            old = (tmp_path / "chain-000.json").read_bytes()
    chain.release()
    (tmp_path / "chain-000.json").write_bytes(old)
    again = await open_chain(tmp_path, store, SystemClock(), every=marks)
    assert again.anchor.writer == chain.anchor.writer
    codes = [r.code async for r in records_of(lines_of(store)) if r.code]
    assert codes == ["UNKNOWN"]
    again.release()


async def test_what_stands_behind_the_anchor_and_does_not_follow_is_left_alone(
    tmp_path: Path,
) -> None:
    store = Shaky()
    chain = await open_chain(tmp_path, store, SystemClock())
    stray = pack([record("call")], Place(chain.anchor.writer, 2, "", 0.0)).body
    await store.append([Line(chain.anchor.writer, 2, stray)])
    chain.release()
    again = await open_chain(tmp_path, store, SystemClock())
    assert again.anchor.writer != chain.anchor.writer


async def test_an_anchor_that_cannot_be_written_is_an_alarm_and_not_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chain = await open_chain(tmp_path, Shaky(), SystemClock())
    chain.release()
    for _ in range(2):
        chain.add([record("call")])
        await chain.write()
    assert caplog.text.count("cannot be written") == 1
    assert chain.anchor.number == 3
