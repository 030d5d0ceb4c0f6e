"""One JSON Schema as a tree: where each subschema stands and what its references mean.

Above: the cost check, the closedness check, the defaults. Below: ``plain``. It refuses to know
what a schema means for a value, and it never opens a reference that leads out of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final, NamedTuple, cast

from toolpost.errors import InvalidSchema
from toolpost.plain import NotPlain, Path, measure, pointer
from toolpost.schema.resources import find_schema

MAX_LEVELS: Final = 100
MAX_NODES: Final = 50_000
DRAFTS: Final = {
    "http://json-schema.org/draft-04/schema": 4,
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}
_LATEST: Final = "https://json-schema.org/draft/2020-12/schema"
_DRAFT_6: Final = "http://json-schema.org/draft-06/schema#"
_SINCE_DRAFT_6: Final = frozenset(("const", "contains", "propertyNames"))
_MAX_DIALECTS: Final = 10
REFERENCES: Final = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))

# Which keywords hold subschemas: one, a list of them (``items`` may be either), or a map of them.
_IN_PLACE = frozenset(("not", "if", "then", "else", "allOf", "anyOf", "oneOf"))
_ITEMS = frozenset(("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"))
_KEYS = frozenset(("additionalProperties", "unevaluatedProperties", "propertyNames"))
_ONE_OR_MANY = _IN_PLACE | _ITEMS | _KEYS | {"contentSchema"}
_NAMED = frozenset(
    ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")
)
_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))

Schema = dict[str, Any]


class Place(NamedTuple):
    """A subschema, its path and the URI its references are relative to."""

    schema: Schema
    at: Path
    base: str


def fault(at: Path, problem: str) -> InvalidSchema:
    """The one way a bad schema is named: where, then what to change."""
    return InvalidSchema(f"{pointer(at) or 'top level'}: {problem}", at=at)


class Tree:
    """A schema walked once. Raises :class:`InvalidSchema` where it is not plain, bounded JSON.

    ``respelled`` is the schema itself, or a copy where its spelling had to be brought up to date;
    ``root`` has the registered schemas that it refers to among its definitions as well.
    """

    __slots__ = (
        "_anchors", "_dynamic", "_places", "_resources", "draft", "has_own_dialect", "respelled",
        "root",
    )  # fmt: skip

    def __init__(self, root: Any) -> None:
        if type(root) is not dict and type(root) is not bool:
            raise fault((), "a JSON Schema is an object or a boolean")
        try:
            measure(root, levels=MAX_LEVELS, nodes=MAX_NODES)
        except NotPlain as error:
            raise fault(error.at, error.problem) from None
        self.draft, self.has_own_dialect = _draft(root) if isinstance(root, dict) else (2020, False)
        self._read(root)
        if any(map(_has_boolean_bound, self._places.values())):
            if self.draft > 4:
                self._read(self._with_number_bounds())
            elif not self.has_own_dialect and self._registered_elsewhere() is None:
                self._read_as_draft_6()
        self.respelled = self.root
        while (missing := self._registered_elsewhere()) is not None:
            self._read(self._with_resource(*missing))

    def _read(self, root: Schema | bool) -> None:
        self.root: Schema | bool = root
        self._places: dict[int, Place] = {}
        self._resources: dict[str, Schema] = {}
        self._anchors: dict[tuple[str, str], Schema] = {}
        self._dynamic: dict[str, list[Schema]] = {}
        if isinstance(root, dict):
            self._resources[""] = root
            self._adopt(Place(root, (), ""))

    def _registered_elsewhere(self) -> tuple[str, Schema] | None:
        """A registered schema that is referred to and not part of this one yet."""
        for place in self._places.values():
            for keyword in REFERENCES & place.schema.keys():
                reference = place.schema[keyword]
                if isinstance(reference, str) and not reference.startswith("#"):
                    address = _address(place.base, reference)[0]
                    if address not in self._resources and (found := find_schema(address)):
                        if _draft({"$schema": _LATEST, **found})[0] != self.draft:
                            at = (*place.at, keyword)
                            raise fault(at, "refers to a registered schema of another draft")
                        return address, found
        return None

    def _with_resource(self, address: str, resource: Schema) -> Schema:
        """A copy with the resource among its definitions, found there by its address."""
        copy: Any = deepcopy(self.root)
        identity, definitions = ("id" if self.draft == 4 else "$id"), "$defs"
        if self.draft < 2019:
            definitions = "definitions"
        named = resource.get(identity)
        own = _address(address, named)[0] if isinstance(named, str) else address
        if own != address:
            self._rename_references(copy, address, own)
        inside = copy.setdefault(definitions, {})
        if not isinstance(inside, dict):
            raise fault((definitions,), "must be an object")
        inside[own] = {**deepcopy(resource), identity: own}
        try:
            measure(copy, levels=MAX_LEVELS, nodes=MAX_NODES)
        except NotPlain as error:
            raise fault((), f"with the schemas it refers to: {error.problem}") from None
        return cast("Schema", copy)

    def _rename_references(self, copy: Any, address: str, own: str) -> None:
        for place in self._places.values():
            for keyword in REFERENCES & place.schema.keys():
                reference = place.schema[keyword]
                if isinstance(reference, str) and not reference.startswith("#"):
                    target, fragment = _address(place.base, reference)
                    if target == address:
                        inner = copy
                        for part in place.at:
                            inner = inner[part]
                        inner[keyword] = f"{own}#{fragment}" if fragment else own

    def _with_number_bounds(self) -> Schema | bool:
        """A copy with Draft 4's ``minimum: 5, exclusiveMinimum: true`` in today's form."""
        copy = deepcopy(self.root)
        for place in filter(_has_boolean_bound, self._places.values()):
            inner: Any = copy
            for part in place.at:
                inner = inner[part]
            for exclusive, bound in _BOUNDS:
                if type(inner.get(exclusive)) is bool and inner.pop(exclusive) and bound in inner:
                    inner[exclusive] = inner.pop(bound)
        return copy

    def _read_as_draft_6(self) -> None:
        """The same in the oldest draft whose bounds are numbers: ``id`` has another name there, and
        what Draft 4 does not know, and so ignores, would begin to count.
        """
        copy: Any = self._with_number_bounds()
        for place in self._places.values():
            inner = copy
            for part in place.at:
                inner = inner[part]
            for keyword in _SINCE_DRAFT_6 & inner.keys():
                del inner[keyword]
            if isinstance(inner.get("id"), str) and "$id" not in inner:
                inner["$id"] = inner.pop("id")
        copy["$schema"], self.draft = _DRAFT_6, 6
        self._read(copy)

    def places(self) -> list[Place]:
        """Every subschema found so far, reachable by reference or not."""
        return list(self._places.values())

    def at(self, schema: Schema) -> Path:
        return self._places[id(schema)].at

    def targets(self, schema: Schema) -> list[Schema | bool]:
        """What the references of this subschema lead to; all of them within the tree."""
        return [target for candidates in self.candidates(schema) for target in candidates]

    def candidates(self, schema: Schema) -> list[list[Schema | bool]]:
        """For each reference of this subschema what it may lead to: one of them applies."""
        found: list[list[Schema | bool]] = []
        for keyword in REFERENCES & schema.keys():
            place = self._places[id(schema)]
            reference = schema[keyword]
            if not isinstance(reference, str):
                raise fault((*place.at, keyword), "must be a string")
            target = self._resolve(place, keyword, reference)
            dynamic: list[Schema] = []
            if keyword == "$dynamicRef" and "/" not in (name := reference.rpartition("#")[2]):
                dynamic = [one for one in self._dynamic.get(name, ()) if one is not target]
            found.append([*dynamic, target])
        return found

    def _resolve(self, place: Place, keyword: str, reference: str) -> Schema | bool:
        at = (*place.at, keyword)
        if reference.startswith("#"):
            address, fragment = place.base, reference[1:]
        else:
            address, fragment = _address(place.base, reference)
        resource = self._resources.get(address)
        if resource is None:
            raise fault(
                at,
                "refers outside this schema and is not fetched; "
                "put the definition in $defs, or register the schema",
            )
        if fragment and not fragment.startswith("/"):
            anchored = self._anchors.get((address, fragment))
            if anchored is None:
                raise fault(at, "refers to an anchor that does not exist")
            return anchored
        target, where = _follow(resource, fragment, at)
        if isinstance(target, dict) and id(target) not in self._places:
            base = self._places[id(resource)]
            self._adopt(Place(target, base.at + where, base.base))
        return target

    def _adopt(self, start: Place) -> None:
        """Note every subschema at and below ``start``, without recursion."""
        todo = [start]
        while todo:
            schema, at, base = todo.pop()
            if id(schema) in self._places:
                continue
            base = self._note_names(schema, base)
            self._places[id(schema)] = Place(schema, at, base)
            for where, child in subschemas(schema):
                if isinstance(child, dict):
                    todo.append(Place(child, at + where, base))

    def _note_names(self, schema: Schema, base: str) -> str:
        identity = schema.get("$id", schema.get("id") if self.draft == 4 else None)
        if isinstance(identity, str):
            if identity.startswith("#"):
                self._anchors[base, identity[1:]] = schema
            else:
                base = _address(base, identity)[0]
                self._resources[base] = schema
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str):
                self._anchors[base, name] = schema
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(name, []).append(schema)
        return base


def _has_boolean_bound(place: Place) -> bool:
    return any(type(place.schema.get(exclusive)) is bool for exclusive, _ in _BOUNDS)


def subschemas(schema: Schema) -> Iterator[tuple[Path, Any]]:
    """The subschemas directly within one, each with its path from there."""
    for keyword, value in schema.items():
        if keyword in _ONE_OR_MANY:
            if type(value) is list:
                for index, child in enumerate(value):
                    yield (keyword, index), child
            else:
                yield (keyword,), value
        elif keyword in _NAMED and type(value) is dict:
            for name, child in value.items():
                yield (keyword, name), child


def _draft(root: Schema) -> tuple[int, bool]:
    """The draft that a schema is written in, and whether its meta-schema is a registered one."""
    named = root.get("$schema", _LATEST)
    for step in range(_MAX_DIALECTS):
        if not isinstance(named, str):
            break
        draft = DRAFTS.get(named.rstrip("#"))
        if draft is not None:
            return draft, step > 0
        dialect = find_schema(named.rstrip("#"))
        if dialect is None:
            break
        named = dialect.get("$schema", _LATEST)
    allowed = ", ".join(DRAFTS)
    raise fault(("$schema",), f"must be registered or one of: {allowed}; without it, the last")


def _address(base: str, reference: str) -> tuple[str, str]:
    """The absolute address of a reference, and its fragment."""
    from urllib.parse import urldefrag, urljoin  # 3 ms, and few schemas name addresses

    return urldefrag(urljoin(base, reference))


def _unquoted(part: str) -> str:
    from urllib.parse import unquote  # as above

    return unquote(part)


def _follow(resource: Schema, fragment: str, at: Path) -> tuple[Schema | bool, Path]:
    node: Any = resource
    path: Path = ()
    for escaped in fragment.split("/")[1:]:
        part = (_unquoted(escaped) if "%" in escaped else escaped).replace("~1", "/")
        part = part.replace("~0", "~")
        if isinstance(node, dict) and part in node:
            node, path = node[part], (*path, part)
        elif isinstance(node, list) and part.isdecimal() and int(part[:9]) < len(node):
            node, path = node[int(part)], (*path, int(part))
        else:
            raise fault(at, "refers to a place in this schema that does not exist")
    if not isinstance(node, dict | bool):
        raise fault(at, "refers to something that is not a schema")
    return node, path
