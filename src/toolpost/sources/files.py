"""Spec files: tools declared in YAML, JSON or TOML.

What a file may say is in ``specs.py``. A fault is reported as ``file:line:column: what is wrong and
how to mend it``. Relative paths start at the config's folder and stay beneath it. The modules of
Python tools are looked up beside the file that declares them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from toolpost.contracts import Declared, Tell
from toolpost.document import read
from toolpost.errors import SourceError
from toolpost.options import Options, options_from
from toolpost.sources.specs import gathered
from toolpost.wording import short

LOOK_EVERY: Final = 0.5
_WILD: Final = frozenset("*?[")


class _Options(Options, frozen=True):
    paths: tuple[str, ...]


class FilesSource:
    """``[[sources]] kind = "files", paths = ["tools.yaml", "more/*.json"]``."""

    when_empty: ClassVar = "its files hold none; write a spec into one of them, under tools:"

    def __init__(self, paths: Iterable[str | Path], *, base: Path | None = None) -> None:
        self._paths = tuple(map(str, paths))
        self._base = base or Path.cwd()
        self._loaded: object = None
        """What the files looked like when they were last read."""

    @classmethod
    def from_config(cls, options: Mapping[str, Any], base: Path) -> Self:
        return cls(options_from(options, _Options, "source files").paths, base=base)

    async def load(self, tell: Tell) -> Iterable[Declared]:
        """Reads in a thread: a big file does not hold up the calls that are under way."""
        return await asyncio.to_thread(self._load, tell)

    async def changes(self) -> AsyncIterator[None]:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if (now := await asyncio.to_thread(self._fingerprint)) != self._loaded:
                self._loaded = now
                yield

    def _load(self, tell: Tell) -> list[Declared]:
        self._loaded = self._fingerprint()  # before reading: what changes meanwhile is seen later
        tools: list[Declared] = []
        for document, specs in gathered(read(file, progress=tell) for file in self._files()):
            folder = str(Path(document.name).resolve().parent)
            tools += (Declared(spec, folder) for spec in specs)
        return tools

    def _files(self) -> list[Path]:
        return list(dict.fromkeys(chain.from_iterable(map(self._matching, self._paths))))

    def _matching(self, path: str) -> list[Path]:
        if Path(path).is_absolute():
            root, pattern = Path(path).parent, Path(path).name
        else:
            root, pattern = self._base, path
        if ".." in Path(pattern).parts:
            raise SourceError(f"{short(path)}: a path of spec files must not leave its folder")
        try:
            found = sorted(root.glob(pattern)) if _WILD & set(pattern) else [root / pattern]
            strays = [f for f in found if not f.resolve().is_relative_to(root.resolve())]
        except (OSError, RuntimeError, ValueError) as exc:  # a loop of links, a NUL, a bad pattern
            raise SourceError(f"{short(path)}: not a path of spec files: {exc}") from exc
        if strays:
            raise SourceError(f"{strays[0]}: this link leads out of {root}: copy the file instead")
        if not found:
            raise SourceError(f"{short(path)}: no file matches (looked in {root})")
        return found

    def _fingerprint(self) -> object:
        try:
            stats = [(f, f.stat()) for f in self._files()]
        except (OSError, SourceError) as exc:
            return str(exc)
        return [(f, s.st_mtime_ns, s.st_size, s.st_ino) for f, s in stats]
