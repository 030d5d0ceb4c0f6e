"""What comes back: the output schema of a tool, and the type that is asked for.

Above: ``converting.py``. Below: ``schemas.py``. Only where every good answer is JSON with a schema
can an output be held against one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolpost.sources.openapi.description import Description, Operation, Place, mapping_in
from toolpost.sources.openapi.schemas import Schemas
from toolpost.sources.openapi.translating import Schema

_GOOD: Final = re.compile(r"2(?:\d\d|XX)", re.IGNORECASE)
_JSON: Final = re.compile(r"(?:application/(?:[\w.+-]+\+)?json|text/json)(?:;.*)?", re.IGNORECASE)
_SENDABLE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?:\s*;\s*[\w-]+=[\w.+-]+)*", re.ASCII)


class Answers(NamedTuple):
    """``accept`` is the type to ask for, ``schema`` what its data is held against."""

    accept: str | None = None
    schema: Schema | None = None


def answers_of(
    description: Description, operation: Operation, schemas: Schemas, *, wanted: bool
) -> Answers:
    """``wanted``: whether outputs are to be held against anything."""
    responses = mapping_in(operation.written, "responses", operation.at)
    at = (*operation.at, "responses")
    good = [status for status in responses if _GOOD.fullmatch(status)]
    if not good and "default" in responses:
        good = ["default"]
    accept: str | None = None
    found: list[tuple[Any, Place]] = []
    complete = bool(good)
    for status in good:
        written, there = description.followed(responses[status], (*at, status))
        content = mapping_in(written, "content", there)
        kind = next((one for one in content if _JSON.fullmatch(one)), None)
        if kind is None:
            complete = False
            continue
        if accept is None and _SENDABLE.fullmatch(kind):
            accept = kind
        media = content[kind]
        if isinstance(media, Mapping) and "schema" in media:
            found.append((media["schema"], (*there, "content", kind, "schema")))
        else:
            complete = False
    if not wanted or not complete or operation.method == "head":
        return Answers(accept)
    return Answers(accept, _joined(schemas, found, at))


def _joined(schemas: Schemas, found: list[tuple[Any, Place]], at: Place) -> Schema | None:
    """One schema for all good answers; nothing where it would say nothing."""
    translated: list[Schema] = []
    for written, there in found:
        one = schemas.translated(written, there)
        if not one.keys() - {"description"}:
            return None
        if one not in translated:
            translated.append(one)
    whole = schemas.whole(translated[0] if len(translated) == 1 else {"anyOf": translated}, at)
    return whole if whole.keys() - {"description"} else None
