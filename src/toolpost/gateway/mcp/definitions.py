"""Specs as MCP shows them, made once for each, and what showing them promises.

Above: the lists, and the calls, which answer in the form that was promised. Below: MCP's exporter,
which writes the definition itself. Nothing here imports the SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from toolpost.exporters.mcp import is_wrapped, shown
from toolpost.spec import ToolSpec

NEEDS: Final = "mcp.client"
"""The label that names what a client must be able to do, to call the tool: ``sampling``."""
_HEADER: Final = "x-mcp-header"


class Definition(msgspec.Struct, frozen=True):
    """A tool as it is shown, and what that promises."""

    spec: ToolSpec
    shown: Mapping[str, Any]
    wrapped: bool
    promised: bool
    """There is a schema of the output."""
    headers: bool
    """Some argument has to be repeated in a header."""
    needs: tuple[str, ...]


class Definitions:
    """Made once for each spec."""

    def __init__(self, spec_of: Callable[[str], ToolSpec | None]) -> None:
        self._spec_of = spec_of
        self._made: dict[str, Definition] = {}

    def named(self, name: str) -> Definition | None:
        made, spec = self._made.get(name), self._spec_of(name)
        if made is not None and made.spec is spec:
            return made
        return None if spec is None else self.of(spec)

    def of(self, spec: ToolSpec) -> Definition:
        made = self._made.get(spec.name)
        if made is None or made.spec is not spec:
            made = self._made[spec.name] = definition_of(spec)
        return made

    def forget(self, names: frozenset[str]) -> None:
        """They have changed, or are gone."""
        for name in names:
            self._made.pop(name, None)


def definition_of(spec: ToolSpec) -> Definition:
    needs = tuple(word for word in spec.labels.get(NEEDS, "").replace(",", " ").split())
    headers = _HEADER.encode() in msgspec.json.encode(spec.input_schema)
    promised = spec.output_schema is not None
    return Definition(spec, shown(spec), is_wrapped(spec), promised, headers, needs)
