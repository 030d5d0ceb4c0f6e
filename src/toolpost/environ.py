"""The environment of this process: the only file that reads ``os.environ``."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Mapping

from toolpost.known import remember

_log = logging.getLogger("toolpost")
_HARMLESS = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TERM VIRTUAL_ENV SSL_CERT_FILE "  # noqa: SIM905 - words
    "SSL_CERT_DIR LD_LIBRARY_PATH PYTHONHASHSEED".split()
)
_SAYS_SECRET = re.compile(
    r"(?i)(?:^|_)(?:key|token|secret|dsn|pw|pwd|pass|password|passwd|passphrase|credentials?)(?:_|$)"
)


def secret(name: str) -> str | None:
    """A secret by the name of its variable. It is redacted wherever it turns up from then on; where
    it is too simple for that, the log says so.
    """
    return _remembered(name, os.environ.get(name))


def remembered(resolve: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """The same resolver of secrets; what it hands out is redacted as those of ``secret`` are."""

    def look_up(name: str) -> str | None:
        return _remembered(name, resolve(name))

    return look_up


unprotected: set[str] = set()
"""The names of secrets that were handed out and are too simple to be redacted."""


def _remembered(name: str, value: str | None) -> str | None:
    if value and not remember(value) and name not in unprotected:
        unprotected.add(name)
        _log.warning(
            "the secret %s is too simple to be told from ordinary words, and is not redacted: "
            "use one of 12 characters or more",
            name,
        )
    return value


def variables(prefix: str) -> Mapping[str, str]:
    """The variables that begin with a prefix."""
    return {k: v for k, v in os.environ.items() if k.startswith(prefix)}


def for_child(names: Collection[str] = ()) -> dict[str, str]:
    """What a child process gets to see: what is harmless, and what was asked for by name. What has
    the name of a secret counts as one.
    """
    for name in names:
        if _SAYS_SECRET.search(name):
            secret(name)
    wanted = _HARMLESS.union(names)
    return {k: v for k, v in os.environ.items() if k in wanted or k.startswith("LC_")}
