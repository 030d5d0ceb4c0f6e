"""The one strict JSON parser for what comes from outside: REST, MCP, NATS, issuers, gateways.

UTF-8 only, every key once, bounded depth, no NaN or Infinity, integers exact, no half of a
surrogate pair. msgspec parses fast and refuses most of what is wrong; a count of the keys finds the
rest. Only what is refused is read again, by ``json.py``, which says what is wrong and where.
"""

from __future__ import annotations

import re
from typing import Any, Final, Generic, TypeVar

import msgspec

from toolpost.document.places import MAX_DEPTH, MAX_DIGITS
from toolpost.document.reading import parse
from toolpost.errors import SourceError

T = TypeVar("T")
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_DIGITS_ONLY: Final = bytes(48 if 48 <= one <= 57 else 32 for one in range(256))
_TOO_MANY_DIGITS: Final = b"0" * (MAX_DIGITS + 1)
_KEY_ENDS: Final = re.compile(rb'"\s*:')
"""Behind every key; inside a text, too, where somebody writes so: never too few of them."""
BROKEN: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)
"""What msgspec raises for text that it cannot decode."""


class NotStrictJson(ValueError):
    """Text that is refused; the message is a sentence that says what is wrong, and where."""


def strict_json(body: bytes, name: str = "body") -> Any:
    """The data in a text; ``name`` is what the text is called in the message of a refusal."""
    try:
        data = _decode(body)
    except BROKEN:
        return explain(body, name)
    keys = count_keys(data)
    if body.count(b":") != keys and len(_KEY_ENDS.findall(body)) != keys:
        return explain(body, name)
    return explain(body, name) if has_wide_integer(body) else data


class StrictDecoder(Generic[T]):
    """Decodes a type from strict JSON: ``NotStrictJson`` also for what does not fit the type.

    What toolpost itself has written is the same when it is encoded again, so that nothing can be in
    it twice: that is seen in a third of the time that counting the keys takes.
    """

    def __init__(self, kind: Any, name: str = "message") -> None:
        self._kind, self._name = kind, name
        self._typed = msgspec.json.Decoder(kind).decode

    def decode(self, body: bytes) -> T:
        try:
            made: T = self._typed(body)
        except BROKEN:
            return self.convert(strict_json(body, self._name))
        if _encode(made) == body and not _has_depth(body) and not has_wide_integer(body):
            return made
        return self.convert(strict_json(body, self._name))

    def convert(self, data: Any) -> T:
        """The same of data that has been parsed already."""
        try:
            made: T = msgspec.convert(data, self._kind)
        except msgspec.ValidationError as fault:
            raise NotStrictJson(f"The {self._name} is not as it should be: {fault}.") from None
        return made


def _has_depth(body: bytes) -> bool:
    """Whether it may be deeper than is taken here."""
    return body.count(b"{") + body.count(b"[") > MAX_DEPTH


def count_keys(data: Any, *, above: int = 0) -> int:
    """How many keys there are; where the text has more, one of them was there twice. Fewer than
    none: it is deeper than is taken here, with so many levels above it.
    """
    if type(data) is not dict and type(data) is not list:
        return 0
    level: list[Any] = [data]
    count, depth = 0, above
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            return -1
        below: list[Any] = []
        for one in level:
            if type(one) is dict:
                count += len(one)
                one = one.values()
            for value in one:
                kind = type(value)
                if kind is dict or kind is list:
                    below.append(value)
        level = below
    return count


def has_wide_integer(body: bytes) -> bool:
    """Whether it may have an integer that is longer than is taken here."""
    return len(body) > MAX_DIGITS and _TOO_MANY_DIGITS in body.translate(_DIGITS_ONLY)


def explain(body: bytes, name: str = "body") -> Any:
    """What the slower parser makes of a text; it says what is wrong, and where."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise NotStrictJson(f"The {name} is not UTF-8: byte {fault.start} is wrong.") from None
    if text.startswith("\ufeff"):
        raise NotStrictJson(f"The {name} begins with a byte order mark: leave it out.")
    try:
        return parse(text, format="json", name=name).data
    except SourceError as fault:
        raise NotStrictJson(f"The {name} cannot be read: {fault.message}.") from None
