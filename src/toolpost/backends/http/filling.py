"""Filling an endpoint: values go into their slots, each encoded for its place, and come out as a
request.

Above: ``backend.py``. Below: ``binding.py`` and ``net``. A value can make a URL, a header or a body
longer; it cannot make another one of it. It refuses to know secrets.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from toolpost.backends.http.binding import Content, Endpoint, Slot
from toolpost.backends.http.template import Text, Tree
from toolpost.errors import InvalidArguments
from toolpost.net.client import Request
from toolpost.plain import pointer

_SEPARATORS: Final = {"form": ",", "simple": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
_RESERVED: Final = "!$'()*,:/?@[]"
"""What 'allow_reserved' keeps as it is: nothing of it parts one parameter from the next."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MISSING: Final = object()
_MOST_DEEP: Final = 16

Pair = tuple[str, str]


def request_from(endpoint: Endpoint, arguments: Mapping[str, Any]) -> Request:
    """The request, or ``InvalidArguments`` that says which value cannot stand where it would."""
    left = {k: v for k, v in arguments.items() if k not in endpoint.placed}
    query = list(_pairs(endpoint.query, arguments))
    if endpoint.rest == "query":
        query += _rest(left)
    kind, body = _body(endpoint.body, arguments)
    if endpoint.rest == "json" and left:
        kind, body = "application/json", _json(left)
    target = "".join(p if isinstance(p, str) else _segment(p, arguments) for p in endpoint.path)
    if query:
        target += "?" + "&".join(f"{name}={value}" for name, value in query)
    url = msgspec.structs.replace(endpoint.origin, target=target)
    headers = _headers(endpoint, arguments)
    return Request(method=endpoint.method, url=url, headers=headers, body=body, type=kind)


def refused(name: str, problem: str) -> InvalidArguments:
    at = pointer((name,))
    return InvalidArguments(
        f"{at}: {problem}", effects="none", details={"faults": [{"at": at, "problem": problem}]}
    )


def _segment(slot: Slot, arguments: Mapping[str, Any]) -> str:
    """A piece of the path. It has something in it, and leads nowhere else, whatever its items are
    and what was put between them.
    """
    name = next(iter(_names(slot)), slot.wire)
    value = _value(slot.text, arguments)
    if value in (None, _MISSING, "", [], {}):
        raise refused(name, "is needed for the path of the URL")
    piece = _styled(slot, value, name=name)
    if not piece or any(part in (".", "..") for part in piece.split("/")):
        raise refused(name, "must not come to nothing, '.' or '..' in the path of the URL")
    return piece


def _styled(slot: Slot, value: Any, *, name: str) -> str:
    keep = "/" if slot.entry.allow_reserved else ""

    def encoded(item: Any) -> str:
        text = _said(name, item)
        if any(part in (".", "..") for part in re.split(r"[/\\]", text)):
            raise refused(name, "must not hold '.' or '..' as a part of a path")
        return quote(text, safe=keep)

    if slot.style == "json":
        return encoded(_json(value).decode())
    if not isinstance(value, list | dict):
        lead = {"label": ".", "matrix": f";{quote(slot.wire, safe='')}="}.get(slot.style, "")
        return lead + encoded(value)
    wire = quote(slot.wire, safe="")
    items = _items(value, encoded, joined="=" if slot.explode else ",")
    if slot.style == "simple":
        return ",".join(items)
    if slot.style == "label":
        return "." + ("." if slot.explode else ",").join(items)
    if slot.explode:
        return "".join(f";{one if isinstance(value, dict) else f'{wire}={one}'}" for one in items)
    return f";{wire}={','.join(items)}"


def _pairs(slots: Iterable[Slot], arguments: Mapping[str, Any]) -> Iterator[Pair]:
    """Names and values, both encoded, of a query or a form."""
    for slot in slots:
        value = _value(slot.text, arguments)
        if value is not _MISSING and value is not None:
            name = next(iter(_names(slot)), slot.wire)
            yield from _spread(slot, value, name=name)


