"""Schemas made whole: with all they refer to, in as much depth as can be checked.

Above: whatever of an operation has a schema. Below: ``translating.py``, and ``schema`` for what a
schema may cost. Each schema that is referred to stands once, under ``$defs``, so that recursion
stays what it is. What would be too long or too dear is told in less depth, with a note: deep down
only the type is left, and the words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolpost.errors import InvalidSchema
from toolpost.schema import verify
from toolpost.sources.openapi.description import Description, Place, Unfit
from toolpost.sources.openapi.translating import DEEP, PREFIX, Notes, Schema, Translator

MOST_REQUEST: Final = 32 * 1024
MOST_ANSWER: Final = 4 * 1024
"""Characters of a schema: models read it, and a thousand tools share a file."""
_MOST_REFUSALS: Final = 50
_DEPTHS: Final = (None, 3, 2, 1, 0)
_LEVELS: Final = (4, 2, 1, 0)


class Schemas:
    """The schemas of one document, as requests or answers are held to them."""

    def __init__(self, description: Description, notes: Notes, *, answers: bool = False) -> None:
        translator = Translator(description, notes, answers=answers)
        self.translated = translator.translated
        self.hidden = translator.hidden
        self._definition = translator.definition
        self._notes = notes
        self._most = MOST_ANSWER if answers else MOST_REQUEST
        self._known: dict[str, tuple[Schema, bool] | InvalidSchema] = {}
        self._refusals = 0

    def whole(self, schema: Schema, at: Place) -> Schema:
        """A schema with all it refers to, in as much depth as can be checked; or ``Unfit``."""
        key = json.dumps(schema)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._checked(schema, len(key))
        if isinstance(known, InvalidSchema):
            raise Unfit(f"its schema cannot be checked: {known.message}", at)
        made, is_all = known
        if not is_all:
            self._notes.add(at, "its schema is told in less depth than the document has")
        return made

    def _checked(self, schema: Schema, size: int) -> tuple[Schema, bool] | InvalidSchema:
        fault = InvalidSchema("it is too long")
        for made, is_all in self._attempts(schema, size):
            if len(json.dumps(made)) <= self._most:
                try:
                    verify(made)
                    return made, is_all
                except InvalidSchema as refused:
                    fault = refused
                    self._refusals += 1
        return fault

    def _attempts(self, schema: Schema, size: int) -> Iterator[tuple[Schema, bool]]:
        """The schema in all its depth, which is told, then in less and less of it."""
        if next(_references(schema), None) is None:
            yield schema, True
        else:
            before = -1
            for depth in _DEPTHS if self._refusals < _MOST_REFUSALS else _DEPTHS[-2:]:
                found = self._gathered(schema, size, depth)
                if found is not None and len(found) != before:
                    before = len(found)
                    yield self._joined(schema, found), depth is None
        for levels in _LEVELS:
            yield self._pruned(schema, levels), False

    def _gathered(self, schema: Schema, size: int, depth: int | None) -> dict[str, Schema] | None:
        """What a schema refers to, up to so many references away; nothing if that is too long."""
        found: dict[str, Schema] = {}
        ahead = dict.fromkeys(_references(schema))
        while ahead and depth != 0:
            after: dict[str, None] = {}
            for name in ahead:
                made = found[name] = self._definition(name)
                size += len(json.dumps(made))
                after |= dict.fromkeys(_references(made))
                if size > self._most:
                    return None
            ahead = {name: None for name in after if name not in found}
            depth = None if depth is None else depth - 1
        return found

    def _joined(self, schema: Schema, found: dict[str, Schema]) -> Schema:
        """The schema with these definitions; other references are cut off."""
        made: Schema = self._cut(schema, found)
        if found:
            made["$defs"] = {name: self._cut(one, found) for name, one in sorted(found.items())}
        return made

    def _cut(self, schema: Any, found: Mapping[str, Schema]) -> Any:
        if isinstance(schema, list):
            return [self._cut(one, found) for one in schema]
        if not isinstance(schema, dict):
            return schema
        name = _reference_of(schema)
        if name is not None and name not in found:
            return self._stub(schema)
        return {key: self._cut(one, found) for key, one in schema.items()}

    def _stub(self, schema: Schema) -> Schema:
        """No more of a schema than which type it is of, and what is said of it."""
        words = schema.get("description")
        if (name := _reference_of(schema)) is not None:
            try:
                schema = self._definition(name)
            except Unfit:
                schema = {}
        stub = {"type": schema["type"]} if "type" in schema else {}
        words = words or schema.get("description")
        return {**stub, "description": words} if words else stub

    def _pruned(self, schema: Schema, levels: int) -> Schema:
        if levels < 0 or _reference_of(schema) is not None:
            return self._stub(schema)
        made: Schema = {}
        for key, one in schema.items():
            if key == "properties":
                made[key] = {name: self._pruned(inner, levels - 1) for name, inner in one.items()}
            elif key in ("items", "additionalProperties") and isinstance(one, dict):
                if "prefixItems" not in schema and "patternProperties" not in schema:
                    made[key] = self._pruned(one, levels - 1)
            elif key not in DEEP:
                made[key] = one
        if schema.get("additionalProperties") is False and "patternProperties" not in schema:
            made["additionalProperties"] = False
        return made


def _reference_of(schema: Any) -> str | None:
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if isinstance(reference, str) and reference.startswith(PREFIX):
        return reference.removeprefix(PREFIX)
    return None


def _references(schema: Any) -> Iterator[str]:
    todo = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if (name := _reference_of(one)) is not None:
                yield name
            todo.extend(one.values())
        elif isinstance(one, list):
            todo.extend(one)
