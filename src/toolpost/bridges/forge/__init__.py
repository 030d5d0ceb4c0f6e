"""Tools of the Forge contract, unchanged but for the import: ``from toolpost.bridges.forge import
BaseTool``.

Above: a project that was written for the contract. Below: toolpost's public API, by which its tools
get everything that the road gives.
"""

from toolpost.bridges.forge.base import (
    BaseTool,
    ExecutionContext,
    ToolCategory,
    ToolError,
    ToolExecution,
    ToolParameter,
    ToolResult,
)
from toolpost.bridges.forge.executor import Execution, ToolExecutor
from toolpost.bridges.forge.factory import ToolFactory
from toolpost.bridges.forge.registry import ToolRegistry
from toolpost.bridges.forge.tools import tools, tools_in

__all__ = [
    "BaseTool",
    "Execution",
    "ExecutionContext",
    "ToolCategory",
    "ToolError",
    "ToolExecution",
    "ToolExecutor",
    "ToolFactory",
    "ToolParameter",
    "ToolRegistry",
    "ToolResult",
    "tools",
    "tools_in",
]
