"""Trace: a span for every call, in the trace of whoever made it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolpost import Call, ConfigError, Executor, Registry, tool
from toolpost.extensions.trace import Trace
from toolpost.testing import sample_executor
from toolpost.traceparent import outgoing

pytestmark = pytest.mark.anyio
LIMIT = 30.0
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans:
    def __init__(self) -> None:
        self.kept = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return tuple(self.kept.get_finished_spans())

    def only(self) -> ReadableSpan:
        (span,) = self.all
        return span


@pytest.fixture
def spans() -> Iterator[Spans]:
    spans = Spans()
    yield spans
    spans.provider.shutdown()


async def test_a_call_is_a_span_by_the_conventions(spans: Spans) -> None:
    async with sample_executor(observers=[Trace(spans.provider)]) as executor:
        result = await executor.execute("echo", {"text": "a"})
    span = spans.only()
    assert span.name == "execute_tool echo"
    assert span.kind is trace.SpanKind.INTERNAL
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Give back the text.",
        "gen_ai.tool.call.id": result.metadata.call_id,
        "toolpost.tool.kind": "python",
        "toolpost.tool.tier": 0,
        "toolpost.attempts": 1,
    }
    assert span.status.is_unset
    assert span.parent is None


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("fail", {"message": "no"}, "EXECUTION_ERROR"),
        ("echo", {"text": 5}, "VALIDATION_ERROR"),
        ("nobody", {}, "NOT_FOUND"),
    ],
)
async def test_a_failed_call_says_so(
    name: str, arguments: dict[str, Any], code: str, spans: Spans
) -> None:
    async with sample_executor(observers=[Trace(spans.provider)]) as executor:
        await executor.execute(name, arguments)
    span = spans.only()
    assert (span.attributes or {})["error.type"] == code
    assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, code)


async def test_a_cancelled_call_ends_its_span(spans: Spans) -> None:
    async with sample_executor(observers=[Trace(spans.provider)]) as executor:
        call = asyncio.ensure_future(executor.execute("hang"))
        while not executor.bound("hang").active:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(call, LIMIT)
    assert (spans.only().attributes or {})["error.type"] == "CANCELLED"
    assert spans.only().events == ()


async def test_a_secret_in_a_call_is_in_no_span(spans: Spans) -> None:
    secret = "sk-live-1234567890"
    async with sample_executor(observers=[Trace(spans.provider)]) as executor:
        await executor.execute("echo", {"text": secret}, session_id=secret, key=secret)
        await executor.execute("fail", {"message": secret}, metadata={"traceparent": secret})
        await executor.execute(secret, {secret: secret})
    assert len(spans.all) == 3
    assert secret not in "".join(span.to_json() for span in spans.all)


async def test_the_span_belongs_to_the_trace_that_came_with_the_call(spans: Spans) -> None:
    sent: list[dict[str, str]] = []

    @tool(effects="read")
    async def asks(call: Call) -> None:
        """Ask another service."""
        sent.append(dict(outgoing(call)))

    came = {"traceparent": PARENT, "tracestate": "vendor=1"}
    async with Executor(Registry([asks]), observers=[Trace(spans.provider)]) as executor:
        assert (await executor.execute("asks", metadata=came)).success
        assert (await executor.execute("asks")).success
    first, second = spans.all
    assert first.context is not None
    assert first.parent is not None
    assert f"{first.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{first.parent.span_id:016x}" == PARENT.split("-")[2]
    mine = f"00-{first.context.trace_id:032x}-{first.context.span_id:016x}-01"
    assert sent[0] == {"traceparent": mine, "tracestate": "vendor=1"}
    assert second.context is not None
    assert second.context.trace_id != first.context.trace_id
    assert sent[1]["traceparent"].split("-")[2] == f"{second.context.span_id:016x}"


async def test_a_call_inside_a_span_of_the_program_is_its_child(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("program")
    async with sample_executor(observers=[Trace(spans.provider)]) as executor:
        with tracer.start_as_current_span("agent") as agent:
            await executor.execute("echo", {"text": "a"})
    child = spans.all[0]
    assert child.parent is not None
    assert child.parent.span_id == agent.get_span_context().span_id


async def test_calls_at_once_keep_their_traces_apart(spans: Spans) -> None:
    @tool(effects="read")
    async def asks(call: Call) -> str:
        """Ask another service."""
        await asyncio.sleep(0)
        return outgoing(call)["traceparent"].split("-")[1]

    ids = [f"{n:032x}" for n in range(1, 21)]
    async with Executor(Registry([asks]), observers=[Trace(spans.provider)]) as executor:
        results = await asyncio.gather(
            *(
                executor.execute("asks", metadata={"traceparent": f"00-{one}-{'1' * 16}-01"})
                for one in ids
            )
        )
    assert [r.output for r in results] == ids


async def test_where_nothing_records_there_is_no_ring() -> None:
    for observer in (Trace(), Trace(trace.NoOpTracerProvider())):
        async with sample_executor(observers=[observer]) as executor:
            result = await executor.execute("echo", {"text": "a"})
            assert executor.bound("echo").rings == ()
        assert not result.metadata.trail


async def test_it_has_no_settings() -> None:
    around: Any = None
    assert Trace.from_config({}, around).name == "trace"
    with pytest.raises(ConfigError, match="no setting"):
        Trace.from_config({"endpoint": "x"}, around)


def test_without_its_extra_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from toolpost.plugins import load\n"
        "try: load('extensions', 'trace')\n"
        "except Exception as exc: print(exc)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert 'pip install "toolpost[otel]"' in done.stdout
