"""``@register_tool("name")`` of the FaultMaven contract, and the registry that it fills.

Above: the container, which makes the tools. Here are only classes: nothing is made when a module is
imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from threading import Lock
from types import MappingProxyType
from typing import TypeVar

from toolpost import InvalidSpec, NameTaken, ToolSpec
from toolpost.bridges.faultmaven.contract import BaseTool

Kind = TypeVar("Kind", bound=type[BaseTool])


class ToolRegistry:
    """Name → class. Threads may share it. ``ToolRegistry._tools`` is what ``@register_tool``
    fills; a registry that you make yourself has classes of its own.
    """

    _tools: dict[str, type[BaseTool]] = {}  # noqa: RUF012 - on the class, as the document has it

    def __init__(self) -> None:
        self._tools = {}
        self._writing = Lock()

    def register(self, name: str, kind: type[BaseTool]) -> None:
        """A name that another class has is refused; the same class, loaded again, takes the place
        of what it was.
        """
        given: object = kind
        if not (inspect.isclass(given) and issubclass(given, BaseTool)):
            raise InvalidSpec(f"@register_tool({name!r}) stands before a class of BaseTool")
        if inspect.isabstract(kind):
            missing = ", ".join(sorted(kind.__abstractmethods__))
            raise InvalidSpec(f"{kind.__name__} cannot be made: write {missing}")
        ToolSpec(name=name, description="Only its name is looked at.")
        with self._writing:
            there = self._tools.get(name)
            if there is not None and _where(there) != _where(kind):
                raise NameTaken(f"the name {name!r} is taken by {there.__qualname__}: use another")
            self._tools[name] = kind

    def unregister(self, name: str) -> bool:
        """Whether there was such a tool. What a container has made of it stays there."""
        with self._writing:
            return self._tools.pop(name, None) is not None

    def get(self, name: str) -> type[BaseTool] | None:
        return self._tools.get(name)

    def all(self) -> Mapping[str, type[BaseTool]]:
        """As they are now, in the order in which they came."""
        return MappingProxyType(self._tools.copy())

    def clear(self) -> None:
        with self._writing:
            self._tools.clear()


def _where(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


tool_registry = ToolRegistry()
"""What ``@register_tool`` fills."""
tool_registry._tools = ToolRegistry._tools


def register_tool(name: str, *, registry: ToolRegistry | None = None) -> Callable[[Kind], Kind]:
    """Register a class of tools; it is made when a container is first asked for it."""

    def registered(kind: Kind) -> Kind:
        (tool_registry if registry is None else registry).register(name, kind)
        return kind

    return registered
