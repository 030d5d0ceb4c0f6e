"""Our tools as a toolset of pydantic-ai, and its tools here."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    ModelRetry,
    RunContext,
    Tool,
    ToolDenied,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter, ToolReturnPart
from pydantic_ai.models.test import TestModel as AnyModel

from tests.bridges.scripted import Script, pydantic_model, through_pydantic_ai
from toolpost import (
    Caller,
    Executor,
    Image,
    InvalidSpec,
    Output,
    Registry,
    Text,
    create_tool,
    tool,
)
from toolpost.approvals import Decision
from toolpost.bridges.pydantic_ai import Toolset, items
from toolpost.extensions.approval import Approval
from toolpost.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio
BOT = Caller("key-1", user="ann", agent="bot")
ANN = Caller("ann-at-home", user="ann")
YES = Decision(approve=True)


@tool(name="math.add", effects="read")
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(requires_approval=True)
async def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


async def test_a_model_that_tries_every_tool_finds_them_usable() -> None:
    model = AnyModel()
    async with Executor(Registry([add])) as tools:
        done = await Agent(model, toolsets=[Toolset(tools)]).run("Go.")
    assert done.output == '{"math__add":1}'
    (offered,) = model.last_model_request_parameters.function_tools  # type: ignore[union-attr]
    assert (offered.name, offered.description) == ("math__add", "Add two numbers.")
    assert offered.parameters_json_schema == {"type": "object", **add.spec.input_schema}
    assert offered.metadata == {"tool": "math.add", "tier": 1, "effects": "read"}


async def test_arguments_that_do_not_fit_are_a_retry_and_then_a_failed_call() -> None:
    wrong = [("math.add", {"a": "x"})]
    script = Script(wrong, wrong, [("math.add", {"a": 1})], "Done.")
    async with Executor(Registry([add])) as tools:
        done = await through_pydantic_ai(script, Toolset(tools))
    returns = [
        (part.outcome, "VALIDATION_ERROR" in str(part.content))
        for message in done.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    assert returns == [("retried", True), ("failed", True), ("success", False)]
    assert (script.heard[-1], done.output) == ([2], "Done.")


@pytest.mark.parametrize("text", ['{"a":', "[1]", "never"])
async def test_arguments_that_are_no_json_object_do_not_end_the_run_and_run_nothing(
    text: str,
) -> None:
    ran: list[int] = []

    @tool
    async def bare() -> int:
        """It needs no arguments."""
        ran.append(1)
        return 1

    wrong: Any = [("bare", text)]
    script = Script(wrong, wrong, wrong, [("bare", "")], "Done.")
    async with Executor(Registry([bare])) as tools:
        done = await through_pydantic_ai(script, Toolset(tools))
    assert (done.output, script.heard[-1], ran) == ("Done.", [1], [1])
    for (said,) in script.heard[:3]:
        assert "Call it again with a JSON object." in said and "VALIDATION_ERROR" in said


async def test_parts_are_content_and_the_rest_is_metadata_that_can_be_kept() -> None:
    @tool(effects="read")
    async def show() -> Output:
        """Show a picture."""
        return Output(parts=(Text("look"), Image(b"\x89PNG")))

    async with Executor(Registry([show])) as tools:
        done = await through_pydantic_ai(Script([("show", {})], "Done."), Toolset(tools))
    (part,) = [
        part
        for message in done.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    assert part.content == ["look", BinaryContent(b"\x89PNG", media_type="image/png")]
    assert part.metadata["call_id"]
    kept = ModelMessagesTypeAdapter.dump_json(done.all_messages())
    assert ModelMessagesTypeAdapter.validate_json(kept)


async def test_the_caller_of_a_run_is_told_by_its_dependencies() -> None:
    def caller(ctx: RunContext[Any]) -> Caller:
        return Caller("app", user=ctx.deps, tools=("math.*",))

    seen: list[Any] = []

    async def watch(call: Any, call_next: Any) -> Any:
        seen.append((call.caller.user, call.session_id))
        return await call_next(call)

    script = Script([("math.add", {"a": 1})], "Done.")
    async with Executor(Registry([add, pay]), guards=[watch]) as tools:
        toolset = Toolset(tools, caller=caller, session_id=lambda ctx: ctx.conversation_id, id="t")
        await Agent(pydantic_model(script), toolsets=[toolset], deps_type=str).run(
            "Go.", deps="ann", conversation_id="c-1"
        )
    assert (seen, script.offered, toolset.id) == ([("ann", "c-1")], ["math__add"], "t")


async def test_a_yes_that_is_given_in_pydantic_ai_is_laid_down_at_the_desk() -> None:
    guard = Approval(MemoryStore())

    async def approve(handle: str) -> None:
        await guard.approvals.decide(handle, YES, by=ANN, channel="console")

    script = Script([("pay", {"to": "bob"}), ("pay", {"to": "eve"})], "Done.")
    async with Executor(Registry([pay]), guards=[guard]) as tools:
        toolset = Toolset(tools, caller=BOT, approve=approve)
        agent: Any = Agent(
            pydantic_model(script), toolsets=[toolset], output_type=[str, DeferredToolRequests]
        )
        first = await agent.run("Go.")
        asked = first.output
        assert isinstance(asked, DeferredToolRequests)
        bob, eve = asked.approvals
        waiting = {request.handle for request in await guard.approvals.waiting()}
        assert {asked.metadata[one.tool_call_id]["approval"] for one in (bob, eve)} == waiting
        answers = {bob.tool_call_id: True, eve.tool_call_id: ToolDenied("Not to eve.")}
        done = await agent.run(
            message_history=first.all_messages(),
            deferred_tool_results=asked.build_results(approvals=answers),
        )
    assert (done.output, script.heard) == ("Done.", [["paid bob", "Not to eve."]])


async def test_a_yes_that_was_given_at_the_desk_is_enough() -> None:
    guard = Approval(MemoryStore())

    async def approve(handle: str) -> None:
        raise AssertionError("somebody has said so already")

    script = Script([("pay", {"to": "bob"})], "Done.")
    async with Executor(Registry([pay]), guards=[guard]) as tools:
        toolset = Toolset(tools, caller=BOT, approve=approve)
        agent: Any = Agent(
            pydantic_model(script), toolsets=[toolset], output_type=[str, DeferredToolRequests]
        )
        first = await agent.run("Go.")
        (request,) = await guard.approvals.waiting()
        await guard.approvals.decide(request.handle, YES, by=ANN, channel="console")
        await agent.run(
            message_history=first.all_messages(),
            deferred_tool_results=first.output.build_results(approve_all=True),
        )
    assert script.heard == [["paid bob"]]


async def test_a_yes_that_cannot_be_laid_down_is_told_to_the_model_and_the_run_goes_on() -> None:
    async def approve(handle: str) -> None:
        raise OSError("the desk is closed")

    script = Script([("pay", {"to": "bob"})], "Done.")
    async with Executor(Registry([pay]), guards=[Approval(MemoryStore())]) as tools:
        toolset = Toolset(tools, caller=BOT, approve=approve)
        agent: Any = Agent(
            pydantic_model(script), toolsets=[toolset], output_type=[str, DeferredToolRequests]
        )
        first = await agent.run("Go.")
        done = await agent.run(
            message_history=first.all_messages(),
            deferred_tool_results=first.output.build_results(approve_all=True),
        )
    assert done.output == "Done."
    assert "APPROVAL_REQUIRED" in str(script.heard[0][0])


async def test_a_parameter_has_a_name_that_every_vendor_takes_and_its_own_here() -> None:
    schema = {"type": "object", "properties": {"filter[name]": {"type": "string"}}}
    echo = create_tool("echo", "Echo.", lambda arguments: arguments, input_schema=schema)
    script = Script([("echo", {"filter_name_": "bob"})], "Done.")
    async with Executor(Registry([echo])) as tools:
        await through_pydantic_ai(script, Toolset(tools))
    assert script.heard == [[{"filter[name]": "bob"}]]


async def test_what_a_tool_validates_itself_is_told_to_nobody() -> None:
    class Answer(BaseModel):
        people: int

    def population(city: str) -> int:
        """How many people live in a city."""
        return Answer.model_validate({"people": "key sesame-0123"}).people

    async with Executor(Registry(items(population))) as tools:
        failed = await tools.execute("population", {"city": "Bern"})
    assert failed.error is not None
    assert failed.error.code == "INTERNAL_ERROR"
    assert "sesame" not in str(failed)


async def test_a_tool_of_theirs_has_everything_of_the_road() -> None:
    def half(number: int) -> dict[str, float]:
        """Halve a number."""
        if number < 0:
            raise ModelRetry("Give a number that is not negative.")
        return {"half": number / 2}

    def mine(ctx: RunContext[str]) -> str:
        """Tell who asks."""
        return ctx.deps

    made, asked = items(half, Tool(half, name="asked", requires_approval=True), effects="read")
    assert (made.spec.name, made.spec.description) == ("half", "Halve a number.")
    assert (made.spec.requires_approval, asked.spec.requires_approval) == (False, True)
    async with Executor(Registry([made, asked])) as tools:
        done = await tools.execute("half", {"number": 3})
        unfit = await tools.execute("half", {"number": "x"})
        failed = await tools.execute("half", {"number": -1})
    assert done.output == {"half": 1.5}
    assert unfit.error is not None and unfit.error.code == "VALIDATION_ERROR"
    assert failed.error is not None
    assert failed.error.message == "Give a number that is not negative."
    with pytest.raises(InvalidSpec, match="mine wants the context of an agent's run"):
        items(mine)
