"""``[backends.mcp]``: the servers by name, each a program to be started or a URL.

Above: ``backend.py``, and the runtime, which has the table verified at the start. Below: nothing.
It refuses to know this machine: whether a program is here is looked up when the server is started.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from toolpost.errors import InvalidSpec
from toolpost.options import Options
from toolpost.spec import Limits, spec_from
from toolpost.wording import short

CALLER: Final = "{caller}"
"""In the name of a secret it stands for who calls: each caller then has sessions of its own."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_VARIABLE: Final = re.compile(r"(?!LD_)[A-Za-z_][A-Za-z0-9_]*")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_OURS: Final = frozenset(
    ("host", "content-length", "content-type", "transfer-encoding", "connection", "accept")
)
_OF_PROGRAMS: Final = ("read", "write", "egress", "environment", "secrets", "working_dir", "path")
_OF_URLS: Final = ("headers", "bearer", "secret_headers")


class ServerOptions(Options, frozen=True, forbid_unknown_fields=True):
    """One server. What is said of folders, addresses and variables is what a program is granted,
    and there is no more.
    """

    command: tuple[str, ...] = ()
    """A program and its words. It is looked up in ``path`` and in the system's folders."""
    url: str | None = None
    """The address of a server that speaks streamable HTTP."""

    path: tuple[str, ...] = ()
    """More folders of programs, for this one and for what it starts."""
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}
    """Variable → the name of the secret that it holds."""
    working_dir: str | None = None
    isolation: Literal["sandbox", "process"] = "sandbox"

    headers: Mapping[str, str] = {}
    bearer: str | None = None
    """The name of a secret."""
    secret_headers: Mapping[str, str] = {}
    """Header → the name of the secret that it holds."""

    prefix: str | None = None
    """What its tools' names begin with; the server's name where nothing is said."""
    required: bool = False
    per_caller: bool = False
    """A session, and a process, for each caller."""
    limits: Mapping[str, Any] = {}
    """As in a spec: memory, cpus and processes are the server's, the rest each tool's."""
    timeout: float | None = None
    start: float = 30.0
    """Seconds until it has to have introduced itself."""
    idle: float = 600.0
    """Seconds without a call after which it is let go, until the next one."""

    def __post_init__(self) -> None:
        if bool(self.command) == (self.url is not None):
            raise ValueError("a server has a command or a url")
        foreign = _OF_URLS if self.command else (*_OF_PROGRAMS, "isolation")
        for field in foreign:
            default = "sandbox" if field == "isolation" else None
            if getattr(self, field) not in (default, (), {}):
                what = "a command" if self.command else "a url"
                raise ValueError(f"{field!r} is nothing for a server with {what}")
        if self.start <= 0 or self.idle <= 0 or (self.timeout is not None and self.timeout <= 0):
            raise ValueError("start, idle and timeout are seconds above 0")
        if self.prefix and not _NAME.fullmatch(self.prefix):
            raise ValueError("a prefix is made of letters, digits, '_' and '-'")
        _verify_variables((*self.environment, *self.secrets))
        _verify_headers((*self.headers, *self.secret_headers))
        _verify_url(self.url, secret=bool(self.bearer or self.secret_headers))
        self.tool_limits()

    @property
    def by_caller(self) -> bool:
        """Whether what it is told, or what it keeps, belongs to one caller."""
        names = (self.bearer or "", *self.secrets.values(), *self.secret_headers.values())
        return self.per_caller or any(CALLER in name for name in names)

    def tool_limits(self) -> Limits:
        """The limits as a spec has them."""
        about = {"name": "server", "description": "A server.", "limits": dict(self.limits)}
        try:
            return spec_from(about).limits
        except InvalidSpec as fault:
            raise ValueError(fault.message) from None


class McpOptions(Options, frozen=True):
    """The servers that tools may use, by the names that specs and sources have for them."""

    servers: Mapping[str, ServerOptions] = {}

    def __post_init__(self) -> None:
        for name in self.servers:
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"{short(name)!r} is no name of a server: use letters, digits, '_' and '-'"
                )


def _verify_variables(names: Iterable[str]) -> None:
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{short(name)!r} cannot be set in the environment of a server")


def _verify_headers(names: Iterable[str]) -> None:
    for name in names:
        if not _HEADER.fullmatch(name) or name.lower() in _OURS or name.lower().startswith("mcp-"):
            raise ValueError(f"{short(name)!r} is no header to be set here")
        if name.lower() == "authorization":
            raise ValueError("name a secret as 'bearer' in the place of an Authorization header")


def _verify_url(url: str | None, *, secret: bool) -> None:
    if url is None:
        return
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("a url is http(s)://host[:port]/path, without a user or a password")
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if secret and parts.scheme == "http" and not local:
        raise ValueError("with http a secret would travel in the clear: use https")
