"""What changed in some folders since a moment: how many bytes and how many files.

``quota.py`` asks when a file system has lost more than a call may take. A file or a folder counts,
with all it holds, if its last change (ctime) is later: that time no program can set.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolpost.sandbox.confinement import within

_DEEPEST: Final = 200
"""Folders in one another; no honest tree is deeper, and each takes a descriptor while we count."""


@dataclass(slots=True)
class Changes:
    """What was found; ``hidden`` if there was something that could not be looked at."""

    bytes: int = 0
    files: int = 0
    hidden: bool = False


def count(folders: Sequence[str], since: float, *, disk: int, files: int) -> Changes:
    """The changes in these folders, and below. It stops once ``disk`` or ``files`` is passed."""
    counting = _Counting(since, disk, files)
    for folder in folders:
        inside = any(within(folder, other) for other in folders if other != folder)
        with contextlib.suppress(OSError):
            if not inside:
                about = Path(folder).stat()
                counting.one(about)
                if stat.S_ISDIR(about.st_mode):
                    counting.below(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), depth=0)
    return counting.found


class _Counting:
    def __init__(self, since: float, disk: int, files: int) -> None:
        self._since, self._disk, self._files = since, disk, files
        self._seen: set[tuple[int, int]] = set()
        self.found = Changes()

    def below(self, fd: int, *, depth: int) -> None:
        """Everything in a folder; ``fd`` is closed."""
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    if self._enough():
                        return
                    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                        about = entry.stat(follow_symlinks=False)
                        self.one(about)
                        if stat.S_ISDIR(about.st_mode):
                            self._folder(entry.name, fd, about, depth=depth)
        finally:
            os.close(fd)

    def one(self, about: os.stat_result) -> None:
        if about.st_ctime < self._since:
            return
        if about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode):  # one file of several names
            if (about.st_dev, about.st_ino) in self._seen:
                return
            self._seen.add((about.st_dev, about.st_ino))
        self.found.files += 1
        self.found.bytes += about.st_blocks * 512

    def _folder(self, name: str, above: int, about: os.stat_result, *, depth: int) -> None:
        """One that the tool's user has closed to us hides something; another's is not the tool's
        either.
        """
        try:
            if depth == _DEEPEST:
                raise PermissionError
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        except PermissionError:
            self.found.hidden = depth == _DEEPEST or about.st_uid == os.geteuid()
            return
        self.below(fd, depth=depth + 1)

    def _enough(self) -> bool:
        found = self.found
        return found.hidden or found.bytes > self._disk or found.files > self._files
