"""The file tools that change something: ``write_file``, ``edit_file``, ``delete_file``.

Above: ``tools.py``. Below: ``rooted.py``, ``beneath``. Who writes beneath a folder waits until
nobody else does, so that quotas hold and an edit is of what is there.
"""

from __future__ import annotations

import base64
import binascii
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, TypedDict

from annotated_types import MinLen

from toolpost import Given, InvalidArguments, ResourceLimit, ToolFailed, beneath, tool
from toolpost.builtin import decoding, raw
from toolpost.builtin.files import ranging, usage
from toolpost.builtin.files.settings import Files
from toolpost.builtin.rooted import opened, place, told
from toolpost.wording import short

_DEEPEST: Final = 100
"""Folders in one another: some programs cannot delete more."""


class Written(TypedDict):
    bytesWritten: int
    created: bool


class Edited(TypedDict):
    replacements: int
    line: int
    bytesWritten: int


class Deleted(TypedDict):
    deleted: bool


class _Spot(NamedTuple):
    """Where a file is to be changed: its root, its folder, its name there, and what has it now."""

    top: int
    folder: int
    name: str
    old: os.stat_result | None


@raw("path", "content")
@tool(
    title="Write a file",
    category="file",
    tags=["files"],
    tier=2,
    effects="idempotent",
    timeout=10,
    isolation="process",
    examples=[
        {"path": "reports/today.md", "content": "# Today\n"},
        {"path": "dot.gif", "content": "R0lGODlhAQABAAAAACwAAAAAAQABAAA=", "encoding": "base64"},
    ],
)
def write_file(
    path: str,
    content: str,
    encoding: Literal["utf-8", "base64"] = "utf-8",
    overwrite: bool = True,
    *,
    files: Given[Files],
) -> Written:
    """Write a whole file, in one step: nobody ever sees half of it. Folders are made as needed.

    To change a part of a file, use edit_file.

    :param path: Where to write.
    :param content: What the file is to hold; with encoding base64, that of its bytes.
    :param encoding: How the content is given: text, or the base64 of bytes.
    :param overwrite: Whether a file that is there may be replaced.
    """
    data = _bytes(content, encoding)
    if path.endswith(("/", "/.")):
        raise InvalidArguments(
            f"/path: {short(path, 200)} is the name of a directory: name the file in it. "
            "Directories are made as needed",
            effects="none",
        )
    with _writing(path, files, size=len(data)) as spot:
        if spot.old is not None and not overwrite:
            raise ToolFailed(f"There is a file already: {short(path, 200)}", effects="none")
        beneath.replace(spot.folder, spot.name, data, like=spot.old)
    return {"bytesWritten": len(data), "created": spot.old is None}


def _bytes(content: str, encoding: str) -> bytes:
    try:
        if encoding == "base64":
            return base64.b64decode(content, validate=True)
        return content.encode()
    except (binascii.Error, ValueError):
        problem = "is not base64" if encoding == "base64" else "has half a character in it"
        raise InvalidArguments(f"/content: {problem}", effects="none") from None


@raw("path", "old_text", "new_text")
@tool(
    title="Edit a file",
    category="file",
    tags=["files", "text"],
    tier=2,
    effects="once",
    timeout=10,
    isolation="process",
    examples=[{"path": "notes.txt", "old_text": "milk", "new_text": "oat milk"}],
)
def edit_file(
    path: str,
    old_text: Annotated[str, MinLen(1)],
    new_text: str,
    replace_all: bool = False,
    *,
    files: Given[Files],
) -> Edited:
    """Replace a text in a file by another. The old text has to be there exactly once.

    :param path: The file.
    :param old_text: What stands there now, letter by letter, with enough around it to be unique.
    :param new_text: What is to stand there.
    :param replace_all: Replace it wherever it stands.
    """
    with _writing(path, files) as spot:
        data = _whole(spot, path, files.file_size)
        how = decoding.encoding(data, whole=True)
        text = _text(data, how, path)
        old_text, new_text = _with_its_ends(text, old_text, new_text)
        count, line = _found(text, old_text, path, every=replace_all)
        _bound(path, len(text) + count * (len(new_text) - len(old_text)), files.file_size)
        changed = _encoded(text.replace(old_text, new_text), how, path)
        with _room(spot.top, files, size=len(changed), instead=len(data), path=path):
            beneath.replace(spot.folder, spot.name, changed, like=spot.old)
    return {"replacements": count, "line": line, "bytesWritten": len(changed)}


def _whole(spot: _Spot, path: str, most: int) -> bytes:
    if spot.old is None:
        raise _missing()
    _bound(path, spot.old.st_size, most)
    fd = beneath.regular(spot.folder, spot.name)
    try:
        return ranging.read(fd, 0, most)
    finally:
        os.close(fd)


def _text(data: bytes, how: decoding.Encoding | None, path: str) -> str:
    if how is not None:
        try:
            return data[len(how.mark) :].decode(how.name)
        except UnicodeDecodeError:
            pass
    raise ToolFailed(f"{short(path, 200)} is no text, so it cannot be edited", effects="none")


