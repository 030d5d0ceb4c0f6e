"""``ToolExecutor`` of the Forge contract: its calls travel the road.

Above: an agent of the contract. Below: ``item.py`` for what goes in and comes out, ``road.py`` for
where it runs.
"""

from __future__ import annotations

import logging
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from toolpost import Caller, Executor
from toolpost.bridges.forge.base import ExecutionContext, ToolResult
from toolpost.bridges.forge.item import LONGEST, as_forged, asked
from toolpost.bridges.forge.registry import ToolRegistry
from toolpost.bridges.road import Road
from toolpost.call import OWNER
from toolpost.exporters import export
from toolpost.extensions.slots import Slots
from toolpost.registry import Entry

if TYPE_CHECKING:
    from toolpost.runtime import Runtime

_log = logging.getLogger("toolpost.forge")
_FORMS: Final = ("openai", "anthropic", "langchain")
_MOST_KEPT: Final = 1000


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the history. What a tool was given, and gave back, is not in it."""

    tool_name: str
    call_id: str
    session_id: str | None
    started_at: datetime
    duration_ms: float
    success: bool
    code: str | None = None
    """Why it failed."""
    dry_run: bool = False


class ToolExecutor:
    """Runs the tools of a registry. Over an executor or a runtime of yours everything that stands
    there holds for them, and its own tools can be called here too.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        over: Executor | Runtime | None = None,
        caller: Caller = OWNER,
    ) -> None:
        self._registry, self._over, self._caller = registry, over, caller
        self._road = Road(registry.registry, over, guards=lambda: [Slots()], alone=_unhurried)
        self._history: deque[Execution] = deque(maxlen=_MOST_KEPT)
        self._spoken: dict[str, str] = {}

    async def execute(
        self,
        tool_name: str | None = None,
        context: ExecutionContext | None = None,
        /,
        **kwargs: Any,
    ) -> ToolResult:
        """Run one tool: ``execute("read", context, path="a")``. Whatever goes wrong is in the
        result; only a cancellation is raised.

        The first two may also be given by name. Where they are not, a model may call an argument
        what it likes. A tool has the name, too, that its schema has for a vendor.
        """
        name = kwargs.pop("tool_name", None) if tool_name is None else tool_name
        context = kwargs.pop("context", None) if context is None else context
        if isinstance(name, str) and not self._registry.exists(name) and not self._is_theirs(name):
            name = self._spoken.get(name, name)
        tool = self._registry.get(name) if isinstance(name, str) else None
        if not isinstance(name, str) or (tool is None and not self._is_theirs(name)):
            return ToolResult.fail(f"Unknown tool: {name}", code="NOT_FOUND")
        if not isinstance(context, ExecutionContext):
            return ToolResult.fail("The context is no ExecutionContext", code="VALIDATION_ERROR")
        if tool is not None and not self._road.has(name):
            return ToolResult.fail(f"Another tool has the name {name}", code="CONFLICT")
        road, started = await self._road.here(), datetime.now(UTC)
        spec = road.registry.get(name)
        result = await road.execute(name, kwargs, caller=self._who(context), **asked(tool, context))
        error, about = result.error, result.metadata
        self._history.append(
            Execution(
                tool_name=name,
                call_id=about.call_id,
                session_id=context.session_id,
                started_at=started,
                duration_ms=about.duration_ms,
                success=error is None,
                code=None if error is None else error.code,
                dry_run=context.dry_run,
            )
        )
        _log.info("%s %s", name, "succeeded" if error is None else f"failed: {error.code}")
        own = None if spec is None else spec.timeout
        return as_forged(result, tool, kwargs, min(context.timeout, own or context.timeout))

    def get_all_schemas(self, format: str = "openai") -> list[dict[str, Any]]:  # noqa: A002 - the document's name
        """The tools in a vendor's form; what cannot be said there is left out, with a warning."""
        if format not in _FORMS:
            raise ValueError(f"Unknown schema format: {format} (known: {', '.join(_FORMS)})")
        if self._over is not None:
            specs = self._over.list(self._caller)
        else:
            specs = self._registry.registry.list()
        made = export(specs, format)
        self._spoken.update(made.names)
        for note in made.left_out:
            _log.warning("left out of the %s schemas: %s", format, note)
        return list(made.tools)

    def history(self, tool_name: str | None = None) -> list[Execution]:
        """The last thousand executions, the oldest first; all, or those of one tool."""
        return [one for one in tuple(self._history) if tool_name in (None, one.tool_name)]

    def metrics(self) -> dict[str, dict[str, float]]:
        """Of the history, by tool: calls, failures, and the mean and the longest duration."""
        told = {}
        for name in sorted({one.tool_name for one in tuple(self._history)}):
            runs = self.history(name)
            took = [one.duration_ms for one in runs]
            told[name] = {
                "calls": len(runs),
                "failures": sum(not one.success for one in runs),
                "mean_ms": sum(took) / len(took),
                "max_ms": max(took),
            }
        return told

    async def close(self) -> None:
        """Close what is its own; an executor of yours is only rid of the tools."""
        await self._road.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _is_theirs(self, name: str) -> bool:
        return self._over is not None and name in self._over.registry

    def _who(self, context: ExecutionContext) -> Caller:
        """The caller with no more rights than the context has."""
        if context.permissions is None:
            return self._caller
        held = context.permissions if self._caller.owner else self._caller.roles
        roles = held & context.permissions
        narrowed: Caller = msgspec.structs.replace(self._caller, roles=roles, owner=False)
        return narrowed


def _unhurried(entry: Entry) -> Entry:
    """Where a context says how long a call may take, 120 seconds are no limit, unless the tool
    itself has said so.
    """
    spec = entry.spec
    if spec.timeout != 120 or spec.total_timeout is not None:
        return entry
    return entry._replace(spec=msgspec.structs.replace(entry.spec, timeout=LONGEST))
