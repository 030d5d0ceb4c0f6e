"""Standard error, written aside: by a thread, so that a reader that hangs keeps nobody waiting.

Above: ``serve``, whose log, and whose tools' prints, go there while others wait for answers. Below:
a descriptor. What does not fit is counted and left out; at the end what is left is waited for, but
not for long.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Final, TextIO

_MOST: Final = 4 * 1024 * 1024
"""Bytes that may wait."""
_PATIENCE: Final = 2.0
"""Seconds that the end waits for the reader."""


@contextmanager
def written_aside() -> Iterator[None]:
    """Inside, ``sys.stderr`` never blocks."""
    stream = sys.stderr
    try:
        aside = Aside(stream)
    except (AttributeError, OSError, ValueError):
        yield  # it is closed, or no file: nothing to wait for
        return
    sys.stderr = aside
    try:
        yield
    finally:
        sys.stderr = stream
        aside.end(_PATIENCE)


class Aside(io.TextIOBase):
    """A text stream over the descriptor of another. The thread has no lock that the end of the
    process would wait for.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._fd = stream, stream.fileno()
        stream.flush()
        self._pieces: SimpleQueue[bytes | None] = SimpleQueue()
        self._lock, self._waiting, self._left_out = threading.Lock(), 0, 0
        self._thread = threading.Thread(target=self._run, name="toolpost-stderr", daemon=True)
        self._thread.start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._stream.errors

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return self._stream.isatty()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if not text:
            return 0
        data = text.encode(self.encoding or "utf-8", "backslashreplace")
        with self._lock:
            if self._waiting + len(data) > _MOST:
                self._left_out += 1
                return len(text)
            data = self._told_left_out() + data
            self._waiting += len(data)
            self._pieces.put(data)
        return len(text)

    def end(self, seconds: float) -> None:
        """Write what is left; give up after so long."""
        with self._lock:
            self._pieces.put(self._told_left_out())
            self._pieces.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (data := self._pieces.get()) is not None:
            self._out(data)
            with self._lock:
                self._waiting -= len(data)

    def _told_left_out(self) -> bytes:
        left_out, self._left_out = self._left_out, 0
        return b'{"left_out":%d}\n' % left_out if left_out else b""

    def _out(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            pass  # nobody reads it any more: that is no reason to stop serving
