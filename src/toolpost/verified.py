"""A spec that may be registered: its schemas verified, and nothing in its texts that nobody sees.

Whoever takes specs in (``create_tool``, the registry, sources) calls ``verified``: it is the one
place that every spec passes before a model reads it. It adds the tool's name and the place inside
the spec to what is wrong.

Texts that only describe (descriptions, titles, tags, examples) lose the characters that a person
does not see and a model reads: escapes, bidi controls, tags, characters without a width. The log
says so. In what is data for the tool (names of parameters, values of an enum, defaults) such
characters cannot be taken out without changing what is accepted, and the tool is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from toolpost.characters import stripped
from toolpost.errors import InvalidSchema, InvalidSpec
from toolpost.schema import verify, verify_input
from toolpost.spec import ToolSpec

Place = tuple[str | int, ...]
_log = logging.getLogger("toolpost.sources")
_TEXTS: Final = ("title", "description", "version", "category", "tags", "examples", "labels")
_SCHEMAS: Final = ("input_schema", "output_schema")
_NAMED: Final = frozenset(("properties", "$defs", "definitions", "dependentSchemas"))
"""Keywords of a schema whose value is a mapping from names to schemas."""
_DATA: Final = frozenset(("enum", "const", "default", "required", "dependentRequired"))
_EXACT: Final = frozenset(("pattern", "patternProperties", "$ref", "$dynamicRef", "$id", "$schema"))
"""A pattern may well name a control character: what it means is not what it looks like anyway."""


def verified(spec: ToolSpec, *, where: Callable[[Place], str] | None = None) -> ToolSpec:
    """The spec without hidden characters and with its schemas in the spelling of their draft, or
    ``InvalidSchema`` or ``InvalidSpec``. ``where`` names the line of a place in the spec.
    """
    try:
        at = "input_schema"
        takes = verify_input(spec.input_schema)
        at = "output_schema"
        gives = None if spec.output_schema is None else verify(spec.output_schema)
    except InvalidSchema as fault:
        raise InvalidSchema(f"{at} of {spec.name!r}: {fault.message}", at=(at, *fault.at)) from None
    if takes is not spec.input_schema or gives is not spec.output_schema:
        spec = msgspec.structs.replace(spec, input_schema=takes, output_schema=gives)
    return without_hidden(spec, where=where)


def without_hidden(spec: ToolSpec, *, where: Callable[[Place], str] | None = None) -> ToolSpec:
    """The same spec if a person sees all that it says; the log tells what was taken out."""
    found: list[Place] = []
    changed: dict[str, Any] = {}
    for field in _TEXTS:
        value = getattr(spec, field)
        if (cleaned := _text(value, (field,), found)) is not value:
            changed[field] = cleaned
    for field in _SCHEMAS:
        value = getattr(spec, field)
        if (cleaned := _Schema(spec.name, found).cleaned(value, (field,))) is not value:
            changed[field] = cleaned
    if not changed:
        return spec
    for place in found:
        line = "" if where is None else f"{where(place)}: "
        _log.warning(
            "%s%s of the tool %r held characters that nobody sees; they were taken out",
            line,
            ".".join(map(str, place)),
            spec.name,
        )
    made: ToolSpec = msgspec.structs.replace(spec, **changed)
    return made


def _is_hidden(text: str) -> bool:
    """Whether it holds more than a person sees; how its lines end does not matter."""
    if text.isascii() and text.isprintable():
        return False
    return stripped(text) != text.replace("\r\n", "\n").replace("\r", "\n")


def _text(value: Any, at: Place, found: list[Place]) -> Any:
    """A text, or the texts in a value, without what is hidden; the same object if nothing is."""
    if isinstance(value, str):
        if not _is_hidden(value):
            return value
        found.append(at)
        return stripped(value)
    if isinstance(value, dict):
        pairs = [(_text(k, (*at, k), found), _text(v, (*at, k), found)) for k, v in value.items()]
        same = all(a is c and b is d for (a, b), (c, d) in zip(pairs, value.items(), strict=True))
        return value if same else dict(pairs)
    if isinstance(value, list | tuple):
        made = [_text(one, (*at, index), found) for index, one in enumerate(value)]
        same = all(a is b for a, b in zip(made, value, strict=True))
        return value if same else type(value)(made)
    return value


class _Schema:
    """The schemas of one tool, read keyword by keyword."""

    def __init__(self, tool: str, found: list[Place]) -> None:
        self._tool, self._found = tool, found

    def cleaned(self, schema: Any, at: Place) -> Any:
        if isinstance(schema, list):
            made = [self.cleaned(one, (*at, index)) for index, one in enumerate(schema)]
            return schema if all(a is b for a, b in zip(made, schema, strict=True)) else made
        if not isinstance(schema, dict):
            return schema
        new = {key: self._keyword(key, value, (*at, key)) for key, value in schema.items()}
        return schema if all(new[key] is value for key, value in schema.items()) else new

    def _keyword(self, key: str, value: Any, at: Place) -> Any:
        self._refuse(key, at)
        if key in _NAMED and isinstance(value, dict):
            for name in value:
                self._refuse(name, (*at, name))
            new = {name: self.cleaned(one, (*at, name)) for name, one in value.items()}
            return value if all(new[name] is one for name, one in value.items()) else new
        if key in _DATA:
            self._refuse(value, at)
            return value
        if key in _EXACT and not isinstance(value, dict):
            return value
        if key == "examples" or isinstance(value, str):
            return _text(value, at, self._found)
        return self.cleaned(value, at)

    def _refuse(self, value: Any, at: Place) -> None:
        places: list[Place] = []
        _text(value, at, places)
        if places:
            raise InvalidSpec(
                f"{'.'.join(map(str, at[:-1]))} of {self._tool!r} has a name or a value with "
                "characters that nobody sees: write only what a person can see",
                at=at,
            )
