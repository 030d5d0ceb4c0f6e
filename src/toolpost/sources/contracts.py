"""The tools of a Python module, whichever contract they were written for.

``members`` finds our own tools; each bridge finds those of its contract (``tools_in``). A bridge is
asked if something in this process has loaded it. The bridges that nothing has loaded are asked only
where no tool was found, because some of them recognize a tool by its methods alone. A framework
that the module has not loaded itself is never loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from importlib import import_module
from types import ModuleType
from typing import Final

from toolpost.errors import MissingPart, SetupError, SourceError
from toolpost.members import tools_in
from toolpost.registry import Entry, Item, as_entry

_BRIDGES: Final = "toolpost.bridges."
CONTRACTS: Final = ("forge", "faultmaven", "nachos", "unified", "agentic")
_FRAMEWORKS: Final[Mapping[str, str]] = {"langchain": "langchain_core"}
"""Bridge → the package without which there is nothing for it to find."""


def entries_of(module: ModuleType, *, known: Collection[int] = ()) -> list[Entry]:
    """The tools of a module, each once. ``known`` are the ids of objects to leave out: those that
    another module has already given. A tool that cannot be made is a ``SourceError``.
    """
    items: list[Item] = [*tools_in(module)]
    namespace = {name: value for name, value in vars(module).items() if id(value) not in known}
    namespace["__name__"] = module.__name__
    items += [one for one in namespace.values() if isinstance(one, Entry)]
    for name in (*CONTRACTS, *_FRAMEWORKS):
        if f"{_BRIDGES}{name}" in sys.modules or _FRAMEWORKS.get(name) in sys.modules:
            items += _of_contract(name, namespace)
    for name in () if items else CONTRACTS:
        items += _of_contract(name, namespace)
    entries: dict[str, list[Entry]] = {}
    for entry in map(as_entry, items):
        same_name = entries.setdefault(entry.spec.name, [])
        if entry not in same_name:  # what a bridge makes may be a tool of ours as well
            same_name.append(entry)
    return [entry for same_name in entries.values() for entry in same_name]


def _of_contract(name: str, namespace: Mapping[str, object]) -> list[Item]:
    try:
        bridge = import_module(f"{_BRIDGES}{name}")
    except (ModuleNotFoundError, MissingPart):  # without its extra the module cannot need it
        return []
    find = getattr(bridge, "tools_in", None)
    if find is None:
        return []
    try:
        return list(find(namespace))
    except SetupError:
        raise
    except Exception as exc:  # constructors and properties of a tool are foreign code
        raise SourceError(
            f"{namespace['__name__']}: a tool of the {name} contract cannot be made: "
            f"{type(exc).__name__}: {exc}"
        ) from exc
