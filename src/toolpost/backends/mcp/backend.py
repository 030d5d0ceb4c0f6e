"""MCP tools: tools of other programs' servers, called through sessions that are kept.

Above: the road, and ``source.py``. Below: ``server.py``, one for each server of the config.
Programs run in a sandbox unless the config says otherwise; nothing here imports the SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from toolpost.backends.mcp.binding import McpBinding, binding_of, verify
from toolpost.backends.mcp.server import Around, Server
from toolpost.backends.mcp.settings import McpOptions
from toolpost.call import Call
from toolpost.contracts import Elicits, Health, Home, Services
from toolpost.errors import ConfigError
from toolpost.options import Options, options_from
from toolpost.plugins import SharedSandbox
from toolpost.spec import ToolSpec
from toolpost.wording import nearest, short

__all__ = ["McpBackend", "McpHandle", "verify"]


class McpBackend:
    """Runs tools of kind ``mcp``."""

    options: ClassVar[type[Options]] = McpOptions

    def __init__(self, services: Services | None = None) -> None:
        services = services or Services()
        options = options_from(services.settings.get("mcp", {}), McpOptions, "backend mcp")
        provided: Mapping[type, Any] = services.provide
        self._own = SharedSandbox()
        home: Home | None = provided.get(Home)
        around = Around(
            secret=services.secret,
            sandbox=provided.get(SharedSandbox) or self._own,
            home=None if home is None else home.folder,
            elicits=provided.get(Elicits),
        )
        self._servers = {n: Server(n, table, around) for n, table in options.servers.items()}

    def bind(self, spec: ToolSpec, target: object | None) -> McpHandle:
        binding = binding_of(spec)
        return McpHandle(binding, self.server(binding.server))

    def server(self, name: str) -> Server:
        """A server of the config, or ``ConfigError``."""
        server = self._servers.get(name)
        if server is None:
            raise ConfigError(
                f"there is no MCP server {short(name)!r}{nearest(name, self._servers)}; describe "
                f"it in [backends.mcp.servers.{short(name)}] of toolpost.toml"
            )
        return server

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))
        await self._own.close()


class McpHandle:
    """One tool of a server."""

    def __init__(self, binding: McpBinding, server: Server) -> None:
        self._binding, self._server = binding, server

    @property
    def about(self) -> Mapping[str, Any]:
        return self._server.about

    async def run(self, call: Call) -> Any:
        return await self._server.call(self._binding, call)

    async def health(self) -> Health:
        return await self._server.health()

    async def close(self) -> None:
        """The server is the others' too: it goes when it is idle, or with the backend."""
