"""The Nachos contract: tools with tiers, modes, manifests and a runner, on the road of toolpost.

``Tool`` is the protocol of a tool, ``tools`` brings such tools into a registry, ``ToolRunner``
answers messages. Each name is imported when it is first used: a tool in a sandbox needs few.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from toolpost.bridges.nachos.bringing import tools, tools_in
    from toolpost.bridges.nachos.browser import BrowserTool
    from toolpost.bridges.nachos.builtin import CalculatorTool, FilesystemTool
    from toolpost.bridges.nachos.config import ToolConfig, ToolLimits
    from toolpost.bridges.nachos.contract import (
        HealthStatus,
        ParameterSchema,
        SecurityTier,
        Tool,
        ToolError,
        ToolMetadata,
        ToolParameters,
        ToolResult,
        ValidationResult,
    )
    from toolpost.bridges.nachos.manifest import Manifest
    from toolpost.bridges.nachos.runner import ToolRunner

__all__ = [
    "BrowserTool",
    "CalculatorTool",
    "FilesystemTool",
    "HealthStatus",
    "Manifest",
    "ParameterSchema",
    "SecurityTier",
    "Tool",
    "ToolConfig",
    "ToolError",
    "ToolLimits",
    "ToolMetadata",
    "ToolParameters",
    "ToolResult",
    "ToolRunner",
    "ValidationResult",
    "tools",
    "tools_in",
]

_HOMES: Final = {
    "bringing": "tools tools_in",
    "browser": "BrowserTool",
    "builtin": "CalculatorTool FilesystemTool",
    "config": "ToolConfig ToolLimits",
    "contract": (
        "HealthStatus ParameterSchema SecurityTier Tool ToolError ToolMetadata ToolParameters "
        "ToolResult ValidationResult"
    ),
    "manifest": "Manifest",
    "runner": "ToolRunner",
}
_HOME: Final = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value
