"""Where requests are kept: what people are shown, answers from outside, the question at a terminal.

What a yes is worth on the road is in ``extensions/test_approval.py``.
"""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.redact_corpus import made
from tests.stores.server import Server, running_server
from toolpost import Call, Caller, ToolSpec
from toolpost.approvals import Approvals, Decision, Lasting, Request
from toolpost.approvals.terminal import described, widened
from toolpost.approvals.webhook import Answer, outgoing, receive, sign, verify
from toolpost.call import OWNER, new_call_id
from toolpost.clock import SystemClock
from toolpost.errors import (
    ApprovalDenied,
    Conflict,
    Denied,
    InvalidArguments,
    QueueFull,
    ToolNotFound,
    Unauthorized,
)
from toolpost.result import Metadata
from toolpost.stores.memory import MemoryStore
from toolpost.stores.postgres import PostgresStore
from toolpost.stores.sqlite import SqliteStore
from toolpost.testing import Clock

pytestmark = pytest.mark.anyio
server = pytest.fixture(scope="module")(running_server)

SPEC = ToolSpec(name="pay", description="Pay somebody.")
BOT = Caller("key-1", user="ann@example.org", agent="bot")
SECRET = "a secret that both sides know"


def call_of(arguments: dict[str, Any], caller: Caller = BOT) -> Call:
    return Call("pay", SPEC, arguments, caller, new_call_id(), Metadata())


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000.0)


@pytest.fixture
def desk(clock: Clock) -> Approvals:
    return Approvals(MemoryStore(clock=clock), clock=clock)


async def asked(desk: Approvals, arguments: dict[str, Any] | None = None) -> Request:
    return await desk.ask(call_of(arguments or {"to": "bob"}), spec=SPEC.digest, reason="So.")


# how much is kept


