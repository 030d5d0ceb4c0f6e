"""Request bodies, read strictly: bounded, JSON and nothing else, every key once.

Above: the routes. Below: ``document/strict.py``, the parser of all interfaces. It refuses to know
what a body means.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from toolpost.document.strict import NotStrictJson, strict_json
from toolpost.gateway.problems import Refused

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_DIGITS: Final = 15


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
        return strict_json(body)
    except NotStrictJson as fault:
        raise Refused(400, str(fault)) from None


def _is_json(kind: bytes) -> bool:
    name, _, rest = kind.partition(b";")
    plain = rest.replace(b" ", b"").replace(b'"', b"").lower()
    return name.strip().lower() == b"application/json" and plain in (b"", b"charset=utf-8")


def strictly(body: bytes, name: str = "body") -> Any:
    """The data in a body, read strictly; ``Refused`` says what is wrong, and where."""
    try:
        return strict_json(body, name)
    except NotStrictJson as fault:
        raise Refused(400, str(fault)) from None
