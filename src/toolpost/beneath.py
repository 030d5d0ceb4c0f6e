"""Files beneath a folder, and none outside of it: the kernel resolves every path, not we.

A path is opened with ``openat2`` and may not leave its folder: not by ``..``, not by an absolute
path, not by a link, whoever swaps one for another meanwhile. What a caller asks for is looked at
before it is opened for use, so that no pipe makes it wait and no device is touched.

Above: tools that work on files. Below: the kernel. It raises what the kernel says, as ``OSError``,
and refuses to know what a file is for; where the kernel lacks ``openat2``, nothing is opened.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import stat
import sys
from collections import deque
from collections.abc import Iterator
from heapq import nsmallest
from operator import attrgetter
from typing import Final, Literal, NamedTuple

from toolpost.errors import MissingPart

Kind = Literal["file", "directory", "symlink", "other"]

_OPENAT2: Final = 437
_NO_MAGIC_LINKS: Final = 0x02
_NO_LINKS: Final = 0x04
_BENEATH: Final = 0x08
_TRIES: Final = 100
"""The kernel says "again" when something is renamed while it walks up a path."""
_STATE: Final = ".toolpost"
"""Where approvals, keys and the audit are kept: nobody's files, whatever folder they lie in."""


MISSING: Final = (
    "this system has no openat2 (Linux 5.6 has), or forbids it: files cannot be kept beneath "
    "their folders"
)


