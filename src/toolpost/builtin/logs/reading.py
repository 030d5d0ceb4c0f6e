"""The lines of a log, whatever it comes as: text, a file, a compressed file. Bounded in memory: no
line is longer than ``LONGEST`` characters, and a compressed file is unpacked as it is read.

Above: ``analysis.py``. Below: nothing. Which file may be opened is not decided here.
"""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import re
import zlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any, BinaryIO, Final, Protocol

from toolpost.errors import ToolFailed

LONGEST: Final = 8192
_CHUNK: Final = 1 << 20
_MEMORY: Final = 128 << 20
"""Bytes that unpacking xz may take; its own format asks for as much as it likes."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*+[A-Za-z]")
_CONTROL: Final = re.compile(rb"[\x01-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_WIDE: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MAGIC: Final = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
_ARCHIVES: Final = ((b"PK\x03\x04", "a ZIP archive"), (b"7z\xbc\xaf\x27\x1c", "a 7z archive"))


class Unpacker(Protocol):
    """What the standard library's decompressors have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int = ...) -> bytes: ...


class Lines:
    """Iterate over it for lists of lines; it knows how much was read and what was left out."""

    def __init__(self, file: BinaryIO, *, size: int | None = None, most: int = 8 << 30) -> None:
        self._file, self._most = file, most
        self.size = size
        """Bytes of the file as it is, if known; ``taken`` of them were read."""
        self.taken = 0
        self.unpacked = 0
        """Bytes of log, after unpacking."""
        self.compression = ""
        self.cut = 0
        """Lines that were longer than ``LONGEST``."""
        self.cut_short = False
        """The log is larger than what may be read."""
        self.broken = ""
        """What is wrong with the compressed file, if it ends or breaks in the middle."""

    @classmethod
    def of_text(cls, text: str) -> Lines:
        data = text.encode("utf-8", "surrogatepass")
        return cls(io.BytesIO(data), size=len(data))

    def __iter__(self) -> Iterator[list[str]]:
        decode, narrow = None, True
        pending, skipping = "", False
        for data in self._data():
            if decode is None:
                decode = _decoder(data)
                narrow = not data.startswith(_WIDE)
            if narrow and b"\0" in data:
                data = data.translate(None, b"\0")  # a hole in a file, of any size
            text = decode.decode(data)
            if "\0" in text:
                text = text.replace("\0", "")
            if "\x1b" in text:
                text = _COLOURS.sub("", text)
            lines = (pending + text).split("\n")
            pending = lines.pop()
            if skipping and lines:
                lines, skipping = lines[1:], False
            elif skipping:
                pending = ""
            if len(pending) > LONGEST:
                lines.append(pending)
                pending, skipping = "", True
            yield self._bounded(lines)  # none, if a line is very long: who waits looks at the clock
        if pending:
            yield self._bounded([pending])

    def _bounded(self, lines: list[str]) -> list[str]:
        bounded = []
        for line in lines:
            if len(line) > LONGEST:
                self.cut += 1
                line = line[:LONGEST]
            bounded.append(line[:-1] if line.endswith("\r") else line)
        return bounded

    def _data(self) -> Iterator[bytes]:
        """The log's bytes, unpacked."""
        first = self._read()
        for magic, name in _MAGIC:
            if first.startswith(magic):
                self.compression = name
        for magic, name in _ARCHIVES:
            if first.startswith(magic):
                raise ToolFailed(f"This is {name}: unpack it, and name the log that is in it.")
        pieces = self._unpacked(first) if self.compression else self._plain(first)
        judged = False
        for piece in pieces:
            if not judged and (real := piece.translate(None, b"\0")[:65536]):
                _refuse_binary(piece[:65536], real)
                judged = True
            self.unpacked += len(piece)
            yield piece
            if self.unpacked >= self._most:
                self.cut_short = True
                return

    def _read(self) -> bytes:
        data = self._file.read(_CHUNK)
        self.taken += len(data)
        return data

    def _plain(self, data: bytes) -> Iterator[bytes]:
        while data:
            yield data
            data = self._read()

    def _unpacked(self, data: bytes) -> Iterator[bytes]:
        """One piece at a time, each at most a chunk, however well it was packed."""
        unpacker = _unpacker(self.compression)
        while True:
            try:
                piece = unpacker.decompress(data, max_length=_CHUNK)
            except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as fault:
                self.broken = str(fault) or type(fault).__name__
                return
            if piece:
                yield piece
            if unpacker.eof:
                data = unpacker.unused_data or self._read()
                if not data.strip(b"\0"):
                    return
                unpacker = _unpacker(self.compression)  # files of several parts are common
            elif getattr(unpacker, "needs_input", True):
                data = self._read()
                if not data:
                    self.broken = "it ends in the middle"
                    return
            else:
                data = b""


class _Gzip:
    """zlib's decompressor, which keeps what it did not get to, as the other ones do."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    def decompress(self, data: bytes, /, max_length: int = 0) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _unpacker(name: str) -> Unpacker:
    if name == "gzip":
        return _Gzip()
    if name == "bzip2":
        return bz2.BZ2Decompressor()
    if name == "xz":
        return lzma.LZMADecompressor(memlimit=_MEMORY)
    try:
        zstd: Any = import_module("compression.zstd")
    except ImportError:
        raise ToolFailed(
            "This log is packed with zstd, which needs Python 3.14: unpack it first (zstd -d)."
        ) from None
    found: Unpacker = zstd.ZstdDecompressor()
    return found


def _refuse_binary(data: bytes, real: bytes) -> None:
    if data.startswith(_WIDE):
        return
    if len(_CONTROL.findall(real)) > len(real) * 0.05:
        raise ToolFailed(
            "This is binary data, not a log. Ask classify_data what it is.", remedy="other_tool"
        )


def _decoder(data: bytes) -> codecs.IncrementalDecoder:
    if data.startswith(_WIDE):
        return codecs.getincrementaldecoder("utf-16")("replace")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError as fault:
        if fault.start < len(data) - 4 and len(_HIGH.findall(data)) > 20 * _sequences(data):
            return codecs.getincrementaldecoder("latin-1")()
    return codecs.getincrementaldecoder("utf-8-sig")("replace")


_HIGH: Final = re.compile(rb"[\x80-\xff]")


def _sequences(data: bytes) -> int:
    """How many characters of more than one byte are well written."""
    return sum(char > "\x7f" for char in data.decode("utf-8", "ignore"))
