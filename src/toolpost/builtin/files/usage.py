"""How many bytes the files of a root take together, without looking at each of them.

``writing.py`` asks before it writes, and holds the root's lock meanwhile. The files are counted
once (``beneath.total_size``). From then on the sum is kept as an extended attribute of the root and
changed with every write, so all worker processes share it and a restart keeps it. They are counted
again when the sum says that the root is full, and when the file system has grown by much more than
we wrote: then another program may have written to the root.
"""

from __future__ import annotations

import errno
import os
from time import monotonic, time
from typing import Final

import msgspec

from toolpost import beneath

_ATTRIBUTE: Final = "user.toolpost.usage"
_BLOCK: Final = 4096
_PAUSE: Final = 20
"""A full root is not counted again before this many times the duration of a count has passed."""
_UNSUPPORTED: Final = (errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOSPC)


class _Usage(msgspec.Struct, array_like=True):
    size: int
    """Bytes of all files, as far as we know."""
    occupied: int
    """Bytes the file system would have in use if nobody else wrote to it."""
    counted_at: float
    duration: float
    """Seconds the count took."""


_in_memory: Final[dict[tuple[int, int], bytes]] = {}
"""By device and inode: for roots whose file system has no extended attributes."""


def reserve(top: int, *, growth: int, most: int) -> bool:
    """Add ``growth`` to the sum of the root ``top``; False if it would go over ``most``."""
    known = _load(top)
    if known is None or _others_wrote(known, top, most):
        known = _count(top)
    if known.size + growth > most and time() - known.counted_at > _PAUSE * known.duration:
        known = _count(top)
    fits = known.size + growth <= most
    if fits:
        known.size += growth
        known.occupied += growth + (_BLOCK if growth > 0 else 0)
    _save(top, known)
    return fits


def release(top: int, size: int) -> None:
    """Subtract the size of a file that was deleted."""
    known = _load(top)
    if known is not None:
        known.size = max(0, known.size - size)
        known.occupied -= size
        _save(top, known)


def _others_wrote(known: _Usage, top: int, most: int) -> bool:
    return _occupied(top) - known.occupied > most // 10


def _count(top: int) -> _Usage:
    start = monotonic()
    size = beneath.total_size(top)
    return _Usage(size, _occupied(top), time(), monotonic() - start)


def _occupied(top: int) -> int:
    about = os.fstatvfs(top)
    return (about.f_blocks - about.f_bfree) * about.f_frsize


def _load(top: int) -> _Usage | None:
    try:
        stored = os.getxattr(top, _ATTRIBUTE)
    except OSError:
        stored = _in_memory.get(_identity(top), b"")
    try:
        return msgspec.json.decode(stored, type=_Usage)
    except msgspec.DecodeError:
        return None


def _save(top: int, known: _Usage) -> None:
    stored = msgspec.json.encode(known)
    try:
        os.setxattr(top, _ATTRIBUTE, stored)
    except OSError as exc:
        if exc.errno not in _UNSUPPORTED:
            raise
        _in_memory[_identity(top)] = stored


def _identity(top: int) -> tuple[int, int]:
    about = os.fstat(top)
    return about.st_dev, about.st_ino
