"""Questions that a call asks before it ends: those of tools, and whether a person approves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
import pytest
from mcp import Client

from tests.gateway.mcp import conforming
from tests.gateway.mcp.running import LOCAL, Running, call, envelope, serving
from toolpost import Call, Caller, tool
from toolpost.approvals import Decision
from toolpost.contracts import Question
from toolpost.gateway.mcp.settings import McpSettings

pytestmark = pytest.mark.anyio
Mode = Literal["auto", "legacy"]
FORMS = {"elicitation": {"form": {}}}
ASKING = {"_meta": envelope(FORMS)}
ran: list[str] = []


@tool(tier=2, requires_approval=True)
async def send(to: str) -> str:
    """Send something."""
    ran.append(to)
    return f"sent to {to}"


@tool(timeout=30)
async def visit(call: Call, asks: conforming.Asks) -> str:
    """Have the user go to a page."""
    said = await asks(call, Question(message="Sign in.", url="https://example.org/in"))
    return said.action


@tool(timeout=0.2)
async def hurried(call: Call, asks: conforming.Asks) -> str:
    """Ask, though there is hardly time for it."""
    said = await asks(call, Question(message="And?", schema={"type": "object"}))
    return said.action


GREETER = conforming.test_input_required_result_elicitation
TOOLS = [send, visit, hurried, GREETER, conforming.test_input_required_result_multi_round]
GREET = "test_input_required_result_elicitation"


@asynccontextmanager
async def asked(base: Path, **settings: Any) -> AsyncIterator[Running]:
    ran.clear()
    guards = ["once.lookup", "approval", "once"]
    async with serving(TOOLS, base, settings=McpSettings(**settings), guards=guards) as running:
        yield running


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param


def answering(
    *answers: types.ElicitResult, before: Callable[[str], Any] | None = None
) -> tuple[Any, list[Any]]:
    """What a client does with questions, and the questions that it was asked."""
    seen: list[Any] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        seen.append(params)
        if before is not None:
            await before(params.message)
        return answers[len(seen) - 1]

    return answer, seen


def accepts(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


# --- questions of tools -------------------------------------------------------------------------


async def test_what_a_tool_asks_is_put_to_its_caller(tmp_path: Path, mode: Mode) -> None:
    answer, seen = answering(accepts(name="Ada"), accepts(color="blue"))
    async with (
        asked(tmp_path) as running,
        Client(running.url, mode=mode, elicitation_callback=answer) as client,
    ):
        result = await client.call_tool("test_input_required_result_multi_round", {})
    assert result.content == [types.TextContent(text="Ada likes blue")]
    assert [one.message for one in seen] == ["What is your name?", "Which colour?"]


async def test_a_person_may_take_longer_than_the_tool_may(tmp_path: Path, mode: Mode) -> None:
    async def thinking(_: str) -> None:
        thought: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.4, thought.set_result, None)
        await thought

    answer, _ = answering(accepts(), before=thinking)
    async with (
        asked(tmp_path) as running,
        Client(running.url, mode=mode, elicitation_callback=answer) as client,
    ):
        result = await client.call_tool("hurried", {})
    assert result.content == [types.TextContent(text="accept")]


async def test_a_person_who_never_answers_holds_no_call_for_ever(tmp_path: Path) -> None:
    async def silent(_: str) -> None:
        await asyncio.get_running_loop().create_future()

    answer, _ = answering(before=silent)
    async with (
        asked(tmp_path, patience=0.3) as running,
        Client(running.url, mode="legacy", elicitation_callback=answer) as client,
    ):
        result = await client.call_tool("hurried", {})
    assert result.content == [types.TextContent(text="cancel")]


async def test_a_page_is_shown_to_who_can_show_pages_and_to_nobody_else(tmp_path: Path) -> None:
    async with asked(tmp_path) as running:
        refused = await call(running.url, "visit", **ASKING)
        assert refused["result"]["content"][0]["text"] == "cancel"
        pages = {"_meta": envelope({"elicitation": {"url": {}}})}
        first = (await call(running.url, "visit", **pages))["result"]
        wanted = first["inputRequests"]["question"]
        assert wanted["params"] == {
            "mode": "url", "message": "Sign in.", "url": "https://example.org/in",
        }  # fmt: skip
        said = {"question": {"action": "decline"}}
        last = await call(
            running.url, "visit", inputResponses=said, requestState=first["requestState"], **pages
        )
        assert last["result"]["content"][0]["text"] == "decline"


async def test_an_answer_that_does_not_fit_is_asked_for_again(tmp_path: Path) -> None:
    async with asked(tmp_path) as running:
        first = (await call(running.url, GREET, **ASKING))["result"]
        wrong = {"user_name": {"action": "accept", "content": {"name": 7}}}
        state = first["requestState"]
        second = await call(running.url, GREET, inputResponses=wrong, requestState=state, **ASKING)
        again = second["result"]
        assert again["inputRequests"] == first["inputRequests"]
        right = {"user_name": {"action": "accept", "content": {"name": "Ada"}}}
        state = again["requestState"]
        last = await call(running.url, GREET, inputResponses=right, requestState=state, **ASKING)
        assert last["result"]["content"][0]["text"] == "Hello, Ada!"


async def test_a_state_is_for_one_use_by_one_caller_of_one_call(tmp_path: Path) -> None:
    right = {"inputResponses": {"user_name": {"action": "accept", "content": {"name": "Ada"}}}}
    async with asked(tmp_path) as running:
        state = (await call(running.url, GREET, **ASKING))["result"]["requestState"]
        body, _, signature = state.partition(".")
        forged = [state + "A", state[:-1], f"{body}A.{signature}", signature, "."]
        for one in forged:
            refused = await call(running.url, GREET, requestState=one, **right, **ASKING)
            assert refused["error"]["data"] == {"reason": "invalid_request_state"}, one
        other = await call(running.url, "visit", requestState=state, **right, **ASKING)
        assert other["error"]["code"] == -32602
        more = await call(running.url, GREET, {"x": 1}, requestState=state, **right, **ASKING)
        assert more["error"]["code"] == -32602
        running.caller = Caller(id="mallory")
        stolen = await call(running.url, GREET, requestState=state, **right, **ASKING)
        assert stolen["error"]["code"] == -32602
        running.caller = LOCAL
        used = await call(running.url, GREET, requestState=state, **right, **ASKING)
        assert used["result"]["content"][0]["text"] == "Hello, Ada!"
        replayed = await call(running.url, GREET, requestState=state, **right, **ASKING)
        assert replayed["error"]["code"] == -32602


async def test_a_call_waits_for_its_answer_so_long_and_no_longer(tmp_path: Path) -> None:
    ended = asyncio.Event()

    @tool(timeout=30)
    async def wonder(call: Call, asks: conforming.Asks) -> None:
        """Ask, and wait."""
        try:
            await asks(call, Question(message="Well?"))
        finally:
            ended.set()

    async with asked(tmp_path, questions=1) as running:
        running.runtime.registry.add(wonder)
        assert (await call(running.url, "wonder", **ASKING))["result"]["requestState"]
        full = await call(running.url, "wonder", **ASKING)
        assert full["error"]["code"] == -31010
    async with asked(tmp_path, questions=3, questions_each=1) as running:
        running.runtime.registry.add(wonder)
        assert (await call(running.url, "wonder", **ASKING))["result"]["requestState"]
        full = await call(running.url, "wonder", **ASKING)
        assert (full["error"]["code"], "of yours" in full["error"]["message"]) == (-31010, True)
        running.caller = Caller(id="somebody else")
        assert (await call(running.url, "wonder", **ASKING))["result"]["requestState"]
    ended.clear()
    async with asked(tmp_path, patience=0.1) as running:
        running.runtime.registry.add(wonder)
        first = (await call(running.url, "wonder", **ASKING))["result"]
        await asyncio.wait_for(ended.wait(), 10)
        late = await call(running.url, "wonder", requestState=first["requestState"], **ASKING)
        assert late["error"]["code"] == -32602


# --- approvals ----------------------------------------------------------------------------------


async def _approve(running: Running) -> None:
    desk = running.runtime.extension("approval").approvals
    (request,) = await desk.waiting()
    yes = Decision(approve=True)
    await desk.decide(request.handle, yes, by=Caller("owner", owner=True), channel="terminal")


async def test_a_client_without_dialogs_gets_a_handle_in_the_error(
    tmp_path: Path, mode: Mode
) -> None:
    async with asked(tmp_path) as running, Client(running.url, mode=mode) as client:
        refused = await client.call_tool("send", {"to": "Ada"})
        assert refused.is_error
        told = (refused.meta or {})["toolpost/error"]
        assert (told["code"], told["remedy"]) == ("APPROVAL_REQUIRED", "ask_approval")
        assert isinstance(refused.content[0], types.TextContent)
        assert told["details"]["approval"] in refused.content[0].text
        await _approve(running)
        assert not (await client.call_tool("send", {"to": "Ada"})).is_error
    assert ran == ["Ada"]


async def test_an_approved_call_whose_answer_was_lost_is_repeated_by_its_key(
    tmp_path: Path,
) -> None:
    keyed = {"_meta": envelope(**{"toolpost/key": "order-1"})}
    async with asked(tmp_path) as running:
        refused = await call(running.url, "send", {"to": "Ada"}, **keyed)
        assert refused["result"]["_meta"]["toolpost/error"]["code"] == "APPROVAL_REQUIRED"
        await _approve(running)
        lost, found = [await call(running.url, "send", {"to": "Ada"}, **keyed) for _ in range(2)]
        assert lost["result"]["content"] == found["result"]["content"]
        assert not found["result"].get("isError")
        other = await call(running.url, "send", {"to": "Eve"}, **keyed)
        assert other["result"]["_meta"]["toolpost/error"]["code"] == "CONFLICT"
    assert ran == ["Ada"]


async def test_a_dialog_says_where_to_approve_and_goes_on_when_that_is_done(
    tmp_path: Path, mode: Mode
) -> None:
    async with asked(tmp_path) as running:

        async def approved_elsewhere(message: str) -> None:
            assert "toolpost approvals approve ap-" in message
            assert ran == []
            await _approve(running)

        answer, seen = answering(accepts(), before=approved_elsewhere)
        async with Client(running.url, mode=mode, elicitation_callback=answer) as client:
            result = await client.call_tool("send", {"to": "Ada"})
    assert result.content == [types.TextContent(text="sent to Ada")]
    assert (ran, len(seen)) == (["Ada"], 1)


async def test_who_asks_cannot_approve_in_a_dialog_of_its_own(tmp_path: Path) -> None:
    """The key that asks may not approve itself, whatever it says."""
    async with asked(tmp_path, patience=0.1) as running:
        first = (await call(running.url, "send", {"to": "Eve"}, **ASKING))["result"]
        state = first["requestState"]
        yes = {"approval": {"action": "accept", "content": {"approve": True}}}
        for said in (yes, {}):
            again = await call(
                running.url,
                "send",
                {"to": "Eve"},
                inputResponses=said,
                requestState=state,
                **ASKING,
            )
            assert again["result"]["inputRequests"] == first["inputRequests"]
        no = {"approval": {"action": "cancel"}}
        last = await call(
            running.url, "send", {"to": "Eve"}, inputResponses=no, requestState=state, **ASKING
        )
        assert last["result"]["_meta"]["toolpost/error"]["code"] == "APPROVAL_REQUIRED"
        (request,) = await running.runtime.extension("approval").approvals.waiting()
        assert request.votes == ()
    assert ran == []


async def test_a_no_in_the_dialog_takes_the_call_back(tmp_path: Path, mode: Mode) -> None:
    answer, _ = answering(types.ElicitResult(action="decline"))
    async with (
        asked(tmp_path) as running,
        Client(running.url, mode=mode, elicitation_callback=answer) as client,
    ):
        result = await client.call_tool("send", {"to": "Ada"})
    assert (result.meta or {})["toolpost/error"]["code"] == "APPROVAL_DENIED"
    (said,) = result.content
    assert isinstance(said, types.TextContent)
    assert "no: declined in the client. Do not try it again." in said.text
    assert ran == []


async def test_a_yes_in_the_dialog_counts_where_the_config_trusts_it(
    tmp_path: Path, mode: Mode
) -> None:
    answer, seen = answering(accepts(approve=True), accepts(approve=False))
    async with (
        asked(tmp_path, approve=True) as running,
        Client(running.url, mode=mode, elicitation_callback=answer) as client,
    ):
        result = await client.call_tool("send", {"to": "Ada"})
        assert result.content == [types.TextContent(text="sent to Ada")]
        denied = await client.call_tool("send", {"to": "Bob"})
        assert (denied.meta or {})["toolpost/error"]["code"] == "APPROVAL_DENIED"
    assert ran == ["Ada"]
    assert '{"to":"Ada"}' in seen[0].message


async def test_an_approval_is_used_once_however_often_its_state_comes(tmp_path: Path) -> None:
    async with asked(tmp_path, approve=True) as running:
        first = (await call(running.url, "send", {"to": "Ada"}, **ASKING))["result"]
        again = {
            "inputResponses": {"approval": {"action": "accept", "content": {"approve": True}}},
            "requestState": first["requestState"],
            **ASKING,
        }
        answers = await asyncio.gather(
            *(call(running.url, "send", {"to": "Ada"}, **again) for _ in range(4))
        )
        changed = await call(running.url, "send", {"to": "Eve"}, **again)
    codes = [one["result"]["_meta"].get("toolpost/error", {}).get("code") for one in answers]
    assert sorted(codes, key=str) == ["APPROVAL_DENIED"] * 3 + [None]
    assert changed["error"]["code"] == -32602
    assert ran == ["Ada"]