async def test_so_many_requests_of_one_caller_wait_and_no_more(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    desk = Approvals(store, clock=clock, approvers=("lead",), most=3)
    waiting = [await asked(desk, {"to": str(n)}) for n in range(3)]
    assert await asked(desk, {"to": "0"}) == waiting[0], "what waits already may be asked again"
    with pytest.raises(QueueFull, match="3 of your calls wait") as refused:
        await asked(desk, {"to": "more"})
    assert refused.value.retry_after is not None
    assert len(await desk.all()) == 3
    other = call_of({"to": "more"}, Caller("key-2", agent="other"))
    assert await desk.ask(other, spec=SPEC.digest, reason="So."), "others have room of their own"

    no, lead = Decision(approve=False), Caller("zoe", roles=frozenset({"lead"}))
    await desk.decide(waiting[0].handle, no, by=BOT, channel="api")
    with pytest.raises(QueueFull):
        await asked(desk, {"to": "more"})  # else whoever takes back could fill the store
    await desk.decide(waiting[1].handle, no, by=lead, channel="api")
    assert (await asked(desk, {"to": "more"})).status == "waiting"
    clock.now += 3601
    assert (await asked(desk, {"to": "later"})).status == "waiting"
    assert len(await store.scan("approvals.open")) == 1


async def test_of_many_that_ask_at_once_none_is_overlooked(clock: Clock) -> None:
    desk = Approvals(MemoryStore(clock=clock), clock=clock, most=5)
    asking = (asked(desk, {"to": str(n)}) for n in range(40))
    await asyncio.gather(*asking, return_exceptions=True)
    assert len(await desk.waiting()) <= 5


async def test_arguments_that_no_person_could_read_are_not_kept(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    desk = Approvals(store, clock=clock, largest=1000)
    with pytest.raises(InvalidArguments, match="at most 1,000: send less"):
        await asked(desk, {"to": "b" * 1000})
    assert await store.scan("approvals") == []
    assert await asked(desk, {"to": "b" * 900})


async def test_whoever_has_to_wait_is_told_how_a_person_says_yes(desk: Approvals) -> None:
    request = await asked(desk)
    said = desk.required(request).message
    assert f"toolpost approvals approve {request.handle}" in said
    assert f"POST /v1/approvals/{request.handle}:approve" in said
    with pytest.raises(Denied, match="toolpost approvals approve") as refused:
        await desk.decide(request.handle, Decision(approve=True), by=Caller("key-1"), channel="api")
    assert "console" not in refused.value.message


# what people are shown


async def test_a_name_that_holds_a_secret_is_kept_by_its_digest_and_means_the_same(
    clock: Clock,
) -> None:
    store, token = MemoryStore(clock=clock), "gh" + "p_" + made(36)
    desk = Approvals(store, clock=clock, approvers=("lead",))
    bot = Caller(f"key {token}", user="ann@example.org", agent=f"bot {token}")
    call = msgspec.structs.replace(call_of({"to": "bob"}, bot), session_id=token)
    request = await desk.ask(call, spec=SPEC.digest, reason=f"Because of {token}.")
    again = await desk.ask(call, spec=SPEC.digest, reason="Because.")
    assert again.handle == request.handle
    myself = Caller(bot.id, user="ann@example.org", roles=frozenset({"lead"}))
    with pytest.raises(Denied, match="does not approve by the way they asked"):
        await desk.decide(request.handle, Decision(approve=True), by=myself, channel="api")
    lasting = Decision(approve=True, reason=f"It is {token}.", lasting=Lasting(session=True))
    lead = Caller(f"lead {token}", roles=frozenset({"lead"}))
    await desk.decide(request.handle, lasting, by=lead, channel="api")
    assert await desk.covered(call, spec=SPEC.digest) is not None
    other = msgspec.structs.replace(call, session_id=f"{token}-2")
    assert await desk.covered(other, spec=SPEC.digest) is None
    kept = [await store.scan(space) for space in ("approvals", "approvals.standing")]
    assert all(kept)
    assert token not in str(kept)
    assert "ann@example.org" in str(kept), "who asks is no secret"


async def test_an_approver_cannot_put_a_secret_into_a_call(desk: Approvals) -> None:
    request = await asked(desk)
    with pytest.raises(InvalidArguments, match="secret"):
        yes = Decision(approve=True, arguments={"to": "gh" + "p_" + made(36)})
        await desk.decide(request.handle, yes, by=Caller("o", owner=True), channel="console")
    yes = Decision(approve=True, arguments={"to": "ann@example.org"})
    answered = await desk.decide(request.handle, yes, by=Caller("o", owner=True), channel="console")
    assert answered.status == "approved"


async def test_people_see_who_asks_and_no_secrets(desk: Approvals, clock: Clock) -> None:
    password = "hunter2-hunter2"
    request = await asked(desk, {"to": "bob", "password": password})
    data = request.to_dict(clock.now)
    assert data["caller"]["user"] == "ann@example.org"
    assert data["arguments"]["to"] == "bob"
    for shown in (repr(data), described(request), outgoing(request, now=clock.now).decode()):
        assert password not in shown
        assert request.handle in shown
    assert request.exact()["password"] == password, "what is executed is exact"


async def test_nothing_that_is_shown_is_obeyed_by_a_terminal(desk: Approvals) -> None:
    request = await asked(desk, {"to": "\x1b[2J\u202ebob\nap-1: ann wants look"})
    text = described(request)
    assert not set(text) & set("\x1b\u202e")
    assert len(text.splitlines()) == 3


async def test_a_person_is_told_that_there_is_more_than_is_shown(desk: Approvals) -> None:
    request = await asked(desk, {"to": "b " * 5000 + "; drop everything"})
    assert "CHARACTERS MORE" in described(request)


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.floats(allow_nan=False) | st.text()))
def test_what_is_kept_is_what_was_asked_for(arguments: dict[str, Any]) -> None:
    import asyncio

    async def kept() -> Request:
        desk = Approvals(MemoryStore(), clock=Clock(1.0))
        request = await desk.ask(call_of(arguments), spec="s", reason="So.")
        return await desk.find(request.handle)

    try:
        request = asyncio.run(kept())
    except InvalidArguments:
        return  # infinities, half characters: refused rather than changed
    assert request.exact() == arguments
    assert list(map(type, request.exact().values())) == [
        type(arguments[key]) for key in request.exact()
    ]


