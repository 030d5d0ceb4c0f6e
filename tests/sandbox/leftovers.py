"""What a process may leave in the kernel's tree of control groups, seen while others use it."""

from __future__ import annotations

import os


def groups_of(pid: int) -> list[str]:
    """The groups that toolpost made in a process; those of others may vanish while we look."""
    marker = f"+{pid}-"
    return [
        folder
        for folder, _, _ in os.walk("/sys/fs/cgroup")
        if "/toolpost+" in folder and marker in folder
    ]
