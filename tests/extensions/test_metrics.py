"""Metrics: counted once, whatever came of it, under names that nobody can make up."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from toolpost import (
    ApprovalRequired,
    Call,
    ConfigError,
    Executor,
    Limits,
    Registry,
    Result,
    Runtime,
    ToolSpec,
    Unavailable,
    tool,
)
from toolpost.contracts import Health, Lined, Walk
from toolpost.extensions.metrics import BOUNDS, EXPECTED, Expected, Metrics
from toolpost.extensions.rate import Rate
from toolpost.extensions.retry import Retry, RetryOptions
from toolpost.extensions.slots import Share, Slots
from toolpost.testing import sample_executor

pytestmark = pytest.mark.anyio
LIMIT = 30.0
_SAMPLE = re.compile(r'(toolpost_[a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')


def read(metrics: Metrics) -> dict[str, float]:
    """The samples, by name and labels as they are written; what is no sample is a failure."""
    text, samples = metrics.render(), {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# "):
            assert re.fullmatch(r"# (HELP|TYPE) toolpost_[a-z_]+ \S.*", line)
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        name = match[1] + ("{" + match[2] + "}" if match[2] else "")
        assert name not in samples
        samples[name] = float(match[3])
    return samples


async def test_calls_and_errors_are_counted_by_tool_and_code() -> None:
    metrics = Metrics()
    async with sample_executor(observers=[metrics]) as executor:
        for text in ("a", "b", "c"):
            assert (await executor.execute("echo", {"text": text})).success
        await executor.execute("echo", {"text": 5})
        await executor.execute("fail", {"message": "no"})
        await executor.execute("fail", {"message": "no"})
    seen = read(metrics)
    assert seen['toolpost_calls_total{tool="echo"}'] == 4
    assert seen['toolpost_calls_total{tool="fail"}'] == 2
    assert seen['toolpost_errors_total{tool="echo",code="VALIDATION_ERROR"}'] == 1
    assert seen['toolpost_errors_total{tool="fail",code="EXECUTION_ERROR"}'] == 2
    assert seen['toolpost_call_seconds_count{tool="echo"}'] == 4
    assert seen['toolpost_call_seconds_bucket{tool="echo",le="+Inf"}'] == 4
    assert seen['toolpost_call_seconds_sum{tool="echo"}'] > 0


async def test_a_cancelled_call_is_counted_and_a_running_one_shown() -> None:
    metrics = Metrics()
    async with sample_executor(observers=[metrics]) as executor:
        call = asyncio.ensure_future(executor.execute("hang"))
        async with asyncio.timeout(LIMIT):
            while read(metrics).get('toolpost_calls_running{tool="hang"}') != 1:
                await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    seen = read(metrics)
    assert seen['toolpost_errors_total{tool="hang",code="CANCELLED"}'] == 1
    assert seen['toolpost_calls_total{tool="hang"}'] == 1
    assert seen['toolpost_calls_running{tool="hang"}'] == 0


class Takes:
    """A backend of any kind, whose calls take as long as they are told to."""

    def bind(self, spec: ToolSpec, target: object | None) -> Takes:
        return self

    async def run(self, call: Call) -> float:
        seconds: float = call.arguments["seconds"]
        time.sleep(seconds)
        return seconds

    async def health(self) -> Health:
        return Health(True)

    async def close(self) -> None:
        """Nothing to close."""


@pytest.mark.req("FM-8")
async def test_calls_that_take_longer_than_their_kind_should_are_counted() -> None:
    schema = {"type": "object", "properties": {"seconds": {"type": "number"}}}
    quick, slow = (
        ToolSpec(name=name, description="It.", kind=name, input_schema=schema)
        for name in ("quick", "slow")
    )
    metrics = Metrics(latency={"quick": Expected(0.02, 0.1), "slow": Expected(60, 90)})
    backends = {"quick": Takes(), "slow": Takes()}
    tools = Registry([quick, slow])
    async with Executor(tools, observers=[metrics], backends=backends) as executor:
        for seconds in (0, 0.03, 0.03, 0.11):
            for name in ("quick", "slow"):
                assert (await executor.execute(name, {"seconds": seconds})).success
    seen = read(metrics)
    assert seen['toolpost_latency_breaches_total{tool="quick",limit="target"}'] >= 3
    assert seen['toolpost_latency_breaches_total{tool="quick",limit="max"}'] >= 1
    assert seen['toolpost_latency_breaches_total{tool="slow",limit="target"}'] == 0
    assert seen['toolpost_call_seconds_bucket{tool="quick",le="0.025"}'] <= 1
    assert seen['toolpost_call_seconds_bucket{tool="quick",le="60"}'] == 4


@pytest.mark.req("FM-8")
def test_every_kind_has_its_target_and_its_maximum() -> None:
    assert {kind: (one.target, one.max) for kind, one in EXPECTED.items()} == {
        "python": (0.5, 1.0),
        "http": (2.0, 3.0),
        "mcp": (1.0, 3.0),
        "shell": (1.0, 2.0),
    }
    assert {bound for one in EXPECTED.values() for bound in (one.target, one.max)} <= set(BOUNDS)


@pytest.mark.req("FM-8")
async def test_what_a_call_waited_for_is_not_held_against_its_tool() -> None:
    """For a slot, for its next attempt, in a queue until it gave up, for a yes that did not come;
    a tool that is slow itself is counted beside them.
    """
    failures = [Unavailable("Not now.", effects="none") for _ in range(2)]

    @tool(effects="read", limits=Limits(concurrency=1))
    async def queued() -> None:
        """Take a moment."""
        await asyncio.sleep(0.3)

    @tool(effects="read")
    async def flaky() -> None:
        """Work the third time."""
        if failures:
            raise failures.pop()

    @tool(effects="read")
    async def asks() -> None:
        """Never run."""

    @tool(effects="read")
    async def slow() -> None:
        """Take too long."""
        await asyncio.sleep(0.6)

    async def nobody(call: Call, call_next: Walk) -> Result:
        if call.tool == "asks":
            await asyncio.sleep(0.6)
            raise ApprovalRequired("Nobody has answered.")
        return await call_next(call)

    async def pause(seconds: float) -> None:
        await asyncio.sleep(0.3)

    metrics = Metrics(latency={"python": Expected(0.5, 10)})
    retry = Retry(RetryOptions(backoff=0.3), sleep=pause, chance=lambda: 1.0)
    tools = Registry([queued, flaky, asks, slow])
    guards = [nobody, retry, Slots()]
    async with Executor(tools, observers=[metrics], guards=guards) as executor:
        async with asyncio.timeout(LIMIT):
            results = await asyncio.gather(
                *(executor.execute("queued") for _ in range(3)),
                executor.execute("queued", timeout=0.6),
                *(executor.execute(name) for name in ("flaky", "asks", "slow")),
            )
    assert [r.error and r.error.code for r in results] == [
        *(None, None, None, "TIMEOUT"),
        *(None, "APPROVAL_REQUIRED", None),
    ]
    assert results[2].metadata.waited_ms >= 500
    assert results[2].metadata.duration_ms >= 800
    assert results[4].metadata.waited_ms >= 500
    seen = read(metrics)
    late = {
        name: seen[f'toolpost_latency_breaches_total{{tool="{name}",limit="target"}}']
        for name in ("queued", "flaky", "asks", "slow")
    }
    assert late == {"queued": 0, "flaky": 0, "asks": 0, "slow": 1}


async def test_names_that_no_tool_has_make_no_series() -> None:
    metrics, secret = Metrics(), "sk-live-1234567890"
    async with sample_executor(observers=[metrics]) as executor:
        for number in range(50):
            await executor.execute(f"{secret}-{number}", {secret: secret}, session_id=secret)
    assert secret not in metrics.render()
    assert read(metrics)['toolpost_errors_total{tool="unknown",code="NOT_FOUND"}'] == 50


async def test_beyond_so_many_tools_the_rest_are_one() -> None:
    def numbered(number: int) -> Any:
        @tool(name=f"t{number}", effects="read")
        async def one() -> None:
            """One of many."""

        return one

    metrics = Metrics(tools=3)
    registry = Registry([numbered(n) for n in range(10)])
    async with Executor(registry, observers=[metrics], guards=[Slots()]) as executor:
        for number in range(10):
            await executor.execute(f"t{number}")
        registry.replace(numbered(0))
        await executor.execute("t0")
        seen = read(metrics)
    calls = {name: times for name, times in seen.items() if "calls_total" in name}
    assert calls == {
        'toolpost_calls_total{tool="t0"}': 2,
        'toolpost_calls_total{tool="t1"}': 1,
        'toolpost_calls_total{tool="t2"}': 1,
        'toolpost_calls_total{tool="other"}': 7,
        'toolpost_calls_total{tool="unknown"}': 0,
    }
    assert sum("slots_running" in name for name in seen) == 3


async def test_other_rings_and_backends_tell_how_things_stand() -> None:
    metrics, go, begun = Metrics(), threading.Event(), threading.Event()

    @tool(effects="read", isolation="thread", timeout=LIMIT)
    def stuck() -> None:
        """Hold on to the thread."""
        begun.set()
        go.wait(LIMIT)

    guards = [Rate(), Retry(), Slots(groups={"stu*": Share()})]
    async with sample_executor(stuck, observers=[metrics], guards=guards) as executor:
        call = asyncio.ensure_future(executor.execute("stuck", session_id="s"))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        seen = read(metrics)
        assert seen['toolpost_slots_running{tool="stuck"}'] == 1
        assert seen['toolpost_slots_waiting{tool="stuck"}'] == 0
        assert seen['toolpost_group_slots_running{group="stu*"}'] == 1
        assert seen['toolpost_breaker_state{tool="stuck"}'] == 0
        assert seen["toolpost_rate_sessions"] == 1
        assert seen["toolpost_stranded_threads"] == 0
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert read(metrics)["toolpost_stranded_threads"] == 1
        go.set()


class Tells:
    name = "tells"

    def __init__(self, values: Any) -> None:
        self.values = values

    def bind(self, spec: ToolSpec, road: object) -> None:
        return None

    def gauges(self) -> Any:
        if isinstance(self.values, Exception):
            raise self.values
        return self.values


async def test_what_cannot_look_keeps_nobody_from_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Blind(Tells):
        async def survey(self) -> None:
            raise OSError("gone")

    caplog.set_level(logging.CRITICAL)
    metrics = Metrics()
    metrics.watch(Blind({"seen": ("", {"": 1})}))
    metrics.watch(Tells({"fine": ("", {"": 2})}))
    text = await metrics.scrape()
    assert "toolpost_seen 1" in text
    assert "toolpost_fine 2" in text


def test_the_road_shows_what_stands_along_it() -> None:
    executor = Executor(Registry([]))
    assert isinstance(executor, Lined)


async def test_a_label_cannot_break_out_of_its_line() -> None:
    metrics = Metrics()
    metrics.watch(Tells({"odd": ("of", {'a"b\\c\nd': 1.5})}))
    assert 'toolpost_odd{of="a\\"b\\\\c\\nd"} 1.5' in metrics.render().splitlines()


async def test_what_one_part_cannot_tell_keeps_nobody_from_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    metrics = Metrics()
    good, bad = Tells({"fine": ("", {"": 1})}), Tells(OSError("gone"))
    async with sample_executor(observers=[metrics, bad, good]) as executor:
        await executor.execute("echo", {"text": "a"})
    assert read(metrics)["toolpost_fine"] == 1


async def test_metrics_come_with_the_config(tmp_path: Path) -> None:
    file = tmp_path / "toolpost.toml"
    file.write_text(
        'observers = ["metrics"]\n[extensions.metrics]\ntools = 5\n'
        "latency = {own = {target = 0.1, max = 0.2}}\n"
    )
    async with Runtime.open(file) as tools:
        result: Result = await tools.execute("nobody")
        (metrics,) = tools.executor.observers
    assert isinstance(metrics, Metrics)
    assert result.metadata.trail[0] == "metrics"
    assert read(metrics)['toolpost_calls_total{tool="unknown"}'] == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tools = -1", "tools must be 0 or more"),
        ("latency = {http = {target = 1.0}}", "max"),
        ("buckets = []", "no setting 'buckets'"),
    ],
)
async def test_a_wrong_setting_is_refused_with_its_place(
    line: str, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "toolpost.toml"
    file.write_text(f'observers = ["metrics"]\n[extensions.metrics]\n{line}\n')
    with pytest.raises(ConfigError, match=says):
        Runtime.open(file)
