"""``UnifiedToolExecutor``: one ``execute`` for every type of tool, with extensions around it.

Above: agents, and existing projects. Below: our executor over the same registry, with a guard for
repeats and one for slots innermost. A type of your own is one class, ``ToolExecutor``. It refuses
to know what runs a tool.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, Self

import msgspec

from toolpost.bound import closed
from toolpost.bridges.unified.builtin import ApprovalExtension, AuditExtension, AuthExtension
from toolpost.bridges.unified.context import ANONYMOUS, ToolContext, context_of
from toolpost.bridges.unified.extending import ExtensionManager
from toolpost.bridges.unified.registry import ToolSpecRegistry
from toolpost.bridges.unified.specs import ToolSpec, from_spec, kind_of
from toolpost.call import OWNER, Call
from toolpost.contracts import Backend, Health, Opens
from toolpost.environ import secret
from toolpost.errors import ConfigError
from toolpost.executor import Executor
from toolpost.extensions.retry import Retry
from toolpost.extensions.slots import Slots
from toolpost.registry import Entry, Item, as_entry
from toolpost.result import Result
from toolpost.spec import ToolSpec as OwnSpec

_NO_CONTEXT: Final = ToolContext()


class ToolExecutor:
    """What runs a type of tool. Time limits, checks, repeats and extensions come with the road."""

    tool_type: ClassVar[str] = ""

    async def execute(self, spec: ToolSpec, args: dict[str, Any], context: ToolContext) -> Any:
        """The output, which is JSON data; or raise, ``ToolFailed`` to speak to the model."""
        raise NotImplementedError

    async def close(self) -> None:
        """Called once, with the executor."""


class UnifiedToolExecutor:
    """Whatever goes wrong is in the result. ``settings`` are what ``[backends]`` of a config would
    say: the programs that commands may run, the MCP servers. ``executor`` is our own, within.
    """

    def __init__(
        self,
        spec_registry: ToolSpecRegistry,
        extension_manager: ExtensionManager | None = None,
        *,
        executors: Iterable[ToolExecutor] = (),
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        provide: Mapping[type, object] | None = None,
        secret: Callable[[str], str | None] = secret,
    ) -> None:
        self.spec_registry = spec_registry
        self.extension_manager = extension_manager or ExtensionManager()
        self._backends = backends(*executors)
        self._settings, self._provide, self._secret = settings, provide, secret
        self._executor: Executor | None = None
        self._nobody = OWNER

    @property
    def executor(self) -> Executor:
        """Made when it is first wanted: until then, extensions may be registered."""
        if self._executor is None:
            rings = self.extension_manager.rings()
            self._executor = Executor(
                self.spec_registry.registry,
                observers=rings.observers,
                guards=[*rings.guards, Retry(), Slots()],
                backends=self._backends,
                settings=self._settings,
                provide=self._provide,
                secret=self._secret,
            )
            self._introduce()
        return self._executor

    async def execute(
        self,
        tool_name: str,
        args: Mapping[str, Any] | None = None,
        context: ToolContext | None = None,
    ) -> Result:
        """Run one tool, of whatever type, by its name or by what it is called in an export."""
        executor, context = self.executor, _NO_CONTEXT if context is None else context
        if not isinstance(context, ToolContext):
            raise TypeError(f"context is a {type(context).__name__}, and must be a ToolContext")
        return await executor.execute(
            self.spec_registry.name_of(tool_name),
            args,
            caller=context.caller(otherwise=self._nobody),
            session_id=context.session_id,
            timeout=context.timeout,
            working_dir=context.working_dir,
            dry_run=context.dry_run,
            metadata=context.metadata,
            grant=context.approval,
        )

    async def close(self) -> None:
        if self._executor is not None:
            await self._executor.close()
        for extension in self.extension_manager.extensions:
            await closed(extension, extension.name)

    async def __aenter__(self) -> Self:
        for ring in self.executor.observers:
            if isinstance(ring, Opens):
                await ring.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _introduce(self) -> None:
        """What people decide goes on record; and who does not say who he is, where that matters."""
        known = self.extension_manager.extensions
        audits = [one.audit for one in known if isinstance(one, AuditExtension)]
        for one in known:
            if isinstance(one, AuthExtension):
                self._nobody = ANONYMOUS
            if isinstance(one, ApprovalExtension) and audits:
                one.approval.record(audits[0].keep)


def backends(*executors: ToolExecutor) -> dict[str, Backend]:
    """Types of your own for an ``Executor`` or a ``Runtime`` of ours: ``backends=backends(…)``."""
    made: dict[str, Backend] = {}
    for one in executors:
        kind = kind_of(one.tool_type)
        if not kind or not inspect.iscoroutinefunction(one.execute):
            raise ConfigError(f"{type(one).__name__} needs a tool_type and an async execute")
        if kind in made:
            raise ConfigError(f"two executors for tools of type {kind!r}")
        made[kind] = _Runs(one)
    return made


class _Runs(msgspec.Struct, frozen=True):
    """A type of somebody's own as a backend."""

    executor: ToolExecutor

    def bind(self, spec: OwnSpec, target: object | None) -> _Ready:
        return _Ready(self.executor, from_spec(spec))

    async def close(self) -> None:
        await self.executor.close()


class _Ready(msgspec.Struct, frozen=True):
    executor: ToolExecutor
    spec: ToolSpec

    async def run(self, call: Call) -> Any:
        return await self.executor.execute(
            self.spec, call.arguments, context_of(call, self.spec, {})
        )

    async def health(self) -> Health:
        return Health(True)

    async def close(self) -> None:
        """There is nothing of one tool alone."""


Given = ToolSpecRegistry | ToolSpec | Iterable["ToolSpecRegistry | ToolSpec"]


def tools(*given: Given) -> list[Item]:
    """Specs and registries of this contract as tools for a ``Registry`` or a ``Runtime``."""
    items: list[Item] = []
    for one in given:
        if isinstance(one, ToolSpecRegistry):
            items += one.items()
        elif isinstance(one, ToolSpec):
            items.append(one.to_spec())
        else:
            items += tools(*one)
    return items


def tools_in(namespace: Mapping[str, object]) -> list[Item]:
    """The tools of this contract that a module has: specs, lists of them, registries."""
    found: list[ToolSpec | ToolSpecRegistry] = []
    for value in namespace.values():
        listed = value if isinstance(value, list | tuple) else (value,)
        found += [one for one in listed if isinstance(one, ToolSpec | ToolSpecRegistry)]
    # a spec that has a name of its own, and stands in a list or a registry as well, is one tool
    entries: dict[str, list[Entry]] = {}
    for entry in map(as_entry, tools(found)):
        alike = entries.setdefault(entry.spec.name, [])
        if entry not in alike:
            alike.append(entry)
    return [entry for alike in entries.values() for entry in alike]
