"""The attacks: each tries one way out of a sandbox, and says whether it got there.

Above: ``running.py`` runs this file inside, as ``python -I -S -c … names targets``; tests run it
outside as well, where the attacks have to succeed. Below: the standard library. What would do harm
only takes its first step: it asks for what is refused before the kernel looks at what is wrong.

An attack returns what it got, or raises ``OSError``; ``Blocked`` is for all other ways to fail.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import resource
import select
import socket
import stat
import struct
import sys
from collections.abc import Callable
from typing import Any

ATTACKS: dict[str, Callable[[dict[str, Any]], object]] = {}
ARM = os.uname().machine == "aarch64"
MIB = 1024 * 1024

libc = ctypes.CDLL(None, use_errno=True)


class Blocked(Exception):
    """It did not work, in a way the kernel has no number for."""


def attack(function: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    ATTACKS[function.__name__] = function
    return function


def call(x86: int, arm: int, *arguments: object) -> int:
    """A system call by its number."""
    whole = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    answer = libc.syscall(arm if ARM else x86, *whole)
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(answer)


def listened(x86: int, arm: int, *arguments: object) -> str:
    """A call that cannot succeed: it is bad enough if the kernel objects to its arguments."""
    try:
        call(x86, arm, *arguments)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            raise
        return f"the kernel listened ({error.strerror})"
    return "the kernel did it"


def need(condition: object, otherwise: str) -> None:
    if not condition:
        raise Blocked(otherwise)


# --- files ---------------------------------------------------------------------------------------


@attack
def read_a_host_file(targets: dict[str, Any]) -> object:
    return open(targets["secret"]).read()


@attack
def read_the_password_hashes(targets: dict[str, Any]) -> object:
    return len(open("/etc/shadow").read())


@attack
def find_files_in_the_home_folder(targets: dict[str, Any]) -> object:
    found = [entry.name for entry in os.scandir(targets["home"]) if entry.is_file()]
    need(found, "no file is there")
    return found


@attack
def follow_a_symlink_out(targets: dict[str, Any]) -> object:
    os.symlink(targets["secret"], "link")
    return open("link").read()


@attack
def follow_a_symlink_that_waits(targets: dict[str, Any]) -> object:
    return open(os.path.join(targets["workspace"], "laid")).read()


@attack
def hardlink_a_file_in(targets: dict[str, Any]) -> object:
    os.link(targets["secret"], "hard")
    return open("hard").read()


@attack
def climb_out_of_the_workspace(targets: dict[str, Any]) -> object:
    return open(os.path.join(targets["workspace"], "../outside/secret")).read()


@attack
def reach_files_through_proc(targets: dict[str, Any]) -> object:
    for root in (f"/proc/{targets['victim']}/root", "/proc/1/root"):
        if os.path.exists(root + targets["secret"]):
            return open(root + targets["secret"]).read()
    raise Blocked("no root there has it")


@attack
def change_the_program_of_a_process(targets: dict[str, Any]) -> object:
    """Its mode, to what it was."""
    for pid in (targets["victim"], 1):
        program = f"/proc/{pid}/exe"
        try:
            before = os.stat(program)
            os.chmod(program, stat.S_IMODE(before.st_mode))
            need(os.stat(program).st_ctime_ns != before.st_ctime_ns, "nothing is changed")
        except (OSError, Blocked):
            continue
        return program
    raise Blocked("none can be changed")


@attack
def write_outside_the_workspace(targets: dict[str, Any]) -> object:
    path = os.path.join(os.path.dirname(targets["secret"]), "written")
    open(path, "w").close()
    return path


def changed(path: str, change: Callable[[os.stat_result], object]) -> object:
    """Whether something of a file was changed, be it to what it was: its owner is told when."""
    before = os.stat(path)
    change(before)
    need(os.stat(path).st_ctime_ns != before.st_ctime_ns, "nothing is changed")
    return path


@attack
def change_the_mode_of_a_host_file(targets: dict[str, Any]) -> object:
    path = targets["secret"]
    return changed(path, lambda it: os.chmod(path, stat.S_IMODE(it.st_mode)))


@attack
def change_the_owner_of_a_host_file(targets: dict[str, Any]) -> object:
    path = targets["secret"]
    return changed(path, lambda it: os.chown(path, it.st_uid, it.st_gid))


@attack
def change_the_times_of_a_host_file(targets: dict[str, Any]) -> object:
    path = targets["secret"]
    return changed(path, lambda _: os.utime(path, (1, 1)))


@attack
def change_an_attribute_of_a_host_file(targets: dict[str, Any]) -> object:
    path = targets["secret"]
    return changed(path, lambda _: os.setxattr(path, "user.toolpost", b"x"))


@attack
def watch_a_host_folder(targets: dict[str, Any]) -> object:
    watching = call(294, 26, 0)
    folder = os.path.dirname(targets["secret"]).encode()
    return call(254, 27, watching, ctypes.c_char_p(folder), 0x100)


@attack
def write_into_the_system(targets: dict[str, Any]) -> object:
    for folder in ("/", "/etc", "/usr", "/usr/bin", "/run", "/var", "/dev"):
        try:
            path = os.path.join(folder, f"toolpost-probe-{os.getpid()}")
            open(path, "x").close()
            os.unlink(path)
        except OSError:
            continue
        return folder
    raise Blocked("no folder takes a file")


@attack
def open_a_file_by_handle(targets: dict[str, Any]) -> object:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    mount = ctypes.c_int()
    here = os.fsencode(targets["workspace"])
    return call(303, 264, -100, here, handle, ctypes.byref(mount), 0)


@attack
def leave_a_set_user_id_file(targets: dict[str, Any]) -> object:
    open("program", "w").close()
    os.chmod("program", 0o4755)
    need(os.stat("program").st_mode & stat.S_ISUID, "the bit was dropped")
    return "set"


@attack
def create_a_set_user_id_file(targets: dict[str, Any]) -> object:
    os.close(os.open("created", os.O_CREAT | os.O_WRONLY, 0o4755))
    need(os.stat("created").st_mode & stat.S_ISUID, "the bit was dropped")
    return "set"


@attack
def run_a_set_user_id_program(targets: dict[str, Any]) -> object:
    need(libc.prctl(39, 0, 0, 0, 0) == 0, "no new privileges")
    return "it would gain privileges"


@attack
def move_what_a_read_only_folder_lies_in(targets: dict[str, Any]) -> object:
    """A later call would find it where it can be written."""
    os.rename(os.path.dirname(targets["kept"]), "moved")
    return os.listdir("moved")


@attack
def swap_what_a_read_only_folder_lies_in(targets: dict[str, Any]) -> object:
    os.mkdir("other")
    here, there = os.path.dirname(targets["kept"]).encode(), b"other"
    call(316, 276, -100, here, -100, there, 2)  # RENAME_EXCHANGE
    return os.listdir("other")


@attack
def link_a_file_out_of_a_read_only_folder(targets: dict[str, Any]) -> object:
    os.link(os.path.join(targets["kept"], "file"), "linked")
    return open("linked", "r+").fileno()


@attack
def hold_up_who_opens_a_file(targets: dict[str, Any]) -> object:
    """With a lease, for which it is enough to read the file: who is to write it has to wait."""
    import fcntl

    open("leased", "w").close()
    return fcntl.fcntl(os.open("leased", os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)


@attack
def make_a_device(targets: dict[str, Any]) -> object:
    os.mknod("device", stat.S_IFBLK | 0o600, os.makedev(7, 0))
    return os.stat("device").st_rdev


@attack
def open_a_disk_or_the_memory(targets: dict[str, Any]) -> object:
    for entry in os.scandir("/dev"):
        is_block = stat.S_ISBLK(entry.stat(follow_symlinks=False).st_mode)
        if is_block or entry.name in ("mem", "kmem", "port", "kmsg"):
            try:
                os.close(os.open(entry.path, os.O_RDONLY))
            except OSError:
                continue
            return entry.path
    raise Blocked("there is none")


# --- the kernel's own files ----------------------------------------------------------------------


def opens_for_writing(*paths: str) -> str:
    for path in paths:
        try:
            os.close(os.open(path, os.O_WRONLY))
        except OSError:
            continue
        return path
    raise Blocked("none opens")


@attack
def set_the_core_pattern(targets: dict[str, Any]) -> object:
    return opens_for_writing("/proc/sys/kernel/core_pattern")


@attack
def set_a_sysctl(targets: dict[str, Any]) -> object:
    return opens_for_writing(
        "/proc/sys/kernel/modprobe", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/hostname"
    )


@attack
def pull_the_sysrq_trigger(targets: dict[str, Any]) -> object:
    return opens_for_writing("/proc/sysrq-trigger")


@attack
def write_into_sys(targets: dict[str, Any]) -> object:
    return opens_for_writing(
        "/sys/kernel/uevent_helper",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/power/state",
        "/sys/devices/system/cpu/cpu0/uevent",
    )


@attack
def leave_the_cgroup(targets: dict[str, Any]) -> object:
    found = [os.path.join(path, "cgroup.procs") for path, _, _ in os.walk("/sys/fs/cgroup")]
    return opens_for_writing(*found)


@attack
def read_the_kernel_log(targets: dict[str, Any]) -> object:
    return call(103, 116, 10, None, 0)


# --- other processes -----------------------------------------------------------------------------


@attack
def see_other_processes(targets: dict[str, Any]) -> object:
    return open(f"/proc/{targets['victim']}/cmdline").read()


@attack
def read_the_environment_of_others(targets: dict[str, Any]) -> object:
    return open(f"/proc/{targets['victim']}/environ").read()


@attack
def read_the_memory_of_others(targets: dict[str, Any]) -> object:
    return open(f"/proc/{targets['victim']}/mem", "rb").fileno()


@attack
def signal_another_process(targets: dict[str, Any]) -> object:
    os.kill(targets["victim"], 0)
    return "done"


@attack
def signal_the_parent(targets: dict[str, Any]) -> object:
    os.kill(targets["parent"], 0)
    return "done"


@attack
def trace_a_process(targets: dict[str, Any]) -> object:
    return call(101, 117, 0, 0, 0, 0)


@attack
def read_memory_by_call(targets: dict[str, Any]) -> object:
    source, target = ctypes.create_string_buffer(b"x", 8), ctypes.create_string_buffer(8)
    near = (ctypes.c_size_t * 2)(ctypes.addressof(target), 8)
    far = (ctypes.c_size_t * 2)(ctypes.addressof(source), 8)
    return call(310, 270, os.getpid(), near, 1, far, 1, 0)


def watching() -> int:
    """Whoever started this program and tells of its end: the parent of what runs the attacks."""
    return int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1])


@attack
def write_into_the_memory_of_who_watches(targets: dict[str, Any]) -> object:
    """Whoever can do that can say that it has ended, and live on."""
    return open(f"/proc/{watching()}/mem", "r+b", buffering=0).fileno()


@attack
def take_a_descriptor_from_who_watches(targets: dict[str, Any]) -> object:
    handle = call(434, 434, watching(), 0)
    for number in range(256):
        try:
            return call(438, 438, handle, number, 0)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
    raise Blocked("there is none")


@attack
def use_shared_memory_of_others(targets: dict[str, Any]) -> object:
    found = libc.shmget(targets["shared_memory"], 0, 0)
    need(found >= 0, "not there")
    return found


@attack
def inherit_descriptors(targets: dict[str, Any]) -> object:
    listed = os.open("/proc/self/fd", os.O_RDONLY)
    more = [n for n in map(int, os.listdir(listed)) if n > 2 and n != listed]
    more = [n for n in more if os.path.exists(f"/proc/self/fd/{n}")]
    need(more, "none but the three")
    return [os.readlink(f"/proc/self/fd/{n}") for n in more]


@attack
def find_secrets_in_the_environment(targets: dict[str, Any]) -> object:
    need(os.getenv(targets["variable"]), "not there")
    return "there"


@attack
def push_keys_into_the_terminal(targets: dict[str, Any]) -> object:
    import fcntl
    import pty

    _, terminal = pty.openpty()
    return fcntl.ioctl(terminal, 0x5412, b"x")


# --- the network ---------------------------------------------------------------------------------


@attack
def connect_by_tcp(targets: dict[str, Any]) -> object:
    return socket.create_connection(("127.0.0.1", targets["tcp"]), timeout=2).fileno()


@attack
def connect_by_tcp6(targets: dict[str, Any]) -> object:
    need(targets["tcp6"], "there is no IPv6 here")
    return socket.create_connection(("::1", targets["tcp6"]), timeout=2).fileno()


@attack
def talk_by_udp(targets: dict[str, Any]) -> object:
    speaker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    speaker.settimeout(1)
    speaker.sendto(b"hello", ("127.0.0.1", targets["udp"]))
    return speaker.recv(16)


@attack
def find_a_network(targets: dict[str, Any]) -> object:
    names = [line.split(":")[0].strip() for line in list(open("/proc/net/dev"))[2:]]
    need(set(names) - {"lo"}, "only loopback")
    return names


@attack
def look_up_a_name(targets: dict[str, Any]) -> object:
    """Is there a way to a name server? To connect by UDP sends nothing, but needs a route."""
    finder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    finder.connect((targets["nameserver"], 53))
    need(not finder.getsockname()[0].startswith("127."), "only loopback")
    return finder.getsockname()


@attack
def connect_to_a_unix_socket(targets: dict[str, Any]) -> object:
    socket.socket(socket.AF_UNIX).connect(targets["unix"])
    return "done"


@attack
def connect_to_an_abstract_socket(targets: dict[str, Any]) -> object:
    socket.socket(socket.AF_UNIX).connect("\0" + targets["abstract"])
    return "done"


@attack
def find_sockets_of_services(targets: dict[str, Any]) -> object:
    """A container engine's, the system bus: whatever is in /run."""
    found = set(os.listdir("/run")) - {"toolpost"}
    need(found, "nothing is there")
    return sorted(found)[:5]


