"""What a tool is in the words of the unified executor's contract: ``ToolSpec``, and no code.

Above: the registry and the executor of this bridge. Below: our own spec, and ``sources.specs``,
which reads the same spelling from files. Both ways nothing is lost: what this contract has no word
for stands in ``options``, by the name that our own spec has for it.

It refuses to know how a tool is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from enum import StrEnum
from typing import Any, Final

import msgspec

from toolpost.errors import InvalidSpec
from toolpost.plugins import verify_binding
from toolpost.sources.specs import own_spelling
from toolpost.spec import ToolSpec as OwnSpec
from toolpost.spec import spec_from
from toolpost.verified import verified
from toolpost.wording import explained

DANGEROUS: Final = 3
_SAID_IN_METADATA: Final = ("version", "category", "tags", "timeout", "requires_approval")


class ToolType(StrEnum):
    """What runs a tool. ``SANDBOX`` and ``SHELL`` are one; a type of your own is any other text."""

    PYTHON = "python"
    MCP = "mcp"
    SANDBOX = "sandbox"
    SHELL = "shell"
    HTTP = "http"
    CUSTOM = "custom"


class ToolMetadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``permissions`` are roles, one of which a caller must have; or ``roles`` and ``agents``.
    ``is_dangerous`` means tier 3.
    """

    version: str | None = None
    category: str = "other"
    permissions: tuple[str, ...] | dict[str, Any] = ()
    is_dangerous: bool = False
    requires_approval: bool = False
    tags: tuple[str, ...] = ()
    timeout: float | None = None

    def __post_init__(self) -> None:
        for field in ("permissions", "tags"):
            if isinstance(value := getattr(self, field), list):
                msgspec.structs.force_setattr(self, field, tuple(value))

    def to_dict(self) -> dict[str, Any]:
        """What differs from the defaults, as a file would say it."""
        usual = _USUAL
        said = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in said
            if value != getattr(usual, name)
        }


_USUAL: Final = ToolMetadata()


def _metadata(said: Mapping[str, Any]) -> ToolMetadata:
    try:
        return msgspec.convert(dict(said), ToolMetadata)
    except msgspec.ValidationError as fault:
        what, at = explained(fault, ToolMetadata)
        raise InvalidSpec(f"metadata: {what}", at=("metadata", *at)) from None


def _no_parameters() -> dict[str, Any]:
    return {"type": "object", "properties": {}, "additionalProperties": False}


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One tool, as data. It is checked when it is made, its schemas when it is registered, and it
    keeps a copy of what it was given.
    """

    name: str
    description: str
    tool_type: str = ToolType.PYTHON
    input_schema: dict[str, Any] = msgspec.field(default_factory=_no_parameters)
    output_schema: dict[str, Any] | bool | None = None
    implementation_config: dict[str, Any] = {}
    metadata: ToolMetadata = _USUAL
    options: dict[str, Any] = {}
    """More fields of our own spec: ``effects``, ``limits``, ``egress``, ``isolation`` …"""

    def __post_init__(self) -> None:
        change = msgspec.structs.force_setattr
        if isinstance(self.metadata, Mapping):  # as a file has it
            change(self, "metadata", _metadata(self.metadata))
        if self.tool_type in ToolType._value2member_map_:
            change(self, "tool_type", ToolType(self.tool_type))
        for field in ("input_schema", "output_schema", "implementation_config", "options"):
            change(self, field, deepcopy(getattr(self, field)))
        self._own()

    def to_dict(self) -> dict[str, Any]:
        """As a spec file has it."""
        said: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "tool_type": str(self.tool_type),
            "input_schema": deepcopy(self.input_schema),
            "implementation_config": deepcopy(self.implementation_config),
            "metadata": self.metadata.to_dict(),
            **deepcopy(self.options),
        }
        if self.output_schema is not None:
            said["output_schema"] = deepcopy(self.output_schema)
        return said

    def public(self) -> dict[str, Any]:
        """What a planner sees: everything but the implementation."""
        return {k: v for k, v in self.to_dict().items() if k != "implementation_config"}

    def to_spec(self) -> OwnSpec:
        """The same tool as our own spec; what is wrong with it is an ``InvalidSpec``."""
        spec = verified(self._own())
        verify_binding(spec)
        return spec

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolSpec:
        """From what a spec file says of one tool, in this spelling or in our own."""
        return from_spec(spec_from(own_spelling(data)))

    def _own(self) -> OwnSpec:
        return spec_from(own_spelling(self.to_dict()))

    def __repr__(self) -> str:
        return f"<ToolSpec {self.name} ({self.tool_type})>"


def from_spec(spec: OwnSpec) -> ToolSpec:
    """Our own spec in the words of this contract."""
    said = spec.to_dict()
    metadata: dict[str, Any] = {name: said.pop(name) for name in _SAID_IN_METADATA if name in said}
    permissions = said.pop("permissions", {})
    metadata["permissions"] = (
        permissions if "agents" in permissions else tuple(permissions.get("roles", ()))
    )
    metadata["is_dangerous"] = spec.tier >= DANGEROUS
    if spec.tier == DANGEROUS:
        said.pop("tier")
    binding = said.pop("binding", {})
    if spec.kind == ToolType.PYTHON and "function" in binding:
        binding = {("function_name" if k == "function" else k): v for k, v in binding.items()}
    fields = {name: said.pop(name) for name in ("name", "description")}
    for name in ("kind", "input_schema", "output_schema"):
        said.pop(name, None)
    return ToolSpec(
        **fields,
        tool_type=spec.kind,
        input_schema=spec.input_schema,
        output_schema=spec.output_schema,
        implementation_config=binding,
        metadata=ToolMetadata(**metadata),
        options=said,
    )


def kind_of(tool_type: str) -> str:
    """The kind of tool that we call so."""
    return "shell" if tool_type == ToolType.SANDBOX else str(tool_type)
