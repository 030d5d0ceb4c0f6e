"""Canonical JSON and digests: the same data has the same digest in every process and for ever."""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any, Final

import msgspec

_encode = msgspec.json.Encoder(order="sorted").encode
_UNSURE: Final = re.compile(rb"\.|null|[0-9][eE]|[\x7f\\]")
"""Where msgspec may write something else than ``canonical``: floats, NaN as null, some escapes."""
_MOST_FILES: Final = 4096
_files: dict[str, tuple[tuple[int, ...], str]] = {}
"""Path → what its file looked like when it was read, and the digest of its content."""


def canonical(value: Any) -> bytes:
    """JSON with sorted keys, no white space, exact integers; NaN and infinities are refused."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest_json(value: Any) -> str:
    """The same digest of data that came out of a JSON parser, three times as fast (1.2 µs instead
    of 3.7 for small arguments): only where numbers are not plain integers is the slow way taken.
    """
    try:
        body = _encode(value)
    except (OverflowError, UnicodeEncodeError):  # an integer above 64 bits, half of a character
        return digest(value)
    if _UNSURE.search(body) is not None:
        return digest(value)
    return "sha256:" + hashlib.sha256(body).hexdigest()


def digest(value: Any) -> str:
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def content_digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def file_digest(path: str) -> str | None:
    """The digest of a file's content; ``None`` if there is no file that can be read.

    A file that looks as it did is not read again: an edit changes its ctime, which no program can
    set back.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - one stat fewer
            look = _look(file.fileno())
            known = _files.get(path)
            if known is not None and known[0] == look:
                return known[1]
            found = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
            if _look(file.fileno()) == look:  # else somebody is writing it: read it again next time
                if len(_files) >= _MOST_FILES:
                    _files.clear()
                _files[path] = look, found
            return found
    except (OSError, ValueError):
        return None


def _look(fd: int) -> tuple[int, ...]:
    stat = os.fstat(fd)
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
