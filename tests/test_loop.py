"""The loop: a model's message in, the results of its calls out."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bridges.scripted import Script, at_work, client_of
from tests.gateway.running import serving
from toolpost import (
    Audio,
    Caller,
    Executor,
    Image,
    MissingPart,
    Output,
    Registry,
    Resource,
    Text,
    tool,
)
from toolpost.approvals import Decision
from toolpost.client import Client
from toolpost.extensions.approval import Approval
from toolpost.loop import Called, Loop, Turn
from toolpost.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio
FORMS = ("openai", "openai-responses", "anthropic")
BOT = Caller("key-1", user="ann", agent="bot")
ANN = Caller("ann-at-home", user="ann")
PNG = b"\x89PNG"
DATA = b64encode(PNG).decode()


@tool(effects="read", name="math.add")
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(requires_approval=True)
async def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


@tool(effects="read")
async def show() -> Output:
    """Show everything that there is."""
    pdf = Resource("file:///a.pdf", "application/pdf", data=b"%PDF")
    link = Resource("https://x.example", name="a page")
    return Output(parts=(Text("look"), Image(PNG), Audio(b"RIFF"), pdf, link))


def asking(form: str, *calls: tuple[str, Any]) -> dict[str, Any]:
    """A message of the model, as plain JSON: arguments as they are."""
    if form == "openai":
        made = [
            {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for n, (name, arguments) in enumerate(calls)
        ]
        return {"role": "assistant", "content": None, "tool_calls": made}
    if form == "anthropic":
        blocks = [
            {"type": "tool_use", "id": f"c{n}", "name": name, "input": arguments}
            for n, (name, arguments) in enumerate(calls)
        ]
        return {"role": "assistant", "content": blocks}
    return {
        "output": [
            {"type": "function_call", "call_id": f"c{n}", "name": name, "arguments": arguments}
            for n, (name, arguments) in enumerate(calls)
        ]
    }


def told(form: str, turn: Turn) -> list[Any]:
    if form == "anthropic":
        (message,) = turn.results
        return [block["content"] for block in message["content"]]
    return [one["content" if form == "openai" else "output"] for one in turn.results]


def asked_of(ask: Callable[[Any], Any]) -> tuple[Approval, Executor]:
    guard = Approval(MemoryStore(), ask=ask)
    return guard, Executor(Registry([pay, add]), guards=[guard])


@pytest.mark.parametrize("form", FORMS)
async def test_a_run_with_the_vendors_own_client_ends_when_the_model_has_no_more_calls(
    form: str,
) -> None:
    script = Script([("math.add", {"a": 1}), ("math.add", {"a": 2, "b": 2})], "It is 2 and 4.")
    async with (
        Executor(Registry([add])) as tools,
        at_work(script) as url,
        client_of(form, url) as ask,
    ):
        ended = await Loop(tools, form).run(ask, [{"role": "user", "content": "Go."}])
    assert (ended.why, script.heard, script.offered) == ("done", [[2, 4]], ["math__add"])
    assert "It is 2 and 4." in msgspec.json.encode(ended.messages[-1]).decode()
    if form == "openai":  # what it said goes back without what it does not take
        assert script.sent[1]["messages"][1].keys() == {"role", "content", "tool_calls"}
    assert ended.messages[0] == {"role": "user", "content": "Go."}


@pytest.mark.parametrize("form", FORMS)
async def test_a_call_that_cannot_be_made_is_an_error_that_the_model_reads(form: str) -> None:
    said = asking(form, ("math__add", '{"a": 1'), ("math__add", "[1]"), ("nothing", {}))
    wrong = asking(form, ("math__add", {"a": "x"}))
    async with Executor(Registry([add])) as tools:
        agent = Loop(tools, form)
        turn, other = await agent.answer(said), await agent.answer(wrong)
    broken, listed, unknown = told(form, turn)
    assert broken.startswith("The arguments are not JSON: ")
    assert listed.startswith("The arguments must be a JSON object, not an array.")
    assert "[VALIDATION_ERROR; remedy: fix_args; effects: none]" in listed
    assert unknown.startswith("There is no tool 'nothing'")
    assert "[VALIDATION_ERROR; remedy: fix_args; effects: none]" in told(form, other)[0]
    if form == "anthropic":
        assert all(block["is_error"] for block in turn.results[0]["content"])


@pytest.mark.parametrize("form", FORMS)
async def test_arguments_that_are_left_out_are_none(form: str) -> None:
    @tool(effects="read")
    async def now() -> str:
        """Tell the time."""
        return "noon"

    async with Executor(Registry([now])) as tools:
        turn = await Loop(tools, form).answer(asking(form, ("now", ""), ("now", None)))
    assert told(form, turn) == ["noon", "noon"]


async def test_the_calls_of_a_message_are_made_at_once() -> None:
    both = asyncio.Barrier(2)

    @tool(effects="read")
    async def meet() -> str:
        """Wait for the other."""
        await asyncio.wait_for(both.wait(), 30)
        return "met"

    async with Executor(Registry([meet])) as tools:
        turn = await Loop(tools, "openai").answer(asking("openai", ("meet", ""), ("meet", "")))
    assert turn.results == [
        {"role": "tool", "tool_call_id": "c0", "content": "met"},
        {"role": "tool", "tool_call_id": "c1", "content": "met"},
    ]


async def test_what_waits_for_a_person_can_be_taken_up_later_by_another_process() -> None:
    async def nobody(request: Any) -> None:
        return None

    guard, executor = asked_of(nobody)
    async with executor as tools:
        script = Script([("math.add", {"a": 1}), ("pay", {"to": "bob"})], "Done.")
        async with at_work(script) as url, client_of("anthropic", url) as ask:
            agent = Loop(tools, "anthropic", caller=BOT)
            ended = await agent.run(ask, [{"role": "user", "content": "Go."}])
            assert (ended.why, len(ended.messages)) == ("pending", 1)
            (waiting,) = ended.turn.pending
            assert (waiting.tool, waiting.arguments) == ("pay", {"to": "bob"})

            kept = msgspec.json.encode(ended.turn)
            again = await agent.resume(msgspec.json.decode(kept, type=Turn))
            assert again.pending, "nobody has answered yet"

            handle, yes = waiting.handle, Decision(approve=True)
            assert handle is not None
            await guard.approvals.decide(handle, yes, by=ANN, channel="console")
            turn = await Loop(tools, "anthropic", caller=BOT).resume(
                msgspec.json.decode(kept, type=Turn)
            )
            ended = await agent.run(ask, [*ended.messages, *turn.messages])
    assert (ended.why, script.heard) == ("done", [[2, "paid bob"]])


async def test_a_callback_is_asked_and_the_call_is_made_again_once_it_is_answered() -> None:
    async def nobody(request: Any) -> None:
        return None

    guard, executor = asked_of(nobody)
    seen: list[Called] = []

    async def approve(call: Called) -> bool:
        seen.append(call)
        answer = Decision(approve=call.arguments["to"] == "bob", reason="Not to eve.")
        assert call.handle is not None
        await guard.approvals.decide(call.handle, answer, by=ANN, channel="console")
        return True

    async with executor as tools:
        agent = Loop(tools, "openai", caller=BOT, approve=approve)
        turn = await agent.answer(
            asking("openai", ("pay", '{"to": "bob"}'), ("pay", '{"to": "eve"}'))
        )
    paid, refused = told("openai", turn)
    assert (paid, turn.pending) == ("paid bob", ())
    assert "Not to eve." in refused and "APPROVAL_DENIED" in refused
    assert sorted(call.arguments["to"] for call in seen) == ["bob", "eve"]


@pytest.mark.parametrize("fault", [OSError("the line is dead"), asyncio.CancelledError()])
async def test_a_callback_that_breaks_leaves_the_call_waiting_and_the_others_alone(
    fault: BaseException,
) -> None:
    async def nobody(request: Any) -> None:
        return None

    async def broken(call: Called) -> bool:
        raise fault

    _, executor = asked_of(nobody)
    async with executor as tools:
        agent = Loop(tools, "openai", caller=BOT, approve=broken)
        turn = await agent.answer(
            asking("openai", ("pay", '{"to": "bob"}'), ("math__add", '{"a": 1}'))
        )
    assert ([call.tool for call in turn.pending], told("openai", turn)[1]) == (["pay"], "2")


async def test_a_callback_may_be_a_plain_function(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[str] = []
    guard = Approval(MemoryStore())

    def nobody(call: Called) -> bool:
        asked.append(call.tool)
        return False

    async with Executor(Registry([pay]), guards=[guard]) as tools:
        agent = Loop(tools, "openai", caller=BOT, approve=nobody)
        turn = await agent.answer(asking("openai", ("pay", '{"to": "bob"}')))
    assert ([call.tool for call in turn.pending], asked) == (["pay"], ["pay"])
    assert "nobody could be asked" not in caplog.text


async def test_who_goes_away_while_somebody_is_asked_is_gone() -> None:
    begun = asyncio.Event()

    async def forever(call: Called) -> bool:
        begun.set()
        return await asyncio.get_running_loop().create_future()

    async with Executor(Registry([pay]), guards=[Approval(MemoryStore())]) as tools:
        agent = Loop(tools, "openai", caller=BOT, approve=forever)
        going = asyncio.ensure_future(agent.answer(asking("openai", ("pay", '{"to": "bob"}'))))
        await asyncio.wait_for(begun.wait(), 5)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going


async def test_a_call_in_which_the_message_ended_is_not_made() -> None:
    made: list[int] = []

    @tool
    async def remove(path: str, only_if_empty: bool = False) -> str:
        """Remove a folder."""
        made.append(1)
        return path

    message = asking("anthropic", ("remove", {"path": "a"}), ("remove", {"path": "b"}))
    async with Executor(Registry([remove])) as tools:
        turn = await Loop(tools, "anthropic").answer({**message, "stop_reason": "max_tokens"})
    whole, cut = turn.results[0]["content"]
    assert (whole["content"], cut["tool_use_id"], cut["is_error"]) == ("a", "c1", True)
    assert "ended before this call was whole" in cut["content"]
    assert made == [1]


async def test_a_model_that_never_ends_is_asked_so_many_times_and_no_more() -> None:
    asked = 0

    def ask(messages: list[Any], tools: list[Any]) -> Any:  # as a client that blocks
        nonlocal asked
        asked += 1
        return asking("openai", ("math__add", '{"a": 1}'))

    async with Executor(Registry([add])) as tools:
        ended = await Loop(tools, "openai").run(ask, [], rounds=3)
    assert (asked, ended.why, len(ended.messages)) == (3, "rounds", 6)


async def test_a_turn_that_the_vendor_has_paused_is_gone_on_with() -> None:
    answers = iter(
        [
            {"role": "assistant", "content": [{"type": "text", "text": "…"}],
             "stop_reason": "pause_turn"},
            {"role": "assistant", "content": [], "stop_reason": "end_turn"},
        ]
    )  # fmt: skip
    async with Executor(Registry([add])) as tools:
        ended = await Loop(tools, "anthropic").run(lambda messages, tools: next(answers), [])
    assert (ended.why, ended.messages) == (
        "done",
        [{"role": "assistant", "content": [{"type": "text", "text": "…"}]}],
    )


async def test_images_and_files_are_shown_in_the_blocks_of_each_vendor() -> None:
    url, pdf = f"data:image/png;base64,{DATA}", b64encode(b"%PDF").decode()
    async with Executor(Registry([show])) as tools:
        shown = {form: await Loop(tools, form).answer(asking(form, ("show", {}))) for form in FORMS}
    unheard = "[audio/wav of 4 bytes, which cannot be shown here]"
    assert shown["anthropic"].results[0]["content"][0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        {"type": "text", "text": unheard},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": pdf},
        },
        {"type": "text", "text": "a page: https://x.example"},
    ]
    assert shown["openai-responses"].results[0]["output"] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_text", "text": unheard},
        {
            "type": "input_file",
            "filename": "file.pdf",
            "file_data": f"data:application/pdf;base64,{pdf}",
        },
        {"type": "input_text", "text": "a page: https://x.example"},
    ]
    words, beside = shown["openai"].results
    assert words["content"].splitlines()[::4] == ["look", "a page: https://x.example"]
    assert (beside["role"], [block["type"] for block in beside["content"]]) == (
        "user",
        ["text", "image_url", "text", "input_audio", "text", "file"],
    )
    assert beside["content"][1] == {"type": "image_url", "image_url": {"url": url}}


async def test_the_blocks_are_what_the_vendors_types_allow() -> None:
    from anthropic.types import MessageParam
    from openai.types.chat import ChatCompletionMessageParam
    from openai.types.responses import ResponseInputItemParam
    from pydantic import TypeAdapter

    kinds = {
        "anthropic": MessageParam,
        "openai": ChatCompletionMessageParam,
        "openai-responses": ResponseInputItemParam,
    }
    async with Executor(Registry([show, add])) as tools:
        for form, kind in kinds.items():
            turn = await Loop(tools, form).answer(asking(form, ("show", {}), ("math__add", "{}")))
            for message in turn.results:
                TypeAdapter(kind).validate_python(message)


async def test_tools_that_come_and_go_are_offered_as_they_are_now() -> None:
    async with Executor(Registry([add])) as tools:
        agent = Loop(tools, "openai")
        before = await agent.tools()
        tools.registry.add(pay)
        after = await agent.tools()
    names = [[one["function"]["name"] for one in listed] for listed in (before, after)]
    assert names == [["math__add"], ["math__add", "pay"]]


async def test_a_strict_model_says_null_for_what_it_leaves_out() -> None:
    async with Executor(Registry([add])) as tools:
        agent = Loop(tools, "openai", strict=True)
        (offered,) = await agent.tools()
        turn = await agent.answer(asking("openai", ("math__add", '{"a": 1, "b": null}')))
    assert (offered["function"]["strict"], told("openai", turn)) == (True, ["2"])


async def test_the_tools_of_a_gateway_are_called_through_its_client(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, add) as gateway,
        Client(gateway.url) as tools,
    ):
        turn = await Loop(tools, "openai").answer(asking("openai", ("math__add", '{"a": 1}')))
        assert told("openai", turn) == ["2"]
        with pytest.raises(TypeError, match="leave caller out"):
            Loop(tools, "openai", caller=BOT)


async def test_a_caller_is_offered_only_the_tools_that_there_are_for_them() -> None:
    some = Caller("k", tools=("math.*",))
    async with Executor(Registry([add, pay])) as tools:
        agent = Loop(tools, "openai", caller=some)
        assert [one["function"]["name"] for one in await agent.tools()] == ["math__add"]
        turn = await agent.answer(asking("openai", ("pay", '{"to": "bob"}')))
    assert "There is no tool 'pay'" in told("openai", turn)[0]


async def test_what_is_no_message_and_no_form_is_said_to_be_none() -> None:
    async with Executor(Registry([add])) as tools:
        for form in FORMS:
            with pytest.raises(TypeError, match=f"no message of {form}"):
                await Loop(tools, form).answer({"hello": 1})
            with pytest.raises(TypeError, match=f"no message of {form}"):
                await Loop(tools, form).answer({"content": ["hello"], "output": ["hello"]})
        with pytest.raises(MissingPart, match="did you mean 'anthropic'"):
            Loop(tools, "antropic")


def test_neither_the_package_nor_the_loop_imports_a_vendors_package() -> None:
    program = (
        "import sys, toolpost, toolpost.loop; toolpost.Executor; "
        "print([m for m in ('openai', 'anthropic', 'langchain_core', 'pydantic_ai', 'agents') "
        "if m in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout == "[]\n"
