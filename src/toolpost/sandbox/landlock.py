"""Where namespaces are missing: which paths Landlock opens, and whether it can.

Above: ``plan.py`` and ``sandbox.py``. Below: ``_entry.py`` makes the rules real. Landlock leaves
unix sockets and UDP open, so it is never used without the filter that takes sockets away.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from toolpost.errors import MissingPart
from toolpost.sandbox import view
from toolpost.sandbox._entry import LANDLOCK_CREATE_RULESET, libc
from toolpost.sandbox.confinement import Confinement, within
from toolpost.sandbox.nesting import unkept

NEEDED: Final = 6
"""The first version that keeps signals and abstract sockets inside."""
_ALL_FILES: Final = 0xFFFF
_READ: Final = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, list a folder
_LIST: Final = 1 << 3
_FILE: Final = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # what makes sense for a single file
_SPECIAL: Final = 1 << 6 | 1 << 11  # character and block devices
_ALL_NET: Final = 0b11
_ALL_SCOPES: Final = 0b11
_DEVICES: Final = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")


ALONE: Final[dict[str, Any]] = {"handled": [0, 0, _ALL_SCOPES], "rules": []}
"""Of files, nothing is said; but what other processes are, is theirs: no signal, no look inside."""


def version() -> int:
    """Landlock's version in this kernel; 0 if there is none."""
    return max(0, int(libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, 1)))


def check(confinement: Confinement, real: Mapping[str, str]) -> None:
    """Refuse what cannot be kept: here rights add up, from a folder to all that is in it."""
    pair = unkept(confinement.read, confinement.write, real)
    if pair is not None:
        raise MissingPart(
            f"{pair[0]} is only to be read, and lies in {pair[1]}, which is writable: Landlock "
            "alone cannot keep that; it needs bubblewrap and user namespaces, or another folder",
            at=("read",),
        )


def rules(
    confinement: Confinement, real: Mapping[str, str], *, hidden: str | None
) -> dict[str, Any]:
    """What may be reached; all else may not. ``real`` is granted path → where it is; of what is
    ``hidden`` in there, no more than names can be seen.
    """
    check(confinement, real)
    shown = (*view.system(), *view.interpreter()[1], *view.etc())
    reading = (*map(os.path.realpath, shown), *(real[path] for path in confinement.read))
    grants = [
        grant
        for path in reading
        if Path(path).exists()
        for grant in ([(path, _READ)] if hidden is None else _around(path, hidden))
    ]
    grants += [(real[path], _ALL_FILES & ~_SPECIAL) for path in confinement.write]
    grants += [(path, _FILE) for path in _DEVICES]
    grants.append(("/dev/zero", _READ))  # opened for writing it could be mapped: shared memory
    return {
        "handled": [_ALL_FILES, _ALL_NET, _ALL_SCOPES],
        "rules": [(path, r if Path(path).is_dir() else r & _FILE) for path, r in grants],
    }


def _around(path: str, hidden: str) -> Iterator[tuple[str, int]]:
    """Rights add up, from a folder to all that is in it: so of one that holds what is hidden, all
    that lies beside that. A link is left out: the right would be of what it leads to.
    """
    if within(path, hidden):
        return
    if not within(hidden, path):
        yield path, _READ
        return
    yield path, _LIST
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_symlink():
                yield from _around(entry.path, hidden)


def processes_of(user: int) -> int:
    """How many a user has: without a user namespace the limit counts them all."""
    found = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == user:
                    found += len(os.listdir(f"/proc/{entry.name}/task"))  # noqa: PTH208 - a count
            except OSError:
                continue  # it ended while we looked
    return found
