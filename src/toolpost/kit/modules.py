"""Imports a Python file or module and lists its tools, whichever contract they were written for.

``parity`` and the checks use it. ``sources/contracts.py`` finds the tools, for the source of kind
``modules`` as well; plain functions become tools here only.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction
from pathlib import Path
from types import ModuleType

from toolpost.authoring import tool
from toolpost.errors import SourceError
from toolpost.registry import Entry, as_entry
from toolpost.sources.contracts import entries_of


def imported(place: str | Path) -> ModuleType:
    """The module of a file, whose neighbours it can import; or the one of this name."""
    if isinstance(place, str):
        with _explained(place):
            return import_module(place)
    folder = str(place.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = place.stem if place.stem not in sys.modules else f"brought_{place.stem}"
    about = spec_from_file_location(name, place)
    if about is None or about.loader is None:
        raise SourceError(f"{place}: this is not a Python file")
    module = module_from_spec(about)
    sys.modules[name] = module
    try:
        with _explained(str(place)):
            about.loader.exec_module(module)
    except SourceError:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _explained(place: str) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as exc:  # a module may raise anything while it is imported
        raise SourceError(f"{place}: it cannot be imported: {type(exc).__name__}: {exc}") from exc


def entries_in(module: ModuleType, *, wanted: Collection[str] = ()) -> list[Entry]:
    """Its tools. Of what is ``wanted`` and is no tool, plain functions become some."""
    found = entries_of(module)
    names = {entry.spec.name for entry in found}
    return [*found, *_functions(module, set(wanted) - names)]


def _functions(module: ModuleType, names: Collection[str]) -> Iterator[Entry]:
    for name in sorted(names):
        function = getattr(module, name, None)
        if isfunction(function) and not name.startswith("_"):
            said = function.__doc__ or f"The function {name}."
            yield as_entry(tool(description=said)(function))
