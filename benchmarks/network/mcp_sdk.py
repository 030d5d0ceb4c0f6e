"""The MCP SDK's own server over streamable HTTP: with answers of JSON and no sessions, and as it
comes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp.server.mcpserver import MCPServer

from benchmarks.cases import add
from benchmarks.network.asgi import App, Opens


@asynccontextmanager
async def stateless() -> AsyncIterator[App]:
    server = _server()
    app = server.streamable_http_app(json_response=True, stateless_http=True)
    async with server.session_manager.run():
        yield app


@asynccontextmanager
async def sessions() -> AsyncIterator[App]:
    server = _server()
    app = server.streamable_http_app()
    async with server.session_manager.run():
        yield app


def _server() -> MCPServer:
    server = MCPServer("benchmarks", log_level="ERROR")
    server.add_tool(add)
    return server


APPS: dict[str, Opens] = {"stateless": stateless, "sessions": sessions}
