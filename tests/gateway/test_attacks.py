"""Attacks on ``toolpost serve`` as it runs, over its socket: what is another's, what is forged,
what does not end, and what leads inside."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.backends.http.service import Reply, Service, serving
from tests.builtin.test_web_attacks import SPELLINGS
from tests.gateway.flooding import ADMITTED, flooded
from tests.gateway.gateway_tools import ALL, MARKS
from tests.gateway.identity.issuing import Issuing, issuing, private, segment
from tests.gateway.program import CONFIG, Program, program
from tests.gateway.running import Answer, Client
from tests.gateway.running import serving as answering
from tests.processes import running
from toolpost.clock import SystemClock
from toolpost.gateway.identity.keys import Keys

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

MORE = """
[[sources]]
kind = "files"
paths = ["tools.yaml"]

[[sources]]
kind = "builtin"
tools = ["web"]

[sources.web]
egress = ["*", "{upstream}"]

[backends.shell]
programs = ["sh"]

[extensions.approval]
approvers = ["boss"]

[extensions.access.roles.boss]
call = ["*"]
tier = 4

[extensions.artifacts]
soft = 100000

[gateway.auth]
keys = true

[gateway.auth.issuers.corp]
issuer = "{issuer}"
audience = "toolpost"
"""
TOOLS = """
- name: tree
  description: Start processes that do not want to end.
  kind: shell
  effects: read
  timeout: 60
  input_schema:
    type: object
    properties: {seconds: {type: string}}
    required: [seconds]
    additionalProperties: false
  binding:
    command: [sh, -c, 'setsid sleep "$1" & (sleep "$1" &); trap "" TERM; sleep "$1"; sleep "$1"',
      sh, "{seconds}"]
- name: sent
  description: Say it to somebody.
  kind: shell
  effects: once
  requires_approval: true
  input_schema:
    type: object
    properties: {to: {type: string}}
    required: [to]
    additionalProperties: false
  binding:
    command: [sh, -c, 'echo "sent $1" >> done', sh, "{to}"]
