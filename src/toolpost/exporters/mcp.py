"""MCP's form: the definition of a tool, with hints from tier and effects.

Above: ``export``, by name, and the gateway, which shows its tools so. Below: specs. Every name
that a spec may have is legal in MCP, so names stay as they are.

Revisions before the last want objects as structured output: what is none is wrapped, under
``result``, for all of them alike, as the SDK's own servers do it.
"""

from __future__ import annotations

from typing import Any, Final

from toolpost.exporters.values import Form, Tell
from toolpost.spec import ToolSpec, is_external

RESULT: Final = "result"
_INSIDE: Final = f"#/properties/{RESULT}"
_DESTRUCTIVE: Final = 2


def shown(spec: ToolSpec) -> dict[str, Any]:
    """The definition."""
    tool: dict[str, Any] = {
        "name": spec.name,
        "description": spec.description,
        "inputSchema": _object(spec.input_schema),
        "annotations": annotations_of(spec),
    }
    if spec.title is not None:
        tool["title"] = spec.title
    schema = spec.output_schema
    if schema is not None:
        tool["outputSchema"] = _wrapped(schema) if is_wrapped(spec) else _object(schema)
    return tool


def is_wrapped(spec: ToolSpec) -> bool:
    """Whether its output is shown, and given, under ``result``."""
    schema = spec.output_schema
    return schema is not None and not (isinstance(schema, dict) and schema.get("type") == "object")


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


def _write(spec: ToolSpec, name: str, *, strict: bool, tell: Tell) -> dict[str, Any]:
    tool = shown(spec)
    if tool["inputSchema"] != spec.input_schema:
        tell("", 'is shown with "type": "object", and true and false said in words')
    if is_wrapped(spec):
        tell("output_schema", f"is shown as an object that holds it under {RESULT!r}")
    return tool


def _object(schema: Any) -> dict[str, Any]:
    """Revisions of the handshake know no schema that is only true or false: it is said in words."""
    said = {"type": "object", **schema}
    if isinstance(properties := schema.get("properties"), dict):
        said["properties"] = {
            name: one if isinstance(one, dict) else {} if one else {"not": {}}
            for name, one in properties.items()
        }
    return said


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


MCP: Final = Form(write=_write)
