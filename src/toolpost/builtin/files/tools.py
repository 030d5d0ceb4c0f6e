"""The file tools, for the folders of a config: each says in its description which those are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from toolpost.authoring import FunctionTool
from toolpost.builtin import given
from toolpost.builtin.files.reading import list_directory, read_file, search_files
from toolpost.builtin.files.settings import Files, Settings, prepared
from toolpost.builtin.files.writing import delete_file, edit_file, write_file


def tools(settings: Settings, base: Path) -> Iterable[FunctionTool]:
    made = prepared(settings, base)
    plain = (read_file, write_file, edit_file, list_directory, search_files, delete_file)
    return [with_folders(one, made) for one in plain]


def with_folders(tool: FunctionTool, files: Files) -> FunctionTool:
    """The tool, given its folders, and with their names in its description."""
    names = [one.name if one in files.write else f"{one.name} (read only)" for one in files.read]
    more = f", or begin with {' or '.join(names[1:])}" if names[1:] else ""
    text = f"{tool.spec.description}\n\nPaths start in {names[0]}{more}."
    made = given(tool, files=files)
    spec = msgspec.structs.replace(made.spec, description=text)
    return FunctionTool(made.function, spec, made.signature)
