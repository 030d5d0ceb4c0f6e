"""Optional and strict: where a model must name every property, null says "left out".

Above: ``rewriting.py``, which makes optional properties nullable, and ``Export``, which takes
the nulls out again, by one rule: null leaves a property out if it is not required and does
not take null itself. Of several branches those count that the value may be meant for. Below:
``normal``.
"""

from __future__ import annotations

from typing import Any

from toolpost.errors import InvalidSchema
from toolpost.exporters.folding import same
from toolpost.exporters.kinds import HOLDERS, is_of
from toolpost.exporters.normal import REF, Node, Normal
from toolpost.plain import NotPlain, measure

Fit = dict[tuple[int, int], bool]
"""What is known of nodes and values that were looked at."""


def takes_null(normal: Normal, node: Node) -> bool:
    """Whether null may be a value here; where the schema goes round in circles, it may."""
    return _takes_null(normal, node, {})


def _takes_null(normal: Normal, node: Node, known: dict[int, bool]) -> bool:
    if isinstance(node, bool):
        return node
    if id(node) not in known:  # what many refer to is looked at once
        known[id(node)] = True
        every, unions = _parts(normal, node)
        known[id(node)] = (
            _may_be_null(node)
            and all(_takes_null(normal, one, known) for one in every)
            and all(any(_takes_null(normal, one, known) for one in some) for some in unions)
        )
    return known[id(node)]


def _may_be_null(node: dict[str, Any]) -> bool:
    """As far as its own keywords go."""
    kinds = node.get("type", "null")
    return (
        ("const" not in node or node["const"] is None)
        and ("enum" not in node or None in node["enum"])
        and "null" in ([kinds] if isinstance(kinds, str) else kinds)
    )


def _parts(normal: Normal, node: dict[str, Any]) -> tuple[list[Node], list[list[Node]]]:
    """What must hold beside the node itself, and lists of which one must."""
    targets = [normal.targets[node[REF]]] if REF in node else []
    unions = [node[keyword] for keyword in ("anyOf", "oneOf") if keyword in node]
    return [*node.get("allOf", ()), *targets], unions


def nullable(written: dict[str, Any]) -> dict[str, Any]:
    """The same, or null."""
    kind = written.get("type")
    if isinstance(kind, str) and kind not in HOLDERS and "const" not in written:
        listed = {"enum": [*written["enum"], None]} if "enum" in written else {}
        return {**written, "type": [kind, "null"], **listed}
    outer = {key: one for key, one in written.items() if key in ("title", "description")}
    inner = {key: value for key, value in written.items() if key not in outer}
    if inner.keys() == {"anyOf"}:
        return {**outer, "anyOf": [*inner["anyOf"], {"type": "null"}]}
    return {**outer, "anyOf": [inner, {"type": "null"}]}


def without_nulls(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without the nulls that only say that there is no value."""
    try:
        measure(arguments)
        normal = Normal(schema)
    except (NotPlain, InvalidSchema):
        return arguments  # what is wrong with them is said when the tool is called
    cleaned: dict[str, Any] = _cleaned(normal, [normal.root], arguments, {})
    return cleaned


def _cleaned(normal: Normal, nodes: list[Node], value: Any, fit: Fit) -> Any:
    """The value, of which all these nodes speak."""
    if not isinstance(value, dict | list):
        return value
    speaking = _spread(normal, nodes, value, fit)
    if isinstance(value, list):
        return [_cleaned(normal, _items(speaking, at), one, fit) for at, one in enumerate(value)]
    kept = {}
    for name, one in value.items():
        inner = [
            node["properties"][name] for node in speaking if name in node.get("properties", {})
        ]
        taken = any(takes_null(normal, node) for node in inner) or not inner
        if (
            one is None
            and not taken
            and not all(_demands(normal, node, name, {}) for node in nodes)
        ):
            continue
        kept[name] = _cleaned(normal, inner, one, fit)
    return kept


def _demands(normal: Normal, node: Node, name: str, known: dict[int, bool]) -> bool:
    """Whether a value that fits has the property in any case."""
    if isinstance(node, bool):
        return False
    if id(node) not in known:
        known[id(node)] = False
        every, unions = _parts(normal, node)
        known[id(node)] = (
            name in node.get("required", ())
            or any(_demands(normal, one, name, known) for one in every)
            or any(all(_demands(normal, one, name, known) for one in some) for some in unions)
        )
    return known[id(node)]


def _items(speaking: list[dict[str, Any]], at: int) -> list[Node]:
    found = []
    for node in speaking:
        first = node.get("prefixItems", ())
        found.append(first[at] if at < len(first) else node.get("items", True))
    return found


def _spread(normal: Normal, nodes: list[Node], value: Any, fit: Fit) -> list[dict[str, Any]]:
    """Those nodes, and all that they refer to or are made of; of branches, those that fit."""
    found: dict[int, dict[str, Any]] = {}
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if isinstance(node, bool) or id(node) in found:
            continue
        found[id(node)] = node
        every, unions = _parts(normal, node)
        todo += every
        for some in unions:
            todo += [one for one in some if _fits(normal, one, value, fit)] or some
    return list(found.values())


def _fits(normal: Normal, node: Node, value: Any, fit: Fit) -> bool:
    """Whether the value may be meant for this node, as far as types, listed values and names tell,
    if null leaves out what is not required.
    """
    if isinstance(node, bool):
        return node
    key = id(node), id(value)
    if key not in fit:
        fit[key] = True
        every, unions = _parts(normal, node)
        fit[key] = (
            _agrees(normal, node, value, fit)
            and all(_fits(normal, one, value, fit) for one in every)
            and all(any(_fits(normal, one, value, fit) for one in some) for some in unions)
        )
    return fit[key]


def _agrees(normal: Normal, node: dict[str, Any], value: Any, fit: Fit) -> bool:
    """As far as its own keywords go."""
    kinds = node.get("type", ())
    listed = [node["const"]] if "const" in node else node.get("enum")
    if kinds and not is_of(value, (kinds,) if isinstance(kinds, str) else tuple(kinds)):
        return False
    if listed is not None and not any(same(one, value) for one in listed):
        return False
    if isinstance(value, list):
        inner = [(_items([node], at)[0], one) for at, one in enumerate(value)]
    elif isinstance(value, dict):
        properties, required = node.get("properties", {}), node.get("required", ())
        closed = node.get("additionalProperties") is False and "patternProperties" not in node
        if (closed and value.keys() - properties.keys()) or set(required) - value.keys():
            return False
        meant = [name for name in value if value[name] is not None or name in required]
        inner = [(properties[name], value[name]) for name in meant if name in properties]
    else:
        inner = []
    return all(_fits(normal, one, part, fit) for one, part in inner)
