"""A type annotation as JSON: its schema, and the way there and back.

Above: ``describe.py``. Below: pydantic, loaded only for types that JSON has no word for; plain
ones are put together here, once per type. It refuses to know what a function is.
"""

from __future__ import annotations

import base64
import enum
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from toolpost.schema.tree import REFERENCES, subschemas

Way = Callable[[Any], Any]
Mode = Literal["validation", "serialization"]


class NoJsonForm(TypeError):
    """A type that has no JSON form; the message says why and what to use."""


class Form(msgspec.Struct, frozen=True):
    """``schema`` may refer to ``defs``. ``convert`` turns JSON into the type, ``dump`` back again;
    None where the JSON value is the Python value."""

    schema: dict[str, Any]
    defs: Mapping[str, Any] = {}
    convert: Way | None = None
    dump: Way | None = None


def form(annotation: Any, mode: Mode = "validation") -> Form:
    """The JSON form of a type; raises :class:`NoJsonForm`."""
    try:
        known = _KNOWN.get((annotation, mode))
    except TypeError:  # metadata that cannot be hashed
        return _build(annotation, mode, ())
    if known is None:
        if (
            len(_KNOWN) > _MOST_KNOWN
        ):  # a program that makes types as it goes must not grow for ever
            _KNOWN.clear()
        known = _KNOWN[annotation, mode] = _build(annotation, mode, ())
    return known


def whole(value: Any) -> Any:
    """An integer sent as 1.0, which JSON Schema lets pass, as the integer it is.

    Done for parameters and not for what is inside their lists and dicts: looking at every number
    of a large argument would cost more than checking it does.
    """
    return int(value) if type(value) is float and value.is_integer() else value


_INTEGER: Final = Form({"type": "integer"}, convert=whole)
_SCALARS: Final[dict[Any, Form]] = {
    str: Form({"type": "string"}),
    int: _INTEGER,
    float: Form({"type": "number"}),
    bool: Form({"type": "boolean"}),
    None: Form({"type": "null"}),
    type(None): Form({"type": "null"}),
    Any: Form({}),
    object: Form({}),
    list: Form({"type": "array"}),
    dict: Form({"type": "object"}),
}
_KNOWN: dict[tuple[Any, Mode], Form] = {
    (annotation, mode): made
    for annotation, made in _SCALARS.items()
    for mode in ("validation", "serialization")
}
_MOST_KNOWN: Final = 10_000
_LISTS: Final = frozenset((list, abc.Sequence, abc.Iterable, abc.Collection, abc.MutableSequence))
_DICTS: Final = frozenset((dict, abc.Mapping, abc.MutableMapping))
_SETS: Final = {set: set, frozenset: frozenset, abc.Set: frozenset, abc.MutableSet: set}
_LIMITS: Final = {
    "Ge": ("ge", "minimum"),
    "Gt": ("gt", "exclusiveMinimum"),
    "Le": ("le", "maximum"),
    "Lt": ("lt", "exclusiveMaximum"),
    "MultipleOf": ("multiple_of", "multipleOf"),
}
_LENGTHS: Final = {"string": "Length", "array": "Items", "object": "Properties"}
_JSON_SCALARS: Final = frozenset((str, int, float, bool))


def _build(annotation: Any, mode: Mode, above: tuple[Any, ...]) -> Form:
    if annotation is bytes:
        return _BYTES
    origin = get_origin(annotation)
    if origin is None:
        return _of_class(annotation, mode, above)
    args = get_args(annotation)
    if origin is Annotated:
        return _of_annotated(annotation, mode, above)
    if origin is Union or origin is types.UnionType:
        return _of_union(annotation, args, mode, above)
    if origin is Literal and all(type(one) in _JSON_SCALARS or one is None for one in args):
        return Form(_enumerated(list(args)))
    if origin in _LISTS:
        return _of_list(_inner(args[0], mode, above))
    if origin in _DICTS and args[0] is str:
        return _of_dict(_inner(args[1], mode, above))
    if origin in _SETS:
        return _of_set(_inner(args[0], mode, above), _SETS[origin])
    if origin is tuple:
        return _of_tuple(args, mode, above)
    return _rich(annotation, mode)


def _inner(annotation: Any, mode: Mode, above: tuple[Any, ...]) -> Form:
    return _build(annotation, mode, above) if above else form(annotation, mode)


