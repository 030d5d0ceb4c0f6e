"""The system call filter: BPF made from a list of what a tool has no business with.

Above: ``sandbox.py`` hands the bytes to bubblewrap; ``_entry.py`` installs them where there is no
bubblewrap. Below: nothing but numbers. It refuses to know what is being confined.

Everything is allowed but what is listed, and what is newer than this list: programs keep running,
the parts of the kernel where most of its escapes were found are out of reach. Set-user-id bits are
refused too, or a tool could leave a program behind that runs with the rights of its owner.
"""

from __future__ import annotations

import errno
import platform
import struct
from functools import lru_cache
from typing import Final, NamedTuple

ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000
_ERRNO: Final = 0x00050000
_AS_IF: Final = 0
"""No error: the caller goes on as if it had been done."""

_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_ANY_BIT: Final = 0x45
_AND: Final = 0x54
_RETURN: Final = 0x06

_NR, _ARCH, _ARGS = 0, 4, 16
_NEW_NAMESPACE: Final = 0x7E020000
_SET_ID: Final = 0o6000
_SOCK_RAW, _SOCK_PACKET = 3, 10
_FAMILIES: Final = (1, 2, 10)  # unix, inet, inet6
_NETLINK: Final = 16
_OF_THE_HOST: Final = (
    2,
    10,
    _NETLINK,
)  # inet, inet6, netlink: services listen on abstract unix sockets
_TTY_INJECTION: Final = (0x5412, 0x541C, 0x541D)  # TIOCSTI, TIOCLINUX, TIOCCONS
_LEASES: Final = (1024, 1040)  # F_SETLEASE, F_SETDELEG: others' opening of a file waits for them
_X32: Final = 0x40000000
_NEWEST: Final = 462
"""The last call that was looked at (mseal). What came later answers as on an older kernel."""

# name: number on x86_64, number on aarch64 (-1: not there)
_FORBIDDEN: Final[dict[str, tuple[int, int]]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "ioperm": (173, -1),
    "iopl": (172, -1),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "listmount": (458, 458),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, -1),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "statmount": (457, 457),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, -1),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, -1),
    "userfaultfd": (323, 282),
    "ustat": (136, -1),
    "vhangup": (153, 58),
}
# These answer "not there", so that a libc or a runtime takes its older way.
_UNKNOWN: Final[dict[str, tuple[int, int]]] = {
    "clone3": (435, 435),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "openat2": (437, 437),
}
# name: (numbers, which argument carries the mode of the file)
_MODES: Final[dict[str, tuple[tuple[int, int], int]]] = {
    "chmod": ((90, -1), 1),
    "creat": ((85, -1), 1),
    "fchmod": ((91, 52), 1),
    "fchmodat": ((268, 53), 2),
    "fchmodat2": ((452, 452), 2),
    "mkdir": ((83, -1), 1),
    "mkdirat": ((258, 34), 2),
    "mknod": ((133, -1), 1),
    "mknodat": ((259, 33), 2),
    "open": ((2, -1), 2),
    "openat": ((257, 56), 3),
}
_CREATING: Final = {"open": 1, "openat": 2}
"""Where the mode means something only if the flags, in this argument, say O_CREAT or O_TMPFILE."""
_O_CREATING: Final = 0o100 | 0o20000000
_CLONE, _SOCKET, _SOCKETPAIR, _IOCTL, _FCNTL, _PERSONALITY = (
    (56, 220),
    (41, 198),
    (53, 199),
    (16, 29),
    (72, 25),
    (135, 92),
)
# Memory, semaphores and queues that any process of the user can name.
_BETWEEN_PROCESSES: Final[dict[str, tuple[int, int]]] = {
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
}
# What whoever owns a file may do to it wherever it lies, besides changing its mode: Landlock has no
# right for that. It is answered as if it were done, and is not, as a disk without owners does.
_TO_FILES: Final[dict[str, tuple[int, int]]] = {
    "chown": (92, -1),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "futimesat": (261, -1),
    "lchown": (94, -1),
    "utime": (132, -1),
    "utimes": (235, -1),
}
_ATTRIBUTES: Final[dict[str, tuple[int, int]]] = {
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "setxattr": (188, 5),
}
_WATCHING: Final[dict[str, tuple[int, int]]] = {
    "inotify_init": (253, -1),
    "inotify_init1": (294, 26),
}
_UTIMENSAT: Final = (280, 88)
_TTY_AND_FILES: Final = (*_TTY_INJECTION, 0x40086602, 0x401C5820)  # FS_IOC_(SETFLAGS, FSSETXATTR)
# Memory that counts for no process, beside shared maps.
_NOBODYS: Final[dict[str, tuple[int, int]]] = {
    "fsetxattr": (190, 7),
    "lsetxattr": (189, 6),
    "memfd_create": (319, 279),
    "msgget": (68, 186),
    "semget": (64, 190),
    "setxattr": (188, 5),
    "shmget": (29, 194),
}
# What one process of a user may do to another, beside signals.
_TO_OTHERS: Final[dict[str, tuple[int, int]]] = {
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "setpriority": (141, 140),
}
_MMAP: Final = (9, 222)
_PRLIMIT: Final = (302, 261)
_FALLOCATE: Final = (285, 47)
_MAP_SHARED_ANONYMOUS, _MAP_GROWSDOWN = 0x21, 0x100
_AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


