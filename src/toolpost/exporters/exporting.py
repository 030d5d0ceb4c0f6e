"""``export``: specs in, a vendor's tools out, with everything that was changed on the way.

Above: doors and bridges. Below: the forms, by name, each in a file of its own or in somebody's
package (entry point ``toolpost.exporters``). No vendor's package is imported here or below.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from toolpost.exporters.names import named
from toolpost.exporters.tokens import estimate
from toolpost.exporters.values import Export, Form, Note, Unexportable
from toolpost.plugins import load
from toolpost.spec import ToolSpec

FORMATS: Final = ("openai", "openai-responses", "anthropic", "mcp", "gemini", "langchain")
"""The forms that come with toolpost."""


def export(specs: Iterable[ToolSpec], form: str, *, strict: bool = False) -> Export:
    """The tools in a vendor's form; a form that is not installed is a ``MissingPart``.

    What the vendor cannot express is rewritten and noted; a tool that cannot be said at all is
    left out, with the reason. ``strict`` asks for schemas that the vendor holds a model to.
    """
    writer: Form = load("exporters", form)
    wanted = list(specs)
    names = named((spec.name for spec in wanted), writer.names)
    made = _Made()
    if strict and not writer.strict:
        made.notes.append(Note("", "", f"{form} has no strict mode: nothing is strict"))
    for spec in wanted:
        made.add(spec, names[spec.name], writer=writer, strict=strict and writer.strict)
    if writer.most is not None and len(made.tools) > writer.most:
        most = f"{form} takes {writer.most} tools in a request, and here are {len(made.tools)}"
        made.notes.append(Note("", "", most))
    return Export(
        form=form,
        tools=tuple(made.tools),
        names=made.names,
        notes=tuple(made.notes),
        left_out=tuple(made.left_out),
        tokens=made.tokens,
        schemas=made.schemas,
        keys=made.keys,
    )


class _Made:
    """What has been written so far."""

    def __init__(self) -> None:
        self.tools: list[dict[str, Any]] = []
        self.names: dict[str, str] = {}
        self.notes: list[Note] = []
        self.left_out: list[Note] = []
        self.tokens: dict[str, int] = {}
        self.schemas: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, str]] = {}

    def add(self, spec: ToolSpec, name: str, *, writer: Form, strict: bool) -> None:
        notes: list[Note] = []

        def tell(where: str, what: str) -> None:
            notes.append(Note(spec.name, where, what))

        if spec.name in self.tokens:
            self.left_out.append(Note(spec.name, "name", "there is another tool of this name"))
            return
        schema: Any = spec.input_schema  # a spec can be made of anything, and is verified later
        if not isinstance(schema, dict):
            what = "is no object: it has to be one, that says what the arguments are"
            self.left_out.append(Note(spec.name, "input_schema", what))
            return
        if not writer.names.allows(name):
            self.left_out.append(Note(spec.name, "name", "cannot be spelled there"))
            return
        try:
            tool = writer.write(spec, name, strict=strict, tell=tell)
            keys = {} if writer.keys is None else writer.keys(spec)
            tokens = estimate(tool)
        except Unexportable as reason:
            self.left_out.append(Note(spec.name, "", str(reason)))
            return
        except Exception as exc:  # noqa: BLE001 - an exporter may be anybody's: one tool, not all
            self.left_out.append(Note(spec.name, "", f"{type(exc).__name__}: {exc}"))
            return
        if name != spec.name:
            self.notes.append(Note(spec.name, "name", f"is {name} there"))
        self.notes += notes
        self.tools.append(tool)
        self.names[name] = spec.name
        self.tokens[spec.name] = tokens
        if strict:
            self.schemas[spec.name] = spec.input_schema
        if keys:
            self.keys[spec.name] = {spelling: key for key, spelling in keys.items()}
