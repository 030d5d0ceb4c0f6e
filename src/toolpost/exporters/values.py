"""What an export is, as data, and what an exporter has to be: a rule for names and a function.

Above: ``export.py`` and the forms. Below: specs. Nothing here knows a vendor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from toolpost.exporters.names import Rule
from toolpost.exporters.nulls import without_nulls
from toolpost.spec import ToolSpec


class Note(msgspec.Struct, frozen=True):
    """What was rewritten, or why a tool was left out.

    ``where`` is a JSON pointer into the input schema, or the field of the spec; where it is empty,
    the whole of the tool is meant; where ``tool`` is empty, the whole of the export.
    """

    tool: str
    where: str
    what: str

    def __str__(self) -> str:
        about = " ".join(part for part in (self.tool, self.where) if part)
        return f"{about}: {self.what}" if about else self.what


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """Tools in a vendor's form, and what is needed to understand the answers."""

    form: str
    tools: tuple[dict[str, Any], ...] = ()
    """In the order of the specs; they go into a request as they are."""
    names: Mapping[str, str] = {}
    """Name at the vendor → name of the tool."""
    notes: tuple[Note, ...] = ()
    left_out: tuple[Note, ...] = ()
    tokens: Mapping[str, int] = {}
    """Name of the tool → how many tokens it takes in a request, roughly."""
    schemas: Mapping[str, dict[str, Any]] = {}
    """Name of the tool → its own input schema, where strict ones were asked for."""
    keys: Mapping[str, Mapping[str, str]] = {}
    """Name of the tool → parameter at the vendor → its own name, where that is another."""

    @property
    def tokens_in_all(self) -> int:
        return sum(self.tokens.values())

    def data(self) -> dict[str, Any]:
        """All of it as plain data, as doors show it."""
        return {
            "format": self.form,
            "tools": list(self.tools),
            "names": dict(self.names),
            "keys": {name: dict(keys) for name, keys in self.keys.items()},
            "notes": [msgspec.structs.asdict(note) for note in self.notes],
            "left_out": [msgspec.structs.asdict(note) for note in self.left_out],
            "tokens": dict(self.tokens),
            "tokens_in_all": self.tokens_in_all,
        }

    def name_of(self, vendor_name: str) -> str:
        """The tool that a model means; a name that was never exported stays as it is."""
        return self.names.get(vendor_name, vendor_name)

    def arguments_of(self, vendor_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What the tool gets: under its own names of parameters, and without the nulls that
        stand, in strict mode, for "left out".
        """
        tool = self.name_of(vendor_name)
        arguments = own(arguments, self.keys.get(tool))
        schema = self.schemas.get(tool)
        return arguments if schema is None else without_nulls(schema, arguments)


def own(arguments: dict[str, Any], keys: Mapping[str, str] | None) -> dict[str, Any]:
    """Arguments under the tool's own names."""
    return {keys.get(key, key): one for key, one in arguments.items()} if keys else arguments


class Unexportable(Exception):
    """This tool cannot be said in this form; it is left out, for the reason given."""


class Tell(Protocol):
    """Note a rewrite: a JSON pointer or a field, and what was done there."""

    def __call__(self, where: str, what: str) -> None: ...


class Write(Protocol):
    """One tool, under its name at the vendor."""

    def __call__(
        self, spec: ToolSpec, name: str, *, strict: bool, tell: Tell
    ) -> dict[str, Any]: ...


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """An exporter, ours or anybody's: what stands at an entry point in ``toolpost.exporters``."""

    write: Write
    names: Rule = Rule()
    strict: bool = False
    """Whether the vendor knows strict schemas; who does not is never asked for one."""
    most: int | None = None
    """How many tools the vendor takes in a request."""
    keys: Callable[[ToolSpec], Mapping[str, str]] | None = None
    """Of a vendor with a rule for the names of parameters: name → spelling, where it is another."""
