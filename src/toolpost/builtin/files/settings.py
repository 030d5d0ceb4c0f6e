"""What the config says of the file tools, and how the tools have it.

Above: the tools. Below: ``rooted.py``. A folder that holds the config cannot be written: who could
change that would decide what toolpost may do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import msgspec

from toolpost import beneath
from toolpost.builtin.rooted import Root, roots
from toolpost.errors import ConfigError, MissingPart
from toolpost.options import Options

SAMPLE: Final = """\
# What the file tools may use, beside this file: they read and write here. It is
# made by the first write. Folders under `read` can be read only.
roots = ["workspace"]
# read = ["/var/log/app"]
"""


class Settings(Options, frozen=True):
    """``[sources.files]``: the folders, and how much may be read and written."""

    roots: tuple[str, ...] = ("workspace",)
    read: tuple[str, ...] = ()
    file_size: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] = 10_000_000
    total_size: Annotated[int, msgspec.Meta(ge=1)] = 1_000_000_000
    read_size: Annotated[int, msgspec.Meta(ge=1, le=2_000_000)] = 250_000

    def __post_init__(self) -> None:
        if not (*self.roots, *self.read):
            raise ConfigError("files: name a folder in roots or in read", at=("roots",))


class Files(msgspec.Struct, frozen=True):
    """The settings as the tools have them: every folder with its place."""

    write: tuple[Root, ...]
    read: tuple[Root, ...]
    """Those that can be written as well come first."""
    file_size: int
    total_size: int
    read_size: int


def prepared(settings: Settings, base: Path) -> Files:
    """The settings with every folder at its place."""
    write, read = roots(settings.roots, base), roots(settings.read, base)
    if not beneath.available():
        raise MissingPart(beneath.MISSING)
    here = os.path.realpath(base)
    for one in write:
        if f"{here}/".startswith(f"{os.path.realpath(one.folder).rstrip('/')}/"):
            raise ConfigError(
                f"source builtin files: roots: {one.name} holds the config itself, and who can "
                "write there decides what toolpost may do: name a folder below it, or put it "
                "under read",
                at=("roots",),
            )
    return Files(
        write, (*write, *read), settings.file_size, settings.total_size, settings.read_size
    )
