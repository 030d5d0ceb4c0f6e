"""The body of a request: its fields as arguments where that is plain, else one argument for all.

Above: ``converting.py``. Below: ``arguments.py``, ``schemas.py``. An object whose fields are all
there is to it becomes arguments side by side with the parameters; a list, a choice or an object
with fields that nobody has named is the argument ``body``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolpost.sources.openapi.arguments import Arguments, entry
from toolpost.sources.openapi.description import Description, Object, Operation, Place, Unfit
from toolpost.sources.openapi.schemas import Schemas
from toolpost.sources.openapi.translating import Schema
from toolpost.wording import short

_KINDS: Final = (
    ("json", re.compile(r"application/json|text/json")),
    ("json", re.compile(r"application/[\w.+-]+\+json")),
    ("form", re.compile(r"application/x-www-form-urlencoded")),
    ("multipart", re.compile(r"multipart/form-data")),
    ("json", re.compile(r"\*/\*|application/\*")),
    ("text", re.compile(r"text/[\w.+-]+|application/(?:[\w.+-]*(?:xml|yaml|ndjson|text|graphql))")),
    ("bytes", re.compile(r"(?:application|audio|font|image|message|video)/[\w.+-]+")),
)
"""Kind of body ← media type, the best first."""
_JSON: Final = "application/json"
_FORM_STYLES: Final = ("form", "spaceDelimited", "pipeDelimited", "deepObject")
_MEDIA: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+", re.ASCII)
_MORE_THAN_FIELDS: Final = frozenset(
    (
        "anyOf", "oneOf", "not", "if", "then", "else", "patternProperties", "minProperties",
        "maxProperties", "propertyNames", "dependentRequired", "dependentSchemas", "enum", "const",
        "unevaluatedProperties", "discriminator", "items",
    )
)  # fmt: skip
_MOST_BRANCHES: Final = 100


class Fields(NamedTuple):
    """The fields of an object: how each is written and where, and which have to be there."""

    written: dict[str, tuple[Any, Place]]
    required: frozenset[str]


def body_of(
    description: Description, operation: Operation, schemas: Schemas, arguments: Arguments
) -> dict[str, Any] | None:
    """The ``body`` of a binding; its arguments are added to the others."""
    given = operation.written.get("requestBody")
    if given is None:
        return None
    written, at = description.followed(given, (*operation.at, "requestBody"))
    content = written.get("content")
    if not isinstance(content, Mapping) or not content:
        return None
    kind, media_type = _best(content, at)
    media, there = content[media_type], (*at, "content", media_type)
    if not isinstance(media, Mapping):
        raise Unfit("expected a mapping", there)
    required = written.get("required") is True
    body = _Body(
        description, schemas, arguments, required=required, words=written.get("description")
    )
    return body.made(kind, media_type.partition(";")[0].strip(), media, there)


def _best(content: Mapping[str, Any], at: Place) -> tuple[str, str]:
    for kind, pattern in _KINDS:
        for media_type in content:
            if pattern.fullmatch(media_type.partition(";")[0].strip().lower()):
                return kind, media_type
    raise Unfit(f"its body can only be {short(', '.join(content))}", at)


class _Body:
    def __init__(
        self,
        description: Description,
        schemas: Schemas,
        arguments: Arguments,
        *,
        required: bool,
        words: Any,
    ) -> None:
        self._description = description
        self._schemas = schemas
        self._arguments = arguments
        self._required = required
        self._words = words

    def made(self, kind: str, media_type: str, media: Object, at: Place) -> dict[str, Any] | None:
        schema, there = media.get("schema", {}), (*at, "schema")
        if kind in ("text", "bytes"):
            return {kind: self._alone(_plain(kind, schema), there), "type": media_type}
        fields = fields_of(self._description, schema, there)
        if fields is not None and not fields.written and not self._required:
            return None
        if kind == "json":
            made: dict[str, Any] = {}
            if fields is None:
                made["json"] = self._alone(schema, there)
            else:
                made["json"] = self._placed(fields, {}, at, kind)
            if (
                _MEDIA.fullmatch(media_type)
                and media_type.lower() != _JSON
                and "*" not in media_type
            ):
                made["type"] = media_type
        else:
            if fields is None and kind == "multipart":
                raise Unfit("the parts of its body have no names", there)
            if fields is None:  # an object, whose fields become those of the form
                made = {kind: {"body": self._alone(schema, there)}}
            else:
                made = {kind: self._placed(fields, media.get("encoding"), at, kind)}
        if not self._required and (kind != "json" or fields is not None):
            made["optional"] = True
        return made

    def _alone(self, schema: Any, at: Place) -> str:
        """One argument that is all of the body."""
        if isinstance(schema, Mapping) and isinstance(self._words, str):
            schema = {**schema, "description": self._words}
        translated = self._schemas.translated(schema, at)
        name = self._arguments.add("body", "request", translated, required=self._required)
        return f"{{{name}}}"

    def _placed(self, fields: Fields, encoding: Any, at: Place, kind: str) -> dict[str, Any]:
        placed: dict[str, Any] = {}
        names: dict[str, str] = {}
        for wire, (written, there) in fields.written.items():
            if self._schemas.hidden(written):
                continue
            needed = wire in fields.required
            made, schema = self._field(kind, wire, written, there)
            names[wire] = self._arguments.add(
                wire, "body", schema, required=needed and self._required
            )
            about = encoding.get(wire) if isinstance(encoding, Mapping) else None
            how = _encoded(kind, schema, about if isinstance(about, Mapping) else {})
            placed[wire] = (
                f"{{{names[wire]}}}"
                if kind == "json"
                else entry(names[wire], "form", **made, **how)
            )
        if not self._required:
            needed_names = [names[one] for one in names if one in fields.required]
            self._arguments.go_together(names.values(), needed_names)
        return placed

    def _field(
        self, kind: str, wire: str, written: Any, at: Place
    ) -> tuple[dict[str, Any], Schema]:
        """How a field is marked, and its schema: a file is told as base64."""
        schema = self._schemas.translated(written, at)
        if kind != "multipart" or not self._is_file(written, at):
            return {}, schema
        words = schema.get("description")
        file: Schema = {"type": "string", "contentEncoding": "base64"}
        if schema.get("type") == "array":
            file = {"type": "array", "items": file}
        return {"base64": True}, {**file, "description": words or f"The file {wire}, as base64."}

    def _is_file(self, written: Any, at: Place) -> bool:
        try:
            written, at = self._description.followed(written, at)
        except Unfit:
            return False
        if written.get("type") == "array" and isinstance(items := written.get("items"), Mapping):
            return "items" not in items and self._is_file(items, (*at, "items"))
        return written.get("format") == "binary" or (
            isinstance(written.get("contentMediaType"), str)
            and "contentEncoding" not in written
            and not written["contentMediaType"].startswith("text/")
        )


def _plain(kind: str, schema: Any) -> Any:
    """A body that is one text."""
    if kind == "bytes":
        words = schema.get("description") if isinstance(schema, Mapping) else None
        told = words if isinstance(words, str) else "What is sent, as base64."
        return {"type": "string", "contentEncoding": "base64", "description": told}
    return {"type": "string"}


def _encoded(kind: str, schema: Schema, about: Object) -> dict[str, Any]:
    """How a field of a form is written: what the document says, else objects as JSON."""
    if kind == "json":
        return {}
    how: dict[str, Any] = {}
    if kind == "form":
        style = about.get("style")
        if style in _FORM_STYLES:
            how["style"] = style
        elif "explode" not in about and _holds_objects(schema):
            how["style"] = "json"
        if isinstance(about.get("explode"), bool):
            how["explode"] = about["explode"]
        how["allow_reserved"] = about.get("allowReserved") is True
    elif isinstance(content_type := about.get("contentType"), str) and _MEDIA.fullmatch(
        content_type
    ):
        how["type"] = content_type
    return how


def _holds_objects(schema: Schema) -> bool:
    """Whether values are no texts, numbers or lists of them."""
    kind = schema.get("type")
    if kind == "array":
        return "items" in schema and _holds_objects(schema["items"])
    return kind is None or kind == "object"


def fields_of(description: Description, written: Any, at: Place) -> Fields | None:
    """The fields of an object, if it is one and they are all there is to it."""
    return _Reading(description).fields(written, at)


class _Reading:
    def __init__(self, description: Description) -> None:
        self._description = description
        self._left = _MOST_BRANCHES

    def fields(self, written: Any, at: Place) -> Fields | None:
        """Without any, it has to say that there are none."""
        found = self._gathered(written, at)
        if found is None or found.written or written.get("additionalProperties") is False:
            return found
        return None

    def _gathered(self, written: Any, at: Place) -> Fields | None:
        self._left -= 1
        if not isinstance(written, Mapping) or self._left < 0:
            return None
        if "$ref" in written:
            if not self._description.is_old and len(written) > 1:
                return None
            written, at = self._description.followed(written, at)
        if (
            _MORE_THAN_FIELDS & written.keys()
            or written.get("nullable") is True
            or written.get("type", "object") not in ("object", ["object"])
            or written.get("additionalProperties") not in (None, False)
        ):
            return None
        return self._joined(written, at)

    def _joined(self, written: Object, at: Place) -> Fields | None:
        properties, required = written.get("properties", {}), written.get("required", [])
        branches = written.get("allOf", [])
        if not isinstance(properties, Mapping) or not isinstance(branches, list):
            return None
        fields = {name: (one, (*at, "properties", name)) for name, one in properties.items()}
        needed = (
            {one for one in required if isinstance(one, str)}
            if isinstance(required, list)
            else set()
        )
        for number, branch in enumerate(branches):
            found = self._gathered(branch, (*at, "allOf", number))
            if found is None:
                return None
            for name, (one, there) in found.written.items():
                if fields.setdefault(name, (one, there))[0] != one:
                    return None  # both hold, and together they are something else
            needed |= found.required
        return Fields(fields, frozenset(needed))
