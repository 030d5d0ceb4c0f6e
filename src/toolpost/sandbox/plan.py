"""From a description to what ``_entry.py`` is to do: the one place where layers are put together.

Above: ``sandbox.py``. Below: ``view.py`` for what the tool sees, ``ownership.py`` for whose it is.
It refuses to start anything: a plan is data, and a plan made twice is the same.
"""

from __future__ import annotations

import errno
import math
import os
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from toolpost.sandbox import landlock, seccomp, view
from toolpost.sandbox.confinement import Confinement, Level
from toolpost.sandbox.ownership import Maps

TALK: Final = 199
"""The number that the inner process' socket has inside."""
STATUS: Final = 198
"""The number under which bubblewrap finds where to tell how a program ended."""
PORT: Final = 3128
_LOCKED: Final = 8 * 1024 * 1024
_STACK: Final = 8 * 1024 * 1024
_PENDING: Final = 1024
_PROXIED: Final = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_OF_THE_HOST: Final = ("localhost:", "127.", "[::1]")
_LIMITER: Final = "/usr/bin/prlimit"
_WITHOUT_A_VIEW: Final = {"GIT_CONFIG_NOSYSTEM": "1"}
"""Where what is not granted is seen and cannot be read: git gives up at a file like that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What was found on this machine, by trying it."""

    level: Level
    bwrap: str | None
    seccomp: bool
    grouped: bool
    user: int | None
    """Whom we become, where we are root."""
    maps: Maps | None
    hidden: str | None
    """The state folder: shown to nobody, whatever lies around it."""
    binds_held: bool = False
    """Its bubblewrap takes a descriptor of what it is to show, and not only a path."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """What to send: the data, and the descriptors of the id maps that go with it."""

    data: dict[str, Any]
    maps: list[int] = field(default_factory=list)


class _Stage:
    """Collects the trees that have to be brought within reach; an ordinary user needs none."""

    def __init__(
        self,
        machine: Machine,
        confinement: Confinement,
        real: Mapping[str, str],
        socket: str | None,
    ) -> None:
        self._maps = machine.maps
        self._held = machine.binds_held
        self._write = frozenset(confinement.write)
        self._real = {**real, **({view.SOCKET: socket} if socket else {})}
        self.trees: list[tuple[str, str, int]] = []
        self.maps: list[int] = []

    def real(self, path: str) -> str:
        return self._real.get(path) or os.path.realpath(path)

    def source(self, path: str) -> view.Source:
        real = self.real(path)
        if self._maps is None:
            return (real,) if self._held else real
        which = -1
        if self._maps.needed(real, write=path in self._write):
            self.maps.append(self._maps.of(real))
            which = len(self.maps) - 1
        return self.bring(real, str(len(self.trees)), which)

    def bring(self, real: str, name: str, which: int = -1) -> str:
        self.trees.append((real, name, which))
        return f"/tmp/{name}"  # noqa: S108 - covered by a mount of our own

    def program(self, path: str) -> str:
        """Bubblewrap itself, with the libraries that lie beside it."""
        package = Path(path).parent.parent
        if self._maps is None or path.startswith("/usr/"):
            return path
        for part in (package, package.with_name(package.name + ".libs")):
            if part.is_dir():
                self.bring(str(part), f"b/{part.name}")
        return f"/tmp/b/{package.name}/{Path(path).parent.name}/{Path(path).name}"  # noqa: S108


def inner(
    machine: Machine,
    confinement: Confinement,
    *,
    socket: str | None,
    real: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """Wait inside, for a program to come; ``real`` is granted path → where it is."""
    relay = [view.SOCKET, str(PORT)] if confinement.egress else ["", "0"]
    argv = [view.interpreter()[0], "-I", "-S", "-X", "utf8", view.INNER]
    beside = 1 + bool(confinement.egress)  # what waits, and the relay
    processes = 0 if machine.grouped else _counted(confinement, beside)  # else the cgroup counts
    alone = "" if "processes" in confinement.host else "alone"
    argv += [str(TALK), str(processes), alone, *relay]
    stage = _Stage(machine, confinement, real, socket)
    made = _walled(machine, confinement, argv, fds=[TALK], stage=stage)
    made.data["options"] += ["--chdir", "/"]
    return made


def direct(
    machine: Machine,
    confinement: Confinement,
    argv: Sequence[str],
    *,
    fds: Sequence[int],
    real: Mapping[str, str],
) -> Plan:
    """Become the program at once; a descriptor to tell of its end comes behind the others."""
    variables = environment(confinement)
    if not view.shows(confinement, argv[0], variables.get("PATH", os.defpath)):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    if not machine.grouped:  # else the cgroup counts
        argv = [_LIMITER, f"--nproc={_counted(confinement)}", "--", *argv]
    stage = _Stage(machine, confinement, real, None)
    made = _walled(machine, confinement, argv, fds=[*fds, STATUS], stage=stage)
    made.data["options"] += ["--json-status-fd", str(STATUS)]
    made.data["stay"] = True
    for name, value in variables.items():
        made.data["options"] += ["--setenv", name, value]
    made.data["options"] += ["--chdir", confinement.folder]
    return made


def can_be_direct(machine: Machine, confinement: Confinement) -> bool:
    return not confinement.egress and (machine.grouped or Path(_LIMITER).exists())


def own_processes(machine: Machine, confinement: Confinement) -> int:
    """How many of all that come of a stem are not the tool's: bubblewrap's, what waits inside or
    stays beside a direct one, and the relay.
    """
    if machine.bwrap is None:
        return 0
    return 2 + _first(confinement) + bool(confinement.egress)


def _counted(confinement: Confinement, beside: int = 0) -> int:
    """The kernel's limit, which counts what is inside; who started us may have set a lower one."""
    most = confinement.processes + _first(confinement) + beside
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return most if hard == resource.RLIM_INFINITY else min(most, hard)


