"""Every way to fail, in one tree.

    ToolpostError
    ├── CallError                 one call failed; becomes ``Result.error``
    │   ├── InvalidArguments      VALIDATION_ERROR   fix_args
    │   ├── ToolNotFound          NOT_FOUND          other_tool
    │   ├── Unauthorized          UNAUTHORIZED       reauth
    │   ├── Denied                POLICY_DENIED      stop
    │   ├── ApprovalRequired      APPROVAL_REQUIRED  ask_approval
    │   ├── ApprovalDenied        APPROVAL_DENIED    stop
    │   ├── RateLimited           RATE_LIMITED       wait
    │   ├── QueueFull             QUEUE_FULL         wait
    │   ├── BudgetExceeded        BUDGET_EXCEEDED    stop
    │   ├── TimedOut              TIMEOUT            other_tool
    │   ├── Cancelled             CANCELLED          stop
    │   ├── Unavailable           UNAVAILABLE        wait
    │   ├── InvalidOutput         OUTPUT_INVALID     other_tool
    │   ├── OutputTooLarge        OUTPUT_TOO_LARGE   fix_args
    │   ├── Conflict              CONFLICT           stop
    │   ├── ResourceLimit         RESOURCE_LIMIT     other_tool
    │   ├── ToolFailed            EXECUTION_ERROR    fix_args
    │   └── InternalError         INTERNAL_ERROR     other_tool
    └── SetupError                a definition, a file or a setting is wrong
        ├── InvalidSpec           a tool that cannot be registered as it stands
        │   └── InvalidSchema     … because of its JSON Schema
        ├── NameTaken             … because the name belongs to another tool
        ├── SourceError           a source that cannot be read; says file:line:column
        ├── ConfigError           toolpost.toml or the environment
        └── MissingPart           an extra, a plugin or a feature of the system is not there

A tool raises :class:`ToolFailed` to speak to the model. Everything else a tool raises is an
:class:`InternalError` to the caller and a traceback in the log. Messages of call errors are read
by models: they say what to do next and carry no internals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

Code = Literal[
    "VALIDATION_ERROR",
    "NOT_FOUND",
    "UNAUTHORIZED",
    "POLICY_DENIED",
    "APPROVAL_REQUIRED",
    "APPROVAL_DENIED",
    "RATE_LIMITED",
    "QUEUE_FULL",
    "BUDGET_EXCEEDED",
    "TIMEOUT",
    "CANCELLED",
    "UNAVAILABLE",
    "OUTPUT_INVALID",
    "OUTPUT_TOO_LARGE",
    "CONFLICT",
    "RESOURCE_LIMIT",
    "EXECUTION_ERROR",
    "INTERNAL_ERROR",
]
Remedy = Literal["fix_args", "wait", "reauth", "ask_approval", "other_tool", "stop"]
Outcome = Literal["none", "unknown", "done"]
"""What is known of a failed call's side effects."""


class ToolpostError(Exception):
    """The root: catch it to catch everything toolpost raises on purpose."""


class CallError(ToolpostError):
    """One call failed. The class gives the defaults, an instance may say more."""

    code: ClassVar[Code] = "INTERNAL_ERROR"
    remedy: Remedy = "other_tool"
    retryable: bool = False
    effects: Outcome = "none"

    def __init__(
        self,
        message: str,
        *,
        retryable: bool | None = None,
        retry_after: float | None = None,
        remedy: Remedy | None = None,
        effects: Outcome | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = str(message)  # an exception is often handed in as it was caught
        self.retry_after = retry_after
        self.details = details
        if retryable is not None:
            self.retryable = retryable
        if remedy is not None:
            self.remedy = remedy
        self._effects_said = effects is not None
        if effects is not None:
            self.effects = effects

    def of_a_run(self) -> CallError:
        """As raised by a run: unless it says so itself, nobody knows that there were no effects."""
        if self.effects == "none" and not self._effects_said:
            self.effects = "unknown"
        return self


class InvalidArguments(CallError):
    """The arguments do not fit the input schema; ``details["faults"]`` names every fault."""

    code = "VALIDATION_ERROR"
    remedy = "fix_args"


class ToolNotFound(CallError):
    code = "NOT_FOUND"
    remedy = "other_tool"


class Unauthorized(CallError):
    code = "UNAUTHORIZED"
    remedy = "reauth"


class Denied(CallError):
    code = "POLICY_DENIED"
    remedy = "stop"


class ApprovalRequired(CallError):
    code = "APPROVAL_REQUIRED"
    remedy = "ask_approval"


class ApprovalDenied(CallError):
    code = "APPROVAL_DENIED"
    remedy = "stop"


class RateLimited(CallError):
    code = "RATE_LIMITED"
    remedy = "wait"
    retryable = True


class QueueFull(CallError):
    code = "QUEUE_FULL"
    remedy = "wait"
    retryable = True


class BudgetExceeded(CallError):
    code = "BUDGET_EXCEEDED"
    remedy = "stop"


class TimedOut(CallError):
    code = "TIMEOUT"
    remedy = "other_tool"
    retryable = True
    effects = "unknown"


class Cancelled(CallError):
    """The caller went away; ``asyncio.CancelledError`` is what travels, this is how it reads."""

    code = "CANCELLED"
    remedy = "stop"
    effects = "unknown"


PART: Final = "part"
"""In the details of ``Unavailable``: which part of this installation is away (``store``,
``audit``), if it is not what is behind a tool."""


class Unavailable(CallError):
    """What runs the tool is not there right now: a dead worker, a closed port, a full pool."""

    code = "UNAVAILABLE"
    remedy = "wait"
    retryable = True


class InvalidOutput(CallError):
    code = "OUTPUT_INVALID"
    remedy = "other_tool"
    effects = "done"


class OutputTooLarge(CallError):
    code = "OUTPUT_TOO_LARGE"
    remedy = "fix_args"
    effects = "done"


class Conflict(CallError):
    code = "CONFLICT"
    remedy = "stop"


class ResourceLimit(CallError):
    """The tool ran into its memory, processor, process or file limit."""

    code = "RESOURCE_LIMIT"
    remedy = "other_tool"
    effects = "unknown"


class ToolFailed(CallError):
    """Raise it in a tool: its message is what the model reads."""

    code = "EXECUTION_ERROR"
    remedy = "fix_args"
    effects = "unknown"


class InternalError(CallError):
    code = "INTERNAL_ERROR"
    remedy = "other_tool"
    effects = "unknown"


BY_CODE: Final[Mapping[str, type[CallError]]] = {
    error.code: error for error in CallError.__subclasses__()
}
"""For who has only the code of an error, from another process or from a result."""
SAYABLE: Final[Mapping[str, type[CallError]]] = {
    error.code: error
    for error in (
        Conflict, InvalidArguments, RateLimited, ResourceLimit, TimedOut, ToolFailed, ToolNotFound,
        Unauthorized, Unavailable,
    )
}  # fmt: skip
"""What a program or a service can mean by its status; the other codes are the road's."""


class SetupError(ToolpostError):
    """A definition, a file or a setting is wrong. The message says where and what to change.

    ``at`` is the path of the offending value inside the definition, so that a source can turn
    it into a file, line and column.
    """

    def __init__(self, message: str, *, at: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


class InvalidSpec(SetupError):
    pass


class InvalidSchema(InvalidSpec):
    pass


class NameTaken(SetupError):
    pass


class SourceError(SetupError):
    pass


class ConfigError(SetupError):
    pass


class MissingPart(SetupError):
    pass
