"""The access log: a line of JSON for each request, with the id of its call.

Above: the application. Below: a stream. Lines are put together and written in bunches, by a thread,
so that a reader that hangs keeps nobody waiting; what does not fit is counted and left out. Never
in it: queries, headers, bodies. A path that no route has may hold anything, and is redacted.
"""

from __future__ import annotations

import asyncio
import json
import time
from functools import lru_cache
from typing import Any, Final, TextIO

import msgspec

from toolpost.redact import redact_text

_EVERY: Final = 0.1
_MOST: Final = 20_000
_LONGEST: Final = 300
Entry = tuple[float, str, str, int, float, str | None, str | None, str | None]


class AccessLog:
    """``note`` costs no more than a place in a list."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: list[Entry] = []
        self._left_out = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None

    def note(
        self,
        method: str,
        path: str,
        *,
        status: int,
        began: float,
        peer: str | None,
        caller: str | None,
        call_id: str | None,
    ) -> None:
        if len(self._lines) >= _MOST:
            self._left_out += 1
            return
        took = time.perf_counter() - began
        self._lines.append((time.time(), method, path, status, took, peer, caller, call_id))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_EVERY, self._flush)

    def _flush(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if self._writing is not None and not self._writing.done():
            self._timer = loop.call_later(_EVERY, self._flush)
            return
        self._writing = loop.run_in_executor(None, self._write, *self._taken())

    def _taken(self) -> tuple[list[Entry], int]:
        taken, self._lines = self._lines, []
        left_out, self._left_out = self._left_out, 0
        return taken, left_out

    def _write(self, lines: list[Entry], left_out: int) -> None:
        text = b"\n".join([_line(entry) for entry in lines]).decode()
        if left_out:
            text += f'\n{{"left_out":{left_out}}}'
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads it any more: that is no reason to stop serving

    async def close(self) -> None:
        """Write what is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            await self._writing
        if self._lines or self._left_out:
            self._write(*self._taken())


def _line(entry: Entry) -> bytes:
    when, method, path, status, took, peer, caller, call_id = entry
    fields: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when))
        + f".{int(when % 1 * 1000):03d}Z",
        "logger": "toolpost.access",
        "method": method,
        "path": _safe(path),
        "status": status,
        "ms": round(took * 1000, 3),
        "peer": peer,
        "caller": caller and _safe(caller),
        "call_id": call_id,
    }
    said = {name: value for name, value in fields.items() if value is not None}
    line = msgspec.json.encode(said)
    # what a terminal obeys, or turns around, is not all below the space
    return line if line.isascii() else json.dumps(said).encode()


@lru_cache(maxsize=2048)
def _safe(text: str) -> str:
    """Without secrets and personal data, and of a length that a line can bear."""
    shown = text.encode("utf-8", "replace").decode()[:_LONGEST]
    return redact_text(shown)
