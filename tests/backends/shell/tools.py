"""Shell tools as the tests write them, and an executor that lets them run unconfined."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolpost import Executor, Registry, ToolSpec

PROGRAMS = ("cat", "env", "head", "ls", "printf", "pwd", "sh", "sleep", "yes")
"""Nothing that destroys: payloads lead out of folders, and most tests here run unconfined."""
TEXT = {"type": "string"}
SHOW = ["sh", "-c", r"""printf '%s\0' "$@" """, "sh"]
"""Prints the words behind it, each with a NUL at its end."""


def schema(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in required} | properties,
        "required": list(required),
        "additionalProperties": False,
    }


def shell(command: Any, *required: str, **options: Any) -> ToolSpec:
    """A tool whose parameters are texts; what is no field of a spec goes into its binding."""
    fields = {k: options.pop(k) for k in tuple(options) if k in ToolSpec.__struct_fields__}
    given: dict[str, Any] = {
        "name": "it",
        "description": "A program.",
        "kind": "shell",
        "isolation": "process",
        "input_schema": schema(*required),
        **fields,
    }
    return ToolSpec(**given, binding={"command": command, **options})


def executor(*specs: Any, programs: Iterable[str] = PROGRAMS) -> Executor:
    return Executor(Registry(list(specs)), settings={"shell": {"programs": list(programs)}})
