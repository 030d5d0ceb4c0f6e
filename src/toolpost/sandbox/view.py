"""What a tool sees: the options of bubblewrap that make a file system, a name and nothing more.

Above: ``plan.py``. Below: the layout of this machine. It refuses to know who asked: a description
goes in, options come out; a whole number among them stands for one of the pieces of ``data``.

Paths mean the same inside and outside. The system's programs are there, read-only, with the least
of ``/etc`` that they need; ``/tmp`` is empty, bounded and the tool's own; everything else is not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from toolpost.sandbox.confinement import Confinement, Host, within
from toolpost.sandbox.nesting import placed

USER: Final = 1000
INNER: Final = "/run/toolpost/inner.py"
SOCKET: Final = "/run/toolpost/egress.sock"
_TEMPORARY: Final = 64 * 1024 * 1024
_SHARED_MEMORY: Final = 16 * 1024 * 1024
_TOP: Final = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_ETC: Final = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
_WRITTEN: Final = {
    "/etc/passwd": f"root:x:0:0::/:/usr/sbin/nologin\ntool:x:{USER}:{USER}::/tmp:/bin/sh\n",
    "/etc/group": f"root:x:0:\ntool:x:{USER}:\n",
    "/etc/hosts": "127.0.0.1 localhost tool\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_OF_ANOTHER: Final = {"/etc/gitconfig": "[safe]\n\tdirectory = *\n"}
"""Root becomes another user, to whom what it may only read does not belong: git would refuse it."""
_APART: Final = (
    "--unshare-user --unshare-ipc --unshare-uts --unshare-cgroup-try --disable-userns "
    "--cap-drop ALL --die-with-parent --new-session "
    f"--uid {USER} --gid {USER} --hostname tool --clearenv"
).split()
_UNLESS_OF_THE_HOST: Final[Mapping[Host, str]] = {
    "network": "--unshare-net",
    "processes": "--unshare-pid",
}

Held = tuple[str]
"""A path that is to be opened without following a link, and passed as a descriptor."""
Source = str | Held
Option = str | int | Held


def defaults() -> dict[str, str]:
    """The variables a program may count on."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",  # noqa: S108 - the tool's own, inside
        "LANG": "C.UTF-8",
        "USER": "tool",
    }


@lru_cache(1)
def interpreter() -> tuple[str, tuple[str, ...]]:
    """The Python that runs here, without its virtual environment, and the trees it lives in."""
    executable = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
    trees = dict.fromkeys((sys.base_prefix, sys.base_exec_prefix))
    return executable, tuple(t for t in trees if not within(t, "/usr"))


@lru_cache(1)
def system() -> tuple[str, ...]:
    """The trees of this machine that every tool sees."""
    tops = [f"/{name}" for name in _TOP if (Path("/") / name).is_dir()]
    return ("/usr", *tops, *(one for one in ("/nix/store",) if Path(one).is_dir()))


def etc() -> tuple[str, ...]:
    """The files of ``/etc`` that programs need, where they are the host's own."""
    return _ETC


def shows(confinement: Confinement, program: str, search: str) -> bool:
    """Is a program of this name to be seen inside? Links are not followed: that is done there."""
    folders = [""] if "/" in program else search.split(":")
    trees = (*system(), *interpreter()[1], *confinement.read, *confinement.write)
    for folder in folders:
        path = os.path.normpath(os.path.join(confinement.folder, folder, program))  # noqa: PTH118 - text
        if any(within(path, tree) for tree in trees) and os.path.lexists(path):
            return True
    return False


