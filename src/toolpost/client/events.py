"""Server-sent events, read as they come: a name and JSON.

Above: ``exchange.py``. Below: pieces of bytes, cut anywhere. A stream in which nothing comes for
too long, or an event that is too large or no JSON, is a ``ValueError``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final, NamedTuple

from toolpost.document.strict import strict_json

_LARGEST: Final = 256 * 1024 * 1024


class Event(NamedTuple):
    name: str
    data: Any


async def events(
    pieces: AsyncGenerator[bytes, None], *, silence: float
) -> AsyncGenerator[Event, None]:
    """Every event; ``silence`` are the seconds that may pass without a byte."""
    rest = bytearray()
    while (piece := await _next(pieces, silence)) is not None:
        rest += piece.replace(b"\r", b"")
        if len(rest) > _LARGEST:
            raise ValueError("an event is too large")
        if b"\n\n" not in rest:
            continue
        *blocks, left = rest.split(b"\n\n")
        rest = left
        for block in blocks:
            if (event := _event(bytes(block))) is not None:
                yield event


async def _next(pieces: AsyncGenerator[bytes, None], seconds: float) -> bytes | None:
    try:
        async with asyncio.timeout(seconds):
            return await anext(pieces, None)
    except TimeoutError:
        raise ValueError("nothing came for too long") from None


def _event(block: bytes) -> Event | None:
    """One event; a comment is none."""
    name, data = "message", []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"data":
            data.append(value)
    return Event(name, strict_json(b"\n".join(data), "event")) if data else None
