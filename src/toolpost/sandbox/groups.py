"""Control groups: what bounds all processes of a sandbox together, version 2 first, then 1.

Above: ``stem.py`` has a group for every child, joined ahead of time (to join costs milliseconds,
to change a bound costs nothing). Below: the files of the kernel. It refuses to know what is in it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Final

from toolpost import incarnation

_PERIOD: Final = 100_000
_MOST_QUOTA: Final = 10**11
"""A million processors: beyond it the kernel counts no further."""
_SOCKETS: Final = "memory.kmem.tcp.limit_in_bytes"
"""What TCP holds is counted apart in version 1; in 2 it is memory like any other."""
_NEEDED: Final = frozenset(("memory", "pids"))
_WANTED: Final = ("memory", "pids", "cpu")
_numbers: Final = count()
"""Of all groups of this process: several sandboxes have one place for them."""


class Group:
    """One set of bounds, for one child; made by ``Groups``."""

    def __init__(self, folders: Mapping[str, Path], version: int) -> None:
        self._folders = folders
        self._version = version

    @property
    def entrances(self) -> list[str]:
        """The files into which a process writes itself to be bound."""
        return [str(folder / "cgroup.procs") for folder in dict.fromkeys(self._folders.values())]

    def limit(self, *, memory: int | None, cpus: float | None, processes: int) -> None:
        self._write("pids", "pids.max", str(processes))
        if memory is not None and self._version == 2:
            self._write("memory", "memory.max", str(memory))
            self._write("memory", "memory.swap.max", "0", needed=False)
            self._write("memory", "memory.oom.group", "1", needed=False)
        elif memory is not None:
            self._write("memory", "memory.limit_in_bytes", str(memory))
            self._write("memory", "memory.memsw.limit_in_bytes", str(memory), needed=False)
            self._write("memory", _SOCKETS, str(memory), needed=False)
        if cpus is not None:
            self._share(int(min(cpus * _PERIOD, _MOST_QUOTA)))

    def _share(self, quota: int) -> None:
        if self._version == 2:
            self._write("cpu", "cpu.max", f"{quota} {_PERIOD}")
            return
        self._write("cpu", "cpu.cfs_period_us", str(_PERIOD))
        try:
            self._write("cpu", "cpu.cfs_quota_us", str(quota))
        except OSError as fault:
            if fault.errno != errno.EINVAL:  # else a group above has less than that
                raise

    def exceeded(self) -> tuple[str, ...]:
        """Which bounds were run into: ``memory``, ``processes``."""
        memory = "memory.events" if self._version == 2 else "memory.oom_control"
        found = (
            ("memory", self._read_number("memory", memory, "oom_kill")),
            ("processes", self._read_number("pids", "pids.events", "max")),
        )
        return tuple(what for what, times in found if times)

    def remove(self) -> bool:
        """True once it is gone; a group with somebody in it stays."""
        for folder in self._folders.values():
            with contextlib.suppress(OSError):
                folder.rmdir()
        return not any(folder.exists() for folder in self._folders.values())

    def _write(self, controller: str, name: str, value: str, *, needed: bool = True) -> None:
        if controller in self._folders:
            try:
                _set(f"{self._folders[controller]}/{name}", value)
            except OSError:
                if needed:
                    raise

    def _read_number(self, controller: str, name: str, key: str) -> int:
        with contextlib.suppress(OSError, KeyError):
            for line in (self._folders[controller] / name).read_text().splitlines():
                word, _, number = line.partition(" ")
                if word == key:
                    return int(number)
        return 0


def _set(path: str, value: str) -> None:
    """Without the detours of a text file: a call waits for it."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(number, value.encode())
    finally:
        os.close(number)


class Groups:
    """Where groups can be made on this machine; ``find`` says whether anywhere."""

    def __init__(self, roots: Mapping[str, Path], version: int) -> None:
        self._roots = roots
        self.version = version

    def make(self) -> Group:
        name = str(next(_numbers))
        folders = {controller: root / name for controller, root in self._roots.items()}
        for folder in folders.values():
            folder.mkdir(exist_ok=True)
        return Group(folders, self.version)

    def close(self) -> None:
        for root in self._roots.values():
            _sweep(root)


def find() -> Groups | str:
    """A place for groups, tried and found to bind; or why there is none."""
    for attempt in (_second, _first):
        with contextlib.suppress(OSError, LookupError):
            return attempt()
    return "no control group is writable that has the memory and pids controllers"


def _second() -> Groups:
    mounted = next(_mounts("cgroup2"), None)
    if mounted is None:
        raise LookupError("cgroup2")
    own = mounted / _memberships()[""].lstrip("/")
    for above in dict.fromkeys((own, own.parent)):
        if above != mounted.parent:
            with contextlib.suppress(OSError):
                return _second_below(above)
    raise LookupError


def _second_below(above: Path) -> Groups:
    _enable(above)
    root = _root(above)
    _enable(root)
    return Groups(_sharing(dict.fromkeys(_enabled(root), root), "cpu.max"), 2)


def _enable(folder: Path) -> None:
    for controller in _WANTED:
        with contextlib.suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    if not _enabled(folder) >= _NEEDED:
        raise PermissionError(str(folder))


def _enabled(folder: Path) -> set[str]:
    there = (folder / "cgroup.subtree_control").read_text().split()
    return {controller for controller in _WANTED if controller in there}


def _first() -> Groups:
    own = _memberships()
    mounts = {name: path for path in _mounts("cgroup") for name in path.name.split(",")}
    roots = {}
    for controller in _WANTED:
        try:
            roots[controller] = _root(mounts[controller] / own[controller].lstrip("/"))
        except (OSError, LookupError):
            if controller in _NEEDED:
                raise
    with contextlib.suppress(OSError):
        _set(f"{roots['memory']}/{_SOCKETS}", "-1")  # the first to be bounded costs far more
    return Groups(_sharing(roots, "cpu.cfs_quota_us"), 1)


def _sharing(roots: dict[str, Path], quota: str) -> dict[str, Path]:
    """Without the ``cpu`` controller of a kernel that has no quotas."""
    if "cpu" in roots and not (roots["cpu"] / quota).exists():
        del roots["cpu"]
    return roots


def _root(above: Path) -> Path:
    """A folder of our own; those that dead processes left are taken away."""
    for left in above.glob("toolpost+*"):
        if incarnation.ended(left.name.removeprefix("toolpost+").replace("+", "/")):
            _sweep(left)
    root = above / ("toolpost+" + incarnation.mine().replace("/", "+"))
    root.mkdir(exist_ok=True)
    return root


def _sweep(root: Path) -> None:
    with contextlib.suppress(OSError):
        for path in [*root.iterdir()]:
            if path.is_dir():
                path.rmdir()
        root.rmdir()


def _memberships() -> dict[str, str]:
    """Controller → the group this process is in; version 2 is under the empty name."""
    found: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        found |= dict.fromkeys(names.split(","), path)
    return found


def _mounts(kind: str) -> Iterator[Path]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, what, *_ = line.split()
        if what == kind:
            yield Path(place)
