"""The audit on the road: what is recorded of which call, when, and what happens if it cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.around import surroundings
from toolpost import (
    ApprovalRequired,
    Call,
    Caller,
    ConfigError,
    Denied,
    Executor,
    Registry,
    Result,
    ToolFailed,
    tool,
)
from toolpost.contracts import Line, Walk
from toolpost.digest import digest
from toolpost.extensions.audit import Audit, AuditOptions
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import AuditedCall, calls, records_of
from toolpost.ledger.record import AuditRecord, Who
from toolpost.ledger.scribe import BATCH
from toolpost.ledger.verify import Proof, verify
from toolpost.stores.memory import MemoryStore
from toolpost.testing import Clock

pytestmark = pytest.mark.anyio
SECRET = "AKIAIOSFODNN7QWERTYU"


class Book(MemoryStore):
    """A journal whose disk can be full, or slow."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.appends: list[int] = []

    async def append(self, lines: Sequence[Line]) -> None:
        await self.gate.wait()
        if self.full:
            raise OSError(28, "No space left on device")
        self.appends.append(len(lines))
        await super().append(lines)

    async def records(self) -> list[AuditRecord]:
        return [record async for record in records_of(lines_of(self))]

    async def calls(self) -> list[AuditedCall]:
        return [call async for call in calls(lines_of(self))]


ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    ran.clear()
    yield


@tool(tier=0, effects="read")
async def look(text: str, deep: bool = False) -> str:
    """Look something up."""
    ran.append("look")
    return text


@tool(tier=0, effects="read")
async def spoil(items: list[str]) -> int:
    """Change what it was given."""
    items.clear()
    return 0


@tool(tier=1, effects="once")
async def note(text: str) -> str:
    """Write a note."""
    ran.append("note")
    return text


@tool(tier=2, effects="once")
async def send(to: str) -> str:
    """Send something."""
    ran.append("send")
    if to == "nobody":
        raise ToolFailed(f"Nobody is there: {SECRET}")
    return f"sent to {to}"


@tool(tier=3, effects="once", timeout=60)
async def hang() -> None:
    """Never come back."""
    ran.append("hang")
    await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def audited(
    folder: Path,
    book: Book,
    *,
    mode: str = "standard",
    guards: Sequence[Any] = (),
    clock: Any = None,
    **options: Any,
) -> AsyncIterator[Executor]:
    more = {} if clock is None else {"clock": clock}
    around = surroundings(folder, records=book, journal=book, mode=mode, **more)
    audit = Audit(around, AuditOptions(**options))
    registry = Registry([look, spoil, note, send, hang])
    async with Executor(registry, observers=[audit], guards=guards) as executor:
        yield executor


def alarmed(audit_executor: Executor) -> str | None:
    (audit,) = audit_executor.observers
    assert isinstance(audit, Audit)
    return audit.problem


@pytest.mark.req("NA-12")
async def test_every_call_is_on_the_record_whatever_came_of_it(tmp_path: Path) -> None:
    book = Book()

    async def denies(call: Call, call_next: Walk) -> Result:
        if call.arguments.get("to") == "enemy":
            raise Denied("Not to them.")
        if call.arguments.get("to") == "boss":
            raise ApprovalRequired("Somebody has to say yes.", details={"approval": "ap-1"})
        return await call_next(call)

    async with audited(tmp_path, book, guards=[denies]) as tools:
        await tools.execute("look", {"text": "x"})
        await tools.execute("look", {"wrong": 1})
        await tools.execute("no_such_tool", {"a": 1})
        await tools.execute("send", {"to": "ann"})
        await tools.execute("send", {"to": "nobody"})
        await tools.execute("send", {"to": "enemy"})
        await tools.execute("send", {"to": "boss"})
        await tools.execute("hang", timeout=1)  # it has begun by then
        run = asyncio.ensure_future(tools.execute("hang"))
        async with asyncio.timeout(20):
            while ran.count("hang") < 2:
                await asyncio.sleep(0)
        run.cancel()
        await asyncio.wait([run])
    found = [(c.asked.tool, c.code, c.ended and c.ended.outcome) for c in await book.calls()]
    assert sorted(found) == sorted(
        [
            ("look", "OK", "none"),
            ("look", "VALIDATION_ERROR", "none"),
            ("no_such_tool", "NOT_FOUND", "none"),
            ("send", "OK", "done"),
            ("send", "EXECUTION_ERROR", "unknown"),
            ("send", "POLICY_DENIED", "none"),
            ("send", "APPROVAL_REQUIRED", "none"),
            ("hang", "TIMEOUT", "unknown"),
            ("hang", "CANCELLED", "unknown"),
        ]
    )
    asks = next(c for c in await book.calls() if c.code == "APPROVAL_REQUIRED")
    assert asks.ended is not None
    assert asks.ended.details == {"approval": "ap-1"}
    assert asks.ended.trail == ["audit", "denies", "denies: APPROVAL_REQUIRED"]


