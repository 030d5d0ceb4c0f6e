"""Optional and strict: where a model must name every property, null says "left out".

Above: ``rewriting.py``, which makes optional properties nullable, and ``Export``, which takes
the nulls out again, by one rule: null leaves a property out if it is not required and does
not take null itself. Below: ``normal``.
"""

from __future__ import annotations

from typing import Any

from toolpost.errors import InvalidSchema
from toolpost.exporters.kinds import HOLDERS
from toolpost.exporters.normal import REF, Node, Normal
from toolpost.plain import NotPlain, measure


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
    cleaned: dict[str, Any] = _cleaned(normal, [normal.root], arguments)
    return cleaned


def _cleaned(normal: Normal, nodes: list[Node], value: Any) -> Any:
    """The value, of which all these nodes speak."""
    if isinstance(value, list):
        speaking = _spread(normal, nodes)
        return [_cleaned(normal, _items(speaking, at), one) for at, one in enumerate(value)]
    if not isinstance(value, dict):
        return value
    speaking = _spread(normal, nodes)
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
        kept[name] = _cleaned(normal, inner, one)
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


def _spread(normal: Normal, nodes: list[Node]) -> list[dict[str, Any]]:
    """Those nodes, and all that they refer to or are made of."""
    found: dict[int, dict[str, Any]] = {}
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if isinstance(node, bool) or id(node) in found:
            continue
        found[id(node)] = node
        every, unions = _parts(normal, node)
        todo += [*every, *(one for some in unions for one in some)]
    return list(found.values())
