"""Specs from a table: ``[[sources]] kind = "database", url = "sqlite:///tools.db"``.

Each row is one tool, held to what a spec file is held to. A row that is wrong takes nothing from
the others: its tool stays as it was when it was last right, and ``problem`` says why. What the
tools may ask of this machine is in ``afar.py``.

Above: the runtime. Below: ``tables``. It refuses to know one database from another, and never
writes: ``toolpost push`` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from toolpost.contracts import Tell
from toolpost.document import parse
from toolpost.environ import secret
from toolpost.errors import ConfigError, SourceError
from toolpost.options import Options, options_from
from toolpost.registry import folded
from toolpost.sources.afar import KINDS, Grants, sifted
from toolpost.sources.specs import spec_at
from toolpost.sources.tables import MOST_BYTES, TABLE, Row, Table, password_in, shown, table_at
from toolpost.spec import ToolSpec
from toolpost.wording import short

_LEAST: Final = 0.1
_MOST_FAULTS: Final = 5
"""Of rows, in one message."""
_TELL_EVERY: Final = 100


class DatabaseOptions(Options, frozen=True):
    """What a source of kind ``database`` may say."""

    url: str | None = None
    url_secret: str | None = None
    table: str = TABLE
    interval: float = 5.0
    timeout: float = 10.0
    required: bool = False
    kinds: tuple[str, ...] = KINDS
    secrets: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()


class DatabaseSource:
    """``problem`` says what is wrong with rows, ``left_out`` which tools are not taken, and why."""

    gives_way: ClassVar = True
    """A name that is taken here costs one tool, and not the others."""
    tuning: ClassVar = frozenset(("interval", "timeout", "required"))

    def __init__(self, options: DatabaseOptions, *, base: Path | None = None) -> None:
        _verify(options)
        self._options, self._base = options, base or Path.cwd()
        self._grants = Grants(kinds=options.kinds, secrets=options.secrets, egress=options.egress)
        self._secret: Callable[[str], str | None] = secret
        self._opened: tuple[str, Table] | None = None
        self._loaded: object = None
        self._good: dict[str, tuple[Row, ToolSpec]] = {}
        self._given: frozenset[str] = frozenset()
        self.required = options.required
        self.problem: str | None = None
        self.left_out: Mapping[str, str] = {}
        if options.url is not None:
            self._table()  # a URL that says nothing is no matter for later

    @classmethod
    def from_config(cls, options: Mapping[str, Any], base: Path) -> Self:
        return cls(options_from(options, DatabaseOptions, "source database"), base=base)

    def authenticate(self, secret: Callable[[str], str | None]) -> None:
        self._secret = secret

    async def load(self, tell: Tell) -> Iterable[ToolSpec]:
        label, table = self._table()
        self._loaded = await _fingerprint(table)  # before reading: changes meanwhile are seen later
        rows = await table.rows()
        if rows is None:
            raise SourceError(
                f"{label}: there is no table {self._options.table!r}: make it with: toolpost push "
                "FILE… --to URL"
            )
        return await asyncio.to_thread(self._taken, label, rows, tell)

    async def changes(self) -> AsyncIterator[None]:
        _, table = self._table()
        while True:
            await table.wait(self._options.interval)
            if (now := await _fingerprint(table)) != self._loaded:
                self._loaded = now
                yield

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened[1].close()

    def _table(self) -> tuple[str, Table]:
        if self._opened is None:
            options = self._options
            url = options.url or self._secret(options.url_secret or "")
            if not url:
                name = options.url_secret
                raise SourceError(f"the secret {name} is not set: set the variable {name}")
            table = table_at(url, base=self._base, table=options.table, patience=options.timeout)
            self._opened = shown(url), table
        return self._opened

    def _taken(self, label: str, rows: Sequence[Row], tell: Tell) -> list[ToolSpec]:
        """The specs of the rows; where one is wrong, as it was."""
        good, faults = {}, []
        for done, row in enumerate(rows):
            if not done % _TELL_EVERY:
                tell(done, len(rows))
            last = self._good.get(row.name)
            if not row.enabled:
                continue
            if last is not None and last[0] == row:
                good[row.name] = last
                continue
            try:
                good[row.name] = row, self._spec(label, row)
            except SourceError as fault:
                faults.append(fault.message)
                if last is not None:
                    good[row.name] = last
        tell(len(rows), len(rows))
        self._good = good
        kept, self.left_out = sifted((spec for _, spec in good.values()), self._grants, label)
        alike = _alike((spec.name for spec in kept), self._given)
        faults += [
            f"{self._place(label, name)}: it looks like {other!r}, which stays: make them easier "
            "to tell apart"
            for name, other in alike.items()
        ]
        more = f"; and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
        self.problem = "; ".join(faults[:_MOST_FAULTS]) + more or None
        self._given = frozenset(spec.name for spec in kept if spec.name not in alike)
        return [spec for spec in kept if spec.name in self._given]

    def _spec(self, label: str, row: Row) -> ToolSpec:
        name = self._place(label, row.name)
        if row.spec is None:
            raise SourceError(f"{name}: longer than {MOST_BYTES:,} bytes")
        document = parse(row.spec, format="json", name=name)
        spec = spec_at(document, (), document.data)
        if spec.name != row.name:
            where = document.where(("name",))
            raise SourceError(f"{where}: the column says {short(row.name)!r}: say it twice alike")
        if row.digest is not None and row.digest != spec.digest:
            raise SourceError(
                f"{name}: it has the digest {spec.digest}, and the column says another: push it, "
                "or set the column to null"
            )
        return spec

    def _place(self, label: str, name: str) -> str:
        return f"{label}/{self._options.table}/{short(name)}"


def _alike(names: Iterable[str], given: frozenset[str]) -> dict[str, str]:
    """The names that look like another, and which: whoever was there first is not the one."""
    first: dict[str, str] = {}
    ordered = sorted(names, key=lambda name: (name not in given, name))
    found = {name: first.setdefault(folded(name), name) for name in ordered}
    return {name: other for name, other in found.items() if name != other}


async def _fingerprint(table: Table) -> object:
    try:
        return await table.fingerprint()
    except SourceError as fault:
        return fault.message


def _verify(options: DatabaseOptions) -> None:
    if (options.url is None) == (options.url_secret is None):
        raise ConfigError(
            "source database needs url or, if there is a password in it, url_secret: the name of "
            "a variable that has it",
            at=("url",),
        )
    for name in ("interval", "timeout"):
        if not getattr(options, name) >= _LEAST:
            raise ConfigError(f"source database: {name} is at least {_LEAST:g} seconds", at=(name,))
    if options.url is not None and password_in(options.url) is not None:
        raise ConfigError(
            "a password does not belong in the config: put the URL into an environment variable "
            "and name that with url_secret",
            at=("url",),
        )