async def test_a_record_says_who_called_what_with_what(tmp_path: Path) -> None:
    book, ann = Book(), Caller("key-1", user="ann", agent="planner")
    async with audited(tmp_path, book) as tools:
        result = await tools.execute(
            "send", {"to": "bob"}, caller=ann, session_id="s-1", grant="ap-9"
        )
    (call,) = await book.calls()
    said = call.asked
    assert said.kind == "intent"
    assert said.call_id == result.metadata.call_id
    assert (said.session, said.grant) == ("s-1", "ap-9")
    assert said.caller == Who("key-1", "ann", "planner")
    assert (said.tool, said.spec) == ("send", send.spec.digest)
    assert (said.tier, said.effects, said.isolation) == (2, "once", "inline")
    assert (said.arguments, said.arguments_digest) == ({"to": "bob"}, digest({"to": "bob"}))
    assert call.ended is not None
    assert call.ended.duration_ms is not None
    assert call.ended.duration_ms > 0


async def test_the_intent_is_on_the_disk_before_the_tool_runs(tmp_path: Path) -> None:
    book = Book()
    async with audited(tmp_path, book) as tools:
        book.gate.clear()
        run = asyncio.ensure_future(tools.execute("send", {"to": "ann"}))
        await asyncio.sleep(0.05)
        assert (ran, run.done()) == ([], False)
        book.gate.set()
        assert (await run).success
        assert [r.kind for r in await book.records()] == ["start", "intent"]


async def test_intents_that_come_together_are_written_together(tmp_path: Path) -> None:
    book = Book()
    async with audited(tmp_path, book) as tools:
        await asyncio.gather(*(tools.execute("send", {"to": str(i)}) for i in range(100)))
        assert ran.count("send") == 100
        assert len(book.appends) < 10


async def test_reads_are_written_in_batches_behind_the_call(tmp_path: Path) -> None:
    book = Book()
    async with audited(tmp_path, book, seconds=60) as tools:
        for _ in range(100):
            await tools.execute("look", {"text": "x"})
        assert book.appends == []
        for _ in range(BATCH):
            await tools.execute("look", {"text": "x"})
        while len(await book.calls()) < BATCH:
            await asyncio.sleep(0)
    assert len(await book.calls()) == 100 + BATCH
    assert len(book.appends) < 6


async def test_a_quiet_time_writes_what_there_is(tmp_path: Path) -> None:
    book = Book()
    async with audited(tmp_path, book, seconds=0.01) as tools:
        await tools.execute("look", {"text": "x"})
        async with asyncio.timeout(10):
            while not await book.calls():
                await asyncio.sleep(0.005)


async def test_a_flood_waits_for_the_disk_and_loses_nothing(tmp_path: Path) -> None:
    book = Book()
    async with audited(tmp_path, book, buffer=BATCH) as tools:
        for _ in range(10 * BATCH):
            assert (await tools.execute("look", {"text": "x"})).success
    assert len(await book.calls()) == 10 * BATCH


