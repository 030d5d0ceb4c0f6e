"""The table ``[gateway.mcp]``: how much an MCP client may take, and whether its word is a yes.

Above: the gateway's settings, and the server. Below: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolpost.options import Options, options_from

_MOST_SECONDS: Final = 7 * 86_400.0


class McpSettings(Options, frozen=True, kw_only=True):
    """Times are seconds."""

    page: int = 250
    """Tools in one page of a list."""
    list_ttl: float = 60.0
    """That a client may keep a list without asking again."""
    sessions: int = 1000
    """Of clients that begin with a handshake, at once."""
    sessions_each: int = 250
    """The same, of one caller: nobody takes them all."""
    session_idle: float = 1800.0
    """After which such a session is forgotten."""
    questions: int = 100
    """Calls that may wait at once for the answer to a question of theirs."""
    questions_each: int = 25
    """The same, of one caller."""
    patience: float = 300.0
    """That such a call waits."""
    task: float = 60.0
    """A tool that may take so long is called as a task, by clients that can do with that."""
    approve: bool = False
    """Whether a yes in a client's own dialog approves a call. The gateway cannot see who answers
    there: it may be the program that asks. Without it the dialog only says where to approve.
    """

    def __post_init__(self) -> None:
        for name in ("page", "sessions", "sessions_each", "questions", "questions_each"):
            if not 1 <= getattr(self, name) <= 1_000_000:
                raise ValueError(f"{name} must be 1 to 1,000,000")
        for name in ("session_idle", "patience", "task"):
            if not 0 < getattr(self, name) <= _MOST_SECONDS:
                raise ValueError(f"{name} is a number of seconds, up to 7 days")
        if not 0 <= self.list_ttl <= _MOST_SECONDS:
            raise ValueError("list_ttl is a number of seconds, up to 7 days")


def settings_from(table: Mapping[str, Any]) -> McpSettings:
    """The table as a value, or a ``ConfigError``."""
    return options_from(table, McpSettings, "gateway mcp")
