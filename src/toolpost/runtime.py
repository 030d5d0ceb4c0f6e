"""A config brought to life: sources loaded into a registry, an executor over it, reload on change.

``async with Runtime.open("toolpost.toml") as tools: await tools.execute("add", {"a": 1, "b": 2})``
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from toolpost.config import Config, find
from toolpost.contracts import Closes, Extension, Source, Tell
from toolpost.errors import ConfigError, NameTaken, SetupError
from toolpost.executor import Executor
from toolpost.plugins import load
from toolpost.registry import Entry, Registry, as_entry, renamed

_log = logging.getLogger("toolpost")


class Runtime:
    """Everything a config names, open. ``problems`` says what is wrong with a source right now."""

    def __init__(self, config: Config, *, provide: Mapping[type, object] | None = None) -> None:
        settings = config.settings
        self.config = config
        self.registry = Registry()
        self.executor = Executor(
            self.registry,
            observers=[_extension(name, config) for name in settings.observers],
            guards=[_extension(name, config) for name in settings.guards],
            provide=provide,
            settings=settings.backends,
        )
        self.execute = self.executor.execute
        self.list = self.executor.list
        self.problems: dict[str, str] = {}
        self._sources = [_Loaded(table, i, config) for i, table in enumerate(settings.sources)]
        self._watching: list[asyncio.Task[None]] = []

    @classmethod
    def open(
        cls, path: str | Path | None = None, *, provide: Mapping[type, object] | None = None
    ) -> Self:
        """From a config file; with no path, from ``toolpost.toml`` here."""
        return cls(find(path), provide=provide)

    async def start(self, tell: Tell = lambda done, total: None) -> None:
        """Load every source; the first that cannot be loaded stops it with its reason."""
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
        await self.executor.close()
        for loaded in self._sources:
            if isinstance(loaded.source, Closes):
                await loaded.source.close()

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
        entries = [loaded.named(as_entry(item)) for item in await loaded.source.load(tell)]
        names = {entry.spec.name for entry in entries}
        for other in self._sources:
            if other is not loaded and (both := names & other.names):
                raise NameTaken(
                    f"{loaded.label} and {other.label} both have a tool {min(both)!r}: rename one, "
                    f"or give one of the sources a namespace"
                )
        self.registry.update(entries, gone=loaded.names - names)
        loaded.names = names

    async def _reload(self, loaded: _Loaded) -> None:
        try:
            await self._load(loaded)
        except SetupError as broken:
            self.problems[loaded.label] = str(broken)
            _log.error("%s stays as it was: %s", loaded.label, broken)
        else:
            self.problems.pop(loaded.label, None)
            _log.info("%s was loaded again", loaded.label)

    async def _watch(self, loaded: _Loaded) -> None:
        async for _ in loaded.source.changes():
            await self._reload(loaded)


class _Loaded:
    """A source as the config names it, and the names of the tools it gave."""

    def __init__(self, table: Mapping[str, Any], index: int, config: Config) -> None:
        options = dict(table)
        kind = options.pop("kind", None)
        if not isinstance(kind, str):
            raise ConfigError(f"sources[{index}] has no kind; say kind = \"files\", for example")
        self.namespace: str | None = options.pop("namespace", None)
        self.label = f"source {index + 1} ({kind})"
        self.source: Source = load("sources", kind).from_config(options, config.base)
        self.names: set[str] = set()

    def named(self, entry: Entry) -> Entry:
        return renamed(entry, f"{self.namespace}.{entry.spec.name}") if self.namespace else entry


def _extension(name: str, config: Config) -> Extension:
    extension: Extension = load("extensions", name).from_config(
        config.settings.extensions.get(name, {}), config.base
    )
    return extension