class _Step(NamedTuple):
    code: int
    value: int
    yes: int = 0
    no: int = 0


@lru_cache(16)
def build(
    *,
    apart: bool = True,
    shared_memory: bool = True,
    host: tuple[str, ...] = (),
    quota: bool = False,
    machine: str = "",
) -> bytes | None:
    """The filter for this machine, or ``None`` where the numbers are not known.

    ``apart=False`` is for where no namespaces keep network, files and processes apart: it leaves no
    socket but a pair, nothing of what processes of one user share by name or could do to another,
    and of files the mode, owner, times (but to now) and attributes stay as they are.
    ``shared_memory=False`` takes away what counts for no process (files in memory and what is tied
    to files there, maps that are shared and nobody's, System V), so that without a cgroup nothing
    would bound it.
    ``host`` is what is shared with it: with its network there are no unix sockets, but netlink;
    with its processes nothing that would change another.
    ``quota=True`` takes away ``fallocate``, which fills a disk faster than anybody could look: it
    answers as on a file system that does not have it, and programs write instead.
    """
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCH:
        return None
    here = 0 if machine == "x86_64" else 1
    steps = _opening(machine)
    for numbers in _FORBIDDEN.values():
        steps += _when(numbers[here], [_refuse(errno.EPERM)])
    for numbers in _UNKNOWN.values():
        steps += _when(numbers[here], [_refuse(errno.ENOSYS)])
    if not apart:
        steps += _of_one_user(here)
    if not shared_memory:
        for numbers in _NOBODYS.values():
            steps += _when(numbers[here], [_refuse(errno.ENOSYS)])
        steps += _when(_MMAP[here], _counted_map())
    if quota:
        steps += _when(_FALLOCATE[here], [_refuse(errno.EOPNOTSUPP)])
    for name, (numbers, place) in _MODES.items():
        then = _without_set_id(place, _CREATING.get(name))
        if not apart and "chmod" in name:
            then = [*then[:-1], _refuse(_AS_IF)]
        steps += _when(numbers[here], then)
    steps += _when(_CLONE[here], _unless_bits(0, _NEW_NAMESPACE))
    steps += _when(_IOCTL[here], _none_of(1, _TTY_INJECTION if apart else _TTY_AND_FILES))
    steps += _when(_FCNTL[here], _none_of(1, _LEASES))
    steps += _when(_PERSONALITY[here], _one_of(0, (0, 0xFFFFFFFF), errno.EPERM))
    steps += _when(_SOCKETPAIR[here], _one_of(0, (1,), errno.EAFNOSUPPORT))
    if "processes" in host or not apart:
        for numbers in _TO_OTHERS.values():
            steps += _when(numbers[here], [_refuse(errno.EPERM)])
        steps += _when(_PRLIMIT[here], _one_of(0, (0,), errno.EPERM))  # its own
    families = _OF_THE_HOST if "network" in host else _FAMILIES
    steps += _when(_SOCKET[here], _ordinary_socket(families) if apart else [_refuse(errno.EPERM)])
    steps.append(_Step(_RETURN, ALLOW))
    return b"".join(struct.pack("=HBBI", s.code, s.yes, s.no, s.value) for s in steps)


