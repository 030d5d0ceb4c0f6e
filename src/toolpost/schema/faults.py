"""Faults: what is wrong with a value, in words a model can act on.

Above: ``check.py``. Below: ``plain``. It reads the native validator's errors and refuses to repeat
a value: a value may be a secret. Names of keys are shown, shortened; what is allowed comes from the
schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolpost.plain import json_name, pointer, printable

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

MAX_FAULTS: Final = 10
MAX_MESSAGE: Final = 1_500
_MAX_ALLOWED: Final = 20
_MAX_VALUE: Final = 60
_BOUNDS: Final = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be greater than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "additionalItems": "must have at most {} items",
    "minProperties": "must have at least {} properties",
    "maxProperties": "must have at most {} properties",
    "pattern": "must match the pattern {}",
    "format": "must be a valid {}",
    "contentEncoding": "must be encoded as {}",
    "contentMediaType": "must hold {}",
}
_EXAMPLES: Final = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "duration": "P1DT12H",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}
_PLAIN: Final = {
    "uniqueItems": "must not hold the same item twice",
    "contains": "holds no item, or too few, of the kind required",
    "minContains": "holds too few items of the kind required",
    "maxContains": "holds too many items of the kind required",
    "not": "has a form that is not allowed here",
    "else": "is not allowed in this form",
}


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong: where, what, what would be right, and a hint if there is one."""

    at: str
    problem: str
    allowed: tuple[Any, ...] | None = None
    hint: str | None = None
    missing: str | None = None
    """The name of a missing parameter; it is reported together with the others."""

    def data(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"at": self.at, "problem": self.problem}
        if self.allowed is not None:
            fields["allowed"] = list(self.allowed)
        if self.hint is not None:
            fields["hint"] = self.hint
        return fields

    def text(self) -> str:
        text = f"{self.at}: {self.problem}" if self.at else self.problem
        if self.hint is not None:
            return f"{text}; {self.hint}"
        if self.allowed:
            return f"{text}; allowed: {', '.join(map(_shown, self.allowed))}"
        return text


def message(faults: list[Fault]) -> str:
    """All faults in one bounded text."""
    shown = faults[:MAX_FAULTS]
    missing = [fault.missing for fault in shown if fault.missing is not None]
    parts = []
    if missing:
        plural = "s" if len(missing) > 1 else ""
        parts.append(f"Missing required parameter{plural}: {', '.join(missing)}")
    parts.extend(fault.text() for fault in shown if fault.missing is None)
    text = "; ".join(parts)
    rest = len(faults) - len(shown)
    tail = f" (and {rest} more fault{'s' if rest > 1 else ''})" if rest else ""
    if len(text) + len(tail) > MAX_MESSAGE:
        text = text[: MAX_MESSAGE - len(tail) - 1] + "…"
    return text + tail


def explain(errors: Iterable[ValidationError], schema: Any) -> list[Fault]:
    """The native validator's errors as faults, in order and each once."""
    found: dict[str, Fault] = {}  # by its text: what is allowed may be objects, which have no hash
    for error in errors:
        for fault in _faults(error, schema):
            found.setdefault(fault.text(), fault)
    return list(found.values())


def _faults(error: ValidationError, schema: Any) -> list[Fault]:
    keyword = error.kind.name
    at = pointer(error.instance_path)
    kind: Any = error.kind
    top = not error.instance_path
    if keyword in ("anyOf", "oneOf"):
        return _of_branches(error, schema)
    if keyword in ("required", "dependentRequired"):
        name = printable(kind.property)
        if top:
            return [Fault(f"/{name}", "missing required parameter", missing=name)]
        return [Fault(at, f"missing required property: {name}")]
    if keyword in ("additionalProperties", "unevaluatedProperties"):
        known = _properties(error, schema)
        return [_unknown(error.instance_path, name, known, top=top) for name in kind.unexpected]
    if keyword == "type":
        return [Fault(at, _expected(kind.types, error.instance))]
    if keyword == "propertyNames":
        inner = _faults(kind.error, schema)
        return [Fault(at, f"a key is not allowed: {inner[0].problem if inner else 'its name'}")]
    return [_simple(error, at, schema)]


