"""The FaultMaven contract: ``BaseTool``, ``ToolResult`` and the three exceptions.

Above: ``item.py``, which makes a tool of ours of one. The exceptions are errors of ours under the
document's names, so that one which a tool raises says on the road what it means there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from toolpost import InvalidArguments, TimedOut, ToolFailed
from toolpost.authoring import SpecOptions


class ToolResult(BaseModel):
    """``ToolResult(success=True, data=…)``, or ``ToolResult(success=False, error="why")``.

    ``warnings`` is what the pipeline has to say of a call: that another tool stood in, for example.
    ``retry_after`` is the cooldown of a rate limit in seconds; a tool may set it, and reads it in
    what others return. The contract has no such fields, so they are written down only where there
    is something in them.
    """

    model_config = ConfigDict(ser_json_inf_nan="constants")  # no JSON: the road says so

    success: bool
    data: Any = None
    error: str | None = None
    warnings: tuple[str, ...] = ()
    retry_after: float | None = None

    def __init__(
        self,
        success: bool,
        data: Any = None,
        error: str | None = None,
        warnings: Sequence[str] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(
            success=success, data=data, error=error, warnings=warnings, retry_after=retry_after
        )

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        if not self.success and not (self.error and self.error.strip()):
            raise ValueError("a failure says why: error is required where success is False")
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        if not self.warnings:
            written.pop("warnings", None)
        if self.retry_after is None:
            written.pop("retry_after", None)
        return written


class ToolExecutionException(ToolFailed):
    """The tool could not do it; the message is for the agent."""

    def __init__(self, message: str = "The tool could not do it.") -> None:
        super().__init__(message)


class ValidationException(InvalidArguments):
    """The parameters will not do."""

    def __init__(self, message: str = "The parameters do not fit this tool.") -> None:
        super().__init__(message)


class TimeoutException(TimedOut):
    """What the tool waited for took too long."""

    def __init__(self, message: str = "Operation timed out.") -> None:
        super().__init__(message)


class BaseTool(ABC):
    """Write ``execute`` and ``get_schema``.

    ``REQUIRES_CONFIRMATION``: a person is asked before it runs. ``TOOLPOST`` says what the contract
    has no words for: ``{"tier": 0, "effects": "read", "fallback": "local_search"}``.
    """

    REQUIRES_CONFIRMATION: ClassVar[bool] = False
    TOOLPOST: ClassVar[SpecOptions] = {}

    @abstractmethod
    async def execute(self, params: dict[str, Any]) -> ToolResult:
        """Do it; the parameters fit the schema."""

    @abstractmethod
    def get_schema(self) -> dict[str, Any]:
        """``name``, ``description`` and ``parameters``, a JSON Schema; where it applies also
        ``examples``, ``context_aware`` and ``requires_confirmation``.
        """
