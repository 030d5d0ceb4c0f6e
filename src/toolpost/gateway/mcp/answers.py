"""Results as MCP sends them: content, structured content, and errors that a model can act on.

Above: ``calls.py``. Below: results. Nothing here imports the SDK. What a tool failed with is a
result, too, for the model has to read it; only what is no call at all is an error of the protocol.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from toolpost.exporters.mcp import RESULT
from toolpost.gateway.mcp.definitions import Definition
from toolpost.result import Audio, Failure, Image, Notice, Part, Resource, Result, Text

ARTIFACTS: Final = "toolpost/artifacts"
CALL_ID: Final = "toolpost/call_id"
ERROR: Final = "toolpost/error"
WARNINGS: Final = "toolpost/warnings"
_HEARS: Final = "2025-03-26"
"""The first revision with sounds."""
_LINKS: Final = "2025-06-18"
_encode: Final = msgspec.json.Encoder().encode


def answer_of(result: Result, definition: Definition | None, version: str) -> dict[str, Any]:
    """What a client of this revision gets."""
    about = result.metadata
    meta: dict[str, Any] = {CALL_ID: about.call_id}
    if about.warnings:
        meta[WARNINGS] = list(about.warnings)
    if result.error is not None:
        return _failed(result.error, definition, meta)
    answer: dict[str, Any] = {"content": []}
    output = result.output
    kept = output is None and bool(about.artifacts)
    if about.artifacts:
        meta[ARTIFACTS] = msgspec.to_builtins(about.artifacts)
    if definition is not None and definition.promised and kept:
        answer["isError"] = True  # the promise of a schema cannot be held: clients would refuse it
    elif definition is not None and definition.wrapped:
        answer["structuredContent"] = {RESULT: output}
    elif type(output) is dict:
        answer["structuredContent"] = output
    if result.parts:
        answer["content"] = [part_of(part, version) for part in result.parts]
        said = any(type(part) is Text for part in result.parts)
        if output is not None and not said:
            answer["content"].insert(0, _text(output))
    elif output is not None or "structuredContent" in answer:
        answer["content"].append(_text(output))
    answer["resultType"] = "complete"
    answer["_meta"] = meta
    return answer


def _text(output: Any) -> dict[str, Any]:
    text = output if type(output) is str else text_of(output)
    return {"type": "text", "text": text}


def text_of(data: Any) -> str:
    return _encode(data).decode()


def _failed(error: Failure, definition: Definition | None, meta: dict[str, Any]) -> dict[str, Any]:
    """Clients hold structured content against the schema of the output, of errors too: where there
    is one, the error is told in the text and beside the result.
    """
    told = msgspec.to_builtins(error)
    meta[ERROR] = told
    text = f"{error.message}\n[{error.code}; remedy: {error.remedy}; effects: {error.effects}]"
    answer: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
    if definition is None or not definition.promised:
        answer["structuredContent"] = {"error": told}
    return {**answer, "resultType": "complete", "_meta": meta}


def part_of(part: Part, version: str) -> dict[str, Any]:
    """One block of content; what a revision does not know is said in a way that it does."""
    match part:
        case Text() | Notice():
            return {"type": "text", "text": part.text}
        case Image():
            return {"type": "image", "data": _base64(part.data), "mimeType": part.mime}
        case Audio() if version >= _HEARS:
            return {"type": "audio", "data": _base64(part.data), "mimeType": part.mime}
        case Audio():
            return _resource({"uri": "data:", "mimeType": part.mime, "blob": _base64(part.data)})
        case Resource(text=None, data=None):
            return _link(part, version)
        case Resource():
            inside = {"uri": part.uri} if part.mime is None else _typed(part)
            if part.text is not None:
                return _resource({**inside, "text": part.text})
            return _resource({**inside, "blob": _base64(part.data or b"")})


def _link(part: Resource, version: str) -> dict[str, Any]:
    if version < _LINKS:
        words = [part.name, part.description, part.uri]
        return {"type": "text", "text": ": ".join(word for word in words if word)}
    link = {"type": "resource_link", "uri": part.uri, "name": part.name or part.uri}
    if part.description is not None:
        link["description"] = part.description
    return link if part.mime is None else {**link, "mimeType": part.mime}


def _typed(part: Resource) -> dict[str, Any]:
    return {"uri": part.uri, "mimeType": part.mime}


def _resource(inside: dict[str, Any]) -> dict[str, Any]:
    return {"type": "resource", "resource": inside}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
