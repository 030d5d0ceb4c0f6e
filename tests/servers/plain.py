"""An MCP server in one file, without the SDK: what a program of one's own may look like.

It does one thing at a time, speaks the handshake only, and tells of changes of its list at moments
of its own choice. Whoever wants it to stand alone copies it, with a first line that names a Python.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ["read", "grow", "hang"]
ABOUT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "plain", "version": "1"},
}
growing = 0


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def grow() -> None:
    """One tool more, and whoever is there is told."""
    NAMES.append(f"grown{len(NAMES)}")
    say(method="notifications/tools/list_changed")


def called(name: str, arguments: dict[str, Any]) -> str:
    global growing
    if name == "read":
        try:
            return Path(arguments["path"]).read_text()
        except OSError as fault:
            return type(fault).__name__
    if name == "grow":
        growing = 2  # times that the list is asked for, until it grows once more
        grow()
    if name == "hang":
        time.sleep(600)
    return "done"


def main() -> None:
    global growing
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        params, number = asked.get("params") or {}, asked["id"]
        if asked["method"] == "initialize":
            say(id=number, result=ABOUT)
        elif asked["method"] == "ping":
            say(id=number, result={})
        elif asked["method"] == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
            say(id=number, result={"tools": tools})
            growing -= 1
            if growing == 0:  # the last change is still being looked at
                grow()
        elif asked["method"] == "tools/call":
            text = called(params["name"], params.get("arguments") or {})
            say(id=number, result={"content": [{"type": "text", "text": text}]})
        else:
            say(id=number, error={"code": -32601, "message": "no such method"})


if __name__ == "__main__":
    main()