@attack
def open_a_raw_socket(targets: dict[str, Any]) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).fileno()


@attack
def open_a_packet_socket(targets: dict[str, Any]) -> object:
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).fileno()


@attack
def open_a_netlink_socket(targets: dict[str, Any]) -> object:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).fileno()


# --- namespaces and mounts -----------------------------------------------------------------------


@attack
def make_a_user_namespace(targets: dict[str, Any]) -> object:
    return call(272, 97, 0x10000000)


@attack
def clone_into_a_namespace(targets: dict[str, Any]) -> object:
    pid = call(56, 220, 0x10000000 | 17, None, None, None, None)
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)


@attack
def enter_a_namespace(targets: dict[str, Any]) -> object:
    number = os.open("/proc/self/ns/uts", os.O_RDONLY)
    return call(308, 268, number, 0)


@attack
def mount_a_file_system(targets: dict[str, Any]) -> object:
    return listened(165, 40, b"none", os.fsencode(targets["workspace"]), b"no-such-fs", 0, None)


@attack
def mount_by_the_new_calls(targets: dict[str, Any]) -> object:
    return call(430, 430, b"tmpfs", 0)


@attack
def unmount(targets: dict[str, Any]) -> object:
    return listened(166, 39, b"/usr/bin", 0)


@attack
def change_the_root_mount(targets: dict[str, Any]) -> object:
    here = os.fsencode(targets["workspace"])
    return listened(155, 41, here, here)


