"""The tools of an OpenAPI document: ``[[sources]] kind = "openapi", document = "petstore.yaml"``.

Above: the runtime, which keeps the last good version where a new one cannot be used. Below:
``fetching.py`` gets the document, ``converting.py`` makes specs of it, in a thread. It needs the
extra ``http``, as its tools do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from toolpost.contracts import Tell
from toolpost.errors import ConfigError, SourceError
from toolpost.options import options_from
from toolpost.sources.openapi.converting import Choices, Imported, imported
from toolpost.sources.openapi.fetching import (
    Found,
    address_of,
    fetch,
    file_in,
    is_address,
    read_file,
)
from toolpost.spec import ToolSpec

_log = logging.getLogger("toolpost.openapi")
_LOOK_EVERY: Final = 0.5
_LEAST: Final = 0.1
_SOON: Final = 5.0
"""Seconds until another try, where the last one failed and the interval is longer."""


class OpenApiOptions(Choices, frozen=True, kw_only=True):
    """What a source of kind ``openapi`` may say."""

    document: str
    interval: float = 300.0
    required: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.interval >= _LEAST:
            raise ConfigError(f"interval is at least {_LEAST:g} seconds", at=("interval",))


class OpenApiSource:
    """``left_out`` says which operations are no tools, and why."""

    tuning: ClassVar = frozenset(("interval", "required"))

    def __init__(self, options: OpenApiOptions, *, base: Path | None = None) -> None:
        self._options = options
        self._base = base or Path.cwd()
        self._is_file = not is_address(options.document)
        self.required = self._is_file or options.required
        self._looked: object = None
        """What the file looked like when it was last read."""
        self._last: Found | None = None
        self._known: Imported | None = None
        self._waiting: Found | SourceError | None = None
        """What watching an address has brought, until it is loaded."""
        self._failed = False
        self.left_out: Mapping[str, str] = {}

    @classmethod
    def from_config(cls, options: Mapping[str, Any], base: Path) -> Self:
        return cls(options_from(options, OpenApiOptions, "source openapi"), base=base)

    async def load(self, tell: Tell) -> Iterable[ToolSpec]:
        found, self._waiting = self._waiting, None
        if isinstance(found, SourceError):
            raise found
        found = found or await self._found()
        if self._known is None or found is not self._last:
            known = await asyncio.to_thread(imported, found, self._options, tell=tell)
            self._last, self._known = found, known
            left_out = {one.operation: one.why for one in known.left_out}
            if left_out != self.left_out:
                _warn(found.document.name, known)
            self.left_out = left_out
        tell(self._known.chosen, self._known.chosen)
        return self._known.specs

    async def changes(self) -> AsyncIterator[None]:
        """A file is looked at, an address is asked again."""
        while True:
            interval = _LOOK_EVERY if self._is_file else self._options.interval
            await asyncio.sleep(min(interval, _SOON) if self._failed else interval)
            if await self._is_new():
                yield

    async def _is_new(self) -> bool:
        """Whether there is another document than the last one, or again the last one after none."""
        if self._is_file:
            before, self._looked = self._looked, await asyncio.to_thread(self._fingerprint)
            return before != self._looked
        failed = self._failed
        try:
            self._waiting = await self._found()
        except SourceError as fault:
            self._waiting = fault
        return failed or self._waiting is not self._last

    async def _found(self) -> Found:
        """The document as it is now; the last one, if it is still the same."""
        where, last = self._options.document, self._last
        if self._is_file:
            self._looked = await asyncio.to_thread(self._fingerprint)  # a change is seen later
            return await asyncio.to_thread(read_file, file_in(self._base, where))
        self._failed = True
        found = await fetch(address_of(where), etag=None if last is None else last.etag)
        self._failed = False
        if last is not None and (found is None or found.digest == last.digest):
            return last
        assert found is not None, "nothing is unchanged that was not there"
        return found

    def _fingerprint(self) -> object:
        try:
            found = file_in(self._base, self._options.document).stat()
        except (OSError, SourceError) as exc:
            return str(exc)
        return found.st_mtime_ns, found.st_size, found.st_ino


def _warn(name: str, known: Imported) -> None:
    """One line for each reason, however many operations it has."""
    reasons = Counter(one.why for one in known.left_out)
    for why, many in reasons.most_common(10):
        _log.warning("%s: %d of %d operations left out: %s", name, many, known.chosen, why)
