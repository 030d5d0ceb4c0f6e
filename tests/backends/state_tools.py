"""Tools that show what a call leaves in a worker for the next caller, and one that runs code."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

heard: list[str] = []
served = 0


def run_code(code: str) -> Any:
    """Run a caller's code, and return what it calls ``answer``."""
    names: dict[str, Any] = {}
    exec(code, names)
    return names.get("answer")


def greet(name: str) -> str:
    """Greet somebody."""
    return _hello(name)


def _hello(name: str) -> str:
    return str(json.loads(json.dumps(f"Hello {name}")))


def serve() -> list[int]:
    """The process, and how many calls it has served."""
    global served
    served += 1
    return [os.getpid(), served]


def wait_for(file: str) -> str:
    """Note that it runs, and return once the file is there."""
    Path(f"{file}.{os.getpid()}.{time.monotonic_ns()}").touch()
    while not Path(file).exists():
        time.sleep(0.01)
    return "waited"


def nap(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return "rested"
