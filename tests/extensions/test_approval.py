"""The ring that asks a person: what is asked, what a yes is worth, and every way to cheat it."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import pytest

from tests.extensions.around import Yielding, surroundings
from tests.redact_corpus import made
from toolpost import Call, Caller, Executor, Registry, Result, Tool, ToolSpec, create_tool, tool
from toolpost.approvals import Approvals, Decision, Lasting, Request, Settled
from toolpost.approvals.terminal import local_person
from toolpost.contracts import Records, Walk
from toolpost.errors import ConfigError, Conflict, Denied, InvalidArguments
from toolpost.extensions.approval import Approval, ApprovalOptions
from toolpost.extensions.metrics import Expected, Metrics
from toolpost.ledger.record import AuditRecord
from toolpost.result import Approved
from toolpost.stores.memory import MemoryStore
from toolpost.stores.sqlite import SqliteStore
from toolpost.testing import Clock

pytestmark = pytest.mark.anyio

BOT = Caller("key-1", user="ann", agent="bot")
ANN = Caller("ann-at-home", user="ann")
BOSS = Caller("key-9", user="zoe", roles=frozenset({"approver"}))
YES, NO = Decision(approve=True), Decision(approve=False)
ran: list[tuple[str, int]] = []
paid: list[Callable[[str], None]] = []
"""Who wants to hear of it."""


@tool(tier=1, requires_approval=True)
async def pay(to: str, amount: int = 10) -> str:
    """Pay somebody."""
    ran.append((to, amount))
    for hear in paid:
        hear(to)
    return f"paid {amount} to {to}"


@tool(tier=1, requires_approval=True, description="Pay somebody, another way.", name="pay")
async def changed(to: str, amount: int = 10) -> str:
    ran.append((to, amount))
    return "changed"


@tool(tier=3, effects="read")
async def peek() -> str:
    """Look where one should not."""
    return "seen"


@tool(tier=0, effects="read")
async def look() -> str:
    """Look."""
    return "seen"


@pytest.fixture(autouse=True)
def _nothing_has_run() -> None:
    ran.clear()


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000.0)


class Bench:
    """An executor with the ring, and the desk where answers are given."""

    def __init__(
        self,
        records: Records,
        clock: Clock | None = None,
        *,
        tools: tuple[Any, ...] = (pay, peek, look),
        ask: Callable[[Request], Awaitable[Any]] | None = None,
        before: tuple[Any, ...] = (),
        **options: Any,
    ) -> None:
        options.setdefault("approvers", ("approver",))
        self.ring = Approval(records, options=ApprovalOptions(**options), ask=ask, clock=clock)
        self.records = records
        self.executor = Executor(
            Registry(tools),
            guards=[*before, self.ring],
            settings={"shell": {"programs": ["echo"]}},
        )
        self.desk = self.ring.approvals

    async def pay(self, to: str = "bob", *, caller: Caller = BOT, **more: Any) -> Result:
        return await self.executor.execute("pay", {"to": to}, caller=caller, **more)

    async def handle(self, to: str = "bob", **more: Any) -> str:
        error = (await self.pay(to, **more)).error
        assert error is not None and error.code == "APPROVAL_REQUIRED", error
        return str((error.details or {})["approval"])

    async def approved(self, to: str = "bob", **more: Any) -> str:
        handle = await self.handle(to, **more)
        await self.desk.decide(handle, YES, by=BOSS, channel="api")
        return handle


@pytest.fixture
def bench(clock: Clock) -> Bench:
    return Bench(Yielding(clock=clock), clock)


def code(result: Result) -> str:
    return "ok" if result.error is None else result.error.code


# what is asked


@pytest.mark.req("FM-13", "UX-4")
async def test_a_call_that_needs_a_yes_comes_back_with_a_handle_and_runs_when_resumed(
    bench: Bench, clock: Clock
) -> None:
    result = await bench.pay()
    assert result.error is not None
    assert (result.error.code, result.error.remedy) == ("APPROVAL_REQUIRED", "ask_approval")
    assert result.error.effects == "none"
    details = dict(result.error.details or {})
    handle = details.pop("approval")
    assert details == {
        "expires": clock.now + 3600,
        "reason": "A person has to confirm pay before it runs.",
        "need": 1,
        "have": 0,
    }
    assert ran == []

    (request,) = await bench.desk.waiting()
    assert (request.handle, request.tool, request.caller) == (handle, "pay", BOT)
    assert request.exact() == {"to": "bob", "amount": 10}, "as admitted, defaults filled in"
    assert request.spec == pay.spec.digest

    await bench.desk.decide(handle, YES, by=BOSS, channel="api")
    resumed = await bench.pay(grant=handle)
    assert resumed.output == "paid 10 to bob"
    assert resumed.metadata.trail == ["approval", f"approval: {handle} approved by zoe (api)"]
    assert (await bench.desk.find(handle)).used_by == resumed.metadata.call_id
    assert ran == [("bob", 10)]


@pytest.mark.req("UX-4")
@pytest.mark.parametrize(
    ("mode", "asked"),
    [
        ("never", set()),
        ("policy", {"pay"}),
        ("unsafe", {"pay", "peek"}),
        ("always", {"pay", "peek", "look"}),
    ],
)
async def test_the_mode_says_which_calls_need_a_yes(mode: Any, asked: set[str]) -> None:
    bench = Bench(Yielding(), mode=mode)
    calls = {"pay": {"to": "bob"}, "peek": {}, "look": {}}
    results = {name: await bench.executor.execute(name, args) for name, args in calls.items()}
    assert {name for name, result in results.items() if result.error} == asked
    assert all(code(results[name]) == "APPROVAL_REQUIRED" for name in asked)


async def wants_asked(call: Call, call_next: Walk) -> Result:
    return await call_next(msgspec.structs.replace(call, ask="Rule 7 says so."))


@pytest.mark.req("FM-13", "UX-4")
@pytest.mark.parametrize("mode", ["policy", "unsafe", "always"])
async def test_what_the_policy_wants_asked_is_asked_and_runs_after_a_yes(mode: Any) -> None:
    bench = Bench(Yielding(), before=(wants_asked,), mode=mode)
    result = await bench.executor.execute("look", caller=BOT)
    assert result.error is not None and "Rule 7 says so." in result.error.message
    (request,) = await bench.desk.waiting()
    await bench.desk.decide(request.handle, YES, by=ANN, channel="terminal")
    assert (await bench.executor.execute("look", caller=BOT, grant=request.handle)).output == "seen"


@pytest.mark.req("UX-4")
async def test_where_nobody_is_ever_asked_what_the_policy_wants_asked_does_not_run() -> None:
    bench = Bench(Yielding(), before=(wants_asked,), mode="never")
    assert code(await bench.executor.execute("look")) == "APPROVAL_REQUIRED"
    assert bench.executor.bound("look").rings == ("wants_asked",)
    assert code(await bench.pay()) == "APPROVAL_REQUIRED", "what the spec wants hides no rule"
    assert ran == []


async def test_where_nobody_is_ever_asked_a_dry_run_says_so() -> None:
    bench = Bench(Yielding(), mode="never")
    result = await bench.pay(dry_run=True)
    assert result.metadata.plan is not None and "ask" not in result.metadata.plan


async def test_a_dry_run_asks_nobody_and_uses_nothing_up(bench: Bench) -> None:
    result = await bench.pay(dry_run=True)
    assert result.metadata.plan is not None
    assert result.metadata.plan["ask"] == "A person has to confirm pay before it runs."
    assert await bench.desk.all() == []
    handle = await bench.approved()
    assert (await bench.pay(dry_run=True, grant=handle)).success
    assert (await bench.pay(grant=handle)).success
    assert ran == [("bob", 10)]


class Transfer(Tool, requires_approval=True):
    """Move money."""

    def validate(self, arguments: Mapping[str, Any]) -> Iterable[str]:
        if arguments["amount"] > 50:
            yield "that is more than there is"

    async def run(self, amount: int) -> str:
        ran.append(("transfer", amount))
        return "moved"


class Prepared(Transfer, requires_approval=True):
    """Move money, from a place that is looked up first."""

    async def initialize(self) -> None:
        self.most = 50

    def validate(self, arguments: Mapping[str, Any]) -> Iterable[str]:
        return ["that is more than there is"] if arguments["amount"] > self.most else []


async def test_nobody_is_asked_about_a_call_that_the_tool_itself_would_refuse() -> None:
    says = {"command": "echo {text}"}
    text = {"type": "object", "properties": {"text": {"type": "string"}}}
    shell = ToolSpec(
        name="say", description="Say it.", kind="shell", binding=says, input_schema=text,
        requires_approval=True, tier=2,
    )  # fmt: skip
    bench = Bench(Yielding(), tools=(Transfer(), shell))
    for name, wrong, fine in (
        ("transfer", {"amount": 51}, {"amount": 50}),
        ("say", {"text": "a\0b"}, {"text": "a"}),
    ):
        refused = await bench.executor.execute(name, wrong, caller=BOT)
        assert (code(refused), refused.error.effects) == ("VALIDATION_ERROR", "none")
        assert await bench.desk.waiting() == []
        plan = await bench.executor.execute(name, wrong, caller=BOT, dry_run=True)
        assert plan.error.message == refused.error.message, "a dry run says the same"
        asked = await bench.executor.execute(name, fine, caller=BOT)
        assert code(asked) == "APPROVAL_REQUIRED"
        await bench.desk.decide(asked.error.details["approval"], NO, by=BOSS, channel="api")
    assert ran == []


async def test_no_yes_is_used_up_for_a_call_that_the_tool_has_come_to_refuse() -> None:
    ready = Prepared()
    bench = Bench(Yielding(), tools=(ready,))

    async def moved(**more: Any) -> Result:
        return await bench.executor.execute("prepared", {"amount": 50}, caller=BOT, **more)

    handle = (await moved()).error.details["approval"]
    await bench.desk.decide(handle, YES, by=BOSS, channel="api")
    assert (await moved(grant=handle)).output == "moved"
    handle = (await moved()).error.details["approval"]
    await bench.desk.decide(handle, YES, by=BOSS, channel="api")
    ready.most = 40
    assert code(await moved(grant=handle)) == "VALIDATION_ERROR"
    ready.most = 50
    assert (await moved(grant=handle)).output == "moved"


async def test_a_tool_that_has_to_be_made_ready_first_judges_once_it_is() -> None:
    bench = Bench(Yielding(), tools=(Prepared,))
    asked = await bench.executor.execute("prepared", {"amount": 51}, caller=BOT)
    assert code(asked) == "APPROVAL_REQUIRED", "nothing was made before it was to run"
    handle = asked.error.details["approval"]
    await bench.desk.decide(handle, YES, by=BOSS, channel="api")
    refused = await bench.executor.execute("prepared", {"amount": 51}, caller=BOT, grant=handle)
    assert code(refused) == "VALIDATION_ERROR"
    again = await bench.executor.execute("prepared", {"amount": 52}, caller=BOT)
    assert code(again) == "VALIDATION_ERROR"


async def test_the_same_call_again_is_the_same_request_and_runs_once_it_is_approved(
    bench: Bench,
) -> None:
    handle = await bench.handle()
    assert await bench.handle() == handle
    assert await bench.handle(session_id="s") != handle
    await bench.desk.decide(handle, YES, by=BOSS, channel="api")
    assert (await bench.pay()).success
    assert await bench.handle() != handle, "the next one needs a yes of its own"
    assert ran == [("bob", 10)]


async def test_racing_calls_of_one_kind_make_one_request(bench: Bench) -> None:
    handles = await asyncio.gather(*(bench.handle() for _ in range(10)))
    assert len(set(handles)) == 1
    assert len(await bench.desk.all()) == 1


async def test_a_no_is_final_and_is_not_asked_again(bench: Bench, clock: Clock) -> None:
    handle = await bench.handle()
    no = Decision(approve=False, reason="Not to bob.")
    await bench.desk.decide(handle, no, by=ANN, channel="console")
    for result in (await bench.pay(grant=handle), await bench.pay()):
        assert result.error is not None
        assert (result.error.code, result.error.remedy) == ("APPROVAL_DENIED", "stop")
        assert "Not to bob." in result.error.message
    with pytest.raises(Conflict, match=r"denied already \(by ann\)"):
        await bench.desk.decide(handle, YES, by=BOSS, channel="api")
    clock.advance(3601)
    assert await bench.handle() != handle
    assert ran == []


async def test_arguments_that_cannot_be_kept_exactly_are_refused() -> None:
    @tool(requires_approval=True)
    async def free(data: float) -> None:
        """Take a number."""

    bench = Bench(Yielding(), tools=(free,))
    result = await bench.executor.execute("free", {"data": Decimal("1.5")})
    assert code(result) == "VALIDATION_ERROR"
    assert await bench.desk.all() == []


# attacks: what is not exactly what was approved does not run


@pytest.mark.req("FM-13")
async def test_an_approval_that_is_replayed_is_refused(bench: Bench) -> None:
    handle = await bench.approved()
    assert (await bench.pay(grant=handle)).success
    again = await bench.pay(grant=handle)
    assert again.error is not None and again.error.code == "APPROVAL_DENIED"
    assert "used" in again.error.message
    assert ran == [("bob", 10)]


async def test_an_approval_that_is_replayed_fifty_times_at_once_is_used_once(bench: Bench) -> None:
    handle = await bench.approved()
    results = await asyncio.gather(*(bench.pay(grant=handle) for _ in range(50)))
    assert sorted(map(code, results)) == ["APPROVAL_DENIED"] * 49 + ["ok"]
    assert ran == [("bob", 10)]


async def test_arguments_changed_after_the_approval_are_refused(bench: Bench) -> None:
    handle = await bench.approved()
    assert code(await bench.pay("eve", grant=handle)) == "CONFLICT"
    more = await bench.executor.execute(
        "pay", {"to": "bob", "amount": 11}, caller=BOT, grant=handle
    )
    assert code(more) == "CONFLICT"
    assert ran == []
    assert (await bench.pay(grant=handle)).success, "trying does not use it up"


async def test_arguments_changed_by_a_ring_behind_the_request_are_refused(clock: Clock) -> None:
    async def raises_it(call: Call, call_next: Walk) -> Result:
        return await call_next(call.with_arguments({**call.arguments, "amount": 999}))

    store = Yielding(clock=clock)
    handle = await Bench(store, clock).approved()
    assert code(await Bench(store, clock, before=(raises_it,)).pay(grant=handle)) == "CONFLICT"
    assert ran == []


async def test_a_tool_changed_after_the_approval_is_refused(clock: Clock) -> None:
    store = Yielding(clock=clock)
    handle = await Bench(store, clock).approved()
    result = await Bench(store, clock, tools=(changed,)).pay(grant=handle)
    assert result.error is not None and result.error.code == "CONFLICT"
    assert "has changed" in result.error.message
    assert ran == []


@pytest.mark.parametrize(
    "thief",
    [
        Caller("key-2", key="bot", agent="bot"),
        Caller("key-1", user="eve", agent="bot"),
        Caller("key-1", user="ann", agent="other"),
        Caller("key-1", user="ann", agent="bot", owner=True),
    ],
)
async def test_an_approval_of_somebody_else_is_refused(
    bench: Bench, thief: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await bench.approved()
    with caplog.at_level(logging.WARNING, "toolpost.approvals"):
        assert code(await bench.pay(grant=handle, caller=thief)) == "APPROVAL_DENIED"
    assert f"{thief.id} tried to use {handle} of key-1" in caplog.text
    assert ran == []


async def test_an_approval_for_another_folder_or_tool_is_refused(bench: Bench) -> None:
    handle = await bench.approved()
    assert code(await bench.pay(grant=handle, working_dir="/")) == "CONFLICT"
    assert code(await bench.executor.execute("look", caller=BOT, grant=handle)) == "CONFLICT"


@pytest.mark.parametrize("grant", ["ap-made-up", "", "ap-"])
async def test_an_approval_that_was_made_up_is_refused(bench: Bench, grant: str) -> None:
    await bench.approved()
    assert code(await bench.pay(grant=grant)) == "APPROVAL_DENIED"
    assert ran == []


async def test_an_approval_that_nobody_has_given_yet_is_no_approval(bench: Bench) -> None:
    handle = await bench.handle()
    assert code(await bench.pay(grant=handle)) == "APPROVAL_REQUIRED"
    assert ran == []


async def test_an_approval_that_has_expired_is_refused(bench: Bench, clock: Clock) -> None:
    handle = await bench.approved()
    clock.advance(3600)
    result = await bench.pay(grant=handle)
    assert result.error is not None
    assert (result.error.code, result.error.remedy) == ("APPROVAL_DENIED", "ask_approval")
    assert "expired" in result.error.message
    assert ran == []


async def test_a_request_that_has_expired_cannot_be_approved(bench: Bench, clock: Clock) -> None:
    handle = await bench.handle()
    clock.advance(3600)
    with pytest.raises(Conflict, match="expired"):
        await bench.desk.decide(handle, YES, by=BOSS, channel="api")
    assert await bench.desk.waiting() == []


async def test_a_clock_that_is_put_back_ends_an_approval(bench: Bench, clock: Clock) -> None:
    handle = await bench.approved()
    clock.now -= 30
    assert (await bench.desk.find(handle)).state(clock.now) == "approved", "hosts differ a little"
    clock.now -= 3600
    assert code(await bench.pay(grant=handle)) == "APPROVAL_DENIED"


@pytest.mark.parametrize(
    ("by", "channel"),
    [
        (BOT, "api"),
        (BOT, "terminal"),
        (BOT, "webhook"),
        (Caller("key-1"), "api"),
        (Caller("key-1", user="somebody", roles=frozenset({"approver"})), "api"),
        (ANN, "api"),
        (Caller("key-7", user="ann", roles=frozenset({"approver"})), "api"),
        (Caller("key-8", user="zoe", agent="bot", roles=frozenset({"approver"})), "api"),
        (Caller("key-3", user="eve"), "api"),
        (Caller("key-3", user="eve"), "console"),
    ],
)
async def test_the_requesting_agent_or_key_or_a_stranger_cannot_approve(
    bench: Bench, by: Caller, channel: Any
) -> None:
    handle = await bench.handle()
    with pytest.raises(Denied):
        await bench.desk.decide(handle, YES, by=by, channel=channel)
    assert code(await bench.pay(grant=handle)) == "APPROVAL_REQUIRED"


@pytest.mark.parametrize(
    ("by", "channel"),
    [
        (ANN, "terminal"),
        (ANN, "console"),
        (BOSS, "api"),
        (Caller("whoever"), "webhook"),
        (Caller("owner", owner=True), "api"),
    ],
)
async def test_the_user_behind_it_a_role_and_the_owner_may_approve(
    bench: Bench, by: Caller, channel: Any
) -> None:
    handle = await bench.handle()
    await bench.desk.decide(handle, YES, by=by, channel=channel)
    assert (await bench.pay(grant=handle)).success


async def test_the_owner_cannot_approve_a_call_of_their_own_by_the_way_it_was_made(
    bench: Bench,
) -> None:
    owner = Caller("owner", owner=True)
    handle = await bench.handle(caller=owner)
    with pytest.raises(Denied):
        await bench.desk.decide(handle, YES, by=owner, channel="api")
    await bench.desk.decide(handle, YES, by=owner, channel="terminal")
    assert (await bench.pay(caller=owner, grant=handle)).success


async def test_whoever_asked_may_take_it_back(bench: Bench) -> None:
    handle = await bench.handle()
    await bench.desk.decide(handle, Decision(approve=False), by=BOT, channel="api")
    assert code(await bench.pay(grant=handle)) == "APPROVAL_DENIED"


async def test_of_racing_approvers_a_no_is_heard_and_every_later_answer_is_refused(
    bench: Bench,
) -> None:
    handle = await bench.handle()
    people = [
        Caller(f"key-{i}", user=f"user-{i}", roles=frozenset({"approver"})) for i in range(9, 19)
    ]
    answers = [
        bench.desk.decide(handle, Decision(approve=i % 2 == 0), by=by, channel="api")
        for i, by in enumerate(people)
    ]
    said = await asyncio.gather(*answers, return_exceptions=True)
    heard = [one for one in said if isinstance(one, Request)]
    assert all(isinstance(one, Request | Conflict) for one in said)
    assert [one.status for one in heard] in (["denied"], ["approved", "denied"])
    assert (await bench.desk.find(handle)).status == "denied"


# edits, several people, more than one call


@pytest.mark.req("FM-13")
async def test_an_approvers_edit_walks_the_whole_road_anew(clock: Clock) -> None:
    seen: list[dict[str, Any]] = []

    async def watches(call: Call, call_next: Walk) -> Result:
        seen.append(call.arguments)
        return await call_next(call)

    bench = Bench(Yielding(clock=clock), clock, before=(watches,))
    handle = await bench.handle()
    edit = Decision(approve=True, arguments={"to": "bob", "amount": 3})
    await bench.desk.decide(handle, edit, by=BOSS, channel="api")
    result = await bench.pay(grant=handle)
    assert result.output == "paid 3 to bob"
    assert seen[-2:] == [{"to": "bob", "amount": 10}, {"to": "bob", "amount": 3}]
    assert code(await bench.pay(grant=handle)) == "APPROVAL_DENIED"
    assert ran == [("bob", 3)]


async def test_an_edit_gets_its_defaults_and_may_be_sent_by_the_caller(bench: Bench) -> None:
    handle = await bench.handle()
    edit = Decision(approve=True, arguments={"to": "carl"})
    await bench.desk.decide(handle, edit, by=BOSS, channel="api")
    assert code(await bench.pay("dora", grant=handle)) == "CONFLICT"
    assert (await bench.pay("carl", grant=handle)).output == "paid 10 to carl"


@tool(tier=1, requires_approval=True)
async def write_to(
    to: str, text: str = "", more: Annotated[Any, "Whatever else there is."] = None
) -> Any:
    """Write to somebody."""
    return {"to": to, "text": text, "more": more}


_WRITTEN: Final = {"to": "ada@example.org", "text": "hello", "more": {"cc": ["bob@example.org"]}}


async def asked_to_write(bench: Bench, arguments: dict[str, Any]) -> str:
    error = (await bench.executor.execute("write_to", arguments, caller=BOT)).error
    assert error is not None and error.details is not None
    return str(error.details["approval"])


@pytest.mark.parametrize("edit", [{"text": "bye"}, {"more": None}, {}, {"more": {"cc": []}}])
async def test_an_edit_changes_what_it_names_and_the_rest_stays_as_asked(
    edit: dict[str, Any], clock: Clock
) -> None:
    bench = Bench(Yielding(clock=clock), clock, tools=(write_to,))
    handle = await asked_to_write(bench, _WRITTEN)
    yes = Decision(approve=True, arguments=edit)
    await bench.desk.decide(handle, yes, by=BOSS, channel="api")
    result = await bench.executor.execute("write_to", _WRITTEN, caller=BOT, grant=handle)
    assert result.output == _WRITTEN | edit


@pytest.mark.parametrize(
    ("edit", "place"),
    [
        ({"to": "[redacted:email]", "text": "bye"}, "/to"),
        ({"text": "ask [redacted:email]"}, "/text"),
        ({"more": {"cc": ["[redacted:email]"]}}, "/more/cc/0"),
        ({"more": {"[redacted:email]": 1}}, "/more/[redacted:email]"),
    ],
)
async def test_a_redaction_mark_in_an_edit_never_reaches_the_tool(
    edit: dict[str, Any], place: str, clock: Clock
) -> None:
    bench = Bench(Yielding(clock=clock), clock, tools=(write_to,))
    handle = await asked_to_write(bench, _WRITTEN)
    yes = Decision(approve=True, arguments=edit)
    with pytest.raises(InvalidArguments) as refused:
        await bench.desk.decide(handle, yes, by=BOSS, channel="api")
    assert refused.value.message.startswith(f"{place}: [redacted:email] stands for a value")
    assert "Send only the arguments that change" in refused.value.message
    assert (await bench.desk.find(handle)).status == "waiting"


async def test_a_redaction_mark_that_was_sent_by_the_caller_may_stay_in_an_edit(
    clock: Clock,
) -> None:
    bench = Bench(Yielding(clock=clock), clock, tools=(write_to,))
    asked = {"to": "ada", "text": "what is [redacted:email]?", "more": None}
    handle = await asked_to_write(bench, asked)
    edit = asked | {"to": "bob"}
    yes = Decision(approve=True, arguments=edit)
    await bench.desk.decide(handle, yes, by=BOSS, channel="api")
    result = await bench.executor.execute("write_to", asked, caller=BOT, grant=handle)
    assert result.output == edit


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"to": 5}, "/to: expected string"),
        ({"to": "bob", "amont": 5}, "pay has no parameter 'amont'; did you mean 'amount'"),
        ({"to": None}, "/to: expected string"),
    ],
)
async def test_an_edit_that_does_not_fit_the_tool_is_refused(
    bench: Bench, arguments: dict[str, Any], why: str
) -> None:
    handle = await bench.handle()
    edit = Decision(approve=True, arguments=arguments)
    with pytest.raises(InvalidArguments, match=re.escape(why)):
        await bench.desk.decide(handle, edit, by=BOSS, channel="api")
    assert (await bench.desk.find(handle)).status == "waiting"


async def test_an_edit_of_a_tool_that_is_not_known_here_is_checked_when_it_is_used(
    bench: Bench, clock: Clock
) -> None:
    handle = await bench.handle()
    elsewhere = Approvals(bench.records, clock=clock)
    edit = Decision(approve=True, arguments={"to": 5})
    await elsewhere.decide(handle, edit, by=Caller("z", owner=True), channel="console")
    assert code(await bench.pay(grant=handle)) == "VALIDATION_ERROR"
    assert (await bench.desk.find(handle)).status == "approved"


async def test_what_an_edit_was_meant_for_has_to_be_as_it_was(bench: Bench, clock: Clock) -> None:
    handle = await bench.handle()
    other = Bench(bench.records, clock, tools=(changed,))
    await other.handle("x")
    edit = Decision(approve=True, arguments={"to": "carl"})
    with pytest.raises(Conflict, match="has changed"):
        await other.desk.decide(handle, edit, by=BOSS, channel="api")


@pytest.mark.req("FM-13")
@pytest.mark.parametrize(
    ("where", "why"),
    [
        ({"amount": {"maxmum": 50}}, "'maxmum' cannot be said here; did you mean 'maximum'"),
        ({"amount": {"anyOf": [{"maxmum": 50}]}}, "'maxmum' cannot be said here"),
        ({"amount": {"description": "at most 50"}}, "use const, enum"),
        ({"amount": {}}, "{} would fit anything"),
        ({"amount": {"anyOf": [{}]}}, "{} would fit anything"),
        ({"amount": {"not": {}}}, "{} would fit anything"),
        ({"amount": True}, "as a JSON Schema"),
        ({"amout": {"maximum": 50}}, "pay has no parameter 'amout'; did you mean 'amount'"),
        ({"zzz": {"const": 1}}, "it takes to, amount"),
    ],
)
async def test_a_lasting_yes_that_is_misspelt_is_none(
    bench: Bench, where: dict[str, Any], why: str
) -> None:
    handle = await bench.handle()
    lasting = Decision(approve=True, lasting=Lasting(where=where))
    with pytest.raises(InvalidArguments, match=re.escape(why)):
        await bench.desk.decide(handle, lasting, by=ANN, channel="terminal")
    assert await bench.desk.standing() == []
    assert (await bench.desk.find(handle)).status == "waiting"


async def test_a_bound_on_numbers_covers_nothing_else(clock: Clock) -> None:
    @tool(tier=1, requires_approval=True)
    async def pay(to: str | list[str], amount: int | str) -> str:
        """Pay somebody."""
        return "paid"

    bench = Bench(Yielding(clock=clock), clock, tools=(pay,))

    async def coded(to: Any, amount: Any) -> str:
        sent = {"to": to, "amount": amount}
        return code(await bench.executor.execute("pay", sent, caller=BOT))

    assert await coded("bob", 1) == "APPROVAL_REQUIRED"
    (request,) = await bench.desk.waiting()
    where = {
        "amount": {"maximum": 50},
        "to": {"anyOf": [{"maxLength": 3}, {"items": {"const": "x"}}]},
    }
    lasting = Decision(approve=True, lasting=Lasting(where=where))
    await bench.desk.decide(request.handle, lasting, by=ANN, channel="terminal")
    assert await coded("eve", 50) == "ok"
    assert await coded(["x"], 50) == "ok"
    assert await coded("bob", "999999") == "APPROVAL_REQUIRED"
    assert await coded(["eve"], 50) == "APPROVAL_REQUIRED"


async def test_a_tool_that_takes_any_parameter_may_be_approved_for_any(clock: Clock) -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}

    async def run(numbers: dict[str, int]) -> str:
        return "ran"

    free = create_tool("free", "Take anything.", run, input_schema=schema, requires_approval=True)
    bench = Bench(Yielding(clock=clock), clock, tools=(free,))
    result = await bench.executor.execute("free", {"a": 1}, caller=BOT)
    handle = str((result.error.details or {})["approval"]) if result.error else ""
    yes = Decision(approve=True, lasting=Lasting(where={"b": {"maximum": 5}}))
    await bench.desk.decide(handle, yes, by=ANN, channel="terminal")
    assert (await bench.executor.execute("free", {"b": 5}, caller=BOT)).success


# what is taken back


@pytest.mark.req("FM-13")
async def test_a_yes_that_nobody_has_used_is_taken_back_with_all_that_lasts_of_it(
    bench: Bench,
) -> None:
    handle = await bench.handle()
    lasting = Lasting(where={"to": {"const": "carl"}})
    yes = Decision(approve=True, lasting=lasting)
    await bench.desk.decide(handle, yes, by=ANN, channel="terminal")
    denied = await bench.desk.take_back(handle, by=ANN, channel="terminal", reason="A mistake.")
    assert denied.status == "denied"
    assert await bench.desk.standing() == []
    result = await bench.pay()
    assert code(result) == "APPROVAL_DENIED"
    assert result.error is not None and "A mistake." in result.error.message
    assert code(await bench.pay("carl")) == "APPROVAL_REQUIRED"
    assert ran == []


async def test_only_a_yes_that_is_not_used_can_be_taken_back(bench: Bench) -> None:
    waiting = await bench.handle("carl")
    with pytest.raises(Conflict, match="is waiting: there is no yes to take back"):
        await bench.desk.take_back(waiting, by=ANN, channel="terminal")
    handle = await bench.approved()
    with pytest.raises(Denied):
        await bench.desk.take_back(handle, by=Caller("x", user="eve"), channel="api")
    assert (await bench.pay()).success
    with pytest.raises(Conflict, match="is used"):
        await bench.desk.take_back(handle, by=ANN, channel="terminal")


async def test_of_a_use_and_a_taking_back_that_race_one_wins(bench: Bench) -> None:
    for number in range(20):
        handle = await bench.approved(f"p{number}")
        taking = bench.desk.take_back(handle, by=ANN, channel="terminal")
        result, taken = await asyncio.gather(
            bench.pay(f"p{number}"), taking, return_exceptions=True
        )
        assert isinstance(result, Result)
        assert result.success != isinstance(taken, Request)


@pytest.mark.req("FM-13")
async def test_an_answer_by_a_way_that_there_is_not_is_refused_and_nothing_is_lost(
    bench: Bench,
) -> None:
    odd: Any = "slack"
    ways = "one of terminal, console, callback, webhook, api, not by 'slack'"
    handle = await bench.handle()
    with pytest.raises(InvalidArguments, match=ways):
        await bench.desk.decide(handle, YES, by=ANN, channel=odd)
    assert [one.handle for one in await bench.desk.waiting()] == [handle]
    lasting = Decision(approve=True, lasting=Lasting(where={"to": {"const": "carl"}}))
    await bench.desk.decide(handle, lasting, by=ANN, channel="terminal")
    (standing,) = await bench.desk.standing()
    with pytest.raises(InvalidArguments, match=ways):
        await bench.desk.revoke(standing.handle, by=ANN, channel=odd)
    with pytest.raises(InvalidArguments, match=ways):
        await bench.desk.take_back(handle, by=ANN, channel=odd)
    assert await bench.desk.standing() == [standing]
    assert (await bench.pay()).success


# what is told


async def test_every_answer_that_counts_is_told(bench: Bench) -> None:
    heard: list[Settled] = []

    async def tell(settled: Settled) -> None:
        heard.append(settled)

    bench.desk.tell = tell
    first, second = await bench.handle(), await bench.handle("carl")
    lasting = Decision(approve=True, lasting=Lasting(where={"to": {"const": "dora"}}, uses=2))
    await bench.desk.decide(first, lasting, by=ANN, channel="terminal")
    await bench.desk.decide(second, Decision(approve=False), by=BOSS, channel="api")
    with pytest.raises(Conflict):
        await bench.desk.decide(second, YES, by=BOSS, channel="api")
    (standing,) = await bench.desk.standing()
    await bench.desk.revoke(standing.handle[:8], by=ANN, channel="console")
    await bench.desk.take_back(first, by=ANN, channel="terminal")
    assert [(one.what, one.by.id, one.channel) for one in heard] == [
        ("approve", "ann-at-home", "terminal"),
        ("deny", "key-9", "api"),
        ("revoke", "ann-at-home", "console"),
        ("take back", "ann-at-home", "terminal"),
    ]
    assert heard[0].standing == standing == heard[2].standing
    assert [one.request and one.request.handle for one in heard] == [first, second, None, first]


async def test_an_answer_that_cannot_be_put_on_record_is_in_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[AuditRecord] = []

    async def keep(record: AuditRecord) -> bool:
        kept.append(record)
        return False

    bench.ring.record(keep)
    handle = await bench.handle()
    secret = "gh" + "p_" + made(36)
    no = Decision(approve=False, reason=f"It is {secret}.")
    await bench.desk.decide(handle, no, by=BOSS, channel="api")
    assert "an answer is not on record: deny by key-9" in caplog.text
    (record,) = kept
    assert (record.kind, record.code, record.grant) == ("decision", "DENIED", handle)
    assert (record.approver, record.tool) == ("zoe (api)", "pay")
    assert record.details["asked_by"] == {"id": "key-1", "user": "ann", "agent": "bot"}
    assert secret not in str(record)


async def test_what_was_decided_holds_even_if_nobody_can_be_told(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell(settled: Settled) -> None:
        raise RuntimeError("the line is cut")

    bench.desk.tell = tell
    await bench.approved()
    assert (await bench.pay()).success
    assert "nobody could be told of approve" in caplog.text


async def test_a_ring_may_refuse_what_an_approver_has_edited(clock: Clock) -> None:
    async def small(call: Call, call_next: Walk) -> Result:
        if call.arguments["amount"] > 50:
            raise Denied("Too much.")
        return await call_next(call)

    bench = Bench(Yielding(clock=clock), clock, before=(small,))
    handle = await bench.handle()
    edit = Decision(approve=True, arguments={"to": "bob", "amount": 51})
    await bench.desk.decide(handle, edit, by=BOSS, channel="api")
    assert code(await bench.pay(grant=handle)) == "POLICY_DENIED"
    assert ran == []


@pytest.mark.req("FM-13")
async def test_several_people_have_to_agree(clock: Clock) -> None:
    bench = Bench(Yielding(clock=clock), clock, needs={"pay*": 2})
    handle = await bench.handle()
    await bench.desk.decide(handle, YES, by=BOSS, channel="api")
    result = await bench.pay(grant=handle)
    assert result.error is not None
    assert result.error.code == "APPROVAL_REQUIRED"
    assert (result.error.details or {})["have"] == 1
    with pytest.raises(Conflict, match="somebody else"):
        await bench.desk.decide(handle, YES, by=Caller("2", user="zoe", owner=True), channel="api")
    await bench.desk.decide(handle, YES, by=ANN, channel="terminal")
    done = await bench.pay(grant=handle)
    assert done.success and "zoe (api), ann (terminal)" in done.metadata.trail[-1]


@pytest.mark.req("FM-13")
@pytest.mark.parametrize("way", ["callback", "prompt"])
async def test_who_answers_here_and_on_the_command_line_is_one_person(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(request: Request) -> bool:
        return True

    ours, theirs = pty.openpty()
    with open(theirs, "r+b", buffering=0) as file:
        terminal = io.TextIOWrapper(file)
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(sys, "stderr", terminal)
        os.write(ours, b"y\n")
        bench = Bench(Yielding(), ask=ask if way == "callback" else None, need=2, prompt=True)
        handle = await bench.handle()
        me = local_person()
        assert [vote.person for vote in (await bench.desk.find(handle)).votes] == [me.user]
        with pytest.raises(Conflict, match="somebody else has to as well"):
            await bench.desk.decide(handle, YES, by=me, channel="terminal")
        await bench.desk.decide(handle, YES, by=BOSS, channel="api")
        assert (await bench.pay(grant=handle)).success
    os.close(ours)


async def test_an_edit_takes_back_what_others_have_approved(clock: Clock) -> None:
    bench = Bench(Yielding(clock=clock), clock, need=2)
    handle = await bench.handle()
    first = await bench.desk.decide(handle, YES, by=BOSS, channel="api")
    edit = Decision(approve=True, arguments={"to": "eve", "amount": 10})
    await bench.desk.decide(handle, edit, by=ANN, channel="terminal")
    assert code(await bench.pay(grant=handle)) == "APPROVAL_REQUIRED"
    with pytest.raises(Conflict, match="look at it again"):
        await bench.desk.decide(handle, YES, by=BOSS, channel="api", seen=first.seen)
    await bench.desk.decide(handle, YES, by=BOSS, channel="api")
    assert (await bench.pay(grant=handle)).output == "paid 10 to eve"


@pytest.mark.req("FM-13")
async def test_a_yes_for_this_session_covers_the_calls_of_the_session(bench: Bench) -> None:
    handle = await bench.handle(session_id="s1")
    lasting = Decision(approve=True, lasting=Lasting(session=True))
    await bench.desk.decide(handle, lasting, by=ANN, channel="terminal")
    done = await bench.pay("carl", session_id="s1")
    assert done.success
    (standing,) = await bench.desk.standing()
    assert done.metadata.trail[-1] == f"approval: covered by {standing.handle}, given by ann"
    assert code(await bench.pay("carl", session_id="s2")) == "APPROVAL_REQUIRED"
    assert code(await bench.pay("carl")) == "APPROVAL_REQUIRED"
    other = Caller("key-1", user="ann", agent="other")
    assert code(await bench.pay("carl", session_id="s1", caller=other)) == "APPROVAL_REQUIRED"
    new_key = Caller("key-2", user="ann", agent="bot")
    assert (await bench.pay("carl", session_id="s1", caller=new_key)).success


@pytest.mark.req("FM-13")
async def test_a_call_that_has_a_yes_of_its_own_takes_nothing_from_one_that_lasts(
    bench: Bench,
) -> None:
    await bench.approved("eve")
    lasting = Decision(approve=True, lasting=Lasting(where={"to": {"minLength": 1}}, uses=1))
    await bench.desk.decide(await bench.handle("carl"), lasting, by=ANN, channel="terminal")
    for to in ("eve", "carl"):
        assert (await bench.pay(to)).success
    (standing,) = await bench.desk.standing()
    assert standing.left == 1
    assert (await bench.pay("eve")).success  # now it takes the one that lasts
    assert code(await bench.pay("eve")) == "APPROVAL_REQUIRED"


@pytest.mark.req("FM-13")
async def test_a_yes_for_a_pattern_holds_within_its_limits(bench: Bench, clock: Clock) -> None:
    where = {"to": {"const": "bob"}, "amount": {"maximum": 20}}
    lasting = Lasting(where=where, seconds=60, uses=2)
    handle = await bench.handle()
    await bench.desk.decide(
        handle, Decision(approve=True, lasting=lasting), by=ANN, channel="terminal"
    )

    async def amount(n: int, to: str = "bob") -> str:
        sent = {"to": to, "amount": n}
        return code(await bench.executor.execute("pay", sent, caller=BOT))

    assert await amount(21) == "APPROVAL_REQUIRED"
    assert await amount(5, "eve") == "APPROVAL_REQUIRED"
    racing = await asyncio.gather(*(amount(n) for n in range(11, 21)))
    assert racing.count("ok") == 2
    assert len(ran) == 2

    clock.advance(61)
    assert await bench.desk.standing() == []
    assert await amount(6) == "APPROVAL_REQUIRED"


async def test_a_lasting_yes_ends_with_its_time_its_tool_or_its_revocation(clock: Clock) -> None:
    store = Yielding(clock=clock)
    bench = Bench(store, clock)
    lasting = Lasting(where={"to": {"const": "bob"}}, seconds=7200)
    yes = Decision(approve=True, lasting=lasting)
    await bench.desk.decide(await bench.handle("x"), yes, by=ANN, channel="terminal")
    assert (await bench.pay()).success
    assert code(await Bench(store, clock, tools=(changed,)).pay()) == "APPROVAL_REQUIRED"
    (standing,) = await bench.desk.standing()
    assert (await bench.desk.revoke(standing.handle)).handle == standing.handle
    assert code(await bench.pay()) == "APPROVAL_REQUIRED"
    await bench.desk.decide(await bench.handle("y"), yes, by=ANN, channel="terminal")
    assert (await bench.pay()).success
    clock.advance(7200)
    assert code(await bench.pay()) == "APPROVAL_REQUIRED"


@pytest.mark.parametrize(
    ("lasting", "why"),
    [
        (Lasting(session=True), "no session"),
        (Lasting(), "for all"),
        (Lasting(where={"to": {"const": 1}}, seconds=0), "30 days"),
        (Lasting(where={"to": {"const": 1}}, seconds=1e9), "30 days"),
        (Lasting(where={"to": {"const": 1}}, uses=0), "at least one"),
    ],
)
async def test_a_lasting_yes_has_bounds(bench: Bench, lasting: Lasting, why: str) -> None:
    handle = await bench.handle()
    with pytest.raises(Conflict, match=why):
        await bench.desk.decide(
            handle, Decision(approve=True, lasting=lasting), by=ANN, channel="terminal"
        )
    assert code(await bench.pay(grant=handle)) == "APPROVAL_REQUIRED"


async def test_what_several_have_to_approve_is_approved_for_one_call(clock: Clock) -> None:
    bench = Bench(Yielding(clock=clock), clock, need=2)
    lasting = Lasting(where={"to": {"const": "bob"}})
    with pytest.raises(Conflict, match="one call at a time"):
        await bench.desk.decide(
            await bench.handle(),
            Decision(approve=True, lasting=lasting),
            by=ANN,
            channel="terminal",
        )


# waiting, and asking in a way of one's own


async def test_a_call_waits_for_the_answer_and_then_runs() -> None:
    bench = Bench(Yielding(), wait=30)
    call = asyncio.ensure_future(bench.pay())
    while not (requests := await bench.desk.waiting()):
        await asyncio.sleep(0)
    await bench.desk.decide(requests[0].handle, YES, by=ANN, channel="terminal")
    assert (await asyncio.wait_for(call, 20)).success


async def test_a_call_waits_no_longer_than_it_may() -> None:
    for bench, limit in (
        (Bench(Yielding(), wait=0.05), None),
        (Bench(Yielding(), wait=60), 0.05),
    ):
        result = await asyncio.wait_for(bench.pay(timeout=limit), 20)
        assert code(result) == "APPROVAL_REQUIRED"


async def test_a_caller_who_goes_while_it_waits_leaves_the_request(bench: Bench) -> None:
    waiting = Bench(Yielding(), wait=60)
    call = asyncio.ensure_future(waiting.pay())
    while not await waiting.desk.waiting():
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    (request,) = await waiting.desk.waiting()
    await waiting.desk.decide(request.handle, YES, by=BOSS, channel="api")
    assert (await waiting.pay(grant=request.handle)).success


@pytest.mark.req("FM-13")
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (True, "ok"),
        (False, "APPROVAL_DENIED"),
        (None, "APPROVAL_REQUIRED"),
        ("yes", "APPROVAL_DENIED"),
        (Decision(approve=True), "ok"),
        (Decision(approve=False, reason="no"), "APPROVAL_DENIED"),
        (Decision(approve=True, arguments={"to": "carl"}), "ok"),
    ],
)
async def test_a_callback_is_asked(said: Any, expected: str) -> None:
    asked: list[Request] = []

    async def ask(request: Request) -> Any:
        asked.append(request)
        return said

    bench = Bench(Yielding(), ask=ask)
    assert code(await bench.pay()) == expected
    assert [request.exact() for request in asked] == [{"to": "bob", "amount": 10}]


@pytest.mark.parametrize("fault", [OSError("no phone"), TimeoutError()])
async def test_a_callback_that_breaks_is_no_yes(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(request: Request) -> bool:
        raise fault

    caplog.set_level(logging.CRITICAL)
    bench = Bench(Yielding(), ask=ask)
    handle = await bench.handle()
    await bench.desk.decide(handle, YES, by=BOSS, channel="api")
    assert (await bench.pay(grant=handle)).success


async def test_a_callback_that_comes_too_late_changes_nothing() -> None:
    async def ask(request: Request) -> bool:
        no = Decision(approve=False)
        await bench.desk.decide(request.handle, no, by=BOSS, channel="api")
        return True

    bench = Bench(Yielding(), ask=ask)
    assert code(await bench.pay()) == "APPROVAL_DENIED"


async def test_a_person_is_asked_once_while_equal_calls_wait() -> None:
    asked, answer = 0, asyncio.Event()

    async def ask(request: Request) -> bool:
        nonlocal asked
        asked += 1
        await answer.wait()
        return False

    bench = Bench(Yielding(), ask=ask, wait=30)
    calls = [asyncio.ensure_future(bench.pay()) for _ in range(5)]
    while not asked:
        await asyncio.sleep(0)
    answer.set()
    results = await asyncio.wait_for(asyncio.gather(*calls), 20)
    assert {code(result) for result in results} == {"APPROVAL_DENIED"}
    assert asked == 1


async def test_a_callback_is_left_at_the_callers_deadline() -> None:
    async def ask(request: Request) -> bool:
        await asyncio.get_running_loop().create_future()
        return True

    bench = Bench(Yielding(), ask=ask)
    result = await asyncio.wait_for(bench.pay(timeout=0.05), 20)
    assert code(result) == "APPROVAL_REQUIRED"


@pytest.mark.parametrize(
    "table",
    [
        {"mode": "sometimes"},
        {"wait": -1},
        {"expires": 0},
        {"need": 0},
        {"needs": {"pay": 99}},
        {"needs": {"no such pattern!": 2}},
        {"secret": "x"},
    ],
)
def test_settings_that_make_no_sense_are_refused(table: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Approval.from_config(table, surroundings(tmp_path))


def test_the_table_of_the_config_is_understood(tmp_path: Path) -> None:
    table = {"mode": "always", "wait": 1, "needs": {"tag:money": 2}, "prompt": True}
    assert Approval.from_config(table, surroundings(tmp_path)).bind(look.spec, None) is not None


async def test_a_lasting_yes_that_is_revoked_while_it_is_used_is_not_used() -> None:
    store = Yielding()
    bench = Bench(store)
    lasting = Lasting(where={"to": {"const": "bob"}}, uses=1)
    yes = Decision(approve=True, lasting=lasting)
    await bench.desk.decide(await bench.handle("x"), yes, by=ANN, channel="terminal")
    (standing,) = await bench.desk.standing()
    ((key, record),) = await store.scan("approvals.standing")
    await bench.desk.revoke(standing.handle)
    assert not await bench.desk._lasting._take(key, standing, record)


async def test_somebody_with_a_no_for_a_request_that_is_gone_hears_so(
    bench: Bench, clock: Clock
) -> None:
    handle = await bench.handle()
    clock.advance(9 * 86400)
    assert code(await bench.pay(grant=handle)) == "APPROVAL_DENIED"


# restarts


@pytest.mark.req("FM-13")
async def test_an_approval_is_asked_for_given_and_used_in_three_lives(tmp_path: Path) -> None:
    async def live(work: Callable[[Bench], Awaitable[Any]]) -> Any:
        store = SqliteStore(tmp_path / "store.db")
        await store.open()
        try:
            return await work(Bench(store))
        finally:
            await store.close()

    handle = await live(lambda bench: bench.handle())
    await live(lambda bench: bench.desk.decide(handle, YES, by=BOSS, channel="api"))
    assert code(await live(lambda bench: bench.pay(grant=handle))) == "ok"
    assert code(await live(lambda bench: bench.pay(grant=handle))) == "APPROVAL_DENIED"


async def test_two_processes_that_race_for_one_approval_run_it_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.open()
    handle = await Bench(store).approved()
    program = [sys.executable, "-m", "tests.extensions.approval_child", str(path), handle]
    children = [
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        for child in children:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
        said = []
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            out, _ = await asyncio.to_thread(child.communicate, timeout=60)
            said.append(out.strip())
    finally:
        for child in children:
            child.kill()
            child.communicate()
        await store.close()
    assert sorted(said) == ["APPROVAL_DENIED", "APPROVAL_DENIED", "ok"]


@pytest.mark.req("NA-12")
async def test_the_result_tells_who_let_the_call_run(bench: Bench) -> None:
    handle = await bench.approved()
    result = await bench.pay(grant=handle)
    assert result.metadata.approved == Approved(handle, ("zoe (api)",))

    await bench.desk.decide(
        await bench.handle("eve"), Decision(approve=False), by=BOSS, channel="console"
    )
    refused = (await bench.pay("eve")).error
    assert refused is not None
    assert (refused.details or {})["by"] == ["zoe (console)"]

    lasting = Decision(approve=True, lasting=Lasting(where={"to": {"const": "cy"}}))
    await bench.desk.decide(await bench.handle("cy"), lasting, by=BOSS, channel="api")
    await bench.pay("cy")
    covered = await bench.pay("cy")
    (standing,) = await bench.desk.standing()
    assert covered.metadata.approved == Approved(standing.handle, ("zoe",))


async def test_who_approved_an_edited_call_is_told_too(bench: Bench) -> None:
    handle = await bench.handle()
    yes = Decision(approve=True, arguments={"to": "bob", "amount": 1})
    await bench.desk.decide(handle, yes, by=BOSS, channel="console")
    result = await bench.pay(grant=handle)
    assert result.output == "paid 1 to bob"
    assert result.metadata.approved == Approved(handle, ("zoe (console)",))


async def test_those_that_wait_are_counted_whoever_asked_and_answered(clock: Clock) -> None:
    store, metrics = MemoryStore(clock=clock), Metrics()
    here, there = Bench(store, clock), Bench(store, clock)
    metrics.watch(here.ring)
    handles = [await there.handle(to) for to in ("a", "b", "c")]
    assert "toolpost_approvals_waiting 3" in (await metrics.scrape()).splitlines()
    await there.desk.decide(handles[0], YES, by=BOSS, channel="api")
    await there.desk.decide(handles[1], Decision(approve=False), by=BOSS, channel="api")
    assert "toolpost_approvals_waiting 1" in (await metrics.scrape()).splitlines()
    clock.advance(3601)
    assert "toolpost_approvals_waiting 0" in (await metrics.scrape()).splitlines()


async def test_a_yes_that_lasts_is_for_all_that_wait_for_it() -> None:
    lasting = Decision(approve=True, lasting=Lasting(session=True))
    asked: asyncio.Queue[Request] = asyncio.Queue()

    async def ask(request: Request) -> None:
        await asked.put(request)

    bench = Bench(Yielding(), ask=ask, wait=20.0)
    calls = [asyncio.create_task(bench.pay(session_id="s")) for _ in range(3)]
    request = await asked.get()
    await bench.desk.decide(request.handle, lasting, by=BOSS, channel="api")
    assert [code(await call) for call in calls] == ["ok"] * 3
    assert len(ran) == 3


async def test_what_a_call_waited_for_a_person_is_told_and_is_not_the_tools_time() -> None:
    async def ask(request: Request) -> bool:
        await asyncio.sleep(0.3)
        return True

    metrics = Metrics(latency={"python": Expected(0.25, 0.3)})
    guard = Approval(MemoryStore(), ask=ask)
    async with Executor(Registry([pay]), observers=[metrics], guards=[guard]) as executor:
        result = await executor.execute("pay", {"to": "bob"})
    assert result.success
    assert 290 <= result.metadata.waited_ms <= result.metadata.duration_ms
    assert 'toolpost_latency_breaches_total{tool="pay",limit="target"} 0' in metrics.render()


async def test_a_process_killed_while_it_asks_loses_no_request_and_uses_none_twice(
    tmp_path: Path,
) -> None:
    """The child asks, is killed as soon as it has said so, and the request is there and good."""
    path = tmp_path / "store.db"
    program = [sys.executable, "-m", "tests.extensions.approval_child", str(path)]
    for number in range(3):
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            handle = child.stdout.readline().strip()
            os.kill(child.pid, signal.SIGKILL)
        store = SqliteStore(path)
        await store.open()
        bench = Bench(store)
        await bench.desk.decide(handle, YES, by=BOSS, channel="api")
        assert (await bench.pay(grant=handle)).success
        assert code(await bench.pay(grant=handle)) == "APPROVAL_DENIED"
        await store.close()
        assert len(ran) == number + 1


@pytest.mark.verify
async def test_whenever_a_process_is_killed_no_approval_is_lost_or_used_twice(
    tmp_path: Path,
) -> None:
    """Two hundred processes, each killed after so many steps of its program, wherever that is."""
    program = [sys.executable, "-m", "tests.extensions.approval_child"]
    await asyncio.to_thread(
        subprocess.run, [*program, str(tmp_path), "killed", "200"], check=True, timeout=240
    )
    said = dict(_said(tmp_path / "said"))  # the last word on each
    done = (tmp_path / "done").read_text(encoding="utf-8").split()
    assert len(done) == len(set(done)), "no yes was used twice"
    assert len(done) > 20, "they had the time to do something"
    assert (tmp_path / "killed").read_text(encoding="utf-8").split() == ["9"] * 200
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    bench = Bench(store)
    for handle, (word, to) in said.items():
        status = (await bench.desk.find(handle)).status
        possible = {"asked": ("waiting", "approved", "used"), "approved": ("approved", "used")}
        assert status in possible.get(word, ("used",)), "what was said is so, or more"
        assert status == "used" or to not in done
        result = code(await bench.pay(to, grant=handle))
        assert result == {"waiting": "APPROVAL_REQUIRED", "approved": "ok"}.get(
            status, "APPROVAL_DENIED"
        )
        assert code(await bench.pay(to, grant=handle)) != "ok"
    await store.close()


def _said(file: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        word, handle, to = line.split()
        yield handle, (word, to)


async def test_a_desk_of_another_process_sees_the_same_requests(tmp_path: Path) -> None:
    first, second = SqliteStore(tmp_path / "store.db"), SqliteStore(tmp_path / "store.db")
    await first.open()
    await second.open()
    handle = await Bench(first).handle()
    desk = Approvals(second, clock=Bench(second).desk._clock)
    assert [request.handle for request in await desk.waiting()] == [handle]
    assert (await desk.like(handle[:9])).handle == handle
    await first.close()
    await second.close()
