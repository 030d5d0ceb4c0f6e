"""OpenAI's chat completions, and what speaks as they do.

Above: the loop, by name. Below: values and content. A tool's message has room for words only: what
cannot be said in words follows in a message of its own, after the last of them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

from toolpost.loop.content import content_of, data_of, in_words
from toolpost.loop.values import Asked, Called, Dialect, Said, plain, stranger
from toolpost.result import Part

_SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def read(message: Any) -> Said:
    said = plain(message)
    if isinstance(said, dict) and said.get("choices"):
        said = said["choices"][0].get("message")
    if not isinstance(said, dict) or "role" not in said:
        raise stranger(said, "openai", "a completion or its message")
    asked = tuple(map(_asked, said.get("tool_calls") or ()))
    kept = {key: value for key, value in said.items() if value is not None and key != "annotations"}
    if "audio" in kept:  # it is given back by its name
        kept["audio"] = {"id": kept["audio"]["id"]}
    return Said([{"content": None, **kept} if asked else kept], asked)


def _asked(call: dict[str, Any]) -> Asked:
    """A tool of free text has a name, too, and no arguments that would fit."""
    kind = call.get("type") or "function"
    inner = call.get(kind) or {}
    return Asked(
        call.get("id") or "", inner.get("name") or "", inner.get("arguments", inner.get("input"))
    )


def results(calls: Sequence[Called]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    beside: list[dict[str, Any]] = []
    for call in calls:
        words = []
        for part in content_of(call.result):
            if (shown := _shown(part)) is None:
                words.append(in_words(part))
            else:
                words.append("[see the message that follows]")
                beside += [{"type": "text", "text": f"From {call.tool}, call {call.id}:"}, shown]
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "\n".join(words)})
    return [*messages, {"role": "user", "content": beside}] if beside else messages


def _shown(part: Part) -> dict[str, Any] | None:
    found = data_of(part)
    if found is None:
        return None
    data, mime = found
    text = b64encode(data).decode()
    if mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{text}"}}
    if mime in _SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": text, "format": _SOUNDS[mime]}}
    if mime == "application/pdf":
        file = {"filename": "file.pdf", "file_data": f"data:{mime};base64,{text}"}
        return {"type": "file", "file": file}
    return None


CHAT: Final = Dialect(read, results)