async def test_what_a_tool_does_to_its_arguments_is_not_in_the_record(tmp_path: Path) -> None:
    book, given = Book(), {"items": ["a", "b"]}
    async with audited(tmp_path, book) as tools:
        assert (await tools.execute("spoil", given)).success
        given["items"].append("c")
    (call,) = await book.calls()
    assert call.asked.arguments == {"items": ["a", "b"]}
    assert call.asked.arguments_digest == digest({"items": ["a", "b"]})


async def test_attack_a_secret_anywhere_in_a_call_is_in_no_record(tmp_path: Path) -> None:
    book = Book()
    who = Caller(SECRET, user=SECRET, agent=SECRET)
    async with audited(tmp_path, book) as tools:
        for name in ("look", "send", SECRET):
            for arguments in ({"text": SECRET, SECRET: 1}, {"to": SECRET}, {"password": "hunter2"}):
                await tools.execute(name, arguments, caller=who, session_id=SECRET)
        await tools.execute("look", {"text": "x" * 4090 + SECRET})
        await tools.execute("look", {"text": "x" * 4090 + " " + SECRET})
        await tools.execute("send", {"to": "nobody"})
    assert len(await book.calls()) == 12
    text = b"".join([line.body async for line in lines_of(book)])
    assert SECRET.encode() not in text
    assert b"hunter2" not in text
    assert b"AKIA" not in text.replace(b"xAKIA", b"")


@pytest.mark.parametrize(
    "arguments",
    [
        5,
        {"text": "\ud800"},
        {"text": object()},
        {"text": "x" * 1_000_000},
        {"text": ["y" * 5000] * 20},
        {"text": 2**80},
        {"text": float("nan")},
        {1: 2},
    ],
    ids=lambda a: repr(a)[:12],
)
async def test_arguments_of_any_kind_are_on_the_record(tmp_path: Path, arguments: Any) -> None:
    book = Book()
    async with audited(tmp_path, book) as tools:
        await tools.execute("look", arguments)
        await tools.execute("send", arguments)
    assert len(await book.calls()) == 2
    assert all(len(line.body) < 200_000 for line in await book.read())


