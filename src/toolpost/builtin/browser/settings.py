"""What the config may say of the browser: ``[sources.browser]``.

Above: the tools. Below: nothing. It refuses to know whether there is a browser.
"""

from __future__ import annotations

from toolpost.builtin.web_settings import verify_authority
from toolpost.errors import ConfigError
from toolpost.options import Options

SAMPLE = """\
# All that is public; a private address has to be named: "localhost:3000".
egress = ["*"]
"""
_LEAST_MEMORY = 512 * 1024 * 1024


class Settings(Options, frozen=True):
    """``[sources.browser]``."""

    egress: tuple[str, ...] = ("*",)
    """Where pages, and all that they load, may be: ``host:port``, which may be private, or ``*``
    for all that is public.
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
        if not 0 < self.idle < float("inf"):
            raise ConfigError("browser: idle must be above 0 seconds", at=("idle",))
        if not 1 <= self.sessions <= 8:
            raise ConfigError("browser: sessions must be 1 to 8", at=("sessions",))
        if self.memory < _LEAST_MEMORY:
            raise ConfigError(f"browser: memory must be at least {_LEAST_MEMORY}", at=("memory",))
