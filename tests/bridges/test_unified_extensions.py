"""The unified contract: extensions stand around every call, in the order of their priorities."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from toolpost import Caller, ConfigError, Denied, RateLimited, Runtime, ToolFailed
from toolpost.approvals import Decision
from toolpost.bridges.unified import (
    ApprovalExtension,
    ApprovalMode,
    AuditExtension,
    AuthExtension,
    Extension,
    ExtensionManager,
    ExtensionPriority,
    Grant,
    LoggingExtension,
    MetricsExtension,
    RateLimitExtension,
    Result,
    ToolContext,
    ToolExecutor,
    ToolSpec,
    ToolSpecRegistry,
    UnifiedToolExecutor,
    backends,
    tools,
)
from toolpost.config import Config
from toolpost.extensions.otel_metrics import OtelMetrics
from toolpost.stores.sqlite import SqliteStore
from toolpost.testing import check_extension

pytestmark = pytest.mark.anyio
FENCE = 60
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Echo(ToolExecutor):
    """Gives back its arguments; of some numbers, something else."""

    tool_type = "echo"

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.inside = asyncio.Event()

    async def execute(self, spec: ToolSpec, args: dict[str, Any], context: ToolContext) -> Any:
        self.ran.append(args["n"])
        if args["n"] == 13:
            raise ToolFailed("Thirteen brings bad luck.")
        if args["n"] == 99:
            self.inside.set()
            await asyncio.sleep(FENCE)
        return args["n"]


def echo(name: str = "echo", **fields: Any) -> ToolSpec:
    return ToolSpec(name=name, description="Echo.", tool_type="echo", input_schema=NUMBER, **fields)


def made(
    *extensions: Extension, specs: tuple[ToolSpec, ...] = (echo(),)
) -> tuple[UnifiedToolExecutor, Echo]:
    runs = Echo()
    executor = UnifiedToolExecutor(
        spec_registry=ToolSpecRegistry(specs=specs),
        extension_manager=ExtensionManager(extensions),
        executors=[runs],
    )
    return executor, runs


class Noting(Extension):
    """Writes down what it is told, and does what it was given to do."""

    def __init__(
        self,
        name: str,
        heard: list[Any],
        *,
        priority: int | None = None,
        before: Callable[[ToolContext], Any] = lambda ctx: None,
        after: Callable[[ToolContext, Result], Any] = lambda ctx, result: result,
    ) -> None:
        super().__init__(name=name, priority=priority)
        self.heard, self.does_before, self.does_after = heard, before, after

    async def before_execute(self, ctx: ToolContext) -> Any:
        self.heard.append((self.name, "before", ctx.args["n"]))
        return self.does_before(ctx)

    async def after_execute(self, ctx: ToolContext, result: Result) -> Result:
        self.heard.append(
            (self.name, "after", result.error.code if result.error else result.output)
        )
        return self.does_after(ctx, result)


def refuse(with_: BaseException) -> Callable[..., Any]:
    def hook(*_: Any) -> Any:
        raise with_

    return hook


def code(result: Result) -> str | None:
    return None if result.error is None else result.error.code


# --- the order ---------------------------------------------------------------------------------


@pytest.mark.req("UX-4")
async def test_before_hooks_run_by_priority_and_after_hooks_in_reverse() -> None:
    heard: list[Any] = []
    executor, runs = made(
        Noting("low", heard, priority=ExtensionPriority.LOW),
        Noting("first", heard),
        Noting("highest", heard, priority=ExtensionPriority.HIGHEST),
        Noting("second", heard, priority=ExtensionPriority.NORMAL),
        Noting("between", heard, priority=60),
    )
    order = ["highest", "between", "first", "second", "low"]
    async with executor:
        assert (await executor.execute("echo", {"n": 1})).output == 1
    assert [one.name for one in executor.extension_manager.extensions] == order
    assert heard == [
        *((name, "before", 1) for name in order),
        *((name, "after", 1) for name in reversed(order)),
    ]
    assert runs.ran == [1]


@pytest.mark.req("UX-4")
async def test_after_hooks_see_failures_and_those_within_a_refusal_see_nothing() -> None:
    heard: list[Any] = []
    executor, runs = made(
        Noting("outer", heard, priority=ExtensionPriority.HIGH),
        Noting("refuses", heard, before=lambda ctx: (ctx.args["n"] == 7 and refuse(Denied("No."))())
               or None),
        Noting("inner", heard, priority=ExtensionPriority.LOW),
    )  # fmt: skip
    async with executor:
        assert code(await executor.execute("echo", {"n": 13})) == "EXECUTION_ERROR"
        assert [one for one in heard if one[1] == "after"] == [
            (name, "after", "EXECUTION_ERROR") for name in ("inner", "refuses", "outer")
        ]
        heard.clear()
        assert code(await executor.execute("echo", {"n": 7})) == "POLICY_DENIED"
        assert heard == [
            ("outer", "before", 7), ("refuses", "before", 7), ("outer", "after", "POLICY_DENIED"),
        ]  # fmt: skip
    assert runs.ran == [13]


# --- what a hook may do ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raised", "expected", "effects"),
    [
        (Denied("Not today."), "POLICY_DENIED", "none"),
        (RateLimited("Slowly."), "RATE_LIMITED", "none"),
        (PermissionError("secret reason"), "POLICY_DENIED", "none"),
        (ConnectionRefusedError("secret host"), "UNAVAILABLE", "none"),
        (ValueError("secret value"), "INTERNAL_ERROR", "none"),
    ],
)
@pytest.mark.req("UX-4")
async def test_a_before_hook_that_raises_keeps_the_tool_from_running(
    raised: Exception, expected: str, effects: str
) -> None:
    executor, runs = made(Noting("guard", [], before=refuse(raised)))
    async with executor:
        result = await executor.execute("echo", {"n": 1})
    assert result.error is not None
    assert (result.error.code, result.error.effects) == (expected, effects)
    assert "secret" not in result.error.message
    assert runs.ran == []


@pytest.mark.parametrize("said", [False, True, {"n": 2}, "no"])
async def test_a_before_hook_that_answers_instead_of_raising_is_broken(said: object) -> None:
    executor, runs = made(Noting("guard", [], before=lambda ctx: said))
    async with executor:
        assert code(await executor.execute("echo", {"n": 1})) == "INTERNAL_ERROR"
    assert runs.ran == []
    executor, runs = made(Noting("guard", [], before=lambda ctx: ctx))
    async with executor:
        assert (await executor.execute("echo", {"n": 1})).success


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.req("UX-4")
async def test_a_hook_may_change_the_arguments_which_are_checked_again(in_place: bool) -> None:
    def change(ctx: ToolContext) -> None:
        new = {1: 10, 2: True, 3: "three", 4: 4.5}.get(ctx.args["n"], ctx.args["n"])
        if in_place:
            ctx.args["n"] = new
        else:
            ctx.args = {"n": new}

    heard: list[Any] = []
    executor, runs = made(
        Noting("changes", heard, before=change, priority=ExtensionPriority.HIGH),
        Noting("inner", heard),
    )
    given = {"n": 1}
    async with executor:
        result = await executor.execute("echo", given)
        assert (result.output, given) == (10, {"n": 1})
        assert "changes: changed the arguments" in result.metadata.trail
        same = await executor.execute("echo", {"n": 5})
        assert "changes: changed the arguments" not in same.metadata.trail
        for n in (2, 3, 4):  # 1 == True to Python, and not to a schema
            assert code(await executor.execute("echo", {"n": n})) == "VALIDATION_ERROR"
    assert runs.ran == [10, 5]
    assert [one[2] for one in heard if one[:2] == ("inner", "before")] == [10, 5]


async def test_arguments_that_a_person_approved_stay_as_they_are() -> None:
    asked: list[Any] = []

    async def yes(request: Any) -> bool:
        asked.append(request.exact())
        return True

    def change(ctx: ToolContext) -> None:
        ctx.args["n"] += 1

    for priority, outcome in ((ExtensionPriority.LOW, "POLICY_DENIED"), (90, None)):
        asked.clear()
        approval = ApprovalExtension(ApprovalMode.ALWAYS, ask=yes)
        executor, runs = made(approval, Noting("changes", [], before=change, priority=priority))
        async with executor:
            assert code(await executor.execute("echo", {"n": 1})) == outcome
        assert runs.ran == ([] if outcome else [2])
        assert len(asked) == 1


@pytest.mark.req("UX-4")
async def test_an_after_hook_has_the_last_word_on_the_result() -> None:
    executor, _ = made(Noting("doubles", [], after=lambda ctx, result: Result(result.output * 2)))
    async with executor:
        result = await executor.execute("echo", {"n": 4})
        assert (result.output, bool(result.metadata.call_id)) == (8, True)


@pytest.mark.parametrize("after", [lambda ctx, result: None, refuse(ValueError("secret"))])
async def test_an_after_hook_that_breaks_leaves_no_result(after: Callable[..., Any]) -> None:
    executor, runs = made(Noting("redacts", [], after=after))
    async with executor:
        for n, effects in ((4, "done"), (13, "unknown")):
            result = await executor.execute("echo", {"n": n})
            assert result.error is not None
            assert (result.output, result.error.code) == (None, "INTERNAL_ERROR")
            assert result.error.effects == effects
            assert "secret" not in result.error.message
    assert runs.ran == [4, 13]


async def test_a_refusal_after_the_run_does_not_say_that_nothing_was_done() -> None:
    executor, _ = made(Noting("withholds", [], after=refuse(Denied("Not for you."))))
    async with executor:
        result = await executor.execute("echo", {"n": 4})
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("POLICY_DENIED", "unknown")


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_cancelled_call_is_told_to_after_hooks_and_stays_cancelled(breaks: bool) -> None:
    heard: list[Any] = []
    after = refuse(ValueError("also broken")) if breaks else lambda ctx, result: result
    executor, runs = made(Noting("notes", heard, after=after))
    async with executor, asyncio.timeout(FENCE):
        task = asyncio.create_task(executor.execute("echo", {"n": 99}))
        await runs.inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert heard == [("notes", "before", 99), ("notes", "after", "CANCELLED")]


async def test_hooks_may_be_plain_functions() -> None:
    class Plain(Extension):
        def before_execute(self, ctx: ToolContext) -> None:  # type: ignore[override]
            ctx.args["n"] = 2

        def after_execute(self, ctx: ToolContext, result: Result) -> Result:  # type: ignore[override]
            return Result(result.output + 1)

    executor, _ = made(Plain())
    async with executor:
        assert (await executor.execute("echo", {"n": 1})).output == 3


async def test_a_hook_knows_the_call_and_shares_a_state_with_the_others() -> None:
    seen: list[ToolContext] = []

    def before(ctx: ToolContext) -> None:
        seen.append(ctx)
        ctx.state.setdefault("ids", []).append(ctx.call_id)

    def after(ctx: ToolContext, result: Result) -> Result:
        return Result([*ctx.state["ids"], result.output])

    context = ToolContext(session_id="s", user_id="ann", roles=["dev"], metadata={"k": 1})
    executor, _ = made(
        Noting("outer", [], priority=ExtensionPriority.HIGH, before=before, after=after),
        Noting("inner", [], before=before),
    )
    async with executor:
        results = await asyncio.gather(
            *(executor.execute("echo", {"n": n}, context) for n in range(10))
        )
    for n, result in enumerate(results):
        assert result.output == [result.metadata.call_id] * 2 + [n]
    first = seen[0]
    assert first.spec is not None
    assert (first.tool_name, first.spec.name, first.args) == ("echo", "echo", {"n": 0})
    assert (first.session_id, first.user_id, first.roles) == ("s", "ann", frozenset(["dev"]))
    assert (first.metadata, first.owner, context.args) == ({"k": 1}, False, {})
    assert executor.extension_manager._states == {}


async def test_the_ring_of_an_extension_is_a_well_behaved_one() -> None:
    class Quiet(Extension):
        async def before_execute(self, ctx: ToolContext) -> None: ...

    (ring,) = ExtensionManager([Quiet()]).rings().guards
    (await check_extension(ring)).raise_if_failed()


# --- the manager -------------------------------------------------------------------------------


async def test_what_would_not_count_is_not_registered() -> None:
    class Misspelt(Extension):
        async def before_exec(self, ctx: ToolContext) -> None: ...

    class Odd(Extension):
        priority = "HIGH"  # type: ignore[assignment]

        async def before_execute(self, ctx: ToolContext) -> None: ...

    manager = ExtensionManager([LoggingExtension()])
    for wrong, why in (
        (Misspelt(), "does nothing: write before_execute or after_execute"),
        (Odd(), "the priority of Odd is an ExtensionPriority"),
        (LoggingExtension, "register an instance, not the class"),
        (object(), "object is no Extension"),
        (LoggingExtension(), "there is an extension 'LoggingExtension' already"),
    ):
        with pytest.raises(ConfigError, match=why):
            manager.register(wrong)  # type: ignore[arg-type]
    manager.register(LoggingExtension(name="second"))
    manager.unregister("second")
    with pytest.raises(ConfigError, match="did you mean 'LoggingExtension'"):
        manager.get("LogingExtension")
    executor = UnifiedToolExecutor(ToolSpecRegistry(specs=[echo()]), manager, executors=[Echo()])
    manager.register(MetricsExtension())  # before the first call it is early enough
    async with executor:
        assert (await executor.execute("echo", {"n": 1})).success
        for late in (lambda: manager.register(AuthExtension()), lambda: manager.unregister("x")):
            with pytest.raises(ConfigError, match="before the first call"):
                late()


# --- those that come with it -------------------------------------------------------------------


@pytest.mark.req("UX-4")
async def test_who_may_call_what_goes_by_roles() -> None:
    executor, runs = made(
        AuthExtension(roles={"operator": Grant(call=("*",), tier=3)}),
        specs=(
            echo(),
            echo("payroll", metadata={"permissions": ["clerk"]}),
            echo("wipe", metadata={"is_dangerous": True}),
        ),
    )
    nobody, ann, clerk, operator, agent, owner = (
        ToolContext(),
        ToolContext(user_id="ann"),
        ToolContext(user_id="cy", roles=["clerk"]),
        ToolContext(user_id="op", roles=("operator",)),
        ToolContext(agent_id="bot"),
        ToolContext(owner=True),
    )
    allowed = {
        "echo": [nobody, ann, clerk, operator, agent, owner],
        "payroll": [clerk, owner],
        "wipe": [operator, owner],
    }
    async with executor:
        for tool, may in allowed.items():
            for context in (nobody, ann, clerk, operator, agent, owner):
                result = await executor.execute(tool, {"n": 1}, context)
                assert code(result) == (None if context in may else "UNAUTHORIZED"), (tool, context)
        assert len(runs.ran) == sum(map(len, allowed.values()))
        for slip in (ToolContext(roles="operator"), ToolContext(user_id=7)):  # type: ignore[arg-type]
            assert code(await executor.execute("wipe", {"n": 1}, slip)) == "VALIDATION_ERROR"
    executor, _ = made(specs=(echo("wipe", metadata={"is_dangerous": True}),))
    async with executor:  # where nobody has to say who he is, it is whoever runs the process
        assert (await executor.execute("wipe", {"n": 1})).success


async def test_an_agent_does_not_get_the_rights_of_a_user_of_its_name() -> None:
    nothing, everything = Grant(call=(), see=()), Grant(call=("*",), tier=4)
    executor, _ = made(AuthExtension(default=nothing, users={"ann": everything}))
    async with executor:
        assert (await executor.execute("echo", {"n": 1}, ToolContext(user_id="ann"))).success
        for other in (ToolContext(agent_id="ann"), ToolContext(roles=["ann"]), ToolContext()):
            assert code(await executor.execute("echo", {"n": 1}, other)) == "NOT_FOUND"


@pytest.mark.parametrize(
    ("mode", "asked"),
    [
        (ApprovalMode.NEVER, []),
        (ApprovalMode.POLICY, ["careful"]),
        (ApprovalMode.UNSAFE_ONLY, ["careful", "wipe"]),
        (ApprovalMode.ALWAYS, ["echo", "careful", "wipe"]),
    ],
)
@pytest.mark.req("UX-4")
async def test_the_mode_says_which_calls_a_person_is_asked_about(
    mode: ApprovalMode, asked: list[str]
) -> None:
    executor, runs = made(
        ApprovalExtension(approval_mode=mode),
        specs=(
            echo(),
            echo("careful", metadata={"requires_approval": True}),
            echo("wipe", metadata={"is_dangerous": True}),
        ),
    )
    async with executor:
        for tool in ("echo", "careful", "wipe"):
            result = await executor.execute(tool, {"n": 1})
            assert code(result) == ("APPROVAL_REQUIRED" if tool in asked else None)
    assert len(runs.ran) == 3 - len(asked)


@pytest.mark.req("UX-4")
async def test_an_approved_call_is_resumed_by_its_handle_and_both_are_on_record(
    tmp_path: Path,
) -> None:
    approval, audit = ApprovalExtension(), AuditExtension(tmp_path / "state")
    dangerous = echo("wipe", metadata={"is_dangerous": True})
    executor, runs = made(approval, audit, specs=(dangerous,))
    async with executor:
        first = await executor.execute("wipe", {"n": 1}, ToolContext(session_id="s"))
        assert first.error is not None
        assert first.error.details is not None
        (request,) = await approval.approvals.waiting()
        person = Caller("bea", user="bea", owner=True)
        await approval.approvals.decide(
            request.handle, Decision(approve=True), by=person, channel="callback", seen=request.seen
        )
        again = ToolContext(session_id="s", approval=request.handle)
        other = await executor.execute("wipe", {"n": 2}, again)
        assert code(other) is not None
        assert (await executor.execute("wipe", {"n": 1}, again)).output == 1
        assert code(await executor.execute("wipe", {"n": 1}, again)) is not None
    assert runs.ran == [1]
    store = SqliteStore(tmp_path / "state" / "store.db")
    await store.open()
    try:
        lines = b"".join(line.body for line in await store.read())
    finally:
        await store.close()
    for word in (b"APPROVED", b"APPROVAL_REQUIRED", b"CONFLICT"):
        assert word in lines


@pytest.mark.req("UX-4")
async def test_logging_metrics_and_limits_are_ours_and_see_refused_calls() -> None:
    log, metrics = LoggingExtension(priority=ExtensionPriority.LOWEST), MetricsExtension()
    limit = RateLimitExtension("2/h", tools={"scarce": "1/h"})
    executor, runs = made(log, metrics, limit, specs=(echo(), echo("scarce")))
    ann, bob = ToolContext(user_id="ann"), ToolContext(user_id="bob")
    codes = []
    async with executor:
        for tool, n, who in (
            ("scarce", 1, ann), ("scarce", 1, bob), ("echo", 1, ann), ("echo", 1, ann),
            ("echo", 1, bob), ("echo", "x", bob), ("nothing", 1, bob),
        ):  # fmt: skip
            codes.append(code(await executor.execute(tool, {"n": n}, who)))
        text = await metrics.scrape()
    assert codes == [
        None, "RATE_LIMITED", None, "RATE_LIMITED", None, "VALIDATION_ERROR", "NOT_FOUND",
    ]  # fmt: skip
    assert [(one.tool, one.code) for one in log.recent()] == list(
        zip(["scarce", "scarce", "echo", "echo", "echo", "echo", "nothing"], codes, strict=True)
    )
    assert 'toolpost_errors_total{tool="echo",code="RATE_LIMITED"} 1' in text
    assert len(runs.ran) == 3


@pytest.mark.req("UX-4")
async def test_metrics_go_to_opentelemetry_too() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    executor, runs = made(MetricsExtension(meter_provider=provider))
    async with executor:
        await executor.execute("echo", {"n": 1})
        await executor.execute("echo", {"n": 13})
        await executor.execute("nothing", {"n": 1})
        cut = asyncio.ensure_future(executor.execute("echo", {"n": 99}))
        async with asyncio.timeout(FENCE):
            await runs.inside.wait()
        under_way = measured(reader)["toolpost.calls.running"]
        cut.cancel()
        await asyncio.gather(cut, return_exceptions=True)
    told = measured(reader)
    provider.shutdown()
    assert under_way["echo", None] == 1
    assert told["toolpost.calls.running"]["echo", None] == 0
    assert told["toolpost.calls"] == {
        ("echo", None): 1,
        ("echo", "EXECUTION_ERROR"): 1,
        ("echo", "CANCELLED"): 1,
        ("unknown", "NOT_FOUND"): 1,
    }
    assert told["toolpost.call.duration"] == told["toolpost.calls"]


def measured(reader: InMemoryMetricReader) -> dict[str, dict[tuple[Any, Any], float]]:
    """Metric → (tool, code of its error) → the sum, or of a histogram how many."""
    told: dict[str, dict[tuple[Any, Any], float]] = {}
    data = reader.get_metrics_data()
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            about = point.attributes or {}
            key = about["gen_ai.tool.name"], about.get("error.type")
            number = getattr(point, "value", None)
            told.setdefault(metric.name, {})[key] = (
                getattr(point, "count", 0) if number is None else number
            )
    return told


def test_without_an_sdk_nothing_is_measured() -> None:
    registry = ToolSpecRegistry(specs=[echo()])
    spec = registry.registry.get("echo")
    assert spec is not None
    unused: Any = None
    assert OtelMetrics(NoOpMeterProvider()).bind(spec, unused) is None
    assert OtelMetrics().bind(spec, unused) is None


@pytest.mark.req("UX-4")
@pytest.mark.parametrize("way", ["async", "plain"])
async def test_an_approval_handler_is_told_the_tool_and_says_yes_or_no(way: str) -> None:
    seen: list[Any] = []

    def plain(tool_name: str, description: str, args: dict[str, Any]) -> Any:
        seen.append((tool_name, description, args))
        return args["n"] == 1

    async def later(tool_name: str, description: str, args: dict[str, Any]) -> Any:
        return plain(tool_name, description, args) or None

    approval = ApprovalExtension(
        approval_mode=ApprovalMode.UNSAFE_ONLY,
        approval_handler=later if way == "async" else plain,
    )
    executor, runs = made(approval, specs=(echo(), echo("wipe", metadata={"is_dangerous": True})))
    async with executor:
        assert (await executor.execute("wipe", {"n": 1})).success
        assert code(await executor.execute("wipe", {"n": 2})) == "APPROVAL_DENIED"
        assert (await executor.execute("echo", {"n": 2})).success
    assert seen == [("wipe", "Echo.", {"n": 1}), ("wipe", "Echo.", {"n": 2})]
    assert runs.ran == [1, 2]
    with pytest.raises(ConfigError, match="two ways to ask"):
        ApprovalExtension(approval_handler=plain, ask=later)  # type: ignore[arg-type]


async def test_one_of_them_may_be_subclassed_and_then_does_both() -> None:
    class Strict(AuthExtension):
        async def before_execute(self, ctx: ToolContext) -> None:
            if ctx.user_id == "mallory":
                raise PermissionError("not this one")

    executor, _ = made(Strict(), specs=(echo(), echo("wipe", metadata={"is_dangerous": True})))
    async with executor:
        ann, mallory = ToolContext(user_id="ann"), ToolContext(user_id="mallory")
        assert (await executor.execute("echo", {"n": 1}, ann)).success
        assert code(await executor.execute("echo", {"n": 1}, mallory)) == "POLICY_DENIED"
        assert code(await executor.execute("wipe", {"n": 1}, ann)) == "UNAUTHORIZED"


# --- in the whole pipeline ---------------------------------------------------------------------


@pytest.mark.req("UX-4", "UX-9")
async def test_specs_and_extensions_stand_in_a_runtime_with_everything_it_has(
    tmp_path: Path,
) -> None:
    heard: list[Any] = []
    rings = ExtensionManager([Noting("notes", heard)]).rings()
    runtime = Runtime.open(
        Config.of({"mode": "strict", "store": {"kind": "memory"}}, base=tmp_path),
        tools=tools(echo(), [echo("wipe", metadata={"is_dangerous": True})]),
        observers=rings.observers,
        guards=rings.guards,
        backends=backends(Echo()),
    )
    async with runtime:
        result = await runtime.execute("echo", {"n": 1})
        assert result.output == 1
        assert {"audit", "slots", "notes"} <= set(result.metadata.trail)
        assert code(await runtime.execute("wipe", {"n": 1})) == "APPROVAL_REQUIRED"
        stranger = await runtime.execute("wipe", {"n": 1}, caller=Caller("key-1"))
        assert code(stranger) == "UNAUTHORIZED"
    assert heard == [("notes", "before", 1), ("notes", "after", 1)]
