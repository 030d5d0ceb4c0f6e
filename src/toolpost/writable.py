"""Where tools may write, by what the config and the specs say; and where none may: it could change
what the tools are, or add one.

Above: the runtime, which tells the sandbox. Below: config and registry. Asked when a sandbox is
made, not when it is used. It refuses to know how a grant is kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any

from toolpost.config import Config
from toolpost.contracts import Declared
from toolpost.registry import Registry


class Writable:
    """Of one config and its tools; the sandbox's ``Grounds``. All tools are looked through once,
    and again when one has changed.
    """

    def __init__(self, config: Config, registry: Registry) -> None:
        self._config, self._registry = config, registry
        self._found: tuple[frozenset[str], frozenset[str]] | None = None
        registry.listen(self._forget)

    def taboo(self, folder: str) -> str | None:
        """Why no tool may write there, if there is a reason."""
        for path, what in self._kept():
            if Path(os.path.realpath(path)).is_relative_to(folder):
                return f"it contains {what} ({path})"
        for pattern in self._patterns():
            if could_hold(Path(folder), pattern):
                return f"specs are loaded from there ({pattern})"
        return None

    def written(self) -> frozenset[str]:
        return self._look()[1]

    def _forget(self, _: frozenset[str]) -> None:
        self._found = None

    def _look(self) -> tuple[frozenset[str], frozenset[str]]:
        """The folders of spec files, and those that tools may write to."""
        if self._found is None:
            declared = {(folder, *_listed(binding)) for folder, binding in self._declared()}
            everywhere = tuple(_grants(self._config.settings.backends))
            declared.add((str(self._config.base),))
            written = (_absolute(one[0], (*everywhere, *one[1:])) for one in declared)
            folders = frozenset(folder for folder, _ in self._declared())
            self._found = folders, frozenset(chain.from_iterable(written))
        return self._found

    def _kept(self) -> Iterator[tuple[str, str]]:
        config = self._config
        if config.file is not None:
            yield str(config.file), "the config"
        yield str(config.base / config.settings.lock), "the pins of the tools"
        yield sys.prefix, "the Python that runs this"
        for folder in self._look()[0]:
            yield folder, "the specs of tools, or the modules beside them"
        for source in config.settings.sources:
            if source.get("kind") == "modules":
                path = config.base / str(source.get("path", "."))
                for name in source.get("modules", ()):
                    for file in (path / name.split(".")[0], path / f"{name.split('.')[0]}.py"):
                        yield str(file), "a module of tools"

    def _patterns(self) -> Iterator[Path]:
        for source in self._config.settings.sources:
            if source.get("kind") == "files":
                yield from (self._config.base.resolve() / path for path in source.get("paths", ()))

    def _declared(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The folder of the spec file and the binding, of every tool that a file declares."""
        for spec in self._registry:
            entry = self._registry.entry(spec.name)
            if entry is not None and isinstance(entry.target, Declared):
                yield entry.target.folder, spec.binding


def could_hold(folder: Path, pattern: Path) -> bool:
    """Whether a file in the folder, or below it, could be one that the pattern means."""
    for part, wanted in zip(folder.parts, pattern.parts[:-1], strict=False):
        if wanted == "**":
            return True
        if not fnmatchcase(part, wanted):
            return False
    return len(folder.parts) < len(pattern.parts)


def _grants(settings: Mapping[str, Any]) -> Iterator[str]:
    """All that stands under ``write``, however deep."""
    yield from _listed(settings)
    for inner in settings.values():
        if isinstance(inner, Mapping):
            yield from _grants(inner)


def _listed(table: Mapping[str, Any]) -> Iterable[str]:
    found = table.get("write")
    return [one for one in found if isinstance(one, str)] if isinstance(found, list | tuple) else []


def _absolute(base: str, paths: Iterable[str]) -> Iterator[str]:
    return (os.path.normpath(Path(base, path)) for path in paths)
