"""Who may see a tool, and who may call it: two questions, answered from the config.

Above: the road. Below: ``patterns.py``. Whoever runs the process (``caller.owner``) may do
everything. An identified caller has what ``default`` gives, and what its roles, its agent and its
own names add to that; nothing takes away but the ``permissions`` in a tool's spec. How a caller
came by its identity, and what a policy makes of a permitted call, is not known here.

A tool that a caller may not see answers as a name that no tool has (``chain.hidden``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import msgspec

from toolpost.call import Call, Caller
from toolpost.contracts import Check, Road, Surroundings
from toolpost.errors import ConfigError, Unauthorized
from toolpost.options import Options, options_from
from toolpost.patterns import caller_matcher, selector
from toolpost.spec import ToolSpec

_REMEMBERED: Final = 20_000
"""Tools whose rights are kept; beyond that they are worked out anew."""


class Grant(Options, frozen=True, kw_only=True):
    """What somebody may do, by patterns of tools. ``tier`` is the highest that may be called.

    What may be called may be seen; ``see`` adds to that, of any tier.
    """

    see: tuple[str, ...] = ()
    call: tuple[str, ...] = ()
    tier: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.tier <= 4:
            raise ValueError("tier must be 0 to 4")


EVERYBODY: Final = Grant(see=("*",), call=("*",), tier=1)


class AccessOptions(Options, frozen=True, kw_only=True):
    """The table ``[extensions.access]``; what is inside the four is a ``Grant`` each."""

    default: dict[str, Any] | None = None
    roles: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    agents: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    callers: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)


class _Right(msgspec.Struct, frozen=True):
    """Who has one right over one tool."""

    everybody: bool
    roles: frozenset[str]
    agents: frozenset[str]
    callers: Callable[[Caller], bool] | None

    def of(self, caller: Caller) -> bool:
        return (
            self.everybody
            or not self.roles.isdisjoint(caller.roles)
            or caller.agent in self.agents
            or (self.callers is not None and self.callers(caller))
        )


class _Rights(msgspec.Struct, frozen=True):
    """Everybody's rights over one tool, worked out once."""

    spec: ToolSpec
    see: _Right
    call: _Right


class Access:
    """Refuses calls of who has no right to them, and hides tools from who may not see them."""

    name = "access"
    options = AccessOptions

    def __init__(
        self,
        *,
        default: Grant = EVERYBODY,
        roles: Mapping[str, Grant] | None = None,
        agents: Mapping[str, Grant] | None = None,
        callers: Mapping[str, Grant] | None = None,
    ) -> None:
        self._default = _Granted(default)
        self._groups = tuple(
            {name: _Granted(grant) for name, grant in (group or {}).items()}
            for group in (roles, agents, callers)
        )
        self._rights: dict[str, _Rights] = {}

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        given = options_from(options, AccessOptions, "access")
        default = EVERYBODY if given.default is None else _grant(given.default, "default")
        roles, agents, callers = (
            {name: _grant(table, group, name) for name, table in getattr(given, group).items()}
            for group in ("roles", "agents", "callers")
        )
        return cls(default=default, roles=roles, agents=agents, callers=callers)

    def bind(self, spec: ToolSpec, road: Road) -> Check | None:
        may = self._rights_over(spec).call
        permitted = _permitted(spec)
        if may.everybody and permitted is None:
            return None

        def look(call: Call) -> None:
            caller = call.caller
            if caller.owner or (may.of(caller) and (permitted is None or permitted(caller))):
                return
            raise Unauthorized(
                f"The tool {spec.name!r} is not authorized for this agent. Use another tool, or "
                "ask whoever runs this system for a role that may call it.",
                remedy="other_tool",
            )

        return Check(look)

    def sees(self, caller: Caller, spec: ToolSpec) -> bool:
        return caller.owner or self._rights_over(spec).see.of(caller)

    def hides(self, spec: ToolSpec) -> bool:
        return not self._rights_over(spec).see.everybody

    def _rights_over(self, spec: ToolSpec) -> _Rights:
        known = self._rights.get(spec.name)
        if known is not None and known.spec is spec:
            return known
        call = self._right(lambda granted: granted.may_call(spec))
        see = self._right(lambda granted: granted.may_see(spec))
        if len(self._rights) >= _REMEMBERED:
            self._rights.clear()
        made = self._rights[spec.name] = _Rights(spec, see, call)
        return made

    def _right(self, has: Callable[[_Granted], bool]) -> _Right:
        roles, agents, callers = (
            frozenset(name for name, granted in group.items() if has(granted))
            for group in self._groups
        )
        own = caller_matcher(callers) if callers else None
        return _Right(has(self._default), roles, agents, own)


class _Granted:
    """A grant, its patterns ready to be held against tools."""

    def __init__(self, grant: Grant) -> None:
        self._tier = grant.tier
        self._see, self._call = selector(grant.see), selector(grant.call)

    def may_call(self, spec: ToolSpec) -> bool:
        return spec.tier <= self._tier and self._call(spec)

    def may_see(self, spec: ToolSpec) -> bool:
        return self._see(spec) or self.may_call(spec)


def _permitted(spec: ToolSpec) -> Callable[[Caller], bool] | None:
    """What the spec itself demands: one of its roles, and one of its agents, where it names any."""
    roles, agents = frozenset(spec.permissions.roles), frozenset(spec.permissions.agents)
    if not roles and not agents:
        return None
    return lambda caller: (
        (not roles or not roles.isdisjoint(caller.roles)) and (not agents or caller.agent in agents)
    )


def _grant(table: Mapping[str, Any], *at: str) -> Grant:
    """A grant from the config; what is wrong with it is said with its place."""
    try:
        grant = options_from(table, Grant, f"access {'.'.join(at)}")
        for field in ("see", "call"):
            for pattern in getattr(grant, field):
                selector((pattern,))
    except ConfigError as fault:
        raise ConfigError(fault.message, at=(*at, *fault.at)) from None
    return grant