def _of_class(annotation: Any, mode: Mode, above: tuple[Any, ...]) -> Form:
    known = _SCALARS.get(annotation) if annotation.__hash__ is not None else None
    if known is not None:
        return known
    if isinstance(annotation, str | typing.ForwardRef):
        raise NoJsonForm(f"the name {_name(annotation)} inside it cannot be resolved")
    if hasattr(annotation, "__supertype__"):
        return _inner(annotation.__supertype__, mode, above)
    if isinstance(annotation, type):
        if issubclass(annotation, enum.Enum):
            values = [member.value for member in annotation]
            if values and all(type(value) in _JSON_SCALARS for value in values):
                return Form(_enumerated(values), convert=annotation, dump=_enum_value)
        if _is_typed_dict(annotation):
            return _of_typed_dict(annotation, mode, above)
    return _rich(annotation, mode)


def _is_typed_dict(annotation: type) -> bool:
    """One of ``typing`` or of ``typing_extensions``, which are not the same to Python."""
    return issubclass(annotation, dict) and hasattr(annotation, "__required_keys__")


def _enum_value(member: Any) -> Any:
    return member.value if isinstance(member, enum.Enum) else member


def _enumerated(values: list[Any]) -> dict[str, Any]:
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and None not in values:
        return {"type": _SCALARS[kinds.pop()].schema["type"], "enum": values}
    return {"enum": values}


def _of_list(inner: Form) -> Form:
    schema: dict[str, Any] = {"type": "array"}
    if inner.schema:
        schema["items"] = inner.schema
    return Form(schema, inner.defs, _each(inner.convert, list), _each(inner.dump, list))


def _of_set(inner: Form, kind: type) -> Form:
    schema = {"type": "array", "items": inner.schema, "uniqueItems": True}
    return Form(
        schema,
        inner.defs,
        _each(inner.convert, kind, always=True),
        _each(inner.dump, list, always=True),
    )


def _each(way: Way | None, kind: type, *, always: bool = False) -> Way | None:
    if way is None:
        return kind if always else None
    if way is whole and not always:
        return None
    return lambda values: kind([way(value) for value in values])


def _of_dict(inner: Form) -> Form:
    schema: dict[str, Any] = {"type": "object"}
    if inner.schema:
        schema["additionalProperties"] = inner.schema
    convert, dump = _each_value(inner.convert), _each_value(inner.dump)
    return Form(schema, inner.defs, convert, dump)


def _each_value(way: Way | None) -> Way | None:
    if way is None or way is whole:
        return None
    return lambda values: {name: way(value) for name, value in values.items()}


def _of_tuple(args: tuple[Any, ...], mode: Mode, above: tuple[Any, ...]) -> Form:
    if len(args) == 2 and args[1] is ...:
        inner = _inner(args[0], mode, above)
        made = _of_list(inner)
        convert, dump = (
            _each(inner.convert, tuple, always=True),
            _each(inner.dump, list, always=True),
        )
        return Form(made.schema, made.defs, convert, dump)
    inner_forms = [_inner(one, mode, above) for one in args]
    schema = {
        "type": "array",
        "prefixItems": [one.schema for one in inner_forms],
        "items": False,
        "minItems": len(args),
        "maxItems": len(args),
    }
    if not args:
        del schema["prefixItems"]
    converts = tuple(one.convert or _same for one in inner_forms)
    dumps = tuple(one.dump or _same for one in inner_forms)
    return Form(
        schema,
        _joined(inner_forms),
        lambda values: tuple(way(value) for way, value in zip(converts, values, strict=True)),
        lambda values: [way(value) for way, value in zip(dumps, values, strict=True)],
    )


def _same(value: Any) -> Any:
    return value


def _joined(forms: list[Form]) -> dict[str, Any]:
    return {name: one for made in forms for name, one in made.defs.items()}


def _of_union(annotation: Any, args: tuple[Any, ...], mode: Mode, above: tuple[Any, ...]) -> Form:
    members = [one for one in args if one is not type(None)]
    nullable = len(members) < len(args)
    if len(members) == 1:
        return optional(_inner(members[0], mode, above))
    forms = [_inner(one, mode, above) for one in members]
    if any(one.dump or one.convert not in (None, whole) for one in forms):
        return _rich(annotation, mode)
    convert = whole if int in members and float not in members else None
    if nullable:
        forms.append(_SCALARS[None])
    if any(not one.schema for one in forms):
        return Form({})
    return Form({"anyOf": [one.schema for one in forms]}, _joined(forms), convert)


