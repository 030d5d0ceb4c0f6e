"""Anthropic's messages: blocks in, one message with the results out.

Above: the loop, by name. Below: values and content. Tools that the vendor runs itself are none of
ours, and their blocks stay as they are.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

from toolpost.loop.content import content_of, data_of, in_words
from toolpost.loop.values import Asked, Called, Dialect, Said, plain, stranger
from toolpost.result import Part, Text

_IMAGES: Final = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))


def read(message: Any) -> Said:
    said = plain(message)
    content = said.get("content") if isinstance(said, dict) else None
    blocks = content if isinstance(content, list) else []
    if not isinstance(content, str | list) or not all(isinstance(one, dict) for one in blocks):
        raise stranger(said, "anthropic", "a message")
    cut = blocks[-1:] if said.get("stop_reason") == "max_tokens" else []
    asked = [
        Asked(block.get("id") or "", block.get("name") or "", block.get("input"), cut=block in cut)
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    # an empty message is not taken back
    messages = [{"role": "assistant", "content": content}] if content else []
    return Said(messages, tuple(asked), paused=said.get("stop_reason") == "pause_turn")


def results(calls: Sequence[Called]) -> list[dict[str, Any]]:
    blocks = [_block(call) for call in calls]
    return [{"role": "user", "content": blocks}] if blocks else []


def _block(call: Called) -> dict[str, Any]:
    parts = content_of(call.result)
    only = len(parts) == 1 and type(parts[0]) is Text
    content: Any = in_words(parts[0]) if only else [_shown(part) for part in parts]
    block = {"type": "tool_result", "tool_use_id": call.id, "content": content}
    return block if call.result.success else {**block, "is_error": True}


def _shown(part: Part) -> dict[str, Any]:
    if (found := data_of(part)) is not None:
        data, mime = found
        source = {"type": "base64", "media_type": mime, "data": b64encode(data).decode()}
        if mime in _IMAGES:
            return {"type": "image", "source": source}
        if mime == "application/pdf":
            return {"type": "document", "source": source}
    return {"type": "text", "text": in_words(part)}


ANTHROPIC: Final = Dialect(read, results)
