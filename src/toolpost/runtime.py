"""A config brought to life: sources loaded into a registry, an executor over it, reload on change.

``async with Runtime.open("toolpost.toml") as tools: await tools.execute("add", {"a": 1, "b": 2})``
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, overload

from toolpost.call import OWNER, Caller
from toolpost.clock import SystemClock
from toolpost.config import GUARDS, OBSERVERS, Config, find, origin, unlisted
from toolpost.contracts import (
    Authenticates,
    Backend,
    Closes,
    Complains,
    Declared,
    Dispensable,
    Draws,
    Extension,
    Health,
    Home,
    Opens,
    Ring,
    Source,
    Surroundings,
    Tell,
)
from toolpost.environ import remembered, secret
from toolpost.errors import CallError, ConfigError, MissingPart, NameTaken, SetupError
from toolpost.executor import Executor
from toolpost.lock import (
    QUARANTINED,
    Difference,
    Offer,
    Pins,
    Quarantine,
    placeholder,
    source_name,
)
from toolpost.options import Options, options_from
from toolpost.plugins import SharedSandbox, confines, load, verify_name
from toolpost.registry import Entry, Item, Registry, as_entry, renamed
from toolpost.spec import ToolSpec
from toolpost.stores.lazy import LazyStore
from toolpost.wording import nearest, short

if TYPE_CHECKING:  # rings are loaded by their names
    from toolpost.extensions.approval import Approval, Ask
    from toolpost.extensions.artifacts import Artifacts
    from toolpost.extensions.audit import Audit
    from toolpost.extensions.log import Log
    from toolpost.extensions.metrics import Metrics
    from toolpost.extensions.policy import Policy

_log = logging.getLogger("toolpost")
_TAKEN: Final = "another source has a tool of this name, which stays"
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
        around = _around(config, self.store, secret)
        self._sandbox = sandbox_of(config)
        self.executor = Executor(
            self.registry,
            observers=[*_extensions("observers", config, around), *observers],
            guards=[*_extensions("guards", config, around), *guards],
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
        self.pins = Pins(config.base / settings.lock)
        self._broken: dict[str, str] = {}
        self._sources = [_Loaded(table, i, config) for i, table in enumerate(settings.sources)]
        for loaded in self._sources:
            if isinstance(loaded.source, Draws):
                loaded.source.draw(self.executor.backends.__getitem__)
            if isinstance(loaded.source, Authenticates):
                loaded.source.authenticate(remembered(secret))
        self._watching: list[asyncio.Task[None]] = []
        self._one_at_a_time = asyncio.Lock()

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
        await self.open_sandbox()
        if self.config.settings.watch:
            self._watching = [asyncio.create_task(self._watch(s)) for s in self._sources]
            self._watching.append(asyncio.create_task(self._watch_lock()))

    async def load(self, tell: Tell = lambda done, total: None) -> None:
        """Load every source; the first that cannot be loaded, and is required, stops it with its
        reason. Those come first: a name that they have is not another's to take.

        It is enough for who only looks at tools: nothing is opened that calls need.
        """
        await asyncio.to_thread(self.pins.read)
        for source in sorted(self._sources, key=lambda one: not one.required):
            try:
                await self._load(source, tell)
            except SetupError as broken:
                if source.required:
                    raise
                self._note(source, broken.message, broken)
            else:
                self._broken.pop(source.label, None)

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
        await self._read_lock()
        for source in self._sources:
            await self._reload(source)
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
        for loaded in self._sources:
            if isinstance(loaded.source, Complains):
                told[loaded.label] = loaded.source.problem
        found = {"store": self.store.problem, **told, **self._broken}
        return {part: problem for part, problem in found.items() if problem}

    async def health(self) -> Mapping[str, Health]:
        """How every part is that can be asked; the store is tried, if it has been made."""
        store, problems = await self.store.health(), self.problems
        parts = [*(s.label for s in self._sources), "lock"]
        parts += [f"extension {e.name}" for e in self._complaining]
        asked = {part: Health(part not in problems, problems.get(part)) for part in parts}
        sandbox = {} if self.lowered is None else {"sandbox": Health(True, self.lowered)}
        return {"store": store, **asked, **sandbox}

    @property
    def left_out(self) -> Mapping[str, Mapping[str, str]]:
        """Source → the tools that it offers and that are not taken, and why."""
        told = {
            one.label: {**(getattr(one.source, "left_out", None) or {}), **one.outdone}
            for one in self._sources
        }
        return {
            label: {key if isinstance(key, str) else "/".join(key): why for key, why in out.items()}
            for label, out in told.items()
            if out
        }

    @property
    def quarantined(self) -> Mapping[str, str]:
        """Name → why. The name itself may still be callable, where another source has it pinned."""
        return {
            name: one.reason for source in self._sources for name, one in source.withheld.items()
        }

    @property
    def sources(self) -> Sequence[str]:
        """The sources of the config, by the names that a lock has for them."""
        return [source.pinned_as for source in self._sources]

    @property
    def offers(self) -> Sequence[Offer]:
        """What the sources offer, quarantined or not: what a lock would pin."""
        return [
            Offer(source.pinned_as, entry.spec)
            for source in self._sources
            for entry in source.offered
        ]

    async def close(self) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        async with AsyncExitStack() as stack:  # one that fails does not keep the others open
            stack.push_async_callback(self.store.close)
            stack.push_async_callback(self._sandbox.close)
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

    async def _load(self, loaded: _Loaded, tell: Tell = lambda done, total: None) -> None:
        async with self._one_at_a_time:
            with loaded.placed():
                items = await loaded.source.load(tell)
            await self._register(loaded, [loaded.named(as_entry(item)) for item in items])

    async def _register(self, loaded: _Loaded, offered: Sequence[Entry]) -> None:
        """Put what a source offers into the registry, as far as the lock lets it."""
        withheld = await asyncio.to_thread(self.pins.judge, loaded.pinned_as, offered)
        beaten = self._beaten(loaded, {entry.spec.name for entry in offered} - loaded.names)
        entries = [
            placeholder(withheld[name]) if name in withheld else entry
            for entry in offered
            if (name := entry.spec.name) not in beaten
        ]
        names = {entry.spec.name for entry in entries}
        try:
            self.registry.update(entries, gone=loaded.names - names)
        except NameTaken as taken:
            raise NameTaken(f"{loaded.label}: {taken.message}", at=taken.at) from None
        for other in self._sources:
            other.names -= names  # those that the lock gives to this one
        for name in sorted(withheld.keys() - loaded.withheld.keys()):
            _log.warning("%s: %s", loaded.label, withheld[name].reason)
        outdone = {name: _TAKEN for name in beaten if self.pins.owner(name) is None}
        for name in sorted(outdone.keys() - loaded.outdone.keys()):
            _log.warning("%s: the tool %s is left out: %s", loaded.label, name, _TAKEN)
        loaded.names, loaded.offered, loaded.withheld = names, offered, withheld
        loaded.outdone = outdone

    def _beaten(self, loaded: _Loaded, fresh: set[str]) -> set[str]:
        """The names that another source holds and keeps. Without a lock nobody can say whose a
        name is, and two that want it are a fault.
        """
        beaten = set()
        for name in sorted(fresh):
            if name in self.registry:
                owner = next((other for other in self._sources if name in other.names), None)
                rightful = self.pins.owner(name)
                twins = owner is not None and owner.pinned_as == loaded.pinned_as
                if rightful is None and getattr(loaded.source, "gives_way", False):
                    beaten.add(name)
                    continue
                if owner is None or rightful is None or twins:
                    raise NameTaken(
                        f"{loaded.label} and {owner.label if owner else 'your code'} both have a "
                        f"tool {name!r}: rename one, or give one of the sources a namespace"
                    )
                if rightful != loaded.pinned_as:
                    beaten.add(name)
        return beaten

    async def _reload(self, loaded: _Loaded) -> None:
        try:
            await self._load(loaded)
        except Exception as broken:  # noqa: BLE001 - a source may raise anything; what it had stays
            self._note(loaded, _told(broken), broken)
        else:
            self._broken.pop(loaded.label, None)
            _log.info("%s was loaded again", loaded.label)

    async def _watch(self, loaded: _Loaded) -> None:
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
            self._broken["lock"] = broken.message
            _log.error("the lock stays as it was: %s", broken.message)
        else:
            self._broken.pop("lock", None)

    async def _watch_lock(self) -> None:
        async for _ in self.pins.changes():
            await self._read_lock()
            for loaded in self._sources:
                await self._hold_against_lock(loaded)

    async def _hold_against_lock(self, loaded: _Loaded) -> None:
        """What the source offered last, judged anew."""
        try:
            async with self._one_at_a_time:
                await self._register(loaded, loaded.offered)
        except SetupError as broken:
            self._note(loaded, broken.message, broken)

    def _note(self, loaded: _Loaded, problem: str, broken: Exception) -> None:
        self._broken[loaded.label] = problem
        trace = None if isinstance(broken, SetupError) else broken
        _log.error("%s keeps the tools it had: %s", loaded.label, problem, exc_info=trace)


class _Loaded:
    """A source as the config names it, and the names of the tools it gave."""

    def __init__(self, table: Mapping[str, Any], index: int, config: Config) -> None:
        options = dict(table)
        kind = options.pop("kind", None)
        self.namespace: str | None = options.pop("namespace", None)
        self.label = f"source {index + 1} ({kind})"
        self.placed = partial(_placed, config, "sources", index)
        with self.placed():
            if not isinstance(kind, str):
                raise ConfigError('a source has no kind; say kind = "files", for example')
            part = load("sources", kind)
            self.source: Source = part.from_config(options, config.base)
        tuning = {"kind", *getattr(part, "tuning", ())}  # how it is asked, not what
        self.pinned_as = source_name(kind, {k: v for k, v in table.items() if k not in tuning})
        self.required = not isinstance(self.source, Dispensable) or self.source.required
        self.names: set[str] = set()
        self.offered: Sequence[Entry] = ()
        self.withheld: Mapping[str, Difference] = {}
        self.outdone: Mapping[str, str] = {}
        """What it offers and does not have, because its names were taken: where it gives way."""

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


def verify_extensions(config: Config) -> None:
    """Every ``[extensions.…]`` table is of a ring that is installed: of one that is misspelt nobody
    would ever hear.
    """
    for name in config.settings.extensions:
        with _placed(config, "extensions", name):
            verify_name("extensions", name)


def idle(config: Config, name: str) -> str:
    """That a table changes nothing, for people."""
    return (
        f"{origin(config, ('extensions', name))}: [extensions.{name}] changes nothing: {name!r} "
        "stands neither in observers nor in guards"
    )


def sandbox_of(config: Config) -> SharedSandbox:
    """The sandbox as a config wants it, not opened yet."""
    settings = config.settings
    if settings.sandbox.lower and settings.mode != "permissive":
        with _placed(config, "sandbox", "lower"):
            raise ConfigError(
                'a lower level of isolation is accepted with mode = "permissive" only'
            )
    return SharedSandbox(
        mode=settings.mode, state=str(config.base / settings.state), lower=settings.sandbox.lower
    )


def _is_confined(entry: Entry) -> bool:
    spec, target = entry
    if target is None or isinstance(target, Declared):
        return confines(spec)
    return spec.isolation == "sandbox"


def _told(broken: Exception) -> str:
    return str(broken) if isinstance(broken, SetupError) else repr(broken)


def store_of(config: Config) -> LazyStore:
    """The store that a config names, not opened yet."""
    options = dict(config.settings.store)
    with _placed(config, "store"):
        kind = options.pop("kind", None)
        if not isinstance(kind, str):
            raise ConfigError('the store has no kind; say kind = "sqlite", for example')
        state = config.base / config.settings.state
        return LazyStore(load("stores", kind).from_config(options, state))


def audit_of(config: Config, store: LazyStore) -> Audit | None:
    """The audit of a config, for who decides without calling anything; close it."""
    if "audit" not in config.settings.observers:
        return None
    table = config.settings.extensions.get("audit", {})
    with _placed(config, "extensions", "audit"):
        audit: Audit = load("extensions", "audit").from_config(table, _around(config, store))
        return audit


def _around(
    config: Config, store: LazyStore, secret: Callable[[str], str | None] = secret
) -> Surroundings:
    return Surroundings(
        records=store,
        journal=store,
        clock=SystemClock(),
        base=config.base,
        state=config.base / config.settings.state,
        mode=config.settings.mode,
        secret=remembered(secret),
    )


def _extensions(
    listed: Literal["observers", "guards"], config: Config, around: Surroundings
) -> Iterator[Extension]:
    names: Sequence[str] = getattr(config.settings, listed)
    for name in names:
        with _placed(config, listed):
            try:
                part = load("extensions", name)
            except MissingPart as fault:
                if names in (OBSERVERS, GUARDS) and isinstance(
                    fault.__cause__, ModuleNotFoundError
                ):
                    continue  # nobody has asked for it by name, and its extra is not installed
                raise
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
