"""The file tools: what they give back, what they refuse, and that nothing gets out of the roots."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from tests.builtin.swapping import swapping
from toolpost import (
    ConfigError,
    Executor,
    FunctionTool,
    Registry,
    ResourceLimit,
    Result,
    Runtime,
)
from toolpost.builtin import decoding
from toolpost.builtin.files import Settings, reading, searching, tools, usage, writing
from toolpost.builtin.files.ranging import of_bytes
from toolpost.builtin.files.settings import prepared
from toolpost.builtin.filesystem import tools as filesystem_tools

pytestmark = pytest.mark.anyio
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)


class Call(Protocol):
    async def __call__(self, tool: str, **arguments: Any) -> Result: ...


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What the examples of the specs are about."""
    top = tmp_path / "workspace"
    top.mkdir()
    (top / "notes.txt").write_text("milk\nbread\nTODO eggs\n")
    (top / "data.bin").write_bytes(bytes(range(256)))
    (top / "old.txt").write_text("old")
    return top


def made(base: Path, **settings: Any) -> list[FunctionTool]:
    return [*tools(Settings(**settings), base), *filesystem_tools(Settings(**settings), base)]


@pytest.fixture
async def call(root: Path) -> AsyncIterator[Call]:
    (root.parent / "logs").mkdir()
    (root.parent / "logs/app.log").write_text("started\nfailed\n")
    settings = {"read": ("logs",), "file_size": 100_000, "total_size": 300_000}
    async with Executor(Registry(made(root.parent, **settings))) as executor:

        async def run(tool: str, **arguments: Any) -> Result:
            return await executor.execute(tool, arguments)

        yield run


def message(result: Result) -> str:
    assert result.error is not None, result.output
    assert result.error.code != "INTERNAL_ERROR"
    return result.error.message


def reaching(base: Path, name: str) -> FunctionTool:
    return next(one for one in made(base) if one.spec.name == name)


@pytest.mark.req("AF-2")
async def test_a_file_that_was_written_is_read_with_its_size(call: Call, root: Path) -> None:
    written = await call("write_file", path="a/b/c.txt", content="über\n")
    assert written.output == {"bytesWritten": 6, "created": True}
    assert (root / "a/b/c.txt").read_text() == "über\n"
    read = await call("read_file", path="a/b/c.txt")
    assert read.output == {
        "content": "über\n",
        "size": 6,
        "encoding": "utf-8",
        "truncated": False,
    }


@pytest.mark.req("AF-2")
async def test_a_directory_is_listed_with_types_and_sizes(call: Call, root: Path) -> None:
    (root / "sub").mkdir()
    (root / "sub/deep.txt").write_text("12345")
    (root / "out").symlink_to("/etc")
    listed = await call("list_directory", path=".")
    assert listed.output["entries"] == [
        {"name": "data.bin", "type": "file", "size": 256},
        {"name": "notes.txt", "type": "file", "size": 21},
        {"name": "old.txt", "type": "file", "size": 3},
        {"name": "out", "type": "symlink", "size": 4, "target": "/etc"},
        {"name": "sub", "type": "directory", "size": 0},
    ]
    deep = await call("list_directory", path=".", recursive=True, pattern="*.txt")
    assert [e["name"] for e in deep.output["entries"]] == ["notes.txt", "old.txt", "sub/deep.txt"]
    by_path = await call("list_directory", recursive=True, pattern="sub/*")
    assert [e["name"] for e in by_path.output["entries"]] == ["sub/deep.txt"]
    some = await call("list_directory", limit=2)
    assert (len(some.output["entries"]), some.output["truncated"]) == (2, True)


@pytest.mark.req("AF-2")
async def test_what_is_missing_or_forbidden_is_said_in_the_documented_words(call: Call) -> None:
    assert message(await call("read_file", path="nothing.txt")) == "File not found: nothing.txt"
    denied = await call("read_file", path="/etc/passwd")
    assert message(denied).startswith("Permission denied: /etc/passwd")
    assert message(denied).endswith("folders that may be used: workspace, logs")
    assert denied.error.remedy == "fix_args"
    file = ". A file stands where a directory is meant"
    inside = await call("read_file", path="notes.txt/x")
    assert message(inside) == f"File not found: notes.txt/x{file}"
    assert message(await call("list_directory", path="notes.txt")).endswith(f"notes.txt{file}")
    assert message(await call("read_file", path=".")) == "Is a directory: ."
    assert message(await call("delete_file", path="nothing")) == "File not found: nothing"
    assert message(await call("list_directory", path="x")) == "File not found: x"


