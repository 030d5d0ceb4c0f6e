"""Whose files they are, once root has become somebody else: id maps for single mounts.

Above: ``plan.py``, where we are root. Below: the kernel. The tool's user sees a tree as its own if
it belongs to the owner of that tree, and what it writes there belongs to that owner: nothing is
ever given to another owner on the disk.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from toolpost.sandbox._entry import (
    AT_EMPTY_PATH,
    AT_FDCWD,
    MOUNT_ATTR_IDMAP,
    MOUNT_SETATTR,
    OPEN_TREE,
    OPEN_TREE_CLONE_CLOEXEC,
    check,
    libc,
)

_PYTHON: Final = (sys.executable, "-I", "-S")
_MAKER: Final = """
import ctypes, sys
if ctypes.CDLL(None).unshare(0x10000000) == 0:
    print("made", flush=True)
    sys.stdin.read()
"""
_IDS: Final = 2**32 - 1
_READ_BY_OTHERS: Final = 0o005


class Maps:
    """The id maps in use, one for each owner; each is a user namespace that nobody is in."""

    def __init__(self, user: int) -> None:
        self._user = user
        self._made: dict[tuple[int, int], int] = {}

    def needed(self, path: str, *, write: bool) -> bool:
        """A public tree is seen as others see it; a private one that is granted is seen whole."""
        about = Path(path).stat()
        if about.st_uid == self._user:
            return False
        wanted = _READ_BY_OTHERS if Path(path).is_dir() else 0o004
        return write or about.st_mode & wanted != wanted

    def of(self, path: str) -> int:
        """The map for what the owner of ``path`` owns: a descriptor, ours."""
        about = Path(path).stat()
        owner = about.st_uid, about.st_gid
        if owner not in self._made:
            self._made[owner] = _namespace(*(_extents(one, self._user) for one in owner))
        return self._made[owner]

    def fault(self, path: str) -> str | None:
        """Try it: why the tree cannot be had under the map."""
        try:
            flags = ctypes.c_uint(OPEN_TREE_CLONE_CLOEXEC)
            tree = check(libc.syscall(OPEN_TREE, AT_FDCWD, os.fsencode(path), flags), path)
            try:
                wish = (ctypes.c_uint64 * 4)(MOUNT_ATTR_IDMAP, 0, 0, self.of(path))
                size = ctypes.c_size_t(ctypes.sizeof(wish))
                flags = ctypes.c_uint(AT_EMPTY_PATH)
                check(libc.syscall(MOUNT_SETATTR, tree, b"", flags, wish, size), path)
            finally:
                os.close(tree)
        except OSError as error:
            return error.strerror
        return None

    def close(self) -> None:
        for number in self._made.values():
            os.close(number)
        self._made.clear()


def _extents(owner: int, user: int) -> str:
    """On the disk → as seen: the owner as the tool's user, everybody else as himself."""
    low, high = sorted((owner, user))
    same = ((0, low), (low + 1, high), (high + 1, _IDS))
    lines = [f"{first} {first} {end - first}" for first, end in same if end > first]
    return "\n".join([*lines, f"{owner} {user} 1"])


def _namespace(uids: str, gids: str) -> int:
    """A user namespace: made by a process that lives just long enough to be taken hold of."""
    argv = [*_PYTHON, "-c", _MAKER]
    with subprocess.Popen(  # noqa: S603 - our own program
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}
    ) as maker:
        assert maker.stdout is not None
        if maker.stdout.readline() != b"made\n":
            raise PermissionError("no user namespace could be made for an id map")
        Path(f"/proc/{maker.pid}/uid_map").write_text(uids)
        Path(f"/proc/{maker.pid}/gid_map").write_text(gids)
        return os.open(f"/proc/{maker.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
