"""Which defaults of a schema can be filled in.

``default`` is an annotation: one that does not fit its subschema is no reason to refuse the
schema. ``check.py`` does not fill it in, and ``toolpost check`` warns of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolpost.plain import Path, json_name
from toolpost.schema.faults import explain
from toolpost.schema.native import compile_all
from toolpost.schema.tree import Place, Tree

_ANNOTATIONS: Final = frozenset(("type", "default", "description", "title", "examples"))


class UnusableDefault(NamedTuple):
    """A default that does not fit the subschema ``at``, and what is wrong with it."""

    schema: Mapping[str, Any]
    at: Path
    problem: str


def unusable_defaults(tree: Tree) -> list[UnusableDefault]:
    """Every default that does not fit the subschema it stands in."""
    found: list[UnusableDefault] = []
    complex_places: list[Place] = []
    for place in tree.places():
        schema = place.schema
        if "default" in schema and not (schema["default"] is None and _is_optional(schema)):
            if not _ANNOTATIONS.issuperset(schema):
                complex_places.append(place)
            elif not _has_type(schema["default"], schema.get("type")):
                found.append(UnusableDefault(schema, place.at, _expected(schema["type"])))
    if complex_places:
        found.extend(_validated(tree, complex_places))
    return found


def _validated(tree: Tree, places: list[Place]) -> list[UnusableDefault]:
    validators = compile_all(tree)
    found: list[UnusableDefault] = []
    for schema, at, _ in places:
        validator = validators.get("#" + "".join(f"/{_escaped(part)}" for part in at))
        if validator is not None and not validator.is_valid(schema["default"]):
            faults = explain(list(validator.iter_errors(schema["default"])), tree.root)
            problem = faults[0].text() if faults else "it is not valid"
            found.append(UnusableDefault(schema, at, problem))
    return found


def _is_optional(schema: Mapping[str, Any]) -> bool:
    """The common "this or null", recognized without compiling it."""
    branches = schema.get("anyOf")
    return (
        isinstance(branches, list)
        and {"type": "null"} in branches
        and schema.keys() - _ANNOTATIONS == {"anyOf"}
    )


def _escaped(part: str | int) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


def _has_type(value: Any, types: Any) -> bool:
    if types is None:
        return True
    names = types if isinstance(types, list) else [types]
    kind = json_name(value)
    if kind == "integer":
        return "integer" in names or "number" in names
    return kind in names or (kind == "number" and "integer" in names and value.is_integer())


def _expected(types: Any) -> str:
    names = types if isinstance(types, list) else [types]
    return f"expected {' or '.join(names)}"
