"""A store that is opened by the first who needs it, and by nobody before.

Above: the wiring, which hands it to the rings. Below: any store. A program that only looks at its
tools makes no folder and asks no server. What goes wrong with the opening is in ``problem``, for
people, and is tried again with the next use; who needed the store hears that it is unavailable. An
opening that failed slowly is not tried again before as much time has passed as it took: many users
of a store that does not answer wait for it once. It refuses to know what is kept.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from toolpost.contracts import Health, Line, Prunes, Record, Store
from toolpost.errors import PART, CallError, SetupError, ToolpostError, Unavailable
from toolpost.stores.kept import unwritable

_log = logging.getLogger("toolpost.store")
_PROBES: Final = "health"
_PROBE_LIFE: Final = 60.0
"""Seconds after which the value that a probe wrote goes."""
_SLOW: Final = 0.5
"""Seconds after which an opening that failed was slow."""
STORE: Final = {PART: "store"}


@runtime_checkable
class _OpensToRead(Protocol):
    """A store that can be read where it cannot be written."""

    async def open_to_read(self) -> None: ...


@runtime_checkable
class _Verifiable(Protocol):
    """A store that can tell what a write does not show."""

    @property
    def problem(self) -> str | None: ...
    @property
    def loss(self) -> str | None: ...
    def accept_loss(self) -> None: ...
    async def find_damage(self) -> str | None: ...


class LazyStore:
    """``problem`` says why it could not be opened the last time that was tried.

    It is opened once, however many want it at once, and not again after its end. A process that
    was forked off is refused: what is open stayed with its parent.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.path: Path | None = getattr(store, "path", None)
        """The file it makes when it is opened, if that is what it does."""
        self.volatile: bool = getattr(store, "volatile", False)
        self.problem: str | None = None
        self.damage: str | None = None
        """What ``verify`` found, if anything."""
        self._verification: asyncio.Future[None] | None = None
        self._probe_id = os.urandom(8).hex()
        self._turn = asyncio.Lock()
        self._home: int | None = None
        """The process that has opened it."""
        self._closed = False
        self._failed: tuple[float, ToolpostError] | None = None
        """Until when the last opening that failed stands for the next."""
        if isinstance(store, Prunes):
            self.prune = partial(self._prune, store)

    @property
    def there(self) -> bool:
        """Whether opening it makes no file that is not there yet."""
        return self.path is None or os.path.exists(self.path)  # noqa: PTH110 - never raises

    async def open(self) -> None:
        """Whoever needs it need not call this; it tells what is wrong in full."""
        if self._is_open():
            return
        async with self._turn:
            if self._closed:
                raise Unavailable("The store is closed.")
            if self._is_open():
                return
            begun = time.monotonic()
            if self._failed is not None and begun < self._failed[0]:
                raise copy.copy(self._failed[1])
            try:
                await self._store.open()
            except ToolpostError as fault:
                took = (now := time.monotonic()) - begun
                if isinstance(fault, Unavailable) and took > _SLOW:
                    self._failed = now + took, fault
                self._note(fault)
                raise
            self._home, self.problem = os.getpid(), None

    async def open_to_read(self) -> str | None:
        """Open it, if it can only be read then for that: why it cannot be written."""
        try:
            await self.open()
        except Unavailable as fault:
            if not isinstance(self._store, _OpensToRead) or self._closed:
                raise
            async with self._turn:
                try:
                    await self._store.open_to_read()
                except Unavailable as worse:
                    raise Unavailable(self._told(worse)) from worse
                self._home = os.getpid()
            return self._told(fault)
        return None

    async def close(self) -> None:
        if self._home not in (None, os.getpid()):
            return
        if self._verification is not None:
            self._verification.cancel()
            await asyncio.wait([self._verification])
        async with self._turn:
            self._closed, opened, self._home = True, self._home is not None, None
            if opened:
                await self._store.close()

    async def health(self) -> Health:
        """A value is written and read back, unless that would make the store: then whether it could
        be made.
        """
        if self._home is None and not self.there:
            assert self.path is not None, "what has no file is there"
            return _could_be_made(self.path)
        if self.damage is not None:
            return Health(False, f"{self.path}: {self.damage}")
        try:
            await self.open()
            await self._probe()
        except ToolpostError as fault:
            return Health(False, self._told(fault))
        problem = self._store.problem if isinstance(self._store, _Verifiable) else None
        return Health(
            problem is None, f"{self.path}: {problem}" if problem and self.path else problem
        )

    async def _probe(self) -> None:
        key, value = f"probe-{self._probe_id}", os.urandom(2048).hex()
        await self._store.put(_PROBES, key, value, ttl=_PROBE_LIFE)
        found = await self._store.get(_PROBES, key)
        if found is None or found.value != value:
            raise Unavailable("What must be kept cannot be: what was written is not read back.")

    async def verify(self) -> None:
        """Read the whole store and look for damage, where a store can do that. ``health`` then says
        what was found.
        """
        if self.there and isinstance(self._store, _Verifiable):
            self.damage = await self._store.find_damage()
            if self.damage is not None:
                _log.error("store %s: %s", self.path, self.damage)

    def verify_soon(self) -> None:
        """The same beside everything else: a large store takes a while to read."""
        self._verification = asyncio.ensure_future(self.verify())

    @property
    def loss(self) -> str | None:
        """What the store once held and holds no longer, until a person accepts it."""
        return self._store.loss if isinstance(self._store, _Verifiable) else None

    def accept_loss(self) -> None:
        if isinstance(self._store, _Verifiable):
            self._store.accept_loss()

    async def get(self, space: str, key: str) -> Record | None:
        store = await self._opened()
        try:
            return await store.get(space, key)
        except Unavailable as fault:
            _name_part(fault)
            raise

    async def put(
        self,
        space: str,
        key: str,
        value: Any,
        *,
        version: int | None = None,
        ttl: float | None = None,
    ) -> int | None:
        store = await self._opened()
        try:
            return await store.put(space, key, value, version=version, ttl=ttl)
        except Unavailable as fault:
            _name_part(fault)
            raise

    async def scan(
        self, space: str, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[tuple[str, Record]]:
        store = await self._opened()
        try:
            return await store.scan(space, prefix=prefix, after=after, limit=limit)
        except Unavailable as fault:
            _name_part(fault)
            raise

    async def append(self, lines: Sequence[Line]) -> None:
        await (await self._opened()).append(lines)

    async def read(
        self, *, after: int = 0, limit: int = 1000, writer: str | None = None
    ) -> Sequence[Line]:
        return await (await self._opened()).read(after=after, limit=limit, writer=writer)

    async def head(self, writer: str) -> Line | None:
        return await (await self._opened()).head(writer)

    async def _prune(self, store: Prunes, writer: str, *, before: int) -> None:
        await self._opened()
        await store.prune(writer, before=before)

    async def _opened(self) -> Store:
        try:
            await self.open()
        except SetupError as fault:  # of the config, which is no business of a caller
            why = "What must be kept cannot be: the store cannot be opened."
            raise Unavailable(why, retry_after=1.0, details=STORE) from fault
        except Unavailable as fault:
            _name_part(fault)
            raise
        return self._store

    def _is_open(self) -> bool:
        if self._home not in (None, os.getpid()):
            raise Unavailable(
                "The store was opened before this process was forked off. Open the tools after the "
                "fork.",
                retryable=False,
                remedy="stop",
            )
        return self._home is not None

    def _note(self, fault: ToolpostError) -> None:
        told = self._told(fault)
        if told != self.problem:
            _log.error("the store cannot be opened: %s", told)
        self.problem = told

    def _told(self, fault: ToolpostError) -> str:
        """A message for callers does not name the place."""
        return f"{self.path}: {fault}" if self.path and isinstance(fault, CallError) else str(fault)


def _name_part(fault: Unavailable) -> None:
    """Have an error say that it is the store that is away: whoever gets it may wait for that."""
    fault.details = {**(fault.details or {}), **STORE}


def _could_be_made(file: Path) -> Health:
    folder = next(above for above in file.absolute().parents if os.path.exists(above))  # noqa: PTH110 - never raises
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return Health(True)
    return Health(False, str(unwritable(file.parent, f"{folder} is not writable")))
