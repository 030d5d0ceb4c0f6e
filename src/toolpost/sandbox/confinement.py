"""What a child may do, as data: what this does not grant, it cannot do.

Above: whoever wants something run in a sandbox writes one. Below: ``sandbox.py`` provides it or
refuses. It refuses to know how anything is enforced; it knows what has to be.
"""

from __future__ import annotations

import contextlib
import math
import os
import pwd
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal

import msgspec

from toolpost import environ
from toolpost.errors import SetupError

Level = Literal["I0", "I1", "I2", "I3"]
Mode = Literal["strict", "standard", "permissive"]

Host = Literal["network", "processes"]
Shape = tuple[
    tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[Host, ...], tuple[float | None, ...]
]

MEMORY: Final = 1024 * 1024 * 1024
DISK: Final = 512_000_000
FILES: Final = 10_000
LEAST_OPEN: Final = 256
LEVELS: Final[tuple[Level, ...]] = ("I0", "I1", "I2", "I3")
_BOUNDS: Final = {
    "memory": (16 * 1024 * 1024, 2**62),
    "processes": (1, 4_000_000),
    "open_files": (LEAST_OPEN, 2**62),
    "file_size": (64 * 1024, 2**62),
    "disk": (64 * 1024, 2**62),
    "files": (1, 2**62),
}
"""From, to: with less a sandbox cannot be set up, beyond it the kernel counts no further."""
_LEAST_CPUS: Final = 0.01
"""The kernel's smallest share."""
_OF_THE_KERNEL: Final = ("/proc", "/sys", "/dev")


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of child may reach and use. Its time is the caller's business."""

    read: tuple[str, ...] = ()
    """Host paths to be seen, and not changed, beyond the system's own."""
    write: tuple[str, ...] = ()
    """Host paths to be read and written, each at its own place."""
    egress: tuple[str, ...] = ()
    """``host:port``, exactly; or ``*`` for any public address."""
    host: tuple[Host, ...] = ()
    """What of the machine itself it shares, for programs that tell of it (``ps``, ``ss``): its
    network, all of it; or the sight of its processes, of which it can neither signal one nor read
    what only their user may.
    """
    memory: int | None = None
    """Bytes, 16 MiB or more: of all its processes where there is a cgroup, of each one where there
    is none.

    ``None`` is ``MEMORY``, not everything.
    """
    cpus: float | None = None
    """Processors, 0.01 or more. Where there is no cgroup: on how many of them it starts."""
    processes: int = 64
    open_files: int = 1024
    """Of each process, 256 or more; fewer where this machine allows fewer."""
    file_size: int | None = None
    """Bytes of the largest file it may write, 64 KiB or more; ``disk`` where nothing is said."""
    disk: int = DISK
    """Bytes that a call may add below the writable paths, 64 KiB or more: see ``quota.py``."""
    files: int = FILES
    """Files and folders that a call may make there."""
    environment: Mapping[str, str] = {}
    working_dir: str | None = None
    """Where it starts; else its first writable path, else ``/tmp``, which is its own."""
    tier: int = 1

    @property
    def folder(self) -> str:
        """Where it starts."""
        return self.working_dir or (self.write[0] if self.write else "/tmp")  # noqa: S108 - its own

    @property
    def bound(self) -> int:
        """Its memory."""
        return MEMORY if self.memory is None else self.memory

    @property
    def shape(self) -> Shape:
        """What a sandbox and its check depend on; programs, variables and folders come later."""
        bounds = (
            self.memory,
            self.cpus,
            self.processes,
            self.open_files,
            self.file_size,
            self.disk,
            self.files,
            self.tier,
        )
        return self.read, self.write, self.egress, self.host, bounds


def least_level(tier: int, mode: Mode) -> Level:
    """What a tool of this tier has to have."""
    if tier >= 4 or (tier == 3 and mode == "strict"):
        return "I3"
    return "I2" if tier >= 2 else "I1"


