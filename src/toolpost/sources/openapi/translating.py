"""The schemas of a document, translated into JSON Schema 2020-12.

Above: ``schemas.py`` makes them whole. Below: ``description.py`` for references. What is said by
the translation was said by the document; where it says less, that is on purpose:

* What is no JSON Schema, or cannot be checked at the price there is, is left out, with a note.
* ``not``, ``if`` and their like are left to the service: next to something that was left out they
  would refuse what the document allows.
* Defaults are told in words and never filled in: the service knows them, and in an update they
  would overwrite what nobody spoke of.
* Answers are held to types and structure: a service may add a field, or be careless with a format,
  and its answer is still an answer.
* An ``x-`` of a stranger's means nothing here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from toolpost.characters import stripped
from toolpost.digest import digest
from toolpost.errors import InvalidSchema
from toolpost.schema import verify
from toolpost.sources.openapi.description import Description, Object, Place, Unfit, said
from toolpost.wording import shortened

Schema = dict[str, Any]

_MOST_ENUM: Final = 1000
_MOST_NOTES: Final = 1000
_FEW: Final = 20
_MOST_WORDS: Final = {False: 400, True: 200}
PREFIX: Final = "#/$defs/"
_MARK: Final = 8
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_FORMATS: Final = frozenset(
    (
        "date", "date-time", "duration", "email", "hostname", "idn-email", "idn-hostname", "ipv4",
        "ipv6", "iri", "iri-reference", "json-pointer", "time", "uri", "uri-reference", "uuid",
    )
)  # fmt: skip
DEEP: Final = frozenset(
    (
        "$ref", "properties", "items", "prefixItems", "allOf", "anyOf", "oneOf", "contains",
        "additionalProperties", "patternProperties", "propertyNames", "dependentSchemas",
    )
)  # fmt: skip
"""A schema with none of these is written out where it is referred to."""


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and isfinite(value))


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, list | Mapping)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= _MOST_ENUM and all(map(_is_scalar, value))


@lru_cache(4096)
def _pattern_fits(pattern: str, key: bool = False) -> bool:
    """Whether a text may be held against it, by the engine and at the price there is."""
    try:
        verify({"patternProperties": {pattern: {}}} if key else {"pattern": pattern})
    except InvalidSchema:
        return False
    return True


_EVERYWHERE: Final[Mapping[str, Callable[[Any], bool]]] = {
    "enum": _is_list,
    "const": _is_scalar,
}
_IN_REQUESTS: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("minimum", "maximum"), _is_number),
    **dict.fromkeys(
        (
            "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
            "minContains",
        ),
        _is_count,
    ),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "uniqueItems": lambda value: type(value) is bool,
    "deprecated": lambda value: type(value) is bool,
    "pattern": lambda value: isinstance(value, str) and _pattern_fits(value),
    "contentEncoding": lambda value: isinstance(value, str),
    "contentMediaType": lambda value: isinstance(value, str),
}  # fmt: skip
"""Keyword → whether a value of it can be used."""
_ALL: Final = {**_EVERYWHERE, **_IN_REQUESTS}
_JOINED: Final = frozenset(
    ("properties", "patternProperties", "additionalProperties", "items", "prefixItems")
)
"""Keywords that mean another thing beside each other."""


class Notes(dict[str, str]):
    """Place → what is not as the document says it."""

    def add(self, at: Place, what: str) -> None:
        if len(self) < _MOST_NOTES:
            self.setdefault(said(at), what)


class Translator:
    """Translates for one direction: what is sent, or what comes back."""

    def __init__(self, description: Description, notes: Notes, *, answers: bool = False) -> None:
        self._description = description
        self._notes = notes
        self._answers = answers
        self._hides = "writeOnly" if answers else "readOnly"
        self._named: dict[str, tuple[Any, Place]] = {}
        self._made: dict[str, Schema | Unfit] = {}

    def translated(self, written: Any, at: Place) -> Schema:
        """One schema; what it refers to is in ``$defs`` once it is whole."""
        if isinstance(written, bool):
            return {} if written else {"not": {}}
        if not isinstance(written, Mapping):
            self._notes.add(at, "this is no schema: anything goes")
            return {}
        if isinstance(written.get("$ref"), str):
            made = self._referred(written, at)
        else:
            made = self._own(written, at)
        return _nullable(made) if written.get("nullable") is True else made

    def hidden(self, written: Any) -> bool:
        """Whether a property is not for this direction."""
        if not isinstance(written, Mapping):
            return False
        if isinstance(written.get("$ref"), str) and self._hides not in written:
            try:
                written, _ = self._description.followed(written, ())
            except Unfit:
                return False  # it is told where it is translated
        return written.get(self._hides) is True

    def _own(self, written: Object, at: Place) -> Schema:
        made: Schema = {}
        if kind := self._type(written, at):
            made["type"] = kind
        self._words(made, written)
        for keyword, fits in (_EVERYWHERE if self._answers else _ALL).items():
            if keyword in written:
                if fits(written[keyword]):
                    made[keyword] = written[keyword]
                else:
                    self._notes.add((*at, keyword), f"{keyword} cannot be used, and is left out")
        self._structure(made, written, at)
        self._branches(made, written, at)
        if not self._answers:
            self._more(made, written, at)
        return made

    def _type(self, written: Object, at: Place) -> str | list[str] | None:
        given = written.get("type")
        if given is None:
            return None
        if given == "file":
            return "string"
        listed = given if isinstance(given, list) else [given]
        known = [one for one in _TYPES if one in listed]
        if not known or len(known) < len(listed):
            self._notes.add((*at, "type"), "this is no type of JSON: anything goes")
            return None
        return known if isinstance(given, list) else known[0]

    def _words(self, made: Schema, written: Object) -> None:
        words = text_of(written.get("description"), _MOST_WORDS[self._answers])
        default = written.get("default")
        if not self._answers and default is not None and not isinstance(default, list | Mapping):
            told = shortened(json.dumps(default, ensure_ascii=False), 80)
            words = f"{words} (default: {told})" if words else f"Default: {told}"
        if words:
            made["description"] = stripped(words)
        example = written.get("example")
        if not self._answers and isinstance(example, str | int | float) and len(str(example)) < 80:
            made["examples"] = [stripped(example) if isinstance(example, str) else example]

    def _structure(self, made: Schema, written: Object, at: Place) -> None:
        hidden: set[str] = set()
        if isinstance(properties := written.get("properties"), Mapping):
            hidden = {name for name, one in properties.items() if self.hidden(one)}
            made["properties"] = {
                name: self.translated(one, (*at, "properties", name))
                for name, one in properties.items()
                if name not in hidden
            }
        if isinstance(required := written.get("required"), list):
            names = [one for one in required if isinstance(one, str) and one not in hidden]
            if names:
                made["required"] = list(dict.fromkeys(names))
        others = written.get("additionalProperties")
        if isinstance(others, Mapping):
            made["additionalProperties"] = self.translated(others, (*at, "additionalProperties"))
        elif others is False and not self._answers:
            made["additionalProperties"] = False
        if isinstance(items := written.get("items"), Mapping | bool):
            made["items"] = self.translated(items, (*at, "items"))

    def _branches(self, made: Schema, written: Object, at: Place) -> None:
        """``oneOf`` is ``anyOf``: which one is meant is the service's to say."""
        listed = {key: self._listed(written, key, at) for key in ("allOf", "anyOf", "oneOf")}
        every, some, one = listed.values()
        if some and one:
            every = [*every, {"anyOf": one}]
        if some or one:
            made["anyOf"] = some or one
        if len(every) == 1 and _are_apart(made, every[0]):
            made.update({**every[0], **made})
        elif every:
            made["allOf"] = every

    def _listed(self, written: Object, key: str, at: Place) -> list[Schema]:
        given = written.get(key)
        if not isinstance(given, list):
            return []
        return [self.translated(one, (*at, key, number)) for number, one in enumerate(given)]

    def _more(self, made: Schema, written: Object, at: Place) -> None:
        """What only a request is held to."""
        _bound(made, written)
        if written.get("format") in _FORMATS:
            made["format"] = written["format"]
        elif written.get("format") == "byte":
            made["contentEncoding"] = "base64"
        for key in ("contains", "propertyNames"):
            if isinstance(written.get(key), Mapping | bool):
                made[key] = self.translated(written[key], (*at, key))
        if listed := self._listed(written, "prefixItems", at):
            made["prefixItems"] = listed
        for key in ("patternProperties", "dependentSchemas"):
            if isinstance(given := written.get(key), Mapping):
                made[key] = {
                    name: self.translated(one, (*at, key, name))
                    for name, one in given.items()
                    if key != "patternProperties" or _pattern_fits(name, True)
                }
                if len(made[key]) < len(given):  # they are not "additional"
                    made.pop("additionalProperties", None)
        if isinstance(needed := written.get("dependentRequired"), Mapping):
            lists = {key: one for key, one in needed.items() if _are_texts(one)}
            made["dependentRequired"] = {
                key: list(dict.fromkeys(one)) for key, one in lists.items()
            }

    def _referred(self, written: Object, at: Place) -> Schema:
        target, there = self._end_of(written, at)
        if _is_leaf(target):
            made = self.translated(target, there)
        else:
            made = {"$ref": f"{PREFIX}{self._name(target, there)}"}
        beside = {"description": written.get("description"), "default": written.get("default")}
        if not self._description.is_old:
            beside = {key: one for key, one in written.items() if key not in ("$ref", "nullable")}
        more = self._own(beside, at)
        if _are_apart(made, more):
            return {**made, **more}
        return {**more, "allOf": [made, *more.get("allOf", ())]}

    def _end_of(self, written: Object, at: Place) -> tuple[Any, Place]:
        """Through references that say nothing of their own."""
        target, there = self._description.target(written["$ref"], at)
        passed = {there}
        while isinstance(target, Mapping) and isinstance(target.get("$ref"), str):
            if not self._description.is_old and len(target) > 1:
                break
            target, there = self._description.target(target["$ref"], there)
            if there in passed or len(passed) > _MOST_ENUM:
                raise Unfit("this reference leads in a circle", at)
            passed.add(there)
        return target, there

    def _name(self, target: Any, there: Place) -> str:
        """What a schema is called in ``$defs``, whichever of them is met first."""
        last = str(there[-1])
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", last)[:64]
        if there[:-1] != ("components", "schemas") or name != last:
            name += f"_{digest(list(there)).removeprefix('sha256:')[:_MARK]}"
        self._named[name] = target, there
        return name

    def definition(self, name: str) -> Schema:
        made = self._made.get(name)
        if made is None:
            try:
                made = self.translated(*self._named[name])
            except Unfit as fault:
                made = fault
            self._made[name] = made
        if isinstance(made, Unfit):
            raise Unfit(made.why, made.at)
        return made


