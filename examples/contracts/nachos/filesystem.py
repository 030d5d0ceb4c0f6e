"""The filesystem tool of the Nachos contract: inside its folders everything, outside nothing."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from toolpost.bridges.nachos import FilesystemTool, SecurityTier, ToolConfig, ToolResult


async def main(base: Path) -> None:
    tool = FilesystemTool()
    assert tool.security_tier == SecurityTier.ELEVATED

    async def done(action: str, path: str, **more: Any) -> ToolResult:
        ids = {"sessionId": "s-1", "callId": "c-1"}
        return await tool.execute({**ids, "action": action, "path": path, **more})

    await tool.initialize(ToolConfig({"allowedPaths": ["./workspace"]}, base=base))
    assert (await tool.health_check()).error == "Workspace not accessible"
    written = await done("write", "./workspace/tea.txt", content="green")
    assert written.result == {"written": True}
    assert (await tool.health_check()).healthy
    assert (await done("read", "./workspace/tea.txt")).result == "green"
    assert (await done("list", "./workspace")).result == ["tea.txt"]

    (base / "workspace-of-another").mkdir()
    for path in ("/etc/passwd", "./workspace/../secret", "./workspace-of-another/x"):
        error = (await done("read", path)).error
        assert error is not None
        assert error.code == "VALIDATION_ERROR"
        print(error.message)
    empty = (await done("write", "./workspace/tea.txt")).error
    assert empty is not None
    assert empty.message == "content is required for write action"

    assert (await done("delete", "./workspace/tea.txt")).result == {"deleted": True}
    await tool.close()


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder)))
