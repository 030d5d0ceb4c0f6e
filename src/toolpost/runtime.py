"""A config brought to life: sources loaded into a registry, an executor over it, reload on change.

``async with Runtime.open("toolpost.toml") as tools: await tools.execute("add", {"a": 1, "b": 2})``

Above: the doors. Below: ``parts.py`` makes what a config names, ``loading.py`` fills the registry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from toolpost.call import OWNER, Caller
from toolpost.config import Config, find, unlisted
from toolpost.contracts import (
    Backend,
    Complains,
    Declared,
    Extension,
    Health,
    Home,
    Opens,
    Ring,
    Tell,
)
from toolpost.environ import remembered, secret
from toolpost.errors import CallError, MissingPart
from toolpost.executor import Executor
from toolpost.loading import Loading
from toolpost.lock import QUARANTINED, Offer, Quarantine
from toolpost.parts import (
    around,
    extensions,
    idle,
    sandbox_of,
    store_of,
    verify_backends,
    verify_extensions,
)
from toolpost.plugins import SharedSandbox, confines
from toolpost.registry import Entry, Item, Registry
from toolpost.spec import ToolSpec
from toolpost.wording import nearest, short

if TYPE_CHECKING:  # rings are loaded by their names
    from toolpost.extensions.approval import Approval, Ask
    from toolpost.extensions.artifacts import Artifacts
    from toolpost.extensions.audit import Audit
    from toolpost.extensions.log import Log
    from toolpost.extensions.metrics import Metrics
    from toolpost.extensions.policy import Policy

_log = logging.getLogger("toolpost")
_LOWERED = "isolation may be one level lower than a tool's tier asks for ([sandbox] lower = true)"


class Runtime:
    """Everything a config names, open. ``problems`` says what is wrong right now, ``quarantined``
    which tools are not as the lock has them, and why they are refused.

    Rings of your own stand inside those that the config names; ``tools`` are tools of your own, and
    ``ask`` reaches a person for the guard ``approval``. The store is opened by the first who needs
    it: where nothing is called, nothing is made.
    """

    def __init__(
        self,
        config: Config,
        *,
        tools: Iterable[Item] = (),
        observers: Iterable[Extension | Ring] = (),
        guards: Iterable[Extension | Ring] = (),
        backends: Mapping[str, Backend] | None = None,
        provide: Mapping[type, object] | None = None,
        secret: Callable[[str], str | None] = secret,
        ask: Ask | None = None,
    ) -> None:
        settings = config.settings
        verify_backends(config, given=backends or {})
        verify_extensions(config)
        self.config = config
        self.registry = Registry(tools)
        self.store = store_of(config)
        surroundings = around(config, self.store, secret)
        self._sandbox = sandbox_of(config, self.registry)
        self.executor = Executor(
            self.registry,
            observers=[*extensions("observers", config, surroundings), *observers],
            guards=[*extensions("guards", config, surroundings), *guards],
            backends={**(backends or {}), QUARANTINED: Quarantine()},
            provide={
                SharedSandbox: self._sandbox,
                Home: Home(config.base),
                **(provide or {}),
            },
            settings=settings.backends,
            secret=secret,
        )
        self.execute = self.executor.execute
        self._introduce(ask)
        self._loading = Loading(
            config,
            self.registry,
            backend=self.executor.backends.__getitem__,
            secret=remembered(secret),
        )
        self.pins = self._loading.pins

    @classmethod
    def open(
        cls,
        config: str | Path | Config | None = None,
        *,
        tools: Iterable[Item] = (),
        observers: Iterable[Extension | Ring] = (),
        guards: Iterable[Extension | Ring] = (),
        backends: Mapping[str, Backend] | None = None,
        provide: Mapping[type, object] | None = None,
        secret: Callable[[str], str | None] = secret,
        ask: Ask | None = None,
    ) -> Self:
        """From the file at a path, or a config of your own; else from ``toolpost.toml`` here."""
        return cls(
            config if isinstance(config, Config) else find(config),
            tools=tools,
            observers=observers,
            guards=guards,
            backends=backends,
            provide=provide,
            secret=secret,
            ask=ask,
        )

    @overload
    def extension(self, name: Literal["approval"]) -> Approval: ...
    @overload
    def extension(self, name: Literal["artifacts"]) -> Artifacts: ...
    @overload
    def extension(self, name: Literal["audit"]) -> Audit: ...
    @overload
    def extension(self, name: Literal["log"]) -> Log: ...
    @overload
    def extension(self, name: Literal["metrics"]) -> Metrics: ...
    @overload
    def extension(self, name: Literal["policy"]) -> Policy: ...
    @overload
    def extension(self, name: str) -> Any: ...
    def extension(self, name: str) -> Any:
        """The ring in force that has this name: ``runtime.extension("metrics").scrape()``."""
        for one in self._extensions:
            if one.name == name:
                return one
        known = [one.name for one in self._extensions]
        raise MissingPart(
            f"no ring {short(name)!r} is in force{nearest(name, known)} "
            f"(in force: {', '.join(known) or 'none'})"
        )

    async def start(self, tell: Tell = lambda done, total: None) -> None:
        """Load everything, make the rings and the sandbox ready, watch for changes."""
        await self.load(tell)
        await self.open_rings()
        self.store.verify_soon()
        await self.open_sandbox()
        if self.config.settings.watch:
            self._loading.watch()

    async def load(self, tell: Tell = lambda done, total: None) -> None:
        """Load every source; the first that cannot be loaded, and is required, stops it with its
        reason. Those come first: a name that they have is not another's to take.

        It is enough for who only looks at tools: nothing is opened that calls need.
        """
        await self._loading.load(tell)

    async def open_rings(self) -> None:
        """Before the first call: what is kept already is opened, and what earlier processes left
        half done is taken up. A store that cannot be had now may be later: see ``problems``.
        """
        for name in unlisted(self.config.settings):
            _log.warning("%s", idle(self.config, name))
        if self.store.there:
            with suppress(CallError):
                await self.store.open()
        for extension in self._extensions:
            if isinstance(extension, Opens):
                await extension.open()

    async def open_sandbox(self, *names: str) -> None:
        """Open the sandbox, if one of these tools, or any at all, is to run in it. Then whatever
        cannot be confined is refused before it is called, and a dry run can tell the level.
        """
        if self.lowered is not None:
            _log.warning("%s", self.lowered)
        entries = map(self.registry.entry, names or [spec.name for spec in self.registry])
        if any(entry is not None and _is_confined(entry) for entry in entries):
            await self._sandbox()

    @property
    def lowered(self) -> str | None:
        """That tools may run with less isolation than their tier asks for, if they may."""
        return _LOWERED if self.config.settings.sandbox.lower else None

    async def reload(self) -> Mapping[str, str]:
        """Load every source again; one that is broken keeps its last good tools."""
        await self._loading.reload()
        return self.problems

    def list(self, caller: Caller = OWNER) -> tuple[ToolSpec, ...]:
        """The tools that this caller may know of, but for those in quarantine."""
        return tuple(s for s in self.executor.list(caller) if s.kind != QUARANTINED)

    @property
    def problems(self) -> Mapping[str, str]:
        """What is wrong right now, by the part that has it: a source that keeps its last good
        tools, the lock, the store, an extension.
        """
        told = {f"extension {e.name}": e.problem for e in self._complaining}
        store = {"store": self.store.problem or self.store.damage, "store data": self.store.loss}
        found = {**store, **told, **self._loading.problems}
        return {part: problem for part, problem in found.items() if problem}

    async def health(self) -> Mapping[str, Health]:
        """How every part is that can be asked; the store is tried, if it has been made."""
        store, problems = await self.store.health(), self.problems
        parts = [*(one.label for one in self._loading.sources), "lock"]
        parts += ["store data"] if "store data" in problems else []
        parts += [f"extension {e.name}" for e in self._complaining]
        told = {**self._loading.notices, **problems}
        asked = {part: Health(part not in problems, told.get(part)) for part in parts}
        sandbox = {} if self.lowered is None else {"sandbox": Health(True, self.lowered)}
        return {"store": store, **asked, **sandbox}

    @property
    def left_out(self) -> Mapping[str, Mapping[str, str]]:
        """Source → the tools that it offers and that are not taken, and why."""
        return self._loading.left_out

    @property
    def empty_sources(self) -> Mapping[str, str]:
        """The sources that were loaded and offer no tool, and what to do about each."""
        return self._loading.empty

    @property
    def quarantined(self) -> Mapping[str, str]:
        """Name → why. The name itself may still be callable, where another source has it pinned."""
        return self._loading.quarantined

    @property
    def sources(self) -> Sequence[str]:
        """The sources of the config, by the names that a lock has for them."""
        return [one.pinned_as for one in self._loading.sources]

    @property
    def offers(self) -> Sequence[Offer]:
        """What the sources offer, quarantined or not: what a lock would pin."""
        return self._loading.offers

    async def close(self) -> None:
        await self._loading.stop_watching()
        async with AsyncExitStack() as stack:  # one that fails does not keep the others open
            stack.push_async_callback(self.store.close)
            stack.push_async_callback(self._sandbox.close)
            for source in self._loading.closing:
                stack.push_async_callback(source.close)
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

    def _introduce(self, ask: Ask | None) -> None:
        """What people decide goes on record; and the way to reach them that a program has."""
        rings = {one.name: one for one in self._extensions}
        keep = getattr(rings.get("audit"), "keep", None)
        for name in ("approval", "artifacts"):
            record = getattr(rings.get(name), "record", None)
            if keep is not None and record is not None:
                record(keep)
        if ask is not None:
            self.extension("approval").reach(ask)

    @property
    def _extensions(self) -> Sequence[Extension]:
        return (*self.executor.observers, *self.executor.guards)

    @property
    def _complaining(self) -> Sequence[Any]:
        return [e for e in self._extensions if isinstance(e, Complains)]


def _is_confined(entry: Entry) -> bool:
    spec, target = entry
    if target is None or isinstance(target, Declared):
        return confines(spec)
    return spec.isolation == "sandbox"
