"""Runs a tool of the Nachos contract in a process of its own: what a manifest's sandbox calls.

Above: ``bringing.py`` names this in the binding of a spec; a worker imports it by that name. Below:
``calling.py``. The tool is made on the first call, and told its secrets by the names of variables,
which are all that the worker has of the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from inspect import isawaitable
from typing import Any, Final

import msgspec

from toolpost import Call, Given, create_tool
from toolpost.bridges.nachos.calling import executed, judged, params_of, prepared, refuse
from toolpost.bridges.nachos.config import ToolConfig, limits_from
from toolpost.contracts import Mode
from toolpost.environ import secret


class Brought(msgspec.Struct, frozen=True):
    """Where a tool's class is, and what it is told."""

    module: str
    kind: str
    config: dict[str, Any]
    limits: dict[str, Any]
    mode: Mode
    secrets: tuple[str, ...]
    base: str


_ready: Final[dict[bytes, tuple[Any, ToolConfig]]] = {}


async def _execute(arguments: Mapping[str, Any], *, call: Call, brought: Given[Brought]) -> Any:
    tool, config = await _made(brought)
    refuse(tool, arguments)
    begun = tool.execute(params_of(arguments, call))
    if isawaitable(begun):
        return await executed(begun, call, config)
    return judged(begun, call, config)


async def _made(brought: Brought) -> tuple[Any, ToolConfig]:
    key = msgspec.json.encode(brought)
    if key not in _ready:
        found: Any = import_module(brought.module)
        for name in brought.kind.split("."):
            found = getattr(found, name)
        tool = found()
        config = ToolConfig(
            brought.config,
            {name: secret(name) or "" for name in brought.secrets},
            security_mode=brought.mode,
            limits=limits_from(brought.limits),
            base=brought.base,
        )
        await prepared(tool, config)
        _ready[key] = tool, config
    return _ready[key]


execute = create_tool(
    "nachos_tool",
    "Run a tool of the Nachos contract.",
    _execute,
    input_schema={"type": "object"},
)
"""A worker finds it here, and its parameters in the spec that the call came with."""
