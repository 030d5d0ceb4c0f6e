"""``BaseTool``: what a tool of the Forge contract derives from.

Above: the registry, the factory and the executor of the contract. Below: ``item.py``, by which it
is a tool of ours. Names and behaviour are the document's, but for two gaps: ``True`` is no integer,
and what a tool raises is not shown to a model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import msgspec

from toolpost.authoring import SpecOptions
from toolpost.bridges.forge.item import item_of, run_alone
from toolpost.bridges.forge.values import (
    TYPES,
    ExecutionContext,
    ToolCategory,
    ToolError,
    ToolParameter,
    ToolResult,
)
from toolpost.exporters import export
from toolpost.schema import Schema
from toolpost.schema.faults import message

__all__ = [
    "BaseTool",
    "ExecutionContext",
    "ToolCategory",
    "ToolError",
    "ToolParameter",
    "ToolResult",
]


class BaseTool(ABC):
    """Write the four properties and ``_execute``; validation, time limit, cancellation and a
    standard result come with it.

    ``TOOLPOST`` says what the contract has no words for: ``{"tier": 0, "effects": "read"}``.
    ``PREVIEWS``: on a dry run the tool is called, and does nothing because its context says so;
    others are not called.
    """

    TOOLPOST: ClassVar[SpecOptions] = {}
    PREVIEWS: ClassVar[bool] = False

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def description(self) -> str: ...

    @property
    @abstractmethod
    def category(self) -> ToolCategory: ...

    @property
    @abstractmethod
    def parameters(self) -> list[ToolParameter]: ...

    @abstractmethod
    async def _execute(self, context: ExecutionContext, **kwargs: Any) -> ToolResult: ...

    async def execute(self, /, context: ExecutionContext, **kwargs: Any) -> ToolResult:
        """Run it by itself, registered or not; whatever goes wrong is in the result."""
        return await run_alone(self, context, kwargs)

    def validate_params(self, /, **kwargs: Any) -> tuple[bool, str | None]:
        """Whether these arguments will do, and what is wrong first."""
        for one in self.parameters:
            if one.name not in kwargs:
                if one.required:
                    return False, f"Missing required parameter: {one.name}"
                continue
            value = kwargs[one.name]
            if not self._check_type(value, one.type):
                return False, f"Invalid type for {one.name}: expected {one.type}"
            if one.enum and value not in one.enum:
                return False, f"Invalid value for {one.name}: must be one of {one.enum}"
            if (problem := _problem(value, one.to_json_schema())) is not None:
                return False, f"Invalid value for {one.name}: {problem}"
        return True, None

    def _check_type(self, value: Any, expected: str) -> bool:
        return expected not in TYPES or _problem(value, {"type": expected}) is None

    def _overrides(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(BaseTool, method)

    def to_openai_schema(self) -> dict[str, Any]:
        return _exported(self, "openai")

    def to_anthropic_schema(self) -> dict[str, Any]:
        return _exported(self, "anthropic")

    def to_langchain_schema(self) -> dict[str, Any]:
        return _exported(self, "langchain")


def _problem(value: Any, schema: dict[str, Any]) -> str | None:
    shape = Schema({"type": "object", "properties": {"value": schema}})
    faults = [
        msgspec.structs.replace(fault, at=fault.at.removeprefix("/value"))
        for fault in shape.faults({"value": value})
    ]
    return message(faults) if faults else None


def _exported(tool: BaseTool, form: str) -> dict[str, Any]:
    made = export([item_of(tool).spec], form)
    if not made.tools:
        raise ToolError(tool.name, made.left_out[0].what)
    return made.tools[0]
