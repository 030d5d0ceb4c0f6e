"""toolpost's gateway as a user has it: a module with a tool, a config, and ``toolpost serve``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.children import run

TOOLPOST = str(Path(sys.executable).parent / "toolpost")
MODULE = '''\
from toolpost import tool


@tool(tier=0, effects="read")
async def add(a: int, b: int) -> int:
    """Add two integers.

    Args:
        a: first addend
        b: second addend
    """
    return a + b
'''
CONFIG = """\
[[sources]]
kind = "modules"
modules = ["adding"]
"""
KEYS = """
[gateway.auth]
keys = true
"""


def command(folder: Path, *, keys: bool) -> list[str]:
    """What serves this folder, which is made here."""
    folder.mkdir()
    (folder / "adding.py").write_text(MODULE)
    (folder / "toolpost.toml").write_text(CONFIG + (KEYS if keys else ""))
    return [*_toolpost(folder), "serve", "--port", "0", "--json"]


def key(folder: Path) -> str:
    """A new API key of the gateway there."""
    done = run(*_toolpost(folder), "keys", "create", "benchmarks", "--json")
    text: str = json.loads(done.stdout)["key"]
    return text


def _toolpost(folder: Path) -> list[str]:
    return [TOOLPOST, "--config", str(folder / "toolpost.toml")]
