"""The MCP SDK: a server's ``call_tool``, in process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.mcpserver import MCPServer

from benchmarks.cases import Function
from benchmarks.contender import Call, Contender


class McpServer(Contender):
    label = "mcp SDK `MCPServer.call_tool`"
    peer = True

    def register(self, functions: Mapping[str, Function]) -> None:
        self._server = MCPServer("benchmarks", log_level="ERROR")
        for name, function in functions.items():
            self._server.add_tool(function, name=name)

    def bind(self, tool: str, arguments: dict[str, Any]) -> Call:
        call_tool = self._server.call_tool
        return lambda: call_tool(tool, arguments)

    def value(self, answer: Any) -> Any:
        content = answer.structured_content
        return content.get("result", content)


CONTENDERS = (McpServer,)
