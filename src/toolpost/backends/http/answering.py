"""An answer, made into an output or an error.

Above: ``backend.py``. Below: ``net.client``, whose answer it is, and the binding. It refuses to
send anything. What a service says of its failure is quoted, cut and cleaned: it is written by
somebody else, and may repeat what was sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any, Final

from toolpost.backends.http.binding import Endpoint, Status
from toolpost.backends.http.statuses import meaning_of, phrase
from toolpost.call import Call
from toolpost.characters import stripped
from toolpost.document import parse
from toolpost.errors import SAYABLE, CallError, InvalidOutput, SourceError, ToolNotFound
from toolpost.net.client import Answer
from toolpost.net.waiting import retry_after
from toolpost.redact import redact_text
from toolpost.result import Audio, Image, Output, Resource
from toolpost.telling import Telling
from toolpost.wording import shortened

_MOST_QUOTED: Final = 500
_MOST_ERROR: Final = 64 * 1024
"""Bytes of an error's body that are looked at."""
_NOT_THERE: Final = frozenset((404, 410))
_NOTHING_THERE: Final = (
    "The tool is there, and what it asked that service for is not: check the arguments. If every "
    "call ends so, the address in the tool's definition is wrong."
)
_JSON: Final = re.compile(r"application/(?:[\w.+-]+\+)?json|text/json")
_LINES: Final = frozenset(
    ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
)
_TEXT: Final = re.compile(
    r"text/.*|application/(?:.*\+)?xml|application/(?:javascript|yaml|x-yaml|toml|graphql"
    r"|x-www-form-urlencoded)"
)
_SAID: Final = (
    "message", "detail", "error_description", "error_message", "title", "reason", "description",
    "error", "errors",
)  # fmt: skip
"""Where services say in JSON what is wrong, the best first."""


async def output_of(endpoint: Endpoint, answer: Answer, call: Call) -> Any:
    """The output, or the error that the answer amounts to."""
    meaning = _meaning(endpoint, answer.status)
    if not (200 <= answer.status < 300 if meaning is None else meaning.ok):
        raise await _error(answer, meaning)
    response = endpoint.binding.response
    shape = _shape(response.shape, answer, endpoint)
    if shape == "headers":
        return {name: answer.header(name) for name, _ in answer.headers if name != "set-cookie"}
    most = response.max_bytes or call.spec.limits.output
    data = await _read(answer, most, call=call, shape=shape)
    value = _shaped(shape, data, answer)
    return value if response.pointer is None else _pointed(value, response.pointer)


def _meaning(endpoint: Endpoint, status: int) -> Status | None:
    meanings = endpoint.meanings
    return meanings.get(str(status)) or meanings.get(f"{status // 100}xx")


async def _error(answer: Answer, meaning: Status | None) -> CallError:
    words = _words(await answer.beginning(_MOST_ERROR), _type(answer))
    said = f"{answer.url.host} answered {phrase(answer.status)}"
    said += f": {words}" if words else "."
    if answer.status in _NOT_THERE:
        said = f"{said.rstrip('.')}. {_NOTHING_THERE}"
    wait = retry_after(answer.header("retry-after"))
    details: dict[str, Any] = {"status": answer.status}
    kind, remedy, retryable, effects = meaning_of(answer.status)
    if meaning is None:
        return kind(
            said, retryable=retryable, retry_after=wait, remedy=remedy, effects=effects,
            details=details,
        )  # fmt: skip
    if meaning.message is not None and words:
        details["said"] = words
    own = SAYABLE[meaning.error]
    return own(
        said if meaning.message is None else meaning.message,
        retryable=meaning.retryable,
        retry_after=wait,
        remedy="fix_args" if own is ToolNotFound else None,  # not the tool is missing
        effects=meaning.effects or effects,
        details=details,
    )


def _words(data: bytes, kind: str) -> str:
    """What the service says, if it is said in words and not in a page."""
    text = data.decode("utf-8", "replace")
    if _JSON.fullmatch(kind) or text.lstrip().startswith("{"):
        try:
            text = _said(parse(text, format="json", name="answer").data) or ""
        except SourceError:
            text = ""
    elif kind not in ("text/plain", "") or "\ufffd" in text:
        return ""
    words = redact_text(stripped(shortened(text, 4 * _MOST_QUOTED)))
    return shortened(" ".join(words.split()), _MOST_QUOTED)


def _said(data: Any, levels: int = 4) -> str | None:
    if isinstance(data, str):
        return data
    if isinstance(data, list) and levels:
        found = (_said(item, levels - 1) for item in data[:5])
        return "; ".join(one for one in found if one) or None
    if isinstance(data, dict) and levels:
        found = (_said(data[key], levels - 1) for key in _SAID if key in data)
        return next((one for one in found if one), None)
    return None