@attack
def change_the_root_folder(targets: dict[str, Any]) -> object:
    os.chroot(targets["workspace"])
    return "done"


# --- parts of the kernel -------------------------------------------------------------------------


@attack
def set_up_io_uring(targets: dict[str, Any]) -> object:
    return call(425, 425, 4, ctypes.create_string_buffer(120))


@attack
def use_the_keyring(targets: dict[str, Any]) -> object:
    return call(250, 219, 0, -3, 1, 0, 0)


@attack
def add_a_key(targets: dict[str, Any]) -> object:
    return call(248, 217, b"user", b"toolpost-probe", b"x", 1, -1)


@attack
def load_a_bpf_program(targets: dict[str, Any]) -> object:
    return listened(321, 280, 5, ctypes.create_string_buffer(120), 120)


@attack
def open_a_performance_counter(targets: dict[str, Any]) -> object:
    about = ctypes.create_string_buffer(struct.pack("IIQ", 1, 112, 0), 112)
    return call(298, 241, about, 0, -1, -1, 0)


@attack
def handle_page_faults(targets: dict[str, Any]) -> object:
    return call(323, 282, 0)


@attack
def load_another_kernel(targets: dict[str, Any]) -> object:
    return listened(246, 104, 0, 1 << 30, None, 0xFFFF)


