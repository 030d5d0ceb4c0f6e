"""What an answer was packed in, undone piece by piece: never more at a time than was asked for.

Above: ``client.py``. Below: zlib. It refuses to know how much is too much.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

ACCEPTED: Final = "gzip, deflate"
_PIECE: Final = 64 * 1024
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class Undecodable(Exception):
    """Not what it says it is."""


class Decoder:
    """One answer's body; ``finish`` says whether it came to its end."""

    def __init__(self, encoding: str) -> None:
        coding = encoding.strip().lower()
        if coding not in ("", "identity") and coding not in _WINDOWS:
            raise Undecodable("it is packed in a way that was not asked for")
        self._windows = _WINDOWS.get(coding)
        self._unpack = None if self._windows is None else zlib.decompressobj(self._windows)
        self._begun = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What so many bytes of the wire amount to, 64 KiB at a time."""
        if self._unpack is None:
            yield data
            return
        if data and not self._begun:
            self._begun = True
            if self._windows == 15 and (data[0] & 15 != 8 or data[0] > 0x78):
                self._unpack = zlib.decompressobj(-15)  # many send it without its frame
        try:
            while data:
                if self._unpack.eof:
                    if self._windows != 31:
                        return
                    self._unpack = zlib.decompressobj(31)  # one member after another
                if piece := self._unpack.decompress(data, _PIECE):
                    yield piece
                data = self._unpack.unconsumed_tail or self._unpack.unused_data
        except zlib.error:
            raise Undecodable("it is not packed the way it says") from None

    def finish(self) -> None:
        if self._unpack is not None and self._begun and not self._unpack.eof:
            raise Undecodable("it breaks off in the middle")
