"""Files that a command makes: all of them, or none.

Above: the commands that begin something. Below: the file system. Nothing is written over, and what
cannot be written to its end is taken away again: half a file would be taken for a whole one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_new(texts: Mapping[Path, str]) -> None:
    """Make these files, with their texts; a ``FileExistsError`` if one is there already."""
    made: list[Path] = []
    try:
        for file, text in texts.items():
            with file.open("x", encoding="utf-8") as opened:
                made.append(file)
                opened.write(text)
    except BaseException:
        for file in made:
            file.unlink(missing_ok=True)
        raise