def text_of(value: Any, most: int) -> str:
    """A text of the document, for a model to read: no longer than that, with nothing hidden."""
    if not isinstance(value, str):
        return ""
    return shortened(" ".join(stripped(value[: 4 * most]).split()), most)


def _bound(made: Schema, written: Object) -> None:
    """Bounds that are no part of what they bound: 3.0 says so beside them."""
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        if written.get(exclusive) is True and bound in made:
            made[exclusive] = made.pop(bound)
        elif _is_number(written.get(exclusive)):
            made[exclusive] = written[exclusive]


def _nullable(made: Schema) -> Schema:
    if "anyOf" in made and not made.keys() - {"anyOf", "description"}:
        return {**made, "anyOf": [*made["anyOf"], {"type": "null"}]}
    if {"$ref", "allOf", "anyOf", "const"} & made.keys():
        words = made.pop("description", None)
        either = {"anyOf": [made, {"type": "null"}]}
        return either if words is None else {**either, "description": words}
    kind = made.get("type")
    if kind is not None:
        listed = kind if isinstance(kind, list) else [kind]
        made["type"] = [*listed, *(["null"] if "null" not in listed else [])]
    if "enum" in made and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    return made


def _are_apart(one: Schema, other: Schema) -> bool:
    """Whether two can be one, each saying what the other does not."""
    if _JOINED & one.keys() and _JOINED & other.keys():
        return False
    return not (one.keys() - {"description"}) & (other.keys() - {"description"})


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_leaf(target: Any) -> bool:
    if not isinstance(target, Mapping):
        return True
    enum = target.get("enum")
    return not DEEP & target.keys() and not (isinstance(enum, list) and len(enum) > _FEW)
