"""Tools of installed packages: those that announce themselves in the group ``toolpost.tools``.

Installed is not active: a package's tools are loaded only if the config names the package.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from toolpost.contracts import Registered, Tell
from toolpost.errors import SourceError
from toolpost.options import Options, options_from
from toolpost.sources.contracts import entries_of
from toolpost.wording import nearest

GROUP = "toolpost.tools"


class _Options(Options, frozen=True):
    packages: tuple[str, ...]


class EntryPointsSource:
    """``[[sources]] kind = "entrypoints", packages = ["acme-tools"]``."""

    def __init__(self, packages: Iterable[str]) -> None:
        self._packages = tuple(packages)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], base: Path) -> Self:
        return cls(options_from(options, _Options, "source entrypoints").packages)

    async def load(self, tell: Tell) -> Iterable[Registered]:
        found: list[Registered] = []
        for done, package in enumerate(self._packages):
            tell(done, len(self._packages))
            for point in _points(package):
                found += _tools(point)
        return found

    async def changes(self) -> AsyncIterator[None]:
        """What is installed does not change under a running process."""
        never: tuple[None, ...] = ()
        for change in never:
            yield change


def _points(package: str) -> list[EntryPoint]:
    everything = [(p.dist.name if p.dist else "", p) for p in entry_points(group=GROUP)]
    points = [point for owner, point in everything if _normal(owner) == _normal(package)]
    if not points:
        owners = sorted({owner for owner, _ in everything})
        raise SourceError(
            f"no installed package {package!r} offers tools{nearest(package, owners)} "
            f"(those that do: {', '.join(owners) or 'none'})"
        )
    return sorted(points, key=lambda p: p.name)


def _normal(package: str) -> str:
    """``Acme_Tools`` and ``acme-tools`` are one package."""
    return re.sub(r"[-_.]+", "-", package).lower()


def _tools(point: EntryPoint) -> list[Registered]:
    try:
        loaded = point.load()
    except (Exception, SystemExit) as exc:  # a package may raise anything while it is imported
        raise SourceError(
            f"the tools {point.value!r} cannot be imported: {type(exc).__name__}: {exc}"
        ) from exc
    if isinstance(loaded, ModuleType):
        return list(entries_of(loaded))
    return list(loaded) if isinstance(loaded, list | tuple) else [loaded]