class _How(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_libc: Final = ctypes.CDLL(None, use_errno=True)


class Entry(NamedTuple):
    """One thing in a folder; ``name`` is its path from where the walk began."""

    name: str
    kind: Kind
    size: int
    target: str | None = None
    """Where a link says that it leads; it is not followed."""


def root(folder: str, *, lock: bool = False) -> int:
    """A folder, opened to look for things beneath it. With ``lock`` others who want that wait."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if lock:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            os.close(fd)
            raise
    return fd


def opened(folder: int, path: str, flags: int, *, links: bool = True) -> int:
    """What is at a path beneath the folder. Without ``links`` none may stand in the path."""
    resolve = _BENEATH | _NO_MAGIC_LINKS | (0 if links else _NO_LINKS)
    fd = _openat2(folder, path, flags | os.O_CLOEXEC, resolve)
    try:
        if f"/{_STATE}/" in f"{real(fd)}/":
            raise PermissionError(errno.EACCES, "belongs to toolpost itself", path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:  # half of a character, which no name has
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    if b"\0" in raw:
        raise OSError(errno.EINVAL, "a path has no NUL in it", path)
    how = _How(flags, 0, resolve)
    for _ in range(_TRIES):
        fd = _libc.syscall(_OPENAT2, folder, raw, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return int(fd)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    if code == errno.EXDEV:
        raise PermissionError(errno.EXDEV, "leads out of its folder", path)
    if code in (errno.ENOSYS, errno.EPERM) and not available():
        raise MissingPart(MISSING)
    raise OSError(code, os.strerror(code), path)


def available() -> bool:
    """Whether the kernel can do it, and lets us."""
    if sys.platform != "linux":
        return False
    how = _How(os.O_PATH | os.O_CLOEXEC, 0, _BENEATH)
    at_here = -100
    fd = _libc.syscall(_OPENAT2, at_here, b".", ctypes.byref(how), ctypes.sizeof(how))
    if fd >= 0:
        os.close(fd)
    return bool(fd >= 0)


def real(fd: int) -> str:
    """Where something that is open lies now."""
    return os.readlink(_proc(fd))  # noqa: PTH115 - a number of ours, not a path of somebody's


def _proc(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def regular(folder: int, path: str) -> int:
    """A file beneath the folder, to be read. A folder, a pipe, a socket or a device is refused
    before it is opened.
    """
    fd = opened(folder, path, os.O_PATH)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise PermissionError(errno.EACCES, "is not a regular file", path)
        return os.open(_proc(fd), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(fd)


def parent(folder: int, path: str, *, make: bool = False) -> tuple[int, str]:
    """The folder that a path's last name is in, opened, and that name. ``make`` makes it, and
    those above it, if they are not there.
    """
    above, _, name = path.rstrip("/").rpartition("/")
    if name in ("", ".", ".."):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    above = above or ("/" if path.startswith("/") else ".")
    missing: list[str] = []
    while True:
        try:
            fd = opened(folder, above, os.O_RDONLY | os.O_DIRECTORY)
            break
        except FileNotFoundError:
            if not make or above == "." or above.endswith("/.."):
                raise
        above, _, last = above.rpartition("/")
        above = above or "."
        if last not in ("", "."):
            missing.append(last)
    return _made(fd, missing), name


def _made(fd: int, names: list[str]) -> int:
    """Folders made one in the other, the last name first; the innermost, opened."""
    while names:
        name = names.pop()
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=fd)
            inner = opened(fd, name, os.O_RDONLY | os.O_DIRECTORY, links=False)
        finally:
            os.close(fd)
        fd = inner
    return fd


def replace(folder: int, name: str, content: bytes, *, like: os.stat_result | None) -> None:
    """Put a file into a folder in one step: who reads it sees the old one or the new one, whole.
    ``like`` is the old one, whose owner and permissions the new one has.
    """
    spare = f".{secrets.token_hex(8)}.part"
    fd, named = _nameless(folder, spare)
    try:
        _filled(fd, content, like)
        if not named:
            os.link(_proc(fd), spare, dst_dir_fd=folder)
            named = True
        os.rename(spare, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        if named:
            with contextlib.suppress(OSError):
                os.unlink(spare, dir_fd=folder)
        raise
    finally:
        os.close(fd)


def _nameless(folder: int, spare: str) -> tuple[int, bool]:
    """A new file, and whether it has its name: best if not, for then it goes with who is killed."""
    try:
        return os.open(_proc(folder), os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666), False
    except OSError as exc:
        if exc.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
    flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY | os.O_CLOEXEC
    return os.open(spare, flags, 0o666, dir_fd=folder), True


def _filled(fd: int, content: bytes, like: os.stat_result | None) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]
    if like is not None:
        mine = os.fstat(fd)
        if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
            with contextlib.suppress(PermissionError):  # only the system's owner may
                os.fchown(fd, like.st_uid, like.st_gid)
        os.fchmod(fd, stat.S_IMODE(like.st_mode) & 0o777)
    os.fsync(fd)


def total_size(folder: int) -> int:
    """Bytes of all files beneath the folder. Links count as themselves."""
    total, waiting = 0, ["."]
    while waiting:
        inside = waiting.pop()
        try:
            fd = opened(folder, inside, os.O_RDONLY | os.O_DIRECTORY, links=False)
        except OSError:
            continue  # it has gone, or is not for us
        try:
            with os.scandir(fd) as found:
                for one in found:
                    if one.is_dir(follow_symlinks=False):
                        waiting.append(f"{inside}/{one.name}")
                    else:
                        with contextlib.suppress(FileNotFoundError):
                            total += one.stat(follow_symlinks=False).st_size
        finally:
            os.close(fd)
    return total


def walk(folder: int, path: str = ".", *, recursive: bool = True, most: int) -> Iterator[Entry]:
    """What is in a folder, its own things first, each folder's by their names, and at most so many
    of a folder's. Links are told and not followed.
    """
    start = opened(folder, path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        waiting = deque(("",))
        while waiting:
            inside = waiting.popleft()
            for entry in _entries(start, inside, most):
                yield entry
                if recursive and entry.kind == "directory":
                    waiting.append(entry.name)
    finally:
        os.close(start)


def _entries(start: int, inside: str, most: int) -> Iterator[Entry]:
    try:
        fd = opened(start, inside or ".", os.O_RDONLY | os.O_DIRECTORY, links=False)
    except OSError:
        if not inside:
            raise
        return  # it has gone, or is not for us: it was told that it is there
    try:
        with os.scandir(fd) as found:
            for one in nsmallest(most, found, key=attrgetter("name")):
                if (entry := _entry(fd, one, inside)) is not None:
                    yield entry
    finally:
        os.close(fd)


def _entry(fd: int, one: os.DirEntry[str], inside: str) -> Entry | None:
    name = f"{inside}/{one.name}" if inside else one.name
    try:
        about = one.stat(follow_symlinks=False)
        if stat.S_ISLNK(about.st_mode):
            return Entry(name, "symlink", about.st_size, os.readlink(one.name, dir_fd=fd))
    except OSError:
        return None  # it went while we looked
    if stat.S_ISDIR(about.st_mode):
        return Entry(name, "directory", 0)
    return Entry(name, "file" if stat.S_ISREG(about.st_mode) else "other", about.st_size)
