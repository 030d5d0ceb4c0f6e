"""The way in: a process that waits for a plan, gives up its rights, and becomes what is confined.

Above: ``stem.py`` starts this file below a keeper, ahead of time, and sends it one plan over a
socket. Below: the kernel, and bubblewrap. It imports only what is quick to import, and refuses to
know why a plan is as it is: every decision was taken by who sent it.

The order matters, and where we are root it is this: a mount namespace of our own, in it the trees
that are wanted at a place that anybody can reach, then another user for good, then the limits, and
then bubblewrap, which is thus never root.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import marshal
import os
import resource
import signal
import socket
import stat
import struct
import sys
from typing import Any

CLONE_NEWNS = 0x00020000
MS_PRIVATE_REC = 0x4000 | 0x40000
MS_NOSUID_NODEV = 2 | 4
MNT_DETACH = 2
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE_CLOEXEC = 1 | 0x80000
MOVE_MOUNT_FROM_EMPTY_PATH = 4
MOUNT_ATTR_IDMAP = 0x00100000
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_RULE_PATH_BENEATH = 1
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
SLICE = 100_000
"""Nanoseconds: the shortest turn on a processor that can be asked for."""
HIGH = 200
"""Our own descriptors go above this, the tool's are below."""

libc = ctypes.PyDLL(None, use_errno=True)


def main(arguments: list[str]) -> None:
    """Join the cgroups, say so, and wait for the plan; without one, end."""
    talk = socket.socket(fileno=above(int(arguments[0])))
    os.set_inheritable(talk.fileno(), False)  # its end tells that we have become the program
    for path in arguments[1:]:
        with open(path, "w") as file:
            file.write("0")
    take_short_turns()
    apart = os.geteuid() == 0 and libc.unshare(CLONE_NEWNS) == 0  # ahead: it takes its time
    practise()
    talk.send(b"+")
    plan, received = hear(talk)
    try:
        if plan["stage"] and not apart:
            check(libc.unshare(CLONE_NEWNS), "a mount namespace")
        follow(plan, received, talk)
    except Exception as error:  # whatever it is: who sent the plan waits to hear of it
        too_long = isinstance(error, OSError) and error.errno == errno.E2BIG
        told = f"failed {errno.E2BIG}" if too_long else f"{type(error).__name__}: {error}"
        talk.send(told.encode())
        os._exit(126)


def take_short_turns() -> None:
    """Whoever asks for short turns gets them soon, and no more of them: on a busy machine a program
    does not wait for others' long ones before it can begin. Older kernels do not know of it.
    """
    number = SCHED_SETATTR.get(os.uname().machine)
    if number is not None and os.sched_getscheduler(0) == os.SCHED_OTHER:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        wish = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, SLICE, 0, 0)
        libc.syscall(number, 0, wish, 0)


def practise() -> None:
    """What runs for the first time is slow, and somebody waits for what comes after the plan."""
    numbers = [int(option) for option in filled_in([0, ("/usr",)], [b"data"])]
    place(numbers, [HIGH - 2, HIGH - 1])
    for number in (HIGH - 2, HIGH - 1):
        os.close(number)


