"""What the bytes of a file are: text in some encoding, a picture, or neither.

Above: ``files.py`` and who searches files. Below: the standard library's codecs. It guesses from
what it is shown; who knows better says so.
"""

from __future__ import annotations

import codecs
import re
from typing import Final, NamedTuple

from toolpost.errors import InvalidArguments

_IMAGES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_CONTROLS: Final = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
"""Bytes that no text has: an escape, a bell, a form feed it may."""
_UNUSED: Final = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
"""Bytes that Windows-1252 leaves undefined."""
_MOSTLY: Final = 0.7
"""So much of every other byte is zero in UTF-16 of western texts."""
_LOOKED_AT: Final = 64 * 1024
_NAMES: Final = re.compile(
    r"ascii|utf-(?:8|16|32)(?:-(?:le|be|sig))?|iso8859-\d+|cp\d+|koi8-[rtu]|mac-\w+|tis-620"
    r"|(?:shift_jis|euc_|gb|big5)\w*|johab"
)
"""Encodings that take time in proportion to the text; there are others."""


class Encoding(NamedTuple):
    """How a file's text is written; ``mark`` is what stands before it, at the file's start."""

    name: str
    mark: bytes = b""

    @property
    def width(self) -> int:
        """Bytes of its smallest character."""
        return 4 if self.name.startswith("utf-32") else 2 if self.name.startswith("utf-16") else 1


_MARKED: Final = (
    Encoding("utf-8", codecs.BOM_UTF8),
    Encoding("utf-32-le", codecs.BOM_UTF32_LE),  # before UTF-16, whose mark it begins with
    Encoding("utf-32-be", codecs.BOM_UTF32_BE),
    Encoding("utf-16-le", codecs.BOM_UTF16_LE),
    Encoding("utf-16-be", codecs.BOM_UTF16_BE),
)


class Piece(NamedTuple):
    """The text of some bytes, and how many of them it took: the last character may be cut off."""

    text: str
    used: int


def image(data: bytes) -> str | None:
    """The type of a picture that begins like this, or nothing."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for start, mime in _IMAGES if data.startswith(start)), None)


def encoding(head: bytes, *, whole: bool) -> Encoding | None:
    """The encoding of a file that begins like this, ``None`` if it is no text. ``whole``: there is
    no more of it.
    """
    if (marked := _marked(head)) is not None:
        return marked
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=whole)
    except UnicodeDecodeError:
        pass
    else:
        return _unmarked(head) if _CONTROLS.search(head[:_LOOKED_AT]) else Encoding("utf-8")
    if (wide := _unmarked(head)) is not None or _CONTROLS.search(head[:_LOOKED_AT]):
        return wide
    return Encoding("latin-1" if _UNUSED.search(head) else "cp1252")


def _marked(head: bytes) -> Encoding | None:
    return next((one for one in _MARKED if head.startswith(one.mark)), None)


def _unmarked(head: bytes) -> Encoding | None:
    """UTF-16 without a mark: nearly every other byte is zero, and hardly one of the rest."""
    data = head[:_LOOKED_AT]
    half = len(data) // 2
    if half < 2:
        return None
    odd, even = data[1::2].count(0) / half, data[::2].count(0) / half
    if odd > _MOSTLY and even < 1 - _MOSTLY:
        return Encoding("utf-16-le")
    return Encoding("utf-16-be") if even > _MOSTLY and odd < 1 - _MOSTLY else None


def named(name: str, head: bytes) -> Encoding:
    """The encoding that somebody names, of a file that begins like this."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):  # ValueError: a NUL in it
        found = ""
    if not _NAMES.fullmatch(found):
        raise InvalidArguments(
            "/encoding: there is no such encoding; leave it out to have it found out",
            effects="none",
        )
    marked = _marked(head)
    plain = found.removesuffix("-sig")
    if marked is not None and marked.name.startswith(plain):
        return marked
    return Encoding(f"{plain}-le" if plain in ("utf-16", "utf-32") else plain)


def piece(data: bytes, how: Encoding, *, whole: bool) -> Piece:
    """Bytes as text. ``whole``: the file ends here, so that nothing can be cut off."""
    decoder = codecs.getincrementaldecoder(how.name)("replace")
    text = decoder.decode(data, final=whole)
    cut = 0 if whole else len(decoder.getstate()[0])
    return Piece(text, len(data) - cut)


def begun(data: bytes, how: Encoding, *, at: int) -> int:
    """How many bytes at this place of a file belong to a character that began before it."""
    if how.name != "utf-8":
        return -(at - len(how.mark)) % how.width
    count = 0
    while count < min(3, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count
