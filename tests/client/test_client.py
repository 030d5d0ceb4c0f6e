"""The client against a real gateway: what it brings is what the road gives in process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateway_tools import ALL, MARKS, until
from tests.gateway.running import Running, serving
from toolpost import Progress, Result, tool
from toolpost.approvals import Lasting
from toolpost.client import Approval, Client
from toolpost.client.exchange import inner
from toolpost.clock import SystemClock
from toolpost.config import Config, Settings
from toolpost.errors import ConfigError, Denied, InvalidArguments, ToolNotFound, Unauthorized
from toolpost.gateway.identity.keys import Keys
from toolpost.jobs import Job
from toolpost.net.destination import Refused
from toolpost.redact import redact_text

pytestmark = pytest.mark.anyio
AUTH: dict[str, Any] = {
    "auth": {"keys": True},
    "settings": {
        "extensions": {
            "access": {"roles": {"all": {"call": ["*"], "tier": 4}}},
            "approval": {"approvers": ["boss"]},
        }
    },
}


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with serving(tmp_path_factory.mktemp("client"), *ALL, jobs=True) as running:
        yield running


@pytest.fixture
async def tools(served: Running) -> AsyncIterator[Client]:
    async with Client(served.url) as client:
        yield client


# --- tools and calls -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("add", {"a": 1, "b": 2}),
        ("add", {"a": "one"}),
        ("add", {"a": float("nan"), "b": {1, 2}}),
        ("echo", {"value": {"deep": ["ünïcode", 2**70, 0.1, None, "\u2028"]}}),
        ("fail", {}),
        ("nothing/of:this kind?", {}),
        ("", None),
    ],
)
async def test_a_call_through_a_gateway_ends_as_one_in_process(
    served: Running, tools: Client, name: str, arguments: dict[str, Any] | None
) -> None:
    near = await served.runtime.execute(name, arguments)
    far = await tools.execute(name, arguments)
    assert (far.output, far.parts) == (near.output, near.parts)
    if near.error is not None:
        assert far.error is not None
        assert (far.error.code, far.error.remedy) == (near.error.code, near.error.remedy)
        assert far.error.effects == near.error.effects
    assert isinstance(far, Result)


async def test_specs_come_without_bindings_and_with_the_same_public_digest(
    served: Running, tools: Client
) -> None:
    there = {spec.name: spec.public_digest for spec in served.runtime.list()}
    assert {spec.name: spec.public_digest for spec in await tools.list()} == there
    assert [spec.name for spec in await tools.list(tier=0)] == [
        *("add", "count", "echo", "fail", "wait")
    ]
    assert (await tools.show("add")).input_schema["required"] == ["a", "b"]
    with pytest.raises(ToolNotFound, match="did you mean 'add'"):
        await tools.show("ad")


async def test_progress_and_pieces_are_heard_before_the_result(tools: Client) -> None:
    heard: list[Progress] = []
    result = await tools.execute("count", {"to": 2}, on_progress=heard.append)
    assert result.output == "done"
    assert "".join(one.partial for one in heard if one.partial is not None) == "0 1 "
    assert Progress(1, 2, "counting") in heard


async def test_a_listener_that_fails_does_not_disturb_the_call(
    tools: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(report: Progress) -> None:
        raise TimeoutError("mine")

    with caplog.at_level(logging.ERROR, "toolpost.client"):
        assert (await tools.execute("count", on_progress=broken)).output == "done"
    assert "who listens to a call failed" in caplog.text


async def test_a_failure_is_the_same_with_and_without_a_listener(tools: Client) -> None:
    quiet = await tools.execute("fail")
    heard = await tools.execute("fail", on_progress=lambda report: None)
    assert quiet.error == heard.error
    assert quiet.error is not None
    assert quiet.error.message == "The dog has eaten it."


@pytest.mark.parametrize("listening", [False, True])
async def test_cancelling_the_task_stops_the_tool(tools: Client, listening: bool) -> None:
    mark = f"client {listening}"
    hear = (lambda report: None) if listening else None
    call = asyncio.create_task(tools.execute("wait", {"mark": mark}, on_progress=hear))
    await until(f"{mark} began")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(f"{mark} was cancelled")
    assert (await tools.execute("add", {"a": 1, "b": 1})).output == 2


async def test_a_timeout_is_kept_by_the_gateway(tools: Client) -> None:
    result = await tools.execute("wait", {"mark": "late"}, timeout=0.1)
    assert result.error is not None
    assert result.error.code == "TIMEOUT"
    assert result.metadata.call_id


@pytest.mark.parametrize("timeout", [-1, 0, "soon", 10**400, float("nan"), True])
async def test_a_timeout_that_is_none_is_told_in_the_result(tools: Client, timeout: Any) -> None:
    result = await tools.execute("pay", {"amount": 90}, timeout=timeout)
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("VALIDATION_ERROR", "none")


async def test_a_dry_run_says_what_would_be_done(tools: Client) -> None:
    result = await tools.execute("pay", {"amount": 77}, dry_run=True, on_progress=print)
    assert result.metadata.plan is not None
    assert "paid 77" not in MARKS


async def test_a_key_makes_a_call_run_once(tools: Client) -> None:
    for _ in range(2):
        result = await tools.execute("pay", {"amount": 31}, key=' my "key" ')
        assert result.output == "paid 31"
    assert MARKS.count("paid 31") == 1
    other = await tools.execute("pay", {"amount": 32}, key=' my "key" ')
    assert other.error is not None
    assert other.error.code == "CONFLICT"
    unfit = await tools.execute("pay", {"amount": 33}, key="a\r\nX: y")
    assert unfit.error is not None
    assert (unfit.error.code, unfit.error.effects) == ("VALIDATION_ERROR", "none")
    assert "paid 33" not in MARKS


async def test_many_calls_at_once_share_a_client(tools: Client) -> None:
    results = await asyncio.gather(*(tools.execute("add", {"a": n, "b": 1}) for n in range(100)))
    assert [result.output for result in results] == list(range(1, 101))


# --- jobs, artifacts, audit -----------------------------------------------------------------------


async def test_a_job_is_submitted_followed_and_found_again(tools: Client) -> None:
    job = await tools.jobs.submit("count", {"to": 2}, session_id="s", key="job once")
    again = await tools.jobs.submit("count", {"to": 2}, session_id="s", key="job once")
    assert again.id == job.id
    news = [one async for one in tools.jobs.follow(job.id)]
    last = news[-1]
    assert isinstance(last, Job)
    assert last.over
    found = await tools.jobs.get(job.id)
    assert (found.state, found.session) == ("succeeded", "s")
    assert found.result is not None
    assert found.result.output == "done"
    assert job.id in [one.id for one in await tools.jobs.list(state="succeeded")]
    assert job.id not in [one.id for one in await tools.jobs.list(after=job.id)]


async def test_a_job_is_cancelled_by_its_id(tools: Client) -> None:
    job = await tools.jobs.submit("wait", {"mark": "far job"})
    await until("far job began")
    assert (await tools.jobs.cancel(job.id)).state == "cancelled"
    await until("far job was cancelled")
    with pytest.raises(ToolNotFound):
        await tools.jobs.get("jb-nothing")
    with pytest.raises(ToolNotFound):
        _ = [one async for one in tools.jobs.follow("jb-nothing")]


async def test_what_is_too_large_is_read_in_pieces(tools: Client) -> None:
    text = "".join(map(str, range(150_000)))
    result = await tools.execute("echo", {"value": text})
    (artifact,) = result.metadata.artifacts
    about = await tools.artifacts.about(artifact.handle)
    assert (about.size, about.tool) == (len(text), "echo")
    assert (await tools.artifacts.read(artifact.handle, length=len(text) + 9)).decode() == text
    assert (await tools.artifacts.read(artifact.handle, offset=10, length=5)).decode() == text[
        10:15
    ]
    with pytest.raises(ToolNotFound):
        await tools.artifacts.read("af-nothing")


async def test_the_audit_is_searched_shown_and_proved(tools: Client) -> None:
    call_id = (await tools.execute("pay", {"amount": 8}, session_id="a b&c")).metadata.call_id
    async with asyncio.timeout(20):
        while not (found := await tools.audit.search(tool="pay", code="OK", session="a b&c")):
            await asyncio.sleep(0.02)
    assert [one.asked.call_id for one in found] == [call_id]
    assert (await tools.audit.show(call_id)).code == "OK"
    assert (await tools.audit.verify()).ok
    assert await tools.audit.search(until=0.0) == ()


# --- who asks, and who says yes -------------------------------------------------------------------


async def test_a_key_says_who_asks_and_another_says_yes(tmp_path: Path) -> None:
    async with serving(tmp_path, *ALL, **AUTH) as served:
        keys = Keys(served.runtime.store, clock=SystemClock())
        _, bot = await keys.create("bot", agent="bot", roles=["all"])
        _, boss = await keys.create("boss", user="eve", roles=["boss"])
        async with Client(served.url, key=bot) as agent, Client(served.url, key=boss) as person:
            asked = await agent.execute("wire", {"amount": 5})
            assert asked.error is not None
            assert asked.error.details is not None
            handle = asked.error.details["approval"]
            (waiting,) = await person.approvals.list()
            assert isinstance(waiting, Approval)
            assert (waiting.handle, waiting.shown()) == (handle, {"amount": 5})
            with pytest.raises(Denied):
                await agent.approvals.approve(handle)
            edited = await person.approvals.approve(
                handle, arguments={"amount": 4}, reason="less", seen=waiting.seen
            )
            assert (edited.status, edited.shown()) == ("approved", {"amount": 4})
            assert (await agent.approvals.show(handle)).said["edited"] is True
            assert (await agent.approvals.resume(handle)).output == "wired 4"
            used = await agent.approvals.list(status="used")
            assert [one.handle for one in used] == [handle]

            await _denied(agent, person)
            with pytest.raises(Denied, match="admin"):
                await agent.audit.search()


@tool(requires_approval=True)
async def write_to(address: str, text: str) -> dict[str, str]:
    """Write to somebody."""
    return {"address": address, "text": text}


async def test_an_edit_over_rest_changes_what_it_names_and_takes_no_redaction_mark(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, *ALL, write_to, **AUTH) as served:
        keys = Keys(served.runtime.store, clock=SystemClock())
        _, bot = await keys.create("bot", agent="bot", roles=["all"])
        _, boss = await keys.create("boss", user="eve", roles=["boss"])
        async with Client(served.url, key=bot) as agent, Client(served.url, key=boss) as person:
            await agent.execute("write_to", {"address": "ada@example.org", "text": "a"})
            (waiting,) = await person.approvals.list()
            shown = waiting.shown()
            assert shown["address"] == "[redacted:email]"
            with pytest.raises(InvalidArguments, match=r"/address: .* is not shown"):
                await person.approvals.approve(waiting.handle, arguments={**shown, "text": "b"})
            await person.approvals.approve(waiting.handle, arguments={"text": "b"})
            written = await agent.approvals.resume(waiting.handle)
    assert written.output == {"address": "ada@example.org", "text": "b"}


async def _denied(agent: Client, person: Client) -> None:
    asked = await agent.execute("wire", {"amount": 6}, session_id="s")
    assert asked.error is not None
    assert asked.error.details is not None
    handle = asked.error.details["approval"]
    lasting = Lasting(session=True, uses=2)
    assert (await person.approvals.approve(handle, lasting=lasting)).status == "approved"
    assert (await person.approvals.deny(handle, reason="no more")).status == "denied"
    ended = await agent.approvals.resume(handle)
    assert ended.error is not None
    assert ended.error.code == "APPROVAL_DENIED"


async def test_over_http_a_key_stays_on_this_machine_and_in_inner_networks() -> None:
    assert "127.0.0.1" in await inner("localhost", 80)
    with pytest.raises(Refused, match="anybody on the way to"):
        await inner("8.8.8.8", 80)


async def test_a_wrong_key_and_none_are_told_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = "tpk_" + "x7" * 30
    async with serving(tmp_path, *ALL, **AUTH) as served:
        _, right = await Keys(served.runtime.store, clock=SystemClock()).create("ci", roles=["all"])
        async with Client(served.url, key=wrong) as tools:
            refused = await tools.execute("add", {"a": 1, "b": 2})
            assert refused.error is not None
            assert (refused.error.code, refused.error.effects) == ("UNAUTHORIZED", "none")
            with pytest.raises(Unauthorized) as told:
                await tools.list()
            assert wrong not in str(told.value) + repr(tools) + repr(refused)
        async with Client(served.url) as tools:
            nobody = await tools.execute("add", {"a": 1, "b": 2}, on_progress=print)
            assert nobody.error is not None
            assert nobody.error.code == "UNAUTHORIZED"
        monkeypatch.setenv("TOOLPOST_API_KEY", right)
        assert Config.of({}).settings == Settings()  # it is no setting
        async with Client(served.url) as tools:
            assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3
    assert right not in redact_text(f"it was {right}")
    assert wrong not in redact_text(f"it was {wrong}")


@pytest.mark.parametrize(
    ("url", "key", "why"),
    [
        ("gateway:8080", None, "begins with https://"),
        ("http://user:pass@127.0.0.1", None, "no place in a URL"),
        ("http://127.0.0.1/?key=1", None, "query"),
        ("http://127.0.0.1", "two words", "neither an API key nor a token"),
        ("http://127.0.0.1", "a\r\nX: y", "neither an API key nor a token"),
        ("http://8.8.8.8", "tpk_" + "x7" * 30, "over http:// anybody on the way can read the key"),
    ],
)
async def test_what_cannot_be_a_gateway_or_a_key_is_refused_at_once(
    url: str, key: str | None, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as told:
        Client(url, key=key)
    assert key is None or key not in str(told.value)
