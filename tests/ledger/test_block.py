"""Many records in a line: what goes in comes out, whatever it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.digest import digest
from toolpost.ledger.block import Block, Shape, Told, decode, link, pack
from toolpost.ledger.record import AuditRecord, Who

ADD = AuditRecord(kind="call", tool="add", caller=Who("ann"), trail=["audit"], code="OK")


def row(shape: Shape, number: int, arguments: Any, *more: str) -> Told:
    raw = msgspec.Raw(msgspec.json.encode(arguments))
    return (shape, f"c{number}", 10.0 + number, 10.5 + number, raw, *more)


def block(told: list[Told], first: int = 1) -> Block:
    body = pack(told).placed(writer="w", first=first, prev="before", clock=1000.0)
    assert b"\n" not in body
    found = decode(body)
    assert found is not None
    return found


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(JSON, min_size=1, max_size=20))
def test_calls_told_in_short_come_back_whole(sent: list[Any]) -> None:
    shape = Shape.of(ADD)
    told = [row(shape, n, arguments) for n, arguments in enumerate(sent)]
    assert list(block(told, first=7).records()) == [
        msgspec.structs.replace(
            ADD,
            writer="w",
            number=7 + n,
            time=1010.0 + n,
            call_id=f"c{n}",
            arguments=arguments,
            arguments_digest=digest(arguments),
            duration_ms=500.0,
        )
        for n, arguments in enumerate(sent)
    ]


def test_what_many_calls_have_in_common_stands_there_once() -> None:
    one, two = Shape.of(ADD), Shape.of(msgspec.structs.replace(ADD, session="s"))
    found = block([row(two if n % 2 else one, n, {}) for n in range(100)])
    assert len(found.shapes) == 2
    assert [r.session for r in found.records()] == [None, "s"] * 50


def test_rows_and_whole_records_stand_side_by_side_in_their_order() -> None:
    intent = AuditRecord(kind="intent", time=5.0, call_id="i", tool="send")
    shape = Shape.of(ADD)
    found = block([row(shape, 0, {}), intent, row(shape, 2, {})])
    assert [(r.number, r.kind) for r in found.records()] == [
        (1, "call"),
        (2, "intent"),
        (3, "call"),
    ]
    assert [(r.number, r.call_id) for r in found.events()] == [(2, "i")]
    assert found.time() == 1012.0
    assert found.alone() is None


def test_a_digest_that_was_given_is_not_that_of_what_is_left() -> None:
    (found,) = block([row(Shape.of(ADD), 0, "[redacted:secret]", "sha256:12")]).records()
    assert found.arguments_digest == "sha256:12"
    (found,) = block([row(Shape.of(ADD), 0, "(not shown)", "")]).records()
    assert found.arguments_digest == ""


def test_one_that_cannot_be_written_does_not_take_the_others_with_it() -> None:
    odd = AuditRecord(kind="intent", time=1.0, call_id="i", arguments={"x": "\ud800"})
    rows = [msgspec.structs.replace(odd, arguments=1), odd]
    found = list(block([*rows, row(Shape.of(ADD), 0, {})]).records())
    assert [r.call_id for r in found] == ["i", "i", "c0"]
    assert "cannot be written" in found[1].note
    packed = pack([odd])
    assert [record.call_id for _, record in packed.events] == ["i"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b"[" * 10_000,
        b'{"writer":"w","first":0}',
        b'{"writer":"w","first":1,"rows":[]}',
        b'{"writer":"w","first":0,"rows":[{}]}',
    ],
)
def test_what_is_no_block_is_none(body: bytes) -> None:
    assert decode(body) is None


@pytest.mark.parametrize("bad", ["[1]", '[[9],"c",1.0,2.0,{}]', '{"kind":"odd"}', "7"])
def test_a_row_that_is_none_is_left_out(bad: str) -> None:
    body = f'{{"writer":"w","first":1,"rows":[{bad},{{"kind":"start"}}]}}'.encode()
    found = decode(body)
    assert found is not None
    assert [(r.number, r.kind) for r in found.records()] == [(2, "start")]
    assert found.last == 2


def test_a_link_is_that_of_the_very_bytes() -> None:
    assert link(b"{}") != link(b"{} ")
