"""``/openapi.json``: OpenAPI 3.1, with every tool that the caller may know of as an operation.

Above: ``routes.py``. Below: the specs; ``resources.py`` beside it has what is there without any
tool. A tool's schemas stand among the components under its name, and what refers to their root is
made to refer to there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolpost import __version__
from toolpost.gateway.behind import Behind, caller_of
from toolpost.gateway.rest.asked import queried, reply
from toolpost.gateway.rest.resources import (
    CALL_FIELDS,
    COMPONENTS,
    PARAMETERS,
    PATHS,
    RESPONSES,
    SECURITY,
)
from toolpost.spec import TIERS, ToolSpec

_KEPT: Final = 16
_DATA: Final = frozenset(("const", "default", "enum", "example", "examples"))
"""Keywords whose values are data: what looks like a reference there is none."""
_PROBLEM: Final = {"$ref": "#/components/responses/Problem"}
_NAMED: Final = frozenset(
    ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
)


def routes(behind: Behind) -> list[Route]:
    made: dict[tuple[int, ...], tuple[Sequence[ToolSpec], bytes]] = {}

    async def described(request: Request) -> Response:
        queried(request)
        specs = behind.runtime.list(caller_of(request.scope))
        alike = tuple(map(id, specs))
        if alike not in made:
            if len(made) >= _KEPT:
                made.clear()
            protected = not behind.settings.auth.anonymous
            body = msgspec.json.encode(document(specs, protected=protected))
            made[alike] = (specs, body)  # with the specs: another's must not have their ids
        return reply(made[alike][1])

    return [Route("/openapi.json", described, methods=["GET"])]


def document(specs: Sequence[ToolSpec], *, protected: bool = False) -> dict[str, Any]:
    """The whole description."""
    schemas = dict(COMPONENTS)
    paths = dict(PATHS)
    for spec in specs:
        paths[f"/v1/tools/{spec.name}:call"] = {"post": _call(spec)}
        paths[f"/v1/tools/{spec.name}:plan"] = {"post": _plan(spec)}
        schemas[f"{spec.name}.input"] = moved(spec.input_schema, f"{spec.name}.input")
        if spec.output_schema is not None:
            schemas[f"{spec.name}.output"] = moved(spec.output_schema, f"{spec.name}.output")
    components: dict[str, Any] = {
        "schemas": schemas,
        "parameters": PARAMETERS,
        "responses": RESPONSES,
    }
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "toolpost",
            "version": __version__,
            "description": "Tools for AI agents, on one governed road.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": components,
    }
    if protected:
        components["securitySchemes"] = SECURITY
        made["security"] = [{name: []} for name in SECURITY]
    return made


def moved(schema: Any, name: str) -> Any:
    """A schema as a component: what referred to its root refers to where that is now."""
    if isinstance(schema, dict) and "$id" in schema:
        return schema  # its references start there, wherever it stands
    return _moved(schema, f"#/components/schemas/{name}")


def _moved(schema: Any, root: str) -> Any:
    if isinstance(schema, list):
        return [_moved(one, root) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _keyword(key, value, root) for key, value in schema.items()}


def _keyword(key: str, value: Any, root: str) -> Any:
    if key in _DATA:
        return value
    if key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
        return root + value[1:]
    if key in _NAMED and isinstance(value, Mapping):
        return {name: _moved(one, root) for name, one in value.items()}
    return _moved(value, root)


def _call(spec: ToolSpec) -> dict[str, Any]:
    said = f"Tier {spec.tier} ({TIERS[spec.tier]}), effects: {spec.effects}."
    output: Any = {}
    if spec.output_schema is not None:
        output = {"$ref": f"#/components/schemas/{spec.name}.output"}
    succeeded = {
        "allOf": [
            {"$ref": "#/components/schemas/Result"},
            {"type": "object", "properties": {"output": {"anyOf": [output, {"type": "null"}]}}},
        ]
    }
    return {
        "operationId": f"call_{spec.name}",
        "summary": spec.title or spec.name,
        "description": f"{spec.description.strip()}\n\n{said}",
        "tags": [spec.category],
        "parameters": [{"$ref": "#/components/parameters/IdempotencyKey"}],
        "requestBody": _body(spec),
        "responses": {
            "200": {
                "description": "What came back; `output` is null where it is kept as an artifact.",
                "content": {
                    "application/json": {"schema": succeeded},
                    "text/event-stream": {"schema": {"type": "string"}},
                },
            },
            "202": {
                "description": "A job, because of `Prefer: respond-async`; see Location.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Job"}}},
            },
            "default": _PROBLEM,
        },
    }


def _plan(spec: ToolSpec) -> dict[str, Any]:
    result = {"application/json": {"schema": {"$ref": "#/components/schemas/Result"}}}
    return {
        "operationId": f"plan_{spec.name}",
        "summary": f"What a call of {spec.name} would do, without doing it.",
        "tags": [spec.category],
        "requestBody": _body(spec),
        "responses": {
            "200": {"description": "It is in `metadata.plan`.", "content": result},
            "default": _PROBLEM,
        },
    }


def _body(spec: ToolSpec) -> dict[str, Any]:
    arguments = {"$ref": f"#/components/schemas/{spec.name}.input"}
    needs = spec.input_schema.get("required") or spec.input_schema.get("minProperties")
    schema = {
        "type": "object",
        "properties": {"arguments": arguments, **CALL_FIELDS},
        "required": ["arguments"] if needs else [],
        "additionalProperties": False,
    }
    return {"required": True, "content": {"application/json": {"schema": schema}}}
