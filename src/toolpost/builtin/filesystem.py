"""One tool for files, with an ``action``: for agents that were taught to have one.

    [sources.filesystem]
    roots = ["workspace"]

Above: ``sources/builtin.py``. Below: the tools of ``files``, which it is made of.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypedDict

from toolpost import Call, Given, InvalidArguments, Output, tool
from toolpost.authoring import FunctionTool
from toolpost.builtin import raw
from toolpost.builtin.files.reading import list_directory, read_file
from toolpost.builtin.files.settings import SAMPLE, Files, Settings, prepared
from toolpost.builtin.files.tools import with_folders
from toolpost.builtin.files.writing import delete_file, write_file

__all__ = ["SAMPLE", "Settings", "filesystem", "tools"]


class Written(TypedDict):
    written: bool


class Deleted(TypedDict):
    deleted: bool


@raw("path", "content")
@tool(
    title="Filesystem",
    category="file",
    tags=["files"],
    tier=2,
    effects="once",
    timeout=10,
    isolation="process",
    examples=[
        {"action": "write", "path": "todo.txt", "content": "milk\n"},
        {"action": "read", "path": "notes.txt"},
        {"action": "list", "path": "."},
        {"action": "delete", "path": "old.txt"},
    ],
)
def filesystem(
    action: Literal["read", "write", "list", "delete"],
    path: str,
    content: str | None = None,
    *,
    call: Call,
    files: Given[Files],
) -> str | list[str] | Written | Deleted:
    """Read, write, list or delete files. What is no text is read as base64.

    :param action: What to do.
    :param path: The file, or the directory to list.
    :param content: What to write.
    """
    if action == "write":
        if content is None:
            raise InvalidArguments("/content: is required for the action write", effects="none")
        write_file(path, content, files=files)
        return {"written": True}
    if action == "delete":
        delete_file(path, files=files)
        return {"deleted": True}
    if action == "list":
        listing = list_directory(path, files=files)
        if listing["truncated"]:
            call.warn("There is more in this directory.")
        return [entry["name"] for entry in listing["entries"]]
    return _read(path, call, files)


def _read(path: str, call: Call, files: Files) -> str:
    found = read_file(path, files=files)
    if isinstance(found, Output):  # a picture, which is no text
        found = read_file(path, encoding="base64", files=files)
    if found["truncated"]:
        call.warn(f"The file has {found['size']:,} bytes: this is the start of it.")
    content: str = found["content"]
    return content


def tools(settings: Settings, base: Path) -> Iterable[FunctionTool]:
    return [with_folders(filesystem, prepared(settings, base))]
