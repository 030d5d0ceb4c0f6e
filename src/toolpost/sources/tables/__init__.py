"""A table of specs in a database: what it holds, and how to get at one by its URL.

Above: the source ``database``, and ``toolpost push``. Below: ``sqlite.py`` and ``postgres.py``, of
which only the one that is named is imported. It refuses to know what a spec says. A source never
writes; whoever pushes does, and then all or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from toolpost.errors import ConfigError, MissingPart
from toolpost.known import remember

TABLE: Final = "toolpost_tools"
MOST_BYTES: Final = 1024 * 1024
"""Of one spec."""
MOST_ROWS: Final = 20_000
CHANGED: Final = "somebody else has changed the table meanwhile: look at it again"
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,50}")


class Row(msgspec.Struct, frozen=True):
    """A spec as it is kept. ``spec`` is ``None`` where it is too long to be one; ``digest`` is that
    of the spec, if whoever wrote it cared.
    """

    name: str
    spec: str | None
    digest: str | None = None
    enabled: bool = True


class Table(Protocol):
    """``rows`` gives ``None`` where there is no table. ``fingerprint`` is another whenever the rows
    may be; ``wait`` ends after so many seconds, or when the database tells of a change. ``write``
    makes the table, and refuses if the rows are not those that were seen.
    """

    async def rows(self) -> Sequence[Row] | None: ...

    async def fingerprint(self) -> object: ...

    async def wait(self, seconds: float) -> None: ...

    async def write(
        self, rows: Sequence[Row], *, gone: Sequence[str], seen: Sequence[Row]
    ) -> None: ...

    async def close(self) -> None: ...


def table_at(url: str, *, base: Path, table: str = TABLE, patience: float = 10.0) -> Table:
    """The table that a URL leads to; relative paths of files start at ``base``."""
    if not _NAME.fullmatch(table):
        raise ConfigError("a table's name is small letters, digits and _", at=("table",))
    scheme = url.partition("://")[0].lower()
    if scheme == "sqlite":
        from toolpost.sources.tables.sqlite import SqliteTable

        return SqliteTable(base / _path(url), table=table, patience=patience)
    if scheme in ("postgresql", "postgres"):
        if (password := password_in(url)) is not None:
            remember(password)
        try:
            from toolpost.sources.tables.postgres import PostgresTable
        except ModuleNotFoundError as exc:
            raise MissingPart(
                "tables in PostgreSQL need 'asyncpg'. Install it with: "
                'pip install "toolpost[postgres]"'
            ) from exc
        return PostgresTable(url, table=table, patience=patience)
    raise ConfigError("the URL of a database begins with sqlite:/// or postgresql://", at=("url",))


def _path(url: str) -> str:
    """``sqlite:///tools.db`` is a relative path, ``sqlite:////srv/tools.db`` an absolute one."""
    rest = url.partition("://")[2]
    path = unquote(rest[1:]) if rest.startswith("/") else ""
    if not path or "?" in rest or "#" in rest or "\0" in path:
        raise ConfigError(
            "a SQLite file is named as sqlite:///tools.db, from the root as sqlite:////srv/tools.db",
            at=("url",),
        )
    return path


def password_in(url: str) -> str | None:
    """The password that a URL carries."""
    try:
        parts = urlsplit(url)
        given = parts.password or next(iter(parse_qs(parts.query).get("password", ())), None)
    except ValueError:  # it is no URL; the database will say so
        return None
    return None if given is None else unquote(given)


def shown(url: str) -> str:
    """The URL for people: without a password, and without what stands behind a ``?``."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    place, slash, path = rest.partition("/")
    user, at, host = place.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}{at}{host}{slash}{path}"
