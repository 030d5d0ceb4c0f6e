"""What runs on this machine, seen from outside: who is below whom, and has it ended?"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path


def _parents() -> dict[int, int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    return parents


def innermost(root: int) -> set[int]:
    """Those below ``root`` that have nobody below themselves."""
    return descendants(root) - set(_parents().values())


left_by_others: set[int] = set()
"""What was there before the test began: a test counts only what it has started itself."""


def descendants(root: int) -> set[int]:
    """Every process below ``root`` that was not there before the test."""
    return _below(root) - left_by_others


def note_others() -> None:
    left_by_others.clear()
    left_by_others.update(_below(os.getpid()))


def _below(root: int) -> set[int]:
    parents = _parents()
    found: set[int] = set()
    while more := {pid for pid, above in parents.items() if above in found | {root}} - found:
        found |= more
    return found


def running(marker: str) -> list[int]:
    """Living processes whose command line holds ``marker``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def halt(pid: int) -> None:
    """Stop a process; nothing of it runs any more when this returns. Each of its threads hears of
    the signal a moment later, and what it waits for may come in that moment.
    """
    os.kill(pid, signal.SIGSTOP)
    ends = time.monotonic() + 30
    while not all(
        "(stopped)" in one.read_text() for one in Path(f"/proc/{pid}/task").glob("*/status")
    ):
        assert time.monotonic() < ends, f"{pid} does not stop"
        time.sleep(0.001)


class Watch:
    """Holds on to processes, so that their end can be seen whoever reaps them."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.fds: dict[int, int] = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                self.fds[pid] = os.pidfd_open(pid)

    def living(self, within: float = 0) -> set[int]:
        """Who still lives after so many seconds at most."""
        end = time.monotonic() + within
        alive = set(self.fds)
        while alive:
            poller = select.poll()
            for pid in alive:
                poller.register(self.fds[pid], select.POLLIN)
            left = max(0.0, end - time.monotonic())
            ended = {fd for fd, _ in poller.poll(left * 1000)}
            alive -= {pid for pid in alive if self.fds[pid] in ended}
            if not ended:
                break
        return alive

    async def gone(self, within: float = 10) -> bool:
        """Wait on the loop until all of them have ended."""
        return not await asyncio.to_thread(self.living, within)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self.fds.values():
            os.close(fd)
