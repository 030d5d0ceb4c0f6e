"""A result as a model reads it: parts, text, and errors that it can act on.

Above: the dialects of vendors, and the bridges. Below: results. An MCP client reads the same words
from the gateway.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from toolpost.document.strict import strict_json
from toolpost.errors import InvalidArguments
from toolpost.failure import failure
from toolpost.result import Audio, Failure, Image, Notice, Part, Resource, Result, Text

_encode: Final = msgspec.json.Encoder().encode


def content_of(result: Result) -> tuple[Part, ...]:
    """What is said: the parts, and the output unless one of the parts says it in words."""
    if result.error is not None:
        return (Text(_failed(result.error)),)
    output, parts = result.output, result.parts
    if parts and (output is None or any(type(part) is Text for part in parts)):
        return parts
    return Text(output if type(output) is str else _encode(output).decode()), *parts


def text_of(result: Result) -> str:
    """The same in words alone."""
    return "\n".join(map(in_words, content_of(result)))


def in_words(part: Part) -> str:
    """What a model reads where it cannot be shown the thing itself."""
    match part:
        case Text() | Notice():
            return part.text
        case Resource(text=str() as text):
            return text
        case Resource(data=None):
            return ": ".join(word for word in (part.name, part.description, part.uri) if word)
        case Resource(data=data):
            return f"[{part.mime or 'data'} of {len(data or b''):,} bytes at {part.uri}]"
        case Image() | Audio():
            return f"[{part.mime} of {len(part.data):,} bytes, which cannot be shown here]"


def data_of(part: Part) -> tuple[bytes, str] | None:
    """The bytes of a part and what they are, if it has any."""
    match part:
        case Image() | Audio():
            return part.data, part.mime
        case Resource(data=bytes() as data):
            return data, part.mime or "application/octet-stream"
        case _:
            return None


def parse(text: Any) -> dict[str, Any]:
    """Arguments as a model wrote them, none if it left them out; ``InvalidArguments`` if they are
    no JSON object.
    """
    data = {} if text is None else text
    if isinstance(text, str):
        try:
            data = strict_json(text.encode(), "text") if text.strip() else {}
        except ValueError as exc:
            raise InvalidArguments(
                f"The arguments are not JSON: {str(exc)[:200]} Call it again with a JSON object."
            ) from exc
    if not isinstance(data, dict):
        raise InvalidArguments(
            f"The arguments must be a JSON object, not {_kind(data)}. Call it again with one."
        )
    return data


def refused(fault: InvalidArguments, tool: str) -> Result:
    """The result of a call that could not be made."""
    return Result(error=failure(fault, tool=tool, call_id="", effects="read"))


def _failed(error: Failure) -> str:
    return f"{error.message}\n[{error.code}; remedy: {error.remedy}; effects: {error.effects}]"


def _kind(data: Any) -> str:
    kinds = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(data), "a number")