def check_bounds(confinement: Confinement) -> None:
    """Refuse a number that bounds nothing, and one with which nothing could start."""
    for field, (least, most) in _BOUNDS.items():
        value = getattr(confinement, field)
        if value is None and field in ("memory", "file_size"):
            continue
        if type(value) is not int or not least <= value <= most:
            raise SetupError(
                f"{field} is at least {least} and at most {most}, a whole number; not {value!r}",
                at=(field,),
            )
    cpus = confinement.cpus
    if cpus is not None and (type(cpus) not in (int, float) or not _LEAST_CPUS <= cpus < math.inf):
        raise SetupError(f"cpus is a number, at least {_LEAST_CPUS}; not {cpus!r}", at=("cpus",))


def check_paths(confinement: Confinement, *, precious: Mapping[str, str]) -> dict[str, str]:
    """Refuse what would give away the house: ``precious`` is path → what it is.

    The answer is path → its real path. Whoever uses that without following a link uses what was
    checked.
    """
    found: dict[str, str] = {}
    for grant, paths in (("read", confinement.read), ("write", confinement.write)):
        for path in paths:
            if not path.startswith("/") or not are_words([path]) or os.path.normpath(path) != path:
                raise SetupError(
                    f"{path!r} has to be an absolute path without detours", at=(grant,)
                )
            found[path] = os.path.realpath(path)
            _check_path(path, found[path], grant)
    for path in confinement.write:
        real = found[path]
        for inner in found:
            if within(inner, path) and found[inner] != real + inner[len(path) :]:
                raise SetupError(
                    f"{inner} lies in {path}, which is writable, and is a link: "
                    "whoever can write there could lead it anywhere",
                    at=("read",),
                )
        for kept, what in precious.items():
            if within(os.path.realpath(kept), real):
                raise SetupError(
                    f"{path} cannot be writable in a sandbox: it contains {what} ({kept}); "
                    "give the tool a folder of its own",
                    at=("write",),
                )
    return found


def _check_path(path: str, real: str, grant: str) -> None:
    for kernel in _OF_THE_KERNEL:
        if within(real, kernel) or within(path, kernel):
            raise SetupError(f"{path} is the kernel's and cannot go into a sandbox", at=(grant,))
    if real == "/":
        raise SetupError("/ cannot go into a sandbox; name what is needed", at=(grant,))
    if not os.path.exists(real):  # noqa: PTH110 - a name that none can have is not there either
        raise SetupError(f"{path} does not exist, so no sandbox can show it", at=(grant,))


def homes() -> tuple[str, ...]:
    """The home folders of who runs this: by the system's word, and by the environment's."""
    found = (environ.for_child().get("HOME"), _home(os.getuid()))
    return tuple(os.path.realpath(one) for one in found if one)


@lru_cache
def _home(user: int) -> str | None:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(user).pw_dir
    return None


def within(path: str, root: str) -> bool:
    """Is it ``root``, or below it?"""
    return path == root or path.startswith(root.rstrip("/") + "/")


def check_variables(confinement: Confinement) -> None:
    """Refuse what no variable and no folder can be; a value may be secret and is not shown."""
    if not are_words([confinement.folder]):
        raise SetupError(
            f"working_dir {confinement.folder!r} is no path: it has NUL or half a character in it",
            at=("working_dir",),
        )
    given = confinement.environment
    if given and not (_are_names(given) and are_words([*given, *given.values()])):
        name = next(n for n, v in given.items() if not (_are_names([n]) and are_words([n, v])))
        raise SetupError(
            f"the variable {name!r} has something in its name or its value that none can have "
            "(NUL, half a character; in a name also =)",
            at=("environment",),
        )


def _are_names(words: Collection[str]) -> bool:
    return "" not in words and "=" not in "".join(words)


def are_words(words: Sequence[str]) -> bool:
    """Can they be handed to a program as they are? NUL ends a word, and half of a surrogate pair
    is nothing. Quick: it is asked for every call.
    """
    text = "\0".join(words)
    if text.count("\0") >= len(words):
        return False
    try:
        return text.isascii() or bool(os.fsencode(text))
    except UnicodeEncodeError:
        return False
