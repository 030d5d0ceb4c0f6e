"""Many records in a line: what goes in comes out, whatever it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolpost.digest import digest
from toolpost.ledger.block import (
    Block,
    Place,
    Shape,
    Told,
    decode,
    encode_row,
    link,
    pack,
)
from toolpost.ledger.record import AuditRecord, Who

ADD = AuditRecord(kind="call", tool="add", caller=Who("ann"), trail=["audit"], code="OK")


def as_sent(arguments: Any) -> bytes | str:
    """What MessagePack cannot hold, as JSON."""
    try:
        return msgspec.msgpack.encode(arguments)
    except OverflowError:
        return msgspec.json.encode(arguments).decode()


def row(shape: Shape, number: int, arguments: Any, *more: str) -> Told:
    sent = as_sent(arguments)
    row = (shape.number, f"c{number}", 10.0 + number, 500.0, sent, *more)
    return shape, encode_row(row), 0.0


def packed(told: list[Told], first: int = 1) -> bytes:
    return pack(told, Place("w", first, "before", 1000.0)).body


def block(told: list[Told], first: int = 1) -> Block:
    found = decode(packed(told, first))
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


@example([2**64 - 1, -(2**63), {"a": 2**64}, [2**70], -(2**70), 1e308, -0.0, "\0\n", {"": {}}])
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
    assert [r.call_id for _, r in pack([odd], Place("w", 1, "", 0.0)).events] == ["i"]


HEAD = {"writer": "w", "first": 1}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b"\x80",
        b"\x91" * 10_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x81\xa4rows\xdd\x7f\xff\xff\xff",
        b"\x81\xa6shapes\xdf\x7f\xff\xff\xff",
        b"\x81\xa5extra" + b"\x91" * 10_000,
        msgspec.msgpack.encode({"writer": "w", "first": 0}),
        msgspec.msgpack.encode({**HEAD, "rows": []}),
        msgspec.msgpack.encode({**HEAD, "first": 0, "rows": [b"{}"]}),
        msgspec.msgpack.encode({**HEAD, "rows": ["{}"]}),
        msgspec.msgpack.encode({**HEAD, "rows": [b"{}"]})[:-1],
        msgspec.msgpack.encode({**HEAD, "rows": [b"{}"]}) + b"\x00",
        msgspec.msgpack.encode({**HEAD, "rows": [b"{}"], "shapes": {1: {"kind": "odd"}}}),
    ],
    ids=lambda body: repr(body)[:24],
)
def test_what_is_no_block_is_none(body: bytes) -> None:
    assert decode(body) is None


@given(st.binary(max_size=200))
def test_attack_any_bytes_are_a_block_or_none(body: bytes) -> None:
    found = decode(body)
    assert found is None or list(found.records()) is not None


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"7",
        b"{",
        b'{"kind":"odd"}',
        b"{" + b'"a":[' * 10_000,
        b"\x91\x01",
        b"\x91" * 10_000,
        b"\xdd\xff\xff\xff\xff",
        encode_row((9, "c", 1.0, 2.0, b"\x80")),
        encode_row((1, "c", 1.0, 2.0, {})),
        encode_row((1, "c", 1.0, 2.0, [[]])),
        encode_row((1, "c", 1.0, 2.0, b"\x91" * 10_000)),
        encode_row((1, "c", 1.0, 2.0, b"\xdd\xff\xff\xff\xff")),
        encode_row((1, "c", 1.0, 2.0, b"\x81\x91\x01\x02")),
        encode_row((1, "c", 1.0, 2.0, b"\xd4\x05\x01")),
        encode_row((1, "c", 1.0, 2.0, b"\xc7\x0c\xff" + b"\xff" * 12)),
        encode_row((1, "c", 1.0, 2.0, b"\x80\x80")),
        encode_row((1, "c", 1.0, 2.0, "[" * 10_000)),
        encode_row((1, "c", 1.0, 2.0, "{} {}")),
        encode_row((1, "c", "then", 2.0, b"\x80")),
    ],
    ids=lambda bad: repr(bad)[:24],
)
def test_attack_a_row_that_is_none_is_left_out(bad: bytes) -> None:
    shapes = {1: {"kind": "call"}}
    rows = [bad, b'{"kind":"start"}']
    found = decode(msgspec.msgpack.encode({**HEAD, "shapes": shapes, "rows": rows}))
    assert found is not None
    assert [(r.number, r.kind) for r in found.records()] == [(2, "start")]
    assert found.last == 2


def test_a_link_is_that_of_the_very_bytes() -> None:
    assert link(b"{}") != link(b"{} ")
