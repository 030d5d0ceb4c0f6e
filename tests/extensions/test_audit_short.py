"""Reads are told in short and looked through all at once: nothing gets by because of that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.extensions.around import surroundings
from tests.extensions.test_audit import Book, audited
from toolpost import Call, Caller, Executor, Registry, Result, create_tool, known, tool
from toolpost.contracts import Walk
from toolpost.digest import digest
from toolpost.extensions.approval import Approval
from toolpost.extensions.audit import Audit, AuditOptions, tidied
from toolpost.ledger.block import Row, Shape, decode
from toolpost.ledger.record import AuditRecord
from toolpost.ledger.scribe import BATCH
from toolpost.redact import clean_json, redact, remember

SHAPE = Shape.of(AuditRecord(kind="call"))
PLANTED = (
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "ann@example.org",
    "ann@" + "ü" * 40 + ".de",
    "4111 1111 1111 1111",
    "postgres://ann:s3cr3t-pw@db.example.org/x",
    "https:~1~1ann:s3cr3t-pw@db.example.org",
    'password = "Tr0ub4dor&3xyz"',
    "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n" * 3,
    "Bearer abcDEF123456ghiJKL7890",
)
AROUND = st.text(
    st.sampled_from('"\\/\n\t\r\b\f\0\x01\x7f\u2028é漢😀 ,:{}[]abz19_-.@~')
    | st.characters(codec="utf-8"),
    max_size=12,
)
TEXTS = st.one_of(
    AROUND,
    st.builds("{} {} {}".format, AROUND, st.sampled_from(PLANTED), AROUND),
    st.builds("{}{}{}".format, AROUND, st.sampled_from(PLANTED), AROUND),
)
KEYS = TEXTS | st.sampled_from(("password", "api_key", "pass\nword", 'p"assword', "Token", "note"))
VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers() | st.sampled_from([4111111111111111]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def rows(sent: list[Any]) -> list[Row]:
    return [
        (SHAPE, str(n), 0.0, 1.0, msgspec.Raw(msgspec.json.encode(one)))
        for n, one in enumerate(sent)
    ]


def joined(told: list[Row]) -> bytes:
    return b"\n".join([row[4] for row in told])


@pytest.mark.req("NA-3")
@example([{"a": 'x\\"AKIAIOSFODNN7EXAMPLE\\"'}, {"a": "\\nAKIAIOSFODNN7EXAMPLE"}])
@example([{"a": "\x01ghp_16C7e42F292c6912E7710c838347Ae178B4a\x02"}])
@example([{'"password': "x"}, {"pass\\word": 1}, {"password": 5}])
@example([{"a": "ann@" + "ü" * 40 + ".de"}])
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=3), max_size=20))
def test_attack_many_at_once_are_redacted_as_each_alone_would_be(sent: list[Any]) -> None:
    told = rows(sent)
    found = tidied(told, joined(told))
    assert [json.loads(bytes(row[4])) for row in found] == [redact(one) for one in sent]
    for one, row in zip(sent, found, strict=True):
        left = json.loads(bytes(row[4]))
        assert row[5:] == (() if left == one else (digest(one),))


@pytest.mark.parametrize("secret", PLANTED)
@pytest.mark.parametrize(
    "around", ['"{}"', "\n{}\n", "\\{}\\", "\\n {}", "\x00{}\x1f", "\t{}\r", "é {} 漢"]
)
def test_attack_one_secret_among_a_thousand_calls_is_not_written(secret: str, around: str) -> None:
    sent = [{"text": f"line {n}\n", "n": n} for n in range(1000)]
    sent[617]["text"] = around.format(secret)
    told = rows(sent)
    found = tidied(told, joined(told))
    text = joined(list(found)).decode()
    assert msgspec.json.encode(secret).decode()[1:-1] not in text
    assert [row for n, row in enumerate(found) if n != 617] == [
        row for n, row in enumerate(told) if n != 617
    ]


@pytest.fixture
def known_secret() -> Iterator[str]:
    value = 'qu"ote\\back\nslash-7'
    remember(value)
    yield value
    known.values.discard(value)


def test_attack_a_secret_that_is_known_is_found_through_its_escapes(known_secret: str) -> None:
    told = rows([{"a": 1}, {"a": f"x{known_secret}y"}])
    found = tidied(told, joined(told))
    assert b"ote" not in joined(list(found))


def test_text_with_line_breaks_and_quotes_needs_no_closer_look() -> None:
    assert clean_json(json.dumps({"text": 'He said "no".\nThen\t\\ he left.'}))
    assert not clean_json(json.dumps({"text": "\x01"}))  # more than a look


@tool(tier=0, effects="read")
async def look(text: str) -> str:
    """Look something up."""
    return text


MAIL = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "body": {"type": "string", "x-raw": True},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}},
    },
    "$defs": {
        "part": {
            "type": "object",
            "properties": {"text": {"anyOf": [{"type": "string", "x-raw": True}]},
                           "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}}},
        }
    },
}  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize(("tier", "effects"), [(0, "read"), (2, "once")])
async def test_a_record_names_the_raw_arguments_that_were_sent(
    tmp_path: Path, tier: Any, effects: Any
) -> None:
    book = Book()

    async def write(arguments: dict[str, Any]) -> None:
        pass

    mail = create_tool("mail", "Write.", write, input_schema=MAIL, tier=tier, effects=effects)
    audit = Audit(surroundings(tmp_path, records=book, journal=book))
    async with Executor(Registry([mail, look]), observers=[audit]) as tools:
        for sent in ({"to": "a"}, {"body": "b"}, {"to": "a", "body": "b", "parts": []}):
            assert (await tools.execute("mail", sent)).success
        assert (await tools.execute("look", {"text": "x"})).success
    found = [call.to_dict().get("raw", []) for call in await book.calls()]
    assert sorted(found) == [[], [], ["body"], ["body", "parts"]]


@pytest.mark.anyio
@pytest.mark.parametrize(("tier", "effects"), [(0, "read"), (3, "once")])
async def test_a_record_names_who_approved_the_call(
    tmp_path: Path, tier: Any, effects: Any
) -> None:
    book = Book()

    @tool(tier=tier, effects=effects, requires_approval=True)
    async def pay(amount: int) -> int:
        """Pay."""
        return amount

    around = surroundings(tmp_path, records=book, journal=book)

    async def yes(_: Any) -> bool:
        return True

    approval = Approval(book, ask=yes)
    async with Executor(Registry([pay]), observers=[Audit(around)], guards=[approval]) as tools:
        assert (await tools.execute("pay", {"amount": 5})).success
    (call,) = await book.calls()
    assert call.ended is not None
    assert call.ended.approver
    assert any(f"approved by {call.ended.approver}" in step for step in call.ended.trail)
    assert call.to_dict()["approver"] == call.ended.approver


@pytest.mark.anyio
async def test_calls_of_many_sessions_are_told_apart(tmp_path: Path) -> None:
    book = Book()
    async with audited(tmp_path, book, seconds=60) as tools:
        for n in range(60):
            who = Caller(f"key-{n % 3}")
            await tools.execute("look", {"text": str(n)}, caller=who, session_id=f"s{n % 2}")
    found = [(c.asked.caller and c.asked.caller.id, c.asked.session) for c in await book.calls()]
    assert found == [(f"key-{n % 3}", f"s{n % 2}") for n in range(60)]
    blocks = [decode(line.body) for line in await book.read()]
    assert max(len(block.shapes) for block in blocks if block is not None) == 6


@pytest.mark.anyio
async def test_what_rings_say_of_each_call_is_in_its_record(tmp_path: Path) -> None:
    book = Book()

    async def says(call: Call, call_next: Walk) -> Result:
        call.note("says", f"number {call.arguments['text']}")
        if call.arguments["text"] == "3":
            call.trail.append(["not", "a", "step"])  # type: ignore[arg-type]
        return await call_next(call)

    async with audited(tmp_path, book, guards=[says]) as tools:
        for n in range(5):
            await tools.execute("look", {"text": str(n)})
    trails = [c.asked.trail for c in await book.calls()]
    assert [trail[2] for trail in trails] == [f"says: number {n}" for n in range(5)]
    assert trails[3][3] == "['not', 'a', 'step']"


@pytest.mark.anyio
async def test_more_callers_than_are_remembered_are_on_the_record(tmp_path: Path) -> None:
    book = Book()
    async with audited(tmp_path, book) as tools:
        for n in range(1100):
            await tools.execute("look", {"text": "x"}, session_id=str(n))
    assert [c.asked.session for c in await book.calls()] == [str(n) for n in range(1100)]


@pytest.mark.anyio
async def test_attack_large_arguments_wait_for_the_disk_before_they_fill_the_memory(
    tmp_path: Path,
) -> None:
    book, text = Book(), "x" * 4_000_000
    async with audited(tmp_path, book, seconds=60, patience=30) as tools:
        await tools.execute("send", {"to": "ann"})
        book.gate.clear()
        done = 0

        async def flood() -> None:
            nonlocal done
            for _ in range(30):
                await tools.execute("look", {"text": text})
                done += 1

        running = asyncio.ensure_future(flood())
        for _ in range(2000):
            await asyncio.sleep(0)
        assert done < 25
        book.gate.set()
        await asyncio.wait_for(running, 60)
    assert len([c for c in await book.calls() if c.asked.tool == "look"]) == 30


@pytest.mark.anyio
async def test_who_calls_without_a_pause_lets_the_audit_be_written(tmp_path: Path) -> None:
    book = Book()
    async with audited(tmp_path, book, seconds=60) as tools:
        for _ in range(4 * BATCH):
            await tools.execute("look", {"text": "x"})
        assert len(book.appends) >= 2
    assert AuditOptions().buffer >= 4 * BATCH