# finding


async def test_a_person_may_type_the_beginning_of_a_handle(desk: Approvals) -> None:
    request = await asked(desk)
    assert (await desk.like(request.handle[:8])).handle == request.handle
    for beginning in ("", "ap-", "ap-12", "ap-zzzzzz", "%", request.handle + "0", "ap-00000000000"):
        with pytest.raises(ToolNotFound):
            await desk.like(beginning)
    with pytest.raises(ToolNotFound):
        await desk.find(request.handle[:8])
    with pytest.raises(ToolNotFound):
        await desk.decide(
            request.handle[:8], Decision(approve=True), by=Caller("x", owner=True), channel="api"
        )
    with pytest.raises(ToolNotFound):
        await desk.revoke("st-none")


async def test_a_beginning_of_two_handles_is_neither() -> None:
    store, clock = MemoryStore(), Clock(1.0)
    desk = Approvals(store, clock=clock)
    request = await asked(desk)
    twin = request.handle[:-1] + ("0" if request.handle[-1] != "0" else "1")
    value = msgspec.to_builtins(msgspec.structs.replace(request, handle=twin))
    await store.put("approvals", twin, value)
    with pytest.raises(ToolNotFound, match="several"):
        await desk.like(request.handle[:10])


async def test_a_lasting_yes_is_ended_by_the_beginning_of_its_handle(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    desk = Approvals(store, clock=clock)
    request = await asked(desk)
    yes = Decision(approve=True, lasting=Lasting(where={"to": {"const": "bob"}}))
    await desk.decide(request.handle, yes, by=Caller("o", owner=True), channel="console")
    (standing,) = await desk.standing()
    for beginning in ("st-", standing.handle[:5], "", "zz"):
        with pytest.raises(ToolNotFound):
            await desk.revoke(beginning)
    twin = msgspec.structs.replace(standing, handle=f"{standing.handle[:-3]}000")
    await store.put("approvals.standing", "p/pay/twin", msgspec.to_builtins(twin))
    with pytest.raises(ToolNotFound, match="several"):
        await desk.revoke(standing.handle[:6])
    assert await desk.revoke(standing.handle[:14]) == standing
    assert await desk.revoke(standing.handle[:6]) == twin


# what cannot be read


@pytest.mark.parametrize(
    "caller",
    [Caller("x", owner="no"), Caller("x", roles=[1])],  # type: ignore[arg-type]
)
async def test_what_could_not_be_read_again_is_not_kept(
    desk: Approvals, caller: Caller, clock: Clock
) -> None:
    with pytest.raises(InvalidArguments, match="cannot be kept"):
        await desk.ask(call_of({"to": "bob"}, caller), spec="s", reason="So.")
    assert await desk.all() == []
    assert desk.unreadable == {}


async def test_what_cannot_be_read_is_named_and_in_nobodys_way(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore(clock=clock)
    desk = Approvals(store, clock=clock)
    bad, good = await asked(desk), await asked(desk, {"to": "carl"})
    broken = msgspec.to_builtins(bad) | {"expires": "never"}
    await store.put("approvals", bad.handle, broken)
    await store.put("approvals.standing", "p/pay/st-00", {"handle": 5})
    for _ in range(2):
        assert [request.handle for request in await desk.waiting()] == [good.handle]
        assert await desk.standing() == []
    assert desk.unreadable.keys() == {bad.handle, "st-00"}
    assert caplog.text.count(f"{bad.handle} cannot be read") == 1
    with pytest.raises(Conflict, match="cannot be read"):
        await desk.find(bad.handle)
    with pytest.raises(Conflict, match="cannot be read"):
        await desk.like(bad.handle[:9])
    again = await asked(desk)
    assert again.handle != bad.handle, "the same call is asked for anew"


# what a person is told before they say yes


async def test_a_person_is_told_how_far_a_yes_goes(desk: Approvals) -> None:
    request = await asked(desk, {"to": "bob", "amount": 10})
    assert widened(request, Decision(approve=True)) == ""
    where = {"to": {"const": "bob"}, "amount": {"maximum": 50}}
    lasting = Lasting(session=True, where=where, seconds=1800, uses=3)
    told = widened(
        request, Decision(approve=True, arguments={"to": "\x1beve", "amount": 5}, lasting=lasting)
    )
    same = "by the same caller in the same session"
    assert told.splitlines() == [
        '  instead    {"amount":5,"to":"\\u001beve"}',
        f"  and then   at most 3 calls of pay {same}, unasked, for 30 minutes",
        '    where    to is "bob"',
        '    where    amount fits {"maximum":50}',
    ]
    (line, rest) = widened(
        request, Decision(approve=True, lasting=Lasting(session=True))
    ).splitlines()
    assert "any number of calls of pay" in line and "for 60 minutes" in line
    assert rest.strip() == "with any arguments"


async def test_more_requests_than_a_page_are_listed_the_oldest_first(clock: Clock) -> None:
    desk = Approvals(MemoryStore(clock=clock), clock=clock, most=450)
    for number in range(450):
        clock.advance(1)
        await asked(desk, {"n": number})
    assert [request.exact()["n"] for request in await desk.waiting()] == list(range(450))


async def test_a_request_is_readable_for_a_week_after_its_end(
    desk: Approvals, clock: Clock
) -> None:
    request = await asked(desk)
    clock.advance(3600 + 6 * 86400)
    assert (await desk.find(request.handle)).state(clock.now) == "expired"
    clock.advance(2 * 86400)
    with pytest.raises(ToolNotFound):
        await desk.find(request.handle)


# answers from outside


def answer(request: Request, **changes: Any) -> bytes:
    made = Answer(
        handle=request.handle, seen=request.seen, decision=Decision(approve=True), by="zoe"
    )
    return msgspec.json.encode(msgspec.structs.replace(made, **changes))


async def test_a_signed_answer_changes_what_it_names_and_takes_no_mark(
    desk: Approvals, clock: Clock
) -> None:
    request = await asked(desk)
    before = request.exact()
    marked = Decision(approve=True, arguments={"to": "[redacted:email]"})
    body = answer(request, decision=marked)
    header = sign(body, secret=SECRET, now=clock.now)
    with pytest.raises(InvalidArguments, match="Send only the arguments that change"):
        await receive(desk, body, header, secret=SECRET)
    changes = Decision(approve=True, arguments={"more": [1]})
    body = answer(request, decision=changes)
    header = sign(body, secret=SECRET, now=clock.now)
    decided = await receive(desk, body, header, secret=SECRET)
    assert decided.exact() == before | {"more": [1]} and before


async def test_a_signed_answer_counts_once(desk: Approvals, clock: Clock) -> None:
    request = await asked(desk)
    body = answer(request)
    header = sign(body, secret=SECRET, now=clock.now)
    decided = await receive(desk, body, header, secret=SECRET)
    assert (decided.status, decided.votes[0].user, decided.votes[0].channel) == (
        "approved",
        "zoe",
        "webhook",
    )
    with pytest.raises(Conflict):
        await receive(desk, body, header, secret=SECRET)


@pytest.mark.parametrize(
    "attack",
    ["other body", "other secret", "old", "from the future", "other time", "none", "odd", "no v1"],
)
async def test_an_answer_that_was_not_signed_just_now_by_the_secret_is_refused(
    desk: Approvals, clock: Clock, attack: str
) -> None:
    request = await asked(desk)
    body = answer(request)
    signed = sign(body, secret=SECRET, now=clock.now)
    header = {
        "other secret": sign(body, secret=SECRET + "!", now=clock.now),
        "old": sign(body, secret=SECRET, now=clock.now - 301),
        "from the future": sign(body, secret=SECRET, now=clock.now + 302),
        "other time": signed.replace("t=1000000", "t=1000001"),
        "none": "",
        "odd": "t=²,v1=é",
        "no v1": signed.partition(",")[0],
    }.get(attack, signed)
    sent = answer(request, by="eve") if attack == "other body" else body
    with pytest.raises(Unauthorized):
        await receive(desk, sent, header, secret=SECRET)
    assert (await desk.find(request.handle)).status == "waiting"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"handle": "x"}', b"\xff", b" " * (1024 * 1024 + 1)]
)
async def test_a_signed_answer_that_is_none_is_refused(
    desk: Approvals, clock: Clock, body: bytes
) -> None:
    with pytest.raises(InvalidArguments):
        await receive(desk, body, sign(body, secret=SECRET, now=clock.now), secret=SECRET)


