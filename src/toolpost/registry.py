"""Name → tool. An ordinary object: make as many as you like.

A reader never waits and never sees a half-made state: a change is checked as a whole before any of
it is visible, and a reload is one swap. What a tool *does* is not known here; the live object
behind a tool that was registered in code is kept beside its spec and handed to the backend as it
is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from toolpost.authoring import FunctionTool, Tool, tool
from toolpost.contracts import Declared, Registered
from toolpost.errors import InvalidSpec, NameTaken, ToolNotFound
from toolpost.spec import ToolSpec
from toolpost.verified import verified, without_hidden
from toolpost.wording import nearest, short

if TYPE_CHECKING:
    from toolpost.search import Found, Index

Listener = Callable[[frozenset[str]], None]
Collision = Literal["refuse", "namespace"]


class Entry(NamedTuple):
    """One registered tool."""

    spec: ToolSpec
    target: object | None


Item = Entry | ToolSpec | Registered | type[Tool] | Callable[..., object]


class Registry:
    """``Registry([add, spec, Weather])``: functions, tools, tool classes and plain specs."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._entries: dict[str, Entry] = {}
        self._alike: dict[str, str] = {}
        self._version = 0
        self._listing: tuple[int, tuple[ToolSpec, ...]] = (0, ())
        self._listeners: list[Listener] = []
        self._index: Index | None = None
        self._writing = threading.RLock()
        self.add(*items)

    def add(
        self, *items: Item, namespace: str | None = None, collision: Collision = "refuse"
    ) -> None:
        """Register all of them or, if one is at fault, none.

        With a namespace every name becomes ``namespace.name``. ``collision="namespace"`` keeps
        plain names and uses the namespace only for those that are taken, in the order given.
        """
        with self._writing:
            fresh: dict[str, Entry] = {}
            alike: dict[str, str] = {}
            for item in items:
                entry = as_entry(item)
                key = folded(entry.spec.name)
                taken = self._alike.get(key) or alike.get(key)
                if namespace and (taken or collision != "namespace"):
                    entry = renamed(entry, f"{namespace}.{entry.spec.name}")
                    key = folded(entry.spec.name)
                    taken = self._alike.get(key) or alike.get(key)
                if taken:
                    raise NameTaken(_taken_by(entry.spec.name, taken), at=("name",))
                fresh[entry.spec.name] = entry
                alike[key] = entry.spec.name
            self._entries.update(fresh)
            self._alike.update(alike)
            self._tell(frozenset(fresh))

    def replace(self, *items: Item) -> None:
        """Register them, in the place of tools of the same name where there are any."""
        self.update(items)

    def remove(self, *names: str) -> None:
        """Forget these tools; calls that are under way finish."""
        with self._writing:
            for name in names:
                if name not in self._entries:
                    raise ToolNotFound(f"There is no tool {name!r}{self.near(name)}")
            self.update((), gone=names)

    def update(self, items: Iterable[Item], *, gone: Iterable[str] = ()) -> None:
        """Replace and remove in one swap, as a reload does. Unchanged tools are left alone."""
        with self._writing:
            changed = set(gone) & self._entries.keys()
            kept = {k: v for k, v in self._entries.items() if k not in changed}
            fresh: dict[str, Entry] = {}
            for entry in map(as_entry, items):
                name = entry.spec.name
                if name in fresh:
                    raise NameTaken(_taken_by(name, name), at=("name",))
                if kept.get(name) != entry:
                    changed.add(name)
                fresh[name] = entry
            kept.update(fresh)
            alike: dict[str, str] = {}
            for name in kept:
                if (other := alike.setdefault(folded(name), name)) != name:
                    raise NameTaken(_taken_by(name, other), at=("name",))
            self._entries, self._alike = kept, alike
            self._tell(frozenset(changed))

    def get(self, name: str) -> ToolSpec | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.spec

    def entry(self, name: str) -> Entry | None:
        """The spec and the live object behind it."""
        return self._entries.get(name)

    def list(
        self,
        *,
        kind: str | None = None,
        category: str | None = None,
        tag: str | None = None,
        tier: int | None = None,
    ) -> tuple[ToolSpec, ...]:
        """The specs by name, those that fit; ``tier`` means "at most this one"."""
        listing = self._listed()
        if kind is None and category is None and tag is None and tier is None:
            return listing
        return tuple(
            s
            for s in listing
            if (kind is None or s.kind == kind)
            and (category is None or s.category == category)
            and (tag is None or tag in s.tags)
            and (tier is None or s.tier <= tier)
        )

    def groups(self) -> Mapping[str, tuple[ToolSpec, ...]]:
        """The specs by category, for display."""
        categories = sorted({s.category for s in self.list()})
        return {c: self.list(category=c) for c in categories}

    def search(
        self, query: str, limit: int = 10, *, among: Iterable[ToolSpec] | None = None
    ) -> tuple[Found, ...]:
        """The tools that do what a query says, best first: ``search("send a mail")``.

        Of those that are ``among`` some, as ``executor.list(caller)`` gives them, if only those may
        be known.
        """
        if self._index is None:
            from toolpost.search import Index  # SQLite, for who searches

            self._index = Index()
        return self._index.search(query, self.list(), limit=limit, among=among)

    def alike(self, name: str) -> str | None:
        """The name, of a tool that is here, that cannot stand beside this one; maybe the same."""
        return self._alike.get(folded(name))

    def near(self, name: str) -> str:
        """``; did you mean …?`` or nothing."""
        return nearest(name, tuple(self._entries))

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Be told the names that changed, after the swap; returns how to stop that."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self.list())

    def _listed(self) -> tuple[ToolSpec, ...]:
        """Sorted once per version; a listing that a change has overtaken is not kept."""
        version, listing = self._listing
        if version != (now := self._version):
            listing = tuple(e.spec for _, e in sorted(self._entries.copy().items()))
            self._listing = (now, listing)
        return listing

    def _tell(self, changed: frozenset[str]) -> None:
        self._version += 1
        if changed:
            for listener in tuple(self._listeners):
                listener(changed)


