"""The values of the Forge contract: categories, parameters, results, contexts, its error.

Above: ``base.py``. Names and defaults are the document's; what they mean on the road is not known
here.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from toolpost.errors import ToolpostError

TIMEOUT: Final = 120
"""Seconds, unless a context or a tool says otherwise."""
TYPES: Final = frozenset(("string", "integer", "number", "boolean", "array", "object", "null"))
_LENGTHS: Final = {
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


class ToolCategory(str, Enum):  # noqa: UP042 - as the document has it: printed, it says its name
    """What tools are grouped by."""

    FILE = "file"
    EXECUTION = "execution"
    WEB = "web"
    TASK = "task"
    NOTEBOOK = "notebook"
    MCP = "mcp"
    OTHER = "other"


class ToolError(ToolpostError):
    """Something is wrong with a tool as such: its name is taken, or there is none of this name."""

    def __init__(self, tool_name: str, message: str) -> None:
        super().__init__(f"{tool_name}: {message}")
        self.tool_name = tool_name
        self.message = message


class ToolParameter(BaseModel):
    """One parameter of a tool. A ``type`` that JSON does not know lets every value pass.

    The lengths are those of a text, of an array or of an object.
    """

    name: str
    type: str
    description: str
    required: bool = True
    default: Any = None
    enum: list[Any] | None = None
    minimum: float | int | None = None
    maximum: float | int | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    items: dict[str, Any] | None = None

    def to_json_schema(self) -> dict[str, Any]:
        shortest, longest = _LENGTHS.get(self.type, ("minLength", "maxLength"))
        said = {
            "type": self.type if self.type in TYPES else None,
            "description": self.description,
            "enum": self.enum or None,
            "default": self.default,
            "minimum": self.minimum,
            "maximum": self.maximum,
            shortest: self.min_length,
            longest: self.max_length,
            "pattern": self.pattern,
            "items": self.items,
        }
        return {keyword: value for keyword, value in said.items() if value is not None}


class ToolResult(BaseModel):
    """What came of a call: ``ToolResult.ok(output)`` or ``ToolResult.fail("why")``.

    ``duration_ms`` is set by whatever ran the tool.
    """

    model_config = ConfigDict(ser_json_inf_nan="constants")  # no JSON: the road says so

    success: bool
    output: Any = None
    error: str | None = None
    duration_ms: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def ok(cls, output: Any = None, **metadata: Any) -> ToolResult:
        return cls(success=True, output=output, metadata=metadata)

    @classmethod
    def fail(cls, error: str, **metadata: Any) -> ToolResult:
        return cls(success=False, error=error, metadata=metadata)

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, however long each took."""
        if not isinstance(other, ToolResult):
            return NotImplemented
        return self._said() == other._said()

    __hash__ = None  # type: ignore[assignment]

    def _said(self) -> tuple[Any, ...]:
        return self.success, self.output, self.error, self.metadata

    def to_display(self) -> str:
        """The output as text, or ``Error:`` and why."""
        return str(self.output) if self.success else f"Error: {self.error}"


class ExecutionContext(BaseModel):
    """What a call is made in. ``permissions`` are the only roles that it has; ``None``: those of
    whoever runs the executor. ``agent_id`` names the agent in records. ``max_output_size``, in
    characters, is for tools to read: nothing enforces it.
    """

    working_dir: str
    session_id: str | None = None
    agent_id: str | None = None
    dry_run: bool = False
    timeout: int | float = TIMEOUT
    max_output_size: int = 100_000
    metadata: dict[str, Any] = Field(default_factory=dict)
    permissions: frozenset[str] | None = None


class ToolExecution(BaseModel):
    """One call of a tool, as ``ToolExecutor.get_executions`` lists it."""

    tool_name: str
    parameters: dict[str, Any]
    context: ExecutionContext
    result: ToolResult
    started_at: datetime
    completed_at: datetime

    @property
    def duration_ms(self) -> float:
        return (self.completed_at - self.started_at).total_seconds() * 1000
