"""One life of one process, as a text that other processes can ask about.

Above: whoever leaves something open in a store, to be judged by others after a crash. Below: the
kernel. A process id alone is given out again; with the time it was started, the boot and the pid
namespace it is not.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Final

_VISIBLE: Final = Path("/proc/self/stat").exists()
"""Whether this system shows its processes; where it does not, nobody is said to have ended."""


def mine() -> str:
    """This process."""
    return _made(os.getpid())  # by pid: a fork is another life


def ended(life: str) -> bool:
    """True if that process has surely ended; of one that cannot be seen from here nobody knows."""
    pid, _, start = life.rpartition("/")[2].partition("-")
    return seen(life) and pid.isdigit() and _started(int(pid)) != start


def seen(life: str) -> bool:
    """Whether processes of its boot and its namespace can be seen from here."""
    return _VISIBLE and life.rpartition("/")[0] == _place()


@lru_cache(1)
def _made(pid: int) -> str:
    return f"{_place()}/{pid}-{_started(pid)}"


@lru_cache(1)
def _place() -> str:
    """Where process ids mean the same: the boot, and the namespace in it."""
    if not _VISIBLE:
        return os.uname().nodename
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"


def _started(pid: int) -> str | None:
    """When it was started, in ticks since the boot; ``None`` if it is not there any more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, *fields = stat.rpartition(b")")[2].split()
    return None if state in (b"Z", b"X") else fields[18].decode()
