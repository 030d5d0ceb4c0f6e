"""Anthropic's form of a tool, with the spec's examples.

Above: ``export``, by name. Below: ``roots``, ``keys`` and ``strict``.
"""

from __future__ import annotations

from typing import Any, Final

from toolpost.exporters.keys import STRICTEST, keys_of, renamed, respelled
from toolpost.exporters.names import Rule
from toolpost.exporters.roots import rooted
from toolpost.exporters.strict import ANTHROPIC as DIALECT
from toolpost.exporters.strict import strictly
from toolpost.exporters.values import Form, Tell
from toolpost.schema import Schema
from toolpost.spec import ToolSpec


def _tool(spec: ToolSpec, name: str, *, strict: bool, tell: Tell) -> dict[str, Any]:
    schema, spelled = respelled(rooted(spec.input_schema, tell), STRICTEST, tell)
    tool: dict[str, Any] = {"name": name, "description": spec.description, "input_schema": schema}
    if strict and (strictest := strictly(schema, DIALECT, tell)) is not None:
        tool |= {"input_schema": strictest, "strict": True}
    if examples := _fitting([renamed(one, spelled) for one in spec.examples], tool["input_schema"]):
        tool["input_examples"] = examples
    return tool


def _fitting(examples: list[dict[str, Any]], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The examples that may be sent: a request with one that does not fit is refused."""
    checker = Schema(schema)
    return [one for one in examples if not checker.faults(one)]


ANTHROPIC: Final = Form(
    write=_tool, names=Rule(legal=r"[A-Za-z0-9_-]+", most=128), strict=True, keys=keys_of
)
