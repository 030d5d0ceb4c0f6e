"""The table ``[gateway]`` of ``toolpost.toml``: where it listens, and how much it takes.

Above: whoever serves. Below: ``config.py``, which hands the table over as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from toolpost.config import Config, origin
from toolpost.errors import ConfigError
from toolpost.gateway.identity.origins import Origins
from toolpost.gateway.identity.settings import AuthSettings, auth_from
from toolpost.gateway.mcp.settings import McpSettings, settings_from
from toolpost.gateway.nats_settings import NatsSettings, door_from
from toolpost.options import Options, options_from

_MOST_SECONDS: Final = 86_400.0
_LEAST_BODY: Final = 1024
_MOST_BODY: Final = 16 * 1024 * 1024
"""As much as the strict reader of JSON takes."""


_INNER: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "auth": auth_from,
    "mcp": settings_from,
    "nats": door_from,
}
"""Tables of their own."""


class GatewaySettings(Options, frozen=True, kw_only=True):
    """Sizes are bytes, times seconds."""

    host: str = "127.0.0.1"
    port: int = 8080
    processes: int = 1
    body: int = 4 * 1024 * 1024
    """The largest request body."""
    header: int = 32 * 1024
    """The largest request line with its headers."""
    connections: int = 1000
    """At once, in each process."""
    half_open: int = 250
    """Of these, from one address: those that have not sent a whole request."""
    calls_each: int = 50
    """Calls of one caller that run at once, in each process."""
    head_time: float = 10.0
    """For a request line with its headers, from the connection or its first byte on."""
    body_time: float = 30.0
    """For a request body, from the end of the headers on."""
    idle_time: float = 30.0
    """Between two requests."""
    write_time: float = 30.0
    """That a client may not read while there is something for it."""
    drain_time: float = 20.0
    """For calls in flight when the server is told to stop; then they are cancelled."""
    hosts: tuple[str, ...] = ()
    """Names that clients may call it by, beside its own address."""
    origins: tuple[str, ...] = ()
    """Web pages that may call it from a browser."""
    admins: tuple[str, ...] = ("admin",)
    """The roles that may read the audit, the metrics and what is wrong."""
    access_log: bool = True
    """A line of JSON for each request, on standard error."""
    auth: AuthSettings = AuthSettings()
    mcp: McpSettings = McpSettings()
    nats: NatsSettings | None = None
    """Where clients on a bus may call; without the table, nowhere."""

    def __post_init__(self) -> None:
        _within("port", self.port, 0, 65_535)
        _within("processes", self.processes, 1, 256)
        _within("body", self.body, _LEAST_BODY, _MOST_BODY)
        _within("header", self.header, _LEAST_BODY, 1024 * 1024)
        for name in ("connections", "half_open", "calls_each"):
            _within(name, getattr(self, name), 1, 1_000_000)
        for name in ("head_time", "body_time", "idle_time", "write_time"):
            _within(name, getattr(self, name), 0.1, _MOST_SECONDS)
        _within("drain_time", self.drain_time, 0, _MOST_SECONDS)
        if not self.host:
            raise ValueError("host is an address or a name, such as 127.0.0.1")


def settings_of(config: Config) -> GatewaySettings:
    """The gateway of a config; what is wrong with it is said with its place."""
    table = dict(config.settings.gateway)
    inner = {name: table.pop(name) for name in _INNER if name in table}
    try:
        settings = options_from(table, GatewaySettings, "gateway")
        parts = {name: _part(name, given) for name, given in inner.items()}
        made: GatewaySettings = msgspec.structs.replace(settings, **parts)
        Origins(host=made.host, hosts=made.hosts, origins=made.origins)  # says what is wrong
        return made
    except ConfigError as fault:
        where = ("gateway", *fault.at)
        raise ConfigError(f"{origin(config, where)}: {fault.message}", at=where) from None


def _part(name: str, table: Any) -> Any:
    try:
        if not isinstance(table, Mapping):
            raise ConfigError(f"gateway {name} is a table: [gateway.{name}]")
        return _INNER[name](table)
    except ConfigError as fault:
        raise ConfigError(fault.message, at=(name, *fault.at)) from None


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} must be {least:g} to {most:g}")