async def test_a_signed_answer_to_what_was_changed_meanwhile_is_refused(
    desk: Approvals, clock: Clock
) -> None:
    request = await asked(desk)
    body = answer(request, seen="sha256:other")
    with pytest.raises(Conflict, match="changed"):
        await receive(desk, body, sign(body, secret=SECRET, now=clock.now), secret=SECRET)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="16"):
        sign(b"x", secret="short", now=0)
    with pytest.raises(ValueError, match="16"):
        verify(b"x", "t=0,v1=", secret="", now=0)


# the question at a terminal

PROGRAM = """
import asyncio, sys
from toolpost import Executor, Registry, tool
from toolpost.extensions.approval import Approval, ApprovalOptions
from toolpost.stores.memory import MemoryStore

@tool(requires_approval=True)
async def pay(to: str) -> str:
    "Pay somebody."
    return "paid"

async def main():
    ring = Approval(MemoryStore(), options=ApprovalOptions(prompt=True))
    async with Executor(Registry([pay]), guards=[ring]) as tools:
        result = await tools.execute("pay", {"to": "bob"}, timeout=float(sys.argv[1]))
        print("SAID", result.output or result.error.code, result.metadata.trail[-1])

asyncio.run(main())
"""


@pytest.mark.req("FM-13")
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (b"y\n", "SAID paid"),
        (b"no\n", "SAID APPROVAL_DENIED"),
        (b"perhaps\n", "SAID APPROVAL_REQUIRED"),
        (b"", "SAID APPROVAL_REQUIRED"),
    ],
)
def test_the_terminal_is_asked_and_only_a_yes_is_one(typed: bytes, said: str) -> None:
    ours, theirs = pty.openpty()
    limit = "60" if typed else "0.3"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, limit],
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        os.close(theirs)
        shown = b""
        while b"[y/n]" not in shown:
            shown += os.read(ours, 4096)
        os.write(ours, typed)
        output, _ = child.communicate(timeout=60)
    os.close(ours)
    assert b'{"to":"bob"}' in shown
    assert output.decode().startswith(said)


