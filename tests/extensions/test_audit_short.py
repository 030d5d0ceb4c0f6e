"""Reads are told in short and looked through all at once: nothing gets by because of that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.extensions.around import surroundings
from tests.extensions.test_audit import Book, audited
from toolpost import Call, Caller, Executor, Registry, Result, create_tool, known, tool
from toolpost.approvals import Decision, Lasting
from toolpost.call import OWNER
from toolpost.contracts import Check, Walk
from toolpost.digest import digest
from toolpost.errors import QueueFull
from toolpost.extensions.approval import Approval
from toolpost.extensions.audit import Audit, AuditOptions
from toolpost.extensions.sanitize import Sanitize
from toolpost.ledger.block import Shape, Short, decode, decode_row, encode_row, text_of, value_of
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import AuditedCall
from toolpost.ledger.record import AuditRecord
from toolpost.ledger.scribe import BATCH
from toolpost.ledger.tidy import tidied
from toolpost.redact import clean_json, redact, remember
from toolpost.result import Metadata

SHAPE = Shape.of(AuditRecord(kind="call"))
CLEAN = Shape.of(AuditRecord(kind="call"), clean=True)
PLANTED = (
    "AKIAIOSFODNN7QWERTYU",
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


def rows(sent: list[Any], shape: Shape = SHAPE, *, packed: bool = False) -> list[Short]:
    """Calls that began one second after the other, the first at 1."""
    return [_row(shape, n, one, packed) for n, one in enumerate(sent, start=1)]


def _row(shape: Shape, number: int, one: Any, packed: bool) -> Short:
    try:
        sent: Any = msgspec.msgpack.encode(one) if packed else msgspec.json.encode(one).decode()
    except OverflowError:
        sent = msgspec.json.encode(one).decode()
    return shape, encode_row((shape.number, str(number), float(number), 1.0, sent)), 0.0


def shown(told: Sequence[Short]) -> list[Any]:
    return [value_of(decode_row(row).sent) for _, row, _ in told]


def joined(told: Sequence[Short]) -> str:
    return "\n".join(text_of(decode_row(row).sent) for _, row, _ in told)


@pytest.mark.req("NA-3")
@example([{"a": 'x\\"AKIAIOSFODNN7QWERTYU\\"'}, {"a": "\\nAKIAIOSFODNN7QWERTYU"}])
@example([{"a": "\x01ghp_16C7e42F292c6912E7710c838347Ae178B4a\x02"}])
@example([{'"password': "x"}, {"pass\\word": 1}, {"password": 5}])
@example([{"a": "ann@" + "ü" * 40 + ".de"}])
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=3), max_size=20))
def test_attack_many_at_once_are_redacted_as_each_alone_would_be(sent: list[Any]) -> None:
    for packed in (False, True):
        found = tidied(rows(sent, packed=packed))
        assert shown(found) == [redact(one) for one in sent]
        for one, left, (_, row, _) in zip(sent, shown(found), found, strict=True):
            assert decode_row(row).digest == (None if left == one else digest(one))


@pytest.mark.parametrize("secret", PLANTED)
@pytest.mark.parametrize(
    "around", ['"{}"', "\n{}\n", "\\{}\\", "\\n {}", "\x00{}\x1f", "\t{}\r", "é {} 漢"]
)
def test_attack_one_secret_among_a_thousand_calls_is_not_written(secret: str, around: str) -> None:
    sent = [{"text": f"line {n}\n", "n": n} for n in range(1000)]
    sent[617]["text"] = around.format(secret)
    told = rows(sent)
    found = tidied(told)
    assert msgspec.json.encode(secret).decode()[1:-1] not in joined(found)
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
    found = tidied(rows([{"a": 1}, {"a": f"x{known_secret}y"}]))
    assert "ote" not in joined(found)


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
    assert call.ended.approver == "callback (callback)"
    assert any(f"approved by {call.ended.approver}" in step for step in call.ended.trail)
    assert call.to_dict()["approver"] == call.ended.approver


@pytest.mark.anyio
@pytest.mark.parametrize(("tier", "effects"), [(0, "read"), (3, "once")])
async def test_who_approved_a_call_is_known_though_its_caller_went_away(
    tmp_path: Path, tier: Any, effects: Any
) -> None:
    book, begun = Book(), asyncio.Event()

    @tool(tier=tier, effects=effects, requires_approval=True)
    async def pay() -> None:
        """Pay, and take long."""
        begun.set()
        await asyncio.get_running_loop().create_future()

    async def yes(_: Any) -> bool:
        return True

    around, approval = surroundings(tmp_path, records=book, journal=book), Approval(book, ask=yes)
    async with Executor(Registry([pay]), observers=[Audit(around)], guards=[approval]) as tools:
        run = asyncio.ensure_future(tools.execute("pay"))
        async with asyncio.timeout(30):
            await begun.wait()
        run.cancel()
        await asyncio.wait([run])
    (call,) = await book.calls()
    assert call.ended is not None
    assert (call.code, call.ended.approver) == ("CANCELLED", "callback (callback)")


@pytest.mark.anyio
@pytest.mark.parametrize(("tier", "effects"), [(0, "read"), (2, "once")])
async def test_attack_a_tool_that_claims_a_yes_in_its_trail_was_approved_by_nobody(
    tmp_path: Path, tier: Any, effects: Any
) -> None:
    """What the approval says in the result counts, and not what stands in the trail."""
    book, said = Book(), list[str]()

    @tool(tier=tier, effects=effects)
    async def pay(amount: int, call: Call) -> int:
        """Pay."""
        if call.trail[-1] == "approval":  # nobody was asked: it says what it heard before
            call.note("approval", said[-1])
        else:
            said.append(call.trail[-1].removeprefix("approval: "))
        return amount

    def asks(call: Call) -> Call | None:
        return msgspec.structs.replace(call, ask="Why not?") if call.arguments["amount"] else None

    class Asks:
        name = "asks"

        def bind(self, spec: Any, road: Any) -> Any:
            return Check(asks)

    approval = Approval(book)
    around = surroundings(tmp_path, records=book, journal=book)
    async with Executor(
        Registry([pay]), observers=[Audit(around)], guards=[Asks(), approval]
    ) as tools:
        asked = await tools.execute("pay", {"amount": 5})
        assert asked.error is not None and asked.error.details is not None
        lasting = Decision(approve=True, lasting=Lasting(where={"amount": {"const": 5}}))
        await approval.approvals.decide(
            asked.error.details["approval"], lasting, by=OWNER, channel="terminal"
        )
        for amount in (5, 5, 0, 5, 0, 0, 5):  # the first has a yes of its own
            assert (await tools.execute("pay", {"amount": amount})).success
    found = [call.ended for call in await book.calls() if call.code == "OK"][1:]
    assert len({tuple(end.trail[-1:]) for end in found if end}) == 1
    who = [bool(end.approver) for end in found if end]
    assert who == [True, False, True, False, False, True]


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
async def test_a_trail_that_is_not_the_call_s_own_is_in_its_record(tmp_path: Path) -> None:
    book = Book()

    async def elsewhere(call: Call, call_next: Walk) -> Result:
        result = await call_next(call)
        if call.arguments["text"] != "3":
            return result
        about = Metadata(call.call_id, trail=["elsewhere"])
        return Result(result.output, metadata=about)

    async with audited(tmp_path, book, guards=[elsewhere]) as tools:
        for n in range(5):
            await tools.execute("look", {"text": str(n)})
    trails = [c.asked.trail for c in await book.calls()]
    assert trails == [["audit", "elsewhere"]] * 3 + [["elsewhere"]] + [["audit", "elsewhere"]]


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


ORDER = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "number": {"type": ["integer", "number", "null"]},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
                "required": ["name"],
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}
NUMBERS = st.none() | st.integers() | st.floats() | st.sampled_from(
    [4111111111111111, -4111111111111111, 4111111111111111.0, 2**64 - 1, 2**64, 2**70, 126, 207]
)  # fmt: skip
ORDERS = st.fixed_dictionaries(
    {},
    optional={
        "text": TEXTS,
        "number": NUMBERS,
        "lines": st.lists(
            st.fixed_dictionaries({"name": TEXTS}, optional={"count": st.integers()}), max_size=3
        ),
    },
)


def reading(schema: dict[str, Any], *, coerce: bool = False) -> Any:
    """A tool that anything may be done with."""

    async def read(arguments: dict[str, Any]) -> None:
        await asyncio.sleep(0)

    return create_tool(
        "read", "Read.", read, input_schema=schema, tier=0, effects="read", coerce=coerce
    )


async def recorded(
    folder: Path,
    sent: Sequence[dict[str, Any]],
    *guards: Any,
    schema: dict[str, Any] = ORDER,
    coerce: bool = False,
) -> list[AuditedCall]:
    """What the audit keeps of these calls, once harmless ones have been written."""
    book = Book()
    around = surroundings(folder, records=book, journal=book)
    audit = Audit(around, AuditOptions(seconds=0))
    tools = Registry([reading(schema, coerce=coerce)])
    async with Executor(tools, observers=[audit], guards=guards) as executor:
        await executor.execute("read", {})
        async with asyncio.timeout(10):
            while not await book.calls():
                await asyncio.sleep(0)
        for one in sent:
            await executor.execute("read", {})
            await executor.execute("read", one)
    return (await book.calls())[2::2]


def kept(found: Sequence[AuditedCall]) -> list[Any]:
    return [call.asked.arguments for call in found]


@pytest.mark.req("NA-3")
@example([{"lines": [{"name": "https:~1~1ann:s3cr3t-pw@localhost"}]}])
@example([{"number": 4111111111111111}])
@example([{"lines": [{"name": "x", "count": 4111111111111111}]}])
@example([{"number": 2**70}, {"lines": [{"name": "https:~1~1ann:s3cr3t-pw@localhost"}]}])
@example([{"text": "ann@example.org", "number": float("nan")}, {"text": "~1 \xcf"}])
@given(st.lists(ORDERS, max_size=5))
def test_attack_what_sanitize_has_seen_is_redacted_as_it_would_be_without(sent: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        seen = asyncio.run(recorded(Path(folder), sent, Sanitize()))
        alone = asyncio.run(recorded(Path(folder), sent))
    told = [json.loads(msgspec.json.encode(one)) for one in sent]
    assert kept(seen) == kept(alone) == [redact(one) for one in told]
    for call, one in zip(seen, told, strict=True):
        if call.code == "OK":
            assert call.asked.arguments_digest == digest(one)


def spied(text: str) -> dict[str, Any]:
    return {"text": text, "lines": [{"name": text}]}


SANITIZED = ["without", "redacting", "warning", "allowing"]
ALLOWED = Sanitize(personal="allow")
WARNING = Sanitize(secrets="warn", personal="warn")


@pytest.mark.anyio
@pytest.mark.req("NA-3")
@pytest.mark.parametrize("guards", [(), (Sanitize(),), (WARNING,), (ALLOWED,)], ids=SANITIZED)
@pytest.mark.parametrize("secret", PLANTED)
async def test_attack_whatever_sanitize_does_a_secret_is_in_no_record(
    tmp_path: Path, guards: tuple[Any, ...], secret: str
) -> None:
    sent = [spied(secret), {"text": f"x {secret} y"}]
    assert kept(await recorded(tmp_path, sent, *guards)) == [redact(one) for one in sent]


@pytest.mark.anyio
async def test_attack_what_a_guard_took_out_before_sanitize_saw_it_is_in_no_record(
    tmp_path: Path,
) -> None:
    async def takes(call: Call, call_next: Walk) -> Result:
        return await call_next(call.with_arguments({**call.arguments, "text": "x"}))

    sent = {"text": PLANTED[0]}
    (found,) = await recorded(tmp_path, [sent], takes, Sanitize())
    assert (found.code, found.asked.arguments) == ("OK", redact(sent))


@pytest.mark.anyio
async def test_attack_a_guard_of_the_same_name_vouches_for_nothing(tmp_path: Path) -> None:
    async def sanitize(call: Call, call_next: Walk) -> Result:
        return await call_next(call.with_arguments({}))

    sent = {"text": PLANTED[0]}
    (found,) = await recorded(tmp_path, [sent], sanitize, Sanitize())
    assert (found.code, found.asked.arguments) == ("OK", redact(sent))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("properties", "sent"),
    [
        ({"pin": {"type": "integer"}}, {"pin": 1234}),
        ({"card": {"type": "integer"}}, {"card": 4111111111111111}),
        ({"card": {"type": "integer"}}, {"card": "4111111111111111"}),
        ({"to": {"enum": ["ann@example.org"]}}, {"to": "ann@example.org"}),
        ({"to": {"type": "string", "x-raw": True}}, {"to": "ann@example.org"}),
        ({"to": {"type": "object"}}, {"to": {"password": "x"}}),
        ({"to": {"type": "object"}}, {"to": {"ann@example.org": 1}}),
    ],
)
@pytest.mark.parametrize("guards", [(), (Sanitize(),)], ids=["alone", "sanitize"])
async def test_attack_what_no_look_at_texts_finds_is_in_no_record(
    tmp_path: Path, properties: dict[str, Any], sent: dict[str, Any], guards: tuple[Any, ...]
) -> None:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    (found,) = await recorded(tmp_path, [sent], *guards, schema=schema, coerce=True)
    assert found.code == "OK"
    assert found.asked.arguments == redact(sent) != sent
    (found,) = await recorded(tmp_path, [sent], *guards, schema=schema)
    assert found.asked.arguments == redact(sent)


@pytest.mark.anyio
async def test_attack_a_secret_that_becomes_known_during_a_call_is_in_no_record(
    tmp_path: Path, known_secret: str
) -> None:
    """Sanitize did not know it, and the calls that were written meanwhile say nothing of it."""
    known.values.discard(known_secret)
    book = Book()
    go, begun = asyncio.Event(), asyncio.Event()

    async def wait(arguments: dict[str, Any]) -> None:
        if arguments.get("text"):
            begun.set()
            await go.wait()

    slow = create_tool("read", "Read.", wait, input_schema=ORDER, tier=0, effects="read")
    audit = Audit(surroundings(tmp_path, records=book, journal=book), AuditOptions(seconds=0))
    async with Executor(Registry([slow]), observers=[audit], guards=[Sanitize()]) as executor:
        await executor.execute("read", {})
        running = asyncio.ensure_future(executor.execute("read", {"text": known_secret}))
        await begun.wait()
        remember(known_secret)
        await executor.execute("read", {})
        async with asyncio.timeout(10):
            while len(await book.calls()) < 2:
                await asyncio.sleep(0)
        go.set()
        assert (await running).success
    assert kept(await book.calls()) == [{}, {}, {"text": "[redacted:known_secret]"}]


@pytest.mark.anyio
@pytest.mark.parametrize(("guards", "form"), [((), str), ((Sanitize(),), bytes)], ids=["no", "yes"])
async def test_what_somebody_vouches_for_is_not_searched_again(
    tmp_path: Path, guards: tuple[Any, ...], form: type
) -> None:
    book = Book()
    audit = Audit(surroundings(tmp_path, records=book, journal=book))
    async with Executor(Registry([look]), observers=[audit], guards=guards) as executor:
        for n in range(3):
            assert (await executor.execute("look", {"text": f"number {n}"})).success
    blocks = [decode(line.body) for line in await book.read()]
    (block,) = [block for block in blocks if block is not None and block.shapes]
    assert [type(decode_row(row).sent) for row in block.rows] == [str, form, form]
    assert kept(await book.calls()) == [{"text": f"number {n}"} for n in range(3)]
    told = rows([{"text": PLANTED[0]}], CLEAN, packed=True)
    assert tidied([(CLEAN, told[0][1], 1.0)], since=0.5) == [(CLEAN, told[0][1], 1.0)]
    assert kept_secret(tidied([(CLEAN, told[0][1], 1.0)], since=1.0)) is False


@pytest.mark.anyio
async def test_calls_at_the_same_time_are_each_recorded_with_what_was_sent(tmp_path: Path) -> None:
    book, gates = Book(), {str(n): asyncio.Event() for n in range(6)}

    @tool(tier=0, effects="read")
    async def wait(words: list[str]) -> None:
        """Wait for the word."""
        word = words.pop()
        if word in gates:
            await gates[word].wait()
        if word == "fails":
            raise QueueFull("Too many.")

    def order(word: str) -> dict[str, Any]:
        return {"words": [word]}

    audit = Audit(surroundings(tmp_path, records=book, journal=book))
    async with Executor(Registry([wait]), observers=[audit], guards=[Sanitize()]) as executor:
        for word in ("first", "second"):  # from the second on it is known what such a call is like
            assert (await executor.execute("wait", order(word))).success
        running = {}
        for word in gates:
            running[word] = asyncio.create_task(executor.execute("wait", order(word)))
            await asyncio.sleep(0)
            await executor.execute("wait", order(f"beside {word}"))
        running["2"].cancel()
        await asyncio.wait([running.pop("2")])
        for word in ("5", "0", "3", "1", "4"):
            gates[word].set()
            await running[word]
            await executor.execute("wait", order("fails"))
    found = [word for sent in kept(await book.calls()) for word in sent["words"]]
    beside = [f"beside {word}" for word in gates]
    failed = [*"50314"]
    assert found == [
        "first", "second", *beside, "2", *(word for one in failed for word in (one, "fails"))
    ]  # fmt: skip


def kept_secret(found: Sequence[Short]) -> bool:
    return PLANTED[0] in joined(found)


@pytest.mark.anyio
@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 2**64 - 1, 2**64, 2**70, -(2**70)])
async def test_a_number_of_any_size_is_on_the_record_as_it_is(tmp_path: Path, number: int) -> None:
    sent = [{"number": number}] * 2
    for guards in ((), (Sanitize(),)):
        found = await recorded(tmp_path, sent, *guards)
        assert [(c.code, c.asked.arguments) for c in found] == [("OK", one) for one in sent]
        assert {c.asked.arguments_digest for c in found} == {digest(sent[0])}


@pytest.mark.anyio
async def test_calls_that_are_refused_in_the_same_words_are_told_in_short(tmp_path: Path) -> None:
    async def full(call: Call, call_next: Walk) -> Result:
        raise QueueFull(call.arguments["text"])

    book, texts = Book(), ["busy", "busy", "busy", "ann@example.org", "ann@example.org", "busy"]
    async with audited(tmp_path, book, guards=[full]) as executor:
        for text in texts:
            await executor.execute("look", {"text": text})
    told = [call for call in await book.records() if call.kind == "call"]
    hidden = ["busy"] * 3 + ["[redacted:email]"] * 2 + ["busy"]
    assert [call.message for call in told] == hidden
    assert [call.arguments for call in told] == [{"text": text} for text in hidden]
    assert {call.code for call in told} == {"QUEUE_FULL"} and {call.outcome for call in told} == {
        "none"
    }
    assert {tuple(call.trail) for call in told} == {("audit", "full", "full: QUEUE_FULL")}
    assert len({call.arguments_digest for call in told}) == 2
    bodies = [line.body async for line in lines_of(book)]
    blocks = [block for body in bodies if (block := decode(body)) is not None]
    at_length = [one.message for block in blocks for one in block.events() if one.kind == "call"]
    assert at_length == ["busy", "[redacted:email]", "busy"] and "ann@" not in str(bodies)


@pytest.mark.anyio
async def test_few_that_come_while_others_are_written_wait_for_more(tmp_path: Path) -> None:
    book = Book()
    async with audited(tmp_path, book, seconds=600.0) as executor:
        scribe = executor.observers[0]._scribe  # type: ignore[attr-defined]
        await scribe.open()
        written = len(book.appends)
        book.gate.clear()
        for _ in range(BATCH):
            await executor.execute("look", {"text": "x"})
        async with asyncio.timeout(30):
            while scribe.pending:  # until they are on their way
                await asyncio.sleep(0)
            await executor.execute("look", {"text": "late"})
            book.gate.set()
            while len(book.appends) == written:
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(book.appends) == written + 1 and len(scribe.pending) == 1
    sent = [record.arguments for record in await book.records() if record.kind == "call"]
    assert len(sent) == BATCH + 1 and sent[-1] == {"text": "late"}
