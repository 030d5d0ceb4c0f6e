"""Compile schemas with the native validator, under the bounds that hold everywhere.

``check.py`` and ``defaults.py`` use it. Nothing is fetched, formats are asserted, and a pattern
that backtracks too often makes a value invalid instead of running on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from toolpost.errors import InvalidSchema
from toolpost.plain import Path, measure
from toolpost.schema.cost import Cost
from toolpost.schema.faults import explain
from toolpost.schema.resources import registered_schemas
from toolpost.schema.tree import Tree, fault

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator, ValidatorMap

BACKTRACK_LIMIT: Final = 100_000
_BUDGET: Final = 100 * BACKTRACK_LIMIT
_LEAST: Final = 100
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")


def compile_validator(tree: Tree, schema: Any, limit: int = BACKTRACK_LIMIT) -> Validator:
    """The native validator for the schema of a tree, or for a copy of that with fences."""
    import jsonschema_rs  # 40 ms, so only once a schema is in use

    try:
        return jsonschema_rs.validator_for(schema, **_options(tree, limit))
    except jsonschema_rs.ValidationError as error:
        raise _located_fault(error, tree.root) from None
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise fault((), f"cannot be compiled: {error}") from None


def compile_all(tree: Tree) -> ValidatorMap:
    """A validator for each subschema, by its JSON pointer as a fragment."""
    import jsonschema_rs  # as above

    assert isinstance(tree.root, dict)
    return jsonschema_rs.validator_map_for(tree.root, **_options(tree, BACKTRACK_LIMIT))


def _options(tree: Tree, limit: int) -> dict[str, Any]:
    import jsonschema_rs  # as above

    options: dict[str, Any] = {
        "validate_formats": True,
        "offline": True,
        "pattern_options": jsonschema_rs.FancyRegexOptions(backtrack_limit=limit),
    }
    if tree.has_own_dialect:
        options["registry"] = jsonschema_rs.Registry(registered_schemas(), retriever=_refuse)
    return options


def _refuse(address: str) -> NoReturn:
    raise ValueError(f"{address} is not registered and is not fetched")


def _located_fault(error: ValidationError, root: Any) -> InvalidSchema:
    """What the meta-schema says, with its place and what would be allowed there."""
    at: Path = tuple(error.instance_path)
    kind: Any = error.kind
    if at[-1:] == ("type",) and kind.name == "anyOf":
        return fault(at, f"must be one or a list of: {', '.join(_TYPES)}")
    if kind.name == "format" and kind.format == "regex":
        return fault(at, "is not a valid regular expression")
    if kind.name == "$ref":
        return fault(at, "refers to something that is not in this schema")
    faults = explain([error], root)
    return fault(at, faults[0].problem if faults else "is not valid JSON Schema")


class BoundedValidator:
    """A validator for a schema with patterns that backtrack: one value gets one budget.

    The engine bounds each match (3 to 20 ms at :data:`BACKTRACK_LIMIT`) and goes on to the next
    text. The more texts a value may have, the fewer steps each of them gets.
    """

    MOST_TRIES: Final = 100_000

    def __init__(self, tree: Tree, schema: Any, first: Validator, cost: Cost) -> None:
        self._tree = tree
        self._schema = schema
        self._cost = cost
        self._compiled = {BACKTRACK_LIMIT: first}

    def is_valid(self, value: Any) -> bool:
        return self.of(*measure(value)).is_valid(value)

    def of(self, nodes: int, levels: int) -> Validator:
        """The validator for values of this extent; threads may compile the same one twice."""
        tries, limit = self._cost.of(nodes, levels), BACKTRACK_LIMIT
        while tries * limit > _BUDGET and limit > _LEAST:
            limit //= 10
        if limit not in self._compiled:
            self._compiled[limit] = compile_validator(self._tree, self._schema, limit)
        return self._compiled[limit]
