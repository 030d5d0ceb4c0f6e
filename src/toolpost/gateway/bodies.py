"""Request bodies, read strictly: bounded, JSON and nothing else, every key once.

Above: the routes. Below: msgspec, which reads fast and refuses most of what is wrong, and
``document``, which says where. It refuses to know what a body means.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec

from toolpost.document import MAX_DEPTH, parse
from toolpost.document.places import TOO_WIDE
from toolpost.errors import SourceError
from toolpost.gateway.problems import Refused

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_decode: Final = msgspec.json.Decoder().decode
_DIGITS: Final = 15
_TOO_LOW: Final = -TOO_WIDE
_KEY_ENDS: Final = re.compile(rb'"\s*:')
"""Behind every key; inside a text, too, where somebody writes so: never too few of them."""


class Gone(Exception):
    """The client went away before its request was whole."""


async def body_of(headers: dict[bytes, bytes], receive: Receive, most: int) -> bytes:
    """The whole body, at most so many bytes. Mostly it is there with its first message."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if body and not message.get("more_body", False) and len(body) <= most:
        return body
    if message["type"] == "http.disconnect":
        raise Gone
    said = headers.get(b"content-length", b"0")
    if not (len(said) <= _DIGITS and said.isdigit() and int(said) <= most) or len(body) > most:
        raise too_large(most)
    return await _rest_of(body, receive, most) if message.get("more_body", False) else body


async def _rest_of(body: bytes, receive: Receive, most: int) -> bytes:
    pieces, size, more = [body], len(body), True
    while more:
        if size > most:
            raise too_large(most)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        more = message.get("more_body", False)
    if size > most:
        raise too_large(most)
    return b"".join(pieces)


def too_large(most: int) -> Refused:
    return Refused(413, f"The body has more than {most:,} bytes, which is the most taken here.")


def json_of(headers: dict[bytes, bytes], body: bytes) -> Any:
    """The data in a body that says it is JSON: a browser sends nothing else unasked."""
    kind = headers.get(b"content-type", b"")
    if kind != b"application/json" and not _is_json(kind):
        raise Refused(415, "Send JSON, and say so: Content-Type: application/json")
    if b"content-encoding" in headers:
        raise Refused(415, "Send the body as it is, without a Content-Encoding.")
    try:
        data = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return strictly(body)
    keys = keys_in(data)
    if body.count(b":") != keys and len(_KEY_ENDS.findall(body)) != keys:
        return strictly(body)
    return data


def _is_json(kind: bytes) -> bool:
    name, _, rest = kind.partition(b";")
    plain = rest.replace(b" ", b"").replace(b'"', b"").lower()
    return name.strip().lower() == b"application/json" and plain in (b"", b"charset=utf-8")


def keys_in(data: Any, *, above: int = 0) -> int:
    """How many keys there are; where the text has more, one of them was there twice. Fewer than
    none: it is deeper, with so many levels above it, or has a longer integer than is taken here.
    """
    count, depth, level = 0, above, [data]
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            return -1
        below: list[Any] = []
        for one in level:
            kind = type(one)
            if kind is dict:
                count += len(one)
                below += one.values()
            elif kind is list:
                below += one
            elif kind is int and not _TOO_LOW < one < TOO_WIDE:
                return -1
        level = below
    return count


def strictly(body: bytes, name: str = "body") -> Any:
    """What a stricter reader makes of it; it says what is wrong, and where."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise Refused(400, f"The {name} is not UTF-8: byte {fault.start} is wrong.") from None
    if text.startswith("\ufeff"):
        raise Refused(400, f"The {name} begins with a byte order mark: leave it out.")
    try:
        return parse(text, format="json", name=name).data
    except SourceError as fault:
        raise Refused(400, f"The {name} cannot be read: {fault.message}.") from None
