"""The built-in tools of the AgenticFramework contract that need no network, on those of toolpost.

Results and parameters are the documented ones. Above: an agent or a registry. Below:
``toolpost.builtin``. Paths are beneath folders that are named here: what a model writes never leads
anywhere else.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

import msgspec
from annotated_types import MaxLen

from toolpost import Call, Given, Output, tool
from toolpost.authoring import FunctionTool
from toolpost.bridges.agentic.contract import DEFAULT_TIMEOUT, Tool
from toolpost.builtin import raw
from toolpost.builtin.calculator import calculator as calculate
from toolpost.builtin.files import reading, writing
from toolpost.builtin.files.settings import Files, Settings, prepared
from toolpost.builtin.files.tools import with_folders
from toolpost.spec import Retry

_SECONDS: Final = 10
_KINDS: Final[dict[str, Literal["file", "directory"]]] = {"directory": "directory"}


class Content(TypedDict):
    """``size`` is that of the whole file, in bytes."""

    content: str
    size: int


class Written(TypedDict):
    bytesWritten: int


class ListedEntry(TypedDict):
    name: str
    type: Literal["file", "directory"]
    size: int


class Listing(TypedDict):
    entries: list[ListedEntry]


class Calculated(TypedDict):
    result: float


@raw("path")
@tool(title="Read a file", category="file", effects="read", timeout=_SECONDS, isolation="process")
def read_file(path: str, *, call: Call, files: Given[Files]) -> Content:
    """Reads file content as text.

    :param path: File path to read
    """
    found = reading.read_file(path, files=files)
    if isinstance(found, Output):  # a picture
        found = reading.read_file(path, encoding="base64", files=files)
    if found["encoding"] == "base64":
        call.warn("The file is no text: this is the base64 of it.")
    if found["truncated"]:
        call.warn(f"The file has {found['size']:,} bytes: this is the start of it.")
    return {"content": found["content"], "size": found["size"]}


@raw("path", "content")
@tool(
    title="Write a file",
    category="file",
    tier=2,
    effects="idempotent",
    timeout=_SECONDS,
    isolation="process",
)
def write_file(path: str, content: str, *, files: Given[Files]) -> Written:
    """Writes text content to file."""
    return {"bytesWritten": writing.write_file(path, content, files=files)["bytesWritten"]}


@raw("path")
@tool(
    title="List a directory", category="file", effects="read", timeout=_SECONDS, isolation="process"
)
def list_directory(
    path: str, recursive: bool = False, *, call: Call, files: Given[Files]
) -> Listing:
    """Lists files and directories in a directory."""
    found = reading.list_directory(path, recursive, limit=10_000, files=files)
    if found["truncated"]:
        call.warn("There is more in this directory.")
    entries: list[ListedEntry] = [
        {"name": one["name"], "type": _KINDS.get(one["type"], "file"), "size": one["size"]}
        for one in found["entries"]
    ]
    return {"entries": entries}


@raw("expression")
@tool(title="Calculator", tier=0, effects="read", timeout=_SECONDS)
async def calculator(expression: Annotated[str, MaxLen(1000)]) -> Calculated:
    """Evaluates mathematical expressions.

    :param expression: Math expression like '2 + 2'
    """
    return {"result": (await calculate(expression))["result"]}


def as_tool(made: FunctionTool) -> Tool:
    """A tool of the road as one of this contract: it may be tried again, by the agent."""
    spec = msgspec.structs.replace(made.spec, retry=Retry(attempts=1))
    return Tool(made.function, spec, made.signature, DEFAULT_TIMEOUT, True)


def file_tools(*folders: str, base: str | PathLike[str] | None = None) -> tuple[Tool, Tool, Tool]:
    """``read_file``, ``write_file`` and ``list_directory`` for these folders, or ``workspace``;
    relative ones start at ``base``, or in this folder.
    """
    settings = Settings(roots=folders or ("workspace",))
    files = prepared(settings, Path.cwd() if base is None else Path(base).absolute())
    read, write, listed = (
        as_tool(with_folders(one, files)) for one in (read_file, write_file, list_directory)
    )
    return read, write, listed


_FILES: Final = ("read_file_tool", "write_file_tool", "list_directory_tool")
calculator_tool: Final = as_tool(calculator)


def __getattr__(name: str) -> Any:
    """The file tools for ``workspace`` in the folder that this program is in now."""
    if name in _FILES:
        return file_tools()[_FILES.index(name)]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
