"""A module that cannot be forked: it starts a thread when it is imported."""

from __future__ import annotations

import threading
from typing import Any

from tests.backends import state_tools

_never = threading.Event()
threading.Thread(target=_never.wait, daemon=True).start()


def run_code(code: str) -> Any:
    """Run a caller's code."""
    return state_tools.run_code(code)


def greet(name: str) -> str:
    """Greet somebody."""
    return state_tools.greet(name)