"""


@pytest.fixture(scope="module")
async def issuer() -> AsyncIterator[Issuing]:
    async with issuing() as made:
        yield made


@pytest.fixture(scope="module")
async def upstream() -> AsyncIterator[Service]:
    async with serving(lambda asked: Reply("{}")) as made:
        yield made


@pytest.fixture(scope="module")
async def served(
    tmp_path_factory: pytest.TempPathFactory, issuer: Issuing, upstream: Service
) -> AsyncIterator[Program]:
    folder = tmp_path_factory.mktemp("attacks")
    (folder / "tools.yaml").write_text(TOOLS, encoding="utf-8")
    config = CONFIG + MORE.format(issuer=issuer.url, upstream=upstream.authority)
    room = {"calls_each": MANY, "half_open": MANY}
    async with program(folder, config=config, drain_time=1, **room) as made:
        yield made


async def on_record(served: Program, admin: dict[str, str], text: str) -> list[dict[str, Any]]:
    """What the audit has of this, once it has it."""
    async with asyncio.timeout(20):
        while True:
            answer = await served.get(f"/v1/audit?text={quote(text)}", admin)
            if answer.data["calls"]:
                found: list[dict[str, Any]] = answer.data["calls"]
                return found
            await asyncio.sleep(0.05)


# --- 8: a flood ----------------------------------------------------------------------------------

MANY = 900


async def test_attack_a_flood_of_calls_admits_110_and_nobody_is_left_without_an_answer(
    served: Program,
) -> None:
    told = await flooded(served, MANY)
    assert told.codes == {"ok": ADMITTED, "QUEUE_FULL": MANY - ADMITTED}


# --- 10: a client that goes ----------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["sleep", "tree"])
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_attack_a_client_goes_and_the_processes_of_its_call_go_with_it(
    served: Program, tool: str, accept: str
) -> None:
    agent = await served.key("leaver")
    seconds = f"{70 + len(tool)}.{len(accept)}25"
    value: Any = seconds if tool == "tree" else float(seconds)
    call = asyncio.create_task(served.call(tool, {"seconds": value}, {**agent, "accept": accept}))
    mark = f"sleep\0{seconds}"
    async with asyncio.timeout(30):
        while not running(mark):
            await asyncio.sleep(0.01)
    call.cancel()  # closes the connection
    await asyncio.gather(call, return_exceptions=True)
    began = time.monotonic()
    async with asyncio.timeout(10):
        while running(mark):
            await asyncio.sleep(0.01)
    print(f"{tool} {accept}: gone after {time.monotonic() - began:.3f} s")


# --- 25: inside ----------------------------------------------------------------------------------


async def test_attack_no_spelling_of_a_private_address_is_fetched_through_the_gateway(
    served: Program, issuer: Issuing
) -> None:
    agent, before = await served.key("fetcher"), issuer.service.connections
    for spelling in SPELLINGS:
        url = spelling.replace("{port}", str(issuer.service.port))
        answer = await served.call("http_get", {"url": url}, agent)
        assert (answer.status, answer.data["code"]) in (
            (403, "POLICY_DENIED"),
            (422, "VALIDATION_ERROR"),
        ), url
        assert answer.data["effects"] == "none"
    own = await served.call("http_get", {"url": f"{served.url}/v1/audit"}, agent)
    assert own.status == 403
    assert issuer.service.connections == before


async def test_attack_a_caller_s_own_token_is_passed_to_nobody(
    served: Program, upstream: Service
) -> None:
    agent = await served.key("passer")
    answer = await served.call("http_get", {"url": upstream.url}, agent)
    assert answer.status == 200
    asked = upstream.asked[-1]
    assert asked.header("authorization") is None
    assert agent["authorization"].split(" ")[1] not in str(asked.headers)
    given = {"url": upstream.url, "headers": {"Authorization": "Bearer x"}}
    assert (await served.call("http_get", given, agent)).status in (403, 422)


# --- 28: approvals -------------------------------------------------------------------------------


async def asked_for(served: Client, amount: int, agent: dict[str, str]) -> str:
    answer = await served.call("wire", {"amount": amount}, agent)
    assert (answer.status, answer.data["code"]) == (428, "APPROVAL_REQUIRED")
    handle: str = answer.data["details"]["approval"]
    return handle


async def test_attack_a_yes_is_for_one_call_with_these_arguments_of_this_caller(
    served: Program,
) -> None:
    agent, thief = await served.key("spender"), await served.key("thief")
    boss = await served.key("chief", user="bob", roles=["boss"])
    grant = await asked_for(served, 500, agent)
    early = await served.call("wire", {"amount": 500}, agent, grant=grant)
    assert early.status == 428
    assert (await served.post(f"/v1/approvals/{grant}:approve", {}, boss)).status == 200
    changed = await served.call("wire", {"amount": 501}, agent, grant=grant)
    assert (changed.status, changed.data["code"]) == (409, "CONFLICT")
    stolen = await served.call("wire", {"amount": 500}, thief, grant=grant)
    assert (stolen.status, stolen.data["code"]) == (403, "APPROVAL_DENIED")
    calls = [served.call("wire", {"amount": 500}, agent, grant=grant) for _ in range(8)]
    answers = await asyncio.gather(*calls)
    assert sorted(one.status for one in answers) == [200] + [403] * 7
    replayed = await served.call("wire", {"amount": 500}, agent, grant=grant)
    assert (replayed.status, replayed.data["code"]) == (403, "APPROVAL_DENIED")
    assert [line for line in served.done if line.startswith("wired 50")] == ["wired 500"]


async def test_attack_who_asks_does_not_approve_by_any_of_their_names(served: Program) -> None:
    """Not the key, nor another key of the same agent; not even with the role."""
    agent = await served.key("asker", agent="bot", roles=["boss"])
    twin = await served.key("twin", agent="bot", roles=["boss"])
    grant = await asked_for(served, 600, agent)
    for who in (agent, twin):
        answer = await served.post(f"/v1/approvals/{grant}:approve", {}, who)
        assert (answer.status, answer.data["code"]) == (403, "POLICY_DENIED")
    assert (await served.call("wire", {"amount": 600}, agent, grant=grant)).status == 428
    assert "wired 600" not in served.done


async def test_attack_of_two_who_answer_at_once_one_does(served: Program) -> None:
    agent = await served.key("racer")
    bosses = [await served.key(f"chief {n}", user=f"chief{n}", roles=["boss"]) for n in range(4)]
    for turn in range(5):
        grant = await asked_for(served, 700 + turn, agent)
        ways = ["approve", "deny", "approve", "deny"]
        answers = await asyncio.gather(
            *(
                served.post(f"/v1/approvals/{grant}:{way}", {}, boss)
                for way, boss in zip(ways, bosses, strict=True)
            )
        )
        shown = (await served.get(f"/v1/approvals/{grant}", agent)).data
        yes = [one for one, way in zip(answers, ways, strict=True) if way == "approve"]
        assert len([one for one in yes if one.status == 200]) <= 1
        # a no may come after the yes, and take it back: but never the other way round
        assert shown["status"] in ("approved", "denied")
        for _ in range(2):
            used = await served.call("wire", {"amount": 700 + turn}, agent, grant=grant)
            assert used.status in (200, 403)
        wired = served.done.count(f"wired {700 + turn}")
        assert wired == (1 if shown["status"] == "approved" else 0)


BRIEF: dict[str, Any] = {
    "approval": {"approvers": ["boss"], "expires": 0.8},
    "access": {"roles": {"boss": {"call": ["*"], "tier": 4}}},
}


async def test_attack_neither_a_request_nor_a_yes_outlives_its_time(tmp_path: Path) -> None:
    settings, auth = {"extensions": BRIEF}, {"keys": True}
    async with answering(tmp_path, *ALL, settings=settings, auth=auth) as brief:
        keys = Keys(brief.runtime.store, clock=SystemClock())
        agent = {"authorization": f"Bearer {(await keys.create('sleeper'))[1]}"}
        _, text = await keys.create("chief", user="bob", roles=["boss"])
        boss = {"authorization": f"Bearer {text}"}
        async with asyncio.timeout(60):
            while True:  # on a busy machine the time may be over before anybody has said yes
                waits, grant = [await asked_for(brief, amount, agent) for amount in (900, 901)]
                yes = await brief.post(f"/v1/approvals/{grant}:approve", {}, boss)
                if yes.status == 200:
                    break
            for handle in (waits, grant):
                where = f"/v1/approvals/{handle}"
                while (await brief.get(where, agent)).data["status"] != "expired":
                    await asyncio.sleep(0.05)
        for way in ("approve", "deny"):
            late = await brief.post(f"/v1/approvals/{waits}:{way}", {}, boss)
            assert (late.status, late.data["code"]) == (409, "CONFLICT")
        again = await brief.post(f"/v1/approvals/{grant}:approve", {}, boss)
        assert again.status == 409, "nor is it given a second time"
        for amount, handle in ((900, waits), (901, grant)):
            used = await brief.call("wire", {"amount": amount}, agent, grant=handle)
            assert (used.status, used.data["code"]) == (403, "APPROVAL_DENIED")
            assert used.data["effects"] == "none"
            resumed = await brief.post(f"/v1/approvals/{handle}:resume", {}, agent)
            assert resumed.status == 403
        assert not [mark for mark in MARKS if mark.startswith("wired 90")]
        assert await asked_for(brief, 901, agent) != grant, "it is asked for anew"


async def test_attack_a_yes_to_a_tool_is_none_to_what_the_tool_becomes(served: Program) -> None:
    agent = await served.key("patient")
    boss = await served.key("chief of tools", user="bob", roles=["boss"])
    answer = await served.call("sent", {"to": "ann"}, agent)
    grant = answer.data["details"]["approval"]
    assert (await served.post(f"/v1/approvals/{grant}:approve", {}, boss)).status == 200
    file = served.folder / "tools.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("Say it to somebody.", "Say it to everybody."), encoding="utf-8")
    async with asyncio.timeout(30):
        while "everybody" not in (await served.get("/v1/tools/sent", agent)).data["description"]:
            await asyncio.sleep(0.05)
    used = await served.call("sent", {"to": "ann"}, agent, grant=grant)
    assert (used.status, used.data["code"]) == (409, "CONFLICT")


# --- 29: what is another's, and who one is not ---------------------------------------------------


async def test_attack_what_is_another_s_is_not_there_and_both_are_on_record(
    served: Program,
) -> None:
    mine, nosy = await served.key("mine", user="ann"), await served.key("nosy", user="eve")
    admin = await served.key("auditor", roles=["admin"])
    job = await served.call("echo", {"value": 1}, {**mine, "prefer": "respond-async"})
    large = await served.call("echo", {"value": "z" * 200_000}, mine)
    artifact = large.data["metadata"]["artifacts"][0]["handle"]
    approval = await asked_for(served, 800, mine)
    call = asyncio.create_task(served.call("nap", {"seconds": 50, "mark": "mine"}, mine))
    await served.until_done("mine began")
    [running_] = (await served.get("/v1/calls", mine)).data["calls"]
    tries = {
        job.data["id"]: [
            ("GET", f"/v1/jobs/{job.data['id']}"),
            ("DELETE", f"/v1/jobs/{job.data['id']}"),
        ],
        artifact: [
            ("GET", f"/v1/artifacts/{artifact}"),
            ("GET", f"/v1/artifacts/{artifact}/content"),
        ],
        approval: [
            ("GET", f"/v1/approvals/{approval}"),
            ("POST", f"/v1/approvals/{approval}:approve"),
            ("POST", f"/v1/approvals/{approval}:deny"),
            ("POST", f"/v1/approvals/{approval}:resume"),
        ],
        running_["call_id"]: [("DELETE", f"/v1/calls/{running_['call_id']}")],
    }
    for handle, ways in tries.items():
        for method, path in ways:
            answer = await served.ask(method, path, headers=nosy)
            assert (answer.status, answer.data["code"]) == (404, "NOT_FOUND"), path
            assert "ann" not in answer.body.decode()
        found = [
            one
            for one in await on_record(served, admin, f"{handle} is another caller")
            if one["details"]["handle"] == handle
        ]
        assert len(found) == len(ways), handle
        for one in found:
            assert (one["code"], one["caller"]["user"]) == ("NOT_FOUND", "eve")
            assert one["details"]["of"]["user"] == "ann"
    assert (await served.get("/v1/calls", mine)).data["calls"] == [running_]
    assert (
        await served.ask("DELETE", f"/v1/calls/{running_['call_id']}", headers=mine)
    ).status == 204
    assert (await call).status == 499


async def test_attack_a_forged_token_opens_nothing(served: Program, issuer: Issuing) -> None:
    now = time.time()
    good = {"iat": now, "exp": now + 600}
    token = issuer.token(**good, azp="planner")

    async def asked(header: bytes, path: str = "/v1/tools") -> Answer:
        return await served.get(path, {"authorization": header.decode()})

    assert (await asked(token)).status == 200
    claims = segment({"iss": issuer.url, "aud": "toolpost", "sub": "root", "owner": True, **good})
    head, _, signature = token.split(b" ")[1].decode().split(".")
    forged = [
        issuer.token(**good, aud="billing"),
        issuer.token(**good, aud=...),
        issuer.token(**good, iss="https://evil.invalid"),
        issuer.token(**good, key=private("ES256", 1)),
        issuer.token(iat=now - 900, exp=now - 300),
        f"Bearer {segment({'alg': 'none'})}.{claims}.".encode(),
        f"Bearer {segment({'alg': 'nOnE', 'kid': 'one'})}.{claims}.".encode(),
        f"Bearer {head}.{claims}.{signature}".encode(),
        b"Bearer tpk_" + b"A" * 43,
        b"Basic cm9vdDpyb290",
        b"",
    ]
    for header in forged:
        for path in ("/v1/tools", "/v1/audit", "/metrics", "/mcp"):
            answer = await asked(header, path)
            assert (answer.status, answer.data["code"]) == (401, "UNAUTHORIZED"), (header, path)
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert (await asked(token, "/v1/audit")).status == 403, "whoever is let in is no admin by that"


async def test_attack_a_key_that_is_revoked_opens_nothing_any_more(served: Program) -> None:
    agent = await served.key("fired")
    assert (await served.get("/v1/tools", agent)).status == 200
    await served.revoke(agent)
    async with asyncio.timeout(20):  # five seconds, and what a busy machine adds
        while (await served.get("/v1/tools", agent)).status != 401:
            await asyncio.sleep(0.1)


# --- 33: pages and names -------------------------------------------------------------------------


async def test_attack_a_page_or_a_name_from_elsewhere_reaches_no_door(served: Program) -> None:
    agent = await served.key("browser")
    body = json.dumps({"arguments": {"to": "page"}}).encode()
    doors = [
        ("POST", "/v1/tools/pay:call", body),
        ("POST", "/mcp", b"{}"),
        ("GET", "/v1/tools", None),
        ("GET", "/healthz", None),
        ("OPTIONS", "/v1/tools/pay:call", None),
    ]
    for headers in (
        {"host": "evil.example"},
        {"host": f"evil.example:{served.port}"},
        {"host": "127.0.0.1.evil.example"},
        {"host": ""},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1.evil.example"},
        {"origin": f"http://evil.example:{served.port}", "host": f"evil.example:{served.port}"},
    ):
        for method, path, sent in doors:
            kind = {"content-type": "application/json"}
            answer = await served.ask(method, path, sent, {**agent, **kind, **headers})
            assert answer.status in (400, 403), (headers, path)
            assert "access-control-allow-origin" not in answer.headers
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await served.ask(
            "POST", "/v1/tools/pay:call", body, {**agent, "content-type": kind}
        )
        assert answer.status == 415, "what a form can send without being asked"
    assert "paid page" not in served.done
