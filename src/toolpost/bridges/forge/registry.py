"""``ToolRegistry`` of the Forge contract: one for the application, whoever makes it.

Above: the contract's executor. Below: a ``Registry`` of ours, in which the same tools stand as
items. Threads may share it; a reader never waits.
"""

from __future__ import annotations

from threading import RLock
from typing import ClassVar, Self

from toolpost import NameTaken, Registry
from toolpost.bridges.forge.base import BaseTool, ToolCategory, ToolError
from toolpost.bridges.forge.item import item_of


class ToolRegistry:
    """``ToolRegistry()`` is always the same. ``registry`` has its tools as items of ours."""

    _instance: ClassVar[ToolRegistry | None] = None
    _making: ClassVar[RLock] = RLock()
    registry: Registry
    _tools: dict[str, BaseTool]
    _writing: RLock

    def __new__(cls) -> Self:
        with cls._making:
            one = cls._instance
            if not isinstance(one, cls):
                one = cls._instance = super().__new__(cls)
                one.registry, one._tools, one._writing = Registry(), {}, RLock()
            return one

    def register(self, tool: BaseTool) -> None:
        """A name that is taken, or looks like one that is, and what cannot be a tool is a
        ``ToolError``.
        """
        item = item_of(tool)
        with self._writing:
            if item.spec.name in self._tools:
                raise ToolError(item.spec.name, "Tool already registered")
            self._tools[item.spec.name] = tool
            try:
                self.registry.add(item)
            except NameTaken as taken:
                del self._tools[item.spec.name]
                raise ToolError(item.spec.name, taken.message) from taken

    def deregister(self, name: str) -> bool:
        """Whether there was such a tool; calls that are under way finish."""
        with self._writing:
            if self._tools.pop(name, None) is None:
                return False
            self.registry.remove(name)
            return True

    def get(self, name: str) -> BaseTool | None:
        return self._tools.get(name)

    def get_or_raise(self, name: str) -> BaseTool:
        tool = self._tools.get(name)
        if tool is None:
            raise ToolError(name, "Tool not found")
        return tool

    def list_all(self) -> list[BaseTool]:
        return list(self._tools.values())

    def list_by_category(self, category: ToolCategory) -> list[BaseTool]:
        return [tool for tool in self.list_all() if tool.category == category]

    def exists(self, name: str) -> bool:
        return name in self._tools

    def clear(self) -> None:
        with self._writing:
            self._tools.clear()
            self.registry.remove(*(spec.name for spec in self.registry))
