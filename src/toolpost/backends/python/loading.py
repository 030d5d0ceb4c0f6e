"""Can a function be found where it would run? Asked inside a worker, before anybody calls it.

Above: ``backend.py``, for the health of a tool that runs in a worker. Below: the tool's module.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def problem(module: str, function: str) -> str | None:
    """Why the function cannot be loaded, or nothing."""
    try:
        found: Any = import_module(module)
        for name in function.split("."):
            found = getattr(found, name)
    except BaseException as exc:  # noqa: BLE001 - a module may raise anything while it is imported
        return f"{type(exc).__name__}: {exc}"
    return None if callable(found) else f"{module}.{function} is not a function"
