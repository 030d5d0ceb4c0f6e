"""Several callers of one gateway: each has what is theirs, and nobody has more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.gateway_tools import ALL, MARKS, until
from tests.gateway.running import Running, serving
from toolpost.clock import SystemClock
from toolpost.errors import ConfigError
from toolpost.gateway.identity.keys import Keys
from toolpost.gateway.serving import bind
from toolpost.gateway.settings import GatewaySettings

pytestmark = pytest.mark.anyio

ROLES = {"boss": {"call": ["*"], "tier": 4}}


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    settings = {
        "extensions": {
            "approval": {"approvers": ["boss"]},
            "access": {"roles": ROLES},
            "artifacts": {"soft": 100_000},
        }
    }
    folder = tmp_path_factory.mktemp("callers")
    async with serving(folder, *ALL, settings=settings, jobs=True, auth={"keys": True}) as running:
        yield running


async def key(served: Running, name: str, **more: object) -> dict[str, str]:
    keys = Keys(served.runtime.store, clock=SystemClock())
    _, text = await keys.create(name, **more)  # type: ignore[arg-type]
    return {"authorization": f"Bearer {text}"}


async def test_nobody_gets_in_without_saying_who_they_are(served: Running) -> None:
    for path in ("/v1/tools", "/v1/jobs", "/openapi.json", "/metrics", "/v1/audit", "/nothing"):
        answer = await served.get(path)
        assert (answer.status, answer.data["code"]) == (401, "UNAUTHORIZED")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    wrong = await served.call("pay", {"amount": 13}, {"authorization": "Bearer tpk_wrong"})
    assert wrong.status == 401
    assert "paid 13" not in MARKS


async def test_whoever_watches_over_it_may_know_whether_it_is_well(served: Running) -> None:
    assert (await served.get("/healthz")).status == 200
    ready = await served.get("/readyz")
    assert ready.status == 200
    assert all(part == {"healthy": True} for part in ready.data["parts"].values())


async def test_a_caller_has_the_tools_of_its_key_and_no_others(served: Running) -> None:
    agent = await key(served, "narrow", tools=["add"])
    listed = (await served.get("/v1/tools", agent)).data["tools"]
    assert [one["name"] for one in listed] == ["add"]
    paths = (await served.get("/openapi.json", agent)).data["paths"]
    assert [p for p in paths if p.endswith(":call")] == ["/v1/tools/add:call"]
    assert (await served.call("add", {"a": 1, "b": 1}, agent)).status == 200
    assert (await served.call("echo", {}, agent)).status == 404
    assert (await served.get("/v1/tools/echo", agent)).status == 404


@pytest.mark.req("AF-7")
async def test_whoever_is_known_and_lacks_a_right_is_not_told_to_say_who_they_are(
    tmp_path: Path,
) -> None:
    access = {"default": {"see": ["*"], "call": ["echo"]}}
    settings = {"extensions": {"access": access}}
    async with serving(tmp_path, *ALL, settings=settings, jobs=True, auth={"keys": True}) as served:
        agent = await key(served, "agent")
        for headers in ({}, {"prefer": "respond-async"}, {"accept": "text/event-stream"}):
            answer = await served.call("add", {"a": 1, "b": 2}, {**agent, **headers})
            assert (answer.status, answer.data["code"]) == (403, "UNAUTHORIZED"), headers
            assert answer.data["remedy"] == "other_tool"
            assert "www-authenticate" not in answer.headers


async def test_the_audit_and_the_metrics_take_a_role(served: Running) -> None:
    agent, admin = await key(served, "agent"), await key(served, "admin", roles=["admin"])
    for method, path in (
        ("GET", "/v1/audit"),
        ("GET", "/v1/audit/x"),
        ("POST", "/v1/audit:verify"),
        ("GET", "/metrics"),
    ):
        assert (await served.ask(method, path, headers=agent)).status == 403
        assert (await served.ask(method, path, headers=admin)).status in (200, 404)


async def test_another_s_call_cannot_be_seen_or_stopped(served: Running) -> None:
    one, other = await key(served, "one"), await key(served, "other")
    call = asyncio.create_task(served.call("wait", {"mark": "mine"}, one))
    await until("mine began")
    [running] = (await served.get("/v1/calls", one)).data["calls"]
    path = f"/v1/calls/{running['call_id']}"
    assert (await served.get("/v1/calls", other)).data == {"calls": []}
    assert (await served.ask("DELETE", path, headers=other)).status == 404
    assert "mine was cancelled" not in MARKS
    assert (await served.ask("DELETE", path, headers=one)).status == 204
    assert (await call).status == 499


async def test_another_s_job_and_artifact_are_not_found(served: Running) -> None:
    one, other = await key(served, "owner of a job"), await key(served, "nosy")
    job = await served.call("add", {"a": 1, "b": 1}, {**one, "prefer": "respond-async"})
    where = job.headers["location"]
    large = await served.call("echo", {"value": "z" * 200_000}, one)
    handle = large.data["metadata"]["artifacts"][0]["handle"]
    for path in (where, f"/v1/artifacts/{handle}", f"/v1/artifacts/{handle}/content"):
        assert (await served.get(path, one)).status == 200
        assert (await served.get(path, other)).status == 404
    assert (await served.ask("DELETE", where, headers=other)).status == 404
    assert (await served.get("/v1/jobs", other)).data == {"jobs": []}


async def test_an_approval_is_for_who_may_give_it_and_used_by_who_asked_once(
    served: Running,
) -> None:
    agent = await key(served, "asks", user="ann", agent="bot")
    other = await key(served, "stranger")
    boss = await key(served, "boss", user="bob", roles=["boss"])
    asked = await served.call("wire", {"amount": 100}, agent)
    assert asked.status == 428
    handle = asked.data["details"]["approval"]
    path = f"/v1/approvals/{handle}"
    assert (await served.get(path, other)).status == 404
    assert (await served.post(f"{path}:approve", {}, other)).status == 404
    assert (await served.post(f"{path}:approve", {}, agent)).status == 403
    edited = await served.post(f"{path}:approve", {"arguments": {"amount": "x"}}, boss)
    assert edited.status == 422
    for lasting in (True, {"use": 1}, {"uses": 1, "second": 5}):
        loose = await served.post(f"{path}:approve", {"lasting": lasting}, boss)
        assert loose.status == 422 and "session, where, seconds, uses" in loose.data["detail"]
    yes = await served.post(
        f"{path}:approve", {"arguments": {"amount": 50}, "reason": "half"}, boss
    )
    assert (yes.status, yes.data["status"], yes.data["edited"]) == (200, "approved", True)
    assert (await served.post(f"{path}:approve", {}, boss)).status == 409
    assert (await served.ask("POST", f"{path}:resume", headers=boss)).status == 404
    done = await served.ask("POST", f"{path}:resume", headers=agent)
    assert (done.status, done.data["output"]) == (200, "wired 50")
    again = await served.ask("POST", f"{path}:resume", headers=agent)
    assert (again.status, again.data["code"]) == (403, "APPROVAL_DENIED")
    assert MARKS.count("wired 50") == 1


async def test_a_yes_can_be_taken_back_until_it_is_used(served: Running) -> None:
    agent = await key(served, "wavering", agent="bot2")
    boss = await key(served, "second boss", user="eve", roles=["boss"])
    asked = await served.call("wire", {"amount": 1}, agent)
    path = f"/v1/approvals/{asked.data['details']['approval']}"
    seen = (await served.get(path, boss)).data["seen"]
    wrong = await served.post(f"{path}:approve", {"seen": "something else"}, boss)
    assert wrong.status == 409
    assert (await served.post(f"{path}:approve", {"seen": seen}, boss)).status == 200
    assert (await served.post(f"{path}:deny", {"reason": "no"}, boss)).data["status"] == "denied"
    assert (await served.ask("POST", f"{path}:resume", headers=agent)).status == 403


async def test_it_does_not_listen_for_others_without_asking_who_they_are() -> None:
    with pytest.raises(ConfigError, match="nobody would be asked who they"):
        bind(GatewaySettings(host="0.0.0.0", port=0))


async def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{served.port}"):
            bind(GatewaySettings(port=served.port))


async def test_a_page_that_is_expected_may_call_from_a_browser(tmp_path: Path) -> None:
    page = {"origin": "https://app.example.com"}
    async with serving(tmp_path, *ALL, origins=["https://app.example.com"]) as served:
        asked = {
            **page,
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type",
        }
        before = await served.ask("OPTIONS", "/v1/tools/add:call", headers=asked)
        assert before.status == 204
        assert before.headers["access-control-allow-headers"] == "content-type"
        answer = await served.call("add", {"a": 1, "b": 1}, page)
        assert answer.headers["access-control-allow-origin"] == page["origin"]
        assert (await served.get("/v1/tools", page)).headers["vary"] == "origin"
