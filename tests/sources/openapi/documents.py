"""OpenAPI documents for tests, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolpost import ToolSpec
from toolpost.document import parse
from toolpost.sources.openapi.converting import Choices, Imported, imported
from toolpost.sources.openapi.fetching import Found

SERVER = "https://api.example.com/v1"
OK: Mapping[str, Any] = {"200": {"description": "Good."}}


def document(paths: Mapping[str, Any], *, version: str = "3.0.3", **more: Any) -> dict[str, Any]:
    return {
        "openapi": version,
        "info": {"title": "A service", "version": "1.0"},
        "servers": [{"url": SERVER}],
        "paths": dict(paths),
        **more,
    }


def operation(**about: Any) -> dict[str, Any]:
    return {"operationId": "it", "summary": "Do it.", "responses": dict(OK), **about}


def parameter(name: str, where: str = "query", **about: Any) -> dict[str, Any]:
    return {"name": name, "in": where, "schema": {"type": "string"}, **about}


def found(data: Any, **more: Any) -> Found:
    text = json.dumps(data)
    return Found(document=parse(text, format="json", name="doc.json"), **more)


def converted(data: Any, **choices: Any) -> Imported:
    return imported(found(data), Choices(**choices))


def tools_of(data: Any, **choices: Any) -> dict[str, ToolSpec]:
    made = converted(data, **choices)
    assert not made.left_out, made.left_out
    return {spec.name: spec for spec in made.specs}


def tool_of(
    about: Mapping[str, Any],
    path: str = "/it",
    method: str = "post",
    version: str = "3.0.3",
    **more: Any,
) -> ToolSpec:
    """The one tool of a document with one operation."""
    (spec,) = tools_of(document({path: {method: about}}, version=version, **more)).values()
    return spec


def body(schema: Any, kind: str = "application/json", **about: Any) -> dict[str, Any]:
    return {"content": {kind: {"schema": schema, **about.pop("media", {})}}, **about}


def reason(data: Any, **choices: Any) -> tuple[str, str]:
    """Why the one operation that is named ``bad`` was left out, and where that is."""
    made = converted(data, **choices)
    (left,) = made.left_out
    return left.why, left.at
