"""The two tests that the contract wants of each tool, as pytest would find them in a project."""

import asyncio
from typing import Any

from toolpost import ToolOptions
from toolpost.bridges.faultmaven import BaseTool, ToolResult, tools
from toolpost.testing import check_tool


class MyTool(BaseTool):
    """Counts the letters of a word."""

    TOOLPOST = ToolOptions(effects="read")

    def __init__(self, settings: Any = None, **kwargs: Any) -> None:
        self.most = (settings or {}).get("most", 100)

    async def execute(self, params: dict[str, Any]) -> ToolResult:
        return ToolResult(success=True, data=min(len(params["param"]), self.most))

    def get_schema(self) -> dict[str, Any]:
        word = {"type": "string", "description": "The word."}
        return {
            "name": "letters",
            "description": "Count the letters of a word.",
            "parameters": {
                "type": "object",
                "properties": {"param": word},
                "required": ["param"],
            },
        }


async def test_tool_success() -> None:
    tool = MyTool()
    result = await tool.execute({"param": "value"})
    assert result.success
    assert result.data == 5


async def test_tool_integration() -> None:
    real_settings = {"most": 3}
    tool = MyTool(settings=real_settings)
    result = await tool.execute({"param": "value"})
    assert result.success
    assert result.data == 3


async def test_the_rest_that_the_contract_asks_for() -> None:
    """Errors, validation, the schema, time limits, many at once: one call tries them all."""
    (item,) = tools(MyTool())
    report = await check_tool(item, arguments={"param": "value"})
    report.raise_if_failed()


if __name__ == "__main__":
    asyncio.run(test_tool_success())
    asyncio.run(test_tool_integration())
    asyncio.run(test_the_rest_that_the_contract_asks_for())
    print("all three passed")
