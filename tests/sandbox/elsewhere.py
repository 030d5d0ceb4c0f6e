"""Runs a Python program as somebody else, or somewhere else: as an ordinary user, in a container.

Where the tests are not root, the ordinary user is who runs them, and there is no container.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from toolpost.errors import SetupError
from toolpost.sandbox import Confinement, Sandbox
from toolpost.sandbox.finding import bubblewrap

SOURCE = Path(__file__).parent.parent.parent
NOBODY = 65533
IS_ROOT = os.geteuid() == 0
NEEDED = tuple(dict.fromkeys(map(str, (sys.base_prefix, sys.prefix, SOURCE / "src", SOURCE))))

# Runs as root in a mount namespace of its own: whatever is needed and lies in a closed folder is
# put where it was, in an open one.
_OPENED = """
import os, subprocess, sys
from pathlib import Path
user, trees, argv = int(sys.argv[1]), sys.argv[2].split(":"), sys.argv[3:]
def mount(*options): subprocess.run(["mount", *options], check=True)
closed = {}
for tree in trees:
    above = [p for p in reversed(Path(tree).parents) if not p.stat().st_mode & 1]
    if above: closed.setdefault(above[0], []).append(tree)
for number, (folder, inside) in enumerate(closed.items()):
    held = [os.open(tree, os.O_PATH) for tree in inside]
    mount("-t", "tmpfs", "-o", "mode=755", "opened", str(folder))
    for fd, tree in zip(held, inside):
        os.makedirs(tree, exist_ok=True)
        mount("--no-canonicalize", "--bind", f"/proc/{os.getpid()}/fd/{fd}", tree)
        os.close(fd)
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.execv(argv[0], argv)
"""


def need_a_sandbox() -> None:
    """Skip where a tool of tier 3 cannot be confined."""

    async def check() -> None:
        async with await Sandbox.open() as sandbox:
            sandbox.check(Confinement(tier=3, memory=100_000_000, processes=16))

    try:
        asyncio.run(check())
    except SetupError as missing:
        pytest.skip(f"no sandbox here: {missing}")


def open_the_way(folder: Path) -> None:
    """Let others pass through what pytest closed on the way to a folder."""
    for above in folder.parents:
        if not above.stat().st_mode & 1 and above.stat().st_uid == os.geteuid():
            above.chmod(above.stat().st_mode | 0o011)


def as_ordinary_user(program: str, *arguments: str, home: Path | None = None) -> str:
    """What the program prints; ``home`` is made its own."""
    argv = [sys.executable, "-c", program, *arguments]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SOURCE / "src"), "HOME": str(home or "/")}
    if IS_ROOT:
        if home is not None:
            open_the_way(home)
            os.chown(home, NOBODY, NOBODY)
        opened = [sys.executable, "-c", _OPENED, str(NOBODY), ":".join(NEEDED)]
        argv = ["unshare", "--mount", "--propagation", "private", *opened, *argv]
    return _printed(argv, env)


_DROPPED = """
import os, sys
user, argv = int(sys.argv[1]), sys.argv[2:]
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.execv(argv[0], argv)
"""


def in_a_container(program: str, *arguments: str, user: int = 0) -> str:
    """What it prints in a small root file system, with no home and no init; as its root, unless
    another user is named.
    """
    bwrap = bubblewrap()
    assert bwrap is not None
    options = ["--unshare-pid", "--unshare-ipc", "--cap-add", "ALL", "--proc", "/proc"]
    options += ["--dev-bind", "/dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp"]
    for tree in ("/usr", "/etc", "/sys", *NEEDED):
        for above in [*Path(tree).parents][-2::-1]:  # open, where bubblewrap would make it closed
            options += ["--perms", "0755", "--dir", str(above)] * (str(above) != "/tmp")
        options += ["--ro-bind", tree, tree]
    for name in ("bin", "lib", "lib64", "sbin"):
        if os.path.islink(f"/{name}"):
            options += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
    with tempfile.TemporaryDirectory() as folder:
        options += ["--bind", folder, "/data"]
        os.chown(folder, user, user)
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SOURCE / "src"), "HOME": "/"}
        dropped = [sys.executable, "-c", _DROPPED, str(user)] if user else []
        argv = [bwrap, *options, "--", *dropped, sys.executable, "-c", program, *arguments]
        return _printed(argv, env)


def _printed(argv: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
