"""Our tools as those of an agent of the OpenAI Agents SDK."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner

from tests.bridges.scripted import Script, agents_model, through_openai_agents
from toolpost import Caller, Executor, Image, Output, Registry, Text, tool
from toolpost.approvals import Decision
from toolpost.bridges.openai_agents import tools
from toolpost.extensions.approval import Approval
from toolpost.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio
BOT = Caller("key-1", user="ann", agent="bot")
ANN = Caller("ann-at-home", user="ann")
YES = Decision(approve=True)
PNG = b"\x89PNG"
QUIET = RunConfig(tracing_disabled=True)


@tool(name="math.add", effects="read")
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(requires_approval=True)
async def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


async def test_what_goes_wrong_is_text_and_the_run_goes_on() -> None:
    script = Script([("math.add", '{"a"'), ("math.add", {"a": "x"})], [("math.add", "")], "Done.")
    async with Executor(Registry([add])) as executor:
        done = await through_openai_agents(script, tools=await tools(executor))
    broken, unfit = script.heard[0]
    assert broken.startswith("The arguments are not JSON")
    assert "[VALIDATION_ERROR; remedy: fix_args; effects: none]" in unfit
    assert (done.final_output, script.offered) == ("Done.", ["math__add"])


async def test_a_strict_tool_takes_null_for_what_is_left_out() -> None:
    script = Script([("math.add", {"a": 1, "b": None})], "Done.")
    async with Executor(Registry([add])) as executor:
        (made,) = await tools(executor, strict=True)
        await through_openai_agents(script, tools=[made])
    assert made.strict_json_schema and made.params_json_schema["required"] == ["a", "b"]
    assert script.heard == [[2]]


async def test_a_picture_is_shown() -> None:
    @tool(effects="read")
    async def show() -> Output:
        """Show a picture."""
        return Output(parts=(Text("look"), Image(PNG)))

    script = Script([("show", {})], "Done.")
    async with Executor(Registry([show])) as executor:
        await through_openai_agents(script, tools=await tools(executor))
    url = f"data:image/png;base64,{b64encode(PNG).decode()}"
    text, picture = script.heard[0][0]
    assert (text["text"], picture["image_url"]) == ("look", url)


async def test_the_caller_of_a_run_is_told_by_its_context() -> None:
    seen: list[Any] = []

    async def watch(call: Any, call_next: Any) -> Any:
        seen.append((call.caller.user, call.session_id))
        return await call_next(call)

    script = Script([("math.add", {"a": 1})], "Done.")
    async with Executor(Registry([add]), guards=[watch]) as executor:
        made = await tools(
            executor,
            caller=lambda ctx: Caller("app", user=ctx.context["user"]),
            session_id=lambda ctx: ctx.context["session"],
        )
        agent = Agent(name="a", model=agents_model(script), tools=list(made))
        about = {"user": "ann", "session": "s-1"}
        await Runner.run(agent, "Go.", context=about, run_config=QUIET)
    assert seen == [("ann", "s-1")]


async def test_a_yes_that_is_given_to_the_state_of_a_run_is_laid_down_at_the_desk() -> None:
    guard = Approval(MemoryStore())

    async def approve(handle: str) -> None:
        await guard.approvals.decide(handle, YES, by=ANN, channel="console")

    script = Script(
        [("pay", {"to": "bob"}), ("pay", {"to": "eve"}), ("math.add", {"a": 1})], "Done."
    )
    async with Executor(Registry([pay, add]), guards=[guard]) as executor:
        made = await tools(executor, caller=BOT, approve=approve)
        agent = Agent(name="a", model=agents_model(script), tools=list(made))
        first = await Runner.run(agent, "Go.", run_config=QUIET)
        bob, eve = first.interruptions
        assert await guard.approvals.waiting() == [], "nothing has been called yet"
        state = first.to_state()
        state.approve(bob)
        state.reject(eve)
        done = await Runner.run(agent, state, run_config=QUIET)
    assert done.final_output == "Done."
    assert sorted(map(str, script.heard[0])) == [
        "2",
        "Tool execution was not approved.",
        "paid bob",
    ]


async def test_a_call_that_the_run_was_not_asked_about_is_told_to_the_model() -> None:
    guard = Approval(MemoryStore())
    script = Script([("pay", {"to": "bob"})], "Done.")
    async with Executor(Registry([pay]), guards=[guard]) as executor:
        await through_openai_agents(script, tools=await tools(executor, caller=BOT))
    assert "[APPROVAL_REQUIRED; remedy: ask_approval; effects: none]" in script.heard[0][0]


async def test_a_yes_that_cannot_be_laid_down_is_told_to_the_model_and_the_run_goes_on() -> None:
    async def approve(handle: str) -> None:
        raise OSError("the desk is closed")

    script = Script([("pay", {"to": "bob"})], "Done.")
    async with Executor(Registry([pay]), guards=[Approval(MemoryStore())]) as executor:
        made = await tools(executor, caller=BOT, approve=approve)
        agent = Agent(name="a", model=agents_model(script), tools=list(made))
        first = await Runner.run(agent, "Go.", run_config=QUIET)
        state = first.to_state()
        state.approve(first.interruptions[0])
        done = await Runner.run(agent, state, run_config=QUIET)
    assert done.final_output == "Done."
    assert "APPROVAL_REQUIRED" in script.heard[0][0]
