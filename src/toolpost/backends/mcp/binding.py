"""The binding of an MCP tool: which server of the config, and which of its tools.

Above: ``backend.py``, and whoever loads specs (``verify``). Below: nothing. It refuses to know the
servers: whether there is one of that name is looked up when the tool is bound. A spec names a
server and never a program: what may be started is for the config to say.
"""

from __future__ import annotations

from toolpost.errors import ConfigError, InvalidSpec
from toolpost.options import Options, options_from
from toolpost.spec import ToolSpec


class McpBinding(Options, frozen=True):
    """``pin`` is the digest of the definition that the server gave: where there is one, the tool
    is called as long as the server still gives the same, and no longer.
    """

    server: str
    tool: str
    pin: str | None = None


def verify(spec: ToolSpec) -> None:
    """Refuse what can be seen to be wrong without knowing the servers."""
    binding_of(spec)


def binding_of(spec: ToolSpec) -> McpBinding:
    """The binding of a spec, or ``InvalidSpec`` that knows its place."""
    if spec.isolation is not None:
        raise InvalidSpec(
            f"{spec.name!r}: how an MCP server is isolated is said in the config, at the server",
            at=("isolation",),
        )
    try:
        return options_from(spec.binding, McpBinding, f"the binding of {spec.name!r}")
    except ConfigError as fault:
        raise InvalidSpec(fault.message, at=("binding", *fault.at)) from None
