"""The filter decides as it should on both processors; it is interpreted here, call by call."""

from __future__ import annotations

import errno
import struct

import pytest

from toolpost.sandbox.seccomp import ALLOW, KILL, build

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# name: numbers on the two
NUMBERS = {
    "read": (0, 63),
    "clone": (56, 220),
    "clone3": (435, 435),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "ptrace": (101, 117),
    "mount": (165, 40),
    "unshare": (272, 97),
    "openat": (257, 56),
    "fchmodat": (268, 53),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "io_uring_setup": (425, 425),
    "memfd_create": (319, 279),
    "mmap": (9, 222),
    "msgget": (68, 186),
    "semget": (64, 190),
    "shmget": (29, 194),
    "personality": (135, 92),
    "from_the_future": (600, 600),
}
REFUSED = {number: 0x50000 | number for number in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT)}
EPERM, ENOSYS = REFUSED[errno.EPERM], REFUSED[errno.ENOSYS]


def decided(program: bytes, number: int, arch: int, arguments: tuple[int, ...] = ()) -> int:
    """Run the filter as the kernel does."""
    data = struct.pack("=iIQ6Q", number, arch, 0, *(*arguments, *(0,) * 6)[:6])
    steps = list(struct.iter_unpack("=HBBI", program))
    at, value = 0, 0
    while True:
        code, yes, no, constant = steps[at]
        at += 1
        if code == 0x06:
            return constant
        elif code == 0x20:
            (value,) = struct.unpack_from("=I", data, constant)
        elif code == 0x54:
            value &= constant
        else:
            holds = {
                0x15: value == constant,
                0x35: value >= constant,
                0x45: bool(value & constant),
            }[code]
            at += yes if holds else no


@pytest.mark.parametrize("machine", ARCH)
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("read", (), ALLOW),
        ("clone", (0x00010F00,), ALLOW),  # a thread
        ("clone", (0x11,), ALLOW),  # a fork
        ("clone", (0x10000011,), EPERM),
        ("clone", (0x00020011,), EPERM),
        ("clone3", (), ENOSYS),
        ("socket", (1, 1), ALLOW),
        ("socket", (2, 1 | 0o2000000), ALLOW),
        ("socket", (10, 2), ALLOW),
        ("socket", (2, 3), EPERM),
        ("socket", (2, 3 | 0o2000000), EPERM),
        ("socket", (16, 3), REFUSED[errno.EAFNOSUPPORT]),
        ("socket", (17, 3), REFUSED[errno.EAFNOSUPPORT]),
        ("socket", (40, 1), REFUSED[errno.EAFNOSUPPORT]),
        ("socketpair", (1, 1), ALLOW),
        ("ptrace", (), EPERM),
        ("mount", (), EPERM),
        ("unshare", (), EPERM),
        ("openat", (0, 0, 0o100, 0o644), ALLOW),
        ("openat", (0, 0, 0o100, 0o4755), EPERM),
        ("openat", (0, 0, 0, 0o4755), ALLOW),  # it creates nothing: the mode means nothing
        ("openat", (0, 0, 0o20200000, 0o4755), EPERM),
        ("fchmodat", (0, 0, 0o755), ALLOW),
        ("fchmodat", (0, 0, 0o2755), EPERM),
        ("ioctl", (0, 0x5413), ALLOW),
        ("ioctl", (0, 0x5412), EPERM),
        ("ioctl", (0, 0xFFFFFFFF_00005412), EPERM),
        ("fcntl", (0, 1030), ALLOW),  # another number for a descriptor
        ("fcntl", (0, 1024), EPERM),  # a lease
        ("fcntl", (0, 0xFFFFFFFF_00000400), EPERM),
        ("fcntl", (0, 1040), EPERM),  # a delegation
        ("io_uring_setup", (), ENOSYS),
        ("memfd_create", (), ALLOW),
        ("mmap", (0, 4096, 3, 0x21), ALLOW),
        ("shmget", (), ALLOW),
        ("personality", (0xFFFFFFFF,), ALLOW),
        ("personality", (0x0040000,), EPERM),
        ("from_the_future", (), ENOSYS),
    ],
)
def test_a_call_is_decided_by_its_number_and_its_arguments(
    machine: str, name: str, arguments: tuple[int, ...], expected: int
) -> None:
    program = build(machine=machine)
    assert program is not None
    number = NUMBERS[name][machine == "aarch64"]
    assert decided(program, number, ARCH[machine], arguments) == expected


@pytest.mark.parametrize("machine", ARCH)
def test_without_namespaces_no_socket_and_nothing_shared_is_left(machine: str) -> None:
    program = build(machine=machine, apart=False, shared_memory=False)
    assert program is not None
    column = int(machine == "aarch64")
    for name in ("socket", "shmget"):
        assert decided(program, NUMBERS[name][column], ARCH[machine], (1, 1)) == EPERM
    assert decided(program, NUMBERS["memfd_create"][column], ARCH[machine]) == ENOSYS
    assert decided(program, NUMBERS["socketpair"][column], ARCH[machine], (1, 1)) == ALLOW


@pytest.mark.req("FM-9")
@pytest.mark.parametrize("machine", ARCH)
@pytest.mark.parametrize(
    ("name", "flags", "expected"),
    [
        ("mmap", 0x22, ALLOW),  # private, of no file
        ("mmap", 0x01, ALLOW),  # shared, of a file
        ("mmap", 0x02, ALLOW),
        ("mmap", 0x20022, ALLOW),  # for the stack of a thread
        ("mmap", 0x21, 0x50000 | errno.ENOMEM),
        ("mmap", 0x23, 0x50000 | errno.ENOMEM),
        ("mmap", 0x8021, 0x50000 | errno.ENOMEM),
        ("mmap", 0x122, 0x50000 | errno.ENOMEM),
        ("memfd_create", 0, ENOSYS),
        ("msgget", 0, ENOSYS),
        ("semget", 0, ENOSYS),
        ("shmget", 0, ENOSYS),
    ],
)
def test_without_a_cgroup_there_is_no_memory_that_counts_for_nobody(
    machine: str, name: str, flags: int, expected: int
) -> None:
    program = build(machine=machine, shared_memory=False)
    assert program is not None
    number = NUMBERS[name][machine == "aarch64"]
    assert decided(program, number, ARCH[machine], (0, 0, 0, flags)) == expected


def test_calls_by_another_architectures_numbers_end_the_program() -> None:
    program = build(machine="x86_64")
    assert program is not None
    assert decided(program, 0, 0x40000003) == KILL
    assert decided(program, 0x40000000, ARCH["x86_64"]) == KILL


def test_a_processor_whose_numbers_are_not_known_gets_no_filter() -> None:
    assert build(machine="s390x") is None
