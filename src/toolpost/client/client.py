"""``Client``: the tools of a gateway, called as those of this process are.

``async with Client("http://127.0.0.1:8080") as tools: await tools.execute("add", {"a": 1})``

Above: programs, and the command line. Below: ``exchange.py`` asks, ``parts.py`` has jobs,
approvals, artifacts and the audit. Whatever goes wrong with a call is in its result; elsewhere it
is raised. Cancel the task that waits for a call, and the gateway stops the tool: the connection is
closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from toolpost.call import Progress
from toolpost.client.events import Event
from toolpost.client.exchange import Exchange, header, inside
from toolpost.client.parts import Approvals, Artifacts, Audit, Jobs, every, understood
from toolpost.client.values import found, reported, spec
from toolpost.client.wanted import wanted
from toolpost.environ import secret
from toolpost.errors import CallError
from toolpost.failure import failure
from toolpost.given import as_name
from toolpost.result import Result
from toolpost.search import Found
from toolpost.spec import Effects, ToolSpec

_log = logging.getLogger("toolpost.client")
KEY: Final = "TOOLPOST_API_KEY"
"""The variable that has the key, where none is given."""
_TRACE: Final = ("traceparent", "tracestate")


class Client:
    """A gateway at a URL. ``key`` is an API key or a token; without it that of the environment.

    ``agent`` is what this program calls itself, where the gateway asks nobody who they are.
    ``trusted`` is a file with certificates that are believed beside the system's; ``longest`` the
    seconds that a call may take which has no ``timeout``.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        agent: str | None = None,
        trusted: str | None = None,
        longest: float = 3600.0,
    ) -> None:
        self._exchange = Exchange(
            url, key=key or secret(KEY) or None, agent=agent, trusted=trusted, longest=longest
        )
        self.jobs = Jobs(self._exchange)
        self.approvals = Approvals(self._exchange)
        self.artifacts = Artifacts(self._exchange)
        self.audit = Audit(self._exchange)

    async def execute(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        timeout: float | None = None,
        dry_run: bool = False,
        phase: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
        grant: str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result:
        """Run one tool. Whatever goes wrong is in the result; only a cancellation is raised.

        Of ``metadata`` the trace goes along: ``traceparent``, ``tracestate``.
        """
        name = as_name(name)
        try:
            body, headers = wanted(
                arguments, session_id=session_id, timeout=timeout, phase=phase, key=key, grant=grant
            )
            told = metadata or {}
            headers += tuple((n, header(n, str(told[n]))) for n in _TRACE if told.get(n))
            return await self._exchange.result(
                f"/v1/tools/{inside(name)}:{'plan' if dry_run else 'call'}",
                body=body,
                headers=headers,
                timeout=timeout,
                hear=None if on_progress is None or dry_run else _hearing(on_progress),
            )
        except CallError as fault:
            effects: Effects = "read" if dry_run else "once"  # what it is, only the gateway knows
            return Result(error=failure(fault, tool=name, call_id="", effects=effects))

    async def list(
        self,
        *,
        kind: str | None = None,
        category: str | None = None,
        tag: str | None = None,
        tier: int | None = None,
    ) -> tuple[ToolSpec, ...]:
        """The tools that there are for this caller, without their bindings."""
        query = {"kind": kind, "category": category, "tag": tag, "tier": tier}
        return await every(self._exchange, "/v1/tools", "tools", spec, query)

    async def search(self, query: str, limit: int = 10) -> tuple[Found, ...]:
        """The tools for this caller that do what a query says, best first."""
        asked = {"search": query, "limit": limit}
        said = await self._exchange.data("GET", "/v1/tools", query=asked)
        return understood(self._exchange, found, said)

    async def show(self, name: str) -> ToolSpec:
        """One tool; ``ToolNotFound`` if there is none of this name."""
        said = await self._exchange.data("GET", f"/v1/tools/{inside(name)}")
        return understood(self._exchange, spec, said)

    async def close(self) -> None:
        await self._exchange.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()


def _hearing(tell: Callable[[Progress], None]) -> Callable[[Event], None]:
    def hear(event: Event) -> None:
        try:
            if (report := reported(event)) is not None:
                tell(report)
        except Exception:  # noqa: BLE001 - the listener's own, which may raise anything: the call goes on
            _log.exception("who listens to a call failed")

    return hear
