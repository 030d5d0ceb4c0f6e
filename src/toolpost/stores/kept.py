"""What every store agrees on, so that one can take another's place: which keys, which values.

Above: the stores. It knows nothing of where they put things.
"""

from __future__ import annotations

import math
import os
import pwd
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from toolpost.contracts import Line
from toolpost.errors import ConfigError, Conflict, InvalidArguments

SPACE_BYTES: Final = 200
KEY_BYTES: Final = 2000
"""Both together fit into an entry of every database's index."""
_LAST: Final = 0x10FFFF

FULL: Final = "the disk is full"
READ_ONLY: Final = "its file system is read-only"
FORBIDDEN: Final = "it may not be written to"
UNREADABLE: Final = "it may not be opened"
REMEDIES: Final = {
    FULL: "free some space on its disk",
    READ_ONLY: 'mount it for writing, or say state = "…" in the config for another folder',
    FORBIDDEN: "give this user the right to write to the file and to its folder",
    UNREADABLE: "give this user the right to read and write the file",
}
"""What people do about it, by the reason that a store gives."""


def checked(space: str, key: str) -> None:
    """Refuse what not every store can hold as a key."""
    for what, text, most in (("space", space, SPACE_BYTES), ("key", key, KEY_BYTES)):
        try:
            size = len(text) if text.isascii() else len(text.encode())
        except UnicodeEncodeError:
            raise InvalidArguments(f"A {what} of a record is no proper Unicode text.") from None
        if not 0 < size <= most or "\0" in text:
            raise InvalidArguments(f"A {what} of a record has 1 to {most} bytes, none of them NUL.")


def ranged(space: str, prefix: str, after: str) -> None:
    """The same for the borders of a scan, which may be empty."""
    checked(space, prefix or "-")
    checked(space, after or "-")


def encoded(value: Any) -> bytes:
    """The value as JSON, taken now: what the caller changes later is not stored."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as fault:
        raise InvalidArguments(f"A record holds JSON values only: {fault}.") from fault


def lifetime(ttl: float | None) -> float | None:
    """Seconds to live, or ``None`` for ever."""
    if ttl is not None and math.isnan(ttl):
        raise InvalidArguments("The time to live of a record is not a number.")
    return None if ttl is None or ttl > 3e9 else ttl


def behind(prefix: str) -> str | None:
    """The least text that is greater than all that begin with ``prefix``; ``None``: no such."""
    stem = prefix.rstrip(chr(_LAST))
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    # surrogates are no characters: what comes after the last one before them is the first behind
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)


def lined(lines: Iterable[Line]) -> Sequence[Line]:
    """The lines, if every journal can hold them."""
    taken = tuple(lines)
    for line in taken:
        checked("journal", line.writer)
        if not 0 < line.number < 2**63:
            raise InvalidArguments("Lines of a journal are counted from 1.")
    return taken


def unwritten(lines: Iterable[Line], there: Mapping[tuple[str, int], bytes]) -> Sequence[Line]:
    """The lines that are not there yet: the same line again is no new one.

    So a writer that does not know whether a line arrived may send it again. Another line under
    a number that is taken is a ``Conflict``.
    """
    fresh: dict[tuple[str, int], Line] = {}
    for line in lines:
        place = (line.writer, line.number)
        body = fresh[place].body if place in fresh else there.get(place)
        if body is None:
            fresh[place] = line
        elif body != line.body:
            raise Conflict(f"The journal has another line {line.number} of this writer already.")
    return list(fresh.values())


def unwritable(folder: Path, why: str) -> ConfigError:
    """A folder in which a store cannot be made: where, why, and what to do about it."""
    owner = foreign_owner(folder)
    belongs = "" if owner is None else f"; it belongs to {owner}"
    say = "Say" if owner is None else f"Run this as {owner}, or say"
    return ConfigError(
        f'nothing can be kept in {folder}: {why}{belongs}. {say} in the config state = "…" for '
        'another folder, or store = { kind = "memory" } to keep nothing'
    )


def foreign_owner(path: Path) -> str | None:
    """The user that a file or folder belongs to, if that is somebody else."""
    try:
        owner = path.stat().st_uid
    except OSError:
        return None
    if owner == os.geteuid():
        return None
    try:
        return f"the user {pwd.getpwuid(owner).pw_name!r}"
    except KeyError:
        return f"the user with the id {owner}"
