"""What a server answered, as a result of ours: data, parts, or the error that it is.

Above: ``session.py``. Below: the SDK's types. Whether the data fits the tool's schema is looked at
by the road, with our own validator.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final

from mcp_types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from toolpost.errors import InvalidOutput, ToolFailed
from toolpost.result import Audio, Image, Output, Part, Resource, Text
from toolpost.spec import ToolSpec

_NO_WORDS: Final = "The tool failed and did not say why."


def output_of(spec: ToolSpec, result: CallToolResult) -> Any:
    """One text is the output itself, and so is structured data; beside that, and wherever there is
    more than one piece, every piece is a part.
    """
    if result.is_error:
        raise ToolFailed(_said(result.content) or _NO_WORDS)
    structured = "structured_content" in result.model_fields_set
    if spec.output_schema is not None and not structured:
        raise InvalidOutput(
            "The tool has a schema for its output and gave none that could be held against it. "
            "Use another tool."
        )
    content, data = result.content, result.structured_content
    if len(content) == 1 and isinstance(content[0], TextContent):
        text = content[0].text
        if not structured:
            return text
        if _says(text, data):  # what is said twice is read twice
            return data
    parts = tuple(map(_part, content))
    return Output(data, parts) if parts else data


def _said(content: Sequence[ContentBlock]) -> str:
    return "\n".join(one.text for one in content if isinstance(one, TextContent))


def _says(text: str, data: Any) -> bool:
    """Whether a text is only the data once more."""
    if isinstance(data, dict) and text in data.values():
        return True
    try:
        return bool(json.loads(text) == data)
    except (ValueError, RecursionError):
        return False


def _part(block: ContentBlock) -> Part:
    match block:
        case TextContent():
            return Text(block.text)
        case ImageContent():
            return Image(_bytes(block.data), block.mime_type)
        case AudioContent():
            return Audio(_bytes(block.data), block.mime_type)
        case ResourceLink():
            return Resource(
                block.uri,
                block.mime_type,
                name=block.title or block.name,
                description=block.description,
            )
        case EmbeddedResource(resource=inside):
            if isinstance(inside, TextResourceContents):
                return Resource(inside.uri, inside.mime_type, inside.text)
            return Resource(inside.uri, inside.mime_type, None, _bytes(inside.blob))


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidOutput(
            "The tool returned data that is not base64. Use another tool."
        ) from None
