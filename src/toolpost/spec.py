"""What a tool is, as data: ``ToolSpec`` and its parts.

Nothing here runs anything. A spec travels: between processes, into lock files, to planners
(``public()``), to vendors' formats. It is checked when it is made, so that a spec that exists is
a spec that can be registered — its schemas apart, which ``schema`` verifies at registration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, NoReturn

import msgspec

from toolpost.digest import digest
from toolpost.errors import InvalidSpec

Effects = Literal["read", "idempotent", "once"]
Isolation = Literal["inline", "thread", "process", "sandbox"]

TIERS: Final = ("SAFE", "STANDARD", "ELEVATED", "RESTRICTED", "DANGEROUS")
KIND_TIMEOUTS: Final = {"python": 5.0, "http": 10.0, "mcp": 10.0, "shell": 30.0}
DEFAULT_TIMEOUT: Final = 30.0

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class Limits(_Part):
    """How much of the machine one tool may take. Sizes are bytes; files may write ``200MB``."""

    concurrency: int = 10
    queue: int = 100
    memory: int | None = None
    cpus: float | None = None
    output: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        for field, least in (("concurrency", 1), ("queue", 0), ("memory", 1), ("output", 1)):
            value = getattr(self, field)
            if value is not None and value < least:
                _refuse(f"limits.{field} must be at least {least}", "limits", field)
        if self.cpus is not None and not self.cpus > 0:
            _refuse("limits.cpus must be above 0", "limits", "cpus")


class Permissions(_Part):
    """Which roles and which agents may call the tool; empty means that the spec does not say."""

    roles: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()


class Retry(_Part):
    """``honours_key``: the tool itself makes a repeat with the same idempotency key a no-op."""

    attempts: int = 3
    honours_key: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= 3:
            _refuse("retry.attempts must be 1, 2 or 3", "retry", "attempts")


class Cache(_Part):
    """How many seconds the result of a ``read`` tool may be served again."""

    ttl: float

    def __post_init__(self) -> None:
        if not self.ttl > 0:
            _refuse("cache.ttl must be above 0 seconds; leave cache out to switch it off", "cache", "ttl")


def _no_parameters() -> dict[str, Any]:
    return {"type": "object", "properties": {}, "additionalProperties": False}


class ToolSpec(_Part):
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
        if not 0 <= self.tier <= 4 or self.tier is True or self.tier is False:
            _refuse(f"tier of {self.name!r} must be 0 (safe) to 4 (dangerous)", "tier")
        if self.timeout is not None and not 0 < self.timeout < float("inf"):
            _refuse(
                f"timeout of {self.name!r} must be above 0 seconds; there is no 'no limit'",
                "timeout",
            )
        if self.cache is not None and self.effects != "read":
            _refuse(
                f"{self.name!r} may be cached only if it has effects: read (it has "
                f"{self.effects!r})",
                "cache",
            )

    @property
    def time_limit(self) -> float:
        """Seconds one run may take: the spec's, else the kind's, else thirty."""
        return self.timeout or KIND_TIMEOUTS.get(self.kind, DEFAULT_TIMEOUT)

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain data, defaults left out; ``spec_from`` reads it back."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

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


def spec_from(data: Mapping[str, Any]) -> ToolSpec:
    """Make a spec from plain data; a fault is an ``InvalidSpec`` that knows its place."""
    if not isinstance(data, Mapping):
        _refuse("a tool is a mapping with at least a name and a description")
    for key in data:
        if key not in FIELDS:
            _refuse(f"unknown field {short(key)!r}{nearest(key, FIELDS)}", key)
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
        if isinstance(fault.__cause__, InvalidSpec):
            raise fault.__cause__ from None
        what, _, path = str(fault).partition(" - at `")
        at = tuple(_steps(path.rstrip("`")))
        _refuse(f"{'.'.join(map(str, at)) or 'tool'}: {what[:1].lower()}{what[1:]}", *at)


def nearest(word: object, allowed: tuple[str, ...] | list[str]) -> str:
    """``; did you mean …?`` for a misspelt word, or an empty string."""
    close = get_close_matches(str(word)[:100], allowed, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def short(value: object, most: int = 60) -> str:
    """A foreign text, cut to what a message can bear, with nothing in it that a terminal obeys."""
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value)[: most + 1])
    return text if len(text) <= most else text[: most - 1] + "…"


def _refuse(message: str, *at: str | int) -> NoReturn:
    raise InvalidSpec(message, at=at)


def _bytes(field: str, value: Any) -> Any:
    if field not in ("memory", "output") or not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        _refuse(f"limits.{field}: {short(value)!r} is not a size; write 200MB or 1GiB", "limits", field)
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** " KMGT".index(unit.upper() or " "))


def _steps(path: str) -> list[str | int]:
    """``$.limits.memory`` or ``$.tags[2]`` as a path; msgspec writes ``[...]`` inside dicts."""
    words = re.findall(r"\.([A-Za-z_]\w*)|\[(\d+)\]", path)
    return [name or int(index) for name, index in words]
