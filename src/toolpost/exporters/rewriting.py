"""A schema in a vendor's dialect, by rule.

Above: ``strict.py`` and ``gemini.py``. Below: ``dialect``, ``normal``, ``folding`` and ``nulls``.
What a dialect lacks is loosened, said in the description where a few words will do, and told; where
a dialect wants more than a schema can promise, the schema is ``Unfit``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from toolpost.exporters.circles import Reference, cut
from toolpost.exporters.dialect import Dialect, Unfit
from toolpost.exporters.folding import Never, merged
from toolpost.exporters.kinds import HOLDERS, is_of, kind_of, kinds_of, matters
from toolpost.exporters.normal import ANNOTATIONS, REF, Node, Normal
from toolpost.exporters.nulls import nullable, takes_null
from toolpost.exporters.values import Tell
from toolpost.plain import Path, pointer

_STRUCTURE: Final = frozenset((
    "type", "enum", "const", "properties", "required", "additionalProperties", "items",
    "prefixItems", "unevaluatedProperties", "unevaluatedItems", "patternProperties",
))  # fmt: skip
_UNIONS: Final = ("anyOf", "oneOf")
_SILENT: Final = frozenset(("deprecated", "readOnly", "writeOnly", "examples"))
_SAYABLE: Final = frozenset((
    "default", "minLength", "maxLength", "pattern", "format", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems",
    "minProperties", "maxProperties", "dependentRequired",
))  # fmt: skip
_MOST_NODES: Final = 20_000
_LONGEST: Final = 120
_TOP: Final = -1
"""Where references come from that stand at the top, if what refers to that has a copy of it."""

Written = dict[str, Any]


def rewritten(schema: dict[str, Any], dialect: Dialect, tell: Tell) -> Written:
    """The schema in the dialect. Raises ``Unfit``, or ``InvalidSchema`` where it is none."""
    rewriting = _Rewriting(Normal(schema), dialect, tell)
    written = rewriting.whole()
    cut(rewriting.references, dialect, tell)
    return written


class _Rewriting:
    """One schema, written once."""

    def __init__(self, normal: Normal, dialect: Dialect, tell: Tell) -> None:
        self._normal, self._dialect, self._tell = normal, dialect, tell
        self._left = _MOST_NODES
        self._source = _TOP if dialect.root_ref is None else 0
        self._waiting: list[int] = []
        self._names: dict[int, str] = {}
        self.references: list[Reference] = []

    def whole(self) -> Written:
        """The root, with all that it refers to in ``$defs``."""
        try:
            root = self._node(self._normal.root, (), forced=True)
        except Never:
            raise Unfit((), "no value fits") from None
        definitions: Written = {}
        while self._waiting:
            number = self._source = self._waiting.pop(0)
            at: Path = ("$defs", self._names[number])
            try:
                definitions[self._names[number]] = self._node(
                    self._normal.targets[number], at, forced=True
                )
            except Never:
                definitions[self._names[number]] = self._anything(at, "no value fits")
        return {**root, "$defs": definitions} if definitions else root

    def _node(self, node: Node, at: Path, *, forced: bool, depth: int = 0) -> Written:
        self._left -= 1
        if depth > self._dialect.deepest or self._left < 0:
            return self._anything(at, "it is too large or too deep")
        if node is True:
            return self._anything(at)
        if node is False:
            raise Never
        folded = self._folded(node, at)
        place = _Place(at, forced, depth)
        if REF in folded:
            return self._reference(folded, place)
        if any(union in folded for union in _UNIONS):
            folded, branches = self._union(folded, at)
            if branches:
                return self._branches(folded, branches, place)
        kinds = kinds_of(folded)
        if len(kinds) > 1 and HOLDERS & set(kinds):
            plain = {key: folded[key] for key in folded if key not in ("type", *ANNOTATIONS)}
            split = [
                {"type": kind, **{key: plain[key] for key in plain if matters(key, (kind,))}}
                for kind in kinds
            ]
            return self._branches(folded, split, place)
        return self._plain(folded, kinds, place)

    # What is referred to

    def _reference(self, node: dict[str, Any], place: _Place) -> Written:
        number = self._followed(node)
        inner: Written = {"$ref": self._address(number)}
        self.references.append(Reference(self._source, number, place.forced, inner))
        annotated = self._annotated(node, place.at)
        return {**annotated, "anyOf": [inner]} if annotated else inner

    def _followed(self, node: dict[str, Any]) -> int:
        """Where a reference to a reference leads."""
        seen: set[int] = set()
        while True:
            number: int = node[REF]
            target = self._normal.targets[number]
            if isinstance(target, bool) or target.keys() != {REF}:
                return number
            if number in seen:
                raise Never
            seen.add(number)
            node = target

    def _address(self, number: int) -> str:
        if number == 0 and self._dialect.root_ref is not None:
            return self._dialect.root_ref
        name = self._names.get(number)
        if name is None:
            name = label = self._normal.labels[number]
            turn = 2
            while name in self._names.values():
                name, turn = f"{label}_{turn}", turn + 1
            self._names[number] = name
            self._waiting.append(number)
        return f"#/$defs/{name}"

    def _folded(self, node: dict[str, Any], at: Path) -> dict[str, Any]:
        """Without ``allOf``, and without anything that holds beside a reference."""
        result: Node = node
        merging: set[int] = set()
        while isinstance(result, dict) and ("allOf" in result or _crowded(result)):
            rest = {key: value for key, value in result.items() if key != "allOf"}
            parts = result.get("allOf", [])
            if len(parts) == 1 and not rest.keys() - ANNOTATIONS and isinstance(parts[0], dict):
                result = {**parts[0], **rest}
                continue
            result = {key: value for key, value in rest.items() if key != REF}
            for part in [{REF: rest[REF]}, *parts] if REF in rest else parts:
                for one in self._resolved(part, merging):
                    result = merged(result, one, lost=lambda key: self._drop(at, key))
        if result is False:
            raise Never
        return {} if result is True else result

    def _resolved(self, node: Node, merging: set[int]) -> list[Node]:
        """A node as parts without references; what is a part already need not be one again."""
        found: list[Node] = []
        while isinstance(node, dict) and REF in node:
            found.append({key: value for key, value in node.items() if key != REF})
            number: int = node[REF]
            node = True if number in merging else self._normal.targets[number]
            merging.add(number)
        return [*found, node]

    # Unions

    def _union(
        self, node: dict[str, Any], at: Path
    ) -> tuple[dict[str, Any], list[dict[str, Any] | bool]]:
        """The node without its alternatives, and those, each with all that holds for it."""
        base = {key: value for key, value in node.items() if key not in _UNIONS}
        keyword = next(union for union in _UNIONS if union in node)
        if keyword == "oneOf":
            self._tell(pointer((*at, "oneOf")), "is said as anyOf: more than one may fit")
        elif "oneOf" in node:
            self._lose(at, "oneOf")
        held = {key: value for key, value in base.items() if key not in ANNOTATIONS}
        alternatives = [one for one in node[keyword] if one is not False]
        if not alternatives:
            raise Never
        if held and all(_only_requires(one) for one in alternatives):
            self._lose(at, keyword)
            return base, []
        fitting: list[Node] = []
        for one in alternatives:
            try:
                fitting.append(merged(one, held, lost=lambda key: self._drop(at, key)))
            except Never:
                continue
        if not fitting:
            raise Never
        return base, fitting

    def _branches(self, node: dict[str, Any], branches: list[Any], place: _Place) -> Written:
        written: list[Written] = []
        for index, branch in enumerate(branches):
            try:
                one = self._node(
                    branch, (*place.at, "anyOf", index), forced=place.forced, depth=place.depth + 1
                )
            except Never:
                continue
            if one not in written:
                written.append(one)
        if not written:
            raise Never
        return {**self._annotated(node, place.at), "anyOf": written}

    # One value

    def _plain(self, node: dict[str, Any], kinds: tuple[str, ...], place: _Place) -> Written:
        said: list[str] = []
        made: Written = {}
        if "const" in node or "enum" in node:
            made = self._listed(node, kinds, place.at)
            if "anyOf" in made:
                return {**self._annotated(node, place.at), **made}
        elif kinds:
            made = {"type": kinds[0] if len(kinds) == 1 else list(kinds)}
        else:
            made = self._anything(place.at)
        if "array" in kinds:
            made |= self._array(node, place)
        if "object" in kinds:
            made |= self._object(node, place)
        for key, value in node.items():
            if key not in _STRUCTURE and key not in ANNOTATIONS and matters(key, kinds):
                if key in made:
                    continue
                if self._takes(key, value):
                    made[key] = value
                else:
                    said += self._lose(place.at, key, value)
        return {**made, **self._annotated(node, place.at, said)}

    def _listed(self, node: dict[str, Any], kinds: tuple[str, ...], at: Path) -> Written:
        """``const`` and ``enum``: those that may be listed, and the types of the others."""
        values = [node["const"]] if "const" in node else list(node["enum"])
        values = [value for value in values if is_of(value, kinds)]
        if not values:
            raise Never
        if HOLDERS & {kind_of(value) for value in values}:
            made_of = {"type": kinds[0]} if len(kinds) == 1 else {}
            return self._anything(at, "objects or arrays are listed as its values") | made_of
        plain = [value for value in values if kind_of(value) in self._dialect.listed]
        others = [value for value in values if kind_of(value) not in self._dialect.listed]
        made: list[Written] = []
        if plain:
            types = list(dict.fromkeys(kind_of(value) for value in plain))
            made.append({"type": types[0] if len(types) == 1 else types})
            const = "const" in node and self._dialect.const
            made[0] |= {"const": plain[0]} if const else {"enum": plain}
        made += [{"type": kind} for kind in dict.fromkeys(kind_of(value) for value in others)]
        if len([value for value in others if isinstance(value, bool)]) == 1:
            self._tell(pointer(at), "takes true and false alike")
        return made[0] if len(made) == 1 else {"anyOf": made}

    def _array(self, node: dict[str, Any], place: _Place) -> Written:
        at = place.at
        if "unevaluatedItems" in node:
            self._lose(at, "unevaluatedItems")
        items = node.get("items", True)
        first = node.get("prefixItems", [])
        if first and self._dialect.prefix_items:
            made: Written = {
                "prefixItems": [
                    self._inner(one, (*at, "prefixItems", index), place)
                    for index, one in enumerate(first)
                ]
            }
            if items is False:
                return made | {"items": {}, "maxItems": node.get("maxItems", len(first))}
            return made | {"items": self._inner(items, (*at, "items"), place)}
        if first:
            self._tell(pointer((*at, "prefixItems")), "each may stand anywhere in the array")
            rest = [] if items is False else [items]
            items = {"anyOf": [*first, *rest]} if len(first) + len(rest) > 1 else first[0]
        if items is False:
            return {"items": self._anything(at, "it must be empty"), "maxItems": 0}
        return {"items": self._inner(items, (*at, "items"), place)}

    def _object(self, node: dict[str, Any], place: _Place) -> Written:
        at, required = place.at, node.get("required", [])
        extra = self._extra(node, place)
        properties: Written = {}
        optional: list[str] = []
        for name, one in node.get("properties", {}).items():
            here = (*at, "properties", name)
            forced = name in required
            try:
                written = self._inner(one, here, place, forced=forced and place.forced)
            except Never:
                if forced:
                    raise
                self._tell(pointer(here), "is left out: no value fits")
                continue
            if self._dialect.all_required and not forced and not takes_null(self._normal, one):
                written = nullable(written)
                optional.append(name)
            properties[name] = written
        if optional:
            self._tell(pointer(at), f"null leaves out, and has to: {', '.join(optional)}")
        for name in required:
            if name not in properties:
                properties[name] = self._anything((*at, "required"))
        made: Written = {"properties": properties}
        if self._dialect.all_required:
            made["required"] = list(properties)
        elif required:
            made["required"] = list(required)
        return made | extra

    def _extra(self, node: dict[str, Any], place: _Place) -> Written:
        """What is not named among the properties."""
        at = place.at
        rest = node.get("additionalProperties", node.get("unevaluatedProperties"))
        patterns = node.get("patternProperties")
        if not self._dialect.closed:
            if patterns:
                self._lose(at, "patternProperties")
                return {}
            if rest is None or isinstance(rest, bool):
                return {} if rest is None else {"additionalProperties": rest}
            return {"additionalProperties": self._inner(rest, (*at, "additionalProperties"), place)}
        if patterns or (rest is not None and rest is not False):
            raise Unfit(at, "properties of any name are taken")
        if rest is None:
            if "properties" not in node:
                raise Unfit(at, "properties of any name are taken")
            self._tell(pointer(at), "no other properties are taken there")
        return {"additionalProperties": False}

    def _inner(self, node: Node, at: Path, place: _Place, *, forced: bool | None = None) -> Written:
        must = place.forced if forced is None else forced
        return self._node(node, at, forced=must, depth=place.depth + 1)

    def _anything(self, at: Path, why: str = "") -> Written:
        if not self._dialect.anything:
            raise Unfit(at, why or "any value is taken")
        if why:
            self._tell(pointer(at), f"is any value there: {why}")
        return {}

    # Words

    def _takes(self, key: str, value: Any) -> bool:
        if key not in self._dialect.keywords:
            return False
        only = self._dialect.only.get(key)
        return only is None or (isinstance(value, str | int) and value in only)

    def _drop(self, at: Path, key: str) -> None:
        self._lose(at, key)

    def _lose(self, at: Path, key: str, value: Any = None) -> list[str]:
        """A keyword goes; what of it can be said in a few words is said."""
        words = _words(key, value)
        what = "is said in the description" if words else "is left out: toolpost still checks it"
        if key not in _SILENT and (key, value) != ("default", None):
            self._tell(pointer((*at, key)), what)
        return words

    def _annotated(self, node: dict[str, Any], at: Path, said: list[str] | None = None) -> Written:
        """Title and description; the description says what could not be said otherwise."""
        said = list(said or ())
        made: Written = {}
        for key in ("title", "description", "default"):
            if key in node and key in self._dialect.keywords:
                made[key] = node[key]
            elif key in node:
                said += self._lose(at, key, node[key])
        if said:
            text = str(made.get("description", ""))
            made["description"] = f"{text} ({', '.join(said)})".lstrip()
        return made


class _Place(msgspec.Struct, frozen=True):
    at: Path
    forced: bool
    depth: int


def _crowded(node: dict[str, Any]) -> bool:
    return REF in node and bool(node.keys() - ANNOTATIONS - {REF})


def _only_requires(node: Node) -> bool:
    return isinstance(node, dict) and not node.keys() - {"required", *ANNOTATIONS}


def _words(key: str, value: Any) -> list[str]:
    if key not in _SAYABLE or value is None or isinstance(value, dict):
        return []
    text = msgspec.json.encode(value).decode()
    return [f"{key}: {text}"] if len(text) <= _LONGEST else []