async def test_arguments_that_lead_back_to_themselves_are_on_the_record(tmp_path: Path) -> None:
    book, ring = Book(), dict[str, Any]()
    ring["text"] = [ring]
    async with audited(tmp_path, book) as tools:
        assert not (await tools.execute("look", ring)).success
    (call,) = await book.calls()
    assert call.code == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    ("mode", "name", "runs"),
    [
        ("strict", "look", False),
        ("strict", "note", False),
        ("strict", "send", False),
        ("standard", "look", True),
        ("standard", "note", True),
        ("standard", "send", False),
        ("permissive", "look", True),
        ("permissive", "note", True),
        ("permissive", "send", False),
    ],
)
async def test_attack_with_a_full_disk_tier_2_is_refused_and_lower_ones_by_mode(
    tmp_path: Path, mode: str, name: str, runs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    book = Book()
    given = {"look": {"text": "x"}, "note": {"text": "x"}, "send": {"to": "ann"}}[name]
    async with audited(tmp_path, book, mode=mode, seconds=0) as tools:
        assert (await tools.execute("send", {"to": "ann"})).success
        book.full = True
        await tools.execute("note", {"text": "notices that the disk is full"})
        assert alarmed(tools) is not None
        ran.clear()
        result = await tools.execute(name, given)
        assert (result.success, ran) == (runs, [name] if runs else [])
        if result.error is not None:
            assert (result.error.code, result.error.effects) == ("UNAVAILABLE", "none")
            assert result.error.retry_after is not None
        assert "cannot be written" in caplog.text

        book.full = False
        assert (await tools.execute("send", {"to": "bob"})).success
        assert alarmed(tools) is None
    found = await book.calls()
    assert [c.code for c in found if c.asked.tool == name][-2 if name == "send" else -1] == (
        "OK" if runs else "UNAVAILABLE"
    )
    assert not [c for c in found if c.ended is None]
    numbers = [r.number for r in await book.records()]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_attack_a_long_full_disk_is_counted_where_it_cannot_be_kept(tmp_path: Path) -> None:
    book = Book()
    async with audited(tmp_path, book, buffer=BATCH, seconds=0) as tools:
        await tools.execute("send", {"to": "ann"})
        book.full = True
        for _ in range(3 * BATCH):
            assert (await tools.execute("look", {"text": "x"})).success
            await asyncio.sleep(0)
        assert not (await tools.execute("send", {"to": "ann"})).success
        book.full = False
        async with asyncio.timeout(20):
            while alarmed(tools) is not None:
                await tools.execute("send", {"to": "bob"})
    lost = [r.note for r in await book.records() if r.kind == "lost"]
    kept = len(await book.calls())
    assert sum(int(text.split()[0]) for text in lost) > 0
    assert kept >= BATCH
    assert (await verify(lines_of(book), Proof(whole=False))).problems == ()


async def test_a_journal_that_hangs_refuses_within_the_patience(tmp_path: Path) -> None:
    book = Book()
    async with audited(tmp_path, book, patience=0.05) as tools:
        book.gate.clear()
        result = await tools.execute("send", {"to": "ann"})
        assert result.error is not None
        assert (result.error.code, ran) == ("UNAVAILABLE", [])
        book.gate.set()
    assert [c.code for c in await book.calls()] == ["UNAVAILABLE"]


async def test_who_goes_away_before_the_record_is_there_has_done_nothing(tmp_path: Path) -> None:
    book = Book()
    async with audited(tmp_path, book) as tools:
        book.gate.clear()
        run = asyncio.ensure_future(tools.execute("send", {"to": "ann"}))
        await asyncio.sleep(0.01)
        run.cancel()
        await asyncio.wait([run])
        assert (run.cancelled(), ran) == (True, [])
        book.gate.set()
    (call,) = await book.calls()
    assert (call.code, call.ended and call.ended.outcome) == ("CANCELLED", "none")


async def test_a_read_that_is_cancelled_is_on_the_record(tmp_path: Path) -> None:
    book = Book()
    begun = asyncio.Event()

    async def waits(call: Call, call_next: Walk) -> Result:
        begun.set()
        await asyncio.get_running_loop().create_future()
        return await call_next(call)

    async with audited(tmp_path, book, guards=[waits]) as tools:
        run = asyncio.ensure_future(tools.execute("look", {"text": "x"}))
        await begun.wait()
        run.cancel()
        await asyncio.wait([run])
    (call,) = await book.calls()
    assert call.code == "CANCELLED"


async def test_attack_a_jumping_clock_changes_no_order_and_no_duration(tmp_path: Path) -> None:
    class Jumps(Clock):
        """The wall clock jumps, the other one does not."""

        wall = 1_700_000_000.0

        def time(self) -> float:
            return self.wall

    book, clock = Book(), Jumps(100.0)
    jumps = [-86_400.0, 86_400.0 * 365, -1e9]

    async def jumping(call: Call, call_next: Walk) -> Result:
        """In the midst of a call."""
        clock.wall += jumps.pop()
        clock.advance(1.5)
        return await call_next(call)

    async with audited(tmp_path, book, clock=clock, guards=[jumping]) as tools:
        while jumps:
            await tools.execute("send", {"to": "ann"})
    records = await book.records()
    assert [r.number for r in records] == list(range(1, len(records) + 1))
    assert [r.duration_ms for r in records if r.kind == "outcome"] == [1500.0] * 3
    assert len({r.time for r in records}) > 2
    assert (await verify(lines_of(book), Proof(whole=False))).problems == ()


async def test_nothing_is_kept_on_the_disk_for_a_store_that_forgets(tmp_path: Path) -> None:
    async with audited(tmp_path, Book()) as tools:
        await tools.execute("send", {"to": "ann"})
    assert list(tmp_path.iterdir()) == []


async def test_a_tool_that_is_really_called_unknown_has_an_intent(tmp_path: Path) -> None:
    audit = Audit(surroundings(tmp_path))
    book = Book()
    around = surroundings(tmp_path, records=book, journal=book)
    audit = Audit(around)
    async with Executor(Registry([]), observers=[audit]) as tools:
        await tools.execute("unknown")
        await tools.execute("nothing")
    kinds = {r.tool: r.kind for r in await book.records() if r.kind in ("intent", "call")}
    assert kinds == {"unknown": "intent", "nothing": "call"}


async def test_open_begins_the_chain_before_any_call(tmp_path: Path) -> None:
    book = Book()
    audit = Audit(surroundings(tmp_path, records=book, journal=book))
    await audit.open()
    await audit.open()
    assert [r.kind for r in await book.records()] == ["start"]
    await audit.close()
    assert [r.kind for r in await book.records()] == ["start", "checkpoint"]


async def test_closing_with_a_full_disk_says_what_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    book = Book()
    async with audited(tmp_path, book, patience=0.2) as tools:
        await tools.execute("send", {"to": "ann"})
        book.full = True
        await tools.execute("look", {"text": "x"})
    assert "closes with 2 records" in caplog.text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"second": 1}, "did you mean 'seconds'"),
        ({"buffer": 1}, "buffer is at least"),
        ({"checkpoint": 0}, "checkpoint is at least 1"),
        ({"keep_days": 0}, "keep_days is above 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        Audit.from_config(options, surroundings(tmp_path))


async def test_options_come_from_the_config(tmp_path: Path) -> None:
    audit = Audit.from_config({"keep_days": 30, "seconds": 1}, surroundings(tmp_path))
    assert audit.problem is None
    await audit.close()


async def test_attack_names_that_are_no_text_do_not_stop_the_audit(tmp_path: Path) -> None:
    book, odd = Book(), "\ud800"
    async with audited(tmp_path, book) as tools:
        for name in (odd, "look", "send"):
            await tools.execute(name, {odd: odd}, grant=odd)
            await tools.execute(name, {}, caller=Caller(odd, user=odd), session_id=odd)
        assert alarmed(tools) is None
    codes = [c.code for c in await book.calls()]
    assert codes == ["NOT_FOUND"] + ["VALIDATION_ERROR"] * 5


async def test_a_call_that_cannot_be_told_does_not_stop_the_audit(tmp_path: Path) -> None:
    book = Book()

    class Untold:
        def __str__(self) -> str:
            raise TypeError

    async def rude(call: Call, call_next: Walk) -> Result:
        call.trail.append(5)  # type: ignore[arg-type]
        if call.tool == "send":
            call.trail.append(Untold())  # type: ignore[arg-type]
        return await call_next(call)

    async with audited(tmp_path, book, guards=[rude]) as tools:
        assert (await tools.execute("look", {"text": "x"})).success
        assert (await tools.execute("send", {"to": "ann"})).success
        assert alarmed(tools) is None
    notes = [r.note for r in await book.records() if r.kind == "lost"]
    assert notes == ["a call that cannot be told: TypeError"]
    (call, _) = sorted(await book.calls(), key=lambda c: c.asked.tool)
    assert call.ended is not None
    assert call.ended.trail == ["audit", "rude", "5"]


async def test_old_records_that_cannot_be_dropped_are_an_alarm_and_not_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Sticky(Book):
        async def prune(self, writer: str, *, before: int) -> None:
            raise OSError(5, "Input/output error")

    book, clock = Sticky(), Clock(1e9)
    async with audited(tmp_path, book, clock=clock, keep_days=1, checkpoint=2) as tools:
        for _ in range(3):
            assert (await tools.execute("send", {"to": "ann"})).success
            clock.advance(86_400 * 2)
        assert alarmed(tools) is None
    assert "cannot be dropped" in caplog.text


async def test_a_disk_that_is_full_at_the_very_end_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    book = Book()
    async with audited(tmp_path, book, seconds=0) as tools:
        await tools.execute("send", {"to": "ann"})
        async with asyncio.timeout(10):
            while [c for c in await book.calls() if c.ended is None]:
                await asyncio.sleep(0)
        book.full = True
    assert "closes with 1 records" in caplog.text
