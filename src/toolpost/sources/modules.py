"""Tools in Python modules of yours: every ``@tool`` and ``Tool`` class that a module defines, and
the tools of the contracts that toolpost has bridges for.

``contracts.py`` finds them. The modules are imported into this process, so their tools count as
registered in code. For code that should not be trusted that far, declare the tools in a spec file
instead.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from toolpost.contracts import Declared, Registered, Tell
from toolpost.errors import SourceError
from toolpost.options import Options, options_from
from toolpost.registry import Entry
from toolpost.sources.contracts import entries_of


class _Options(Options, frozen=True):
    modules: tuple[str, ...]
    path: str = "."


class ModulesSource:
    """``[[sources]] kind = "modules", modules = ["my_tools"]``; ``path`` is where to look first."""

    def __init__(self, modules: Iterable[str], *, path: Path | None = None) -> None:
        self._modules = tuple(modules)
        self._path = path

    @classmethod
    def from_config(cls, options: Mapping[str, Any], base: Path) -> Self:
        given = options_from(options, _Options, "source modules")
        return cls(given.modules, path=base / given.path)

    async def load(self, tell: Tell) -> Iterable[Registered]:
        found: list[Registered] = []
        known: set[int] = set()
        for done, name in enumerate(self._modules):
            tell(done, len(self._modules))
            module = self._imported(name)
            found += map(self._located, entries_of(module, known=known))
            known.update(id(value) for value in vars(module).values())
        return found

    @property
    def when_empty(self) -> str:
        return (
            f"the {'module' if len(self._modules) == 1 else 'modules'} "
            f"{', '.join(self._modules)} hold no tools at the top level: mark a function with "
            "@tool, or give each tool object a name there"
        )

    async def changes(self) -> AsyncIterator[None]:
        """Imported code does not change under a running process."""
        never: tuple[None, ...] = ()
        for change in never:
            yield change

    def _located(self, entry: Entry) -> Registered:
        """A spec that is only data names a module, which a worker has to find as well."""
        if entry.target is not None:
            return entry
        return Declared(entry.spec, str((self._path or Path.cwd()).resolve()))

    def _imported(self, name: str) -> ModuleType:
        if self._path is not None and str(self._path) not in sys.path:
            sys.path.insert(0, str(self._path))
        try:
            return import_module(name)
        except (Exception, SystemExit) as exc:  # a module may raise anything while it is imported
            raise SourceError(
                f"the module {name!r} cannot be imported: {type(exc).__name__}: {exc}"
            ) from exc
