"""The binding of a Python tool: where its function is. Verified when its spec is loaded.

Above: ``backend.py``, and whoever loads specs (``verify``). It imports no tool: whether the module
and the function are there is found out where they run, and asked by ``toolpost doctor``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolpost.errors import ConfigError, InvalidSpec
from toolpost.options import Options, options_from
from toolpost.spec import Isolation, ToolSpec


class Binding(Options, frozen=True):
    """Where a spec's function is, which variables of the environment a worker may see, which
    folders one in a sandbox may use, and what its parameters of type ``Given`` are.
    """

    module: str
    function: str
    env: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    main: str | None = None
    given: Mapping[str, Any] = {}


def binding_of(spec: ToolSpec) -> Binding:
    return options_from(spec.binding, Binding, f"the binding of {spec.name!r}")


def isolation_of(spec: ToolSpec) -> Isolation:
    """Where a tool runs that is all data."""
    return spec.isolation or ("sandbox" if spec.tier >= 3 else "process")


def confined(spec: ToolSpec) -> bool:
    """Whether such a tool is run in a sandbox."""
    return isolation_of(spec) == "sandbox"


def verify(spec: ToolSpec) -> None:
    """What is wrong with a binding at first sight; without one a tool may still be described."""
    if spec.binding:
        try:
            binding_of(spec)
        except ConfigError as fault:
            raise InvalidSpec(fault.message, at=("binding", *fault.at)) from None
