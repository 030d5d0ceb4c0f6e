"""Quotas on write grants: how many bytes and files a sandbox may add to the folders it can write.

``sandbox.py`` registers every child that has write grants with its one ``Watch``, a thread that
looks at them many times a second and kills a child that went over.

A look is one ``statvfs`` of the file system. Nothing a program does hides from it: bytes and inodes
are gone from the free space whether they are in many small files, in a map, or in a file without a
name. A file system has other users, so its loss only raises suspicion. Then the watch asks what the
processes of the sandbox wrote (``/proc``), what changed in the granted folders since the call
began, and which nameless files are held open. Where less is left on the file system than the limit
itself, a call that could have taken that much is stopped without further proof.

The ``/tmp`` of a sandbox is bounded in bytes by its mount, and in files by the memory of its
cgroup. Where there is no cgroup, the watch counts its files too.

What a program can still do: go over the limit by what it writes between two looks. ``fallocate``,
which takes a gigabyte in a millisecond, is refused by the system call filter.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Final, Literal, NamedTuple

from toolpost._keeper import descendants
from toolpost.process import Child
from toolpost.sandbox.changes import Changes, count
from toolpost.sandbox.confinement import within

Bound = Literal["disk", "files"]

_SHORTEST, _LONGEST = 0.01, 0.05
"""Seconds between two looks."""
_IDLE: Final = 10.0
"""Seconds without a quota after which the thread ends."""
_SCRATCH: Final = ("/tmp", "/dev/shm")  # noqa: S108 - the sandbox's own
_SCRATCH_EVERY: Final = 0.2
_BYTES_A_SECOND: Final = 2_000_000_000
_FILES_A_SECOND: Final = 200_000
"""As fast as a program could be; the next look comes before it can have used what is left."""
_COARSE: Final = 0.02
"""Seconds by which a file system's clock may be behind."""
_PAUSE: Final = 5
"""A child is not counted again before this many times the duration of its last count."""


class _Room(NamedTuple):
    """What a file system has left."""

    bytes: int
    files: int
    counts_files: bool


@dataclass(frozen=True, slots=True)
class _Start:
    """The moment from which a quota counts."""

    since: float
    rooms: tuple[_Room, ...]
    own: Changes = field(default_factory=Changes)


