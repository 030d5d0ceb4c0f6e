"""The parts of a result as files: images, sounds, resources.

Above: ``call.py``. Below: the file system. It never writes over a file that is there, and takes no
part of a file's name from the result but a suffix it knows.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from toolpost.result import Audio, Image, Notice, Part, Resource, Text


def described(part: Part) -> str:
    """What a part is, in a few words."""
    if isinstance(part, Text | Notice):
        return "text"
    content = _content(part)
    size = "" if content is None else f", {len(content):,} bytes"
    if isinstance(part, Resource):
        return f"resource {part.uri}{f', {part.mime}' if part.mime else ''}{size}"
    return f"{'image' if isinstance(part, Image) else 'audio'}, {part.mime}{size}"


def saved(parts: Sequence[Part], folder: Path, name: str) -> dict[int, Path]:
    """Write what has a content; the files by the index of their part."""
    files: dict[int, Path] = {}
    for index, part in enumerate(parts):
        content = _content(part)
        if content is not None:
            folder.mkdir(parents=True, exist_ok=True)
            files[index] = _written(content, folder / f"{name}-{index + 1}", _suffix(part))
    return files


def _content(part: Part) -> bytes | None:
    if isinstance(part, Image | Audio):
        return part.data
    if isinstance(part, Resource):
        return part.data if part.text is None else part.text.encode()
    return None


def _suffix(part: Part) -> str:
    mime = None if isinstance(part, Text | Notice) else part.mime
    return mimetypes.guess_extension(mime or "") or ".bin"


def _written(content: bytes, stem: Path, suffix: str) -> Path:
    for number in count(1):
        file = Path(f"{stem}{'' if number == 1 else f'-{number}'}{suffix}")
        try:
            with file.open("xb") as opened:
                opened.write(content)
        except FileExistsError:
            continue
        return file
    raise AssertionError("there is always one more number")
