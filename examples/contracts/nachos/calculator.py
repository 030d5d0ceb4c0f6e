"""A tool of the Nachos contract, written by hand: its values, its schema, its tests.

The document's calculator and its unit tests; the one that comes with the bridge passes the same.
"""

import asyncio
import re
import time
from typing import Any, ClassVar

from toolpost import Executor, Registry
from toolpost.bridges import nachos
from toolpost.bridges.nachos import (
    HealthStatus,
    ParameterSchema,
    SecurityTier,
    Tool,
    ToolConfig,
    ToolError,
    ToolMetadata,
    ToolParameters,
    ToolResult,
    ValidationResult,
    tools,
)


class AdderTool:
    """Adds what is written with plus signs, and nothing else."""

    tool_id = "adder"
    name = "Adder"
    description = "Add whole numbers"
    security_tier = SecurityTier.SAFE
    parameters: ClassVar[ParameterSchema] = {
        "type": "object",
        "properties": {
            "expression": {
                "type": "string",
                "description": "Whole numbers with + between them",
                "examples": ["2 + 2"],
            }
        },
        "required": ["expression"],
    }

    async def initialize(self, config: ToolConfig) -> None:
        assert config.security_mode == "standard"

    def validate(self, params: ToolParameters) -> ValidationResult:
        if not re.fullmatch(r"[\d+\s]+", params["expression"]):
            return ValidationResult(False, ["expression must contain only numbers and +"])
        return ValidationResult(True)

    async def execute(self, params: ToolParameters) -> ToolResult:
        started = time.monotonic()
        try:
            answer = sum(int(number) for number in params["expression"].split("+"))
        except ValueError:
            error = ToolError("EXECUTION_ERROR", "A number is missing beside a plus sign.")
            return ToolResult(False, error=error)
        duration = (time.monotonic() - started) * 1000
        result = {"expression": params["expression"], "answer": answer}
        return ToolResult(True, result, metadata=ToolMetadata(duration))

    async def health_check(self) -> HealthStatus:
        return HealthStatus(True)


async def tested(tool: Tool) -> None:
    """What the document tests of its calculator."""
    ids: dict[str, Any] = {"sessionId": "test", "callId": "test"}
    assert tool.validate({**ids, "expression": "2 + 2"}).valid is True
    assert tool.validate({**ids, "expression": "evil()"}).valid is False
    result = await tool.execute({**ids, "expression": "20 + 30"})
    assert result.success is True
    assert result.result["answer"] == 50
    print(tool.name, result.to_dict()["result"])


async def main() -> None:
    await tested(AdderTool())
    await tested(nachos.CalculatorTool())
    assert [tier.name for tier in SecurityTier] == [
        "SAFE",
        "STANDARD",
        "ELEVATED",
        "RESTRICTED",
        "DANGEROUS",
    ]
    # The same tools on the road: arguments checked, time limited, errors as data.
    items = tools(AdderTool(), nachos.CalculatorTool(), config=ToolConfig())
    async with Executor(Registry(items)) as executor:
        added = await executor.execute("adder", {"expression": "1 + 2 + 3"}, session_id="s-1")
        assert added.output["answer"] == 6
        worked_out = await executor.execute("calculator", {"expression": "10 * (5 + 3)"})
        assert worked_out.output == {"expression": "10 * (5 + 3)", "answer": 80}
        refused = await executor.execute("calculator", {"expression": "__import__('os')"})
        assert refused.error is not None
        assert refused.error.code == "VALIDATION_ERROR"
        print(refused.error.message)


asyncio.run(main())
