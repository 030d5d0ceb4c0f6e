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
from typing import Final, TextIO

import msgspec

from toolpost.redact import redact_text

_EVERY: Final = 0.1
_MOST: Final = 20_000
_LONGEST: Final = 300
_LOOKED_AT: Final = 2000
"""Characters of a text, of which fewer are written: half of a secret would not be known as one."""
Entry = tuple[float, str, str, int, float, str | None, str | None, str | None]


class _Line(msgspec.Struct, omit_defaults=True):
    time: str
    logger: str
    method: str
    path: str
    status: int
    ms: float
    peer: str | None = None
    caller: str | None = None
    call_id: str | None = None


_encode_lines: Final = msgspec.json.Encoder().encode_lines


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
        said = _encode_lines(_shown(lines))
        if not said.isascii():
            # what a terminal obeys, or turns around, is not all below the space
            plain = (json.dumps(msgspec.json.decode(line)) for line in said.splitlines())
            said = "".join(f"{line}\n" for line in plain).encode()
        text = said.decode()
        if left_out:
            text += f'{{"left_out":{left_out}}}\n'
        try:
            self._stream.write(text)
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


def _shown(entries: list[Entry]) -> list[_Line]:
    """Most of them are of the same second, whose name is made once."""
    shown, second, name = [], 0, ""
    for when, method, path, status, took, peer, caller, call_id in entries:
        if int(when) != second:
            second = int(when)
            name = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        shown.append(
            _Line(
                f"{name}.{int((when - second) * 1000):03d}Z",
                "toolpost.access",
                method,
                _safe(path[:_LOOKED_AT]),
                status,
                round(took * 1000, 3),
                peer,
                caller and _safe(caller[:_LOOKED_AT]),
                call_id,
            )
        )
    return shown


@lru_cache(maxsize=2048)
def _safe(text: str) -> str:
    """Without secrets and personal data, and of a length that a line can bear."""
    return redact_text(text.encode("utf-8", "replace").decode())[:_LONGEST]