@attack
def load_a_module(targets: dict[str, Any]) -> object:
    return listened(313, 273, -1, b"", 0)


@attack
def restart_the_machine(targets: dict[str, Any]) -> object:
    return listened(169, 142, 0, 0, 0, None)


@attack
def set_the_clock(targets: dict[str, Any]) -> object:
    return call(164, 170, None, None)


@attack
def set_the_host_name(targets: dict[str, Any]) -> object:
    name = os.fsencode(os.uname().nodename)
    return call(170, 161, name, len(name))


@attack
def use_a_swap_file(targets: dict[str, Any]) -> object:
    return listened(167, 224, b"/no/such/file", 0)


@attack
def change_the_personality(targets: dict[str, Any]) -> object:
    return call(135, 92, 0x0040000)


@attack
def become_root(targets: dict[str, Any]) -> object:
    os.setresuid(0, 0, 0)
    return "done"


@attack
def hold_capabilities(targets: dict[str, Any]) -> object:
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    held = {name: status[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")}
    need(any(int(value, 16) for value in held.values()), "none")
    return held


# --- using everything up -------------------------------------------------------------------------


@attack
def fork_without_end(targets: dict[str, Any]) -> object:
    children: list[int] = []
    try:
        while len(children) < 200:
            pid = os.fork()
            if pid == 0:
                select.select([], [], [])
            children.append(pid)
    except OSError as error:
        raise Blocked(f"{len(children)} were forked, then: {error.strerror}") from None
    finally:
        for pid in children:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    return len(children)


@attack
def take_all_memory(targets: dict[str, Any]) -> object:
    held = []
    try:
        for _ in range(6):
            held.append(bytearray(b"x") * (64 * MIB))
    except MemoryError:
        raise Blocked(f"after {len(held) * 64} MiB") from None
    return f"{len(held) * 64} MiB"


@attack
def take_all_memory_with_children(targets: dict[str, Any]) -> object:
    """Each within its bound, all together beyond."""
    ready, ready_end = os.pipe()
    children = []
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            held = bytearray(b"x") * (48 * MIB)
            os.write(ready_end, b"+")
            select.select([], [], [])
            os._exit(len(held) & 1)
        children.append(pid)
    os.close(ready_end)
    got = 0
    while got < 8 and select.select([ready], [], [], 3)[0] and os.read(ready, 1):
        got += 1
    for pid in children:
        os.kill(pid, 9)
    dead = sum(os.waitpid(pid, 0)[1] == 9 for pid in children)
    need(got == 8, f"{got} of 8 got it ({dead} died)")
    return "384 MiB"


@attack
def take_memory_that_is_nobodys(targets: dict[str, Any]) -> object:
    bombs = [os.memfd_create("bomb") for _ in range(48)]
    return sum(os.write(bomb, bytes(8 * MIB)) for bomb in bombs)


@attack
def take_memory_that_is_shared(targets: dict[str, Any]) -> object:
    return mapped(mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)


@attack
def take_memory_of_a_device(targets: dict[str, Any]) -> object:
    return mapped(mmap.MAP_SHARED, os.open("/dev/zero", os.O_RDWR))


@attack
def take_memory_as_a_stack(targets: dict[str, Any]) -> object:
    return mapped(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100)  # MAP_GROWSDOWN


def mapped(flags: int, file: int = -1) -> str:
    maps = []
    for _ in range(6):
        maps.append(mmap.mmap(file, 64 * MIB, flags))
        for page in range(0, 64 * MIB, mmap.PAGESIZE):
            maps[-1][page] = 1
    return f"{len(maps) * 64} MiB"


@attack
def take_memory_in_segments(targets: dict[str, Any]) -> object:
    libc.shmat.restype = ctypes.c_void_p
    for _ in range(6):
        segment = call(29, 194, 0, 64 * MIB, 0o1600)
        place = libc.shmat(segment, None, 0)
        libc.shmctl(segment, 0, None)  # it goes with us
        ctypes.memset(place, 1, 64 * MIB)
    return "384 MiB"


@attack
def fill_the_temporary_folder(targets: dict[str, Any]) -> object:
    return fill("/tmp", 96)


@attack
def fill_the_shared_memory(targets: dict[str, Any]) -> object:
    return fill("/dev/shm", 32)


def fill(folder: str, size: int) -> str:
    """Many small files: the largest file has a bound of its own."""
    paths = []
    try:
        for number in range(size // 4):
            paths.append(f"{folder}/toolpost-probe-{os.getpid()}-{number}")
            with open(paths[-1], "xb") as file:
                file.write(bytes(4 * MIB))
    finally:
        for path in paths:
            if os.path.exists(path):
                os.unlink(path)
    return f"{size} MiB"


@attack
def limit_another_process(targets: dict[str, Any]) -> object:
    """To what it was."""
    limits = resource.prlimit(targets["victim"], resource.RLIMIT_NOFILE)
    return resource.prlimit(targets["victim"], resource.RLIMIT_NOFILE, limits)


@attack
def slow_another_process_down(targets: dict[str, Any]) -> object:
    os.setpriority(os.PRIO_PROCESS, targets["victim"], 19)
    return os.getpriority(os.PRIO_PROCESS, targets["victim"])


@attack
def look_at_shared_memory_by_its_number(targets: dict[str, Any]) -> object:
    about = ctypes.create_string_buffer(256)
    call(31, 195, targets["shared_memory_id"], 2, about)
    (key,) = struct.unpack_from("i", about)  # what is inside has numbers of its own
    need(key == targets["shared_memory"], "it is another")
    return key


@attack
def write_a_huge_file(targets: dict[str, Any]) -> object:
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("huge", "wb") as file:
        file.truncate(64 * MIB)
    return os.stat("huge").st_size


@attack
def open_files_without_end(targets: dict[str, Any]) -> object:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(1536)]
    return len(opened)


@attack
def dump_core(targets: dict[str, Any]) -> object:
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (MIB, MIB))
    except ValueError as error:
        raise Blocked(str(error)) from None
    return resource.getrlimit(resource.RLIMIT_CORE)


@attack
def lock_memory(targets: dict[str, Any]) -> object:
    size = 32 * MIB
    area = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    need(libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)) == 0, "refused")
    return size


def main(names: str, targets: str) -> None:
    """Each in a process of its own: some change what they run in."""
    for name in names.split(","):
        said, said_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(said_end, 1)
            os.close(said)
            os.close(said_end)
            run(name, json.loads(targets))
            os._exit(0)
        os.close(said_end)
        with open(said, errors="replace") as answer:
            text = answer.read()
        _, status = os.waitpid(pid, 0)
        print(name, text.strip() or f"ended: {os.waitstatus_to_exitcode(status)}", flush=True)


def run(name: str, targets: dict[str, Any]) -> None:
    try:
        got = ATTACKS[name](targets)
    except (OSError, Blocked) as error:
        print("blocked:", error, flush=True)
    else:
        print("escaped:", str(got)[:200], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
