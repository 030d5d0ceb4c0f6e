"""The unified executor's contract: specs as data, one ``execute``, extensions with priorities.

``from toolpost.bridges.unified import ToolSpec, ToolSpecRegistry, UnifiedToolExecutor``. Its specs
are ours in other words, its extensions rings of ours, its executor our road: ``tools`` brings its
tools into a ``Registry`` or a ``Runtime``, and ``ExtensionManager.rings`` its extensions.
"""

from toolpost.bridges.unified.builtin import (
    ApprovalExtension,
    ApprovalMode,
    AuditExtension,
    AuthExtension,
    LoggingExtension,
    MetricsExtension,
    RateLimitExtension,
)
from toolpost.bridges.unified.context import ToolContext
from toolpost.bridges.unified.executor import (
    ToolExecutor,
    UnifiedToolExecutor,
    backends,
    tools,
    tools_in,
)
from toolpost.bridges.unified.extending import (
    Extension,
    ExtensionManager,
    ExtensionPriority,
    Rings,
)
from toolpost.bridges.unified.registry import (
    DatabaseLoader,
    FileLoader,
    HttpLoader,
    ToolSpecRegistry,
)
from toolpost.bridges.unified.specs import ToolMetadata, ToolSpec, ToolType, from_spec
from toolpost.extensions.access import Grant
from toolpost.result import Result

__all__ = [
    "ApprovalExtension",
    "ApprovalMode",
    "AuditExtension",
    "AuthExtension",
    "DatabaseLoader",
    "Extension",
    "ExtensionManager",
    "ExtensionPriority",
    "FileLoader",
    "Grant",
    "HttpLoader",
    "LoggingExtension",
    "MetricsExtension",
    "RateLimitExtension",
    "Result",
    "Rings",
    "ToolContext",
    "ToolExecutor",
    "ToolMetadata",
    "ToolSpec",
    "ToolSpecRegistry",
    "ToolType",
    "UnifiedToolExecutor",
    "backends",
    "from_spec",
    "tools",
    "tools_in",
]
