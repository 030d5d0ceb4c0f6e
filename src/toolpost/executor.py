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
from functools import partial
from time import monotonic
from typing import Any, Self

from toolpost import chain
from toolpost.bound import Bound, closed
from toolpost.call import NOTHING, OWNER, Call, Caller, Progress, new_call_id
from toolpost.contracts import Backend, Closes, Extension, Health, Ring, Sees, Services
from toolpost.environ import remembered, secret
from toolpost.errors import CallError, InvalidArguments, Unavailable
from toolpost.given import Misgiven, as_arguments, as_asked, as_deadline, as_name
from toolpost.invoke import invoking
from toolpost.plugins import Backends
from toolpost.registry import Registry, as_registry, no_such_tool
from toolpost.result import Metadata, Result
from toolpost.spec import ToolSpec
from toolpost.steps import having_the_last_word, last_words, refusing

_UNKNOWN = ToolSpec(name="unknown", description="A name that no tool has.", kind="unknown", tier=0)


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
        secret: Callable[[str], str | None] = secret,
    ) -> None:
        self.registry = as_registry(registry)
        self.observers = tuple(map(chain.as_extension, observers))
        self.guards = tuple(map(chain.as_extension, guards))
        services = Services(provide or {}, remembered(secret), settings or {})
        self.backends = Backends(backends or {}, services)
        self.strays: set[asyncio.Task[Any]] = set()
        self._judges = [e for e in (*self.observers, *self.guards) if isinstance(e, Sees)]
        self._last = having_the_last_word((*self.observers, *self.guards))
        self._bound: dict[str, Bound] = {}
        self._leaving: set[Bound] = set()
        self._unknown, walk = Bound(_UNKNOWN), refusing(self._not_found)
        self._unknown.walk, _ = chain.observed(_UNKNOWN, walk, self.observers, self)
        self._deaf: Callable[[], None] | None = registry.listen(self._retire)

    async def execute(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        # To be given by name; to insist on it would cost a twentieth of a call.
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
        call_id: str | None = None,
    ) -> Result:
        """Run one tool. Whatever goes wrong is in the result; only a cancellation is raised."""
        started = monotonic()
        try:
            bound = self._bound[name]
        except (KeyError, TypeError):
            bound = self.bound(name := as_name(name))
        if caller is not OWNER or session_id is not None or key is not None:
            caller, session_id, key = as_asked(caller, session_id, key)
            if caller.tools is not None and not chain.may_know(caller, bound.spec):
                bound = self._unknown
        call = Call(
            name, bound.spec,
            arguments.copy() if type(arguments) is dict else as_arguments(arguments),
            caller, call_id := call_id or new_call_id(), Metadata(call_id), session_id,
            None if timeout is None else as_deadline(started, timeout),
            working_dir, dry_run,
            phase and (phase if bound.spec.context_aware else None),
            metadata or NOTHING, key, grant, on_progress, started, None, None, bound.ask,
        )  # fmt: skip
        bound.active += 1
        try:
            result = await bound.walk(call)
        finally:
            bound.active -= 1
            if bound.retired:
                bound.release()
        if not result.metadata.duration_ms:  # a ring has made it
            result.metadata.duration_ms = (monotonic() - started) * 1000
        about = call.about
        if (result.error is not None or about.warnings or about.size) and self._last:
            return await last_words(call, result, self._last)
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
            caller=call.caller, session_id=call.session_id,
            timeout=None if call.deadline is None else call.deadline - monotonic(),
            working_dir=call.working_dir, dry_run=call.dry_run, phase=call.phase,
            metadata=call.metadata, key=call.key, grant=grant, on_progress=call.on_progress,
        )  # fmt: skip

    def list(self, caller: Caller = OWNER) -> tuple[ToolSpec, ...]:
        """The tools that this caller may know of."""
        specs, judges = self.registry.list(), self._judges
        every = not judges and caller.tools is None
        return specs if every else tuple(s for s in specs if chain.may_know(caller, s, judges))

    def bound(self, name: str) -> Bound:
        """The tool as it would be called now: its rings in order, its handle."""
        return self._bound.get(name) or self._bind(name)

    async def health(self, name: str) -> Health:
        return await self.bound(name).health()

    async def close(self) -> None:
        """Close every handle, backend and extension; calls still inside are left to their limit."""
        if self._deaf is None:
            return
        self._deaf()
        self._deaf = None
        self._retire(frozenset(self._bound))
        for task in self.strays:
            task.cancel()
        ends = [bound.release() for bound in tuple(self._leaving)]
        await asyncio.gather(*(end for end in ends if end is not None))
        await closed(self.backends, "a backend")
        for extension in (*self.guards, *self.observers):
            if isinstance(extension, Closes):
                await closed(extension, extension.name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _bind(self, name: str) -> Bound:
        entry = self.registry.entry(name)
        if entry is None:
            return self._unknown
        spec, bound = entry.spec, Bound(entry.spec, self._leaving)
        try:
            if self._deaf is None:
                raise Unavailable("The executor is closed.", retryable=False, remedy="stop")
            bound.handle = self.backends[spec.kind].bind(*entry)
            invoke = partial(invoking, spec, bound.handle, self.strays)
            walk, guards, brief = chain.guarded(spec, invoke, self.guards, self)
            bound.walk, observers = chain.observed(spec, walk, self.observers, self, brief=brief)
        except Exception as exc:  # noqa: BLE001 - fail closed: without its chain it does not run
            bound.refuse(exc)
            bound.walk = chain.refused(spec, exc, self.observers, self)
        else:
            bound.rings = observers + guards
            self._bound[name] = bound
        bound.walk = chain.hidden(spec, bound.walk, self._judges, self._unknown.walk)
        if self.registry.entry(name) != entry:  # another thread has changed it meanwhile
            self._retire(frozenset((name,)))
        return bound

    def _not_found(self, call: Call) -> CallError:
        if isinstance(call.caller, Misgiven):
            return InvalidArguments(call.caller.fault)
        return no_such_tool(call.tool, [spec.name for spec in self.list(call.caller)])

    def _retire(self, names: frozenset[str]) -> None:
        for name in names:
            if (bound := self._bound.pop(name, None)) is not None:
                bound.retire()
