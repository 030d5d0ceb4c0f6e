"""What a tool is told when it is initialized: ``ToolConfig``, from ``nachos.toml`` and the
environment.

    [security]
    mode = "strict"

    [tools.weather]
    units = "metric"
    secrets = ["WEATHER_KEY"]

    [tools.weather.limits]
    timeout = 2000

Above: everything in this folder. Below: ``document``, ``environ``. It refuses to know any tool's
own settings: those are handed on as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from toolpost import known
from toolpost.contracts import Mode
from toolpost.document import read
from toolpost.environ import secret
from toolpost.errors import ConfigError
from toolpost.options import Options, options_from
from toolpost.spec import ToolSpec, spec_from
from toolpost.wording import short

_MODES: Final = ("strict", "standard", "permissive")
_OURS: Final = ("limits", "secrets")


_WIRE: Final = {"maxMemory": "max_memory", "maxConcurrent": "max_concurrent"}


class ToolLimits(Options, frozen=True):
    """``timeout`` is in milliseconds, ``max_memory`` in bytes or written as ``512MB``."""

    timeout: float | None = None
    max_memory: int | str | None = None
    max_concurrent: int | None = None

    def __post_init__(self) -> None:
        if self.timeout is not None and not 0 < self.timeout < float("inf"):
            raise ConfigError("limits: timeout must be above 0 milliseconds", at=("timeout",))

    def to_dict(self) -> dict[str, Any]:
        """As a file has them, without those that are not set."""
        said = msgspec.structs.asdict(self)
        wire = {ours: theirs for theirs, ours in _WIRE.items()}
        return {wire.get(name, name): one for name, one in said.items() if one is not None}


class ToolConfig:
    """``config`` is the tool's own table, ``secrets`` are the values of variables by their names.

    Secrets are redacted wherever they turn up from then on. ``nats`` is whatever the bus is; the
    bridge hands it on and does not look at it. Relative paths of a tool start at ``base``.
    """

    __slots__ = ("base", "config", "limits", "nats", "secrets", "security_mode")

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        *,
        nats: Any = None,
        security_mode: Mode = "standard",
        limits: ToolLimits | None = None,
        base: str | PathLike[str] | None = None,
    ) -> None:
        if security_mode not in _MODES:
            raise ConfigError(
                f"security mode {short(str(security_mode))!r}: use strict, standard or permissive",
                at=("security", "mode"),
            )
        self.config = dict(config or {})
        self.secrets = dict(secrets or {})
        self.nats = nats
        self.security_mode: Mode = security_mode
        self.limits = limits or ToolLimits()
        self.base = Path.cwd() if base is None else Path(base).absolute()
        for name, value in self.secrets.items():
            if not isinstance(value, str):
                raise ConfigError(f"the secret {name} is not a text", at=("secrets", name))
            known.remember(value)

    @classmethod
    def from_toml(
        cls,
        path: str | PathLike[str],
        tool_id: str,
        *,
        secrets: Iterable[str] = (),
        nats: Any = None,
    ) -> Self:
        """From the table ``[tools.<id>]`` of a file; a secret that is not set is a
        ``ConfigError``, and so is a mode that there is not.
        """
        file = Path(path)
        data = read(file, format="toml").data
        table = _table(_table(data, "tools", file), tool_id, file, "tools")
        named = (*_names(table.get("secrets", ()), file), *secrets)
        security = _table(data, "security", file)
        return cls(
            {name: value for name, value in table.items() if name not in _OURS},
            {name: _set(name, tool_id) for name in dict.fromkeys(named)},
            nats=nats,
            security_mode=security.get("mode", "standard"),
            limits=limits_from(_table(table, "limits", file, "tools", tool_id)),
            base=file.absolute().parent,
        )

    def __repr__(self) -> str:
        return f"ToolConfig(mode={self.security_mode!r}, secrets={sorted(self.secrets)})"


def limits_from(table: Mapping[str, Any]) -> ToolLimits:
    """Limits as a file has them: ``timeout``, ``maxMemory``, ``maxConcurrent``."""
    named = {_WIRE.get(name, name): value for name, value in table.items()}
    return options_from(named, ToolLimits, "limits")


def _table(data: Mapping[str, Any], name: str, file: Path, *above: str) -> Mapping[str, Any]:
    found = data.get(name, {})
    if isinstance(found, Mapping):
        return found
    raise ConfigError(f"{file}: {'.'.join((*above, name))} is to be a table", at=(*above, name))


def _names(names: Any, file: Path) -> Iterable[str]:
    if isinstance(names, list | tuple) and all(isinstance(one, str) for one in names):
        return names
    raise ConfigError(f"{file}: secrets are the names of variables, in a list", at=("secrets",))


def _set(name: str, tool_id: str) -> str:
    value = secret(name)
    if not value:
        raise ConfigError(f"the tool {tool_id!r} wants the secret {name}: set that variable")
    return value


def limited(spec: ToolSpec, config: ToolConfig | None) -> ToolSpec:
    """The spec with the limits of a config, where those are the stricter ones."""
    if config is None:
        return spec
    asked, plain = config.limits, spec.to_dict()
    if asked.timeout is not None:
        most = min(asked.timeout / 1000, spec.total_timeout or float("inf"))
        plain["timeout"] = min(most, spec.timeout or float("inf"))
        plain["total_timeout"] = most  # of a call, however often it is tried
    limits = plain.setdefault("limits", {})
    if asked.max_memory is not None:
        wanted = spec_from({**plain, "limits": {"memory": asked.max_memory}}).limits.memory
        limits["memory"] = min(wanted or 0, spec.limits.memory or wanted or 0)
    if asked.max_concurrent is not None:
        limits["concurrency"] = asked.max_concurrent
    return spec_from(plain)
