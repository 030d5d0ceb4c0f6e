"""The tools of MCP servers: ``[[sources]] kind = "mcp", servers = ["files", "git"]``.

Above: the runtime. Below: the backend ``mcp``, which has the servers and keeps the sessions with
them. A server that cannot be reached keeps the tools it had and hides nobody else's; it is tried
again, less and less often. One that is ``required`` stops the load.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from toolpost.backends.mcp.backend import McpBackend
from toolpost.backends.mcp.server import Server
from toolpost.backends.mcp.tools import Listing, specs_of
from toolpost.backends.mcp.wire import Forgotten
from toolpost.contracts import Backend, Tell
from toolpost.errors import CallError, ConfigError, SetupError, SourceError
from toolpost.options import Options, options_from
from toolpost.spec import ToolSpec
from toolpost.wording import short

_log = logging.getLogger("toolpost.mcp")
_MOST_KNOWN: Final = 10_000
_SETTLE: Final = 0.2
"""Seconds in which several changes are one."""


class _Options(Options, frozen=True):
    servers: tuple[str, ...]


class McpSource:
    """``problem`` says which servers cannot be reached, ``left_out`` which tools have no spec."""

    gives_way: ClassVar = True
    """Whoever writes a server does not know what names there are here."""
    when_empty: ClassVar = "its servers list none; see what a server has with: toolpost check --mcp"

    def __init__(self, servers: Iterable[str], *, backend: McpBackend | None = None) -> None:
        self._names = tuple(servers)
        self._backend: Callable[[str], Backend] | None = None
        if backend is not None:
            self.draw(lambda _: backend)
        self._servers: dict[str, Server] = {}
        self._good: dict[str, Listing] = {}
        self._down: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._known: dict[tuple[str, str], str] = {}
        self.left_out: Mapping[tuple[str, str], str] = {}

    @classmethod
    def from_config(cls, options: Mapping[str, Any], base: Path) -> Self:
        return cls(options_from(options, _Options, "source mcp").servers)

    def draw(self, backend: Callable[[str], Backend]) -> None:
        self._backend = backend

    def keep_names(self, pinned: Mapping[str, Mapping[str, Any]]) -> None:
        """The names that the lock file has for tools, with their bindings: they stay theirs."""
        for name, binding in pinned.items():
            server, tool = binding.get("server"), binding.get("tool")
            if isinstance(server, str) and isinstance(tool, str):
                self._known[server, tool] = name

    @property
    def problem(self) -> str | None:
        """Which servers are not there, and why."""
        now = {name: server.problem for name, server in self._servers.items() if server.problem}
        return "; ".join(f"{name}: {why}" for name, why in (self._down | now).items()) or None

    @property
    def notice(self) -> str | None:
        """What is worth knowing of servers that can be used."""
        notices = {name: server.notice for name, server in self._servers.items()}
        return "; ".join(f"{name}: {said}" for name, said in notices.items() if said) or None

    async def load(self, tell: Tell) -> Iterable[ToolSpec]:
        servers = self._found()
        done = 0

        async def listed(server: Server) -> None:
            nonlocal done
            await self._list(server)
            done += 1
            tell(done, len(servers))

        async with asyncio.TaskGroup() as tasks:
            for server in servers:
                tasks.create_task(listed(server))
        self._refuse_required(servers)
        known = [(s.name, s.options, self._good[s.name]) for s in servers if s.name in self._good]
        offered = await asyncio.to_thread(specs_of, known, dict(self._known))
        named = {(s.binding["server"], s.binding["tool"]): s.name for s in offered.specs}
        if len(self._known) > _MOST_KNOWN:  # a server that goes on making names up
            self._known = {}
        self._known |= named
        for (server_name, tool), why in offered.left_out.items():
            if self.left_out.get((server_name, tool)) != why:
                _log.warning("the tool %s of %s is left out: %s", short(tool), server_name, why)
        self.left_out = offered.left_out
        return offered.specs

    async def changes(self) -> AsyncIterator[None]:
        while True:
            waits = [self._servers[name].wait for name in self._down]
            try:
                async with asyncio.timeout(max(_SETTLE, min(waits)) if waits else None):
                    await self._wake.wait()
                await asyncio.sleep(_SETTLE)
            except TimeoutError:
                pass
            self._wake.clear()
            yield

    def _found(self) -> list[Server]:
        backend = McpBackend() if self._backend is None else self._backend("mcp")
        assert isinstance(backend, McpBackend)
        for name in self._names:
            if name not in self._servers:
                try:
                    server = self._servers[name] = backend.server(name)
                except ConfigError as fault:
                    raise SourceError(fault.message) from None
                server.listeners.append(self._wake.set)
        return [self._servers[name] for name in dict.fromkeys(self._names)]

    async def _list(self, server: Server) -> None:
        try:
            self._good[server.name] = await server.list()
        except (CallError, SetupError, Forgotten) as exc:
            self._down[server.name] = server.problem or str(exc)
        else:
            self._down.pop(server.name, None)

    def _refuse_required(self, servers: Iterable[Server]) -> None:
        for server in servers:
            if server.options.required and server.name in self._down:
                raise SourceError(
                    f"the MCP server {server.name!r} is required: {self._down[server.name]}"
                )
