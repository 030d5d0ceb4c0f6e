"""Forge tools made by the factory, and run under a toolpost registry of one's own."""

import asyncio
from typing import Any

from toolpost import Executor, Registry, ToolOptions
from toolpost.bridges.forge import (
    BaseTool,
    ExecutionContext,
    ToolCategory,
    ToolFactory,
    ToolParameter,
    ToolResult,
    tools,
)


class Database:
    def __init__(self) -> None:
        self.rows = {"tea": 3}


class Price(BaseTool):
    name, category = "price", ToolCategory.OTHER
    description = "Look up a price."
    parameters = (ToolParameter(name="item", type="string", description="The item."),)
    TOOLPOST = ToolOptions(tier=0, effects="read")

    def __init__(self, database: Database, currency: str) -> None:
        self.database, self.currency, self.open = database, currency, True

    async def _execute(self, context: ExecutionContext, **kwargs: Any) -> ToolResult:
        return ToolResult.ok(f"{self.database.rows[kwargs['item']]} {self.currency}")

    async def close(self) -> None:
        self.open = False


class Draft(Price):
    name = "draft"


async def main() -> None:
    factory = ToolFactory({"database": Database(), "clock": object()})
    factory.add("price", Price, config={"currency": "EUR"})
    factory.add("draft", Draft, scope="request", config={"currency": "CHF"})
    price = factory.create("price")
    assert price is factory.create("price")
    assert factory.create("draft") is not factory.create("draft")

    async with factory, Executor(Registry(tools(*factory.tools()))) as executor:
        assert (await executor.execute("price", {"item": "tea"})).output == "3 EUR"
        assert (await executor.execute("draft", {"item": "tea"})).output == "3 CHF"
        assert executor.registry.get("price").tier == 0
    assert not price.open


asyncio.run(main())
