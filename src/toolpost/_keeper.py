"""The keeper: the small process that stands between us and a child, and leaves nobody behind.

Above: ``process.py`` starts this file by its path (``python -I -S _keeper.py …``) and holds the
other end of the control socket. Below: the kernel. It refuses to know what the child does, and
imports nothing but the quick half of the standard library, for its start is paid by every child.

With namespaces::

    parent ── control ── keeper ──┬── init (pid 1 of its own pid namespace, private /proc)
                                  └──── child, and all it ever forks

SIGKILL to ``init`` makes the kernel kill all others, and ``init`` is not waited for until they
are gone. Without namespaces the child hangs directly below the keeper, a child subreaper:
whatever detaches itself comes back to it, and it kills until ``wait`` knows no child any more.

Either way the end comes by the same few doors: the child ended, the parent said ``kill``, the
parent's end of the control socket closed (it died, however hard), or the thread that started us
ended (SIGTERM by parent-death signal).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import select
import signal
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
MS_REC_SLAVE = 0x4000 | 0x80000
CLONE_NUMBER = {"x86_64": 56, "aarch64": 220, "riscv64": 220}
CAPABILITY_VERSION_3 = 0x20080522
FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
HEARD = (signal.SIGCHLD, *FORWARDED)

# PyDLL keeps the interpreter lock during a call: after a raw clone() no other thread exists
# that could have held it.
libc = ctypes.PyDLL(None, use_errno=True)


class Order:
    """What the parent wants, as it stands on our command line."""

    def __init__(self, argv: list[str]) -> None:
        self.control = int(argv[0])
        self.memory = int(argv[1])
        self.file_size = int(argv[2])
        self.namespace = argv[3] == "namespace"
        self.script = argv[4] == "script"
        self.inherited = [int(number) for number in argv[5].split(",") if number]
        self.program = argv[6:]


def main(argv: list[str]) -> None:
    """Start the child and keep it; in the child itself, become the program."""
    order = Order(argv)
    os.set_inheritable(order.control, False)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    wake = wake_on_signals()
    fault, fault_end = os.pipe()
    first, namespaced = start(order, fault_end)
    if first == 0:
        become(order, fault_end)
        return
    os.close(fault_end)
    let_go(order.inherited)
    failed = os.read(fault, 64)
    os.close(fault)
    if failed:
        tell(order.control, b"failed " + failed)
    else:
        tell(order.control, b"started namespace" if namespaced else b"started subreaper")
        keep(order.control, wake, first)
    end(order.control, first, namespaced)
    os._exit(0)


def start(order: Order, fault: int) -> tuple[int, bool]:
    """Fork the first process below us: (its pid or 0 within the child, namespaced)."""
    if order.namespace:
        first = fork_into_namespace(order, fault)
        if first is not None:
            return first, True
    return os.fork(), False


def fork_into_namespace(order: Order, fault: int) -> int | None:
    """Start ``init`` in a new pid and mount namespace; None where that cannot be had.

    Root does it with its own rights. Anybody else needs a user namespace for it, in which he is
    mapped to himself. Root that lacks the rights (a container) gets none: mapped alone it would
    lose its power over the files of others, and tools would break in odd ways.
    """
    number = CLONE_NUMBER.get(os.uname().machine)
    if number is None:
        return None
    user = 0 if os.geteuid() == 0 else CLONE_NEWUSER
    uid, gid = os.geteuid(), os.getegid()
    ready, ready_end = os.pipe()
    flags = CLONE_NEWPID | CLONE_NEWNS | user | signal.SIGCHLD
    first = int(libc.syscall(number, ctypes.c_ulong(flags), None, None, None, None))
    if first == 0:
        os.close(ready)
        if user:
            map_to_self(uid, gid)
        furnish()
        if user:
            drop_capabilities()
        os.write(ready_end, b"+")
        os.close(ready_end)
        return run_init(order, fault)
    os.close(ready_end)
    went_well = first > 0 and os.read(ready, 1) == b"+"
    os.close(ready)
    if first > 0 and not went_well:
        os.waitpid(first, 0)
    return first if went_well else None


def map_to_self(uid: int, gid: int) -> None:
    """Within the user namespace we are who we were, so files keep their owner."""
    for name, text in (
        ("setgroups", "deny"),
        ("gid_map", f"{gid} {gid} 1"),
        ("uid_map", f"{uid} {uid} 1"),
    ):
        try:
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        except OSError:
            os._exit(1)


def furnish() -> None:
    """Private mounts and a /proc that shows this namespace's pids; no half measures."""
    if libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC_SLAVE), None) != 0:
        os._exit(1)
    if libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(MS_NOSUID_NODEV_NOEXEC), None) != 0:
        os._exit(1)


