"""An example value for a JSON Schema: small, and dull on purpose.

Above: the test kit, and whoever wants to show how a tool is called. Below: nothing. It refuses to
be complete: where a schema asks for a pattern, or for two things at once, there may be no example,
and whoever asks holds what comes back against the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_DEPTH: Final = 16
_FORMATS: Final = {
    "date-time": "2026-01-01T12:00:00Z",
    "date": "2026-01-01",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uri-reference": "/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


class NoExample(ValueError):
    """Nothing can be made up for this schema."""


def example(schema: Any) -> Any:
    """A value that the schema most likely accepts, or ``NoExample``."""
    return _made(schema, schema if isinstance(schema, Mapping) else {}, _DEPTH)


def _made(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    if schema is True or schema == {}:
        return "example"
    if not isinstance(schema, Mapping) or depth == 0:
        raise NoExample("a schema that no value fits, or that never ends")
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    if "$ref" in schema:
        return _made(_at(root, schema["$ref"]), root, depth - 1)
    if "type" not in schema and "properties" not in schema:
        return _one_of(schema, root, depth)
    kind = schema.get("type", "object")
    return _typed(kind if isinstance(kind, str) else kind[0], schema, root, depth)


def _at(root: Mapping[str, Any], reference: str) -> Any:
    found: Any = root
    if not reference.startswith("#"):
        raise NoExample("a reference that leads out of the schema")
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def _one_of(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    options = [one for key in ("anyOf", "oneOf", "allOf") for one in schema.get(key, ())]
    for option in options:
        try:
            return _made(option, root, depth - 1)
        except NoExample:
            continue
    if options:
        raise NoExample("none of the alternatives has an example")
    return "example"


def _typed(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    if kind == "object":
        properties = schema.get("properties", {})
        return {
            name: _made(properties.get(name, True), root, depth - 1)
            for name in schema.get("required", ())
        }
    if kind == "array":
        items = list(schema.get("prefixItems", ()))
        items += [schema.get("items", True)] * (schema.get("minItems", 0) - len(items))
        return [_made(item, root, depth - 1) for item in items]
    if kind == "string":
        return _text(schema)
    if kind in ("integer", "number"):
        return _number(schema)
    return {"boolean": True, "null": None}.get(kind)


def _text(schema: Mapping[str, Any]) -> str:
    if "pattern" in schema:
        raise NoExample("a text that has to match a pattern")
    text: str = _FORMATS.get(schema.get("format", ""), "example")
    text += "x" * (int(schema.get("minLength", 0)) - len(text))
    return text[: int(schema.get("maxLength", len(text)))]


def _number(schema: Mapping[str, Any]) -> Any:
    step = schema.get("multipleOf", 1)
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if least is None:
        least = min(0, most - step) if most is not None else 0
    steps = -(-least // step)
    if steps * step == schema.get("exclusiveMinimum"):
        steps += 1
    return steps * step