def hear(talk: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A plan behind its length, and the descriptors that came with it."""
    numbers = array.array("i")
    space = socket.CMSG_SPACE(64 * numbers.itemsize)
    head, control, _, _ = talk.recvmsg(4, space)
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    if not head:
        os._exit(0)
    missing = int.from_bytes(head, "little")
    parts = []
    while missing:
        part = talk.recv(missing)
        if not part:
            os._exit(0)
        parts.append(part)
        missing -= len(part)
    return marshal.loads(b"".join(parts)), list(numbers)


def follow(plan: dict[str, Any], received: list[int], talk: socket.socket) -> None:
    """Do what the plan says and become its program; comes back only as an exception."""
    if plan["stage"]:
        stage(plan["stage"], [received.pop() for _ in range(plan["maps"])][::-1])
    place(received, plan["fds"])
    if plan["cores"]:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: plan["cores"]])
    argv = [*plan["argv"]]
    if plan["bwrap"]:
        filled = filled_in(plan["options"], plan["data"])
        argv = [plan["bwrap"], "--args", str(memory_file(b"\0".join(filled) + b"\0")), "--", *argv]
    if plan["user"]:
        drop(plan["user"])
    for number, value in plan["limits"]:
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))
    for taken in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # by Python; tools expect none
        signal.signal(taken, signal.SIG_DFL)
    if plan["bwrap"] and plan["landlock"]:
        restrict(plan["landlock"], None)
    if plan["stay"]:
        start(argv, talk)
    if plan["bwrap"]:
        os.execve(argv[0], argv, {})
    os.chdir(plan["cwd"])
    if plan["seccomp"] is not None:  # under it modes stay as they are made: closed to others
        os.umask(0o077)
    restrict(plan["landlock"], plan["seccomp"])
    os.execvpe(argv[0], argv, plan["env"])


def start(argv: list[str], talk: socket.socket) -> None:
    """Stand beside the program instead of becoming it: to clear this process away takes longer than
    to start another, and can wait until that one has ended.
    """
    program = os.posix_spawn(argv[0], argv, {})
    talk.close()
    os.closerange(0, 2 * HIGH)  # or the program's end of it would never be seen as closed
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    os._exit(code if code >= 0 else 128 - code)


def stage(wanted: list[tuple[str, str, int]], maps: list[int]) -> None:
    """Bring trees to /tmp of our own mount namespace: (source, name there, which id map or -1).

    They are taken hold of before /tmp is covered, for some of them may be in it.
    """
    check(libc.mount(None, b"/", None, ctypes.c_ulong(MS_PRIVATE_REC), None), "private mounts")
    libc.umount2(b"/sys", MNT_DETACH)  # bubblewrap reads through all mounts for each that it makes
    taken = []
    for source, name, which in wanted:
        flags = ctypes.c_uint(OPEN_TREE_CLONE_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH)
        number = held(source)
        tree = check(libc.syscall(OPEN_TREE, number, b"", flags), source)
        is_folder = stat.S_ISDIR(os.fstat(number).st_mode)
        os.close(number)
        if which >= 0:
            wish = (ctypes.c_uint64 * 4)(MOUNT_ATTR_IDMAP, 0, 0, maps[which])
            flags = ctypes.c_uint(AT_EMPTY_PATH)
            size = ctypes.c_size_t(ctypes.sizeof(wish))
            check(libc.syscall(MOUNT_SETATTR, tree, b"", flags, wish, size), f"an id map: {source}")
        taken.append((tree, is_folder, name))
    options = ctypes.c_ulong(MS_NOSUID_NODEV)
    check(libc.mount(b"tmpfs", b"/tmp", b"tmpfs", options, b"mode=755,size=1m"), "a place to stage")
    for tree, is_folder, name in taken:
        target = f"/tmp/{name}"
        os.makedirs(target if is_folder else os.path.dirname(target), 0o755, exist_ok=True)
        if not is_folder:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        flags = ctypes.c_uint(MOVE_MOUNT_FROM_EMPTY_PATH)
        check(libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), flags), target)
        os.close(tree)
    for number in maps:
        os.close(number)


def check(answer: int, what: str) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return answer


def place(received: list[int], targets: list[int]) -> None:
    """Give the descriptors the numbers that were asked for; first all out of each other's way."""
    apart = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, HIGH) for number in received]
    for number in received:
        os.close(number)
    for number, target in zip(apart, targets, strict=True):
        os.dup2(number, target)
        os.close(number)


def filled_in(options: list[str | int | tuple[str]], data: list[bytes]) -> list[bytes]:
    """The options, with a descriptor's number where they mean one of the pieces of data, or a path
    that is to be taken hold of. With NUL in it, one would be several.
    """
    if any(isinstance(o, str) and "\0" in o for o in options):
        raise ValueError("an option has NUL in it")
    return [
        str(memory_file(data[o]) if isinstance(o, int) else above(held(o[0]))).encode()
        if not isinstance(o, str)
        else os.fsencode(o)
        for o in options
    ]


def held(path: str) -> int:
    """A descriptor of what is there, which no link on the way can lead elsewhere: a real path has
    none, unless somebody has put one there since it was looked up.
    """
    number = os.open("/", os.O_PATH | os.O_CLOEXEC)
    for part in path.split("/"):
        if part:
            below = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=number)
            os.close(number)
            number = below
    if stat.S_ISLNK(os.fstat(number).st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return number


def above(low: int) -> int:
    number = fcntl.fcntl(low, fcntl.F_DUPFD, HIGH)
    os.close(low)
    return number


def memory_file(content: bytes) -> int:
    number = above(os.memfd_create("plan", 0))
    os.write(number, content)
    os.lseek(number, 0, os.SEEK_SET)
    return number


def drop(user: int) -> None:
    """Be somebody else, for good."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    if os.getresuid() != (user,) * 3 or os.getresgid() != (user,) * 3 or os.getgroups():
        raise PermissionError("the user could not be dropped")


def restrict(landlock: dict[str, Any] | None, seccomp: bytes | None) -> None:
    """Without namespaces: Landlock for files, signals and abstract sockets, then the filter."""
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    if landlock is not None:
        handled = (ctypes.c_uint64 * 3)(*landlock["handled"])
        size = ctypes.c_size_t(ctypes.sizeof(handled))
        rules = check(libc.syscall(LANDLOCK_CREATE_RULESET, handled, size, 0), "Landlock")
        for path, rights in landlock["rules"]:
            try:  # noqa: SIM105 - contextlib would have to be imported
                grant(rules, path, rights)
            except (FileNotFoundError, NotADirectoryError):
                pass  # what has gone since it was looked up needs no rights
        check(libc.syscall(LANDLOCK_RESTRICT_SELF, rules, 0), "Landlock")
        os.close(rules)
    if seccomp is not None:
        code = ctypes.create_string_buffer(seccomp, len(seccomp))
        program = (ctypes.c_uint64 * 2)(len(seccomp) // 8, ctypes.addressof(code))
        check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0), "seccomp")


class PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def grant(rules: int, path: str, rights: int) -> None:
    number = held(path)
    rule = PathBeneath(rights, number)
    kind = LANDLOCK_RULE_PATH_BENEATH
    check(libc.syscall(LANDLOCK_ADD_RULE, rules, kind, ctypes.byref(rule), 0), path)
    os.close(number)


if __name__ == "__main__":
    main(sys.argv[1:])
