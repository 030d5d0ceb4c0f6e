"""The AgenticFramework contract: ``create_tool(ToolConfig(…))``, its errors and built-in tools.

Such tools go into a registry as they are; ``Agent`` runs them as the document has it. Each name is
imported when it is first used: a worker needs few, and the web tools need an extra.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from toolpost.authoring import validate_tool_input, validate_tool_output
    from toolpost.bridges.agentic.agent import Agent, Attempt, execute_tool
    from toolpost.bridges.agentic.builtin import (
        calculator_tool,
        file_tools,
        list_directory_tool,
        read_file_tool,
        write_file_tool,
    )
    from toolpost.bridges.agentic.contract import (
        Tool,
        ToolAuthorizationError,
        ToolConfig,
        ToolError,
        ToolExecutionError,
        ToolInput,
        ToolOutput,
        ToolTimeoutError,
        ToolValidationError,
        create_tool,
        tools,
        tools_in,
    )
    from toolpost.bridges.agentic.web import (
        SearchConfig,
        SearchEngine,
        web_scraper_at,
        web_scraper_tool,
        web_search_tool,
        wikipedia_at,
        wikipedia_tool,
    )

__all__ = [
    "Agent",
    "Attempt",
    "SearchConfig",
    "SearchEngine",
    "Tool",
    "ToolAuthorizationError",
    "ToolConfig",
    "ToolError",
    "ToolExecutionError",
    "ToolInput",
    "ToolOutput",
    "ToolTimeoutError",
    "ToolValidationError",
    "calculator_tool",
    "create_tool",
    "execute_tool",
    "file_tools",
    "list_directory_tool",
    "read_file_tool",
    "tools",
    "tools_in",
    "validate_tool_input",
    "validate_tool_output",
    "web_scraper_at",
    "web_scraper_tool",
    "web_search_tool",
    "wikipedia_at",
    "wikipedia_tool",
    "write_file_tool",
]

_HOMES: Final = {
    "toolpost.authoring": "validate_tool_input validate_tool_output",
    f"{__name__}.agent": "Agent Attempt execute_tool",
    f"{__name__}.builtin": (
        "calculator_tool file_tools list_directory_tool read_file_tool write_file_tool"
    ),
    f"{__name__}.contract": (
        "Tool ToolAuthorizationError ToolConfig ToolError ToolExecutionError ToolInput ToolOutput "
        "ToolTimeoutError ToolValidationError create_tool tools tools_in"
    ),
    f"{__name__}.web": (
        "SearchConfig SearchEngine web_scraper_at web_scraper_tool web_search_tool wikipedia_at "
        "wikipedia_tool"
    ),
}
_HOME: Final = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value
