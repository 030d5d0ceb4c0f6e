"""The four categories of FaultMaven tools: direct, an API, an MCP server, a command."""

import asyncio
import json
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from mcp import Client
from mcp.server import MCPServer

from toolpost import Executor, Registry, ToolOptions
from toolpost.bridges.faultmaven import BaseTool, ToolResult, tools


def schema(name: str, description: str, *params: str) -> dict[str, Any]:
    properties = {one: {"type": "string", "description": f"The {one}."} for one in params}
    parameters = {"type": "object", "properties": properties, "required": list(params)}
    return {"name": name, "description": description, "parameters": parameters}


class DirectTool(BaseTool):
    """Plain Python, in this process."""

    TOOLPOST = ToolOptions(timeout=5, effects="read")

    async def execute(self, params: dict[str, Any]) -> ToolResult:
        lines = params["log"].splitlines()
        return ToolResult(success=True, data={"errors": sum("ERROR" in one for one in lines)})

    def get_schema(self) -> dict[str, Any]:
        return schema("count_errors", "Count the errors of a log.", "log")


class APITool(BaseTool):
    """A service of others. It blocks, and is not async: it gets a thread."""

    TOOLPOST = ToolOptions(timeout=10, effects="read", labels={"external": "true"})

    def __init__(self, api_url: str) -> None:
        self.api_url = api_url

    def execute(self, params: dict[str, Any]) -> ToolResult:  # type: ignore[override]
        request = urllib.request.Request(self.api_url, json.dumps(params).encode())
        with urllib.request.urlopen(request, timeout=5) as response:
            return ToolResult(success=True, data=json.load(response))

    def get_schema(self) -> dict[str, Any]:
        return schema("ask_service", "Ask the service.", "query")


class MCPTool(BaseTool):
    """Whatever an MCP server offers. (toolpost's own MCP tools need no such class.)"""

    TOOLPOST = ToolOptions(timeout=10, tier=2, effects="once", labels={"external": "true"})

    def __init__(self, server: MCPServer) -> None:
        self.server = server

    async def execute(self, params: dict[str, Any]) -> ToolResult:
        async with Client(self.server) as session:
            result = await session.call_tool(params["tool_name"], {"host": params["host"]})
        text = result.content[0].text
        if result.is_error:
            return ToolResult(success=False, error=text)
        return ToolResult(success=True, data=text)

    def get_schema(self) -> dict[str, Any]:
        return schema("mcp_tool", "Call a tool of the MCP server.", "tool_name", "host")


class SystemTool(BaseTool):
    """A command from a list, without a shell."""

    TOOLPOST = ToolOptions(timeout=30, effects="read")
    ALLOWED_COMMANDS = (("version", (sys.executable, "--version")),)

    def execute(self, params: dict[str, Any]) -> ToolResult:  # type: ignore[override]
        command = dict(self.ALLOWED_COMMANDS).get(params["command"])
        if command is None:
            return ToolResult(success=False, error="Command not on the list")
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
        return ToolResult(success=True, data=done.stdout.strip())

    def get_schema(self) -> dict[str, Any]:
        return schema("system_command", "Run one of a few commands.", "command")


class Service(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"answer": asked["query"].upper()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def uptime(host: str) -> str:
    """Tell for how long a host has been up."""
    return f"{host} is up."


async def main(service: str) -> None:
    server = MCPServer("hosts")
    server.add_tool(uptime)
    given = (DirectTool(), APITool(service), MCPTool(server), SystemTool())
    async with Executor(Registry(tools(*given))) as executor:
        for name, params, output in [
            ("count_errors", {"log": "ERROR a\nINFO b"}, {"errors": 1}),
            ("ask_service", {"query": "redis"}, {"answer": "REDIS"}),
            ("mcp_tool", {"tool_name": "uptime", "host": "db-1"}, "db-1 is up."),
            ("system_command", {"command": "version"}, f"Python {sys.version.split()[0]}"),
        ]:
            result = await executor.execute(name, params)
            assert result.output == output, (name, result)
        refused = await executor.execute("system_command", {"command": "rm"})
        assert refused.error.message == "Command not on the list"


with HTTPServer(("127.0.0.1", 0), Service) as listening:
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    asyncio.run(main(f"http://127.0.0.1:{listening.server_port}/"))
    listening.shutdown()