def _spread(slot: Slot, value: Any, *, name: str) -> Iterator[Pair]:
    wire = quote(slot.wire, safe="[]")
    safe = _RESERVED if slot.entry.allow_reserved else ""

    def encoded(item: Any) -> str:
        return quote(_said(name, item), safe=safe)

    if slot.style == "json":
        yield wire, quote(_json(value).decode(), safe=safe)
    elif not isinstance(value, list | dict):
        yield wire, encoded(value)
    elif slot.style == "deepObject":
        yield from _deep(wire, value, encoded, levels=_MOST_DEEP)
    elif not slot.explode:
        separator = _SEPARATORS[slot.style]
        if items := list(_items(value, encoded, joined=separator)):
            yield wire, separator.join(items)
    elif isinstance(value, list):
        yield from ((wire, encoded(item)) for item in value)
    else:
        yield from ((quote(key, safe=""), encoded(item)) for key, item in value.items())


def _deep(wire: str, value: Any, encoded: Any, *, levels: int) -> Iterator[Pair]:
    if isinstance(value, dict) and levels:
        for key, item in value.items():
            yield from _deep(f"{wire}[{quote(key, safe='')}]", item, encoded, levels=levels - 1)
    elif isinstance(value, list) and levels:
        for number, item in enumerate(value):  # two objects under one name would be one object
            name = f"{wire}[{number}]" if isinstance(item, list | dict) else wire
            yield from _deep(name, item, encoded, levels=levels - 1)
    elif value is not None:
        yield wire, encoded(value)


def _items(value: Any, encoded: Any, *, joined: str) -> Iterator[str]:
    """The items of an array, or the keys and values of an object."""
    if isinstance(value, list):
        yield from map(encoded, value)
        return
    for key, item in value.items():
        yield f"{encoded(key)}{joined}{encoded(item)}"


def _rest(left: Mapping[str, Any]) -> Iterator[Pair]:
    for name, value in left.items():
        items = value if isinstance(value, list) else [value]
        for item in items:
            if item is not None:
                yield quote(name, safe="[]"), quote(_said(name, item), safe="")


def _headers(endpoint: Endpoint, arguments: Mapping[str, Any]) -> tuple[Pair, ...]:
    pairs = [pair for slot in endpoint.headers for pair in _header(slot, arguments)]
    cookies = [pair for slot in endpoint.cookies for pair in _spread_cookie(slot, arguments)]
    if cookies:
        pairs.append(("Cookie", "; ".join(f"{name}={value}" for name, value in cookies)))
    return tuple(pairs)


def _header(slot: Slot, arguments: Mapping[str, Any]) -> Iterator[Pair]:
    name = next(iter(_names(slot)), slot.wire)
    value = _value(slot.text, arguments)
    if value is _MISSING or value is None:
        return
    if slot.style == "json":
        text = _json(value).decode()
    elif isinstance(value, list | dict):
        joined = "=" if slot.explode else ","
        text = ",".join(_items(value, lambda item: _said(name, item), joined=joined))
    else:
        text = _said(name, value)
    if _CONTROL.search(text):
        raise refused(name, "must not hold a line break or a control character")
    yield slot.wire, text.strip(" \t")


def _spread_cookie(slot: Slot, arguments: Mapping[str, Any]) -> Iterator[Pair]:
    value = _value(slot.text, arguments)
    if value is not _MISSING and value is not None:
        yield from _spread(slot, value, name=next(iter(_names(slot)), slot.wire))


