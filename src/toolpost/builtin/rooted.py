"""Paths that a model writes, and the folders that the config names: which file is meant.

A path starts at the first folder; one that begins as a folder does, in the config's words or in
full, starts at that one. Here only words are compared: whether a file lies beneath its folder, the
kernel decides (``toolpost.beneath``).

Above: the tools that work on files. Below: ``beneath``. What went wrong is told in words for a
model, in one table.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import msgspec

from toolpost import beneath
from toolpost.errors import CallError, ConfigError, InvalidArguments, ResourceLimit, ToolFailed
from toolpost.wording import short

_MOST_SHOWN: Final = 200


class Root(msgspec.Struct, frozen=True):
    """A folder that may be used: where it is, and what the config calls it."""

    folder: str
    name: str


class Place(NamedTuple):
    """A path beneath a folder."""

    folder: str
    path: str


def roots(names: Sequence[str], base: Path) -> tuple[Root, ...]:
    """The folders that a config names; relative ones start at its own folder."""
    for name in names:
        if not name or "\0" in name:
            raise ConfigError(f"{short(name)!r} is not the path of a folder")
    return tuple(Root(os.path.normpath(base / name), os.path.normpath(name)) for name in names)


def place(among: Sequence[Root], path: str) -> Place:
    """Which of the folders a path is in, by its words alone."""
    if "\0" in path:
        raise InvalidArguments("/path: has a NUL in it, which no path has", effects="none")
    plain = path
    while plain.startswith("./"):
        plain = plain[2:].lstrip("/")
    full = path.startswith("/")
    for root in sorted(among, key=lambda one: len(one.folder), reverse=True):
        start = root.folder if full else root.name
        if plain == start or plain.startswith(start.rstrip("/") + "/"):
            return Place(root.folder, plain[len(start) :].lstrip("/") or ".")
    if full or not among:
        raise outside(path, among)
    return Place(among[0].folder, plain or ".")


def outside(path: str, among: Sequence[Root]) -> CallError:
    """That a path is not where it may be, and where it may."""
    names = ", ".join(short(one.name, _MOST_SHOWN) for one in among) or "none"
    return ToolFailed(
        f"{_denied(path)}. It is outside of the folders that may be used: {names}", effects="none"
    )


def legible(name: str) -> str:
    """Names are bytes; those that are no UTF-8 are shown with their codes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@contextmanager
def told(path: str, among: Sequence[Root]) -> Iterator[None]:
    """What the kernel says of a path becomes what a model reads of it."""
    try:
        yield
    except OSError as exc:
        _tell(exc, path, among)


def _tell(exc: OSError, path: str, among: Sequence[Root]) -> NoReturn:
    shown = short(path, _MOST_SHOWN)
    code = exc.errno
    if code in (errno.ENOENT, errno.ENOTDIR):
        why = ". A file stands where a directory is meant" if code == errno.ENOTDIR else ""
        raise ToolFailed(f"File not found: {shown}{why}", effects="none") from None
    if code in (errno.EXDEV, errno.ELOOP):
        raise outside(path, among) from None
    if isinstance(exc, PermissionError) or code == errno.EROFS:
        said = exc.strerror or ""
        why = f". It {said}" if said.startswith(("is ", "belongs ")) else ""
        raise ToolFailed(f"{_denied(path)}{why}", effects="none") from None
    if code == errno.EISDIR:
        raise ToolFailed(f"Is a directory: {shown}", effects="none") from None
    if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        raise ResourceLimit(f"No space left for {shown}", effects="none") from None
    raise ToolFailed(f"{(exc.strerror or 'It failed').capitalize()}: {shown}") from None


def _denied(path: str) -> str:
    return f"Permission denied: {short(path, _MOST_SHOWN)}"


@contextmanager
def opened(folder: str, *, lock: bool = False) -> Iterator[int]:
    """One of the folders, open."""
    fd = beneath.root(folder, lock=lock)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def reading(path: str, among: Sequence[Root]) -> Iterator[int]:
    """A file that a path means, open to be read; faults are told in words for a model."""
    at = place(among, path)
    with told(path, among), opened(at.folder) as folder:
        fd = beneath.regular(folder, at.path)
        try:
            yield fd
        finally:
            os.close(fd)
