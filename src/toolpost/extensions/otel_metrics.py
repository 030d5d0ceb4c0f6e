"""OpenTelemetry metrics: how many calls each tool had, how they ended, and how long they took.

An observer for programs that send their metrics through the OpenTelemetry SDK; ``metrics.py``
counts for Prometheus, and ``trace.py`` makes spans. With no SDK configured nothing would record a
measurement: then the observer adds nothing to a call. Configure the SDK before the executor is
made.

A measurement carries the name and kind of the tool and the code of an error. Nothing that a caller
sends becomes an attribute: names that no tool has are all ``unknown``.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any, Final, Self

from opentelemetry.metrics import MeterProvider, get_meter_provider

from toolpost.call import Call
from toolpost.contracts import Road, Surroundings, Watch
from toolpost.extensions.metrics import BOUNDS
from toolpost.options import Options, options_from
from toolpost.result import Result
from toolpost.spec import ToolSpec

CALLS: Final = "toolpost.calls"
DURATION: Final = "toolpost.call.duration"
RUNNING: Final = "toolpost.calls.running"
_API: Final = "opentelemetry.metrics"
"""Providers of the API itself record nothing; those of an SDK are elsewhere."""


class OtelMetrics:
    """The observer. ``provider``: who records; without one, the provider of the process."""

    name = "otel_metrics"

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._provider = provider
        self._instruments: _Instruments | None = None

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        options_from(options, Options, "extension otel_metrics")
        return cls()

    def bind(self, spec: ToolSpec, road: Road) -> Watch | None:
        if self._instruments is None:
            provider = self._provider or get_meter_provider()
            if type(provider).__module__.startswith(_API):
                return None
            self._instruments = _Instruments(provider)
        return _measuring(self._instruments, spec)


class _Instruments:
    """Made once: all tools share them, and differ in their attributes."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("toolpost")
        self.calls = meter.create_counter(
            CALLS, unit="{call}", description="Calls that have ended, whatever came of them."
        )
        self.duration = meter.create_histogram(
            DURATION,
            unit="s",
            description="How long callers waited for the result.",
            explicit_bucket_boundaries_advisory=BOUNDS,
        )
        self.running = meter.create_up_down_counter(
            RUNNING, unit="{call}", description="Calls that have begun and not ended."
        )


def _measuring(instruments: _Instruments, spec: ToolSpec) -> Watch:
    known = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": spec.name,
        "toolpost.tool.kind": spec.kind,
    }

    def begun(call: Call) -> None:
        instruments.running.add(1, known)

    def ended(call: Call, result: Result | None, _: None) -> None:
        instruments.running.add(-1, known)
        if result is None:
            seconds, code = monotonic() - call.started, "CANCELLED"
        else:
            seconds = result.metadata.duration_ms / 1000
            code = "" if result.error is None else result.error.code
        about = {**known, "error.type": code} if code else known
        instruments.calls.add(1, about)
        instruments.duration.record(seconds, about)

    return Watch(after=ended, before=begun)
