"""``ToolRegistry`` of the Forge contract: one for the application, whoever makes it.

Above: the contract's executor. Below: a ``Registry`` of ours, in which the same tools stand as
items. Threads may share it; a reader never waits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from threading import RLock
from typing import ClassVar, Self

from toolpost import NameTaken, Registry
from toolpost.bridges.forge.base import BaseTool, ToolCategory, ToolError
from toolpost.bridges.forge.item import item_of

_log = logging.getLogger("toolpost.forge")


class ToolRegistry:
    """``ToolRegistry()`` is always the same, until ``reset``. ``registry`` has its tools as items
    of ours. A tool whose name is no legal name of a spec has another one there: ``spec_name``.
    """

    _instance: ClassVar[ToolRegistry | None] = None
    _making: ClassVar[RLock] = RLock()
    registry: Registry
    _tools: dict[str, BaseTool]
    _spec_names: dict[str, str]
    _by_spec: dict[str, BaseTool]
    _writing: RLock

    def __new__(cls) -> Self:
        with cls._making:
            one = cls._instance
            if not isinstance(one, cls):
                one = cls._instance = super().__new__(cls)
                one.registry, one._writing = Registry(), RLock()
                one._tools, one._spec_names, one._by_spec = {}, {}, {}
            return one

    def register(self, tool: BaseTool) -> None:
        """A name that is taken, or looks like one that is, and what cannot be a tool is a
        ``ToolError``.
        """
        item = item_of(tool)
        own, name = tool.name, item.spec.name
        with self._writing:
            if own in self._tools:
                raise ToolError(own, "Tool already registered")
            self._tools[own], self._spec_names[own] = tool, name
            try:
                self.registry.add(item)
            except NameTaken as taken:
                del self._tools[own], self._spec_names[own]
                raise ToolError(own, taken.message) from taken
            self._by_spec[name] = tool
        if own != name:
            _log.warning("models, policies and the audit know the tool %r as %s", own, name)

    def register_many(self, tools: Iterable[BaseTool]) -> None:
        """Register them in this order; those before the first that is refused stay."""
        for tool in tools:
            self.register(tool)

    def deregister(self, name: str) -> bool:
        """Whether there was such a tool; calls that are under way finish."""
        with self._writing:
            if self._tools.pop(name, None) is None:
                return False
            spec_name = self._spec_names.pop(name)
            del self._by_spec[spec_name]
            self.registry.remove(spec_name)
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

    def list_names(self) -> list[str]:
        """The names, sorted."""
        return sorted(self._tools)

    def list_by_category(self, category: ToolCategory) -> list[BaseTool]:
        return [tool for tool in self.list_all() if tool.category == category]

    def group_by_category(self) -> dict[ToolCategory, list[BaseTool]]:
        """The tools of each category that has some, for display."""
        grouped = {category: self.list_by_category(category) for category in ToolCategory}
        return {category: tools for category, tools in grouped.items() if tools}

    def count(self) -> int:
        return len(self._tools)

    def spec_name(self, name: str) -> str | None:
        """The name of the tool's spec in ``registry``."""
        return self._spec_names.get(name)

    def of_spec(self, spec_name: str) -> BaseTool | None:
        """The tool whose spec has this name."""
        return self._by_spec.get(spec_name)

    def exists(self, name: str) -> bool:
        return name in self._tools

    def clear(self) -> None:
        with self._writing:
            self._tools.clear()
            self._spec_names.clear()
            self._by_spec.clear()
            self.registry.remove(*(spec.name for spec in self.registry))

    @classmethod
    def reset(cls) -> None:
        """Forget the one registry: the next ``ToolRegistry()`` is a new one. For tests."""
        with cls._making:
            cls._instance = None
