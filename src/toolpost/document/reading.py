"""From a file or a text to a document, by the format that it is in."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, get_args

from toolpost.document.json import read_json
from toolpost.document.places import MAX_BYTES, Document, Progress, Text
from toolpost.document.toml import read_toml
from toolpost.document.yaml import read_yaml
from toolpost.errors import SourceError

Format = Literal["yaml", "json", "toml"]
_FORMATS: dict[str, Format] = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}
_READERS: Final[Mapping[Format, Callable[[Text, Progress | None], Document]]] = {
    "yaml": read_yaml,
    "json": read_json,
    "toml": read_toml,
}


def read(
    path: str | os.PathLike[str],
    *,
    format: Format | None = None,  # noqa: A002 - the word of the suffixes and of parse()
    progress: Progress | None = None,
    lenient: bool = False,
) -> Document:
    """The document in a file, in the format its suffix names unless one is given.

    Only a regular file is read, be it by a symbolic link. ``lenient`` takes numbers for keys, as
    they are written.
    """
    name = os.fspath(path)
    known = format or _FORMATS.get(Path(name).suffix.lower())
    if known is None:
        raise SourceError(f"{name}: unknown format; name it {', '.join(_FORMATS)}")
    text = _decode(_bytes(name), name)
    return parse(text, format=known, name=name, progress=progress, lenient=lenient)


def parse(
    text: str,
    *,
    format: Format,  # noqa: A002 - as above
    name: str,
    progress: Progress | None = None,
    lenient: bool = False,
) -> Document:
    """The document in a text; ``name`` is what its places and errors begin with."""
    if format not in get_args(Format):
        raise SourceError(f"{name}: unknown format {format!r}; use yaml, json or toml")
    source = Text(text.removeprefix("\ufeff"), name, lenient=lenient)
    source.check()
    document = _READERS[format](source, progress)
    if progress is not None:
        progress(len(source.text), len(source.text))
    return document


def _bytes(name: str) -> bytes:
    # O_NONBLOCK: opening a FIFO that nobody writes to would wait for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    try:
        _check_regular(name, Path(name).stat())  # opening has effects
        with os.fdopen(os.open(name, flags), "rb") as file:
            _check_regular(name, os.fstat(file.fileno()))  # it may be another one by now
            content = file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise SourceError(f"{name}: cannot be read: {exc.strerror or exc}") from exc
    except ValueError as exc:
        raise SourceError(f"{name!r}: not a file name: {exc}") from exc
    if len(content) > MAX_BYTES:
        raise SourceError(f"{name}: larger than {MAX_BYTES >> 20} MiB; split it")
    return content


def _check_regular(name: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SourceError(f"{name}: not a regular file; name a file")
    if found.st_size > MAX_BYTES:
        raise SourceError(f"{name}: larger than {MAX_BYTES >> 20} MiB; split it")


def _decode(content: bytes, name: str) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError(f"{name}:1:1: this is UTF-16; save it as UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as exc:
        before = content[: exc.start].decode("utf-8").removeprefix("\ufeff")
        source = Text(before, name)
        raise source.fault(
            len(before),
            f"not UTF-8: byte 0x{content[exc.start]:02x} at offset {exc.start}; save it as UTF-8",
        ) from exc