def _body(content: Content | None, arguments: Mapping[str, Any]) -> tuple[str | None, bytes | None]:
    """Its type and its bytes."""
    if content is None:
        return None, None
    if content.kind == "json":
        value = _grown(content.tree, arguments)
        if value is _MISSING or (content.optional and value in ({}, [])):
            return None, None
        return content.type, _json(value)
    if content.kind == "form":
        pairs = list(_pairs(content.slots, arguments))
        if content.optional and not pairs:
            return None, None
        text = "&".join(f"{name}={value}" for name, value in pairs)
        return content.type, text.replace("%20", "+").encode("ascii")
    if content.kind == "multipart":
        return _multipart(content, arguments)
    assert content.text is not None
    value = _value(content.text, arguments)
    if value is _MISSING or value is None:
        return None, None
    name = next(iter(content.text.names), "body")
    return content.type, _unpacked(name, value) if content.kind == "bytes" else _free(name, value)


def _multipart(content: Content, arguments: Mapping[str, Any]) -> tuple[str | None, bytes | None]:
    boundary = f"toolpost-{os.urandom(16).hex()}"
    parts = [part for slot in content.slots for part in _parts(slot, arguments)]
    if content.optional and not parts:
        return None, None
    lines = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
    return f"multipart/form-data; boundary={boundary}", lines + f"--{boundary}--\r\n".encode()


def _parts(slot: Slot, arguments: Mapping[str, Any]) -> Iterator[bytes]:
    value = _value(slot.text, arguments)
    if value is _MISSING or value is None:
        return
    name, entry = next(iter(_names(slot)), slot.wire), slot.entry
    repeated = isinstance(value, list) and slot.style == "form" and slot.explode
    for item in value if repeated else [value]:
        kind = entry.type
        if isinstance(item, list | dict) and kind is None:
            kind = "application/json"
        data = _unpacked(name, item) if entry.base64 else _free(name, item)
        head = f'Content-Disposition: form-data; name="{_quoted(slot.wire)}"'
        if entry.filename is not None or entry.base64:
            head += f'; filename="{_quoted(entry.filename or slot.wire)}"'
            kind = kind or "application/octet-stream"
        head += f"\r\nContent-Type: {kind}" if kind else ""
        yield f"{head}\r\n\r\n".encode() + data


def _quoted(text: str) -> str:
    """A name inside quotes, as browsers write it."""
    return text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")


def _grown(tree: Tree, arguments: Mapping[str, Any]) -> Any:
    """JSON data with the values in it; what has none is left out."""
    if isinstance(tree, Text):
        return _value(tree, arguments)
    if isinstance(tree, dict):
        grown = {key: _grown(one, arguments) for key, one in tree.items()}
        return {key: one for key, one in grown.items() if one is not _MISSING}
    if isinstance(tree, list):
        items = [_grown(one, arguments) for one in tree]
        return [one for one in items if one is not _MISSING]
    return tree


def _value(text: Text | Any, arguments: Mapping[str, Any]) -> Any:
    """What a text amounts to: ``_MISSING`` where an argument is."""
    if not isinstance(text, Text):
        return text
    if text.alone is not None:
        return arguments.get(text.alone, _MISSING)
    if any(arguments.get(name) is None for name in text.names):
        return _MISSING
    return "".join(
        piece if isinstance(piece, str) else _said(piece.name, arguments[piece.name])
        for piece in text.pieces
    )


def _names(slot: Slot) -> tuple[str, ...]:
    return slot.text.names if isinstance(slot.text, Text) else ()


def _said(name: str, value: Any) -> str:
    """A value inside a text: texts and numbers as they are, the rest as JSON."""
    if isinstance(value, str):
        return _encodable(name, value)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    try:
        return _json(value).decode()
    except (TypeError, ValueError, RecursionError):
        raise refused(name, "is not JSON data") from None


def _json(value: Any) -> bytes:
    """JSON in the order it came in; integers are exact."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _free(name: str, value: Any) -> bytes:
    return _said(name, value).encode()


def _encodable(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise refused(name, "holds half of a surrogate pair, which is no character") from None
    return text


def _unpacked(name: str, value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise refused(name, "must be base64 text") from None
