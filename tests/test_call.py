"""Calls: what a tool is told about the call it serves, and what it can say while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from time import monotonic
from typing import Any

import msgspec
import pytest

from toolpost import Call, Caller, Executor, Progress, Registry, Result, ToolSpec, create_tool, tool
from toolpost.call import OWNER, new_call_id
from toolpost.contracts import Walk
from toolpost.result import Metadata

pytestmark = pytest.mark.anyio


def a_call(**fields: Any) -> Call:
    spec = ToolSpec(name="a", description="d")
    return Call("a", spec, {}, OWNER, new_call_id(), Metadata(), **fields)


@pytest.mark.parametrize(
    ("caller", "principal"),
    [
        (Caller("key:1", user="ann", key="ci"), "user:ann"),
        (Caller("corp:ann", user="ann", agent="bot"), "user:ann"),
        (Caller("local:ann", user="ann", owner=True), "user:ann"),
        (Caller("key:1", agent="bot", key="ci"), "key:ci"),
        (Caller("key:2", key="ci"), "key:ci"),
        (OWNER, "owner"),
        (Caller("local", agent="inspector", owner=True), "owner"),
        (Caller("owner"), "caller:owner"),
        (Caller("key:ci"), "caller:key:ci"),
        (Caller("user:ann"), "caller:user:ann"),
    ],
)
def test_a_principal_is_the_user_else_the_key_else_the_owner(
    caller: Caller, principal: str
) -> None:
    assert caller.principal == principal
    as_sent = msgspec.json.decode(msgspec.json.encode(caller), type=Caller)
    assert as_sent.principal == principal


def context_of(call: Call) -> dict[str, Any]:
    return {
        "session_id": call.session_id,
        "working_dir": call.working_dir,
        "metadata": dict(call.metadata),
        "caller": call.caller.id,
        "roles": sorted(call.caller.roles),
        "key": call.key,
        "seconds_left": None if call.deadline is None else call.deadline - monotonic(),
        "dry_run": call.dry_run,
    }


@tool
async def inline_context(call: Call) -> dict[str, Any]:
    """Give back what the call says."""
    return context_of(call)


@tool
def thread_context(call: Call) -> dict[str, Any]:
    """Give back what the call says."""
    return context_of(call)


async def mapping_function(arguments: Mapping[str, Any], call: Call) -> dict[str, Any]:
    return context_of(call)


mapping_context = create_tool(
    "mapping_context", "Give it back.", mapping_function, input_schema={"type": "object"}
)


@pytest.mark.req("FG-7", "NA-4")
@pytest.mark.parametrize("name", ["inline_context", "thread_context", "mapping_context"])
async def test_the_context_of_a_call_reaches_the_tool(name: str) -> None:
    async with Executor(Registry([inline_context, thread_context, mapping_context])) as executor:
        result = await executor.execute(
            name,
            caller=Caller("agent-7", roles=frozenset({"reader"})),
            session_id="s-1",
            timeout=120,
            working_dir="/srv/work",
            metadata={"trace": "t-1"},
            key="k-1",
        )
    assert result.success, result.error
    assert 0 < result.output.pop("seconds_left") <= 120
    assert result.output == {
        "session_id": "s-1",
        "working_dir": "/srv/work",
        "metadata": {"trace": "t-1"},
        "caller": "agent-7",
        "roles": ["reader"],
        "key": "k-1",
        "dry_run": False,
    }


@pytest.mark.req("FG-7")
async def test_a_dry_run_is_seen_by_rings_and_says_what_would_be_done() -> None:
    seen: list[bool] = []

    async def look(call: Call, call_next: Walk) -> Result:
        seen.append(call.dry_run)
        return await call_next(call)

    async with Executor(Registry([inline_context]), guards=[look]) as executor:
        result = await executor.execute("inline_context", dry_run=True)
    assert seen == [True]
    assert result.success
    assert result.output is None
    assert result.metadata.plan is not None
    assert result.metadata.plan["tool"] == "inline_context"


@pytest.mark.req("FM-18")
@pytest.mark.parametrize(("aware", "phase"), [(True, "triage"), (False, None)])
async def test_only_a_context_aware_tool_sees_the_phase(aware: bool, phase: str | None) -> None:
    @tool(context_aware=aware)
    async def phase_of(call: Call) -> str | None:
        """The phase."""
        return call.phase

    async with Executor(Registry([phase_of])) as executor:
        result = await executor.execute("phase_of", phase="triage")
    assert result.output == phase


async def test_without_an_identity_the_caller_is_the_owner() -> None:
    async with Executor(Registry([inline_context])) as executor:
        result = await executor.execute("inline_context")
    assert (result.output["caller"], result.output["session_id"]) == ("owner", None)
    assert OWNER.owner
    assert not Caller("someone").owner


@pytest.mark.parametrize("isolation", ["inline", "thread"])
async def test_progress_and_pieces_of_output_reach_the_caller_in_order(isolation: Any) -> None:
    @tool(isolation=isolation)
    def count(call: Call) -> int:
        """Count to two."""
        call.progress(1, 2, "half")
        call.partial({"so_far": 1})
        call.progress(2, 2)
        return 2

    heard: list[Progress] = []
    async with Executor(Registry([count])) as executor:
        result = await executor.execute("count", on_progress=heard.append)
    assert result.output == 2
    assert heard == [Progress(1, 2, "half"), Progress(partial={"so_far": 1}), Progress(2, 2)]


async def test_progress_that_nobody_listens_to_costs_nothing() -> None:
    call = a_call()
    call.progress(1, 2)
    call.partial("x")
    assert not call.cancelled


async def test_a_warning_is_in_the_metadata_of_the_result() -> None:
    @tool
    async def search(call: Call) -> int:
        """Search."""
        call.warn("the index is a day old")
        return 0

    async with Executor(Registry([search])) as executor:
        result = await executor.execute("search")
    assert result.metadata.warnings == ["the index is a day old"]


def test_what_a_ring_says_is_in_the_trail() -> None:
    call = a_call()
    call.note("policy", "allow")
    assert call.trail == ["policy: allow"]


def test_a_trail_has_an_end() -> None:
    call = a_call()
    for _ in range(5_000):
        call.note("policy", "x" * 5_000)
    assert len(call.trail) == 1_000
    assert max(map(len, call.trail)) == 1_000


def test_a_thread_can_ask_whether_it_is_still_wanted() -> None:
    stopped = threading.Event()
    call = a_call(stopped=stopped.is_set)
    assert not call.cancelled
    stopped.set()
    assert call.cancelled


def test_a_call_does_not_change() -> None:
    with pytest.raises(AttributeError):
        a_call().arguments = {}  # type: ignore[misc]


@pytest.mark.req("NA-4")
def test_call_ids_are_unique_and_sort_in_the_order_they_were_made() -> None:
    ids = [new_call_id() for _ in range(10_000)]
    assert ids == sorted(set(ids))


def test_threads_draw_different_call_ids() -> None:
    drawn: list[list[str]] = [[] for _ in range(4)]

    def draw(into: list[str]) -> None:
        into.extend(new_call_id() for _ in range(5_000))

    threads = [threading.Thread(target=draw, args=(into,)) for into in drawn]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({one for ids in drawn for one in ids}) == 20_000


def test_a_forked_child_draws_other_call_ids() -> None:
    program = """
import os
from toolpost.call import new_call_id
new_call_id()
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.write(writing, new_call_id().encode())
    os._exit(0)
os.waitpid(child, 0)
print(os.read(reading, 100).decode(), new_call_id())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    theirs, ours = done.stdout.split()
    assert theirs != ours
    assert theirs.split("-")[0] != ours.split("-")[0]