def _opening(machine: str) -> list[_Step]:
    """Another architecture's calls have other numbers: they would pass as something else."""
    steps = [
        _Step(_LOAD, _ARCH),
        _Step(_EQUAL, _AUDIT_ARCH[machine], yes=1),
        _Step(_RETURN, KILL),
        _Step(_LOAD, _NR),
    ]
    if machine == "x86_64":
        steps += [_Step(_ANY_BIT, _X32, no=1), _Step(_RETURN, KILL)]
    return [*steps, _Step(_AT_LEAST, _NEWEST + 1, no=1), _refuse(errno.ENOSYS)]


def _of_one_user(here: int) -> list[_Step]:
    """What processes of one user could do to each other and to that user's files."""
    steps = _when(_UTIMENSAT[here], _only_now())
    for calls, answer in (
        (_BETWEEN_PROCESSES, errno.EPERM),
        (_TO_FILES, _AS_IF),
        (_ATTRIBUTES, errno.ENOTSUP),
        (_WATCHING, errno.ENOSYS),
    ):
        for numbers in calls.values():
            steps += _when(numbers[here], [_refuse(answer)])
    return steps


def _when(number: int, then: list[_Step]) -> list[_Step]:
    """``then`` for this call; it always returns, for it may have loaded something else."""
    if number < 0:
        return []
    if then[-1].code != _RETURN:
        then = [*then, _Step(_RETURN, ALLOW)]
    return [_Step(_EQUAL, number, no=len(then)), *then]


def _refuse(number: int) -> _Step:
    return _Step(_RETURN, _ERRNO | number)


def _argument(place: int) -> _Step:
    """Its lower half; what is looked at here is never wider."""
    return _Step(_LOAD, _ARGS + 8 * place)


def _unless_bits(place: int, bits: int) -> list[_Step]:
    return [
        _argument(place),
        _Step(_ANY_BIT, bits, no=1),
        _refuse(errno.EPERM),
        _Step(_RETURN, ALLOW),
    ]


def _without_set_id(place: int, flags: int | None) -> list[_Step]:
    steps = _unless_bits(place, _SET_ID)
    if flags is None:
        return steps
    return [_argument(flags), _Step(_ANY_BIT, _O_CREATING, no=len(steps) - 1), *steps]


def _only_now() -> list[_Step]:
    """Of a file that is open, to the present moment, as ``touch`` does: no path and no times, in
    both halves of the two.
    """
    halves = [_ARGS + 8 * place + half for place in (1, 2) for half in (0, 4)]
    steps: list[_Step] = []
    for left, half in zip(range(len(halves), 0, -1), halves, strict=True):
        steps += [_Step(_LOAD, half), _Step(_EQUAL, 0, no=2 * left - 1)]
    return [*steps, _Step(_RETURN, ALLOW), _refuse(_AS_IF)]


def _counted_map() -> list[_Step]:
    """Neither shared without a file nor growing: those are no data to the kernel."""
    return [
        _argument(3),
        _Step(_ANY_BIT, _MAP_GROWSDOWN, yes=2),
        _Step(_AND, _MAP_SHARED_ANONYMOUS),
        _Step(_EQUAL, _MAP_SHARED_ANONYMOUS, no=1),
        _refuse(errno.ENOMEM),
        _Step(_RETURN, ALLOW),
    ]


def _none_of(place: int, values: tuple[int, ...]) -> list[_Step]:
    tests = [_Step(_EQUAL, v, yes=len(values) - i) for i, v in enumerate(values)]
    return [_argument(place), *tests, _Step(_RETURN, ALLOW), _refuse(errno.EPERM)]


def _one_of(place: int, values: tuple[int, ...], otherwise: int) -> list[_Step]:
    tests = [_Step(_EQUAL, v, yes=len(values) - i) for i, v in enumerate(values)]
    return [_argument(place), *tests, _refuse(otherwise), _Step(_RETURN, ALLOW)]


def _ordinary_socket(families: tuple[int, ...]) -> list[_Step]:
    known = _one_of(0, families, errno.EAFNOSUPPORT)[:-1]
    kind = [
        _argument(1),
        _Step(_AND, 0xF),  # without SOCK_CLOEXEC and SOCK_NONBLOCK
        _Step(_EQUAL, _SOCK_RAW, yes=2),
        _Step(_EQUAL, _SOCK_PACKET, yes=1),
        _Step(_RETURN, ALLOW),
        _refuse(errno.EPERM),
    ]
    if _NETLINK in families:  # whose sockets are all raw
        kind = [_argument(0), _Step(_EQUAL, _NETLINK, yes=len(kind) - 2), *kind]
    return [*known, *kind]
