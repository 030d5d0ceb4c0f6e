"""From a file to rules; whatever is wrong with it is said with its place.

Above: the policy ring, ``toolpost policy``. Below: ``document``, ``conditions.py``. An empty file
is refused like a broken one: it is more likely a mistake than a wish.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn, TypeVar

import msgspec

from toolpost.digest import digest
from toolpost.document import Document, Format, parse, read
from toolpost.errors import ConfigError, SourceError
from toolpost.rules.conditions import CONDITIONS, Few, Test, on_argument, several
from toolpost.rules.rule import Condition, Rule, Rules, Verdict, decision
from toolpost.spec import Effects
from toolpost.wording import explained, nearest, short

T = TypeVar("T", bound=msgspec.Struct)
At = tuple[str | int, ...]


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """One rule as a file has it. A condition that is left out holds; texts may be globs."""

    id: str
    decision: Verdict
    reason: str | None = None
    tool: Few = ()
    """Patterns of tools: names, ``tag:…``, ``category:…``, ``kind:…``."""
    tag: Few = ()
    kind: Few = ()
    tier: int | tuple[int, ...] = ()
    effects: Effects | tuple[Effects, ...] = ()
    caller: Few = ()
    user: Few = ()
    agent: Few = ()
    role: Few = ()
    arguments: dict[str, dict[str, Any]] = {}
    """JSON pointer → a ``Test``."""


def read_rules(path: str | os.PathLike[str]) -> Rules:
    """The rules in a TOML, YAML or JSON file, or a ``ConfigError`` with file, line and column."""
    try:
        document = read(path)
    except SourceError as fault:
        raise ConfigError(fault.message) from fault
    return _rules(document)


def parse_rules(text: str, *, format: Format = "toml", name: str = "rules") -> Rules:  # noqa: A002 - the word of document
    """The rules in a text; ``name`` is what the places in it begin with."""
    try:
        document = parse(text, format=format, name=name)
    except SourceError as fault:
        raise ConfigError(fault.message) from fault
    return _rules(document)


def _rules(document: Document) -> Rules:
    data = document.data
    if data is None or data == {}:
        _refuse(document, (), _EMPTY)
    if not isinstance(data, dict):
        _refuse(document, (), "a policy is a table with a list of rules, [[rules]]")
    for key in data:
        if key != "rules":
            _refuse(document, (key,), f"unknown {short(key)!r}{nearest(key, ('rules',))}", key=True)
    listed = data["rules"]
    if not isinstance(listed, list):
        _refuse(document, ("rules",), "rules is a list of tables, [[rules]]")
    if not listed:
        _refuse(document, ("rules",), _EMPTY)
    rules: dict[str, Rule] = {}
    for index, item in enumerate(listed):
        rule = _rule(document, ("rules", index), item)
        name = rule.decision.rule
        if name in rules:
            message = f"the id {short(name)!r} is taken, at {rules[name].place}"
            _refuse(document, ("rules", index, "id"), message)
        rules[name] = rule
    return Rules(document.name, tuple(rules.values()), digest(data))


_EMPTY = (
    "it has no rules. Write at least one, [[rules]], or take the file out of the config: then the "
    "mode decides"
)


def _rule(document: Document, at: At, item: Any) -> Rule:
    if not isinstance(item, dict):
        _refuse(document, at, "a rule is a table with an id and a decision")
    written = _converted(document, at, item, Written)
    if not 1 <= len(written.id) <= 100 or not written.id.isprintable():
        _refuse(document, (*at, "id"), "an id is 1 to 100 printable characters")
    conditions = [
        _condition(document, (*at, field), several(getattr(written, field)))
        for field in CONDITIONS
        if field in item
    ]
    if "arguments" in item and not written.arguments:
        _refuse(document, (*at, "arguments"), "arguments tests nothing; leave it out")
    for pointer, test in written.arguments.items():
        inside, allows = (*at, "arguments", pointer), written.decision == "allow"
        conditions.append(_argument(document, inside, test, to_allow=allows))
    made = decision(written.decision, written.id, written.reason)
    return Rule(made, tuple(conditions), document.where(at))


def _condition(document: Document, at: At, values: tuple[Any, ...]) -> Condition:
    field = str(at[-1])
    if not values:
        _refuse(document, at, f"{field} names nothing, so that the rule would never hold")
    try:
        return CONDITIONS[field](values)
    except ConfigError as fault:
        _refuse(document, at, f"{field}: {fault.message}")


def _argument(document: Document, at: At, test: dict[str, Any], *, to_allow: bool) -> Condition:
    if not test:
        _refuse(document, at, f"{at[-1]} is tested for nothing; there are {_listed(Test)}")
    converted = _converted(document, at, test, Test)
    try:
        return on_argument(str(at[-1]), converted, to_allow=to_allow)
    except ConfigError as fault:
        _refuse(document, at, fault.message, key=True)


def _converted(document: Document, at: At, data: dict[str, Any], kind: type[T]) -> T:
    known = _fields(kind)
    for key in data:
        if key not in known:
            hint = nearest(key, known) or f"; there are {_listed(kind)}"
            _refuse(document, (*at, key), f"unknown {short(key)!r}{hint}", key=True)
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as fault:
        what, inside = explained(fault, kind)
        path = ".".join(map(str, inside))
        _refuse(document, (*at, *inside), f"{path}: {what}" if path else what)


def _fields(kind: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _listed(kind: type[msgspec.Struct]) -> str:
    return ", ".join(_fields(kind))


def _refuse(document: Document, at: At, message: str, *, key: bool = False) -> NoReturn:
    raise ConfigError(f"{document.where(at, key=key)}: {message}")
