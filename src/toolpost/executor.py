"""THE ROAD: what happens to one call, from a name to a result.

    observers → admit → guards → invoke → backend

A tool's chain is folded once, when it is first called (``chain.py``): rings that do not apply to it
cost nothing. Inside a ring: raise. Between rings: only a ``Result``. A guard that breaks means that
the tool does not run; an observer that breaks changes nothing. Cancellation passes through.

What runs a kind of tool, what a ring decides, where specs come from: not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from types import TracebackType
from typing import Any, Self

from toolpost.call import OWNER, Call, Caller, Progress, new_call_id
from toolpost.chain import as_extension, guarded, metadata, observed, raising, settled
from toolpost.contracts import (
    Backend,
    Closes,
    Extension,
    Handle,
    Health,
    Ring,
    Sees,
    Services,
    Walk,
)
from toolpost.deadline import limited, timed_out
from toolpost.errors import ToolNotFound
from toolpost.output import finisher
from toolpost.plugins import Backends
from toolpost.registry import Registry
from toolpost.result import Result
from toolpost.spec import ToolSpec, nearest, short

_UNKNOWN = ToolSpec(name="unknown", description="A name that no tool has.", kind="unknown", tier=0)


class Bound:
    """A tool ready to be called: its chain, its handle, and how many calls are inside."""

    __slots__ = ("active", "handle", "retired", "rings", "spec", "walk")

    def __init__(self, spec: ToolSpec, handle: Handle | None = None) -> None:
        self.spec, self.handle = spec, handle
        self.walk: Walk
        self.rings: tuple[str, ...] = ()
        self.active, self.retired = 0, False


class Executor:
    """Runs tools by name. Without extensions: validation, time limit, output check."""

    def __init__(
        self,
        registry: Registry,
        *,
        observers: Iterable[Extension | Ring] = (),
        guards: Iterable[Extension | Ring] = (),
        backends: Mapping[str, Backend] | None = None,
        provide: Mapping[type, object] | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.registry = registry
        self.observers = tuple(map(as_extension, observers))
        self.guards = tuple(map(as_extension, guards))
        self.backends = Backends(backends or {}, Services(provide=provide or {}, settings=settings or {}))
        self.strays: set[asyncio.Task[Any]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._bound: dict[str, Bound] = {}
        self._unknown = self._watch(Bound(_UNKNOWN), settled(self._not_found))
        self._deaf = registry.listen(self._retire)

    async def execute(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        caller: Caller = OWNER,
        session_id: str | None = None,
        timeout: float | None = None,
        working_dir: str | None = None,
        dry_run: bool = False,
        phase: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
        grant: str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result:
        """Run one tool. Whatever goes wrong is in the result; only a cancellation is raised."""
        started = monotonic()
        try:
            bound = self._bound[name]
        except (KeyError, TypeError):
            bound = self._bind(name)
        call = Call(
            name,
            bound.spec,
            arguments.copy() if type(arguments) is dict else _as_dict(arguments),
            caller,
            new_call_id(),
            [],
            [],
            session_id,
            None if timeout is None else started + timeout,
            working_dir,
            dry_run,
            phase if bound.spec.context_aware else None,
            metadata or {},
            key,
            grant,
            on_progress,
        )
        result = await bound.walk(call)
        result.metadata.duration_ms = (monotonic() - started) * 1000
        return result

    async def rewalk(
        self,
        call: Call,
        *,
        tool: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        grant: str | None = None,
    ) -> Result:
        """Walk the whole road anew for a call: with another tool, or with edited arguments."""
        return await self.execute(
            tool or call.tool,
            call.arguments if arguments is None else arguments,
            caller=call.caller,
            session_id=call.session_id,
            timeout=None if call.deadline is None else call.deadline - monotonic(),
            working_dir=call.working_dir,
            dry_run=call.dry_run,
            phase=call.phase,
            metadata=call.metadata,
            key=call.key,
            grant=grant,
            on_progress=call.on_progress,
        )

    def list(self, caller: Caller = OWNER) -> tuple[ToolSpec, ...]:
        """The tools that this caller may know of."""
        judges = [e for e in (*self.observers, *self.guards) if isinstance(e, Sees)]
        specs = self.registry.list()
        return tuple(s for s in specs if all(j.sees(caller, s) for j in judges)) if judges else specs

    def bound(self, name: str) -> Bound:
        """The tool as it would be called now: its rings in order, its handle."""
        return self._bound.get(name) or self._bind(name)

    async def health(self, name: str) -> Health:
        handle = self.bound(name).handle
        return Health(False, "it cannot be run") if handle is None else await handle.health()

    async def close(self) -> None:
        """Close every handle, backend and extension; calls still inside are left to their limit."""
        self._deaf()
        self._retire(frozenset(self._bound))
        for task in self.strays:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self.backends.close()
        for extension in (*self.guards, *self.observers):
            if isinstance(extension, Closes):
                await extension.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    def _bind(self, name: str) -> Bound:
        entry = self.registry.entry(name) if isinstance(name, str) else None
        if entry is None:
            return self._unknown
        try:
            bound = Bound(entry.spec, self.backends[entry.spec.kind].bind(*entry))
            walk, bound.rings = guarded(entry.spec, self._invoke(bound), self.guards, self)
        except Exception as exc:  # fail closed: a tool whose chain cannot be made does not run
            return self._watch(Bound(entry.spec), settled(raising(exc)))
        self._bound[name] = self._watch(bound, walk)
        return bound

    def _watch(self, bound: Bound, walk: Walk) -> Bound:
        bound.walk, names = observed(bound.spec, walk, self.observers, self)
        bound.rings = names + bound.rings
        return bound

    def _invoke(self, bound: Bound) -> Walk:
        spec, handle, strays = bound.spec, bound.handle, self.strays
        assert handle is not None
        limit, finish = spec.time_limit, finisher(spec)

        async def invoke(call: Call) -> Result:
            seconds = limit
            if call.deadline is not None:
                seconds = min(limit, call.deadline - monotonic())
                if seconds <= 0:
                    raise timed_out(0, effects="none")
            if call.dry_run:
                return Result(metadata=metadata(call, _plan(call, handle, seconds)))
            bound.active += 1
            try:
                value = await limited(handle(call), seconds, strays)
            finally:
                bound.active -= 1
                if bound.retired:
                    self._release(bound)
            output, parts = finish(value)
            return Result(output, parts, None, metadata(call))

        return invoke

    async def _not_found(self, call: Call) -> Result:
        known = [s.name for s in self.list(call.caller)]
        hint = nearest(call.tool, known) or "; list the tools to see what there is"
        raise ToolNotFound(f"There is no tool {short(call.tool)!r}{hint}")

    def _retire(self, names: frozenset[str]) -> None:
        for name in names:
            bound = self._bound.pop(name, None)
            if bound is not None:
                bound.retired = True
                self._release(bound)

    def _release(self, bound: Bound) -> None:
        """Close the handle if its last call has left: a reload never cuts one off."""
        if bound.active or bound.handle is None:
            return
        closing = asyncio.get_running_loop().create_task(bound.handle.close())
        bound.handle = None
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _as_dict(arguments: object) -> Any:
    """What is not a mapping goes on as it is: the check says what is wrong with it."""
    if arguments is None:
        return {}
    return dict(arguments) if isinstance(arguments, Mapping) else arguments


def _plan(call: Call, handle: Handle, seconds: float) -> dict[str, Any]:
    """What would have happened, had it not been a dry run."""
    return {
        "tool": call.tool,
        "kind": call.spec.kind,
        "arguments": call.arguments,
        "effects": call.spec.effects,
        "tier": call.spec.tier,
        "timeout": seconds,
        **getattr(handle, "about", {}),
    }
