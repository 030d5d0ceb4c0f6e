"""``BaseTool``: what a tool of the Forge contract derives from.

Above: the registry, the factory and the executor of the contract. Below: ``item.py``, by which it
is a tool of ours. Names and behavior are the document's, with two exceptions: ``True`` is no
integer, and the text of an exception is not shown to a model unless the class says so.
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
    ToolExecution,
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
    "ToolExecution",
    "ToolParameter",
    "ToolResult",
]


class BaseTool(ABC):
    """Write the four properties and ``_execute``; validation, time limit, cancellation and a
    standard result come with it.

    ``TOOLPOST`` says what the contract has no words for: ``{"tier": 0, "effects": "read"}``.
    ``PREVIEWS``: whether the tool is called on a dry run, and does nothing because its context says
    so. ``None``: it is if its code reads ``context.dry_run``.
    ``SHOWS_EXCEPTIONS``: the text of an exception is the error that the caller reads.
    """

    TOOLPOST: ClassVar[SpecOptions] = {}
    PREVIEWS: ClassVar[bool | None] = None
    SHOWS_EXCEPTIONS: ClassVar[bool] = False

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
            problem = _out_of_range(value, one) or _problem(value, one.to_json_schema())
            if problem is not None:
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


def _out_of_range(value: Any, one: ToolParameter) -> str | None:
    """What is wrong with a number or the length of a text, in the contract's words."""
    if one.type == "string" and isinstance(value, str):
        if one.min_length is not None and len(value) < one.min_length:
            return f"too short, it needs {one.min_length} characters or more"
        if one.max_length is not None and len(value) > one.max_length:
            return f"too long, it may have {one.max_length} characters at most"
    if one.type in ("integer", "number") and isinstance(value, int | float):
        if one.minimum is not None and value < one.minimum:
            return f"below minimum {one.minimum:g}"
        if one.maximum is not None and value > one.maximum:
            return f"above maximum {one.maximum:g}"
    return None


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
