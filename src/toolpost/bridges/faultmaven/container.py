"""The container of the FaultMaven contract: makes the registered tools with what their constructors
name, runs them on the road, and lets them go.

Above: an agent of the contract. Below: ``item.py`` for what goes in and comes out, ``instances.py``
for the life of a tool, ``road.py`` for where it runs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Self

from toolpost import Caller, Executor, InvalidSpec, Registry, SetupError, ToolNotFound
from toolpost.bridges.faultmaven.contract import BaseTool, ToolResult
from toolpost.bridges.faultmaven.item import as_told, item_of
from toolpost.bridges.faultmaven.registry import ToolRegistry, tool_registry
from toolpost.bridges.faultmaven.sanitizer import DataSanitizer
from toolpost.bridges.instances import Living, made
from toolpost.bridges.road import Road
from toolpost.call import OWNER
from toolpost.contracts import Extension
from toolpost.extensions.retry import Retry
from toolpost.extensions.sanitize import Sanitize
from toolpost.extensions.slots import Slots
from toolpost.registry import Item

if TYPE_CHECKING:
    from toolpost.runtime import Runtime

_LAST: Final = ("cleanup", "close", "aclose")
_log = logging.getLogger("toolpost.faultmaven")


class ToolContainer:
    """Makes a tool when it is first asked for. Over an executor or a runtime of yours everything
    that stands there holds for the tools; without one, their inputs are sanitized, what is
    transient is tried again, and ten of a tool run at once.
    """

    def __init__(
        self,
        settings: object = None,
        sanitizer: object = None,
        knowledge_ingester: object = None,
        *,
        registry: ToolRegistry = tool_registry,
        over: Executor | Runtime | None = None,
    ) -> None:
        self._offered = {
            "settings": settings,
            "sanitizer": DataSanitizer() if sanitizer is None else sanitizer,
            "knowledge_ingester": knowledge_ingester,
        }
        self._classes = registry
        self._living: dict[str, Living[BaseTool]] = {}
        self._names: dict[str, str] = {}
        """What a tool calls itself → the name that it is registered under; ``_own``, back."""
        self._own: dict[str, str] = {}
        self._removed: set[str] = set()
        self._closed = False
        self._making = RLock()
        self._items = Registry()
        self._road = Road(self._items, over, guards=_guards)
        self.problems: dict[str, str] = {}
        """Registered name → why there is no such tool."""

    def get_settings(self) -> Any:
        return self._offered["settings"]

    def get_data_sanitizer(self) -> Any:
        return self._offered["sanitizer"]

    def get_knowledge_ingester(self) -> Any:
        return self._offered["knowledge_ingester"]

    def get_tools(self) -> list[BaseTool]:
        """Every registered tool, for an agent: ``execute`` of what comes back travels the road. One
        that cannot be made is left out, and ``problems`` says why.
        """
        return [_Governed(self, name) for name in self._all()]

    def get_tool(self, name: str) -> BaseTool:
        """One tool, by the name that it was registered under or that it has for agents."""
        name = self._names.get(name, name)
        self.alive(name)
        return _Governed(self, name)

    def tools(self) -> list[Item]:
        """The same as items of ours, for a ``Registry`` or a ``Runtime`` of yours."""
        self._all()
        entries = [self._items.entry(spec.name) for spec in self._items]
        return [entry for entry in entries if entry is not None]

    async def execute(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        phase: str | None = None,
        session_id: str | None = None,
        caller: Caller = OWNER,
    ) -> ToolResult:
        """Run one tool. Whatever goes wrong is in the result; only a cancellation is raised."""
        registered = self._names.get(name, name)
        return await self.run(registered, params, phase=phase, session_id=session_id, caller=caller)

    async def run(
        self,
        registered: str,
        params: Mapping[str, Any] | None,
        *,
        phase: str | None = None,
        session_id: str | None = None,
        caller: Caller = OWNER,
    ) -> ToolResult:
        """The same, by the name that it was registered under and no other."""
        try:
            self.alive(registered)
        except (SetupError, ToolNotFound) as fault:
            return ToolResult(success=False, error=fault.message)
        name = self._own.get(registered, registered)
        spec = self._items.get(name)
        if spec is not None and spec.fallback is not None and spec.fallback not in self._items:
            self._all()  # it may be one that nobody has asked for yet
        if spec is not None and not self._road.has(name):
            return ToolResult(success=False, error=f"Another tool has the name {name!r}.")
        road = await self._road.here()
        result = await road.execute(name, params, phase=phase, session_id=session_id, caller=caller)
        for warning in result.metadata.warnings:
            _log.info("%s: %s", name, warning)  # whoever reads the result has it, too
        return as_told(result)

    def alive(self, name: str) -> Living[BaseTool]:
        """The instance, made if there is none yet."""
        with self._making:
            if name not in self._living:
                self._living[name] = self._made(name)
            return self._living[name]

    async def remove(self, name: str) -> None:
        """Forget a tool until the container is reset; calls that are under way finish."""
        name = self._names.get(name, name)
        with self._making:
            self._removed.add(name)
            gone = self._living.pop(name, None)
            self._forget([name] if name in self._own else [])
        if gone is not None:
            await gone.end()

    async def reset(self) -> None:
        """Let every tool go; asked for again, it is made anew of what is registered then."""
        with self._making:
            gone, self._living = list(self._living.values()), {}
            self._removed.clear()
            self.problems.clear()
            self._forget(list(self._own))
        for one in gone:
            await one.end()

    async def shutdown(self) -> None:
        """Let every tool go for good."""
        self._closed = True
        await self.reset()
        await self._road.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.shutdown()

    def _all(self) -> list[str]:
        there = []
        for name in self._classes.all():
            if name in self._removed:
                continue
            try:
                self.alive(name)
            except (SetupError, ToolNotFound) as fault:
                _log.error("%s is left out: %s", name, fault)
            else:
                there.append(name)
        return there

    def _made(self, name: str) -> Living[BaseTool]:
        kind = self._classes.get(name)
        if kind is None or name in self._removed or self._closed:
            raise ToolNotFound(f"There is no tool {name!r} in this container.")
        try:
            living = Living(made(kind, self._offered), last=_LAST)
            item = item_of(living.tool, lambda: self.alive(name))
            self._items.add(item)
        except SetupError as fault:
            self.problems[name] = fault.message
            raise
        except Exception as exc:  # a constructor is foreign code
            self.problems[name] = f"{type(exc).__name__}: {exc}"
            _log.exception("%s cannot be made", name)
            raise InvalidSpec(f"{name!r} cannot be made. See logs for details.") from exc
        self._names[item.spec.name], self._own[name] = name, item.spec.name
        self.problems.pop(name, None)
        return living

    def _forget(self, registered: Sequence[str]) -> None:
        names = [self._own.pop(name) for name in registered]
        self._items.remove(*names)
        for name in names:
            del self._names[name]


class _Governed(BaseTool):
    """A tool as an agent gets it: its own in everything, but that ``execute`` travels the road."""

    def __init__(self, container: ToolContainer, name: str) -> None:
        self._container, self._name = container, name
        self.REQUIRES_CONFIRMATION = self._tool.REQUIRES_CONFIRMATION  # type: ignore[misc]

    async def execute(self, params: Mapping[str, Any]) -> ToolResult:
        return await self._container.run(self._name, params)

    def get_schema(self) -> dict[str, Any]:
        return self._tool.get_schema()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._tool, name)

    @property
    def _tool(self) -> BaseTool:
        return self._container.alive(self._name).tool


def _guards() -> Sequence[Extension]:
    return Sanitize(), Retry(), Slots()
