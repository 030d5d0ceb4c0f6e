"""FastMCP over streamable HTTP: with answers of JSON and no sessions, and as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastmcp import FastMCP

from benchmarks.cases import add
from benchmarks.network.asgi import App, Opens


@asynccontextmanager
async def stateless() -> AsyncIterator[App]:
    app = _server().http_app(path="/mcp", json_response=True, stateless_http=True)
    async with app.lifespan(app):
        yield app


@asynccontextmanager
async def sessions() -> AsyncIterator[App]:
    app = _server().http_app(path="/mcp")
    async with app.lifespan(app):
        yield app


def _server() -> FastMCP[None]:
    server: FastMCP[None] = FastMCP("benchmarks")
    server.tool(add)
    return server


APPS: dict[str, Opens] = {"stateless": stateless, "sessions": sessions}
