"""Sources loaded into a registry as far as the lock lets them, and again when they change.

Above: ``runtime.py``. Below: ``lock.py``, and the sources that the config names. One that is broken
keeps its last good tools, and says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from toolpost.config import Config
from toolpost.contracts import (
    Authenticates,
    Backend,
    Closes,
    Complains,
    Dispensable,
    Draws,
    KeepsNames,
    KnowsCode,
    Source,
    Tell,
)
from toolpost.errors import ConfigError, NameTaken, SetupError
from toolpost.lock import Difference, Offer, Pins, placeholder, source_name
from toolpost.parts import placed
from toolpost.plugins import load
from toolpost.registry import Entry, Registry, as_entry, folded, renamed

_log = logging.getLogger("toolpost")
_TAKEN: Final = "another source has a tool of this name, which stays"
_OURS: Final = "your code has a tool of this name, which stays"
_EMPTY: Final = "look at its options in toolpost.toml, and at the place that it reads from"


class Loading:
    """The sources of a config. ``broken``: what is wrong right now, by its label."""

    def __init__(
        self,
        config: Config,
        registry: Registry,
        *,
        backend: Callable[[str], Backend],
        secret: Callable[[str], str | None],
    ) -> None:
        self._registry = registry
        self._backend = backend
        self.pins = Pins(config.base / config.settings.lock, code_of=self._code_of)
        self.broken: dict[str, str] = {}
        self.sources = [Loaded(t, i, config) for i, t in enumerate(config.settings.sources)]
        for loaded in self.sources:
            if isinstance(loaded.source, Draws):
                loaded.source.draw(backend)
            if isinstance(loaded.source, Authenticates):
                loaded.source.authenticate(secret)
        self._watching: list[asyncio.Task[None]] = []
        self._one_at_a_time = asyncio.Lock()

    async def load(self, tell: Tell = lambda done, total: None) -> None:
        """Every source; the first that cannot be loaded, and is required, stops it with its reason.
        Those that give way to nobody come first, and then those that are required: a name that they
        have is not another's to take.
        """
        await asyncio.to_thread(self.pins.read)
        for source in sorted(self.sources, key=lambda one: (one.gives_way, not one.required)):
            try:
                await self._load(source, tell)
            except SetupError as broken:
                if source.required:
                    raise
                self._note(source, broken.message, broken)
            else:
                self.broken.pop(source.label, None)

    async def reload(self) -> None:
        """Every source again."""
        await self._read_lock()
        for source in self.sources:
            await self._reload(source)

    def watch(self) -> None:
        """Load again what changes, from now on."""
        self._watching = [asyncio.create_task(self._watch(one)) for one in self.sources]
        self._watching.append(asyncio.create_task(self._watch_lock()))

    async def stop_watching(self) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    @property
    def closing(self) -> Sequence[Closes]:
        """The sources that want to be closed."""
        return [one.source for one in self.sources if isinstance(one.source, Closes)]

    @property
    def problems(self) -> Mapping[str, str | None]:
        told = {
            one.label: one.source.problem
            for one in self.sources
            if isinstance(one.source, Complains)
        }
        return {**told, **self.broken}

    @property
    def notices(self) -> Mapping[str, str]:
        """Source → what is worth knowing of one that works."""
        told = {one.label: getattr(one.source, "notice", None) for one in self.sources}
        return {label: notice for label, notice in told.items() if notice}

    @property
    def left_out(self) -> Mapping[str, Mapping[str, str]]:
        """Source → the tools that it offers and that are not taken, and why."""
        told = {
            one.label: {**(getattr(one.source, "left_out", None) or {}), **one.outdone}
            for one in self.sources
        }
        return {
            label: {key if isinstance(key, str) else "/".join(key): why for key, why in out.items()}
            for label, out in told.items()
            if out
        }

    @property
    def empty(self) -> Mapping[str, str]:
        """The sources that were loaded and offer no tool at all, and what to do about it."""
        return {
            one.label: one.when_empty
            for one in self.sources
            if one.is_empty and not self.problems.get(one.label)
        }

    @property
    def quarantined(self) -> Mapping[str, str]:
        return {name: one.reason for s in self.sources for name, one in s.withheld.items()}

    @property
    def offers(self) -> Sequence[Offer]:
        """What there is to be pinned; a tool that has given way is not there."""
        return [
            self.pins.offer(one.pinned_as, entry)
            for one in self.sources
            for entry in one.offered
            if entry.spec.name not in one.outdone
        ]

    def _code_of(self, entry: Entry) -> str | None:
        """The digest of a tool's code, if what runs it knows a file; what keeps a tool from being
        run is told when it is called.
        """
        try:
            backend = self._backend(entry.spec.kind)
            return backend.code_of(*entry) if isinstance(backend, KnowsCode) else None
        except SetupError:
            return None

    async def _load(self, loaded: Loaded, tell: Tell = lambda done, total: None) -> None:
        async with loaded.one_at_a_time:  # a slow one keeps nobody else waiting
            if isinstance(loaded.source, KeepsNames):
                loaded.source.keep_names(self._pinned_names(loaded))
            with loaded.placed():
                items = await loaded.source.load(tell)
            entries = [loaded.named(as_entry(item)) for item in items]
            async with self._one_at_a_time:
                was_empty = loaded.is_empty
                await self._register(loaded, entries)
            loaded.is_empty = not entries
            if loaded.is_empty and not was_empty:
                _log.warning("%s: %s", loaded.label, loaded.when_empty)

    def _pinned_names(self, loaded: Loaded) -> dict[str, Mapping[str, Any]]:
        """The names that the lock file has for the tools of a source, as the source makes them."""
        lock, prefix = self.pins.lock, f"{loaded.namespace}." if loaded.namespace else ""
        return {
            name.removeprefix(prefix): was.binding
            for name, was in ({} if lock is None else lock.tools).items()
            if was.source == loaded.pinned_as and name.startswith(prefix)
        }

    async def _register(self, loaded: Loaded, offered: Sequence[Entry]) -> None:
        """Put what a source offers into the registry, as far as the lock lets it."""
        if self.pins.lock is not None:  # backends are made here, not in the thread
            for kind in {entry.spec.kind for entry in offered}:
                with suppress(SetupError):
                    self._backend(kind)
        withheld = await asyncio.to_thread(self.pins.judge, loaded.pinned_as, offered)
        outdone = self._outdone(loaded, offered) if loaded.gives_way else {}
        fresh = {entry.spec.name for entry in offered} - loaded.names
        making_way = {} if loaded.gives_way else self._making_way(fresh)
        clear = outdone.keys() | making_way.keys()
        beaten = self._beaten(loaded, fresh - clear) | outdone.keys()
        entries = [
            placeholder(withheld[name]) if name in withheld else entry
            for entry in offered
            if (name := entry.spec.name) not in beaten
        ]
        names = {entry.spec.name for entry in entries}
        try:
            self._registry.update(entries, gone=(loaded.names | making_way.keys()) - names)
        except NameTaken as taken:
            raise NameTaken(f"{loaded.label}: {taken.message}", at=taken.at) from None
        for other in self.sources:
            given = {name: why for name, why in making_way.items() if name in other.names}
            other.outdone = {**other.outdone, **given}
            other.names -= names | given.keys()  # with those that the lock gives to this one
            for name in sorted(given):
                _log.warning("%s: the tool %s is left out: %s", other.label, name, given[name])
        for name in sorted(withheld.keys() - loaded.withheld.keys()):
            _log.warning("%s: %s", loaded.label, withheld[name].reason)
        for name in sorted(outdone.keys() - loaded.outdone.keys()):
            _log.warning("%s: the tool %s is left out: %s", loaded.label, name, outdone[name])
        loaded.names, loaded.offered, loaded.withheld = names, offered, withheld
        loaded.outdone = outdone

    def _beaten(self, loaded: Loaded, fresh: set[str]) -> set[str]:
        """The names that another source holds and keeps. Without a lock nobody can say whose a
        name is, and two that want it are a fault.
        """
        beaten = set()
        for name in sorted(fresh):
            if name in self._registry:
                if not self._lock_decides(loaded, name):
                    owner = self._owner(name)
                    raise NameTaken(
                        f"{loaded.label} and {owner.label if owner else 'your code'} both have a "
                        f"tool {name!r}: rename one, or give one of the sources a namespace"
                    )
                if self.pins.owner(name) != loaded.pinned_as:
                    beaten.add(name)
        return beaten

    def _outdone(self, loaded: Loaded, offered: Sequence[Entry]) -> dict[str, str]:
        """Of a source that gives way: the tools whose names are another's, or look like one that
        is, and why they are left out. Among its own, whoever was there first stays: what the lock
        has pinned, then what was here before, then what comes first by name.
        """
        outdone: dict[str, str] = {}
        own: dict[str, str] = {}
        names = {entry.spec.name for entry in offered}

        def order(name: str) -> tuple[bool, bool, str]:
            return self.pins.owner(name) != loaded.pinned_as, name not in loaded.names, name

        for name in sorted(names, key=order):
            held = self._registry.alike(name)
            other = own.setdefault(folded(name), name)
            if other == name and held is not None and held not in loaded.names:
                other = held
            elif other == name:
                continue
            if other != name:
                outdone[name] = _alike(other)
            elif not self._lock_decides(loaded, name):
                outdone[name] = _OURS if self._owner(name) is None else _TAKEN
        return outdone

    def _making_way(self, fresh: set[str]) -> dict[str, str]:
        """Of sources that give way: the tools whose names, or the like of them, come up in one that
        does not, and why they go. What the lock has pinned stays.
        """
        making_way: dict[str, str] = {}
        for name in sorted(fresh):
            held = self._registry.alike(name)
            if held is None or (owner := self._owner(held)) is None:
                continue
            if owner.gives_way and self.pins.owner(held) is None:
                making_way[held] = _TAKEN if held == name else _alike(name)
        return making_way

    def _owner(self, name: str) -> Loaded | None:
        """The source that has given the tool, if one has."""
        return next((other for other in self.sources if name in other.names), None)

    def _lock_decides(self, loaded: Loaded, name: str) -> bool:
        """Whether the lock says to which of two sources a name belongs."""
        owner = self._owner(name)
        twins = owner is not None and owner.pinned_as == loaded.pinned_as
        return owner is not None and self.pins.owner(name) is not None and not twins

    async def _reload(self, loaded: Loaded) -> None:
        try:
            await self._load(loaded)
        except Exception as broken:  # noqa: BLE001 - a source may raise anything; what it had stays
            self._note(loaded, _told(broken), broken)
        else:
            self.broken.pop(loaded.label, None)
            _log.info("%s was loaded again", loaded.label)

    async def _watch(self, loaded: Loaded) -> None:
        try:
            async for _ in loaded.source.changes():
                await self._reload(loaded)
        except Exception as broken:  # noqa: BLE001 - a source may raise anything; it is seen
            self._note(loaded, f"no longer watched: {_told(broken)}", broken)

    async def _read_lock(self) -> None:
        try:
            async with self._one_at_a_time:
                await asyncio.to_thread(self.pins.read)
        except ConfigError as broken:
            self.broken["lock"] = broken.message
            _log.error("the lock stays as it was: %s", broken.message)
        else:
            self.broken.pop("lock", None)

    async def _watch_lock(self) -> None:
        async for _ in self.pins.changes():
            await self._read_lock()
            for loaded in self.sources:
                await self._hold_against_lock(loaded)

    async def _hold_against_lock(self, loaded: Loaded) -> None:
        """What the source offered last, judged anew."""
        try:
            async with self._one_at_a_time:
                await self._register(loaded, loaded.offered)
        except SetupError as broken:
            self._note(loaded, broken.message, broken)

    def _note(self, loaded: Loaded, problem: str, broken: Exception) -> None:
        problem = problem.removeprefix(f"{loaded.label}: ")  # it is said of that one anyway
        self.broken[loaded.label] = problem
        trace = None if isinstance(broken, SetupError) else broken
        _log.error("%s keeps the tools it had: %s", loaded.label, problem, exc_info=trace)


class Loaded:
    """A source as the config names it, and the names of the tools it gave."""

    def __init__(self, table: Mapping[str, Any], index: int, config: Config) -> None:
        options = dict(table)
        kind = options.pop("kind", None)
        self.namespace: str | None = options.pop("namespace", None)
        self.label = f"source {index + 1} ({kind})"
        self.placed = partial(placed, config, "sources", index)
        with self.placed():
            if not isinstance(kind, str):
                raise ConfigError('a source has no kind; say kind = "files", for example')
            part = load("sources", kind)
            self.source: Source = part.from_config(options, config.base)
        tuning = {"kind", *getattr(part, "tuning", ())}  # how it is asked, not what
        self.pinned_as = source_name(kind, {k: v for k, v in table.items() if k not in tuning})
        self.required = not isinstance(self.source, Dispensable) or self.source.required
        self.gives_way: bool = getattr(part, "gives_way", False)
        """A name that is taken costs it one tool, and nobody else anything."""
        self.one_at_a_time = asyncio.Lock()
        self.is_empty = False
        """Whether it was loaded and had nothing to offer."""
        self.names: set[str] = set()
        self.offered: Sequence[Entry] = ()
        self.withheld: Mapping[str, Difference] = {}
        self.outdone: Mapping[str, str] = {}
        """What it offers and does not have, because its names were taken: where it gives way."""

    @property
    def when_empty(self) -> str:
        return f"it has no tools: {getattr(self.source, 'when_empty', _EMPTY)}"

    def named(self, entry: Entry) -> Entry:
        return renamed(entry, f"{self.namespace}.{entry.spec.name}") if self.namespace else entry


def _alike(other: str) -> str:
    return f"it looks like {other!r}, which stays"


def _told(broken: Exception) -> str:
    return str(broken) if isinstance(broken, SetupError) else repr(broken)