_AS_SOMEBODY = """
import os, tempfile
from pathlib import Path
from toolpost import ToolFailed
from toolpost.builtin.files.reading import read_file
from toolpost.builtin.files.settings import Settings, prepared
from toolpost.builtin.files.writing import write_file
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
with tempfile.TemporaryDirectory() as base:
    files = prepared(Settings(), Path(base))
    write_file("a", "x", files=files)
    for mode, run, words in ((0, read_file, ["a"]), (0o400, write_file, ["a", "y"])):
        (Path(base) / "workspace/a").chmod(mode)
        try:
            run(*words, files=files)
        except ToolFailed as failed:
            print(failed)
"""


@pytest.mark.req("AF-2")
def test_the_permissions_of_files_count() -> None:
    """As somebody to whom something can be forbidden."""
    done = subprocess.run(
        [sys.executable, "-c", _AS_SOMEBODY], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == [
        "Permission denied: a",
        "Permission denied: a. It is write-protected",
    ], done.stderr


TRAVERSALS = (
    "../secret",
    "../../etc/passwd",
    "..%2f..%2fetc/passwd",
    "....//....//etc/passwd",
    "..\\..\\etc\\passwd",
    "/etc/passwd",
    "//etc/passwd",
    "/etc/../etc/passwd",
    "workspace/../../secret",
    "./workspace/../../secret",
    "~/.ssh/id_rsa",
    "file:///etc/passwd",
    "/proc/self/environ",
    "/proc/self/root/etc/passwd",
    "/dev/fd/0",
    "link/secret",
    "chain/secret",
    "loop/x",
    "notes.txt/../../secret",
    "\u2025/\u2025/etc/passwd",
    "．．/secret",
    "..\u200b/secret",
    "../" * 500 + "etc/passwd",
    "a/" * 200 + "x",
    "x" * 4000,
    "secret\n",
    "\x1b[2J../secret",
    "",
    ".",
    "..",
    " ",
    "\t../secret",
    "nul\0/../../secret",
    "CON",
    "logs/../secret",
    "logs/../../etc/passwd",
    "workspace",
    "workspacex/../secret",
    "workspace/.toolpost/store.db",
    "hard/../../secret",
)


@pytest.mark.req("NA-8", "NA-10")
async def test_attack_no_spelling_of_a_path_leads_out(call: Call, root: Path) -> None:
    """Attack 22: every tool, every payload; never an internal error, never a byte of outside."""
    (root.parent / "secret").write_text("TOP SECRET")
    (root / "link").symlink_to("..")
    (root / "chain").symlink_to("link")
    (root / "loop").symlink_to("loop")
    (root / ".toolpost").mkdir()
    (root / ".toolpost/store.db").write_text("TOP SECRET")
    before = {f: f.read_text() for f in root.parent.iterdir() if f.is_file()}
    for path in TRAVERSALS:
        attempts = [
            await call("read_file", path=path),
            await call("list_directory", path=path),
            await call("search_files", pattern="SECRET", path=path),
            await call("filesystem", action="read", path=path),
            await call("edit_file", path=path, old_text="TOP", new_text="NO"),
            await call("write_file", path=f"{path}/planted", content="x"),
            await call("write_file", path=path, content="PLANTED"),
            await call("delete_file", path=path),
        ]
        for result in attempts:
            if result.error is not None:
                assert result.error.code in ("EXECUTION_ERROR", "VALIDATION_ERROR"), (path, result)
                assert all(c.isprintable() for c in result.error.message)
            else:
                assert "TOP SECRET" not in str(result.output), path
        assert {f: f.read_text() for f in root.parent.iterdir() if f.is_file()} == before, path
        assert (root / ".toolpost/store.db").read_text() == "TOP SECRET", path


async def test_attack_a_thread_that_swaps_links_gets_nothing_out(call: Call, root: Path) -> None:
    """Attack 22 on the tools: between a look and a use there is no moment to be used."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "name").write_text("TOP SECRET")
    (root / "place").mkdir()
    (root / "place/name").write_text("inside")
    (root / "swapped").symlink_to(outside)
    outcomes = {"read": 0, "refused": 0}
    with swapping(root / "place", root / "swapped"):
        for number in range(200):
            results = await asyncio.gather(
                call("read_file", path="place/name"),
                call("search_files", pattern="SECRET", path="place"),
                call("list_directory", path="place"),
                call("write_file", path="place/planted", content=str(number)),
                call("delete_file", path="place/planted"),
            )
            for result in results:
                assert "TOP SECRET" not in str(result.output)
                assert result.error is None or result.error.code == "EXECUTION_ERROR"
            outcomes["read" if results[0].success else "refused"] += 1
    assert all(outcomes.values()), "the race was run"
    assert [f.name for f in outside.iterdir()] == ["name"]
    assert (outside / "name").read_text() == "TOP SECRET"


async def test_pipes_and_devices_make_nobody_wait(call: Call, root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert "is not a regular file" in message(await call("read_file", path="pipe"))
    assert "is not a regular file" in message(await call("write_file", path="pipe", content="x"))
    found = await call("search_files", pattern=".", path=".")
    assert "pipe" not in {match["path"] for match in found.output["matches"]}
    listed = await call("list_directory")
    assert {"name": "pipe", "type": "other", "size": 0} in listed.output["entries"]


async def test_odd_names_are_shown_as_they_are_and_bytes_by_their_codes(
    call: Call, root: Path
) -> None:
    (root / "two\nlines \x1b[31m").write_text("odd")
    (root / os.fsdecode(b"bytes\xff")).write_text("odd")
    listed = await call("list_directory")
    names = {entry["name"] for entry in listed.output["entries"]}
    assert {"two\nlines \x1b[31m", "bytes\\xff"} < names
    assert (await call("read_file", path="two\nlines \x1b[31m")).output["content"] == "odd"
    found = await call("search_files", pattern="odd", literal=True)
    assert {match["path"] for match in found.output["matches"]} == {
        "two\nlines \x1b[31m",
        "bytes\\xff",
    }


async def test_several_folders_are_told_apart_by_their_names(call: Call, root: Path) -> None:
    for path in ("logs/app.log", "./logs/app.log", str(root.parent / "logs/app.log")):
        assert (await call("read_file", path=path)).output["content"] == "started\nfailed\n"
    for path in ("notes.txt", "workspace/notes.txt", "./workspace/notes.txt"):
        assert (await call("read_file", path=path)).output["size"] == 21
    found = await call("search_files", pattern="fail", path="logs")
    assert found.output["matches"] == [{"path": "logs/app.log", "line": 2, "text": "failed"}]
    for tool, more in (("write_file", {"content": "x"}), ("delete_file", {})):
        denied = message(await call(tool, path="logs/app.log", **more))
        assert denied == "Permission denied: logs/app.log. It can be read only"
    description = reaching(root.parent, "read_file").spec.description
    assert description.endswith("Paths start in workspace.")


async def test_a_file_is_read_line_by_line_and_goes_on_where_it_stopped(
    call: Call, root: Path
) -> None:
    (root / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 100_001)))
    content, at = "", 1
    while True:
        part = await call("read_file", path="long.txt", start_line=at)
        content += part.output["content"]
        if not part.output["truncated"]:
            break
        at = part.output["next_line"]
    assert content == (root / "long.txt").read_text()
    some = await call("read_file", path="long.txt", start_line=99_999, lines=1)
    assert (some.output["content"], some.output["next_line"]) == ("line 99999\n", 100_000)
    past = await call("read_file", path="long.txt", start_line=10**20)
    assert (past.output["content"], past.output["truncated"]) == ("", False)
    both = await call("read_file", path="long.txt", start_line=1, offset=3)
    assert message(both) == "Ask for lines or for bytes, not for both"


async def test_a_huge_file_is_read_in_pieces_without_being_held(call: Call, root: Path) -> None:
    with (root / "huge").open("wb") as file:
        file.truncate(1 << 40)  # a terabyte with nothing in it
    read = await call("read_file", path="huge", offset=1 << 39, length=100)
    assert (read.output["size"], read.output["next_offset"]) == (1 << 40, (1 << 39) + 100)
    start = await call("read_file", path="huge")
    assert (start.output["encoding"], start.output["truncated"]) == ("base64", True)
    no_text = await call("read_file", path="huge", start_line=1)
    assert message(no_text) == "huge is no text: ask for bytes"
    one_line = root / "one_line"
    one_line.write_text("x" * 1_000_000)
    part = await call("read_file", path="one_line", start_line=1)
    assert (len(part.output["content"]), part.output["next_offset"]) == (250_000, 250_000)


WRITTEN = (
    (b"", "", "utf-8"),
    (b"plain", "plain", "utf-8"),
    ("über".encode(), "über", "utf-8"),
    ("über".encode("utf-8-sig"), "über", "utf-8"),
    ("über €".encode("cp1252"), "über €", "cp1252"),
    ("\x81 ü".encode("latin-1"), "\x81 ü", "latin-1"),
    ("wide text".encode("utf-16"), "wide text", "utf-16-le"),
    (b"\xfe\xff" + "wide text".encode("utf-16-be"), "wide text", "utf-16-be"),
    ("no mark here".encode("utf-16-le"), "no mark here", "utf-16-le"),
    ("no mark here".encode("utf-16-be"), "no mark here", "utf-16-be"),
    ("wide".encode("utf-32"), "wide", "utf-32-le"),
    (b"\x1b[31mred\x1b[0m\r\n", "\x1b[31mred\x1b[0m\r\n", "utf-8"),
    (b"\x7fELF\x02\x01", "f0VMRgIB", "base64"),
    (b"a\0b", "YQBi", "base64"),
    (b"\xff\xfe\x00", "\ufffd", "utf-16-le"),
)


async def test_what_a_file_is_written_in_is_found_out(call: Call, root: Path) -> None:
    for data, content, encoding in WRITTEN:
        (root / "file").write_bytes(data)
        read = await call("read_file", path="file")
        assert (read.output["content"], read.output["encoding"]) == (content, encoding)
        assert read.output["size"] == len(data)


async def test_an_encoding_that_is_named_is_used_and_a_wrong_one_is_refused(
    call: Call, root: Path
) -> None:
    (root / "file").write_bytes("日本".encode("shift_jis"))
    read = await call("read_file", path="file", encoding="Shift-JIS")
    assert (read.output["content"], read.output["encoding"]) == ("日本", "shift_jis")
    raw = await call("read_file", path="notes.txt", encoding="base64", length=4)
    assert base64.b64decode(raw.output["content"]) == b"milk"
    for wrong in ("klingon", "punycode", "idna", "zlib", "rot13", "undefined", "utf-7", "a\0b"):
        assert "/encoding" in message(await call("read_file", path="notes.txt", encoding=wrong))


async def test_a_picture_is_a_part_of_the_result(call: Call, root: Path) -> None:
    (root / "dot.png").write_bytes(PNG)
    read = await call("read_file", path="dot.png")
    assert read.output == {
        "content": "",
        "size": len(PNG),
        "encoding": "image/png",
        "truncated": False,
    }
    (part,) = read.parts
    assert (part.data, part.mime) == (PNG, "image/png")
    as_bytes = await call("read_file", path="dot.png", encoding="base64")
    assert base64.b64decode(as_bytes.output["content"]) == PNG


@hypothesis_given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cc",)), max_size=60),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
    st.integers(1, 9),
)
def test_pieces_of_any_size_make_up_the_whole_text(text: str, name: str, size: int) -> None:
    data = text.encode(name)
    how = decoding.named(name, data)
    fd = os.memfd_create("text")
    try:
        os.write(fd, data)
        found, at = "", 0
        while True:
            part = of_bytes(fd, how, offset=at, most=size)
            found += part["content"]
            if not part["truncated"]:
                break
            assert part["next_offset"] > at
            at = part["next_offset"]
    finally:
        os.close(fd)
    assert found == text


@hypothesis_given(st.binary(max_size=200))
def test_any_bytes_are_something(data: bytes) -> None:
    how = decoding.encoding(data, whole=True)
    if how is not None:
        decoding.piece(data[len(how.mark) :], how, whole=True)


async def test_binary_is_written_as_base64(call: Call, root: Path) -> None:
    written = await call("write_file", path="dot.png", content=_b64(PNG), encoding="base64")
    assert written.output["bytesWritten"] == len(PNG)
    assert (root / "dot.png").read_bytes() == PNG
    wrong = await call("write_file", path="dot.png", content="%%%", encoding="base64")
    assert message(wrong) == "/content: is not base64"
    assert (root / "dot.png").read_bytes() == PNG


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def test_a_file_that_is_there_can_be_kept(call: Call, root: Path) -> None:
    kept = await call("write_file", path="old.txt", content="new", overwrite=False)
    assert message(kept) == "There is a file already: old.txt"
    assert (root / "old.txt").read_text() == "old"
    again = await call("write_file", path="old.txt", content="new")
    assert again.output == {"bytesWritten": 3, "created": False}


async def test_a_link_is_not_written_through_and_is_deleted_itself(call: Call, root: Path) -> None:
    (root / "link").symlink_to("old.txt")
    (root / "out").symlink_to(root.parent / "elsewhere")
    for name in ("link", "out"):
        assert "is a link" in message(await call("write_file", path=name, content="x"))
    assert "is a link" in message(await call("edit_file", path="link", old_text="o", new_text="x"))
    assert (await call("delete_file", path="out")).output == {"deleted": True}
    assert (await call("delete_file", path="link")).output == {"deleted": True}
    assert (root / "old.txt").read_text() == "old"
    assert not (root.parent / "elsewhere").exists()


async def test_a_file_with_another_name_outside_is_not_changed_there(
    call: Call, root: Path
) -> None:
    """What is written is a new file in the place of the old: a hard link keeps what it had."""
    outside = root.parent / "twin"
    outside.write_text("mine")
    os.link(outside, root / "twin")
    await call("write_file", path="twin", content="theirs")
    assert (outside.read_text(), (root / "twin").read_text()) == ("mine", "theirs")


async def test_quotas_hold_for_one_file_and_for_all(call: Call, root: Path) -> None:
    big = await call("write_file", path="big", content="x" * 100_001)
    assert big.error.code == "RESOURCE_LIMIT"
    assert message(big) == "big has 100,001 bytes, and a file may have 100,000: write less"
    results = [await call("write_file", path=f"f{n}", content="x" * 90_000) for n in range(4)]
    assert [result.success for result in results] == [True, True, True, False]
    assert "all files together may have 300,000 bytes" in message(results[3])
    assert (await call("write_file", path="f0", content="y" * 90_000)).success, "in its place"
    grown = await call("edit_file", path="f0", old_text="y", new_text="z" * 9, replace_all=True)
    assert "and a file may have 100,000" in message(grown)
    await call("delete_file", path="f1")
    assert (await call("write_file", path="f3", content="x" * 90_000)).success


def test_what_others_put_into_a_root_counts_and_what_they_delete_makes_room(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is everybody's: here nothing counts as used but what is in the root."""

    def occupied(_: int) -> int:
        return sum(file.stat().st_size for file in root.rglob("*") if file.is_file())

    monkeypatch.setattr(usage, "_occupied", occupied)
    files = prepared(Settings(total_size=300_000), root.parent)

    def write(name: str) -> None:
        writing.write_file.function(path=name, content="x" * 90_000, files=files)

    write("mine")
    (root / "theirs").write_bytes(b"x" * 250_000)
    with pytest.raises(ResourceLimit, match="all files together may have 300,000 bytes"):
        write("more")
    (root / "theirs").unlink()
    monkeypatch.setattr(usage, "_PAUSE", 0)
    write("more")


async def test_a_write_that_fails_takes_no_room(call: Call, root: Path) -> None:
    for _ in range(5):
        kept = await call("write_file", path="old.txt", content="x" * 90_000, overwrite=False)
        assert "There is a file already" in message(kept)
    results = [await call("write_file", path=f"f{n}", content="x" * 90_000) for n in range(3)]
    assert [result.success for result in results] == [True, True, True]


@pytest.mark.parametrize("with_attributes", [True, False])
def test_a_write_looks_at_the_files_of_a_root_once_and_never_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_attributes: bool
) -> None:
    """Folders that are read are counted, not seconds. ``total_size`` is out of reach, so that what
    others write to this disk meanwhile does not matter.
    """
    if not with_attributes:

        def unsupported(*_: object) -> bytes:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

        monkeypatch.setattr(os, "getxattr", unsupported)
        monkeypatch.setattr(os, "setxattr", unsupported)
    top = tmp_path / "workspace"
    for folder in (top / f"d{n}" for n in range(20)):
        folder.mkdir(parents=True)
        for n in range(50):
            (folder / f"f{n}").touch()
    opened: list[object] = []
    scandir = os.scandir

    def counting(path: Any = ".") -> Any:
        opened.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counting)
    files = prepared(Settings(total_size=10**17), tmp_path)
    writing.write_file.function(path="first", content="x", files=files)
    assert len(opened) == 21, "each folder once"
    for n in range(10):
        writing.write_file.function(path=f"d{n}/next", content="x", files=files)
        writing.edit_file.function(path=f"d{n}/next", old_text="x", new_text="yy", files=files)
        writing.delete_file.function(path=f"d{n}/next", files=files)
    assert len(opened) == 21


