"""Tools of the FaultMaven contract, unchanged but for the import:
``from toolpost.bridges.faultmaven import BaseTool``.

Above: a project that was written for the contract. Below: toolpost's public API, by which its tools
get everything that the road gives.
"""

from toolpost.bridges.faultmaven.container import ToolContainer
from toolpost.bridges.faultmaven.contract import (
    BaseTool,
    TimeoutException,
    ToolExecutionException,
    ToolResult,
    ValidationException,
)
from toolpost.bridges.faultmaven.item import tools, tools_in
from toolpost.bridges.faultmaven.registry import ToolRegistry, register_tool, tool_registry
from toolpost.bridges.faultmaven.sanitizer import DataSanitizer

__all__ = [
    "BaseTool",
    "DataSanitizer",
    "TimeoutException",
    "ToolContainer",
    "ToolExecutionException",
    "ToolRegistry",
    "ToolResult",
    "ValidationException",
    "register_tool",
    "tool_registry",
    "tools",
    "tools_in",
]