def _encoded(text: str, how: decoding.Encoding | None, path: str) -> bytes:
    assert how is not None
    try:
        return how.mark + text.encode(how.name)
    except UnicodeEncodeError as exc:
        raise ToolFailed(
            f"{short(path, 200)} is written in {how.name}, which has no "
            f"{short(text[exc.start : exc.start + 1])!r}: write the file anew with write_file",
            effects="none",
        ) from None


def _with_its_ends(text: str, old: str, new: str) -> tuple[str, str]:
    """Lines end in the file as they end in the file, whatever a model writes."""
    if old not in text and "\r\n" in text and "\r" not in old:
        return old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    return old, new


def _found(text: str, old: str, path: str, *, every: bool) -> tuple[int, int]:
    """How often the old text is there, and in which line first."""
    count = text.count(old)
    first = text.count("\n", 0, text.find(old)) + 1
    if count == 0:
        loosely = "".join(old.split())
        close = "; it is there with other spaces or line ends" if loosely in _packed(text) else ""
        raise ToolFailed(
            f"The old text is not in {short(path, 200)}{close}: read the file, and copy what "
            "stands there",
            effects="none",
        )
    if not every and text.find(old, text.find(old) + 1) >= 0:
        lines: list[str] = []
        at = -1
        while len(lines) < 5 and (at := text.find(old, at + 1)) >= 0:
            lines.append(str(text.count("\n", 0, at) + 1))
        raise ToolFailed(
            f"The old text is in {short(path, 200)} more than once (lines {', '.join(lines)}"
            f"{', …' if len(lines) == 5 else ''}): give more of what is around it, or set "
            "replace_all",
            effects="none",
        )
    return count, first


def _packed(text: str) -> str:
    return "".join(text.split())


@raw("path")
@tool(
    title="Delete a file",
    category="file",
    tags=["files"],
    tier=2,
    effects="once",
    timeout=5,
    isolation="process",
    examples=[{"path": "old.txt"}],
)
def delete_file(path: str, *, files: Given[Files]) -> Deleted:
    """Delete a file. Of a link, the link is deleted; directories are not.

    :param path: The file.
    """
    with _writing(path, files, links=True) as spot:
        if spot.old is None:
            raise _missing()
        os.unlink(spot.name, dir_fd=spot.folder)
        if spot.old.st_nlink == 1:
            usage.release(spot.top, spot.old.st_size)
    return {"deleted": True}


def _missing() -> OSError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


@contextmanager
def _writing(
    path: str, files: Files, *, size: int | None = None, links: bool = False
) -> Iterator[_Spot]:
    """Where a file is to be changed. Others who write beneath the same root wait. With a size, a
    file of that size is to be written, and its folder is made.
    """
    at = place(files.read, path)
    if at.folder not in {one.folder for one in files.write}:
        raise ToolFailed(
            f"Permission denied: {short(path, 200)}. It can be read only", effects="none"
        )
    if at.path.count("/") > _DEEPEST:
        raise ToolFailed(f"Nested too deeply: {short(path, 200)}", effects="none")
    make = size is not None
    _bound(path, size or 0, files.file_size)
    with told(path, files.read):
        if make:
            Path(at.folder).mkdir(exist_ok=True)
        with opened(at.folder, lock=True) as top, ExitStack() as stack:
            if size is not None:
                room = _room(top, files, size=size, instead=_size(top, at.path), path=path)
                stack.enter_context(room)
            folder, name = beneath.parent(top, at.path, make=make)
            stack.callback(os.close, folder)
            yield _Spot(top, folder, name, _present(folder, name, links=links))


def _size(top: int, path: str) -> int:
    """The size of what is to be replaced; a link, or what is not there, has none."""
    try:
        fd = beneath.opened(top, path, os.O_PATH | os.O_NOFOLLOW)
    except OSError:
        return 0
    try:
        about = os.fstat(fd)
        return about.st_size if stat.S_ISREG(about.st_mode) else 0
    finally:
        os.close(fd)


def _present(folder: int, name: str, *, links: bool) -> os.stat_result | None:
    """What has the name, if it is a file that may be changed."""
    try:
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if links:
        return about
    if stat.S_ISLNK(about.st_mode):
        raise PermissionError(errno.EACCES, "is a link: name the file that it leads to", name)
    if not stat.S_ISREG(about.st_mode):
        raise PermissionError(errno.EACCES, "is not a regular file", name)
    if not os.access(name, os.W_OK, dir_fd=folder, follow_symlinks=False):
        raise PermissionError(errno.EACCES, "is write-protected", name)
    return about


@contextmanager
def _room(top: int, files: Files, *, size: int, instead: int, path: str) -> Iterator[None]:
    """Refuse what would take more room than there is for all files; give the room back if the
    file is not written.
    """
    growth = size - instead
    if not usage.reserve(top, growth=growth, most=files.total_size):
        raise ResourceLimit(
            f"No space left for {short(path, 200)}: all files together may have "
            f"{files.total_size:,} bytes. Delete some first",
            effects="none",
            remedy="fix_args",
        )
    try:
        yield
    except BaseException:
        usage.release(top, growth)
        raise


def _bound(path: str, size: int, most: int) -> None:
    """Refuse a file that is larger than one may be."""
    if size > most:
        raise ResourceLimit(
            f"{short(path, 200)} has {size:,} bytes, and a file may have {most:,}: write less",
            effects="none",
            remedy="fix_args",
        )
