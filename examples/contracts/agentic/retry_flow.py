"""The retry flow of the AgenticFramework contract: the agent reads the error and tries otherwise.

Three tries in all, each on record; a tool that is not the agent's is not authorized.
"""

import asyncio
import tempfile
from pathlib import Path

from toolpost.bridges.agentic import (
    Agent,
    ToolAuthorizationError,
    ToolExecutionError,
    calculator_tool,
    file_tools,
)


async def main(folder: str) -> None:
    (Path(folder) / "data.json").write_text("{}", encoding="utf-8")
    read_file, write_file, list_directory = file_tools(folder)
    async with Agent([read_file, list_directory]) as agent:
        first = await agent.execute_tool(read_file, {"path": f"{folder}/data.txt"})
        assert first == ToolExecutionError(f"File not found: {folder}/data.txt")
        listed = await agent.execute_tool(list_directory, {"path": folder})
        assert listed == {"entries": [{"name": "data.json", "type": "file", "size": 2}]}
        second = await agent.execute_tool(read_file, {"path": f"{folder}/data.json"})
        assert second == {"content": "{}", "size": 2}
        assert [(one.tool, one.number, one.code) for one in agent.attempts] == [
            ("read_file", 1, "EXECUTION_ERROR"),
            ("list_directory", 1, None),
            ("read_file", 2, None),
        ]

        for name in ("a", "b", "c"):
            await agent.execute_tool(read_file, {"path": name})
        fourth = await agent.execute_tool(read_file, {"path": f"{folder}/data.json"})
        assert isinstance(fourth, ToolExecutionError)
        assert not fourth.retryable
        print(fourth.message)

        for tool, given in (
            (write_file, {"path": "x", "content": ""}),
            (calculator_tool, {"expression": "2 + 2"}),
        ):
            assert await agent.execute_tool(tool, given) == ToolAuthorizationError()


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
