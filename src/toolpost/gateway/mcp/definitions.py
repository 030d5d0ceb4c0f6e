"""Specs as MCP shows them: definitions of tools, with hints from tier and effects.

Above: the lists, and the calls, which answer in the form that was promised. Below: specs. Nothing
here imports the SDK. Every name that a spec may have is legal in MCP, so names stay as they are.

Revisions before the last want objects as structured output: what is none is wrapped, under
``result``, for all of them alike, as the SDK's own servers do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from toolpost.spec import ToolSpec, is_external

RESULT: Final = "result"
_INSIDE: Final = f"#/properties/{RESULT}"
NEEDS: Final = "mcp.client"
"""The label that names what a client must be able to do, to call the tool: ``sampling``."""
_HEADER: Final = "x-mcp-header"
_DESTRUCTIVE: Final = 2


class Definition(msgspec.Struct, frozen=True):
    """A tool as it is shown, and what that promises."""

    spec: ToolSpec
    shown: Mapping[str, Any]
    wrapped: bool
    promised: bool
    """There is a schema of the output."""
    headers: bool
    """Some argument has to be repeated in a header."""
    needs: tuple[str, ...]


class Definitions:
    """Made once for each spec."""

    def __init__(self, spec_of: Callable[[str], ToolSpec | None]) -> None:
        self._spec_of = spec_of
        self._made: dict[str, Definition] = {}

    def named(self, name: str) -> Definition | None:
        made, spec = self._made.get(name), self._spec_of(name)
        if made is not None and made.spec is spec:
            return made
        return None if spec is None else self.of(spec)

    def of(self, spec: ToolSpec) -> Definition:
        made = self._made.get(spec.name)
        if made is None or made.spec is not spec:
            made = self._made[spec.name] = definition_of(spec)
        return made

    def forget(self, names: frozenset[str]) -> None:
        """They have changed, or are gone."""
        for name in names:
            self._made.pop(name, None)


def definition_of(spec: ToolSpec) -> Definition:
    shown: dict[str, Any] = {
        "name": spec.name,
        "description": spec.description,
        "inputSchema": _object(spec.input_schema),
        "annotations": annotations_of(spec),
    }
    if spec.title is not None:
        shown["title"] = spec.title
    schema = spec.output_schema
    promised = schema is not None
    wrapped = promised and not (isinstance(schema, dict) and schema.get("type") == "object")
    if promised:
        shown["outputSchema"] = _wrapped(schema) if wrapped else _object(schema)
    needs = tuple(word for word in spec.labels.get(NEEDS, "").replace(",", " ").split())
    headers = _HEADER.encode() in msgspec.json.encode(spec.input_schema)
    return Definition(spec, shown, wrapped, promised, headers, needs)


def annotations_of(spec: ToolSpec) -> dict[str, Any]:
    """Hints, all four of them: what is left out would be taken for the worst."""
    reads = spec.effects == "read"
    hints: dict[str, Any] = {
        "readOnlyHint": reads,
        "destructiveHint": not reads and spec.tier >= _DESTRUCTIVE,
        "idempotentHint": spec.effects != "once",
        "openWorldHint": is_external(spec) or bool(spec.egress),
    }
    return hints if spec.title is None else {"title": spec.title, **hints}


def _object(schema: Any) -> dict[str, Any]:
    """Revisions of the handshake know no schema that is only true or false: it is said in words."""
    shown = {"type": "object", **schema}
    if isinstance(properties := schema.get("properties"), dict):
        shown["properties"] = {
            name: one if isinstance(one, dict) else {} if one else {"not": {}}
            for name, one in properties.items()
        }
    return shown


def _wrapped(schema: Any) -> dict[str, Any]:
    inside = schema if isinstance(schema, dict) and "$id" in schema else _moved(schema)
    return _object({"properties": {RESULT: inside}, "required": [RESULT]})


def _moved(schema: Any) -> Any:
    """What points to the root points to where the root is now."""
    if isinstance(schema, dict):
        return {
            key: _INSIDE + value[1:]
            if key in ("$ref", "$dynamicRef")
            and isinstance(value, str)
            and (value == "#" or value.startswith("#/"))
            else _moved(value)
            for key, value in schema.items()
        }
    return [_moved(one) for one in schema] if isinstance(schema, list) else schema