class Quota:
    """The quota of one child. ``begin`` and ``end`` stand around each of its calls."""

    def __init__(
        self,
        child: Child,
        *,
        disk: int,
        files: int,
        grants: Sequence[str],
        places: Sequence[str],
        sharing: Callable[[Quota], int],
        scratch: bool = False,
    ) -> None:
        """``places`` has one path for each file system that the grants are on. ``sharing`` says how
        many calls, with this one, write below the same grants now: together they may add so many
        times as much. ``scratch``: the files in its own ``/tmp`` and ``/dev/shm`` count as well.
        """
        self.child = child
        self.grants = tuple(grants)
        self.disk, self.files = disk, files
        self.exceeded: Bound | None = None
        self.busy = True
        self._loop = asyncio.get_running_loop()
        self._places, self._sharing = tuple(places), sharing
        self._written_before: int | None = 0
        """By the child's processes, before the call; None until it is looked up."""
        self._next_count = monotonic()
        self._next_scratch = monotonic() if scratch else math.inf
        self._inside: int | None = None
        """A process that sees the file system of the sandbox."""
        self._judging = threading.Lock()
        self._start = self._now()

    def begin(self) -> None:
        """A call begins: from now on its own bytes and files count."""
        self.busy = True
        self._written_before = None
        self._next_count = monotonic()
        self._start = self._now()

    def end(self) -> None:
        """It has ended; what the child still writes counts on."""
        self.busy = False

    async def settle(self) -> Bound | None:
        """The bound that was met, judged once more, now that the program has ended."""
        if self.exceeded is None and self._suspicious(self._start) is not None:
            await asyncio.to_thread(self._judge)
        return self.exceeded

    def look(self, now: float) -> float:
        """Judge it if there is a suspicion; the seconds until the next look. For the watch."""
        if now >= self._next_scratch:
            self._next_scratch = now + _SCRATCH_EVERY
            if self._files_in_scratch() > self.files:
                self.exceeded = "files"
                self._kill()
                return _LONGEST
        if not self._places:
            return _LONGEST
        start = self._start
        if self._written_before is None:
            self._written_before = self._written()
        if now >= self._next_count and self._suspicious(start) is not None:
            self._judge()
            if self.exceeded is not None:
                self._kill()
                return _LONGEST
            self._next_count = monotonic() + _PAUSE * (monotonic() - now)
        lost_bytes, lost_files = self._lost(start)
        return _until_used_up(self.disk - lost_bytes, self.files - lost_files)

    def _kill(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: so is the child
            self._loop.call_soon_threadsafe(self.child.kill_soon)

    def _files_in_scratch(self) -> int:
        if self._inside is None or not Path(f"/proc/{self._inside}").exists():
            within_it = filter(_has_own_scratch, reversed(descendants(self.child.pid)))
            self._inside = next(within_it, None)
        if self._inside is None:
            return 0
        rooms = [os.statvfs(f"/proc/{self._inside}/root{place}") for place in _SCRATCH]
        return sum(room.f_files - room.f_ffree for room in rooms)

    def _judge(self) -> None:
        """Set ``exceeded`` if this child is behind the loss; else go on from what is its own."""
        with self._judging:
            start = self._start
            suspect = self._suspicious(start)
            if suspect is None or self.exceeded is not None:
                return
            if self._nearly_full(suspect) or (suspect == "disk" and self._wrote_too_much()):
                self.exceeded = suspect
                return
            calls = self._sharing(self)
            disk, files = self.disk * calls, self.files * calls
            found = count(self.grants, start.since, disk=disk, files=files)
            found.bytes += self._nameless()
            if found.files > files:
                self.exceeded = "files"
            elif found.bytes > disk:
                self.exceeded = "disk"
            elif found.hidden:
                self.exceeded = suspect
            elif self._start is start:  # else another call has begun meanwhile
                self._start = _Start(start.since, self._now().rooms, found)

    def _now(self) -> _Start:
        return _Start(time() - _COARSE, tuple(map(_room, self._places)))

    def _lost(self, start: _Start) -> tuple[int, int]:
        """Bytes and files that are gone from the file systems since then, by whoever."""
        lost_bytes, lost_files = start.own.bytes, start.own.files
        for before, place in zip(start.rooms, self._places, strict=True):
            try:
                now = _room(place)
            except OSError:  # it is gone, or somebody has closed a folder above it
                continue
            lost_bytes += max(0, before.bytes - now.bytes)
            lost_files += max(0, before.files - now.files)
        return lost_bytes, lost_files

    def _suspicious(self, start: _Start) -> Bound | None:
        lost_bytes, lost_files = self._lost(start)
        if lost_bytes > self.disk:
            return "disk"
        if lost_files > self.files:
            return "files"
        if all(room.counts_files for room in start.rooms):
            return None
        return "files" if monotonic() >= self._next_count + 1 else None

    def _nearly_full(self, suspect: Bound) -> bool:
        rooms = map(_room, self._places)
        if suspect == "disk":
            return any(room.bytes < self.disk for room in rooms)
        return any(room.counts_files and room.files < self.files for room in rooms)

    def _wrote_too_much(self) -> bool:
        return self._written() - (self._written_before or 0) > self.disk

    def _written(self) -> int:
        """Bytes that the processes of the child have made the kernel write, with those of their
        children that were waited for.
        """
        return sum(_written_by(pid) for pid in descendants(self.child.pid))

    def _nameless(self) -> int:
        """Bytes in files that have no name any more and are held open."""
        devices = {_device(place) for place in self._places}
        found = {}
        for pid in descendants(self.child.pid):
            for about in _open_files(pid):
                nameless = stat.S_ISREG(about.st_mode) and not about.st_nlink
                if nameless and about.st_dev in devices:
                    found[about.st_dev, about.st_ino] = about.st_blocks * 512
        return sum(found.values())


class Watch:
    """The thread that looks at all quotas of a sandbox; it runs while there are any."""

    def __init__(self) -> None:
        self._quotas: dict[Child, Quota] = {}
        self._places: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._lock = threading.Lock()
        self._soon = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(
        self, child: Child, grants: tuple[str, ...], *, disk: int, files: int, scratch: bool
    ) -> None:
        """Watch a child that may write to these; with ``scratch`` its own ``/tmp`` too."""
        places = self._places.get(grants)
        if places is None:
            places = self._places[grants] = tuple(_file_systems(grants))
        quota = Quota(
            child,
            disk=disk,
            files=files,
            grants=grants,
            places=places,
            sharing=self._sharing,
            scratch=scratch,
        )
        child.quota = quota
        child.exited.add_done_callback(lambda _: self._quotas.pop(child, None))
        with self._lock:
            self._quotas[child] = quota
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._run, name="toolpost-quota", daemon=True
                )
                self._thread.start()
        if _until_used_up(disk, files) < _LONGEST:  # else the next look comes soon enough
            self._soon.set()

    def close(self) -> None:
        self._closed = True
        self._soon.set()

    def _run(self) -> None:
        idle_since = monotonic()
        while True:
            with self._lock:
                if self._quotas:
                    idle_since = monotonic()
                elif self._closed or monotonic() - idle_since > _IDLE:
                    self._thread = None
                    return
            wait = _LONGEST
            for child, quota in [*self._quotas.items()]:
                if not child.exited.done() and quota.exceeded is None:
                    with contextlib.suppress(OSError):  # a folder that is gone takes no more room
                        wait = min(wait, quota.look(monotonic()))
            self._soon.wait(wait)
            self._soon.clear()

    def _sharing(self, quota: Quota) -> int:
        others = [one for one in [*self._quotas.values()] if one is not quota and one.busy]
        return 1 + sum(_overlap(one.grants, quota.grants) for one in others)


def _until_used_up(disk: int, files: int) -> float:
    """Seconds to the next look, if so much is left."""
    return min(max(min(disk / _BYTES_A_SECOND, files / _FILES_A_SECOND), _SHORTEST), _LONGEST)


def _room(place: str) -> _Room:
    about = os.statvfs(place)
    return _Room(about.f_bavail * about.f_frsize, about.f_ffree, about.f_files > 0)


def _has_own_scratch(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return all(_device(f"/proc/{pid}/root{place}") != _device(place) for place in _SCRATCH)
    return False


def _device(place: str) -> int:
    return Path(place).stat().st_dev


def _file_systems(grants: Sequence[str]) -> Iterator[str]:
    """One path for each file system: of the grants, and of what is mounted below them."""
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    places = [*grants, *(one for one in mounted if any(within(one, grant) for grant in grants))]
    devices: set[int] = set()
    for place in places:
        with contextlib.suppress(OSError):
            if (device := _device(place)) not in devices:
                devices.add(device)
                yield place


def _overlap(some: Sequence[str], others: Sequence[str]) -> bool:
    return any(within(one, other) or within(other, one) for one in some for other in others)


def _written_by(pid: int) -> int:
    """The kernel counts a page when it is made dirty, in a map too."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
    return 0


def _open_files(pid: int) -> Iterator[os.stat_result]:
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                yield link.stat()
