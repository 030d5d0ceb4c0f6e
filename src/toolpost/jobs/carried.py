"""Jobs that are run elsewhere: by those behind a backend that carries them.

Above: ``desk``. Below: the runtime's backends, by what the contracts say of them. One attempt of a
job is one parcel. Who has handed it over may have ended: then it is asked for what came of it, and
that is brought in over the part of the road that results walk, so that what it says is cleaned and
taken down like any other. It refuses to know by which means anything is carried.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from toolpost.call import Call, Progress
from toolpost.contracts import Carries, Health, Parcel
from toolpost.errors import CallError, ToolpostError
from toolpost.executor import Executor
from toolpost.failure import failure
from toolpost.jobs.values import Given, Job
from toolpost.registry import Entry, Registry
from toolpost.result import Output, Result
from toolpost.runtime import Runtime
from toolpost.spec import ToolSpec

_BROUGHT: Final = "brought"
_ON_THE_WAY_IN: Final = frozenset(
    ("access", "policy", "once.lookup", "rate", "approval", "cache", "once", "retry", "slots")
)
"""Guards that decide whether a call is made. That was decided."""


class Carriers:
    """Those that the backends of a runtime are."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def of(self, tool: str) -> str:
        """The kind whose backend carries a tool's jobs; mostly none, and they are run here."""
        spec = self._runtime.registry.get(tool)
        if spec is None:
            return ""
        try:
            backend = self._runtime.executor.backends[spec.kind]
        except ToolpostError:  # whoever calls it is told
            return ""
        return spec.kind if isinstance(backend, Carries) and backend.carries(spec) else ""

    async def collect(self, job: Job, hears: Callable[[Progress], None]) -> Result | None:
        """What came of it, however long that takes; ``None``: it has not begun, and never will."""
        try:
            return await self._carrier(job).collect(parcel(job).name, hears)
        except CallError as fault:
            if fault.retryable:
                raise
            return Result(error=failure(fault, tool=job.tool, call_id="", effects=job.effects))

    async def recall(self, job: Job) -> Result | None:
        """Stop it; ``None``: it has not begun, and never will."""
        return await self._carrier(job).recall(parcel(job).name)

    async def brought_in(self, job: Job, given: Given, result: Result) -> Result:
        """The result as its caller gets it: a call of its own for those who take calls down."""
        road = self._runtime.executor
        spec = self._runtime.registry.get(job.tool) or ToolSpec(
            name=job.tool, description="A tool that is gone.", kind=job.carrier, tier=0
        )
        spec = msgspec.structs.replace(
            spec,
            kind=_BROUGHT,
            effects=job.effects,
            requires_approval=False,
            fallback=None,
            input_schema={"type": "object"},
            output_schema=None,
            binding={},
        )
        part = Executor(
            Registry([Entry(spec, None)]),
            observers=road.observers,
            guards=[guard for guard in road.guards if guard.name not in _ON_THE_WAY_IN],
            backends={_BROUGHT: _Brought(result)},
        )
        return await part.execute(
            job.tool,
            json.loads(given.arguments),
            caller=job.caller,
            session_id=given.session_id,
            key=given.key,
        )

    def _carrier(self, job: Job) -> Carries:
        backend = self._runtime.executor.backends[job.carrier]
        assert isinstance(backend, Carries), "it was handed over to one"
        return backend


def parcel(job: Job, given: Given | None = None) -> Parcel:
    """The attempt that is being made."""
    return Parcel(f"{job.id}-{job.attempts}", None if given is None else given.timeout)


class _Brought:
    """The backend and the handle of what has run already."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def bind(self, spec: ToolSpec, target: object | None) -> _Brought:
        return self

    async def run(self, call: Call) -> Any:
        result = self._result
        for warning in result.metadata.warnings:
            call.warn(warning)
        result.raise_for_error()
        return Output(result.output, result.parts) if result.parts else result.output

    async def health(self) -> Health:
        return Health(True)

    async def close(self) -> None:
        """There is nothing open."""