def options(
    confinement: Confinement,
    *,
    data: list[bytes],
    seccomp: bytes | None,
    hidden: str | None,
    inner: bool,
    shared_memory: bool,
    source: Callable[[str], Source],
    real: Callable[[str], str],
) -> list[Option]:
    """Everything but the program. ``source`` says where a tree is to be taken from, ``real`` which
    path of the host is behind another; ``shared_memory`` is whether something bounds that.
    """

    def piece(content: bytes) -> int:
        data.append(content)
        return len(data) - 1

    host = confinement.host
    made: list[Option] = [*_APART, *(o for h, o in _UNLESS_OF_THE_HOST.items() if h not in host)]
    made += _furniture(shared_memory=shared_memory, processes="processes" in host)
    foreign = _OF_ANOTHER if confinement.read and os.geteuid() == 0 else {}
    for place, text in (*_WRITTEN.items(), *foreign.items()):
        made += ["--perms", "0644", "--file", piece(text.encode()), place]
    if inner:
        program = Path(__file__).with_name("_inner.py").read_bytes()
        made += ["--perms", "0644", "--file", piece(program), INNER]
    if confinement.egress:
        made += _bound("--ro-bind", source(SOCKET), SOCKET)
    grants = {path: real(path) for path in (*confinement.read, *confinement.write)}
    made += _granted(confinement, source, grants)
    if hidden is not None:
        made += _covered(hidden, grants)
    if seccomp is not None:
        made += ["--seccomp", piece(seccomp)]
    return [*made, "--remount-ro", "/"]


@lru_cache(4)
def _furniture(*, shared_memory: bool, processes: bool) -> tuple[str, ...]:
    return tuple(_made_furniture(shared_memory=shared_memory, processes=processes))


def _made_furniture(*, shared_memory: bool, processes: bool) -> Iterator[str]:
    for tree in system():
        if os.path.islink(tree):  # noqa: PTH114 - it is a text here
            yield from ("--symlink", os.readlink(tree), tree)  # noqa: PTH115 - as above
        else:
            yield from ("--ro-bind", tree, tree)
    for path in filter(os.path.exists, _ETC):
        real = os.path.realpath(path)
        link = real != path and within(real, "/usr")  # cheaper than a mount
        yield from ("--symlink" if link else "--ro-bind", real, path)
    if processes:
        yield from ("--ro-bind", "/proc", "/proc")
    else:
        yield from ("--proc", "/proc", *_empty("/proc/1"))
    yield from ("--dev", "/dev")
    if not shared_memory:  # it reads the same, but cannot be mapped: that would be shared memory
        yield from ("--dev-bind", "/dev/full", "/dev/zero")
    yield from ("--perms", "1777", "--size", str(_SHARED_MEMORY), "--tmpfs", "/dev/shm")  # noqa: S108
    yield from ("--remount-ro", "/dev")
    yield from ("--perms", "1777", "--size", str(_TEMPORARY), "--tmpfs", "/tmp")  # noqa: S108
    yield from ("--dir", "/var", "--symlink", "../tmp", "/var/tmp")  # noqa: S108


def _empty(place: str) -> tuple[str, ...]:
    """Process 1 is bubblewrap, and its file is one of the host's: through ``exe`` whoever owns it
    could change its mode, be it read-only everywhere else.
    """
    return ("--perms", "0555", "--size", "4096", "--tmpfs", place, "--remount-ro", place)


def _granted(
    confinement: Confinement, source: Callable[[str], Source], real: Mapping[str, str]
) -> Iterator[Option]:
    trees = interpreter()[1]
    sources: dict[str, Source] = {}
    real = {**{tree: tree for tree in trees}, **real}
    for one in placed((*trees, *confinement.read), confinement.write, real):
        if one.outer is None:
            sources[one.place] = source(one.grant)
        else:
            sources[one.place] = _part(sources[one.outer], one.place[len(one.outer) :])
        yield from _bound("--bind" if one.writable else "--ro-bind", sources[one.place], one.place)


def _part(tree: Source, below: str) -> Source:
    """A folder of a tree, whose owners are as the tree's. Root's trees stand where nobody can
    change them, but what is in them can be made a link: that is always held.
    """
    if isinstance(tree, str) and os.geteuid() != 0:  # an older bubblewrap: it takes only a path
        return tree + below
    return ((tree if isinstance(tree, str) else tree[0]) + below,)


def _bound(how: str, source: Source, place: str) -> tuple[Option, ...]:
    return (how if isinstance(source, str) else f"{how}-fd", source, place)


def _covered(hidden: str, grants: Mapping[str, str]) -> Iterator[Option]:
    for path, real in grants.items():
        if within(hidden, real) and Path(hidden).is_dir():
            inside = os.path.normpath(path + hidden[len(real.rstrip("/")) :])
            yield from ("--tmpfs", inside, "--remount-ro", inside)
