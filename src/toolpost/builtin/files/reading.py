"""The file tools that only look: ``read_file``, ``list_directory``, ``search_files``.

Above: ``tools.py``. Below: ``ranging.py`` (a part of a file), ``searching.py``, ``rooted.py``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from annotated_types import Ge, Le, MaxLen

from toolpost import Given, Image, InvalidArguments, Output, ToolFailed, beneath, tool
from toolpost.builtin import decoding, raw
from toolpost.builtin.files import ranging, searching
from toolpost.builtin.files.settings import Files
from toolpost.builtin.rooted import legible, opened, place, reading, told
from toolpost.patterns import glob
from toolpost.wording import short

_MOST_NAMES: Final = 1_000_000
"""Characters of names in one listing."""
_MOST_VISITED: Final = 100_000


class FileContent(TypedDict):
    """``size`` is that of the whole file; ``encoding`` is base64 for what is no text."""

    content: str
    size: int
    encoding: str
    truncated: bool
    next_offset: NotRequired[int]
    next_line: NotRequired[int]


class ListedEntry(TypedDict):
    """``target`` is where a link says that it leads."""

    name: str
    type: Literal["file", "directory", "symlink", "other"]
    size: int
    target: NotRequired[str]


class Listing(TypedDict):
    entries: list[ListedEntry]
    truncated: bool


@raw("path")
@tool(
    title="Read a file",
    category="file",
    tags=["files", "text"],
    tier=1,
    effects="read",
    timeout=10,
    isolation="process",
    examples=[
        {"path": "notes.txt"},
        {"path": "notes.txt", "start_line": 2, "lines": 10},
        {"path": "data.bin", "offset": 0, "length": 64},
    ],
)
def read_file(
    path: str,
    start_line: Annotated[int, Ge(1)] | None = None,
    lines: Annotated[int, Ge(1)] | None = None,
    offset: Annotated[int, Ge(0), Le(2**62)] = 0,
    length: Annotated[int, Ge(1)] | None = None,
    encoding: Annotated[str, MaxLen(40)] | None = None,
    *,
    files: Given[Files],
) -> FileContent:
    """Read a file: text as it is, a picture as an image, anything else as base64.

    Big files come in pieces: while `truncated` is true, go on at `next_line` or `next_offset`.

    :param path: The file, as list_directory names it.
    :param start_line: The first line wanted, counted from 1.
    :param lines: How many lines at most.
    :param offset: Instead of lines: the first byte wanted, counted from 0.
    :param length: How many bytes at most.
    :param encoding: The encoding, such as utf-8 or cp1252, or base64. Found out if left out.
    """
    by_line = start_line is not None or lines is not None
    if by_line and (offset or length):
        raise InvalidArguments("Ask for lines or for bytes, not for both", effects="none")
    with reading(path, files.read) as fd:
        size = os.fstat(fd).st_size
        head = ranging.read(fd, 0, min(files.read_size, 65_536))
        mime = decoding.image(head) if encoding is None and not offset and not by_line else None
        if mime is not None and size <= files.read_size:
            return _picture(ranging.read(fd, 0, size), mime)  # type: ignore[no-any-return]
        how = _encoding(encoding, head, whole=len(head) >= size)
        if by_line and how is None:
            raise ToolFailed(f"{short(path, 200)} is no text: ask for bytes", effects="none")
        if by_line:
            assert how is not None
            found = ranging.of_lines(
                fd, how, first=start_line or 1, lines=lines, most=files.read_size
            )
        else:
            most = min(length or files.read_size, files.read_size)
            found = ranging.of_bytes(fd, how, offset=offset, most=most)
    told_of = "base64" if how is None else how.name
    content: FileContent = {**found, "size": size, "encoding": told_of}
    return content


def _encoding(name: str | None, head: bytes, *, whole: bool) -> decoding.Encoding | None:
    if name == "base64":
        return None
    return decoding.encoding(head, whole=whole) if name is None else decoding.named(name, head)


def _picture(data: bytes, mime: str) -> Any:
    """What is told of a picture, and itself as a part beside it."""
    said = {"content": "", "size": len(data), "encoding": mime, "truncated": False}
    return Output(said, (Image(data, mime),))


@raw("path", "pattern")
@tool(
    title="List a directory",
    category="file",
    tags=["files"],
    tier=1,
    effects="read",
    timeout=15,
    isolation="process",
    examples=[{"path": "."}, {"path": ".", "recursive": True, "pattern": "*.txt"}],
)
def list_directory(
    path: str = ".",
    recursive: bool = False,
    pattern: Annotated[str, MaxLen(200)] | None = None,
    limit: Annotated[int, Ge(1), Le(10_000)] = 1000,
    *,
    files: Given[Files],
) -> Listing:
    """List what is in a directory, with types and sizes. Links are shown, and not followed.

    :param path: The directory; without it, the first that may be used.
    :param recursive: Also what is in the directories below.
    :param pattern: Only names like this: *.py, or src/*.py for paths; `*` also stands for slashes.
    :param limit: How many at most.
    """
    fits = None if pattern is None else glob((pattern,))
    whole = pattern is not None and "/" in pattern
    entries: list[ListedEntry] = []
    left, visited = _MOST_NAMES, 0
    at = place(files.read, path)
    with told(path, files.read), opened(at.folder) as folder:
        for one in beneath.walk(folder, at.path, recursive=recursive, most=_MOST_VISITED + 1):
            visited += 1
            if visited > _MOST_VISITED:
                return {"entries": entries, "truncated": True}
            if fits is None or fits(one.name if whole else one.name.rpartition("/")[2]):
                left -= len(one.name) + len(one.target or "")
                if len(entries) >= limit or left < 0:
                    return {"entries": entries, "truncated": True}
                entries.append(_listed(one))
    return {"entries": entries, "truncated": False}


def _listed(one: beneath.Entry) -> ListedEntry:
    entry: ListedEntry = {"name": legible(one.name), "type": one.kind, "size": one.size}
    if one.target is not None:
        entry["target"] = legible(one.target)
    return entry


@raw("pattern", "path", "include")
@tool(
    title="Search in files",
    category="file",
    tags=["files", "text", "search"],
    tier=1,
    effects="read",
    timeout=30,
    isolation="process",
    examples=[
        {"pattern": "milk|bread"},
        {"pattern": "TODO", "path": ".", "include": "*.txt", "ignore_case": True},
    ],
)
def search_files(
    pattern: Annotated[str, MaxLen(1000)],
    path: str = ".",
    include: Annotated[str, MaxLen(200)] | None = None,
    ignore_case: bool = False,
    literal: bool = False,
    limit: Annotated[int, Ge(1), Le(1000)] = 100,
    *,
    files: Given[Files],
) -> searching.Matches:
    """Find the lines of files that match a regular expression. Files that are no text are skipped.

    :param pattern: A regular expression, without look-around and back-references.
    :param path: A file, or a directory to search with all below it.
    :param include: Only files with names like this: *.py, or src/*.py for paths.
    :param ignore_case: Whether capitals count the same as small letters.
    :param literal: Whether the pattern is a plain text.
    :param limit: How many lines at most.
    """
    matches = searching.matcher(pattern, ignore_case=ignore_case, literal=literal)
    at = place(files.read, path)
    with told(path, files.read), opened(at.folder) as folder:
        if _is_folder(folder, at.path):
            found = beneath.walk(folder, at.path, most=_MOST_VISITED + 1)
            names = _files(found, include)
            return searching.search(folder, names, matches, at=at.path, shown=path, limit=limit)
        os.close(beneath.regular(folder, at.path))  # or say why not
        return searching.search(folder, ("",), matches, at=at.path, shown=path, limit=limit)


def _files(found: Iterator[beneath.Entry], include: str | None) -> Iterator[str | None]:
    """The names of files that are wanted; ``None`` if there are too many to look at them all."""
    fits = None if include is None else glob((include,))
    whole = include is not None and "/" in include
    for visited, one in enumerate(found):
        if visited >= _MOST_VISITED:
            yield None
            return
        name = one.name if whole else one.name.rpartition("/")[2]
        if one.kind == "file" and (fits is None or fits(name)):
            yield one.name


def _is_folder(folder: int, path: str) -> bool:
    fd = beneath.opened(folder, path, os.O_PATH)
    try:
        return stat.S_ISDIR(os.fstat(fd).st_mode)
    finally:
        os.close(fd)
