"""A FaultMaven tool by itself, and in a runtime where a person is asked before it runs."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from toolpost import Runtime, ToolOptions
from toolpost.bridges.faultmaven import BaseTool, ToolResult, tools


class Restart(BaseTool):
    REQUIRES_CONFIRMATION = True
    TOOLPOST = ToolOptions(effects="once")

    async def execute(self, params: dict[str, Any]) -> ToolResult:
        return ToolResult(success=True, data={"restarted": params["host"]})

    def get_schema(self) -> dict[str, Any]:
        return {
            "name": "restart",
            "description": "Restart a host.",
            "parameters": {
                "type": "object",
                "properties": {"host": {"type": "string", "description": "Its name."}},
                "required": ["host"],
            },
        }


async def success() -> None:
    result = await Restart().execute({"host": "db-1"})
    assert result.success


async def integration(folder: Path) -> None:
    asked = []

    async def ask(request: Any) -> Any:
        asked.append(request)
        return True

    config = folder / "toolpost.toml"
    config.write_text("watch = false\n", encoding="utf-8")
    async with Runtime.open(config, tools=tools(Restart()), ask=ask) as runtime:
        result = await runtime.execute("restart", {"host": "db-1"})
        assert result.output == {"restarted": "db-1"}, result
    assert len(asked) == 1


asyncio.run(success())
with tempfile.TemporaryDirectory() as folder:
    asyncio.run(integration(Path(folder)))