def test_without_a_terminal_nobody_is_asked_there() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "60"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("SAID APPROVAL_REQUIRED")


# yes and no at the same moment


@pytest.fixture
def postgres_dsn(server: Server) -> str:
    return server.database()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def any_store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[MemoryStore | SqliteStore | PostgresStore]:
    store: MemoryStore | SqliteStore | PostgresStore
    if request.param == "memory":
        store = MemoryStore()
    elif request.param == "sqlite":
        store = SqliteStore(tmp_path / "store.db")
    else:
        store = PostgresStore(request.getfixturevalue("postgres_dsn"))
    if isinstance(store, MemoryStore):
        yield store
        return
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def test_of_a_yes_and_a_no_at_the_same_moment_the_no_is_heard(
    any_store: MemoryStore | SqliteStore | PostgresStore,
) -> None:
    desk = Approvals(any_store, clock=SystemClock(), approvers=("lead",))
    yes, no = Decision(approve=True), Decision(approve=False, reason="Too much.")
    lead, other = (Caller(n, user=n, roles=frozenset({"lead"})) for n in ("zoe", "max"))
    for number in range(10):
        call = call_of({"to": f"p{number}"})
        handle = (await desk.ask(call, spec=SPEC.digest, reason="So.")).handle
        answers = [
            desk.decide(handle, yes, by=lead, channel="api"),
            desk.decide(handle, no, by=other, channel="api"),
        ]
        answered = answers if number % 2 else answers[::-1]
        said = await asyncio.gather(*answered, return_exceptions=True)
        assert not isinstance(said[1 if number % 2 else 0], BaseException)
        assert (await desk.find(handle)).status == "denied"
        with pytest.raises(ApprovalDenied, match="Too much"):
            await desk.redeem(handle, call, spec=SPEC.digest, admit=dict)


