"""OpenAI's responses: items in, items out.

Above: the loop, by name. Below: values and content. Calls that the vendor runs itself are none of
ours, and stay as they are.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

from toolpost.loop.content import content_of, data_of, in_words
from toolpost.loop.values import Asked, Called, Dialect, Said, plain, stranger
from toolpost.result import Part, Text


def read(message: Any) -> Said:
    said = plain(message)
    items = said.get("output") if isinstance(said, dict) else said
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise stranger(said, "openai-responses", "a response or its output")
    asked = [
        Asked(item.get("call_id") or "", item.get("name") or "", item.get("arguments"))
        for item in items
        if item.get("type") == "function_call"
    ]
    return Said(items, tuple(asked))


def results(calls: Sequence[Called]) -> list[dict[str, Any]]:
    return [
        {"type": "function_call_output", "call_id": call.id, "output": _output(call)}
        for call in calls
    ]


def _output(call: Called) -> str | list[dict[str, Any]]:
    parts = content_of(call.result)
    if len(parts) == 1 and type(parts[0]) is Text:
        return parts[0].text
    return [_shown(part) for part in parts]


def _shown(part: Part) -> dict[str, Any]:
    if (found := data_of(part)) is not None:
        data, mime = found
        url = f"data:{mime};base64,{b64encode(data).decode()}"
        if mime.startswith("image/"):
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        if mime == "application/pdf":
            return {"type": "input_file", "filename": "file.pdf", "file_data": url}
    return {"type": "input_text", "text": in_words(part)}


RESPONSES: Final = Dialect(read, results)
