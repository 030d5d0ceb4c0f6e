"""The filesystem tool of the Nachos contract, as a worker runs it: on the built-in one.

Above: ``builtin.py`` gives it its folders. Below: ``toolpost.builtin.filesystem``. Which folder a
path is in is first read from its words, as the contract has it; whether the file is there the
kernel decides.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from toolpost import Call, Given, InvalidArguments, tool
from toolpost.builtin import raw
from toolpost.builtin.files.settings import Files
from toolpost.builtin.filesystem import filesystem as built_in
from toolpost.wording import short


class Folders(msgspec.Struct, frozen=True):
    """What may be used, and where relative paths start."""

    base: str
    files: Files


@raw("path", "content")
@tool(title="Filesystem", category="file", tier=2, effects="once", timeout=10, isolation="process")
def filesystem(
    action: Literal["read", "write", "list", "delete"],
    path: str,
    content: str | None = None,
    *,
    call: Call,
    folders: Given[Folders],
) -> Any:
    """Read and write files."""
    problems = list(faults(folders, action, path, content))
    if problems:
        told = [{"at": "", "problem": one} for one in problems]
        raise InvalidArguments(", ".join(problems), effects="none", details={"faults": told})
    return built_in(action, _named(folders, path), content, call=call, files=folders.files)


def faults(folders: Folders | None, action: Any, path: Any, content: Any) -> Iterator[str]:
    """What is wrong with a call, by its words alone; without folders nothing is allowed."""
    if not isinstance(path, str):
        yield "path must be a string"
    elif folders is None or _named(folders, path) is None:
        yield f"Path {short(path, 200)} is not in allowed directories"
    if action == "write" and not content:
        yield "content is required for write action"


def _named(folders: Folders, path: str) -> Any:
    """The path as the built-in tool has it: from the name of its folder; ``None`` if in none."""
    full = os.path.normpath(f"{folders.base}/{path}" if not path.startswith("/") else path)
    for root in sorted(folders.files.read, key=lambda one: len(one.folder), reverse=True):
        if full == root.folder:
            return root.name
        if full.startswith(root.folder.rstrip("/") + "/"):
            return f"{root.name}/{full[len(root.folder.rstrip('/')) + 1 :]}"
    return None