async def test_a_no_that_comes_after_a_yes_takes_it_back_until_a_call_has_used_it(
    any_store: MemoryStore | SqliteStore | PostgresStore,
) -> None:
    desk = Approvals(any_store, clock=SystemClock(), approvers=("lead",))
    yes, no = Decision(approve=True), Decision(approve=False)
    lead = Caller("zoe", user="zoe", roles=frozenset({"lead"}))
    for number in range(10):
        call = call_of({"to": f"p{number}"})
        handle = (await desk.ask(call, spec=SPEC.digest, reason="So.")).handle
        await desk.decide(handle, yes, by=lead, channel="api")
        used, denied = await asyncio.gather(
            desk.redeem(handle, call, spec=SPEC.digest, admit=dict),
            desk.decide(handle, no, by=lead, channel="api"),
            return_exceptions=True,
        )
        status = (await desk.find(handle)).status
        if status == "used":
            assert isinstance(used, Request) and isinstance(denied, Conflict)
        else:
            assert status == "denied"
            assert isinstance(used, ApprovalDenied) and isinstance(denied, Request)


async def test_a_no_ends_what_would_last_of_a_yes_even_if_that_is_written_later(
    clock: Clock,
) -> None:
    class Slow(MemoryStore):
        """Says no to a request before the lasting yes for it is written."""

        async def put(self, space: str, key: str, value: Any, **more: Any) -> int | None:
            if space == "approvals.standing" and value is not None:
                no = Decision(approve=False)
                await desk.decide(value["request"], no, by=OWNER, channel="terminal")
            return await super().put(space, key, value, **more)

    store = Slow(clock=clock)
    desk = Approvals(store, clock=clock, approvers=("lead",))
    request = await asked(desk)
    lasting = Lasting(where={"to": {"const": "carl"}})
    lead = Caller("zoe", user="zoe", roles=frozenset({"lead"}))
    yes = Decision(approve=True, lasting=lasting)
    await desk.decide(request.handle, yes, by=lead, channel="api")
    assert await desk.covered(call_of({"to": "carl"}), spec=SPEC.digest) is None
    assert await desk.standing() == []


async def test_a_no_needs_no_look_at_what_somebody_else_has_changed(clock: Clock) -> None:
    desk = Approvals(MemoryStore(clock=clock), clock=clock, approvers=("lead",))
    request = await asked(desk, {"to": "bob"})
    lead = Caller("zoe", user="zoe", roles=frozenset({"lead"}))
    edit = Decision(approve=True, arguments={"to": "carl"})
    await desk.decide(request.handle, edit, by=lead, channel="api")
    no = Decision(approve=False)
    denied = await desk.decide(request.handle, no, by=lead, channel="api", seen=request.seen)
    assert denied.status == "denied"
