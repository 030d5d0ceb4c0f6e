"""LangChain's tools here, and ours there."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, ToolException
from langchain_core.tools import tool as langchain_tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field, field_validator

from toolpost import (
    Audio,
    Caller,
    Executor,
    Image,
    InvalidSpec,
    Output,
    Registry,
    Text,
    ToolFailed,
    ToolNotFound,
    create_tool,
    sync,
    tool,
)
from toolpost.bridges.langchain import blocking_tools, items, tools

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG"
BLOCK = {"type": "image", "base64": b64encode(PNG).decode(), "mime_type": "image/png"}


def called(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": "c1", "name": name, "args": arguments}


# --- ours, there -----------------------------------------------------------------------------


@tool(name="shop.order", tags=["money"])
async def order(config: str, self: int = 1) -> dict[str, Any]:
    """Order something, in a configuration."""
    if self == 0:
        raise ToolFailed("None of it is no order. Ask for one at least.")
    return {"config": config, "self": self}


@tool(effects="read")
async def show() -> Output:
    """Show a picture, and play a sound."""
    return Output(parts=(Text("look"), Image(PNG), Audio(b"RIFF")))


async def test_a_tool_of_ours_is_offered_with_its_schema_and_answers_with_the_whole_result() -> (
    None
):
    async with Executor(Registry([order])) as executor:
        (there,) = await tools(executor)
        said = await there.ainvoke(called("shop__order", config="a", self=2))
    offered = convert_to_openai_tool(there)["function"]
    assert (offered["name"], offered["description"]) == ("shop__order", order.spec.description)
    assert offered["parameters"]["properties"].keys() == {"config", "self"}
    assert (there.tags, there.metadata) == (
        ["money"],
        {"tool": "shop.order", "tier": 1, "effects": "once"},
    )
    assert isinstance(said, ToolMessage)
    assert (said.content, said.status) == ('{"config":"a","self":2}', "success")
    assert said.artifact.output == {"config": "a", "self": 2}


async def test_what_goes_wrong_is_a_message_that_the_model_can_act_on() -> None:
    async with Executor(Registry([order])) as executor:
        (there,) = await tools(executor)
        failed = await there.ainvoke(called("shop__order", config="a", self=0))
        unfit = await there.ainvoke(called("shop__order", config=1))
        executor.registry.remove("shop.order")
        gone = await there.ainvoke(called("shop__order", config="a"))
    assert failed.status == unfit.status == gone.status == "error"
    assert failed.content == (
        "None of it is no order. Ask for one at least.\n"
        "[EXECUTION_ERROR; remedy: fix_args; effects: unknown]"
    )
    assert "VALIDATION_ERROR" in unfit.content
    assert "NOT_FOUND" in gone.content


async def test_who_asks_for_it_has_errors_raised() -> None:
    async with Executor(Registry([order])) as executor:
        (there,) = await tools(executor, raises=True)
        executor.registry.remove("shop.order")
        with pytest.raises(ToolNotFound):
            await there.ainvoke(called("shop__order", config="a"))


async def test_pictures_and_sounds_are_blocks_of_the_message() -> None:
    async with Executor(Registry([show])) as executor:
        (there,) = await tools(executor)
        said = await there.ainvoke(called("show"))
    sound = {"type": "file", "base64": b64encode(b"RIFF").decode(), "mime_type": "audio/wav"}
    assert said.content == [{"type": "text", "text": "look"}, BLOCK, sound]


async def test_the_caller_of_a_run_is_told_by_its_config() -> None:
    seen: list[Any] = []

    async def watch(call: Any, call_next: Any) -> Any:
        seen.append((call.caller.user, call.session_id))
        return await call_next(call)

    def caller(config: RunnableConfig) -> Caller:
        return Caller("app", user=config["configurable"]["user"])

    async with Executor(Registry([order]), guards=[watch]) as executor:
        (there,) = await tools(
            executor, caller=caller, session_id=lambda config: config["configurable"]["thread_id"]
        )
        await there.ainvoke({"config": "a"}, {"configurable": {"user": "ann", "thread_id": "t"}})
    assert seen == [("ann", "t")]


async def test_a_parameter_has_a_name_that_every_vendor_takes_and_its_own_here() -> None:
    schema = {"type": "object", "properties": {"filter[name]": {"type": "string"}}}
    echo = create_tool("echo", "Echo.", lambda arguments: arguments, input_schema=schema)
    async with Executor(Registry([echo])) as executor:
        (there,) = await tools(executor)
        assert list(there.args) == ["filter_name_"]
        message = await there.ainvoke(called("echo", filter_name_="bob"))
    assert message.content == '{"filter[name]":"bob"}'


async def test_an_agent_that_blocks_can_use_them_from_another_thread() -> None:
    async with Executor(Registry([order])) as executor:
        (there,) = await tools(executor)
        asked = called("shop__order", config="a")
        said = await asyncio.to_thread(there.invoke, asked)
        with pytest.raises(RuntimeError, match="use ainvoke"):
            there.invoke(asked)
    assert said.content == '{"config":"a","self":1}'


def test_a_program_without_an_event_loop_can_use_them() -> None:
    bot = Caller("bot", tools=("shop.*",))
    with sync.over(lambda: Executor(Registry([order, show]))) as opened:
        (there,) = blocking_tools(opened, caller=bot)
        assert there.invoke(called("shop__order", config="a")).content == '{"config":"a","self":1}'
        assert there.invoke(called("shop__order", config="a", self=0)).status == "error"


# --- theirs, here ----------------------------------------------------------------------------


class Amount(BaseModel):
    amount: int = Field(description="How much", ge=1)
    currency: str = "CHF"

    @field_validator("currency")
    @classmethod
    def known(cls, value: str) -> str:
        if len(value) != 3:
            raise ValueError("a currency has three letters")
        return value


class Convert(BaseTool):
    """A class, which blocks."""

    name: str = "convert money"
    description: str = "Convert an amount."
    args_schema: Any = Amount

    def _run(self, amount: int, currency: str) -> Amount:
        if amount == 13:
            raise ToolException("Thirteen is not converted here. Try twelve.")
        return Amount(amount=amount * 2, currency=currency)


async def test_a_tool_of_theirs_has_everything_of_the_road() -> None:
    (convert,) = items(Convert(), tier=0, effects="read", tags=["money"])
    assert (convert.spec.name, convert.spec.description) == ("convert_money", "Convert an amount.")
    assert convert.spec.input_schema["properties"]["amount"]["minimum"] == 1
    assert (convert.spec.tier, convert.spec.effects, convert.spec.tags) == (0, "read", ("money",))
    async with Executor(Registry([convert])) as executor:
        done = await executor.execute("convert_money", {"amount": 2})
        small = await executor.execute("convert_money", {"amount": 0})
        strange = await executor.execute("convert_money", {"amount": 2, "currency": "Taler"})
        failed = await executor.execute("convert_money", {"amount": 13})
    assert done.output == {"amount": 4, "currency": "CHF"}
    assert small.error is not None and small.error.code == "VALIDATION_ERROR"
    assert strange.error is not None and strange.error.code == "VALIDATION_ERROR"
    assert "currency: Value error, a currency has three letters" in strange.error.message
    assert failed.error is not None
    assert (failed.error.code, failed.error.message) == (
        "EXECUTION_ERROR",
        "Thirteen is not converted here. Try twelve.",
    )


def test_attack_a_tool_of_theirs_that_hangs_keeps_nobody_else_out() -> None:
    release = threading.Event()

    @langchain_tool
    def hang() -> bool:
        """Wait for what does not come."""
        return release.wait(20)

    @langchain_tool
    def quick() -> str:
        """Be there at once."""
        return "here"

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        both = [*items(hang, timeout=0.1), *items(quick, timeout=10)]
        async with Executor(Registry(both)) as executor:
            hung = await asyncio.gather(*(executor.execute("hang") for _ in range(4)))
            assert {one.error.code for one in hung if one.error is not None} == {"TIMEOUT"}
            assert (await executor.execute("quick")).output == "here"
            assert await asyncio.wait_for(asyncio.to_thread(int), 10) == 0
            release.set()

    try:
        asyncio.run(main())
    finally:
        release.set()


async def test_what_a_tool_validates_itself_is_no_fault_of_the_arguments() -> None:
    @langchain_tool
    def price(article: str) -> int:
        """Tell what an article costs."""
        return Amount.model_validate({"amount": "key sesame-0123"}).amount

    async with Executor(Registry(items(price))) as executor:
        failed = await executor.execute("price", {"article": "bed"})
    assert failed.error is not None
    assert failed.error.code == "INTERNAL_ERROR"
    assert "sesame" not in str(failed) and "amount" not in failed.error.message


async def test_content_is_what_the_model_reads_and_the_artifact_is_the_output() -> None:
    @langchain_tool(response_format="content_and_artifact")
    async def draw(what: str) -> tuple[Any, Any]:
        """Draw something."""
        return [{"type": "text", "text": f"a {what}"}, BLOCK], {"strokes": {1, 2}}

    async with Executor(Registry(items(draw))) as executor:
        done = await executor.execute("draw", {"what": "cat"})
    assert done.parts == (Text("a cat"), Image(PNG))
    assert done.output == {"strokes": [1, 2]}


async def test_a_tool_that_handles_its_errors_has_failed_all_the_same() -> None:
    @langchain_tool
    async def fall() -> str:
        """Fall."""
        raise ToolException("I fell.")

    fall.handle_tool_error = lambda exc: f"{exc} Help me up."
    async with Executor(Registry(items(fall))) as executor:
        failed = await executor.execute("fall")
    assert failed.error is not None and failed.error.message == "I fell. Help me up."


async def test_the_number_of_a_call_is_given_and_nothing_else_can_be() -> None:
    @langchain_tool
    async def count(call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Tell the number of the call."""
        return call_id

    @langchain_tool
    async def mine(user: Annotated[str, InjectedToolArg]) -> str:
        """Tell who asks."""
        return user

    async with Executor(Registry(items(count))) as executor:
        told = await executor.execute("count")
    assert told.output == told.metadata.call_id
    with pytest.raises(InvalidSpec, match="mine wants user of the agent that runs it"):
        items(mine)
    with pytest.raises(InvalidSpec, match="is no tool of LangChain"):
        items(print)  # type: ignore[arg-type]


async def test_there_and_back_a_tool_is_the_same() -> None:
    async with Executor(Registry([order])) as executor:
        (back,) = items(*await tools(executor))
        async with Executor(Registry([back])) as other:
            done = await other.execute("shop__order", {"config": "a", "self": 3})
            failed = await other.execute("shop__order", {"config": "a", "self": 0})
    assert back.spec.input_schema == order.spec.input_schema
    assert (failed.error is not None and failed.error.code) == "EXECUTION_ERROR"
    assert done.parts == (Text('{"config":"a","self":3}'),)
