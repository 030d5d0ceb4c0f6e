"""The tools of a Python file or module, of whichever contract they are.

Above: ``parity`` and the checks. Below: ``members.py`` finds our own, and each bridge those of its
contract (``tools_in``). A bridge is asked if the module has loaded it; only where nothing is found
are the others, too, of which some know a tool by its shape. No framework is loaded that the module
has not loaded itself.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Final

from toolpost.authoring import tool
from toolpost.errors import MissingPart, SourceError
from toolpost.members import tools_in
from toolpost.registry import Entry, Item, as_entry

_BRIDGES: Final = "toolpost.bridges."
_CONTRACTS: Final = ("forge", "faultmaven", "nachos", "unified", "agentic")
_FRAMEWORKS: Final[Mapping[str, str]] = {"langchain": "langchain_core"}
"""Bridge → the package without which there is nothing for it to find."""


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
    items: list[Item] = [*tools_in(module)]
    for name in (*_CONTRACTS, *_FRAMEWORKS):
        if f"{_BRIDGES}{name}" in sys.modules or _FRAMEWORKS.get(name) in sys.modules:
            items += _bridged(name, module)
    for name in () if items else _CONTRACTS:
        items += _bridged(name, module)
    found: list[Entry] = []
    for entry in map(as_entry, items):
        if entry not in found:  # what a bridge makes may be a tool of ours as well
            found.append(entry)
    names = {entry.spec.name for entry in found}
    return [*found, *_functions(module, set(wanted) - names)]


def _bridged(name: str, module: ModuleType) -> list[Item]:
    try:
        bridge = import_module(f"{_BRIDGES}{name}")
    except (ModuleNotFoundError, MissingPart):  # without its extra the module cannot need it
        return []
    look = getattr(bridge, "tools_in", None)
    return [] if look is None else list(look(vars(module)))


def _functions(module: ModuleType, names: Collection[str]) -> Iterator[Entry]:
    for name in sorted(names):
        function = getattr(module, name, None)
        if isfunction(function) and not name.startswith("_"):
            said = function.__doc__ or f"The function {name}."
            yield as_entry(tool(description=said)(function))
