"""What the config may say of the browser: ``[sources.browser]``.

Above: the tools. Below: nothing. It refuses to know whether there is a browser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolpost.builtin.web_settings import verify_authority
from toolpost.errors import ConfigError
from toolpost.net.destination import Refused
from toolpost.net.url import url_from
from toolpost.options import Options

SAMPLE = """\
# All that is public; a private address has to be named: "localhost:3000".
egress = ["*"]
"""
_LEAST_MEMORY = 512 * 1024 * 1024
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class Settings(Options, frozen=True):
    """``[sources.browser]``."""

    egress: tuple[str, ...] = ("*",)
    """Where pages, and all that they load, may be: ``host:port``, which may be private, or ``*``
    for all that is public.
    """
    secrets: Mapping[str, str] = {}
    """Passwords that ``browser_fill`` may fill in without showing them: the name of each, and the
    only site that it is for, such as ``https://shop.example``.
    """
    program: str | None = None
    """The path of Chromium, if it is not on the path."""
    idle: float = 300.0
    """Seconds without use, after which a session is closed, and the browser with the last one."""
    sessions: int = 8
    """How many may be open at a time; then the one that waited longest is closed."""
    memory: int = 2 * 1024 * 1024 * 1024
    """Bytes, of all sessions together."""

    def __post_init__(self) -> None:
        for one in self.egress:
            verify_authority(one)
        for name in self.secrets:
            if not _VARIABLE.fullmatch(name):
                raise ConfigError(
                    f"browser: {name!r} cannot be the name of a secret: use letters, digits and _",
                    at=("secrets", name),
                )
            self.site_of(name)
        if not 0 < self.idle < float("inf"):
            raise ConfigError("browser: idle must be above 0 seconds", at=("idle",))
        if not 1 <= self.sessions <= 8:
            raise ConfigError("browser: sessions must be 1 to 8", at=("sessions",))
        if self.memory < _LEAST_MEMORY:
            raise ConfigError(f"browser: memory must be at least {_LEAST_MEMORY}", at=("memory",))

    def site_of(self, name: str) -> str:
        """The site that a secret is for, as a browser writes its origin."""
        try:
            url = url_from(self.secrets[name])
            site = f"{url.scheme}://{url.header}"
            if url.target != "/":
                raise Refused(f"a site has no path: write {site}")
        except Refused as fault:
            raise ConfigError(f"browser: {name}: {fault}", at=("secrets", name)) from None
        return site