async def test_folders_are_not_made_without_end(call: Call, root: Path) -> None:
    deep = await call("write_file", path="a/" * 101 + "x", content="x")
    assert message(deep).startswith("Nested too deeply: a/a/a/")
    assert not (root / "a").exists()
    assert (await call("write_file", path="a/" * 100 + "x", content="x")).success


async def test_quotas_hold_when_many_write_at_once(call: Call, root: Path) -> None:
    writes = [call("write_file", path=f"d{n}/f", content="x" * 50_000) for n in range(12)]
    results = await asyncio.gather(*writes)
    assert sum(result.success for result in results) == 5
    assert sum(f.stat().st_size for f in root.rglob("*") if f.is_file()) <= 300_000


async def test_an_edit_replaces_exactly_what_was_named(call: Call, root: Path) -> None:
    done = await call("edit_file", path="notes.txt", old_text="bread\n", new_text="rye\n")
    assert done.output == {"replacements": 1, "line": 2, "bytesWritten": 19}
    assert (root / "notes.txt").read_text() == "milk\nrye\nTODO eggs\n"


async def test_an_edit_that_is_not_clear_is_refused(call: Call, root: Path) -> None:
    unclear = await call("edit_file", path="notes.txt", old_text="e", new_text="x")
    assert "more than once (lines 2, 3, 3)" not in message(unclear)
    assert message(unclear) == (
        "The old text is in notes.txt more than once (lines 2, 3): give more of what is around it, "
        "or set replace_all"
    )
    (root / "aaa").write_text("aaa")
    overlapping = await call("edit_file", path="aaa", old_text="aa", new_text="b")
    assert "more than once (lines 1, 1)" in message(overlapping)
    missing = await call("edit_file", path="notes.txt", old_text="butter", new_text="x")
    assert message(missing).startswith("The old text is not in notes.txt: read the file")
    close = await call("edit_file", path="notes.txt", old_text="milk bread", new_text="x")
    assert "it is there with other spaces" in message(close)
    assert (root / "notes.txt").read_text() == "milk\nbread\nTODO eggs\n"
    every = await call("edit_file", path="notes.txt", old_text="e", new_text="E", replace_all=True)
    assert every.output["replacements"] == 2
    none = await call("edit_file", path="data.bin", old_text="x", new_text="y")
    assert message(none) == "data.bin is no text, so it cannot be edited"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
