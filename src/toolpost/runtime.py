"""A config brought to life: sources loaded into a registry, an executor over it, reload on change.

``async with Runtime.open("toolpost.toml") as tools: await tools.execute("add", {"a": 1, "b": 2})``
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from toolpost.clock import SystemClock
from toolpost.config import Config, find, origin
from toolpost.contracts import (
    Backend,
    Closes,
    Extension,
    Ring,
    Source,
    Store,
    Surroundings,
    Tell,
)
from toolpost.environ import secret
from toolpost.errors import ConfigError, MissingPart, NameTaken, SetupError
from toolpost.executor import Executor
from toolpost.options import Options, options_from
from toolpost.plugins import load
from toolpost.registry import Entry, Registry, as_entry, renamed

_log = logging.getLogger("toolpost")


class Runtime:
    """Everything a config names, open. ``problems`` says what is wrong with a source right now.

    Rings of your own stand inside those that the config names.
    """

    def __init__(
        self,
        config: Config,
        *,
        observers: Iterable[Extension | Ring] = (),
        guards: Iterable[Extension | Ring] = (),
        backends: Mapping[str, Backend] | None = None,
        provide: Mapping[type, object] | None = None,
    ) -> None:
        settings = config.settings
        verify_backends(config, given=backends or {})
        self.config = config
        self.registry = Registry()
        self.store = _store(config)
        around = Surroundings(
            records=self.store,
            journal=self.store,
            clock=SystemClock(),
            base=config.base,
            state=config.base / settings.state,
            mode=settings.mode,
            secret=secret,
        )
        self.executor = Executor(
            self.registry,
            observers=[*_extensions("observers", config, around), *observers],
            guards=[*_extensions("guards", config, around), *guards],
            backends=backends,
            provide=provide,
            settings=settings.backends,
        )
        self.execute = self.executor.execute
        self.list = self.executor.list
        self.problems: dict[str, str] = {}
        self._sources = [_Loaded(table, i, config) for i, table in enumerate(settings.sources)]
        self._watching: list[asyncio.Task[None]] = []
        self._one_at_a_time = asyncio.Lock()

    @classmethod
    def open(
        cls,
        path: str | Path | None = None,
        *,
        observers: Iterable[Extension | Ring] = (),
        guards: Iterable[Extension | Ring] = (),
        backends: Mapping[str, Backend] | None = None,
        provide: Mapping[type, object] | None = None,
    ) -> Self:
        """From a config file; with no path, from ``toolpost.toml`` here."""
        return cls(
            find(path), observers=observers, guards=guards, backends=backends, provide=provide
        )

    async def start(self, tell: Tell = lambda done, total: None) -> None:
        """Load every source; the first that cannot be loaded stops it with its reason."""
        await self.store.open()
        for source in self._sources:
            await self._load(source, tell)
        if self.config.settings.watch:
            self._watching = [asyncio.create_task(self._watch(s)) for s in self._sources]

    async def reload(self) -> Mapping[str, str]:
        """Load every source again; one that is broken keeps its last good tools."""
        for source in self._sources:
            await self._reload(source)
        return self.problems

    async def close(self) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        async with AsyncExitStack() as stack:  # one that fails does not keep the others open
            stack.push_async_callback(self.store.close)
            for loaded in self._sources:
                if isinstance(loaded.source, Closes):
                    stack.push_async_callback(loaded.source.close)
            stack.push_async_callback(self.executor.close)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def _load(self, loaded: _Loaded, tell: Tell = lambda done, total: None) -> None:
        async with self._one_at_a_time:
            entries = [loaded.named(as_entry(item)) for item in await loaded.source.load(tell)]
            names = {entry.spec.name for entry in entries}
            for name in sorted(names - loaded.names):
                if name in self.registry:
                    owners = (other.label for other in self._sources if name in other.names)
                    raise NameTaken(
                        f"{loaded.label} and {next(owners, 'your code')} both have a tool "
                        f"{name!r}: rename one, or give one of the sources a namespace"
                    )
            try:
                self.registry.update(entries, gone=loaded.names - names)
            except NameTaken as taken:
                raise NameTaken(f"{loaded.label}: {taken.message}", at=taken.at) from None
            loaded.names = names

    async def _reload(self, loaded: _Loaded) -> None:
        try:
            await self._load(loaded)
        except Exception as broken:  # noqa: BLE001 - a source may raise anything; what it had stays
            self._note(loaded, _told(broken), broken)
        else:
            self.problems.pop(loaded.label, None)
            _log.info("%s was loaded again", loaded.label)

    async def _watch(self, loaded: _Loaded) -> None:
        try:
            async for _ in loaded.source.changes():
                await self._reload(loaded)
        except Exception as broken:  # noqa: BLE001 - a source may raise anything; it is seen
            self._note(loaded, f"no longer watched: {_told(broken)}", broken)

    def _note(self, loaded: _Loaded, problem: str, broken: Exception) -> None:
        self.problems[loaded.label] = problem
        trace = None if isinstance(broken, SetupError) else broken
        _log.error("%s keeps the tools it had: %s", loaded.label, problem, exc_info=trace)


class _Loaded:
    """A source as the config names it, and the names of the tools it gave."""

    def __init__(self, table: Mapping[str, Any], index: int, config: Config) -> None:
        options = dict(table)
        kind = options.pop("kind", None)
        self.namespace: str | None = options.pop("namespace", None)
        self.label = f"source {index + 1} ({kind})"
        with _placed(config, "sources", index):
            if not isinstance(kind, str):
                raise ConfigError('a source has no kind; say kind = "files", for example')
            self.source: Source = load("sources", kind).from_config(options, config.base)
        self.names: set[str] = set()

    def named(self, entry: Entry) -> Entry:
        return renamed(entry, f"{self.namespace}.{entry.spec.name}") if self.namespace else entry


def verify_backends(config: Config, *, given: Collection[str] = ()) -> None:
    """Every ``[backends.…]`` table belongs to one that is installed, and says what that takes.

    A backend is made when a tool first needs it, which is too late to hear of a wrong setting.
    """
    for name, table in config.settings.backends.items():
        if name not in given:
            with _placed(config, "backends", name):
                options = getattr(load("backends", name), "options", None)
                if isinstance(options, type) and issubclass(options, Options):
                    options_from(table, options, f"backend {name}")


def _told(broken: Exception) -> str:
    return str(broken) if isinstance(broken, SetupError) else repr(broken)


def _store(config: Config) -> Store:
    options = dict(config.settings.store)
    with _placed(config, "store"):
        kind = options.pop("kind", None)
        if not isinstance(kind, str):
            raise ConfigError('the store has no kind; say kind = "memory", for example')
        store: Store = load("stores", kind).from_config(
            options, config.base / config.settings.state
        )
    return store


def _extensions(
    listed: Literal["observers", "guards"], config: Config, around: Surroundings
) -> Iterator[Extension]:
    for name in getattr(config.settings, listed):
        with _placed(config, listed):
            part = load("extensions", name)
        with _placed(config, "extensions", name):
            yield part.from_config(config.settings.extensions.get(name, {}), around)


@contextmanager
def _placed(config: Config, *at: str | int) -> Iterator[None]:
    """What is wrong with a part or its table is said with the place in the config."""
    try:
        yield
    except (ConfigError, MissingPart) as fault:
        where = (*at, *fault.at)
        raise type(fault)(f"{origin(config, where)}: {fault.message}", at=where) from fault