def optional(inner: Form) -> Form:
    """The same or null."""
    if not inner.schema:
        return inner
    schema = {"anyOf": [inner.schema, {"type": "null"}]}
    return Form(schema, inner.defs, _unless_none(inner.convert), _unless_none(inner.dump))


def _unless_none(way: Way | None) -> Way | None:
    if way is None or way is whole:
        return way
    return lambda value: None if value is None else way(value)


def _of_annotated(annotation: Any, mode: Mode, above: tuple[Any, ...]) -> Form:
    inner = _inner(annotation.__origin__, mode, above)
    schema = dict(inner.schema)
    for one in _flat(annotation.__metadata__):
        if isinstance(one, str):
            schema["description"] = one
        elif not _constrain(schema, one):
            return _described(annotation, _rich(_without_text(annotation), mode))
    return Form(schema, inner.defs, inner.convert, inner.dump)


def _described(annotation: Any, made: Form) -> Form:
    texts = [one for one in annotation.__metadata__ if isinstance(one, str)]
    if not texts:
        return made
    return Form({**made.schema, "description": texts[-1]}, made.defs, made.convert, made.dump)


def _without_text(annotation: Any) -> Any:
    kept = tuple(one for one in annotation.__metadata__ if not isinstance(one, str))
    return Annotated[(annotation.__origin__, *kept)]


def _flat(metadata: tuple[Any, ...]) -> list[Any]:
    """Metadata with pydantic's ``Field(...)`` taken apart, as far as it is only constraints."""
    found: list[Any] = []
    for one in metadata:
        if _is_field(one):
            said = set(getattr(one, "_attributes_set", {}))
            if said <= {"description", "title", *_FIELD_LIMITS}:
                found.extend(one.metadata)
                if one.description:
                    found.append(one.description)
                continue
        found.append(one)
    return found


_FIELD_LIMITS: Final = frozenset(
    ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern", "metadata")
)


def _is_field(value: Any) -> bool:
    return type(value).__name__ == "FieldInfo" and type(value).__module__.startswith("pydantic")


def _constrain(schema: dict[str, Any], one: Any) -> bool:
    """Write a constraint into the schema; False if only pydantic knows what it means."""
    kind = type(one)
    name = kind.__name__
    sort = schema.get("type")
    if kind.__module__ == "annotated_types":
        if name in _LIMITS and sort in ("integer", "number"):
            attribute, keyword = _LIMITS[name]
            limit = getattr(one, attribute)
            schema[keyword] = limit
            return type(limit) in (int, float)
        if name in ("MinLen", "MaxLen") and sort in _LENGTHS:
            side = name[:3].lower()
            schema[side + _LENGTHS[sort]] = getattr(one, side + "_length")
            return True
    pattern = getattr(one, "pattern", None)
    if name == "_PydanticGeneralMetadata" and isinstance(pattern, str) and sort == "string":
        schema["pattern"] = pattern
        return set(vars(one)) == {"pattern"}
    return False


def _of_typed_dict(annotation: Any, mode: Mode, above: tuple[Any, ...]) -> Form:
    if annotation in above:
        raise NoJsonForm(f"{annotation.__name__} refers to itself; write it as a dataclass")
    above = (*above, annotation)
    hints = typing.get_type_hints(annotation, include_extras=True)
    fields = {name: _build(_bare(kind), mode, above) for name, kind in hints.items()}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: one.schema for name, one in fields.items()},
        "required": [name for name in fields if _is_required(annotation, name, hints[name])],
        "additionalProperties": False,
    }
    if not schema["required"]:
        del schema["required"]
    return Form(
        schema,
        _joined(list(fields.values())),
        _by_name({name: one.convert for name, one in fields.items()}),
        _by_name({name: one.dump for name, one in fields.items()}),
    )


def _is_required(annotation: Any, name: str, kind: Any) -> bool:
    # where annotations are text the class itself does not know which keys may be left out
    while (word := getattr(get_origin(kind), "_name", None)) in _KEY_WORDS:
        if word != "ReadOnly":
            return bool(word == "Required")
        kind = get_args(kind)[0]
    return name in annotation.__required_keys__


