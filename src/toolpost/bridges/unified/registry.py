"""``ToolSpecRegistry``: specs from files, addresses, tables and code, for planners and executors.

Above: the executor of this bridge, and planners. Below: our registry, which an ``Executor`` or a
``Runtime`` takes as it is, our sources, which the loaders are, and ``exporters``. It refuses to
know what a tool does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from toolpost.bound import closed
from toolpost.bridges.unified.specs import DANGEROUS, ToolSpec, from_spec, kind_of
from toolpost.contracts import Authenticates, Closes, Draws, Source
from toolpost.environ import remembered, secret
from toolpost.errors import ConfigError, NameTaken, SetupError
from toolpost.exporters import Export, export
from toolpost.plugins import load
from toolpost.registry import Entry, Item, Registry, as_entry
from toolpost.spec import ToolSpec as OwnSpec

_USUAL: Final = ("tools.yaml", "tools.yml", "tools.json", "tools.toml")


class _Loader:
    """A source of ours by its kind, made when it is first wanted: its extra may be missing."""

    kind: str

    def __init__(self, options: Mapping[str, Any], base: str | Path | None) -> None:
        base = Path.cwd() if base is None else Path(base).resolve()
        self.source: Source = load("sources", self.kind).from_config(options, base)


class FileLoader(_Loader):
    """Spec files: YAML, JSON or TOML, by path or pattern; relative ones start at ``base``."""

    kind = "files"

    def __init__(self, *paths: str | Path, base: str | Path | None = None) -> None:
        super().__init__({"paths": list(map(str, paths))}, base)


class HttpLoader(_Loader):
    """A document of specs at an address. ``kinds``, ``secrets`` and ``egress`` are what its tools
    may ask for; ``token`` is the name of a secret.
    """

    kind = "http"

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        digest: str | None = None,
        kinds: Sequence[str] = ("http",),
        secrets: Sequence[str] = (),
        egress: Sequence[str] = (),
        base: str | Path | None = None,
    ) -> None:
        granted = {"kinds": list(kinds), "secrets": list(secrets), "egress": list(egress)}
        super().__init__({"url": url, "token": token, "digest": digest, **granted}, base)


class DatabaseLoader(_Loader):
    """A table of specs; ``toolpost push`` writes one. ``url_secret`` names a secret that holds the
    URL; the rest is as in ``HttpLoader``.
    """

    kind = "database"

    def __init__(
        self,
        url: str | None = None,
        *,
        url_secret: str | None = None,
        table: str = "toolpost_tools",
        kinds: Sequence[str] = ("http",),
        secrets: Sequence[str] = (),
        egress: Sequence[str] = (),
        base: str | Path | None = None,
    ) -> None:
        granted = {"kinds": list(kinds), "secrets": list(secrets), "egress": list(egress)}
        super().__init__({"url": url, "url_secret": url_secret, "table": table, **granted}, base)


class ToolSpecRegistry:
    """``await load_all()`` loads what the loaders have; without any, the files ``tools.yaml``,
    ``.json`` and ``.toml`` of this folder. ``registry`` is the same for our own executor.
    """

    def __init__(
        self, loaders: Iterable[_Loader | Source] = (), *, specs: Iterable[ToolSpec] = ()
    ) -> None:
        given = list(loaders)
        self._sources = [_Loaded(number, one) for number, one in enumerate(given, start=1)]
        self._here = not given
        self._given: dict[str, ToolSpec] = {}
        self._spoken: dict[str, str] = {}
        self._one_at_a_time = asyncio.Lock()
        self.registry = Registry()
        self.problems: Mapping[str, str] = {}
        """Which loaders keep what they had when they last could be loaded, and why."""
        self.register(*specs)

    async def load_all(self) -> None:
        """Load everything; the first that cannot be loaded stops it, with its reason."""
        self.problems = await self._load(strict=True)

    async def reload(self) -> Mapping[str, str]:
        """Load everything again, while calls go on; a loader that is broken keeps what it had."""
        self.problems = await self._load(strict=False)
        return self.problems

    def register(self, *specs: ToolSpec) -> None:
        """Specs of your own; a name that is taken is refused."""
        for one in specs:
            if not isinstance(one, ToolSpec):
                raise TypeError(f"a {type(one).__name__} is not a ToolSpec of this contract")
        self.registry.add(*(one.to_spec() for one in specs))
        self._given |= {one.name: one for one in specs}

    def unregister(self, name: str) -> None:
        self.registry.remove(name)
        self._given.pop(name, None)

    def get(self, name: str) -> ToolSpec | None:
        """The whole spec, implementation and all."""
        spec = self.registry.get(name)
        return None if spec is None else self._as_given(spec)

    def list_specs(
        self,
        *,
        tool_type: str | None = None,
        category: str | None = None,
        tag: str | None = None,
        is_dangerous: bool | None = None,
        requires_approval: bool | None = None,
    ) -> list[ToolSpec]:
        """What a planner sees, by name: specs that fit, without their implementation."""
        kind = None if tool_type is None else kind_of(tool_type)
        return [
            _planned(self._as_given(spec))
            for spec in self.registry.list(kind=kind, category=category, tag=tag)
            if is_dangerous in (None, spec.tier >= DANGEROUS)
            and requires_approval in (None, spec.requires_approval)
        ]

    def export(self, form: str, *, strict: bool = False) -> Export:
        """The tools in a vendor's form, and what their names mean there."""
        made = export(self.registry.list(), form, strict=strict)
        self._spoken.update(made.names)
        return made

    def name_of(self, name: str) -> str:
        """The tool that is meant: a model calls it what it is called in an export."""
        return name if name in self.registry else self._spoken.get(name, name)

    def to_openai_tools(self, *, strict: bool = False) -> list[dict[str, Any]]:
        return list(self.export("openai", strict=strict).tools)

    def to_mcp_tools(self) -> list[dict[str, Any]]:
        return list(self.export("mcp").tools)

    def items(self) -> list[Item]:
        """The tools for a ``Registry`` or a ``Runtime`` of ours."""
        entries = (self.registry.entry(spec.name) for spec in self.registry)
        return [entry for entry in entries if entry is not None]

    async def close(self) -> None:
        for loaded in self._sources:
            if isinstance(loaded.source, Closes):
                await closed(loaded.source, loaded.label)

    async def __aenter__(self) -> Self:
        await self.load_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __contains__(self, name: object) -> bool:
        return name in self.registry

    def __len__(self) -> int:
        return len(self.registry)

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self.list_specs())

    def _as_given(self, spec: OwnSpec) -> ToolSpec:
        given = self._given.get(spec.name)
        return from_spec(spec) if given is None else given

    async def _load(self, *, strict: bool) -> Mapping[str, str]:
        problems: dict[str, str] = {}
        self._look_here()
        async with self._one_at_a_time:
            for loaded in self._sources:
                try:
                    items = await loaded.source.load(lambda done, total: None)
                    self._swap(loaded, [as_entry(item) for item in items])
                except SetupError as broken:
                    if strict:
                        raise
                    problems[loaded.label] = broken.message
        return problems

    def _look_here(self) -> None:
        found = [name for name in _USUAL if Path(name).exists()]
        if self._here and found:
            self._here = False
            self._sources = [_Loaded(1, FileLoader(*found))]

    def _swap(self, loaded: _Loaded, entries: Sequence[Entry]) -> None:
        names = {entry.spec.name for entry in entries}
        for name in sorted(names - loaded.names):
            if name in self.registry:
                raise NameTaken(f"{loaded.label}: there is a tool {name!r} already: rename one")
        self.registry.update(entries, gone=loaded.names - names)
        loaded.names = names


class _Loaded:
    """A source, and the names that it gave."""

    def __init__(self, number: int, loader: _Loader | Source) -> None:
        self.source = loader.source if isinstance(loader, _Loader) else loader
        self.label = f"loader {number} ({type(loader).__name__})"
        self.names: set[str] = set()
        if isinstance(self.source, Draws):
            raise ConfigError(f"{self.label} needs connections: name it in toolpost.toml instead")
        if isinstance(self.source, Authenticates):
            self.source.authenticate(remembered(secret))


def _planned(spec: ToolSpec) -> ToolSpec:
    return ToolSpec(
        name=spec.name,
        description=spec.description,
        tool_type=spec.tool_type,
        input_schema=spec.input_schema,
        output_schema=spec.output_schema,
        metadata=spec.metadata,
        options=spec.options,
    )
