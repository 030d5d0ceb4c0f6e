"""Grants that lie in one another: what is put where, so that each keeps the rights it was given.

Above: ``view.py`` makes mounts of it, ``landlock.py`` refuses what it cannot keep. Below: nothing;
it refuses to look at a disk: paths go in, places come out.

A mount cannot be renamed or removed, but the folders above it can. Whoever moves one of them finds,
the next time, what could only be read where nobody keeps it. So each folder between a writable tree
and what is only to be read in it is a mount as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from toolpost.sandbox.confinement import within


class Placed(NamedTuple):
    """One mount."""

    place: str
    writable: bool
    grant: str
    """What is behind it: a granted path."""
    outer: str | None = None
    """Of a folder between two grants: the place of the tree that it is a part of."""


def placed(read: Iterable[str], write: Iterable[str], real: Mapping[str, str]) -> list[Placed]:
    """Outer ones first, so that what lies in one is put on top of it."""
    grants = dict.fromkeys(write, True)
    grants |= dict.fromkeys((path for path in read if path not in grants), False)
    found = {path: Placed(path, writable, path) for path, writable in grants.items()}
    for place, grant in _by_another_name(grants, real):
        found.setdefault(place, Placed(place, grants[grant], grant))
    between = {one.place: one for one in _between(found)}
    return sorted((*found.values(), *between.values()), key=lambda one: one.place.count("/"))


def unkept(
    read: Iterable[str], write: Iterable[str], real: Mapping[str, str]
) -> tuple[str, str] | None:
    """What is only to be read, and the writable tree that it lies in: the first pair there is."""
    write = tuple(write)
    pairs = ((inner, outer) for inner in read if inner not in write for outer in write)
    return next((pair for pair in pairs if _below(*(real[path] for path in pair))), None)


def _by_another_name(
    grants: Mapping[str, bool], real: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Where else a grant would be seen: in a writable tree that has it, but is named by a link."""
    for outer in (path for path, writable in grants.items() if writable):
        for inner in grants:
            if _below(real[inner], real[outer]):
                yield outer + real[inner][len(real[outer]) :], inner


def _between(found: Mapping[str, Placed]) -> Iterator[Placed]:
    writable = [one.place for one in found.values() if one.writable]
    for kept in (one.place for one in found.values() if not one.writable):
        above = _parent(kept)
        while any(_below(above, tree) for tree in writable):
            outer = found[max((p for p in found if within(above, p)), key=len)]
            if outer.writable and outer.place != above:
                yield Placed(above, True, outer.grant, outer.place)
            above = _parent(above)


def _below(path: str, root: str) -> bool:
    return path != root and within(path, root)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