def as_registry(given: object) -> Registry:
    """The registry itself; of anything else it is said what to write instead."""
    if isinstance(given, Registry):
        return given
    raise TypeError(f"a {type(given).__name__} is not a Registry: write Executor(Registry([add]))")


def as_entry(item: Item) -> Entry:
    if isinstance(item, Entry):
        return item
    if isinstance(item, ToolSpec):
        return Entry(verified(item), None)
    spec = getattr(item, "spec", None)
    if isinstance(spec, ToolSpec):
        if isinstance(item, FunctionTool):
            return Entry(without_hidden(spec), item)
        return Entry(spec if isinstance(item, Declared) else verified(spec), item)
    if callable(item):
        made = tool(item)
        return Entry(without_hidden(made.spec), made)
    raise InvalidSpec(
        f"a {type(item).__name__} is not a tool: register a function, a Tool or a ToolSpec"
    )


def renamed(entry: Entry, name: str) -> Entry:
    return entry._replace(spec=msgspec.structs.replace(entry.spec, name=name))


def folded(name: str) -> str:
    """Names that differ only in case or separators are one name to a reader in a hurry."""
    return name.casefold().replace("-", "_").replace(".", "_")


def _taken_by(name: str, other: str) -> str:
    if name == other:
        return f"the name {name!r} is taken: rename one of the two tools, or use a namespace"
    return f"the name {name!r} looks like {other!r}: make them easier to tell apart"


def no_such_tool(name: str, known: Iterable[str]) -> ToolNotFound:
    """That a name is nobody's, with the one that may have been meant."""
    hint = nearest(name, known) or "; list the tools to see what there is"
    return ToolNotFound(f"There is no tool {short(name)!r}{hint}")
