"""The event loop of commands that serve: uvloop's, where it is installed; and its quiet."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from importlib import import_module
from typing import Any


def run(work: Coroutine[Any, Any, None]) -> None:
    try:
        factory = import_module("uvloop").new_event_loop
    except ModuleNotFoundError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


def settled() -> None:
    """What is there when serving begins stays: the garbage collector need not look through it over
    and over, while everybody waits.
    """
    gc.freeze()
