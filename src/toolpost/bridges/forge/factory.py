"""``ToolFactory`` of the Forge contract: instances with their configuration and what they need.

Above: whoever registers tools. Below: ``instances.py``, which makes them and lets them go.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from threading import RLock
from typing import Any, Final, Literal, NamedTuple, Self

from toolpost.bridges.forge.base import (
    BaseTool,
    ExecutionContext,
    ToolCategory,
    ToolError,
    ToolParameter,
    ToolResult,
)
from toolpost.bridges.forge.dry_run import handles_dry_run
from toolpost.bridges.forge.item import work_of
from toolpost.bridges.instances import Living, made
from toolpost.errors import ToolpostError

Scope = Literal["singleton", "request"]
_LAST: Final = ("close", "cleanup")


class _Plan(NamedTuple):
    kind: type[BaseTool]
    scope: Scope
    config: Mapping[str, object]


class ToolFactory:
    """Makes tools of their classes. A constructor gets what it names: of the ``config`` of its
    class, or of the ``dependencies`` that all share.

    A singleton is made when it is first asked for and lives until the factory closes; of scope
    ``request`` each call has an instance of its own. When one is over and nobody is inside any
    more, its method ``close`` (or ``cleanup``) is called, if it has one.
    """

    def __init__(self, dependencies: Mapping[str, object] | None = None) -> None:
        self._dependencies = dict(dependencies or {})
        self._plans: dict[str, _Plan] = {}
        self._living: dict[str, Living[BaseTool]] = {}
        self._making = RLock()

    def add(
        self,
        name: str,
        kind: type[BaseTool],
        *,
        scope: Scope = "singleton",
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Plan a tool; nothing is made yet. A name that is taken is a ``ToolError``."""
        with self._making:
            if name in self._plans:
                raise ToolError(name, "Tool already planned")
            self._plans[name] = _Plan(kind, scope, dict(config or {}))

    def create(self, name: str) -> BaseTool:
        """The singleton, or a new instance, which is then yours to close."""
        if self._plan(name).scope == "request":
            return self._made(name)
        return self._singleton(name).tool

    def tool(self, name: str) -> BaseTool:
        """A tool that stands for it, to be registered: each call gets its instance here."""
        return _Standing(name, self)

    def tools(self) -> list[BaseTool]:
        """One for each that is planned."""
        return [self.tool(name) for name in tuple(self._plans)]

    def living(self, name: str) -> Living[BaseTool]:
        """The instance that the next call goes to."""
        if self._plan(name).scope == "request":
            return Living(self._made(name), last=_LAST, once=True)
        return self._singleton(name)

    async def close(self) -> None:
        """Let every singleton go; asked for again, it is made anew."""
        with self._making:
            gone, self._living = list(self._living.values()), {}
        for one in gone:
            await one.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _singleton(self, name: str) -> Living[BaseTool]:
        with self._making:
            if name not in self._living:
                self._living[name] = Living(self._made(name), last=_LAST)
            return self._living[name]

    def _plan(self, name: str) -> _Plan:
        if name not in self._plans:
            raise ToolError(name, "Tool not found")
        return self._plans[name]

    def _made(self, name: str) -> BaseTool:
        plan = self._plan(name)
        try:
            tool = made(plan.kind, {**self._dependencies, **plan.config})
            own = tool.name
        except ToolpostError as fault:
            raise ToolError(name, str(fault)) from fault
        except Exception as exc:  # a constructor is foreign code
            raise ToolError(name, f"cannot be made: {type(exc).__name__}: {exc}") from exc
        if own != name:
            raise ToolError(name, f"is planned under this name, and calls itself {own}")
        return tool


class _Standing(BaseTool):
    """Says what an instance says of itself, and hands each call to the one that is due."""

    def __init__(self, name: str, factory: ToolFactory) -> None:
        self._name = name
        self._like = like = factory.create(name)
        self.TOOLPOST, self.PREVIEWS = like.TOOLPOST, handles_dry_run(like)  # type: ignore[misc]
        self.SHOWS_EXCEPTIONS = like.SHOWS_EXCEPTIONS  # type: ignore[misc]

        async def work(context: ExecutionContext, **kwargs: Any) -> ToolResult:
            async with factory.living(name) as tool:
                result: ToolResult = await work_of(tool)(context, **kwargs)
                return result

        def blocking(context: ExecutionContext, **kwargs: Any) -> Any:
            return factory.living(name).run(lambda tool: work_of(tool)(context, **kwargs))

        inner = work_of(like)
        chosen: Any = work if inspect.iscoroutinefunction(inner) else blocking
        chosen.__signature__ = inspect.signature(inner)
        self._execute = chosen  # type: ignore[method-assign]

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return self._like.description

    @property
    def category(self) -> ToolCategory:
        return self._like.category

    @property
    def parameters(self) -> list[ToolParameter]:
        return self._like.parameters

    async def _execute(self, context: ExecutionContext, **kwargs: Any) -> ToolResult:
        raise NotImplementedError  # each has its own

    def validate_params(self, **kwargs: Any) -> tuple[bool, str | None]:
        return self._like.validate_params(**kwargs)

    def _overrides(self, method: str) -> bool:
        return method != "execute" and self._like._overrides(method)
