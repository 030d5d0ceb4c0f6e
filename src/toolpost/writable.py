"""Where tools may write, by what the config and the specs say; and where none may: it could change
what the tools are, or add one.

Above: the runtime, which tells the sandbox. Below: config and registry. Asked when a sandbox is
made, not when it is used. It refuses to know how a grant is kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolpost.config import Config
from toolpost.contracts import Declared
from toolpost.registry import Registry

_WILD: Final = frozenset("*?[")


class _Found(NamedTuple):
    """Of the tools that there are."""

    folders: frozenset[str]
    """Of spec files."""
    programs: frozenset[str]
    code: frozenset[str]
    written: frozenset[str]
    """The folders that tools may write to."""


class Writable:
    """Of one config and its tools; the sandbox's ``Grounds``. All tools are looked through once,
    and again when one has changed.
    """

    def __init__(self, config: Config, registry: Registry) -> None:
        self._config, self._registry = config, registry
        self._found: _Found | None = None
        registry.listen(self._forget)

    def taboo(self, folder: str) -> str | None:
        """Why no tool may write there, if there is a reason."""
        for path, what in self._kept():
            if Path(os.path.realpath(path)).is_relative_to(folder):
                return f"it contains {what} ({path})"
        for path, what in self._code():
            if Path(folder).is_relative_to(os.path.realpath(path)):
                return f"it lies in {what} ({path})"
        for pattern in self._patterns():
            if could_hold(Path(folder), pattern):
                return f"specs are loaded from there ({pattern})"
        return None

    def written(self) -> frozenset[str]:
        return self._look().written

    def _forget(self, _: frozenset[str]) -> None:
        self._found = None

    def _look(self) -> _Found:
        if self._found is None:
            declared = {(folder, *_listed(binding)) for folder, binding in self._declared()}
            everywhere = tuple(_grants(self._config.settings.backends))
            declared.add((str(self._config.base),))
            written = (_absolute(one[0], (*everywhere, *one[1:])) for one in declared)
            self._found = _Found(
                folders=frozenset(folder for folder, _ in self._declared()),
                programs=frozenset(self._programs()),
                code=frozenset(_files_of(self._modules())),
                written=frozenset(chain.from_iterable(written)),
            )
        return self._found

    def _kept(self) -> Iterator[tuple[str, str]]:
        """What must not be in a folder that can be written, and what it is."""
        config, found = self._config, self._look()
        if config.file is not None:
            yield str(config.file), "the config"
        yield str(config.base / config.settings.lock), "the pins of the tools"
        yield sys.prefix, "the Python that runs this"
        for folder in found.folders:
            yield folder, "the specs of tools, or the modules beside them"
        for program in found.programs:
            yield program, "the program of a tool"
        yield from self._code()

    def _code(self) -> Iterator[tuple[str, str]]:
        """Trees in which nothing can be written either."""
        yield from ((one, "a module of tools") for one in self._look().code)
        yield from ((one, "the Python that runs this") for one in _python())

    def _programs(self) -> Iterator[str]:
        """Those that are named by their path, and the folders in which others are found."""
        for folder, binding in self._declared():
            if "/" in (word := _first(binding.get("command"))):
                yield os.path.normpath(Path(folder, word))
        backends = self._config.settings.backends
        shell = _table(backends, "shell")
        yield from (one for one in _listed(shell, "programs") if one.startswith("/"))
        yield from _listed(shell, "path")
        servers = _table(_table(backends, "mcp"), "servers")
        for server in (_table(servers, name) for name in servers):
            if server.get("isolation") == "process":  # what is confined stays so
                words = (self._config.base / word for word in _listed(server, "command"))
                yield from map(str, filter(Path.is_file, words))

    def _modules(self) -> Iterator[tuple[str, str]]:
        """Of every Python tool: where its module is looked for first, and which."""
        for folder, binding in self._declared():
            if isinstance(module := binding.get("module"), str):
                yield folder, module
        for source in self._config.settings.sources:
            if source.get("kind") == "modules":
                path = str(self._config.base / str(source.get("path", ".")))
                yield from ((path, name) for name in source.get("modules", ()))

    def _patterns(self) -> Iterator[Path]:
        """Of spec files; with their links followed, for what is asked about is a real path."""
        for source in self._config.settings.sources:
            if source.get("kind") == "files":
                for path in source.get("paths", ()):
                    yield from _followed(self._config.base / path)

    def _declared(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The folder of the spec file and the binding, of every tool that a file declares."""
        for spec in self._registry:
            entry = self._registry.entry(spec.name)
            if entry is not None and isinstance(entry.target, Declared):
                yield entry.target.folder, spec.binding


@cache
def _python() -> tuple[str, ...]:
    """What runs unconfined when it is imported next."""
    import sysconfig  # it takes a while, and only what is confined pays for it

    found = map(sysconfig.get_path, ("stdlib", "purelib", "platlib", "scripts"))
    return *found, str(Path(__file__).parent)


def could_hold(folder: Path, pattern: Path) -> bool:
    """Whether a file in the folder, or below it, could be one that the pattern means."""
    for part, wanted in zip(folder.parts, pattern.parts[:-1], strict=False):
        if wanted == "**":
            return True
        if not fnmatchcase(part, wanted):
            return False
    return len(folder.parts) < len(pattern.parts)


def _followed(pattern: Path) -> Iterator[Path]:
    """The pattern by its real place; and by those of the links that its wildcards meet."""
    parts = pattern.parts
    wild = next((at for at, part in enumerate(parts) if _WILD & set(part)), len(parts) - 1)
    head, rest = Path(*parts[:wild]), parts[wild:]
    yield Path(os.path.realpath(head), *rest)
    deep = rest.index("**") if "**" in rest else len(rest) - 1
    if deep:
        for met in head.glob("/".join(rest[:deep])):
            yield Path(os.path.realpath(met), *rest[deep:])


def _first(command: object) -> str:
    """The first word of a command, or nothing."""
    words = command.split() if isinstance(command, str) else command
    return str(words[0]) if isinstance(words, list | tuple) and words else ""


def _files_of(modules: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The file or the folder of each one's outermost package; nothing is imported for it."""
    for folder, top in {(folder, name.partition(".")[0]) for folder, name in modules}:
        yield str(Path(folder, top))
        yield str(Path(folder, f"{top}.py"))
        with suppress(ImportError, ValueError):
            found = find_spec(top)
            if found is not None:
                yield from found.submodule_search_locations or filter(None, [found.origin])


def _grants(settings: Mapping[str, Any]) -> Iterator[str]:
    """All that stands under ``write``, however deep."""
    yield from _listed(settings)
    for inner in settings.values():
        if isinstance(inner, Mapping):
            yield from _grants(inner)


def _table(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """One inside another; whether it has to be one is for its owner to say."""
    found = table.get(name)
    return found if isinstance(found, Mapping) else {}


def _listed(table: Mapping[str, Any], name: str = "write") -> Iterable[str]:
    found = table.get(name)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list | tuple) else []


def _absolute(base: str, paths: Iterable[str]) -> Iterator[str]:
    return (os.path.normpath(Path(base, path)) for path in paths)
