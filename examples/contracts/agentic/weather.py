"""A custom tool of the AgenticFramework contract: made, validated, run, and its four errors."""

import asyncio
import logging

from toolpost.bridges.agentic import (
    Agent,
    ToolConfig,
    ToolError,
    ToolExecutionError,
    ToolInput,
    ToolOutput,
    ToolTimeoutError,
    ToolValidationError,
    calculator_tool,
    create_tool,
    execute_tool,
    validate_tool_input,
    validate_tool_output,
)


async def fetch_weather(city: str) -> float:
    return {"Oslo": 4.5, "Rome": 19.0}[city]


async def get_weather(given: ToolInput) -> ToolOutput | ToolError:
    city = given.get("city")
    if not city:
        return ToolValidationError("Missing city")
    if city == "Atlantis":
        return ToolExecutionError("No station in Atlantis. Name a city above the water.")
    return ToolOutput(temperature=await fetch_weather(city), conditions="sunny")


weather_tool = create_tool(
    ToolConfig(
        name="get_weather",
        description="Get current weather for a city",
        input_schema={
            "type": "object",
            "properties": {"city": {"type": "string", "description": "City name"}},
            "required": ["city"],
        },
        output_schema={
            "type": "object",
            "properties": {
                "temperature": {"type": "number"},
                "conditions": {"type": "string"},
            },
        },
        execute=get_weather,
        timeout=5_000_000,  # microseconds
        retryable=True,
    )
)


async def main() -> None:
    assert validate_tool_input(weather_tool, {"city": "Oslo"}) is None
    assert validate_tool_input(weather_tool, {}) is not None
    assert validate_tool_output(weather_tool, {"temperature": "warm"}) is not None

    output = await execute_tool(weather_tool, {"city": "Oslo"})
    assert output == {"temperature": 4.5, "conditions": "sunny"}
    print(output)

    async with Agent([weather_tool, calculator_tool]) as agent:
        error = await agent.execute_tool(weather_tool, {"city": ""})
        assert error == ToolValidationError("Missing city")
        error = await agent.execute_tool(weather_tool, {"city": "Atlantis"})
        assert isinstance(error, ToolExecutionError)
        assert error.retryable
        print(error.message)
        degrees = await agent.execute_tool(calculator_tool, {"expression": "4.5 * 9 / 5 + 32"})
        assert degrees == {"result": 40.1}

    async def endless(given: ToolInput) -> ToolOutput:
        await asyncio.Event().wait()
        return {}

    anything = {"type": "object"}
    slow = create_tool(
        ToolConfig("slow", "Never ends.", anything, anything, endless, timeout=20_000)
    )
    assert await execute_tool(slow, {}) == ToolTimeoutError()


logging.basicConfig(level=logging.CRITICAL)  # what fails here is meant to
asyncio.run(main())