def _type(answer: Answer) -> str:
    return (answer.header("content-type") or "").partition(";")[0].strip().lower()


def _shape(asked: str, answer: Answer, endpoint: Endpoint) -> str:
    if asked != "auto":
        return asked
    kind = _type(answer)
    if endpoint.method == "HEAD":
        return "headers"
    if endpoint.binding.response.pointer is not None or _JSON.fullmatch(kind):
        return "json"
    if kind == "text/event-stream":
        return "events"
    if kind in _LINES:
        return "values"
    if not kind:
        return "guess"
    return "text" if _TEXT.fullmatch(kind) else "bytes"


async def _read(answer: Answer, most: int, *, call: Call, shape: str) -> bytes:
    if call.on_progress is None or shape not in ("text", "lines", "values", "events"):
        return await answer.read(most)
    telling, data = Telling(call), bytearray()
    events = _Events() if shape == "events" else None
    try:
        async with aclosing(answer.pieces(most)) as pieces:
            async for piece in pieces:
                data += piece
                if events is None:
                    telling.hear(piece)
                else:
                    for event in events.hear(piece):
                        telling.hear(event["data"].encode() + b"\n")
    finally:
        telling.close()
    return bytes(data)


def _shaped(shape: str, data: bytes, answer: Answer) -> Any:
    if answer.status in (204, 205) or not data:
        return None if shape not in ("lines", "values", "events", "text") else _empty(shape)
    if shape == "guess":
        shape = _guessed(data)
    if shape == "bytes":
        return _parts(data, answer)
    if shape == "json":
        return _json(data, answer)
    if shape == "events":
        return [_opened(event) for event in _Events().hear(data + b"\n\n")]
    text = _text(data, answer)
    if shape == "text":
        return text
    lines = text.removesuffix("\n").split("\n")
    if shape == "lines":
        return [line.removesuffix("\r") for line in lines]
    return [_json(line.encode(), answer) for line in lines if line.strip()]


def _empty(shape: str) -> Any:
    return "" if shape == "text" else []


def _guessed(data: bytes) -> str:
    if data.lstrip()[:1] in (b"{", b"["):
        return "json"
    try:
        data.decode()
    except UnicodeDecodeError:
        return "bytes"
    return "text"


def _parts(data: bytes, answer: Answer) -> Output:
    kind = _type(answer) or "application/octet-stream"
    if kind.startswith("image/"):
        return Output(parts=(Image(data, kind),))
    if kind.startswith("audio/"):
        return Output(parts=(Audio(data, kind),))
    uri = str(answer.url).partition("?")[0]  # the query may hold a key
    return Output(parts=(Resource(uri, kind, data=data),))


def _json(data: bytes, answer: Answer) -> Any:
    try:
        return parse(data.decode("utf-8-sig"), format="json", name="answer").data
    except UnicodeDecodeError:
        problem = "it is not UTF-8"
    except SourceError as fault:
        problem = fault.message
    raise InvalidOutput(
        f"The answer of {answer.url.host} is not JSON ({problem}). Use another tool."
    ) from None


def _text(data: bytes, answer: Answer) -> str:
    found = re.search(r"(?i)charset=\"?([\w.:-]+)", answer.header("content-type") or "")
    try:
        return data.decode(found[1] if found else "utf-8", "replace")
    except (LookupError, ValueError):
        return data.decode("utf-8", "replace")


def _pointed(value: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif (
            isinstance(value, list)
            and re.fullmatch(r"0|[1-9][0-9]{0,8}", key)
            and int(key) < len(value)
        ):
            value = value[int(key)]
        else:
            raise InvalidOutput(f"The answer has nothing at {pointer}. Use another tool.")
    return value


def _opened(event: dict[str, str]) -> dict[str, Any]:
    """An event whose data is JSON has it as data."""
    if event["data"][:1] not in ("{", "["):
        return event
    try:
        return {**event, "data": parse(event["data"], format="json", name="event").data}
    except SourceError:
        return event


class _Events:
    """Server-sent events, as they come in."""

    def __init__(self) -> None:
        self._waiting = b""
        self._fields: dict[str, str] = {}

    def hear(self, data: bytes) -> Iterator[dict[str, str]]:
        *lines, self._waiting = re.split(rb"\r\n|\n|\r(?!\Z)", self._waiting + data)
        for line in lines:
            name, _, value = line.decode("utf-8", "replace").removeprefix("\ufeff").partition(":")
            value = value.removeprefix(" ")
            if line:
                if name == "data" and "data" in self._fields:
                    value = f"{self._fields['data']}\n{value}"
                if name in ("data", "event", "id"):
                    self._fields[name] = value
            elif "data" in self._fields:
                yield self._fields
                self._fields = {}
            else:
                self._fields = {}
