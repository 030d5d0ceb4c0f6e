"""The audit as people ask for it: single calls, the last ones, those that fit, a spreadsheet."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from tests.ledger.houses import audited, house, journal
from toolpost import Caller
from toolpost.ledger.reading import (
    COLUMNS,
    AuditedCall,
    Wanted,
    csv_rows,
    last_calls,
    last_position,
)
from toolpost.ledger.record import AuditRecord, Who
from toolpost.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


async def three_calls(folder: Path) -> list[AuditedCall]:
    async with house(folder) as tools:
        ann = Caller("key-1", user="ann", agent="planner")
        await tools.execute("send", {"to": "bob"}, caller=ann, session_id="s1")
        await tools.execute("send", {"to": "nobody"})
        await tools.execute("add", {"a": 1, "b": 2})
    return await audited(folder)


@pytest.mark.parametrize(
    ("wanted", "fit"),
    [
        (Wanted(), 3),
        (Wanted(tool="send"), 2),
        (Wanted(caller="ann"), 1),
        (Wanted(caller="planner"), 1),
        (Wanted(caller="owner"), 2),
        (Wanted(session="s1"), 1),
        (Wanted(code="ok"), 2),
        (Wanted(code="EXECUTION_ERROR"), 1),
        (Wanted(text="BOB"), 1),
        (Wanted(text="there is nobody"), 1),
        (Wanted(since=1.0), 3),
        (Wanted(until=1.0), 0),
    ],
)
async def test_calls_are_found_by(tmp_path: Path, wanted: Wanted, fit: int) -> None:
    assert sum(map(wanted.fits, await three_calls(tmp_path))) == fit


async def test_intent_and_outcome_come_back_as_one_call(tmp_path: Path) -> None:
    said = (await three_calls(tmp_path))[0].to_dict()
    assert (said["kind"], said["code"], said["outcome"]) == ("call", "OK", "done")
    assert said["arguments"] == {"to": "bob"}
    assert said["ended"] > said["number"]


@pytest.mark.parametrize("number", [1, 2, 30, 500])
async def test_the_last_calls_are_found_in_a_long_journal(tmp_path: Path, number: int) -> None:
    async with house(tmp_path) as tools:
        for i in range(200):
            await tools.execute("send", {"to": str(i)})
            await tools.execute("add", {"a": i, "b": 0})
    everything = await audited(tmp_path)
    async with journal(tmp_path) as store:
        assert await last_calls(store, number) == everything[-number:]


async def test_an_empty_journal_has_no_last_call() -> None:
    store = MemoryStore()
    assert await last_position(store) == 0
    assert await last_calls(store, 5) == []


async def test_an_open_call_is_open() -> None:
    call = AuditedCall(AuditRecord(kind="intent", time=0, call_id="c", tool="t"), None)
    assert call.to_dict()["code"] == "OPEN"


def test_attack_no_cell_of_a_spreadsheet_is_a_formula() -> None:
    record = AuditRecord(
        kind="call",
        time=1.5,
        call_id="c1",
        tool="=HYPERLINK(1)",
        caller=Who("@evil", "+1", "-1"),
        session="\t=1",
        code="OK",
        arguments={"a": "=1"},
        trail=["audit"],
        cached=True,
    )
    rows = list(csv.DictReader(io.StringIO(csv_rows([AuditedCall(record, record)]))))
    assert list(rows[0]) == list(COLUMNS)
    cells = [rows[0][c] for c in ("tool", "caller", "user", "agent", "session")]
    assert cells == ["'=HYPERLINK(1)", "'@evil", "'+1", "'-1", "'\t=1"]
    assert (rows[0]["arguments"], rows[0]["cached"]) == ('{"a":"=1"}', "true")


def test_attack_no_cell_of_a_spreadsheet_is_obeyed_by_a_terminal() -> None:
    attack = "a\x1b[2J\x1b]0;x\x07\u202eb"
    record = AuditRecord(
        kind="call", time=1.5, call_id="c1", tool=attack, session=attack, code="OK",
        caller=Who(attack), arguments={attack: attack}, trail=[attack],
    )  # fmt: skip
    text = csv_rows([AuditedCall(record, record)])
    assert text.isascii() and "\x1b" not in text and r"a\x1b[2J\x1b]0;x\x07\u202eb" in text
