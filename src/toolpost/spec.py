"""What a tool is, as data: ``ToolSpec`` and its parts.

Nothing here runs anything. A spec travels: between processes, into lock files, to planners
(``public()``), to vendors' formats. It is checked when it is made, so that a spec that exists is
a spec that can be registered — its schemas apart, which ``schema`` verifies at registration.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NoReturn

import msgspec

from toolpost.destinations import is_destination, not_a_destination
from toolpost.digest import digest
from toolpost.errors import InvalidSpec
from toolpost.wording import explained, nearest, short

Effects = Literal["read", "idempotent", "once"]
Isolation = Literal["inline", "thread", "process", "sandbox"]
State = Literal["shared", "caller", "call"]

TIERS: Final = ("SAFE", "STANDARD", "ELEVATED", "RESTRICTED", "DANGEROUS")
KIND_TIMEOUTS: Final = {"python": 5.0, "http": 10.0, "mcp": 10.0, "shell": 30.0}
DEFAULT_TIMEOUT: Final = 30.0
WAITING: Final = 30.0
"""Seconds beyond the timeout of one attempt that all attempts and the pauses between them may take,
where a spec does not say."""
_LONGEST: Final = 366 * 24 * 3600

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_MOST_DESCRIPTION: Final = 16 * 1024
_MOST: Final = 2**62 - 1
"""What the kernel and a database can count to."""
_LEAST: Final = {
    "concurrency": 1, "queue": 0, "memory": 32 * 1024 * 1024, "processes": 1, "output": 1,
    "disk": 64 * 1024, "files": 1,
}  # fmt: skip
"""With less memory a Python interpreter does not even start."""
MOST_PROCESSES: Final = 4_000_000
_LEAST_CPUS: Final = 0.01
"""What the kernel can count to, and its smallest share."""


class _Part(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    def _make_float(self, field: str) -> None:
        """5 and 5.0 seconds are one value, and have one digest."""
        if type(value := getattr(self, field)) is int:
            msgspec.structs.force_setattr(self, field, float(value))

    def _make_tuple(self, field: str) -> None:
        """A list is as good where a person writes it; but it could change, and has no hash."""
        if type(value := getattr(self, field)) is list:
            msgspec.structs.force_setattr(self, field, tuple(value))


class Limits(_Part, frozen=True, kw_only=True):
    """How much of the machine one tool may take. Sizes are bytes; files may write ``200MB``."""

    concurrency: int = 10
    queue: int = 100
    memory: int | None = None
    cpus: float | None = None
    processes: int = 64
    output: int = 4 * 1024 * 1024
    disk: int = 512_000_000
    files: int = 10_000

    def __post_init__(self) -> None:
        for field, least in _LEAST.items():
            value = getattr(self, field)
            if value is not None and not least <= value <= _MOST:
                said = f"at least {least}" if value < least else "less than 2 to the 62"
                _refuse(f"limits.{field} must be {said}", "limits", field)
        if self.processes > MOST_PROCESSES:
            _refuse(f"limits.processes must be at most {MOST_PROCESSES}", "limits", "processes")
        if self.cpus is not None and not _LEAST_CPUS <= self.cpus < math.inf:
            _refuse(f"limits.cpus must be at least {_LEAST_CPUS}", "limits", "cpus")
        self._make_float("cpus")


class Permissions(_Part, frozen=True, kw_only=True):
    """Which roles and which agents may call the tool; empty means that the spec does not say."""

    roles: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._make_tuple("roles")
        self._make_tuple("agents")


class Retry(_Part, frozen=True, kw_only=True):
    """``honours_key``: the tool itself makes a repeat with the same idempotency key a no-op."""

    attempts: int = 3
    honours_key: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= 3:
            _refuse("retry.attempts must be 1, 2 or 3", "retry", "attempts")


class Cache(_Part, frozen=True, kw_only=True):
    """How many seconds the result of a ``read`` tool may be served again."""

    ttl: float

    def __post_init__(self) -> None:
        if not self.ttl > 0:
            _refuse(
                "cache.ttl must be above 0 seconds; leave cache out to switch it off",
                "cache",
                "ttl",
            )
        self._make_float("ttl")


def _no_parameters() -> dict[str, Any]:
    return {"type": "object", "properties": {}, "additionalProperties": False}


class ToolSpec(_Part, frozen=True, kw_only=True):
    """One tool, described. See the reference for what each field does."""

    name: str
    description: str
    kind: str = "python"
    input_schema: dict[str, Any] = msgspec.field(default_factory=_no_parameters)
    output_schema: dict[str, Any] | bool | None = None
    binding: dict[str, Any] = {}
    title: str | None = None
    version: str | None = None
    category: str = "other"
    tags: tuple[str, ...] = ()
    examples: tuple[dict[str, Any], ...] = ()
    tier: int = 1
    effects: Effects = "once"
    timeout: float | None = None
    total_timeout: float | None = None
    limits: Limits = Limits()
    egress: tuple[str, ...] = ()
    permissions: Permissions = Permissions()
    requires_approval: bool = False
    retry: Retry | None = None
    fallback: str | None = None
    cache: Cache | None = None
    labels: dict[str, str] = {}
    context_aware: bool = False
    isolation: Isolation | None = None
    state: State | None = None
    coerce: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            _refuse(
                f"{short(self.name)!r} is not a legal tool name: use 1 to 128 ASCII letters, "
                "digits, '_', '-' or '.', starting with a letter, a digit or '_'",
                "name",
            )
        if not self.description or self.description.isspace():
            _refuse(
                f"tool {self.name!r} has no description: say in a sentence what it does and when "
                "to use it (for a Python function, its docstring)",
                "description",
            )
        if len(self.description) > _MOST_DESCRIPTION:
            _refuse(
                f"the description of {self.name!r} has {len(self.description):,} characters, and "
                f"models read it with every call: say it in {_MOST_DESCRIPTION:,} at most",
                "description",
            )
        if not 0 <= self.tier <= 4 or self.tier is True or self.tier is False:
            _refuse(f"tier of {self.name!r} must be 0 (safe) to 4 (dangerous)", "tier")
        if self.timeout is not None and not 0 < self.timeout <= _LONGEST:
            _refuse(
                f"timeout of {self.name!r} must be above 0 seconds, and {_LONGEST:,} at most; "
                "there is no 'no limit'",
                "timeout",
            )
        if self.total_timeout is not None and not (
            (self.timeout or 0) <= self.total_timeout <= _LONGEST and self.total_timeout > 0
        ):
            _refuse(
                f"total_timeout of {self.name!r} is for all attempts together: it must be at least "
                f"its timeout, above 0 seconds, and {_LONGEST:,} at most",
                "total_timeout",
            )
        self._make_float("timeout")
        self._make_float("total_timeout")
        for field in ("tags", "examples", "egress"):
            self._make_tuple(field)
        for number, one in enumerate(self.egress):
            if type(self.egress) is not tuple or type(one) is not str or not is_destination(one):
                _refuse(not_a_destination(str(one)), "egress", number)
        if self.state is not None and self.kind in ("http", "mcp", "shell"):
            _refuse(
                f"{self.name!r} is of kind {self.kind}, and state is for kind python: it says who "
                "shares a warm worker process, and this kind has none; leave it out",
                "state",
            )
        if self.cache is not None and self.effects != "read":
            _refuse(
                f"{self.name!r} may be cached only if it has effects: read (it has "
                f"{self.effects!r})",
                "cache",
            )

    @property
    def time_limit(self) -> float:
        """Seconds one attempt may take: the spec's, else the kind's, else thirty; never more than
        all attempts together.
        """
        usual = KIND_TIMEOUTS.get(self.kind, DEFAULT_TIMEOUT)
        return self.timeout or min(usual, self.total_timeout or usual)

    @property
    def total_limit(self) -> float:
        """Seconds that all attempts of a call and the pauses between them may take."""
        return self.total_timeout or self.time_limit + WAITING

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain data, defaults left out; ``from_dict`` reads it back."""
        return _said(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolSpec:
        """A spec from plain data, as a file has it; a fault is an ``InvalidSpec``."""
        return spec_from(data)

    def public(self) -> dict[str, Any]:
        """What a planner sees: everything but the binding."""
        data = self.to_dict()
        data.pop("binding", None)
        return data

    @property
    def digest(self) -> str:
        """Pins the whole spec, binding included."""
        return digest(self.to_dict())

    @property
    def public_digest(self) -> str:
        """Pins what the agent sees."""
        return digest(self.public())


FIELDS: Final = ToolSpec.__struct_fields__
_PARTS: Final[dict[str, type[_Part]]] = {
    "limits": Limits,
    "permissions": Permissions,
    "retry": Retry,
    "cache": Cache,
}
_KINDS: Final[tuple[type[_Part], ...]] = (ToolSpec, *_PARTS.values())
_DEFAULTS: Final = {
    kind: {
        f.name: {} if f.default_factory is dict else f.default for f in msgspec.structs.fields(kind)
    }
    for kind in _KINDS
}


def spec_from(data: Mapping[str, Any]) -> ToolSpec:
    """Make a spec from plain data; a fault is an ``InvalidSpec`` that knows its place."""
    if not isinstance(data, Mapping):
        _refuse("a tool is a mapping with at least a name and a description")
    _only(data, FIELDS)
    for field, part in _PARTS.items():
        if isinstance(inner := data.get(field), Mapping):
            _only(inner, part.__struct_fields__, field)
    for field in ("name", "description"):
        if field not in data:
            owner = f"tool {short(data['name'])!r}" if "name" in data else "this tool"
            _refuse(f"{owner} has no {field}")
    limits = data.get("limits")
    if isinstance(limits, Mapping):
        data = {**data, "limits": {k: _bytes(k, v) for k, v in limits.items()}}
    try:
        return msgspec.convert(data, ToolSpec)
    except msgspec.ValidationError as fault:
        what, at = explained(fault, ToolSpec)
        _refuse(f"{'.'.join(map(str, at)) or 'tool'}: {what}", *at)


def _refuse(message: str, *at: str | int) -> NoReturn:
    raise InvalidSpec(message, at=at)


def _only(given: Mapping[str, Any], known: tuple[str, ...], *at: str) -> None:
    for key in given:
        if key not in known:
            inside = f" in {'.'.join(at)}" if at else ""
            _refuse(f"unknown field {short(key)!r}{inside}{nearest(key, known)}", *at, key)


def _said(part: _Part) -> dict[str, Any]:
    """What differs from the defaults, by value: msgspec's own omission goes by identity."""
    defaults = _DEFAULTS[type(part)]
    fields = ((name, getattr(part, name)) for name in part.__struct_fields__)
    return {name: _plain(value) for name, value in fields if value != defaults[name]}


def _plain(value: Any) -> Any:
    if isinstance(value, _Part):
        return _said(value)
    return msgspec.to_builtins(list(value) if isinstance(value, tuple) else value)


def _bytes(field: str, value: Any) -> Any:
    if field not in ("memory", "output", "disk") or not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        _refuse(
            f"limits.{field}: {short(value)!r} is not a size; write 200MB or 1GiB",
            "limits",
            field,
        )
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** " KMGT".index(unit.upper() or " "))


def is_external(spec: ToolSpec) -> bool:
    """Whether what the tool gives back was written by somebody else."""
    return spec.kind != "python" or spec.labels.get("external") == "true"
