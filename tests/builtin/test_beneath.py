"""Files beneath a folder: whatever a path says, and whoever changes links meanwhile."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builtin.swapping import swapping
from toolpost import beneath

ESCAPES = (
    "..",
    "../secret",
    "inner/../../secret",
    "./../secret",
    "inner/../inner/../../secret",
    "/etc/passwd",
    "//etc/passwd",
    "/",
    "absolute/passwd",
    "up/secret",
    "chain/secret",
    "proc/self/root/etc/passwd",
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    top = tmp_path / "root"
    (top / "inner").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (top / "inner/file").write_text("inside")
    (top / "link").symlink_to("inner/file")
    (top / "absolute").symlink_to("/etc")
    (top / "up").symlink_to("..")
    (top / "chain").symlink_to("inner/../up")
    (top / "proc").symlink_to("/proc")
    fd = beneath.root(str(top))
    yield fd
    os.close(fd)


def content(folder: int, path: str) -> bytes:
    fd = beneath.regular(folder, path)
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


@pytest.mark.req("NA-8")
@pytest.mark.parametrize("path", ESCAPES)
def test_a_path_that_leads_out_is_refused_by_the_kernel(folder: int, path: str) -> None:
    with pytest.raises(PermissionError, match="leads out of its folder"):
        beneath.opened(folder, path, os.O_PATH)
    with pytest.raises(PermissionError):
        beneath.parent(folder, f"{path}/new", make=True)


@pytest.mark.parametrize("path", ["inner/file", "./inner/file", "inner/../inner/file", "link"])
def test_a_path_that_stays_inside_is_opened_and_links_inside_are_followed(
    folder: int, path: str
) -> None:
    assert content(folder, path) == b"inside"


def test_a_descriptor_of_ours_cannot_be_reached_through_the_kernel_s_links(tmp_path: Path) -> None:
    """A magic link leads beneath nothing: not even where /proc itself is the folder."""
    fd = beneath.root("/proc/self")
    try:
        with pytest.raises(OSError) as refused:
            beneath.opened(fd, "root/etc/passwd", os.O_PATH)
        assert refused.value.errno in (errno.ELOOP, errno.EXDEV)
    finally:
        os.close(fd)


@pytest.mark.parametrize("path", ["\0", "inner\0file", "inner/file\0.txt"])
def test_a_nul_is_no_part_of_a_path(folder: int, path: str) -> None:
    with pytest.raises(OSError, match="NUL"):
        beneath.regular(folder, path)


def test_half_a_character_is_the_name_of_nothing(folder: int) -> None:
    with pytest.raises(FileNotFoundError):
        beneath.regular(folder, "\ud800")


@pytest.mark.parametrize("name", ["fifo", "socket", "device"])
def test_what_is_no_file_is_refused_before_it_is_opened(
    tmp_path: Path, folder: int, name: str
) -> None:
    place = tmp_path / "root" / name
    if name == "fifo":
        os.mkfifo(place)
    elif name == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(place))
    else:
        try:
            os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("only the system's owner makes devices")
    with pytest.raises(PermissionError, match="is not a regular file"):
        beneath.regular(folder, name)


def test_what_toolpost_keeps_is_nobody_s_file(tmp_path: Path, folder: int) -> None:
    kept = tmp_path / "root/.toolpost"
    kept.mkdir()
    (kept / "store.db").write_text("x")
    (tmp_path / "root/innocent").symlink_to(".toolpost/store.db")
    for path in (".toolpost/store.db", "innocent", "inner/../.toolpost/store.db"):
        with pytest.raises(PermissionError, match="belongs to toolpost itself"):
            beneath.regular(folder, path)
    assert [e.name for e in beneath.walk(folder, most=100) if "store" in e.name] == []


def test_a_file_is_replaced_whole_and_keeps_its_permissions(tmp_path: Path, folder: int) -> None:
    file = tmp_path / "root/inner/file"
    file.chmod(0o640)
    reader = file.open("rb")
    where, name = beneath.parent(folder, "inner/file")
    beneath.replace(where, name, b"new", like=file.stat())
    os.close(where)
    with reader:
        assert reader.read() == b"inside", "who has it open sees the old one"
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [f.name for f in file.parent.iterdir()] == ["file"]


def test_a_file_system_without_nameless_files_gets_one_with_a_name(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # which is what an old kernel sees of it
    where, name = beneath.parent(folder, "inner/other")
    beneath.replace(where, name, b"new", like=None)
    with pytest.raises(IsADirectoryError):
        beneath.replace(folder, "inner", b"new", like=None)
    os.close(where)
    assert (tmp_path / "root/inner/other").read_bytes() == b"new"
    assert {f.name for f in (tmp_path / "root/inner").iterdir()} == {"file", "other"}
    assert not list((tmp_path / "root").glob(".*.part")), "what fails leaves nothing behind"


def test_folders_are_made_as_needed_and_only_inside(tmp_path: Path, folder: int) -> None:
    where, name = beneath.parent(folder, "a/./b/c/file", make=True)
    os.close(where)
    assert name == "file"
    assert (tmp_path / "root/a/b/c").is_dir()
    with pytest.raises(FileNotFoundError):
        beneath.parent(folder, "x/../../y/file", make=True)
    assert not (tmp_path / "y").exists()


def test_a_walk_tells_links_and_follows_none(folder: int) -> None:
    found = {entry.name: entry for entry in beneath.walk(folder, most=100)}
    assert {name: entry.kind for name, entry in found.items()} == {
        "absolute": "symlink",
        "chain": "symlink",
        "inner": "directory",
        "inner/file": "file",
        "link": "symlink",
        "proc": "symlink",
        "up": "symlink",
    }
    assert (found["absolute"].target, found["inner/file"].size) == ("/etc", 6)


def test_a_very_deep_tree_is_walked_as_far_as_paths_go(tmp_path: Path, folder: int) -> None:
    inside = os.open(tmp_path / "root/inner", os.O_RDONLY)
    for _ in range(40):  # deeper than a path can say
        os.mkdir("d" * 200, dir_fd=inside)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=inside)
        os.close(inside)
        inside = below
    os.close(inside)
    count = sum(1 for _ in beneath.walk(folder, most=100))
    subprocess.run(["rm", "-r", tmp_path / "root/inner"], check=True)  # pytest could not
    assert 15 < count < 30


@pytest.mark.req("NA-8")
def test_no_swap_of_links_lets_anything_out(tmp_path: Path, folder: int) -> None:
    """Attack 22: a thread turns a folder into a link that leads out, and back, all the time."""
    top, outside = tmp_path / "root", tmp_path / "outside"
    (top / "swapped").mkdir()
    outside.mkdir()
    (top / "swapped/name").write_text("inside")
    (outside / "name").write_text("SECRET")
    (top / "to_swap").symlink_to(outside)
    seen: set[bytes] = set()
    refused = 0
    with swapping(top / "swapped", top / "to_swap"):
        for _ in range(4_000):
            try:
                seen.add(content(folder, "swapped/name"))
            except PermissionError:
                refused += 1
            try:
                where, name = beneath.parent(folder, "swapped/written", make=True)
            except PermissionError:
                continue
            try:
                beneath.replace(where, name, b"x", like=None)
            finally:
                os.close(where)
    assert seen == {b"inside"}, "nothing of outside was ever read"
    assert refused > 0, "the race was run"
    assert [f.name for f in outside.iterdir()] == ["name"], "nothing was ever written there"


_WITHOUT = """
import ctypes, os, struct, sys
from toolpost import MissingPart, beneath
from toolpost.builtin.files import Settings, tools
from pathlib import Path
root = beneath.root(sys.argv[1])
# load the number of the call; if it is 437, say that there is none such; else let it be
refuse, allow = 0x00050000 | int(sys.argv[2]), 0x7FFF0000
program = b"".join(
    struct.pack("HBBI", *one)
    for one in ((0x20, 0, 0, 0), (0x15, 0, 1, 437), (6, 0, 0, refuse), (6, 0, 0, allow))
)
buffer = ctypes.create_string_buffer(program)
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, filter) == 0, ctypes.get_errno()
try:
    beneath.opened(root, ".", os.O_PATH)
except MissingPart as missing:
    print(missing)
try:
    tools(Settings(), Path(sys.argv[1]))
except MissingPart as missing:
    print(missing)
"""


@pytest.mark.parametrize("said", [errno.ENOSYS, errno.EPERM])
def test_a_kernel_that_cannot_or_may_not_do_it_means_that_nothing_is_opened(
    tmp_path: Path, said: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, str(tmp_path), str(said)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("has no openat2 (Linux 5.6 has), or forbids it") == 2
