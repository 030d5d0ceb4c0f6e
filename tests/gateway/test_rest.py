"""The REST door: what each route answers, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateway_tools import ALL, MARKS, until
from tests.gateway.running import Answer, Running, events, serving
from toolpost import Caller, Limits, Result, tool
from toolpost.approvals import Decision
from toolpost.codes import STATUS
from toolpost.errors import BY_CODE
from toolpost.exporters import FORMATS, export
from toolpost.failure import failure
from toolpost.gateway.problems import problem

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder = tmp_path_factory.mktemp("rest")
    settings = {"extensions": {"artifacts": {"soft": 100_000}}}
    async with serving(folder, *ALL, settings=settings, jobs=True) as running:
        yield running


# --- tools -------------------------------------------------------------------------------------


async def test_the_tools_are_listed_by_name_a_page_at_a_time(served: Running) -> None:
    names, after = [], ""
    for _ in range(20):
        page = (await served.get(f"/v1/tools?limit=3{after}")).data
        names += [one["name"] for one in page["tools"]]
        if "next" not in page:
            break
        after = f"&after={page['next']}"
    assert names == sorted(one.spec.name for one in ALL)


async def test_a_listing_is_narrowed_by_what_the_query_says(served: Running) -> None:
    found = (await served.get("/v1/tools?tier=0&kind=python&category=other")).data["tools"]
    assert [one["name"] for one in found] == ["add", "count", "echo", "fail", "wait"]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("limt=3", "The query has no 'limt'; did you mean 'limit'?"),
        ("limit=0", "limit: must be 1 to 1000."),
        ("limit=9999", "limit: must be 1 to 1000."),
        ("limit=x", "limit: must be a whole number"),
        ("limit=1&limit=2", "limit is in the query twice"),
        ("tier=7", "tier: must be 0 to 4."),
        ("tag=", "tag: must have 1 to 255"),
        ("format=xml", f"There is no format 'xml'; there are: {', '.join(FORMATS)}."),
        ("format=mcp&strict=yes", "strict: must be true or false."),
    ],
)
async def test_a_query_that_is_not_understood_is_refused(
    served: Running, query: str, told: str
) -> None:
    answer = await served.get(f"/v1/tools?{query}")
    assert answer.status == 400
    assert told in answer.data["detail"]


@pytest.mark.req("FG-5", "UX-2")
@pytest.mark.parametrize("form", FORMATS)
async def test_the_tools_are_given_in_the_form_of_a_vendor(served: Running, form: str) -> None:
    answer = await served.get(f"/v1/tools?format={form}&strict=true&tier=0")
    specs = sorted((one.spec for one in ALL if one.spec.tier == 0), key=lambda spec: spec.name)
    assert answer.data == export(specs, form, strict=True).data()
    again = await served.get(f"/v1/tools?format={form}&strict=true&tier=0")
    assert again.data == answer.data
    fewer = (await served.get(f"/v1/tools?format={form}&limit=2")).data
    assert list(fewer["names"].values()) == sorted(one.spec.name for one in ALL)[:2]
    found = (await served.get(f"/v1/tools?format={form}&search=add+numbers&limit=1")).data
    assert list(found["names"].values()) == ["add"]


async def test_one_tool_is_shown_without_what_runs_it(served: Running) -> None:
    shown = (await served.get("/v1/tools/add")).data
    assert shown["name"] == "add"
    assert "binding" not in shown
    missing = await served.get("/v1/tools/ad")
    assert (missing.status, missing.data["code"]) == (404, "NOT_FOUND")
    assert "did you mean 'add'?" in missing.data["detail"]


# --- calls -------------------------------------------------------------------------------------


async def test_a_call_gives_back_its_result(served: Running) -> None:
    answer = await served.call("add", {"a": 1, "b": 2})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    result = Result.from_dict(answer.data)
    assert (answer.data["success"], result.output) == (True, 3)


async def test_a_failure_is_a_problem_with_its_code_and_remedy(served: Running) -> None:
    answer = await served.call("add", {"a": "x"})
    assert (answer.status, answer.headers["content-type"]) == (422, "application/problem+json")
    body = answer.data
    call_id = body["metadata"]["call_id"]
    assert (body["code"], body["remedy"], body["status"]) == ("VALIDATION_ERROR", "fix_args", 422)
    assert body["instance"] == f"/v1/calls/{call_id}"
    assert answer.headers["toolpost-call-id"] == call_id
    assert "Missing required parameter: b" in body["detail"]


async def test_every_code_has_the_status_of_the_one_table() -> None:
    for code, kind in BY_CODE.items():
        error = failure(kind("no", retry_after=1.5), tool="t", call_id="", effects="once")
        status, _ = problem(error, instance=None)
        assert status == STATUS[error.code].http, code


async def test_an_unknown_tool_and_an_unknown_address_are_not_found(served: Running) -> None:
    for answer in (await served.call("nothing"), await served.get("/v2")):
        assert (answer.status, answer.data["code"]) == (404, "NOT_FOUND")
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_method_that_is_not_for_an_address_says_which_are(served: Running) -> None:
    answer = await served.get("/v1/tools/add:call")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


async def test_what_a_tool_tells_comes_as_events(served: Running) -> None:
    answer = await served.call("count", {"to": 3}, {"accept": "text/event-stream"})
    assert answer.headers["content-type"] == "text/event-stream"
    told = events(answer.body)
    assert told[0][0] == "call"
    pieces = [data["output"] for name, data in told if name == "partial"]
    assert "".join(pieces) == "0 1 2 "
    last = [data for name, data in told if name == "progress"][-1]
    assert last == {"done": 2, "total": 3, "message": "counting"}
    name, result = told[-1]
    assert (name, result["output"]) == ("result", "done")
    assert result["metadata"]["call_id"] == told[0][1]["call_id"]


async def test_a_call_that_is_refused_at_once_has_its_status_instead_of_a_stream(
    served: Running,
) -> None:
    answer = await served.call("add", {}, {"accept": "text/event-stream"})
    assert (answer.status, answer.data["code"]) == (422, "VALIDATION_ERROR")


async def test_the_same_call_with_the_same_key_runs_once(served: Running) -> None:
    key = {"idempotency-key": '"payment-1"'}
    first, again = [await served.call("pay", {"amount": 11}, key) for _ in range(2)]
    assert (first.status, again.status) == (200, 200)
    assert MARKS.count("paid 11") == 1
    other = await served.call("pay", {"amount": 12}, key)
    assert (other.status, other.data["code"]) == (409, "CONFLICT")


@pytest.mark.parametrize("key", ["", "x" * 300, "schlüssel"])
async def test_a_key_that_is_none_is_refused(served: Running, key: str) -> None:
    answer = await served.call("pay", {"amount": 1}, {"idempotency-key": key})
    assert answer.status == 400
    assert "Idempotency-Key" in answer.data["detail"]


async def test_a_plan_does_nothing(served: Running) -> None:
    answer = await served.post("/v1/tools/pay:plan", {"arguments": {"amount": 99}})
    assert answer.status == 200
    assert answer.data["metadata"]["plan"]["tool"] == "pay"
    assert "paid 99" not in MARKS


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"argumens": {}}, "is not known here; did you mean 'arguments'?"),
        ({"arguments": None}, "/arguments: must be an object, not null."),
        ({"arguments": [1]}, "/arguments: must be an object, not array."),
        ({"arguments": {}, "timeout": 0}, "/timeout: must be a number of seconds"),
        ({"arguments": {}, "timeout": True}, "/timeout: must be a number of seconds"),
        ({"arguments": {}, "session_id": ""}, "/session_id: must be a text"),
        ({"arguments": {}, "grant": 5}, "/grant: must be a text"),
    ],
)
async def test_what_is_wrong_with_a_body_is_named(
    served: Running, body: dict[str, Any], told: str
) -> None:
    answer = await served.post("/v1/tools/echo:call", body)
    assert answer.status == 422
    assert told in answer.data["detail"]


# --- stopping ----------------------------------------------------------------------------------


async def test_a_running_call_is_listed_and_stopped_by_its_id(served: Running) -> None:
    call = asyncio.create_task(served.call("wait", {"mark": "stopped"}))
    await until("stopped began")
    running = (await served.get("/v1/calls")).data["calls"]
    [call_id] = [one["call_id"] for one in running if one["tool"] == "wait"]
    assert (await served.ask("DELETE", f"/v1/calls/{call_id}")).status == 204
    answer = await call
    assert (answer.status, answer.data["code"]) == (499, "CANCELLED")
    assert answer.data["metadata"]["call_id"] == call_id
    assert "stopped was cancelled" in MARKS
    assert (await served.ask("DELETE", f"/v1/calls/{call_id}")).status == 404


async def test_a_streamed_call_is_stopped_by_its_id_and_says_so(served: Running) -> None:
    call = asyncio.create_task(
        served.call("wait", {"mark": "streamed"}, {"accept": "text/event-stream"})
    )
    await until("streamed began")
    [one] = (await served.get("/v1/calls")).data["calls"]
    assert (await served.ask("DELETE", f"/v1/calls/{one['call_id']}")).status == 204
    answer = await call
    if answer.status == 200:
        assert events(answer.body)[-1][1]["error"]["code"] == "CANCELLED"
    else:
        assert answer.data["code"] == "CANCELLED"


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_client_that_goes_takes_its_call_along(served: Running, accept: str) -> None:
    mark = f"left {accept}"
    call = asyncio.create_task(served.call("wait", {"mark": mark}, {"accept": accept}))
    await until(f"{mark} began")
    call.cancel()  # closes the connection
    await asyncio.gather(call, return_exceptions=True)
    await until(f"{mark} was cancelled")


# --- approvals ---------------------------------------------------------------------------------


async def test_whoever_asked_does_not_approve_by_the_way_they_asked(served: Running) -> None:
    asked = await served.call("wire", {"amount": 5})
    assert (asked.status, asked.data["code"]) == (428, "APPROVAL_REQUIRED")
    handle = asked.data["details"]["approval"]
    shown = (await served.get(f"/v1/approvals/{handle}")).data
    assert (shown["status"], shown["arguments"]) == ("waiting", {"amount": 5})
    listed = (await served.get("/v1/approvals")).data["approvals"]
    assert handle in [one["handle"] for one in listed]
    refused = await served.post(f"/v1/approvals/{handle}:approve", {})
    assert (refused.status, refused.data["code"]) == (403, "POLICY_DENIED")
    waiting = await served.ask("POST", f"/v1/approvals/{handle}:resume")
    assert waiting.status == 428
    denied = await served.post(f"/v1/approvals/{handle}:deny", {"reason": "not now"})
    assert (denied.status, denied.data["status"]) == (200, "denied")
    ended = await served.ask("POST", f"/v1/approvals/{handle}:resume")
    assert (ended.status, ended.data["code"]) == (403, "APPROVAL_DENIED")
    assert "not now" in ended.data["detail"]


@pytest.mark.parametrize("way", ["call", "grant", "resume"])
async def test_an_approved_call_whose_answer_was_lost_is_repeated_by_its_key(
    served: Running, way: str
) -> None:
    amount, key = {"call": 71, "grant": 72, "resume": 73}[way], {"idempotency-key": f"lost-{way}"}
    asked = await served.call("wire", {"amount": amount}, key)
    handle = asked.data["details"]["approval"]
    desk = served.runtime.extension("approval").approvals
    yes, owner = Decision(approve=True), Caller("owner", owner=True)
    await desk.decide(handle, yes, by=owner, channel="terminal")

    async def again() -> Answer:
        if way == "resume":
            return await served.ask("POST", f"/v1/approvals/{handle}:resume", b"{}", key)
        more = {"grant": handle} if way == "grant" else {}
        return await served.call("wire", {"amount": amount}, key, **more)

    lost, found = await again(), await again()
    assert lost.data["output"] == found.data["output"] == f"wired {amount}"
    assert found.data["metadata"]["cached"] is True
    assert MARKS.count(f"wired {amount}") == 1
    other = await served.call("wire", {"amount": 1}, key)
    assert (other.status, other.data["code"]) == (409, "CONFLICT")


async def test_an_approval_that_is_not_there_is_not_found(served: Running) -> None:
    for method, path in (
        ("GET", "/v1/approvals/ap-00000000000000000000"),
        ("POST", "/v1/approvals/nonsense:approve"),
        ("POST", "/v1/approvals/nonsense:resume"),
    ):
        assert (await served.ask(method, path)).status == 404


# --- jobs and artifacts ------------------------------------------------------------------------


async def test_a_call_that_is_not_waited_for_becomes_a_job(served: Running) -> None:
    answer = await served.call("add", {"a": 2, "b": 3}, {"prefer": "respond-async"})
    assert (answer.status, answer.headers["preference-applied"]) == (202, "respond-async")
    where = answer.headers["location"]
    assert where == f"/v1/jobs/{answer.data['id']}"
    told = events((await served.get(where, {"accept": "text/event-stream"})).body)
    assert told[-1][0] == "job"
    assert told[-1][1]["result"]["output"] == 5
    shown = (await served.get(where)).data
    assert (shown["state"], shown["result"]["output"]) == ("succeeded", 5)
    listed = (await served.get("/v1/jobs?state=succeeded")).data["jobs"]
    assert answer.data["id"] in [one["id"] for one in listed]


async def test_a_job_is_stopped_by_its_id(served: Running) -> None:
    answer = await served.call("wait", {"mark": "job"}, {"prefer": "respond-async"})
    await until("job began")
    ended = await served.ask("DELETE", answer.headers["location"])
    assert (ended.status, ended.data["state"]) == (200, "cancelled")
    assert (await served.get("/v1/jobs/nothing")).status == 404


async def test_a_large_output_is_read_in_ranges(served: Running) -> None:
    text = "".join(map(str, range(60_000)))
    answer = await served.call("echo", {"value": text})
    artifact = answer.data["metadata"]["artifacts"][0]
    about = (await served.get(f"/v1/artifacts/{artifact['handle']}")).data
    assert about["size"] == len(text)
    path = f"/v1/artifacts/{artifact['handle']}/content"
    whole = await served.get(path)
    assert (whole.status, whole.body.decode()) == (200, text)
    piece = await served.get(path, {"range": "bytes=1000-1999"})
    assert (piece.status, piece.body.decode()) == (206, text[1000:2000])
    assert piece.headers["content-range"] == f"bytes 1000-1999/{len(text)}"
    tail = await served.get(path, {"range": "bytes=-5"})
    assert tail.body.decode() == text[-5:]
    beyond = await served.get(path, {"range": f"bytes={len(text)}-"})
    assert (beyond.status, beyond.headers["content-range"]) == (416, f"bytes */{len(text)}")


async def test_what_is_refused_is_said_in_whole_sentences(served: Running) -> None:
    nowhere = await served.get("/.well-known/oauth-protected-resource")
    assert (nowhere.status, nowhere.data["code"]) == (404, "NOT_FOUND")
    misspelt = await served.post("/v1/tools/add:call", {"argumens": {}})
    assert misspelt.data["detail"].endswith("did you mean 'arguments'?")
    two = await served.post("/v1/tools/add:call", b"{} {}")
    assert "only one value can stand here" in two.data["detail"]


# --- audit, health -----------------------------------------------------------------------------


async def test_the_audit_is_searched_shown_and_proved(served: Running) -> None:
    call_id = (await served.call("pay", {"amount": 7})).data["metadata"]["call_id"]
    async with asyncio.timeout(20):
        while call_id not in str((await served.get("/v1/audit?tool=pay&code=OK")).data["calls"]):
            await asyncio.sleep(0.02)
    assert (await served.get(f"/v1/audit/{call_id}")).data["tool"] == "pay"
    assert (await served.post("/v1/audit:verify", {})).data["ok"] is True
    assert (await served.get("/v1/audit/nothing")).status == 404
    assert (await served.get("/v1/audit?since=yesterday")).status == 400
    assert (await served.get("/v1/audit?until=1577836800")).data == {"calls": []}


@pytest.mark.req("NA-1")
async def test_health_says_how_every_source_backend_and_store_is(served: Running) -> None:
    assert (await served.get("/healthz")).data == {"alive": True}
    ready = await served.get("/readyz")
    assert (ready.status, ready.data["ready"], ready.data["degraded"]) == (200, True, False)
    parts = ready.data["parts"]
    assert parts["store"] == {"healthy": True}
    assert parts["backend python"] == {"healthy": True}
    assert "lock" in parts


@pytest.mark.req("NA-1")
async def test_a_source_that_keeps_its_last_good_tools_is_degraded_and_serves(
    tmp_path: Path,
) -> None:
    specs = tmp_path / "tools.yaml"
    good = "- {name: one, description: One., kind: shell, binding: {command: printf hello}}\n"
    specs.write_text(good, encoding="utf-8")
    sources = [{"kind": "files", "paths": ["tools.yaml"]}]
    async with serving(tmp_path, settings={"sources": sources}) as served:
        specs.write_text("- {name: one", encoding="utf-8")
        await served.runtime.reload()
        ready = await served.get("/readyz")
        assert (ready.status, ready.data["ready"], ready.data["degraded"]) == (200, True, True)
        assert "tools.yaml:" in ready.data["parts"]["source 1 (files)"]["error"]
        assert [one["name"] for one in (await served.get("/v1/tools")).data["tools"]] == ["one"]
        specs.write_text(good.replace("one", "two"), encoding="utf-8")
        await served.runtime.reload()
        assert [one["name"] for one in (await served.get("/v1/tools")).data["tools"]] == ["two"]


async def test_an_issuer_whose_keys_cannot_be_had_is_said_to_be_wrong(tmp_path: Path) -> None:
    nobody = {"issuer": "http://127.0.0.1:9", "audience": "tools", "timeout": 1.0}
    auth = {"keys": True, "issuers": {"corp": nobody}}
    async with serving(tmp_path, *ALL, auth=auth) as served:
        ready = await served.get("/readyz")
        assert (ready.status, ready.data["ready"], ready.data["degraded"]) == (200, True, True)
        assert ready.data["parts"]["issuer corp"] == {"healthy": False}, "not for everybody: why"


async def test_where_no_audit_is_kept_nothing_is_said_to_be_proved(tmp_path: Path) -> None:
    async with serving(tmp_path, *ALL, settings={"observers": []}) as served:
        for answer in (
            await served.post("/v1/audit:verify", {}),
            await served.get("/v1/audit"),
            await served.get("/v1/audit/some"),
        ):
            assert (answer.status, answer.data["code"]) == (503, "UNAVAILABLE")
            assert "no ring 'audit' is in force" in answer.data["detail"]


async def test_metrics_are_text_for_prometheus(served: Running) -> None:
    await served.call("add", {"a": 1, "b": 1})
    answer = await served.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b'toolpost_calls_total{tool="add"}' in answer.body


async def test_a_job_is_accepted_and_a_call_planned_though_every_slot_is_taken(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()

    @tool(tier=0, effects="read", timeout=60, limits=Limits(concurrency=1, queue=0))
    async def hold(name: str) -> str:
        """Hold on until it is told to go on."""
        await go.wait()
        return name

    async with serving(tmp_path, hold, jobs=True) as one, asyncio.timeout(50):
        first = (await one.call("hold", {"name": "0"}, {"prefer": "respond-async"})).data
        while (await one.get(f"/v1/jobs/{first['id']}")).data["state"] != "running":
            await asyncio.sleep(0.01)
        later = [
            await one.call("hold", {"name": str(n)}, {"prefer": "respond-async"})
            for n in range(1, 4)
        ]
        assert [answer.status for answer in later] == [202] * 3
        planned = await one.post("/v1/tools/hold:plan", {"arguments": {"name": "x"}})
        assert (planned.status, planned.data["metadata"]["plan"]["tool"]) == (200, "hold")
        states = [
            (await one.get(f"/v1/jobs/{answer.data['id']}")).data["state"] for answer in later
        ]
        assert states == ["queued"] * 3
        busy = await one.call("hold", {"name": "y"})
        assert b"QUEUE_FULL" in busy.body
        go.set()
        for answer in later:
            while (done := (await one.get(f"/v1/jobs/{answer.data['id']}")).data)["state"] in (
                "queued",
                "running",
            ):
                await asyncio.sleep(0.01)
            assert done["state"] == "succeeded"


async def test_arguments_without_their_wrapper_are_told_where_they_belong(served: Running) -> None:
    answer = await served.post("/v1/tools/add:call", {"a": 1, "b": 2})
    assert answer.status == 422
    assert answer.data["detail"] == (
        '/a: is not known here; put what the tool takes into "arguments": '
        '{"arguments": {"a": …, "b": …}}'
    )
    typo = await served.post("/v1/tools/add:call", {"argumets": {"a": 1}})
    assert "did you mean 'arguments'?" in typo.data["detail"]


async def test_a_parameter_that_is_spelled_like_a_field_is_still_told_where_it_belongs(
    tmp_path: Path,
) -> None:
    @tool
    async def evaluate(expression: str) -> str:
        """Evaluate an expression."""
        return expression

    async with serving(tmp_path, evaluate) as running:
        bare = await running.post("/v1/tools/evaluate:call", {"expression": "1+1"})
        assert bare.data["detail"].endswith('into "arguments": {"arguments": {"expression": …}}')
        typo = await running.post("/v1/tools/evaluate:call", {"sesion_id": "x"})
        assert typo.data["detail"].endswith("did you mean 'session_id'?")