_KEY_WORDS: Final = frozenset(("Required", "NotRequired", "ReadOnly"))


def _bare(annotation: Any) -> Any:
    while getattr(get_origin(annotation), "_name", None) in _KEY_WORDS:
        annotation = get_args(annotation)[0]
    return annotation


def _by_name(ways: Mapping[str, Way | None]) -> Way | None:
    some = tuple((name, way) for name, way in ways.items() if way not in (None, whole))
    return (lambda values: apply(some, values)) if some else None


def apply(ways: tuple[tuple[str, Way], ...], values: Mapping[str, Any]) -> Any:
    """A mapping with some of its values turned; the same one if that changed nothing."""
    turned: Any = values
    for name, way in ways:
        if name in values:
            before = values[name]
            after = way(before)
            if after is not before:
                if turned is values:
                    turned = dict(values)
                turned[name] = after
    return turned


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("must be base64") from None


def _to_base64(data: Any) -> Any:
    return base64.b64encode(data).decode() if isinstance(data, bytes | bytearray) else data


_BYTES: Final = Form(
    {"type": "string", "contentEncoding": "base64"}, convert=_from_base64, dump=_to_base64
)


def _rich(annotation: Any, mode: Mode) -> Form:
    """What pydantic makes of a type."""
    import pydantic  # 100 ms, and plain tools do without

    try:
        adapter: Any = pydantic.TypeAdapter(annotation)
        adapter.rebuild(raise_errors=True)
        schema = adapter.json_schema(mode=mode)
    except (pydantic.errors.PydanticUserError, NameError) as error:
        reason = str(error).split("\n")[0]
        raise NoJsonForm(f"{_name(annotation)} has no JSON form: {reason}") from error
    definitions = schema.pop("$defs", {})
    for one in (schema, *definitions.values()):
        _tidy(one, mode)
    schema, definitions = _inlined(schema, definitions)
    return Form(schema, definitions, adapter.validate_python, _dumper(adapter))


def _dumper(adapter: Any) -> Way:
    return lambda value: adapter.dump_python(value, mode="json", by_alias=True, warnings="none")


_LOOSE: Final[dict[Mode, frozenset[str]]] = {
    "validation": frozenset(("duration", "time")),
    "serialization": frozenset(("duration", "time", "date-time")),
}
"""Formats that Python's values overstep: seconds have fractions, moments may have no time zone."""


def _tidy(schema: dict[str, Any], mode: Mode) -> None:
    """No titles; an object takes the properties it names, and others only if it says so."""
    todo: list[Any] = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            one.pop("title", None)
            if one.get("format") in _LOOSE[mode]:
                one.setdefault("description", f"ISO 8601 {one.pop('format')}")
            if "properties" in one:
                one.setdefault("additionalProperties", False)
            todo.extend(child for _, child in subschemas(one))


def _inlined(schema: dict[str, Any], defs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Definitions used once, and not by themselves, moved to where they are used."""
    uses: dict[str, list[dict[str, Any]]] = {}
    for owner in (schema, *defs.values()):
        for one in _nodes(owner):
            if REFERENCES & one.keys():
                uses.setdefault(one["$ref"].removeprefix("#/$defs/"), []).append(one)
    kept = dict(defs)
    for name, places in uses.items():
        if len(places) == 1 and name in kept and not _reaches(name, kept):
            place = places[0]
            del place["$ref"]
            target = kept.pop(name)
            for keyword, value in target.items():
                place.setdefault(keyword, value)
    return schema, kept


def _reaches(name: str, defs: Mapping[str, Any]) -> bool:
    """Does a definition lead back to itself?"""
    seen: set[str] = set()
    todo = [name]
    while todo:
        for one in _nodes(defs[todo.pop()]):
            target = one.get("$ref", "").removeprefix("#/$defs/")
            if target == name:
                return True
            if target in defs and target not in seen:
                seen.add(target)
                todo.append(target)
    return False


def _nodes(schema: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    todo = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            found.append(one)
            todo.extend(child for _, child in subschemas(one))
    return found


def _name(annotation: Any) -> str:
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    return getattr(annotation, "__name__", None) or str(annotation)
