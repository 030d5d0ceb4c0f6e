"""What the two wires have in common, and what can be said of them without the SDK."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

MOST_MESSAGE: Final = 16 * 1024 * 1024
"""Bytes of one message: a tool's largest output, said twice and escaped."""
FLOODED: Final = f"it sent more than {MOST_MESSAGE // 1024 // 1024} MiB in one message"
IDLE: Final = "idle"
UNAUTHORIZED: Final = "unauthorized"
"""Two reasons for which a session is over."""

Streams = tuple[Any, Any]
"""Where messages are read from and where they are written to, as the SDK's sessions take them."""

Over = Callable[[str], None]
"""Hears that a server has gone, and its last words, if it had any."""

Wire = Callable[[Over], AbstractAsyncContextManager[Streams]]


class Forgotten(Exception):
    """The session is over, or the server does not know it any more: nothing was done, and a new one
    is due.
    """