def _first(confinement: Confinement) -> int:
    """Where processes have a namespace of their own, the first in it is bubblewrap's."""
    return 0 if "processes" in confinement.host else 1


def unwalled(
    machine: Machine,
    confinement: Confinement,
    argv: Sequence[str],
    *,
    fds: Sequence[int],
    real: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """Without namespaces: Landlock, the filter and the limits (I1), or the limits alone (I0)."""
    restricted = machine.level == "I1"
    others = landlock.processes_of(os.geteuid() if machine.user is None else machine.user)
    processes = (resource.RLIMIT_NPROC, confinement.processes + others)
    return Plan(
        data={
            **_common(machine, confinement, argv, fds),
            "cwd": confinement.working_dir or confinement.folder,
            "env": {**_WITHOUT_A_VIEW, **environment(confinement)},
            "landlock": landlock.rules(confinement, real, hidden=machine.hidden)
            if restricted
            else None,
            "limits": [*_limits(machine, confinement), processes],
            "seccomp": seccomp.build(
                apart=False, shared_memory=machine.grouped, quota=bool(confinement.write)
            )
            if restricted
            else None,
        }
    )


def environment(confinement: Confinement) -> dict[str, str]:
    """What was granted, over what every program may count on."""
    made = view.defaults()
    if confinement.egress:
        made |= dict.fromkeys(_PROXIED, f"http://127.0.0.1:{PORT}")
        if not any(one.startswith(_OF_THE_HOST) for one in confinement.egress):
            made["NO_PROXY"] = "localhost,127.0.0.1"
    made.update(confinement.environment)
    return made


def _walled(
    machine: Machine,
    confinement: Confinement,
    argv: Sequence[str],
    *,
    fds: Sequence[int],
    stage: _Stage,
) -> Plan:
    assert machine.bwrap is not None
    pieces: list[bytes] = []
    options = view.options(
        confinement,
        data=pieces,
        seccomp=seccomp.build(
            shared_memory=machine.grouped, host=confinement.host, quota=bool(confinement.write)
        )
        if machine.seccomp
        else None,
        hidden=machine.hidden,
        inner=TALK in fds,
        shared_memory=machine.grouped,
        source=stage.source,
        real=stage.real,
    )
    data = {
        **_common(machine, confinement, argv, fds),
        "bwrap": stage.program(machine.bwrap),
        "options": options,
        "data": pieces,
        "landlock": landlock.ALONE if "processes" in confinement.host else None,
        "limits": _limits(machine, confinement),
        "stage": stage.trees,
        "maps": len(stage.maps),
    }
    return Plan(data=data, maps=stage.maps)


def _common(
    machine: Machine, confinement: Confinement, argv: Sequence[str], fds: Sequence[int]
) -> dict[str, Any]:
    whole = confinement.cpus is None or machine.grouped
    return {
        "argv": list(argv),
        "bwrap": "",
        "cores": 0 if whole else math.ceil(confinement.cpus or 0),
        "fds": list(fds),
        "maps": 0,
        "stage": [],
        "stay": False,
        "user": machine.user or 0,
    }


def _limits(machine: Machine, confinement: Confinement) -> list[tuple[int, int]]:
    most_open = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, min(confinement.open_files, most_open)),
        (resource.RLIMIT_MEMLOCK, _LOCKED),
        (resource.RLIMIT_SIGPENDING, _PENDING),  # of the user: others shall have some left
    ]
    largest = confinement.file_size or (confinement.disk if confinement.write else None)
    if largest is not None:
        limits.append((resource.RLIMIT_FSIZE, largest))
    if not machine.grouped:
        limits.append((resource.RLIMIT_DATA, confinement.bound))
        limits.append((resource.RLIMIT_STACK, _STACK))  # what grows there is no data
    return limits
