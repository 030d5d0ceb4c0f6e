"""What is looked at: one tool as its author wrote it, and as toolpost takes it.

Above: the items of the list. Below: specs and the registry's way to make one of anything. What is
foreign is kept as it came, with every character of it: what toolpost takes out is a finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from toolpost.errors import InvalidSpec
from toolpost.plain import pointer
from toolpost.registry import Entry, Item, as_entry
from toolpost.spec import Effects, ToolSpec
from toolpost.verified import verified
from toolpost.wording import short

Form = Literal["spec", "openapi", "mcp"]
Path = tuple[str | int, ...]

_MOST_TEXTS: Final = 20_000
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_.-]")
_OF_MCP: Final = {
    "input_schema": "inputSchema", "output_schema": "outputSchema", "effects": "annotations",
}  # fmt: skip
_NOT_SHOWN: Final = ("binding", "labels", "execution", "_meta", "icons")
"""Of a definition: what no model reads."""


class Fault(msgspec.Struct, frozen=True):
    """Why a definition is no tool, and where it says so; ``ours`` is what toolpost cannot do."""

    message: str
    at: Path = ()
    ours: bool = False

    @property
    def of_schema(self) -> bool:
        return self.at[:1] in (("input_schema",), ("output_schema",))


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """One tool. ``spec`` is what toolpost makes of it, unless there is a ``fault``; ``said`` names
    the fields that its author filled in, where that can be known; ``entry`` is what can be run.
    """

    name: str
    form: Form
    written: Mapping[str, Any]
    origin: str = ""
    spec: ToolSpec | None = None
    fault: Fault | None = None
    said: frozenset[str] | None = None
    entry: Entry | None = None

    def key(self, field: str) -> str:
        """What the author's form calls a field of a spec."""
        return _OF_MCP.get(field, field) if self.form == "mcp" else field

    def at(self, field: str, *more: str | int) -> str:
        return pointer((self.key(field), *more))

    def get(self, field: str) -> Any:
        return self.written.get(self.key(field))

    @property
    def description(self) -> str:
        text = self.get("description")
        return text if isinstance(text, str) else ""

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """What is said of the arguments; empty where that cannot be used."""
        return {} if self.spec is None else self.spec.input_schema

    @property
    def hints(self) -> Mapping[str, Any]:
        """The annotations of an MCP tool."""
        given = self.written.get("annotations") if self.form == "mcp" else None
        return given if isinstance(given, Mapping) else {}

    @property
    def effects(self) -> Effects | None:
        """What the author says it does to the world; ``None`` where nothing is said."""
        if self.form != "mcp":
            return None if self.spec is None else self.spec.effects
        if self.hints.get("readOnlyHint") is True:
            return "read"
        if self.hints.get("idempotentHint") is True:
            return "idempotent"
        return "once" if self.hints.get("readOnlyHint") is False else None

    def texts(self) -> Iterator[tuple[Path, str]]:
        """Every text that a model may come to read, keys among them, each with its place."""
        todo: list[tuple[Path, Any]] = [
            ((key,), value) for key, value in self.written.items() if key not in _NOT_SHOWN
        ]
        left = _MOST_TEXTS
        while todo and left:
            at, value = todo.pop()
            left -= 1
            if isinstance(value, str):
                yield at, value
            elif isinstance(value, Mapping):
                for key, inner in value.items():
                    yield (*at, str(key)), str(key)
                    todo.append(((*at, str(key)), inner))
            elif isinstance(value, list | tuple):
                todo += (((*at, index), inner) for index, inner in enumerate(value))


def subject_of(item: Item | Subject, *, origin: str = "", form: Form = "spec") -> Subject:
    """Of a function, a ``Tool``, a spec or an entry; one that cannot be registered has a fault."""
    if isinstance(item, Subject):
        return item
    try:
        entry = as_entry(item)
    except InvalidSpec as fault:
        name = getattr(getattr(item, "spec", None) or item, "name", None)
        named = str(name or getattr(item, "__name__", "tool"))
        written = item.to_dict() if isinstance(item, ToolSpec) else {}
        return faulty(named, fault, written=written, origin=origin)
    spec = entry.spec
    said = item if isinstance(item, ToolSpec) else getattr(entry.target, "spec", spec)
    written = said.to_dict() if isinstance(said, ToolSpec) else spec.to_dict()
    return Subject(
        name=spec.name, form=form, written=written, origin=origin, spec=spec, entry=entry
    )


def faulty(
    name: str, fault: InvalidSpec, *, written: Mapping[str, Any], origin: str, form: Form = "spec"
) -> Subject:
    """A definition that is no tool."""
    return Subject(
        name=name,
        form=form,
        written=written,
        origin=origin,
        fault=Fault(fault.message, tuple(fault.at)),
    )


def subject_of_definition(
    definition: Mapping[str, Any], *, origin: str = "", entry: Entry | None = None
) -> Subject:
    """Of a tool as an MCP server describes it. ``entry`` is that tool as it can be called."""
    name = str(definition.get("name") or "")
    about = Subject(name=name, form="mcp", written=definition, origin=origin, entry=entry)
    legal = _ILLEGAL.sub("_", name)[:128]
    title = definition.get("title") or about.hints.get("title")
    try:
        spec = ToolSpec(
            name=legal if legal[:1].isalnum() else f"_{legal}"[:128],
            description=about.description.strip() or "It has none.",
            kind="mcp",
            title=title if isinstance(title, str) else None,
            input_schema=_schema(definition, "inputSchema", needed=True),
            output_schema=_schema(definition, "outputSchema", needed=False),
            effects=about.effects or "once",
            tier=2,
        )
        return msgspec.structs.replace(about, spec=verified(spec))
    except InvalidSpec as fault:
        why = Fault(fault.message, tuple(fault.at))
        return msgspec.structs.replace(about, fault=why)


def _schema(definition: Mapping[str, Any], key: str, *, needed: bool) -> Any:
    schema = definition.get(key)
    if isinstance(schema, Mapping) or (schema is None and not needed):
        return schema
    ours = {theirs: field for field, theirs in _OF_MCP.items()}[key]
    what = "is missing" if schema is None else f"is no JSON Schema: {short(schema)}"
    raise InvalidSpec(f"{key} {what}", at=(ours,))