def drop_capabilities() -> None:
    """The namespace was made with powers that an ordinary user's tool never had."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    if libc.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        os._exit(1)


def run_init(order: Order, fault: int) -> int:
    """Be pid 1: fork the child, reap everybody, report the child's end. Returns 0 in the child."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Blocked before the fork and fetched one by one: a handler would sleep through a signal that
    # comes just before the wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    child = os.fork()
    if child == 0:
        return 0
    os.close(fault)
    let_go(order.inherited)
    while True:
        number = signal.sigwait(HEARD)
        if number != signal.SIGCHLD:
            os.kill(child, number)
            continue
        while (found := reap(order.control, child, os.WNOHANG)) is not None:
            if found:
                os._exit(0)


def become(order: Order, fault: int) -> None:
    """In the child: take on the limits, then the program."""
    signal.set_wakeup_fd(-1)
    close_all_but({0, 1, 2, fault, *order.inherited})
    for number in (*HEARD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
    os.setsid()
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        take_limits(order.memory, order.file_size)
        offer_to_oom_killer()
        forget_own_locale()
        if not order.script:
            os.execvp(order.program[0], order.program)
        code = SourceFileLoader("__main__", order.program[0]).get_code("__main__")
    except Exception as error:  # whatever it is: who started us waits to hear of it
        reason = getattr(error, "errno", None) or errno.EINVAL
        os.write(fault, str(reason).encode())
        os._exit(127)
    assert code is not None
    os.close(fault)
    run_script(code, order.program)


def take_limits(memory: int, file_size: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number, value in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, file_size)):
        if value:
            hard = resource.getrlimit(number)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (value, value))


def close_all_but(kept: set[int]) -> None:
    low = 0
    for number in sorted(kept):
        if low < number:  # closerange(0, 0) would close everything
            os.closerange(low, number)
        low = number + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def offer_to_oom_killer() -> None:
    """If the machine runs out of memory, the tool goes before the one that called it."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")


def forget_own_locale() -> None:
    """Python itself sets LC_CTYPE where no locale is given; the child shall not see that."""
    with contextlib.suppress(OSError), open("/proc/self/environ", "rb") as file:
        if b"\0LC_CTYPE=" not in b"\0" + file.read():
            os.environ.pop("LC_CTYPE", None)


def run_script(code: CodeType, program: list[str]) -> None:
    """Run a Python file in this very interpreter; its byte code comes from the cache."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # as Python itself starts
        signal.signal(number, signal.SIG_IGN)
    sys.argv = program
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def wake_on_signals() -> int:
    """A descriptor that becomes readable when a child ended or our starter's thread did."""
    wake, wake_end = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_end, False)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    return wake


def let_go(inherited: list[int]) -> None:
    """Drop what is the child's alone, or its end would never be seen as closed."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)
    for number in inherited:
        os.close(number)


def tell(control: int, message: bytes) -> None:
    with contextlib.suppress(OSError):  # the parent is gone; we are about to follow
        os.write(control, message)


def listen(control: int) -> bytes:
    try:
        return os.read(control, 64)
    except ConnectionError:
        return b""  # the parent closed with our last word unread


def keep(control: int, wake: int, first: int) -> None:
    """Wait for a reason to end; reap what comes back to us meanwhile."""
    poller = select.poll()
    poller.register(control, select.POLLIN)
    poller.register(wake, select.POLLIN)
    while True:
        for number, _ in poller.poll():
            if number == wake:
                if signal.SIGTERM in os.read(wake, 4096):
                    return
            else:
                wish = listen(control)
                if wish in (b"", b"kill"):
                    return
                os.kill(first, int(wish))
        while (found := reap(control, first, os.WNOHANG)) is not None:
            if found:
                return


def reap(control: int, first: int, options: int) -> bool | None:
    """Collect one of the dead: True for ``first``, False for another, None if there is none yet."""
    pid, status, usage = os.wait4(-1, options)
    if pid == first:
        tell(control, f"exit {status} {usage.ru_maxrss}".encode())
    return pid == first if pid else None


def end(control: int, first: int, namespaced: bool) -> None:
    """Kill again and again until there is nobody left to wait for."""
    try:
        while True:
            while reap(control, first, os.WNOHANG) is not None:
                pass
            for pid in [first] if namespaced else descendants(os.getpid()):
                kill(pid)
            reap(control, first, 0)
    except ChildProcessError:
        return


def kill(pid: int) -> None:
    with contextlib.suppress(OSError):  # gone already, or (a set-user-id program) not ours
        os.kill(pid, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """Every process below ``root``, as /proc shows it now.

    The dead are counted too: a process whose main thread ended looks dead while others run on.
    """
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue  # it ended while we looked
            children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
