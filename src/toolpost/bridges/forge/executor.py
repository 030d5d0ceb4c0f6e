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

from toolpost import Caller, Executor, Result, redact
from toolpost.bridges.forge.base import (
    BaseTool,
    ExecutionContext,
    ToolCategory,
    ToolExecution,
    ToolResult,
)
from toolpost.bridges.forge.item import LONGEST, as_forged, asked
from toolpost.bridges.forge.registry import ToolRegistry
from toolpost.bridges.road import Road
from toolpost.call import OWNER
from toolpost.exporters import export
from toolpost.extensions.slots import Slots
from toolpost.registry import Entry
from toolpost.spec import ToolSpec

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
    """Runs the tools of a registry, or of the one that ``ToolRegistry()`` gives. Over an executor
    or a runtime of yours everything that stands there holds for them, and its own tools can be
    called here too.
    """

    def __init__(
        self,
        registry: ToolRegistry | None = None,
        *,
        over: Executor | Runtime | None = None,
        caller: Caller = OWNER,
    ) -> None:
        registry = ToolRegistry() if registry is None else registry
        self._registry, self._over, self._caller = registry, over, caller
        self._road = Road(registry.registry, over, guards=lambda: [Slots()], alone=_unhurried)
        self._history: deque[Execution] = deque(maxlen=_MOST_KEPT)
        self._executions: deque[ToolExecution] = deque(maxlen=_MOST_KEPT)
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
        tool, spec_name = self._found(name)
        if spec_name is None:
            return ToolResult.fail(f"Unknown tool: {name}", code="NOT_FOUND")
        if not isinstance(context, ExecutionContext):
            return ToolResult.fail("The context is no ExecutionContext", code="VALIDATION_ERROR")
        if tool is not None and not self._road.has(spec_name):
            return ToolResult.fail(f"Another tool has the name {name}", code="CONFLICT")
        name = spec_name if tool is None else tool.name
        _log.info("Executing tool: %s", name)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("Parameters: %s", redact.redact(kwargs))
        road, started = await self._road.here(), datetime.now(UTC)
        spec = road.registry.get(spec_name)
        caller = self._who(context)
        result = await road.execute(spec_name, kwargs, caller=caller, **asked(tool, context))
        own = None if spec is None else spec.timeout
        forged = as_forged(result, tool, kwargs, min(context.timeout, own or context.timeout))
        self._keep(name, kwargs, context, result, forged, started)
        if forged.success:
            _log.info("Tool %s succeeded", name)
        else:
            _log.warning("Tool %s failed: %s", name, forged.error)
        return forged

    def get_executions(self) -> list[ToolExecution]:
        """The last thousand calls, the oldest first, with their parameters and results; a copy. A
        call of an unknown tool is not among them.
        """
        return list(self._executions)

    def clear_executions(self) -> None:
        """Forget them, and what ``history`` and ``metrics`` say of them."""
        self._executions.clear()
        self._history.clear()

    def get_all_schemas(self, format: str = "openai") -> list[dict[str, Any]]:  # noqa: A002 - the document's name
        """The tools in a vendor's form; what cannot be said there is left out, with a warning."""
        return self._exported(self._specs(), format)

    def get_schemas_by_category(
        self,
        category: ToolCategory,
        format: str = "openai",  # noqa: A002 - the contract's name
    ) -> list[dict[str, Any]]:
        """The same for the tools of one category."""
        wanted = str(getattr(category, "value", category))
        return self._exported([one for one in self._specs() if one.category == wanted], format)

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

    def _found(self, name: object) -> tuple[BaseTool | None, str | None]:
        """The tool that is meant, by its own name or by what a schema calls it, and the name of its
        spec; ``None`` for a tool of the executor below, or for none at all.
        """
        if not isinstance(name, str):
            return None, None
        tool, spec_name = self._registry.get(name), self._registry.spec_name(name)
        if tool is not None:
            return tool, spec_name
        if self._is_theirs(name):
            return None, name
        spec_name = self._spoken.get(name, name)
        tool = self._registry.of_spec(spec_name)
        if tool is None and not self._is_theirs(spec_name):
            return None, None
        return tool, spec_name

    def _keep(
        self,
        name: str,
        parameters: dict[str, Any],
        context: ExecutionContext,
        result: Result,
        forged: ToolResult,
        started: datetime,
    ) -> None:
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
        self._executions.append(
            ToolExecution.model_construct(
                tool_name=name,
                parameters=parameters,
                context=context,
                result=forged,
                started_at=started,
                completed_at=datetime.now(UTC),
            )
        )

    def _specs(self) -> list[ToolSpec]:
        """Its own tools in the order of their registration, then those of the executor below."""
        names = map(self._registry.spec_name, [one.name for one in self._registry.list_all()])
        own = [spec for name in names if name and (spec := self._registry.registry.get(name))]
        if self._over is None:
            return own
        known = {spec.name: spec for spec in self._over.list(self._caller)}
        first = [known.pop(spec.name) for spec in own if spec.name in known]
        return [*first, *known.values()]

    def _exported(self, specs: list[ToolSpec], form: str) -> list[dict[str, Any]]:
        if form not in _FORMS:
            raise ValueError(f"Unknown schema format: {form} (known: {', '.join(_FORMS)})")
        made = export(specs, form)
        self._spoken.update(made.names)
        for note in made.left_out:
            _log.warning("left out of the %s schemas: %s", form, note)
        return list(made.tools)

    def _is_theirs(self, name: str) -> bool:
        return self._over is not None and name in self._over.registry

    def _who(self, context: ExecutionContext) -> Caller:
        """The caller with no more rights than the context has, and the agent that it names unless
        the caller is an agent already.
        """
        caller = self._caller
        if context.agent_id and caller.agent is None:
            caller = msgspec.structs.replace(caller, agent=context.agent_id)
        if context.permissions is None:
            return caller
        held = context.permissions if caller.owner else caller.roles
        roles = held & context.permissions
        narrowed: Caller = msgspec.structs.replace(caller, roles=roles, owner=False)
        return narrowed


def _unhurried(entry: Entry) -> Entry:
    """Where a context says how long a call may take, 120 seconds are no limit, unless the tool
    itself has said so.
    """
    spec = entry.spec
    if spec.timeout != 120 or spec.total_timeout is not None:
        return entry
    return entry._replace(spec=msgspec.structs.replace(entry.spec, timeout=LONGEST))
