"""The binding of a Python tool: where its function is. Verified when its spec is loaded.

Above: ``backend.py``, and whoever loads specs (``verify``). It imports no tool: whether the module
and the function are there is found out where they run, and asked by ``toolpost doctor``.
"""

from __future__ import annotations

from toolpost.errors import ConfigError, InvalidSpec
from toolpost.options import Options, options_from
from toolpost.spec import ToolSpec


class Binding(Options, frozen=True):
    """Where a spec's function is, and which variables of the environment a worker may see."""

    module: str
    function: str
    env: tuple[str, ...] = ()
    main: str | None = None


def binding_of(spec: ToolSpec) -> Binding:
    return options_from(spec.binding, Binding, f"the binding of {spec.name!r}")


def verify(spec: ToolSpec) -> None:
    """What is wrong with a binding at first sight; without one a tool may still be described."""
    if spec.binding:
        try:
            binding_of(spec)
        except ConfigError as fault:
            raise InvalidSpec(fault.message, at=("binding", *fault.at)) from None
