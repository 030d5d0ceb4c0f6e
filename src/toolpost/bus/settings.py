"""How the bus is reached: ``[backends.nats]`` of a gateway, the options of a worker.

Secrets are named, not written: a token and a password come from the environment, keys from files
that only their owner may read.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from toolpost.bus.wire import PREFIX, Subjects
from toolpost.errors import ConfigError
from toolpost.options import Options

LOCAL: Final = "nats://127.0.0.1:4222"
_CONNECT: Final = 3.0
_PENDING: Final = 8 * 1024 * 1024
"""Bytes that may wait while there is no connection; what is beyond is refused."""


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files, from the folder of the config."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


class BusOptions(Options, frozen=True, kw_only=True):
    """``credentials`` is a .creds file, ``nkey`` a file with a seed; of ``token`` and ``password``
    the names of secrets are given.
    """

    servers: tuple[str, ...] = (LOCAL,)
    prefix: str = PREFIX
    credentials: str | None = None
    nkey: str | None = None
    user: str | None = None
    password: str | None = None
    token: str | None = None
    tls: Tls | None = None

    def __post_init__(self) -> None:
        Subjects(self.prefix)
        if not self.servers:
            raise ValueError("servers is a list of addresses such as nats://host:4222")
        for server in self.servers:
            if not server.startswith(("nats://", "tls://", "ws://", "wss://")):
                raise ValueError("the address of a server begins with nats:// or tls://")


def connect_options(
    options: BusOptions, *, folder: Path, secret: Callable[[str], str | None]
) -> dict[str, Any]:
    """What nats-py is told."""
    told: dict[str, Any] = {
        "servers": list(options.servers),
        "connect_timeout": _CONNECT,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": 0.25,
        "ping_interval": 5,
        "max_outstanding_pings": 2,
        "pending_size": _PENDING,
    }
    if options.credentials is not None:
        told["user_credentials"] = str(_file(folder, options.credentials))
    if options.nkey is not None:
        told["nkeys_seed"] = str(_file(folder, options.nkey))
    if options.user is not None:
        told["user"] = options.user
    if options.password is not None:
        told["password"] = _secret(secret, options.password)
    if options.token is not None:
        told["token"] = _secret(secret, options.token)
    if options.tls is not None:
        told["tls"] = _context(options.tls, folder)
    return told


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise ConfigError(f"the bus: there is no file {path}")
    return path


def _secret(secret: Callable[[str], str | None], name: str) -> str:
    value = secret(name)
    if value is None:
        raise ConfigError(f"the bus: the secret {name!r} is not set")
    return value


def _context(tls: Tls, folder: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(
            cafile=None if tls.ca is None else str(_file(folder, tls.ca))
        )
        if tls.cert is not None:
            key = None if tls.key is None else str(_file(folder, tls.key))
            context.load_cert_chain(str(_file(folder, tls.cert)), key)
    except (ssl.SSLError, OSError) as fault:
        raise ConfigError(f"the bus: its certificates cannot be used: {fault}") from None
    return context
