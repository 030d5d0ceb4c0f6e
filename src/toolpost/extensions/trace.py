"""Trace: a span for every call, by OpenTelemetry's conventions for generative AI.

An observer. The span is a child of the trace that came with the call (``traceparent`` in its
metadata) or else of the one that is current; while it is open it is the current one, and backends
send it along (``traceparent.outgoing``). With no SDK configured nothing would record it: then the
ring is not there at all. Configure the SDK before the executor is made.

A span carries what the spec says and how the call ended, nothing of what the caller sent or got.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from opentelemetry.context import Context
from opentelemetry.trace import (
    NoOpTracerProvider,
    ProxyTracerProvider,
    SpanKind,
    StatusCode,
    Tracer,
    TracerProvider,
    get_tracer_provider,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from toolpost.call import Call
from toolpost.contracts import Ring, Road, Surroundings, Walk
from toolpost.options import Options, options_from
from toolpost.result import Result
from toolpost.spec import ToolSpec
from toolpost.traceparent import incoming, inside

_W3C: Final = TraceContextTextMapPropagator()
_TYPES: Final = {"python": "function", "shell": "function"}


class Trace:
    """The observer. ``provider``: whose spans; without one, that of the process."""

    name = "trace"

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        options_from(options, Options, "extension trace")
        return cls()

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
        provider = self._provider or get_tracer_provider()
        if isinstance(provider, NoOpTracerProvider | ProxyTracerProvider):
            return None
        return _spanning(spec, provider.get_tracer("toolpost"))


def _spanning(spec: ToolSpec, tracer: Tracer) -> Ring:
    name = f"execute_tool {spec.name}"
    known: dict[str, str | int] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": spec.name,
        "gen_ai.tool.type": _TYPES.get(spec.kind, "extension"),
        "gen_ai.tool.description": spec.description,
        "toolpost.tool.kind": spec.kind,
        "toolpost.tool.tier": spec.tier,
    }

    async def ring(call: Call, call_next: Walk) -> Result:
        with tracer.start_as_current_span(
            name,
            context=_parent(call),
            kind=SpanKind.INTERNAL,
            attributes={**known, "gen_ai.tool.call.id": call.call_id},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            headers: dict[str, str] = {}
            _W3C.inject(headers)
            before = inside.set(headers)
            code = "CANCELLED"  # unless it comes back
            try:
                result = await call_next(call)
                code = "" if result.error is None else result.error.code
                span.set_attribute("toolpost.attempts", result.metadata.attempts)
                return result
            finally:
                inside.reset(before)
                if code:
                    span.set_attribute("error.type", code)
                    span.set_status(StatusCode.ERROR, code)

    return ring


def _parent(call: Call) -> Context | None:
    """None: the current one."""
    came = incoming(call)
    return _W3C.extract(came) if came else None
