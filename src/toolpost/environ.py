"""The environment of this process: the only file that reads ``os.environ``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from toolpost.known import remember

_HARMLESS = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TERM VIRTUAL_ENV SSL_CERT_FILE "  # noqa: SIM905 - words
    "SSL_CERT_DIR LD_LIBRARY_PATH PYTHONHASHSEED".split()
)


def secret(name: str) -> str | None:
    """A secret by the name of its variable. It is redacted from then on, wherever it turns up."""
    value = os.environ.get(name)
    if value is not None:
        remember(value)
    return value


def remembered(resolve: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """The same resolver of secrets; what it hands out is redacted as those of ``secret`` are."""

    def look_up(name: str) -> str | None:
        value = resolve(name)
        if value is not None:
            remember(value)
        return value

    return look_up


def variables(prefix: str) -> Mapping[str, str]:
    """The variables that begin with a prefix."""
    return {k: v for k, v in os.environ.items() if k.startswith(prefix)}


def for_child(names: Iterable[str] = ()) -> dict[str, str]:
    """What a child process gets to see: what is harmless, and what was asked for by name."""
    wanted = _HARMLESS.union(names)
    return {k: v for k, v in os.environ.items() if k in wanted or k.startswith("LC_")}