async def test_an_edit_keeps_the_encoding_and_the_line_ends(
    call: Call, root: Path, encoding: str
) -> None:
    (root / "file").write_bytes("eins\r\nzwölf\r\ndrei\r\n".encode(encoding))
    done = await call("edit_file", path="file", old_text="zwölf\ndrei", new_text="vier\nfünf")
    assert done.output["line"] == 2
    assert (root / "file").read_bytes() == "eins\r\nvier\r\nfünf\r\n".encode(encoding)


async def test_a_letter_that_an_encoding_does_not_have_is_named(call: Call, root: Path) -> None:
    (root / "file").write_bytes("zwölf".encode("cp1252"))
    wrong = await call("edit_file", path="file", old_text="ö", new_text="→")
    assert message(wrong).startswith("file is written in cp1252, which has no '→'")


async def test_edits_of_one_file_at_once_are_all_made(call: Call, root: Path) -> None:
    (root / "many").write_text("".join(f"<{n}>" for n in range(12)))
    edits = [
        call("edit_file", path="many", old_text=f"<{n}>", new_text=f"[{n}]") for n in range(12)
    ]
    assert all(result.success for result in await asyncio.gather(*edits))
    assert (root / "many").read_text() == "".join(f"[{n}]" for n in range(12))


async def test_lines_are_found_by_patterns(call: Call, root: Path) -> None:
    (root / "sub").mkdir()
    (root / "sub/wide.txt").write_bytes("Milk in UTF-16\n".encode("utf-16"))
    (root / "crlf.txt").write_bytes(b"first\r\nmilk$\r\n")
    found = await call("search_files", pattern="^milk", ignore_case=True)
    assert found.output == {
        "matches": [
            {"path": "crlf.txt", "line": 2, "text": "milk$"},
            {"path": "notes.txt", "line": 1, "text": "milk"},
            {"path": "sub/wide.txt", "line": 1, "text": "Milk in UTF-16"},
        ],
        "files": 5,
        "truncated": False,
    }
    literal = await call("search_files", pattern="K$", literal=True, ignore_case=True)
    assert [match["path"] for match in literal.output["matches"]] == ["crlf.txt"]
    included = await call("search_files", pattern="i", include="sub/*")
    assert [match["path"] for match in included.output["matches"]] == ["sub/wide.txt"]
    one = await call("search_files", pattern="TODO", path="notes.txt")
    assert one.output["matches"] == [{"path": "notes.txt", "line": 3, "text": "TODO eggs"}]
    few = await call("search_files", pattern=".", limit=2)
    assert (len(few.output["matches"]), few.output["truncated"]) == (2, True)
    nothing = await call("search_files", pattern="x", path="nothing")
    assert message(nothing) == "File not found: nothing"


