"""A JSON Schema in one spelling: the last draft's keywords, and references by number.

Above: what rewrites schemas and what reads them. Below: ``schema.tree``, which finds what a
reference means. It refuses to know any vendor. A node here may be moved, copied and merged, for
its references do not depend on where it stands; what says nothing of values (``$id``, ``x-…``) is
left out. Nothing of the schema given is changed.
"""

from __future__ import annotations

import re
from typing import Any, Final

from toolpost.plain import Path
from toolpost.schema.tree import REFERENCES, Schema, Tree

REF: Final = "$ref"
ANNOTATIONS: Final = frozenset(("title", "description", "default", "examples", "deprecated"))
_BOOKKEEPING: Final = frozenset((
    "$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$comment", "$vocabulary",
    "$defs", "definitions",
))  # fmt: skip
_ONE: Final = frozenset((
    "not", "if", "then", "else", "unevaluatedItems", "contains", "additionalProperties",
    "unevaluatedProperties", "propertyNames", "items",
))  # fmt: skip
_MANY: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED: Final = frozenset(("properties", "patternProperties", "dependentSchemas"))
_LIMITS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_OLD: Final = 7

Node = dict[str, Any] | bool


class Normal:
    """A schema and everything it refers to. Raises ``InvalidSchema`` where it is none."""

    def __init__(self, schema: Schema | bool) -> None:
        self._tree = Tree(schema)
        self._numbers: dict[int, int] = {}
        self._sources: list[Schema | bool] = []
        self.targets: list[Node] = []
        """What the references mean; a node has ``{"$ref": number}``. The root is the first."""
        self.labels: list[str] = []
        """What each of them is called."""
        self._number(self._tree.root)
        while len(self.targets) < len(self._sources):
            self.targets.append(self._node(self._sources[len(self.targets)]))

    @property
    def root(self) -> Node:
        return self.targets[0]

    def _number(self, source: Schema | bool) -> int:
        """A reference is followed later, and once: chains of any length are no depth."""
        key = id(source) if isinstance(source, dict) else int(source)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self._sources)
            self._sources.append(source)
            self.labels.append(self._label(source))
        return known

    def _label(self, source: Schema | bool) -> str:
        at: Path = self._tree.at(source) if isinstance(source, dict) else (str(source),)
        return _NOT_IN_A_NAME.sub("_", str(at[-1])) if at else "root"

    def _node(self, source: Any) -> Node:
        if not isinstance(source, dict):
            return bool(source)
        made: dict[str, Any] = {}
        targets = self._tree.targets(source) if REFERENCES & source.keys() else []
        if targets:
            made[REF] = self._number(targets[-1])
            if self._tree.draft <= _OLD:  # what else stands beside a reference is not read
                return made | {key: source[key] for key in ANNOTATIONS & source.keys()}
        for key, value in source.items():
            if not (key in _BOOKKEEPING or key in REFERENCES or key.startswith("x-")):
                self._take(made, key, value)
        for exclusive, limit in _LIMITS:
            if isinstance(made.get(exclusive), bool) and made.pop(exclusive) and limit in made:
                made[exclusive] = made.pop(limit)
        return made

    def _take(self, made: dict[str, Any], key: str, value: Any) -> None:
        if key == "additionalItems" or (key == "items" and isinstance(value, list)):
            self._take_items(made, key, value)
        elif key == "dependencies" and isinstance(value, dict):
            for name, one in value.items():
                kind = "dependentRequired" if isinstance(one, list) else "dependentSchemas"
                made.setdefault(kind, {})[name] = one if isinstance(one, list) else self._node(one)
        elif key in _ONE:
            made[key] = self._node(value)
        elif key in _MANY and isinstance(value, list):
            made[key] = [self._node(one) for one in value]
        elif key in _NAMED and isinstance(value, dict):
            made[key] = {name: self._node(one) for name, one in value.items()}
        elif key == "type" and isinstance(value, list) and len(value) == 1:
            made[key] = value[0]
        else:
            made[key] = value

    def _take_items(self, made: dict[str, Any], key: str, value: Any) -> None:
        """Before the last draft a list of ``items`` was what ``prefixItems`` is."""
        if key == "items":
            made["prefixItems"] = [self._node(one) for one in value]
        else:
            made["items"] = self._node(value)
