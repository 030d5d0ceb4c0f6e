"""The whole default chain on one road: each ring does its part, in its order, and one's own too."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolpost import Call, Caller, Result, Runtime, ToolFailed, tool
from toolpost.approvals import Decision
from toolpost.config import GUARDS, OBSERVERS
from toolpost.contracts import Walk
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import calls

pytestmark = pytest.mark.anyio
CONFIG = """
[extensions.rate]
tools = {pay = "2/h"}
[extensions.access.roles.clerk]
call = ["pay"]
tier = 2
"""
CLERK = Caller("key-1", user="ann", agent="bot", roles=frozenset({"clerk"}))
paid: list[str] = []


@tool(tier=2, effects="once", requires_approval=True)
async def pay(to: str, timeout: bool = False) -> str:
    """Pay somebody."""
    paid.append(to)
    if to == "nobody":
        raise ToolFailed("There is nobody of that name.")
    return "paid"


async def stamps(call: Call, call_next: Walk) -> Result:
    """One's own."""
    call.note("stamps", "stamped")
    return await call_next(call)


def codes(results: list[Result]) -> list[str]:
    return [r.error.code if r.error else "ok" for r in results]


@pytest.mark.req("UX-4", "NA-12", "AF-7", "NA-4")
async def test_roles_approval_log_metrics_rate_audit_and_ones_own_ring_are_on_one_road(
    tmp_path: Path,
) -> None:
    paid.clear()
    (tmp_path / "toolpost.toml").write_text(CONFIG, encoding="utf-8")
    async with Runtime.open(tmp_path / "toolpost.toml", guards=[stamps], tools=[pay]) as tools:
        assert tuple(g.name for g in tools.executor.guards) == (*GUARDS, "stamps")
        assert tuple(o.name for o in tools.executor.observers) == OBSERVERS
        log, metrics = tools.extension("log"), tools.extension("metrics")
        approval = tools.extension("approval")

        async def call(to: str, caller: Caller = CLERK, grant: str | None = None) -> Result:
            return await tools.execute(
                "pay", {"to": to}, caller=caller, session_id="s", grant=grant
            )

        stranger = await call("bob", Caller("key-2", agent="bot"))
        wrong = await tools.execute("pay", {"too": "bob"}, caller=CLERK, session_id="s")
        asked = await call("bob")
        assert asked.error is not None
        handle = (asked.error.details or {})["approval"]
        yes, boss = Decision(approve=True), Caller("ann-at-home", user="ann")
        await approval.approvals.decide(handle, yes, by=boss, channel="console")
        done = await call("bob", grant=handle)
        limited = await call("bob")
        results = [stranger, wrong, asked, done, limited]
        assert codes(results) == [
            *("UNAUTHORIZED", "VALIDATION_ERROR", "APPROVAL_REQUIRED", "ok", "RATE_LIMITED"),
        ]
        assert paid == ["bob"]
        assert [entry.code or "ok" for entry in log.recent()] == codes(results)
        text = await metrics.scrape()
        assert 'toolpost_calls_total{tool="pay"} 5' in text
        assert "toolpost_approvals_waiting 0" in text
        names = [step for step in done.metadata.trail if ": " not in step]
        order = [*OBSERVERS, *GUARDS, "stamps"]
        assert names == [name for name in order if name in names]
        assert {"audit", "access", "rate", "approval", "slots", "stamps"} <= set(names)
    async with Runtime.open(tmp_path / "toolpost.toml") as tools:
        kept = [one.to_dict() async for one in calls(lines_of(tools.store))]
    (decided,) = [one for one in kept if one["kind"] == "decision"]
    assert (decided["code"], decided["grant"]) == ("APPROVED", handle)
    assert (decided["approver"], decided["details"]["call"]) == (
        "ann (console)",
        asked.metadata.call_id,
    )
    audited = [one for one in kept if one["kind"] == "call"]
    assert [one["code"] for one in audited] == [c.replace("ok", "OK") for c in codes(results)]
    assert {one["session"] for one in audited} == {"s"}
    assert {one["call_id"] for one in audited} == {r.metadata.call_id for r in results}
    assert audited[3]["approver"] == "ann (console)"


@pytest.mark.req("NA-10")
async def test_output_that_fails_its_schema_leaks_nothing_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(
        effects="read", output_schema={"type": "object", "properties": {"n": {"type": "integer"}}}
    )
    async def gives(how: str) -> object:
        """Give something else."""
        return {"n": "the-inner-value-of-it"} if how == "field" else "the-inner-value-of-it"

    (tmp_path / "toolpost.toml").write_text("", encoding="utf-8")
    async with Runtime.open(tmp_path / "toolpost.toml") as tools:
        tools.registry.add(gives)
        results = [await tools.execute("gives", {"how": how}) for how in ("field", "all")]
    assert codes(results) == ["OUTPUT_INVALID"] * 2
    written = b"".join(f.read_bytes() for f in (tmp_path / ".toolpost").rglob("*") if f.is_file())
    for sink in (str([r.to_dict() for r in results]), caplog.text, written.decode("latin-1")):
        assert "the-inner-value-of-it" not in sink
