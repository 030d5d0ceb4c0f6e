"""What a rule may demand of a tool, of a caller and of arguments.

Above: ``reading.py``. Below: ``patterns``. Where a condition is written is not known here.

What cannot be judged counts against the call: a value that a test cannot compare (a text where a
number is expected) meets the test of a rule that asks or denies, and not of one that allows. Of
several values (``/files/*/path``) one is enough to ask or deny, and all are needed to allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from toolpost.call import Caller
from toolpost.errors import ConfigError
from toolpost.patterns import caller_matcher, glob, selector
from toolpost.rules.rule import Condition, OfCall, OfTool
from toolpost.spec import ToolSpec
from toolpost.wording import short

Unset = msgspec.UnsetType
Few = str | tuple[str, ...]
"""One text or several; any of them will do."""


class Test(msgspec.Struct, frozen=True, kw_only=True):
    """What an argument has to be; several demands at once all have to be met."""

    equals: Any = msgspec.UNSET
    one_of: tuple[Any, ...] | Unset = msgspec.field(default=msgspec.UNSET, name="in")
    matches: Few | Unset = msgspec.UNSET
    greater: int | float | Unset = msgspec.UNSET
    less: int | float | Unset = msgspec.UNSET
    present: bool | Unset = msgspec.UNSET


_NUMBERS: Final = frozenset((int, float))

Meets = Callable[[Any], bool | None]
"""Whether a value meets a test; ``None`` if the two cannot be compared."""


def several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def on_argument(pointer: str, test: Test, *, to_allow: bool) -> Condition:
    """A condition on what a JSON pointer finds in the arguments."""
    if not pointer.startswith("/"):
        raise ConfigError(f"{short(pointer)!r} is no JSON pointer; write '/path', for example")
    steps = [s.replace("~1", "/").replace("~0", "~") for s in pointer[1:].split("/")]
    demands = _demands(test)
    if test.present is False:
        if demands:
            raise ConfigError("what is not present can be nothing else; leave the other tests out")
        return Condition(pointer, of_call=lambda _, arguments: not _found(arguments, steps))
    meets = demands[0] if len(demands) == 1 else _all_of(demands)
    return Condition(pointer, of_tool=_may_have(steps[0]), of_call=_holding(steps, meets, to_allow))


def _holding(steps: list[str], meets: Meets, to_allow: bool) -> OfCall:
    if to_allow:

        def all_meet(_: Caller, arguments: Mapping[str, Any]) -> bool:
            found = _found(arguments, steps)
            return bool(found) and all(meets(value) is True for value in found)

        return all_meet
    if len(steps) > 1 or steps[0] == "*":
        return lambda _, arguments: any(meets(v) is not False for v in _found(arguments, steps))
    name = steps[0]

    def meets_it(_: Caller, arguments: Mapping[str, Any]) -> bool:  # the usual, as fast as can be
        return name in arguments and meets(arguments[name]) is not False

    return meets_it


def _may_have(name: str) -> OfTool:
    """Whether a tool's arguments can have this name at all: most tools say what they take."""

    def may_have(spec: ToolSpec) -> bool:
        schema = spec.input_schema
        known = schema.get("properties")
        closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        return name == "*" or not closed or not isinstance(known, dict) or name in known

    return may_have


def _found(value: Any, steps: Sequence[str]) -> list[Any]:
    """The values at a pointer; a ``*`` in it goes into every item of a list or an object."""
    values: list[Any] = [value]
    for step in steps:
        values = [inner for one in values for inner in _inside(one, step)]
    return values


def _inside(value: Any, step: str) -> Iterable[Any]:
    if isinstance(value, dict):
        if step == "*":
            return value.values()
        return (value[step],) if step in value else ()
    if isinstance(value, list | tuple):
        if step == "*":
            return value
        if step.isascii() and step.isdigit() and len(step) < 10:
            return value[int(step) : int(step) + 1]
    return ()


def _demands(test: Test) -> list[Meets]:
    demands: list[Meets] = []
    if test.equals is not msgspec.UNSET:
        demands.append(lambda value: _same(value, test.equals))
    if test.one_of is not msgspec.UNSET:
        choices = test.one_of
        demands.append(lambda value: any(_same(value, choice) for choice in choices))
    if test.matches is not msgspec.UNSET:
        matches = glob(several(test.matches))
        demands.append(lambda value: matches(value) if isinstance(value, str) else None)
    if test.greater is not msgspec.UNSET:
        least = test.greater
        demands.append(lambda value: value > least if _comparable(value) else None)
    if test.less is not msgspec.UNSET:
        most = test.less
        demands.append(lambda value: value < most if _comparable(value) else None)
    return demands


def _all_of(demands: Sequence[Meets]) -> Meets:
    def meets(value: Any) -> bool | None:
        answers = [demand(value) for demand in demands]
        if False in answers:
            return False
        return None if None in answers else True

    return meets


def _comparable(value: Any) -> bool:
    """A number: neither a truth value nor NaN, which is neither greater nor less."""
    return type(value) in _NUMBERS and value == value


def _same(value: Any, other: Any) -> bool:
    """Equal as JSON: 1 is 1.0, and true is not 1."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_same(value[k], other[k]) for k in value)
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(_same, value, other))
    return bool(value == other)


def _on_tag(tags: tuple[str, ...]) -> Condition:
    matches = glob(tags)
    return Condition("tag", of_tool=lambda spec: any(matches(tag) for tag in spec.tags))


def _on_kind(kinds: tuple[str, ...]) -> Condition:
    matches = glob(kinds)
    return Condition("kind", of_tool=lambda spec: matches(spec.kind))


def _on_tier(tiers: tuple[int, ...]) -> Condition:
    if not all(0 <= tier <= 4 for tier in tiers):
        raise ConfigError("a tier is 0 to 4")
    return Condition("tier", of_tool=lambda spec: spec.tier in tiers)


def _on_caller(texts: tuple[str, ...]) -> Condition:
    matches = caller_matcher(texts)
    return Condition("caller", of_call=lambda caller, _: matches(caller))


def _on_user(texts: tuple[str, ...]) -> Condition:
    matches = glob(texts)
    return Condition(
        "user", of_call=lambda caller, _: caller.user is not None and matches(caller.user)
    )


def _on_agent(texts: tuple[str, ...]) -> Condition:
    matches = glob(texts)
    return Condition(
        "agent", of_call=lambda caller, _: caller.agent is not None and matches(caller.agent)
    )


def _on_role(roles: tuple[str, ...]) -> Condition:
    matches = glob(roles)
    return Condition("role", of_call=lambda caller, _: any(map(matches, caller.roles)))


CONDITIONS: Final[Mapping[str, Callable[[tuple[Any, ...]], Condition]]] = {
    "tool": lambda patterns: Condition("tool", of_tool=selector(patterns)),
    "tag": _on_tag,
    "kind": _on_kind,
    "tier": _on_tier,
    "effects": lambda kinds: Condition("effects", of_tool=lambda spec: spec.effects in kinds),
    "caller": _on_caller,
    "user": _on_user,
    "agent": _on_agent,
    "role": _on_role,
}
"""What a rule may say besides its arguments → the condition that it makes."""