async def test_attack_a_pattern_cannot_be_made_to_take_long(call: Call, root: Path) -> None:
    (root / "bait").write_text("a" * 30_000 + "!\n")
    for pattern in ("(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*)*x", "(a?){50}a{50}", "([a-z]+)*!"):
        async with asyncio.timeout(20):
            result = await call("search_files", pattern=pattern, path="bait")
        assert result.success, (pattern, result.error)


def test_attack_a_pattern_and_a_text_that_take_long_end_in_what_was_found(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is looked at before every line: one of full length may take seconds."""
    monkeypatch.setattr(searching, "_PATIENCE", 0.2)
    (root / "bait").write_text("ab$b\n" + ("a" * 4_000 + "\n") * 1_000)
    found = here(root, "search_files", pattern="(a{0,50}){50}(c|$b)|^ab", path="bait")
    assert [match["line"] for match in found["matches"]] == [1]
    assert found["truncated"]


def test_more_than_can_be_looked_at_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MOST_VISITED", 3)
    assert not here(root, "list_directory")["truncated"], "there are three"
    assert not here(root, "search_files", pattern="milk")["truncated"]
    (root / "zz.txt").write_text("milk\n")
    assert here(root, "list_directory", pattern="zz*") == {"entries": [], "truncated": True}
    assert here(root, "search_files", pattern="milk", include="zz*")["truncated"]


def test_a_file_that_cannot_be_read_does_not_end_a_search(root: Path) -> None:
    """Such as some of the kernel's own."""
    there = f"/proc/{os.getpid()}/attr"
    found = here(root, "search_files", pattern="x{20}", path=there, read=(there,))
    assert found["matches"] == []


def here(root: Path, name: str, *, read: tuple[str, ...] = (), **arguments: Any) -> Any:
    """What a tool gives back, called in this process."""
    files = prepared(Settings(read=read), root.parent)
    return reaching(root.parent, name).function(**arguments, files=files)


async def test_a_pattern_that_cannot_be_used_is_refused(call: Call) -> None:
    for pattern in ("(", "(?=x)", r"(a)\1", "x{1000}{1000}{1000}", "[", "(?<!x)y"):
        result = await call("search_files", pattern=pattern)
        assert result.error is not None, pattern
        assert (result.error.code, "/pattern" in message(result)) == ("VALIDATION_ERROR", True)


async def test_one_endless_line_is_searched_as_far_as_lines_go(call: Call, root: Path) -> None:
    """Attack 15: 60 MB in one line take no memory, and end."""
    with (root / "endless").open("wb") as file:
        for _ in range(60):
            file.write(b"x" * 1_000_000)
        file.write(b"\nneedle\n")
    found = await call("search_files", pattern="needle|^x", path="endless")
    assert [match["line"] for match in found.output["matches"]] == [1, 2]
    assert all(len(match["text"]) <= 400 for match in found.output["matches"])


@pytest.mark.req("NA-8")
async def test_one_tool_with_an_action_does_what_is_documented(call: Call, root: Path) -> None:
    wrote = await call("filesystem", action="write", path="./workspace/a.txt", content="hello")
    assert wrote.output == {"written": True}
    assert (await call("filesystem", action="read", path="a.txt")).output == "hello"
    assert (await call("filesystem", action="list", path=".")).output == [
        "a.txt",
        "data.bin",
        "notes.txt",
        "old.txt",
    ]
    assert (await call("filesystem", action="delete", path="a.txt")).output == {"deleted": True}
    without = await call("filesystem", action="write", path="a.txt")
    assert (without.error.code, message(without)) == (
        "VALIDATION_ERROR",
        "/content: is required for the action write",
    )
    (root / "dot.png").write_bytes(PNG)
    assert (await call("filesystem", action="read", path="dot.png")).output == _b64(PNG)
    (root / "big").write_text("x" * 300_000)
    long = await call("filesystem", action="read", path="big")
    assert list(long.metadata.warnings) == ["The file has 300,000 bytes: this is the start of it."]


@pytest.mark.req("NA-8")
def test_the_default_root_is_the_workspace() -> None:
    assert Settings().roots == ("workspace",)


async def test_the_folder_is_made_by_the_first_write(tmp_path: Path) -> None:
    async with Executor(Registry(made(tmp_path))) as executor:
        before = await executor.execute("read_file", {"path": "a"})
        assert message(before) == "File not found: a"
        assert (await executor.execute("write_file", {"path": "a", "content": "x"})).success
    assert (tmp_path / "workspace/a").read_text() == "x"


@pytest.mark.parametrize("roots", [(".",), ("..",), ("/",), ("sub", ".")])
def test_a_folder_that_holds_the_config_cannot_be_written(
    tmp_path: Path, roots: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match="holds the config itself"):
        tools(Settings(roots=roots), tmp_path)
    assert tools(Settings(roots=(), read=roots), tmp_path)


async def test_a_fault_that_only_loading_finds_is_told_with_its_line(tmp_path: Path) -> None:
    config = tmp_path / "toolpost.toml"
    config.write_text(
        '[[sources]]\nkind = "builtin"\ntools = ["files"]\n[sources.files]\nroots = ["."]\n'
    )
    with pytest.raises(ConfigError) as refused:
        async with Runtime.open(config):
            pass
    assert refused.value.message.startswith(f"{config}:5:")
    assert "holds the config itself" in refused.value.message


async def test_what_names_a_directory_is_no_file_to_be_written(call: Call, root: Path) -> None:
    (root / "there").mkdir()
    for path in ("new/", "there/", "there/.", "a/b//", "./"):
        for tool in ("write_file", "filesystem"):
            more = {"action": "write"} if tool == "filesystem" else {}
            refused = await call(tool, path=path, content="x", **more)
            assert "name of a directory: name the file in it" in message(refused)
    assert sorted(one.name for one in root.iterdir()) == [
        "data.bin", "notes.txt", "old.txt", "there",
    ]  # fmt: skip


@pytest.mark.parametrize("settings", [{"roots": ()}, {"roots": ("",)}, {"read": ("a\0b",)}])
def test_settings_that_name_no_folder_are_refused(tmp_path: Path, settings: Any) -> None:
    with pytest.raises(ConfigError):
        tools(Settings(**settings), tmp_path)


def test_what_people_wrote_stays_as_it_is() -> None:
    raw: Callable[[str], set[str]] = lambda name: {  # noqa: E731
        parameter
        for parameter, schema in reaching(Path("/x"), name).spec.input_schema["properties"].items()
        if schema.get("x-raw")
    }
    assert raw("write_file") == {"path", "content"}
    assert raw("edit_file") == {"path", "old_text", "new_text"}


def test_tiers_and_effects_are_honest() -> None:
    told = {one.spec.name: (one.spec.tier, one.spec.effects) for one in made(Path("/x"))}
    assert told == {
        "read_file": (1, "read"),
        "list_directory": (1, "read"),
        "search_files": (1, "read"),
        "write_file": (2, "idempotent"),
        "edit_file": (2, "once"),
        "delete_file": (2, "once"),
        "filesystem": (2, "once"),
    }
