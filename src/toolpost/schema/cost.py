"""What a JSON Schema may cost, judged before anything is compiled.

Above: ``check.py``. Below: ``tree``, ``pattern``. It refuses to know values.

Native validation cannot be interrupted, so what it may be asked to do is bounded here. The measure
is *visits*: how many subschemas may be tried on one place of a value. ``anyOf`` and references
multiply it, and below a property they multiply again; different properties are different places
and do not. A schema that grows with every level of the value (a recursive union whose branches
look alike) is admitted if it grows slowly, and the value's depth is then part of the price.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from toolpost.errors import InvalidSchema
from toolpost.plain import Path
from toolpost.schema.pattern import TooExpensive, judge
from toolpost.schema.tree import REFERENCES, Place, Schema, Tree, fault

MAX_VISITS: Final = 2_000
MAX_ENUM: Final = 5_000
MAX_PATTERNS: Final = 500
MAX_CHAIN: Final = 100
_MAX_KEY_PATTERNS: Final = 4
_WORK: Final = 1_000_000
_LEVELS: Final = 64
_SOON: Final = 6
_FEW: Final = 64
_ENDLESS: Final = 10**9

# A place below a value: a property by name, an item by number, or any other one.
_Key = str | int | None
_OTHER_PROPERTY: Final = None
_OTHER_ITEM: Final = -1
_PROPERTY_NAME: Final = -2


class _Either(msgspec.Struct):
    """Branches of which a value can only take one: the dearest counts, not all of them."""

    branches: list[list[_Term]]


_Term = int | _Either
_Groups = dict[_Key, list[_Term]]


class Cost(msgspec.Struct, frozen=True):
    """``visits[n]``: subschemas tried on one place of a value ``n + 1`` levels deep, at most.

    ``limits``: text limits of patterns that are dear on long text, by the id of their subschema.
    ``key_limits``: the same for patterns of ``patternProperties`` and the keys they are tried on.
    """

    visits: tuple[int, ...]
    limits: dict[int, int] = {}
    key_limits: dict[int, int] = {}

    @property
    def has_limits(self) -> bool:
        """Whether a pattern is dear, so that it may only meet a bounded number of short texts."""
        return bool(self.limits or self.key_limits)

    def of(self, nodes: int, levels: int) -> int:
        """What checking a value of this extent may take, in subschemas tried."""
        return nodes * self.visits[min(levels, len(self.visits)) - 1]


def judge_cost(tree: Tree) -> Cost:
    """The cost of a schema; raises :class:`InvalidSchema` where it is too high."""
    if not isinstance(tree.root, dict):
        return Cost((1,))
    limits, key_limits = _judge_keywords(tree)
    places = tree.places()
    if len(places) <= _FEW and not any(REFERENCES & place.schema.keys() for place in places):
        # a tree: each subschema stands at one place only
        return Cost((len(places),), limits, key_limits)
    return Cost(_Count(tree).visits(), limits, key_limits)


def _judge_keywords(tree: Tree) -> tuple[dict[int, int], dict[int, int]]:
    limits: dict[int, int] = {}
    key_limits: dict[int, int] = {}
    patterns = 0
    for place in tree.places():
        schema = place.schema
        enum = schema.get("enum")
        if isinstance(enum, list) and len(enum) > MAX_ENUM:
            raise fault((*place.at, "enum"), f"lists more than {MAX_ENUM} values")
        pattern = schema.get("pattern")
        if isinstance(pattern, str):
            patterns += 1
            limit = _judge_pattern((*place.at, "pattern"), pattern)
            if limit is not None:
                limits[id(schema)] = limit
        if isinstance(schema.get("patternProperties"), dict):
            patterns += len(schema["patternProperties"])
            limit = _judge_key_patterns(place)
            if limit is not None:
                key_limits[id(schema)] = limit
    if patterns > MAX_PATTERNS:
        raise fault((), f"holds more than {MAX_PATTERNS} patterns")
    if (limits or key_limits) and (tree.draft < 7 or tree.has_own_dialect):
        raise fault(
            ("$schema",),
            "a pattern as dear as this one has needs draft 7 or later, and no dialect of its own",
        )
    return limits, key_limits


def _judge_pattern(at: Path, pattern: str) -> int | None:
    try:
        return judge(pattern).text_limit
    except TooExpensive as error:
        raise fault(at, str(error)) from None


def _judge_key_patterns(place: Place) -> int | None:
    """The longest key that every pattern for keys may be tried on; None where any will do."""
    at = (*place.at, "patternProperties")
    judged = [_judge_pattern(at, pattern) for pattern in place.schema["patternProperties"]]
    limits = [limit for limit in judged if limit is not None]
    if len(limits) > _MAX_KEY_PATTERNS:
        raise fault(
            at,
            f"more than {_MAX_KEY_PATTERNS} patterns for keys use look-around, back-references "
            "or large repetitions",
        )
    return min(limits, default=None)


class _Count:
    """Counts visits over the graph of subschemas; its own work is capped, whatever the graph."""

    def __init__(self, tree: Tree) -> None:
        self._document = tree
        self._known: dict[int, tuple[int, _Groups]] = {}
        self._open: set[int] = set()
        self._places: dict[int, Schema] = {}
        self._work = 0

    def visits(self) -> tuple[int, ...]:
        root = self._document.root
        assert isinstance(root, dict)
        places = self._reachable(root)
        here = {key: count for key, (count, _) in places.items()}
        table = [here[id(root)]]
        for _ in range(_LEVELS):
            after = {key: self._deeper(*places[key], here) for key in places}
            if after == here:
                settled = table[-1]
                break
            here = after
            table.append(here[id(root)])
            if len(table) > _SOON and table[-1] > _ENDLESS:
                settled = 0
                break
        else:
            settled = 0  # it grows with the value, which is then measured before it is checked
        if max(settled, table[min(_SOON, len(table) - 1)]) > MAX_VISITS:
            raise self._too_dear()
        return tuple(table)

    def _deeper(self, count: int, groups: _Groups, here: dict[int, int]) -> int:
        self._spend(len(groups))
        return max([count, *(self._price(terms, here) for terms in groups.values())])

    def _price(self, terms: list[_Term], here: dict[int, int]) -> int:
        total = 0
        for term in terms:
            if isinstance(term, int):
                total += here[term]
            else:
                total += max(self._price(branch, here) for branch in term.branches)
        return total

    def _reachable(self, root: Schema) -> dict[int, tuple[int, _Groups]]:
        """Every subschema that stands at a place of its own, with what is tried there."""
        places: dict[int, tuple[int, _Groups]] = {}
        self._places[id(root)] = root
        todo = [root]
        while todo:
            schema = todo.pop()
            if id(schema) not in places:
                gathered = places[id(schema)] = self._gather(schema)
                for terms in gathered[1].values():
                    todo.extend(self._places[key] for key in _flat(terms) if key not in places)
        return places

    def _gather(self, schema: Schema) -> tuple[int, _Groups]:
        """How many subschemas a value meets at this place itself, and what it meets below."""
        known = self._known.get(id(schema))
        if known is not None:
            return known
        if id(schema) in self._open:
            raise fault(
                self._document.at(schema), "refers to itself without going deeper into the value"
            )
        if len(self._open) >= MAX_CHAIN:
            raise self._too_dear()
        self._open.add(id(schema))
        count, groups = 1, [self._own(schema)]
        for branches, exclusive in self._branches(schema):
            gathered = [self._gather(branch) for branch in branches]
            count += sum(inner for inner, _ in gathered)
            below = [inner for _, inner in gathered]
            groups.extend([self._merge(below, either=True)] if exclusive else below)
        self._open.discard(id(schema))
        if count > MAX_VISITS:
            raise self._too_dear()
        result = self._known[id(schema)] = (count, self._merge(groups, either=False))
        return result

    def _branches(self, schema: Schema) -> Iterable[tuple[list[Schema], bool]]:
        """What is tried on the same place: lists of subschemas, and whether only one can go on."""
        for keyword in ("allOf", "anyOf", "oneOf"):
            listed = schema.get(keyword)
            if isinstance(listed, list):
                branches = [branch for branch in listed if isinstance(branch, dict)]
                yield branches, keyword != "allOf" and self._exclusive(branches)
        single = [schema.get(keyword) for keyword in ("not", "if", "then", "else")]
        for keyword in ("dependentSchemas", "dependencies"):
            named = schema.get(keyword)
            if isinstance(named, dict):
                single.extend(named.values())
        branches = [branch for branch in single if isinstance(branch, dict)]
        if branches:
            yield branches, False
        for candidates in self._document.candidates(schema):
            branches = [target for target in candidates if isinstance(target, dict)]
            if branches:
                yield branches, len(branches) > 1  # a dynamic reference leads to one of them

    def _exclusive(self, branches: list[Schema]) -> bool:
        """Do the object branches carry a tag, one property whose allowed values never overlap?"""
        tags: list[dict[str, list[Any]]] = []
        for branch in branches:
            for _ in range(MAX_CHAIN):
                targets = self._document.targets(branch)
                if len(targets) != 1 or not isinstance(targets[0], dict):
                    break
                branch = targets[0]
            tag = _tags(branch)
            if tag is not None:
                tags.append(tag)
        if len(tags) < 2:
            return False
        for name in tags[0]:
            values = [value for tag in tags for value in tag.get(name, ())]
            if all(name in tag for tag in tags) and len(set(map(repr, values))) == len(values):
                return True
        return False

    def _own(self, schema: Schema) -> _Groups:
        """The places that this subschema itself, without its branches, puts others at."""
        groups: _Groups = {}
        named = schema.get("properties")
        if isinstance(named, dict):
            for name, child in named.items():
                groups[name] = self._term(child)
        self._others(
            schema, groups, _OTHER_PROPERTY, ("additionalProperties", "unevaluatedProperties")
        )
        matching = schema.get("patternProperties")
        if isinstance(matching, dict):
            self._everywhere(groups, _OTHER_PROPERTY, list(matching.values()))
        for keyword in ("items", "prefixItems"):
            listed = schema.get(keyword)
            if isinstance(listed, list):
                for index, child in enumerate(listed):
                    groups[index] = self._term(child)
        self._others(schema, groups, _OTHER_ITEM, ("items", "additionalItems", "unevaluatedItems"))
        if "contains" in schema:
            self._everywhere(groups, _OTHER_ITEM, [schema["contains"]])
        if isinstance(schema.get("propertyNames"), dict):
            groups[_PROPERTY_NAME] = self._term(schema["propertyNames"])
        return groups

    def _others(
        self, schema: Schema, groups: _Groups, key: _Key, keywords: tuple[str, ...]
    ) -> None:
        terms = [term for keyword in keywords for term in self._term(schema.get(keyword))]
        if terms:
            groups[key] = terms

    def _everywhere(self, groups: _Groups, other: _Key, children: list[Any]) -> None:
        terms = [term for child in children for term in self._term(child)]
        groups.setdefault(other, [])
        for key in groups:
            if _other(key) == other:
                groups[key] = groups[key] + terms

    def _term(self, child: Any) -> list[_Term]:
        if not isinstance(child, dict):
            return []
        self._places[id(child)] = child
        return [id(child)]

    def _merge(self, many: list[_Groups], *, either: bool) -> _Groups:
        """What several subschemas on one place put below it, place by place."""
        many = [groups for groups in many if groups]
        if len(many) < 2:
            return many[0] if many else {}
        keys = dict.fromkeys(key for groups in many for key in groups)
        merged: _Groups = {}
        for key in keys:
            found = [terms for groups in many if (terms := _at(groups, key))]
            self._spend(len(many))
            if len(found) > 1:
                merged[key] = [_Either(found)] if either else [t for terms in found for t in terms]
            elif found:
                merged[key] = found[0]
            if len(merged.get(key, ())) > MAX_VISITS:
                raise self._too_dear()
        return merged

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > _WORK:
            raise self._too_dear()

    def _too_dear(self) -> InvalidSchema:
        return fault(
            (),
            f"a value could be tried against more than {MAX_VISITS} subschemas in one place; "
            "use fewer anyOf, oneOf, allOf or $ref branches, or tell them apart by a required "
            "property with a const",
        )


def _other(key: _Key) -> _Key:
    return _OTHER_PROPERTY if key is None or isinstance(key, str) else _OTHER_ITEM


def _at(groups: _Groups, key: _Key) -> list[_Term]:
    if key in groups:
        return groups[key]
    return groups.get(_other(key), []) if key != _PROPERTY_NAME else []


def _flat(terms: list[_Term]) -> Iterable[int]:
    for term in terms:
        if isinstance(term, int):
            yield term
        else:
            for branch in term.branches:
                yield from _flat(branch)


def _tags(schema: Schema) -> dict[str, list[Any]] | None:
    """Required properties with a fixed set of values; None for a branch that has no properties."""
    named = schema.get("properties")
    if not isinstance(named, dict):
        return None
    required = schema.get("required")
    tags: dict[str, list[Any]] = {}
    for name in required if isinstance(required, list) else ():
        child = named.get(name) if isinstance(name, str) else None
        if isinstance(child, dict):
            if "const" in child:
                tags[name] = [child["const"]]
            elif isinstance(child.get("enum"), list):
                tags[name] = child["enum"]
    return tags
