"""What a yes may be given for: the arguments of an edit, and those that a lasting yes covers.

Above: the desk, which asks before it keeps an answer. Below: JSON Schema. A word that is misspelt
must never make a yes wider than it was meant: what is not known here is refused, and a bound on a
number is also a bound to numbers. It refuses to know who answers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from toolpost.errors import InvalidArguments
from toolpost.schema import Schema
from toolpost.spec import ToolSpec
from toolpost.wording import nearest, short

_BY_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern"),
    "array": ("items", "minItems", "maxItems", "uniqueItems"),
}
_OF_ALL: Final = ("const", "enum", "type", "anyOf", "not")
KEYWORDS: Final = (*_OF_ALL, *(word for words in _BY_TYPE.values() for word in words))
"""What ``Lasting.where`` may say of an argument."""
_TYPED: Final = frozenset(("const", "enum", "type"))


def verify_where(where: Mapping[str, Any], spec: ToolSpec | None) -> None:
    """Raise :class:`InvalidArguments` unless every word is known, and so is every parameter."""
    if spec is not None:
        _verify_names(where, spec)
    for name, wanted in where.items():
        _verify_words(short(name), wanted)
    Schema(wanted_of(where)).faults({})  # a schema that is none is found out now


def verify_edit(arguments: Mapping[str, Any], spec: ToolSpec, *, asked: Collection[str]) -> None:
    """Raise :class:`InvalidArguments` unless the tool takes these; ``asked`` are the names that the
    call had.
    """
    _verify_names([name for name in arguments if name not in asked], spec)
    Schema(spec.input_schema, coerce=spec.coerce).admit(dict(arguments))


def wanted_of(where: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the arguments that are covered: those that are named must be there."""
    properties = {name: _bounded(wanted) for name, wanted in where.items()}
    return {"type": "object", "properties": properties, "required": sorted(where)}


def _verify_names(names: Collection[str], spec: ToolSpec) -> None:
    known = _parameters(spec.input_schema)
    for name in names:
        if known is not None and name not in known:
            hint = nearest(name, known) or f"; it takes {', '.join(known) or 'none'}"
            raise InvalidArguments(f"{spec.name} has no parameter {short(name)!r}{hint}")


def _parameters(schema: Mapping[str, Any]) -> Collection[str] | None:
    """The names that a schema gives; ``None``: it says in so many words that there are others."""
    wider = ("patternProperties", "allOf", "anyOf", "oneOf", "$ref")
    if schema.get("additionalProperties") or any(word in schema for word in wider):
        return None
    return tuple(schema.get("properties") or ())


def _verify_words(place: str, wanted: Any) -> None:
    if not isinstance(wanted, Mapping):
        raise InvalidArguments(
            f"{place}: say what it must be as a JSON Schema, such as "
            '{"maximum": 50} or {"enum": ["a", "b"]}'
        )
    if not wanted:
        raise InvalidArguments(f"{place}: {{}} would fit anything; say what it must be")
    for word in wanted:
        if word not in KEYWORDS:
            hint = nearest(word, KEYWORDS) or f"; use {', '.join(KEYWORDS)}"
            raise InvalidArguments(f"{place}: {short(word)!r} cannot be said here{hint}")
    inner = [wanted[word] for word in ("items", "not") if word in wanted]
    choices = wanted.get("anyOf", ())
    for one in (*inner, *(choices if isinstance(choices, list) else ())):
        _verify_words(place, one)


def _bounded(wanted: Any) -> Any:
    """A bound holds for its own type only, says JSON Schema; a yes is for no other, we say."""
    if not isinstance(wanted, Mapping):
        return wanted
    made = dict(wanted)
    for word in ("items", "anyOf"):  # not inside "not", where narrower is wider
        if word in made:
            inner = made[word]
            made[word] = [*map(_bounded, inner)] if isinstance(inner, list) else _bounded(inner)
    types = [kind for kind, words in _BY_TYPE.items() if not made.keys().isdisjoint(words)]
    return made | {"type": types} if types and made.keys().isdisjoint(_TYPED) else made
