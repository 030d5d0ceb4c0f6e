"""For agents: every type of tool is called in the same way, and answers in the same form."""

import asyncio
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from toolpost.bridges.unified import (
    ApprovalExtension,
    ApprovalMode,
    ExtensionManager,
    FileLoader,
    ToolContext,
    ToolExecutor,
    ToolSpec,
    ToolSpecRegistry,
    ToolType,
    UnifiedToolExecutor,
)

HERE = Path(__file__).parent
TOWN = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}


class Clocks(BaseHTTPRequestHandler):
    """What the HTTP tool asks."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"hour": 12}')

    def log_message(self, *_: object) -> None:
        """It says nothing."""


class BellExecutor(ToolExecutor):
    """A type of tool of our own, in one class."""

    tool_type = "bell"

    async def execute(self, spec: ToolSpec, args: dict[str, Any], context: ToolContext) -> str:
        return spec.implementation_config["sound"] * args["times"]


def specs(clocks: str) -> list[ToolSpec]:
    return [
        ToolSpec(
            name="forecast",
            description="Tell tomorrow's weather of a town.",
            tool_type=ToolType.MCP,
            input_schema=TOWN,
            implementation_config={"server": "weather", "tool": "forecast"},
            options={"timeout": 60},
        ),
        ToolSpec(
            name="hour",
            description="Tell what hour it is in a town.",
            tool_type=ToolType.HTTP,
            input_schema=TOWN,
            implementation_config={"url": f"http://{clocks}/hour", "query": {"town": "{town}"}},
            options={"effects": "read", "egress": [clocks]},
        ),
        ToolSpec(
            name="ring",
            description="Ring a bell, so many times.",
            tool_type="bell",
            input_schema={
                "type": "object",
                "properties": {"times": {"type": "integer", "minimum": 1, "maximum": 3}},
                "required": ["times"],
            },
            implementation_config={"sound": "ding "},
        ),
    ]


async def yes(_: object) -> bool:
    """Here a person would be asked."""
    return True


async def main(folder: str, clocks: str) -> None:
    note = Path(folder, "note.txt")
    note.write_text("Water the plants.", encoding="utf-8")
    spec_registry = ToolSpecRegistry([FileLoader("tools.yaml", base=HERE)], specs=specs(clocks))
    await spec_registry.load_all()
    executor = UnifiedToolExecutor(
        spec_registry=spec_registry,
        extension_manager=ExtensionManager([ApprovalExtension(ApprovalMode.UNSAFE_ONLY, ask=yes)]),
        executors=[BellExecutor()],
        settings={
            "shell": {"programs": ["rm"], "write": [folder]},
            "mcp": {
                "servers": {
                    "weather": {
                        "command": [sys.executable, str(HERE / "weather_server.py")],
                        "isolation": "process",
                    }
                }
            },
        },
    )
    context = ToolContext(session_id="123")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read_note", {"path": str(note)}),  # Python, in a process of its own
        ("forecast", {"town": "Oslo"}),  # an MCP server
        ("hour", {"town": "Oslo"}),  # HTTP
        ("ring", {"times": 2}),  # a type of our own
        ("delete_note", {"path": str(note)}),  # a command, in a sandbox, once somebody has agreed
        ("delete_note", {"path": "-rf"}),  # … whose arguments are never flags
        ("ring", {"times": 4}),
    ]
    async with executor:
        for tool_name, args in calls:
            result = await executor.execute(tool_name, args, context)
            print(tool_name, result.output if result.success else result.error.code)
            assert result.success == (args.get("path") != "-rf" and args.get("times") != 4), result
    assert not note.exists()


with tempfile.TemporaryDirectory() as folder, HTTPServer(("127.0.0.1", 0), Clocks) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asyncio.run(main(folder, f"127.0.0.1:{server.server_port}"))
    server.shutdown()
