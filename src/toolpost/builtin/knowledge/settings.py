"""What the config says of the knowledge base, and how the tools have it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from toolpost.builtin.rooted import Root, roots
from toolpost.errors import ConfigError
from toolpost.options import Options

SAMPLE: Final = """\
# Folders whose Markdown, text and HTML files can be made searchable.
roots = ["docs"]
"""


class Settings(Options, frozen=True):
    """``[sources.knowledge]``: the folders, where the index is kept, and how much goes into it.

    ``meaning`` says whether a search looks for the meaning as well as for the words: ``auto`` does
    where ``toolpost[knowledge]`` is installed.
    """

    roots: tuple[str, ...] = ("docs",)
    index: str = ".toolpost/knowledge.db"
    file_size: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)] = 5_000_000
    files: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 50_000
    meaning: Literal["auto", "off"] = "auto"

    def __post_init__(self) -> None:
        if not self.roots:
            raise ConfigError("knowledge: name a folder in roots", at=("roots",))


class Knowledge(msgspec.Struct, frozen=True):
    """The settings as the tools have them."""

    roots: tuple[Root, ...]
    index: str
    file_size: int
    files: int
    meaning: bool


def prepared(settings: Settings, base: Path) -> Knowledge:
    """The settings with every folder at its place."""
    return Knowledge(
        roots=roots(settings.roots, base),
        index=str(base / settings.index),
        file_size=settings.file_size,
        files=settings.files,
        meaning=settings.meaning == "auto",
    )
