"""toolpost: one tool system for AI agents.

A tool is described once, as data; any kind of tool runs through one governed call path.

Each name is imported when it is first used: the command line's help and a worker process need few.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from toolpost.authoring import (
        FunctionTool,
        Tool,
        ToolOptions,
        create_tool,
        tool,
        validate_tool_input,
        validate_tool_output,
    )
    from toolpost.call import Call, Caller, Progress
    from toolpost.config import Config
    from toolpost.contracts import Check, Health, Ring, Walk, Watch
    from toolpost.errors import (
        ApprovalDenied,
        ApprovalRequired,
        BudgetExceeded,
        CallError,
        Cancelled,
        ConfigError,
        Conflict,
        Denied,
        InternalError,
        InvalidArguments,
        InvalidOutput,
        InvalidSchema,
        InvalidSpec,
        MissingPart,
        NameTaken,
        OutputTooLarge,
        QueueFull,
        RateLimited,
        ResourceLimit,
        SetupError,
        SourceError,
        TimedOut,
        ToolFailed,
        ToolNotFound,
        ToolpostError,
        Unauthorized,
        Unavailable,
    )
    from toolpost.executor import Executor
    from toolpost.registry import Registry
    from toolpost.result import (
        Audio,
        Failure,
        Image,
        Metadata,
        Notice,
        Output,
        Part,
        Resource,
        Result,
        Text,
    )
    from toolpost.runtime import Runtime
    from toolpost.schema import register_schemas
    from toolpost.signature import Given, Injected, Secret
    from toolpost.spec import Cache, Limits, Permissions, Retry, ToolSpec

__version__ = "0.1.0"

__all__ = [
    "ApprovalDenied",
    "ApprovalRequired",
    "Audio",
    "BudgetExceeded",
    "Cache",
    "Call",
    "CallError",
    "Caller",
    "Cancelled",
    "Check",
    "Config",
    "ConfigError",
    "Conflict",
    "Denied",
    "Executor",
    "Failure",
    "FunctionTool",
    "Given",
    "Health",
    "Image",
    "Injected",
    "InternalError",
    "InvalidArguments",
    "InvalidOutput",
    "InvalidSchema",
    "InvalidSpec",
    "Limits",
    "Metadata",
    "MissingPart",
    "NameTaken",
    "Notice",
    "Output",
    "OutputTooLarge",
    "Part",
    "Permissions",
    "Progress",
    "QueueFull",
    "RateLimited",
    "Registry",
    "Resource",
    "ResourceLimit",
    "Result",
    "Retry",
    "Ring",
    "Runtime",
    "Secret",
    "SetupError",
    "SourceError",
    "Text",
    "TimedOut",
    "Tool",
    "ToolFailed",
    "ToolNotFound",
    "ToolOptions",
    "ToolSpec",
    "ToolpostError",
    "Unauthorized",
    "Unavailable",
    "Walk",
    "Watch",
    "create_tool",
    "register_schemas",
    "tool",
    "validate_tool_input",
    "validate_tool_output",
]

_HOMES: Final = {
    "toolpost.call": "Call Caller Progress",
    "toolpost.config": "Config",
    "toolpost.contracts": "Check Health Ring Walk Watch",
    "toolpost.errors": (
        "ApprovalDenied ApprovalRequired BudgetExceeded CallError Cancelled ConfigError "
        "Conflict Denied InternalError InvalidArguments InvalidOutput InvalidSchema "
        "InvalidSpec MissingPart NameTaken OutputTooLarge QueueFull RateLimited "
        "ResourceLimit SetupError SourceError TimedOut ToolFailed ToolNotFound "
        "ToolpostError Unauthorized Unavailable"
    ),
    "toolpost.executor": "Executor",
    "toolpost.registry": "Registry",
    "toolpost.result": "Audio Failure Image Metadata Notice Output Part Resource Result Text",
    "toolpost.runtime": "Runtime",
    "toolpost.schema": "register_schemas",
    "toolpost.signature": "Given Injected Secret",
    "toolpost.spec": "Cache Limits Permissions Retry ToolSpec",
    "toolpost.authoring": (
        "FunctionTool Tool ToolOptions create_tool tool validate_tool_input validate_tool_output"
    ),
}
_HOME: Final = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
