"""What each error code is called at each door: one table for REST, JSON-RPC and the shell.

Above: the doors, which look codes up here and nowhere else. Below: ``errors.py``, which names the
codes. It refuses to know what any of them means to a tool.

The JSON-RPC codes of our own lie outside the range that JSON-RPC and MCP keep for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from toolpost.errors import Code, ConfigError, MissingPart, SetupError

__all__ = ["SETUP_EXIT", "STATUS", "Status", "setup_exit"]


class Status(NamedTuple):
    """HTTP status, JSON-RPC error code, exit code of the command line."""

    http: int
    rpc: int
    exit: int


STATUS: Final[Mapping[Code, Status]] = MappingProxyType(
    {
        "EXECUTION_ERROR": Status(422, -31001, 1),  # the tool could not do it with this input
        "VALIDATION_ERROR": Status(422, -32602, 3),
        "NOT_FOUND": Status(404, -31004, 4),
        "UNAUTHORIZED": Status(403, -31005, 5),  # 401 is for who has not said who they are
        "POLICY_DENIED": Status(403, -31006, 6),
        "APPROVAL_REQUIRED": Status(428, -31007, 7),
        "APPROVAL_DENIED": Status(403, -31008, 8),
        "RATE_LIMITED": Status(429, -31009, 9),
        "QUEUE_FULL": Status(503, -31010, 10),
        "BUDGET_EXCEEDED": Status(429, -31011, 11),
        "OUTPUT_INVALID": Status(502, -31012, 12),
        "OUTPUT_TOO_LARGE": Status(502, -31013, 13),
        "CONFLICT": Status(409, -31014, 14),
        "RESOURCE_LIMIT": Status(500, -31015, 15),
        "UNAVAILABLE": Status(503, -31016, 16),
        "INTERNAL_ERROR": Status(500, -32603, 17),
        "TIMEOUT": Status(504, -31018, 124),  # as timeout(1) says it
        "CANCELLED": Status(499, -31019, 130),  # as a shell says Ctrl-C
    }
)

SETUP_EXIT: Final[Mapping[type[SetupError], int]] = MappingProxyType(
    {ConfigError: 78, MissingPart: 69, SetupError: 65}  # as sysexits.h numbers them
)


def setup_exit(error: SetupError) -> int:
    """The exit code of a definition, a file or a setting that is wrong."""
    return next(SETUP_EXIT[kind] for kind in type(error).__mro__ if kind in SETUP_EXIT)
