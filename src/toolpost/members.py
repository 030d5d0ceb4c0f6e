"""The tools that a Python module holds."""

from __future__ import annotations

from inspect import isclass
from types import ModuleType

from toolpost.contracts import Registered
from toolpost.spec import ToolSpec


def tools_in(module: ModuleType) -> list[Registered]:
    """What a module defines itself; what it imported from elsewhere stays with its owner.

    Of a ``Tool`` class that the module also makes an instance of, the instance counts.
    """
    everything = {
        id(value): value for value in vars(module).values()
    }  # a second name is no second tool
    found = [
        value
        for value in everything.values()
        if isinstance(getattr(value, "spec", None), ToolSpec)
        and getattr(value, "__module__", None) == module.__name__
    ]
    made = {type(value) for value in found if not isclass(value)}
    return [value for value in found if not (isclass(value) and value in made)]
