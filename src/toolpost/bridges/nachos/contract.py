"""The values and the protocol of the Nachos contract, in Python's spelling.

Fields keep their names on the wire: ``to_dict`` gives what the bus carries. Above: everything in
this folder. Below: ``result``, ``errors``. It refuses to know who calls a tool, and how.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from enum import IntEnum
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from toolpost.bridges.nachos.config import ToolConfig
from toolpost.errors import BY_CODE
from toolpost.result import Failure, Result

SESSION: Final = "sessionId"
CALL: Final = "callId"
IDS: Final = (SESSION, CALL)
FOREIGN: Final = "nachos_code"
"""Where the details of an error keep a code that is the tool's own."""

ToolParameters = Mapping[str, Any]
"""``sessionId``, ``callId`` and the tool's own parameters."""
ParameterSchema = Mapping[str, Any]
"""A JSON Schema of type object, without the two ids."""


class SecurityTier(IntEnum):
    """How dangerous a tool is: with the security mode it gives allow, ask or deny."""

    SAFE = 0
    STANDARD = 1
    ELEVATED = 2
    RESTRICTED = 3
    DANGEROUS = 4


class _Wire(msgspec.Struct, frozen=True, omit_defaults=True):
    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class ValidationResult(_Wire, frozen=True):
    valid: bool
    errors: list[str] | None = None


class HealthStatus(_Wire, frozen=True):
    healthy: bool
    error: str | None = None


class ToolError(_Wire, frozen=True):
    code: str
    message: str
    details: Any = None


class ToolMetadata(_Wire, frozen=True):
    """``duration`` is in milliseconds."""

    duration: float
    cached: bool | None = None
    warnings: list[str] | None = None


class ToolResult(_Wire, frozen=True):
    success: bool
    result: Any = None
    error: ToolError | None = None
    metadata: ToolMetadata | None = None


@runtime_checkable
class Tool(Protocol):
    """What every tool has. What is asynchronous may as well be a plain function; what is returned
    may as well be a mapping of the same shape. A tool with ``close`` is closed at the end.
    """

    @property
    def tool_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def security_tier(self) -> int: ...
    @property
    def parameters(self) -> ParameterSchema: ...

    def initialize(self, config: ToolConfig) -> Awaitable[None]: ...

    def execute(self, params: ToolParameters) -> Awaitable[ToolResult]: ...

    def validate(self, params: ToolParameters) -> ValidationResult: ...

    def health_check(self) -> Awaitable[HealthStatus]: ...


def arguments_of(params: ToolParameters) -> dict[str, Any]:
    """The tool's own parameters."""
    return {name: value for name, value in params.items() if name not in IDS}


def result_of(result: Result) -> ToolResult:
    """What came back from the road, as the contract has it."""
    about = result.metadata
    return ToolResult(
        result.success,
        _with_parts(result) if result.success else None,
        None if result.error is None else _error(result.error),
        ToolMetadata(
            round(about.duration_ms, 3), about.cached or None, list(about.warnings) or None
        ),
    )


def _with_parts(result: Result) -> Any:
    """Pictures and other parts stand in the result, in base64: the contract has no other place."""
    output = result.output
    if not result.own_parts:
        return output
    parts = msgspec.to_builtins(list(result.own_parts))
    own = output if isinstance(output, dict) else {} if output is None else {"output": output}
    return {**own, "parts": parts}


def _error(failure: Failure) -> ToolError:
    details = failure.details
    if details is not None and FOREIGN in details:
        code = details[FOREIGN]
        if isinstance(code, str) and code not in BY_CODE:  # the road's words are the road's
            return ToolError(code, failure.message, details.get("details"))
    message = failure.message if details is None else _joined(failure.message, details)
    return ToolError(failure.code, message, None if details is None else dict(details))


def _joined(message: str, details: Mapping[str, Any]) -> str:
    """Several faults of the parameters in one text, as the contract joins them."""
    faults = details.get("faults")
    if not isinstance(faults, list) or len(faults) < 2:
        return message
    return ", ".join(map(_fault, faults))


def _fault(fault: Mapping[str, Any]) -> str:
    at, problem = fault.get("at"), fault.get("problem", "")
    allowed = fault.get("allowed")
    text = f"{at}: {problem}" if at else str(problem)
    return f"{text} ({', '.join(map(str, allowed))})" if allowed else text
