"""Names of parameters under a vendor's rule: legal ones stay, the others are spelled otherwise.

Above: the forms that know such a rule. Below: ``names`` and ``roots``. Only the top of a schema is
meant: what an inner object calls its properties is nobody's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolpost.errors import InvalidSchema
from toolpost.exporters.names import Rule, marked
from toolpost.exporters.roots import rooted
from toolpost.exporters.values import Tell, Unexportable
from toolpost.schema.tree import Tree
from toolpost.spec import ToolSpec

STRICTEST: Final = Rule(legal=r"[A-Za-z0-9_.-]+", most=64)
"""Anthropic's rule: one parameter of another name, and it refuses a whole request."""
_BY_NAME: Final = ("if", "then", "else", "dependentSchemas", "dependencies", "propertyNames")
"""Keywords that speak of properties by name, further down: they go where a name is another."""


def respelled(
    schema: dict[str, Any], rule: Rule, tell: Tell
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """The schema with legal names at its top, and name → spelling of those that have another."""
    listed = [*schema.get("properties", {}), *schema.get("required", ())]
    spelled = _spelled(listed, rule)
    if not spelled:
        return schema, spelled
    made = {key: value for key, value in schema.items() if key not in _BY_NAME}
    for key in schema.keys() - made.keys():
        tell(f"/{key}", "is left out: toolpost still checks it")
    if "properties" in made:
        said = {name: _named(one, name, spelled) for name, one in made["properties"].items()}
        made["properties"] = renamed(said, spelled)
    if "required" in made:
        made["required"] = [spelled.get(name, name) for name in made["required"]]
    if "dependentRequired" in made:
        made["dependentRequired"] = {
            spelled.get(name, name): [spelled.get(one, one) for one in needs]
            for name, needs in made["dependentRequired"].items()
        }
    _verify(made)
    for name, spelling in spelled.items():
        tell("/properties", f"{name!r} is {spelling} there")
    return made, spelled


def keys_of(spec: ToolSpec) -> Mapping[str, str]:
    """Name → spelling of the parameters that have another than their own."""
    return respelled(rooted(spec.input_schema, _silent), STRICTEST, _silent)[1]


def _silent(where: str, what: str) -> None:
    """What is done to a schema was told when it was written."""


def renamed(values: Mapping[str, Any], spelled: Mapping[str, str]) -> dict[str, Any]:
    """A mapping with the keys as they are spelled."""
    return {spelled.get(name, name): value for name, value in values.items()}


def _named(node: Any, name: str, spelled: Mapping[str, str]) -> Any:
    """A parameter whose name says less than its own did, with that in its description."""
    if name not in spelled or not isinstance(node, dict):
        return node
    return {**node, "description": f"{node.get('description', '')} ({name})".lstrip()}


def _spelled(names: Iterable[str], rule: Rule) -> dict[str, str]:
    wanted = list(dict.fromkeys(names))
    taken = {name for name in wanted if rule.allows(name)}
    spelled: dict[str, str] = {}
    for name in wanted:
        if name not in taken:
            near = "".join(sign if rule.allows(sign) else "_" for sign in name) or "_"
            spelling, turn = near, 0
            while spelling in taken or not rule.allows(spelling):
                spelling, turn = marked(near, name, rule=rule, turn=turn), turn + 1
            spelled[name] = spelling
            taken.add(spelling)
    return spelled


def _verify(schema: dict[str, Any]) -> None:
    """What is referred to is still there, and is not the top, whose names are others now."""
    tree = Tree(schema)
    try:
        targets = [one for place in tree.places() for one in tree.targets(place.schema)]
        sound = not any(one is tree.root for one in targets)
    except InvalidSchema:
        sound = False
    if not sound:
        raise Unexportable("its input schema refers to a parameter whose name is not legal there")
