"""A tool written for the Forge contract, its schemas, and what its executor makes of calls."""

import asyncio
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolpost.bridges.forge import (
    BaseTool,
    ExecutionContext,
    ToolCategory,
    ToolError,
    ToolExecutor,
    ToolParameter,
    ToolRegistry,
    ToolResult,
)


class CountWords(BaseTool):
    """The base class: four properties and ``_execute``."""

    @property
    def name(self) -> str:
        return "count_words"

    @property
    def description(self) -> str:
        return "Count the words of a text."

    @property
    def category(self) -> ToolCategory:
        return ToolCategory.FILE

    @property
    def parameters(self) -> list[ToolParameter]:
        return [
            ToolParameter(name="text", type="string", description="The text.", max_length=1000),
            ToolParameter(
                name="unit", type="string", description="What to count.",
                required=False, default="words", enum=["words", "letters"],
            ),
            ToolParameter(
                name="least", type="integer", description="Shorter ones do not count.",
                required=False, default=1, minimum=1, maximum=50,
            ),
        ]  # fmt: skip

    async def _execute(self, context: ExecutionContext, **kwargs: Any) -> ToolResult:
        words = [word for word in kwargs["text"].split() if len(word) >= kwargs["least"]]
        if not words:
            return ToolResult.fail("There is nothing to count.", looked_in=context.working_dir)
        counted = words if kwargs["unit"] == "words" else "".join(words)
        return ToolResult.ok(len(counted), unit=kwargs["unit"])


class Linger(BaseTool):
    name, category = "linger", ToolCategory.TASK
    description = "Wait for something that does not come."
    parameters = ()

    async def _execute(self, context: ExecutionContext, **kwargs: Any) -> ToolResult:
        await asyncio.Event().wait()
        return ToolResult.ok()


def schemas(tool: CountWords) -> None:
    openai = tool.to_openai_schema()["function"]
    assert openai["name"] == tool.to_anthropic_schema()["name"] == "count_words"
    assert openai["parameters"] == tool.to_anthropic_schema()["input_schema"]
    assert openai["parameters"]["required"] == ["text"]
    assert openai["parameters"]["properties"]["least"] == {
        "type": "integer",
        "description": "Shorter ones do not count.",
        "default": 1,
        "minimum": 1,
        "maximum": 50,
    }


def registry(tool: CountWords) -> ToolRegistry:
    there = ToolRegistry()
    assert there is ToolRegistry()
    there.register(tool)
    there.register(Linger())
    with suppress(ToolError):
        there.register(CountWords())
        raise AssertionError("two tools of one name")
    assert there.get("count_words") is tool
    assert there.exists("linger")
    assert there.list_by_category(ToolCategory.FILE) == [tool]
    return there


async def main() -> None:
    tool = CountWords()
    schemas(tool)
    context = ExecutionContext(working_dir=str(Path.cwd()), session_id="s-1")

    result = await tool.execute(context, text="to be or not to be")
    assert result == ToolResult.ok(6, unit="words")
    assert tool.validate_params() == (False, "Missing required parameter: text")

    executor = ToolExecutor(registry(tool))
    result = await executor.execute("count_words", context, text="to be", unit="letters")
    assert (result.success, result.output) == (True, 4)
    result = await executor.execute("count_words", context, text="a", least=True)
    assert result.error == "Invalid type for least: expected integer"
    result = await executor.execute("count_words", context, text=" ")
    assert result.error == "There is nothing to count."
    assert result.metadata["looked_in"] == context.working_dir
    hurried = ExecutionContext(working_dir=".", timeout=0.05)
    assert (await executor.execute("linger", hurried)).error == "Tool timed out after 0.05s"
    assert (await executor.execute("nothing", context)).error == "Unknown tool: nothing"
    planned = await executor.execute("linger", ExecutionContext(working_dir=".", dry_run=True))
    assert planned.success
    assert planned.metadata["plan"]["tool"] == "linger"

    for form in ("openai", "anthropic", "langchain"):
        assert len(executor.get_all_schemas(form)) == 2
    assert executor.metrics()["count_words"]["calls"] == 3
    assert [one.code for one in executor.history("linger")] == ["TIMEOUT", None]
    await executor.close()
    assert ToolRegistry().deregister("linger")


logging.basicConfig(stream=sys.stdout, level=logging.INFO)  # "Executing tool: count_words" …
asyncio.run(main())