def _simple(error: ValidationError, at: str, schema: Any) -> Fault:
    kind: Any = error.kind
    keyword = kind.name
    if keyword == "enum":
        return _allowed(at, kind.options, error.instance)
    if keyword == "const":
        return _allowed(at, [kind.expected_value], error.instance)
    if keyword in _BOUNDS:
        if type(kind).__name__ in ("BacktrackLimitExceeded", "RegexEngineFailure"):
            return Fault(at, "takes too long to hold against its pattern; shorten it")
        example = _EXAMPLES.get(kind.value) if keyword == "format" else None
        hint = None if example is None else f"such as {example}"
        return Fault(at, _BOUNDS[keyword].format(_shown(kind.value)), hint=hint)
    if error.schema_path[-1:] == ["else"] and isinstance(error.instance, str):
        limit = _parent(error, schema).get("if", {}).get("maxLength")
        if limit is not None:
            return Fault(at, f"must have at most {limit} characters to be held against its pattern")
    if type(kind).__name__ == "FalseSchema":
        return Fault(at, "is not allowed here")
    return Fault(at, _PLAIN.get(keyword, f"does not satisfy {printable(keyword)}"))


def _of_branches(error: ValidationError, schema: Any) -> list[Fault]:
    """The reason of the branch that came closest; together, where all fail for one reason."""
    at = pointer(error.instance_path)
    kind: Any = error.kind
    branches: list[list[ValidationError]] = [branch for branch in kind.context if branch]
    if type(kind).__name__ == "OneOfMultipleValid" or not branches:
        return [Fault(at, "fits several of the alternatives; it must fit exactly one")]
    fitting = [branch for branch in branches if not _wrong_type(branch, error.instance_path)]
    if not fitting:
        types = [name for branch in branches for one in branch for name in _types_of(one)]
        return [Fault(at, _expected(list(dict.fromkeys(types)), error.instance))]
    together = _values_of_all(fitting)
    if together is not None:
        path, values, instance = together
        return [_allowed(pointer(path), values, instance)]
    closest = min(fitting, key=lambda branch: (_mistagged(branch), len(branch)))
    return explain(closest, schema)


def _wrong_type(branch: list[ValidationError], path: list[str | int]) -> bool:
    return any(one.kind.name == "type" and one.instance_path == path for one in branch)


def _types_of(error: ValidationError) -> list[str]:
    kind: Any = error.kind
    return kind.types if error.kind.name == "type" else []


def _mistagged(branch: list[ValidationError]) -> bool:
    return any(error.kind.name in ("const", "enum") for error in branch)


def _values_of_all(
    branches: list[list[ValidationError]],
) -> tuple[list[str | int], list[Any], Any] | None:
    """The place and the values allowed there, if every branch fails for a fixed value there."""
    paths = [
        {tuple(one.instance_path): one for one in branch if one.kind.name in ("const", "enum")}
        for branch in branches
    ]
    shared = set(paths[0]).intersection(*paths)
    if not shared:
        return None
    path = min(shared, key=len)
    values: list[Any] = []
    for found in paths:
        kind: Any = found[path].kind
        values.extend(kind.options if kind.name == "enum" else [kind.expected_value])
    return list(path), values, paths[0][path].instance


def _expected(types: list[str], instance: Any) -> str:
    got = json_name(instance)
    if types == ["integer"] and got == "number":
        return "expected integer, got number with a fraction"
    return f"expected {' or '.join(types)}, got {got}"


def _allowed(at: str, values: list[Any], instance: Any) -> Fault:
    allowed = tuple(values[:_MAX_ALLOWED])
    names = [value for value in values if isinstance(value, str)]
    close = _closest(instance, names)
    if len(values) == 1:
        return Fault(at, f"must be {_shown(values[0])}", allowed)
    problem = "must be one of the allowed values"
    if len(values) > _MAX_ALLOWED:
        problem += f" ({len(values)} in all, the first {_MAX_ALLOWED} are listed)"
    return Fault(at, problem, allowed, _meant(close) if close else None)


def _unknown(path: list[str | int], name: str, known: list[str], *, top: bool) -> Fault:
    close = _closest(name, known)
    word = "parameter" if top else "property"
    return Fault(
        pointer([*path, name]),
        f"unknown {word}" if known else f"unknown {word}; none is allowed",
        tuple(map(printable, known[:_MAX_ALLOWED])) or None,
        _meant(close) if close else None,
    )


def _closest(text: Any, names: list[str]) -> str | None:
    from difflib import get_close_matches  # only a fault pays for it

    if not isinstance(text, str) or len(text) > _MAX_VALUE:
        return None
    return next(iter(get_close_matches(text, names, n=1)), None)


def _meant(name: str) -> str:
    return f'did you mean "{printable(name)}"?'


def _properties(error: ValidationError, schema: Any) -> list[str]:
    named = _parent(error, schema).get("properties")
    return list(named) if isinstance(named, Mapping) else []


def _parent(error: ValidationError, schema: Any) -> Mapping[str, Any]:
    node = schema
    for part in error.schema_path[:-1]:
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return {}
    return node if isinstance(node, Mapping) else {}


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    quoted = isinstance(value, str) and not value.isidentifier()
    short = printable(text, limit=_MAX_VALUE)
    return f'"{short}"' if quoted else short
