"""The runner of the Nachos contract: whatever is sent, an answer in its envelope comes back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.backends.http.service import Reply, serving
from tests.bridges.test_nachos import Echo
from toolpost import Caller, Config, Executor, Registry, Runtime
from toolpost.bridges.nachos import (
    BrowserTool,
    CalculatorTool,
    SecurityTier,
    ToolConfig,
    ToolRunner,
    tools,
)
from toolpost.builtin.browser.program import chromium
from toolpost.call import OWNER
from toolpost.errors import Unavailable
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import calls

pytestmark = pytest.mark.anyio
IDS = {"sessionId": "s-1", "callId": "c-1"}


def request(**payload: Any) -> dict[str, Any]:
    return {
        "id": "r-1",
        "timestamp": "2026-11-16T09:00:00.000Z",
        "source": "gateway",
        "type": "tool.request",
        "payload": {**IDS, **payload},
    }


@pytest.fixture
async def runner() -> AsyncIterator[ToolRunner]:
    async with Executor(Registry(tools(CalculatorTool()))) as executor:
        yield ToolRunner(CalculatorTool(), executor)


@pytest.mark.req("NA-4", "NA-5")
async def test_a_request_is_answered_in_the_documented_envelope(runner: ToolRunner) -> None:
    assert runner.subject == "nachos.tool.calculator.request"
    sent = json.dumps(request(expression="10 * (5 + 3)"))
    for form in (sent, sent.encode(), bytearray(sent.encode()), json.loads(sent)):
        answer = await runner.handle(form)
        assert json.loads(json.dumps(answer)) == answer
        assert list(answer) == ["id", "timestamp", "source", "type", "correlationId", "payload"]
        assert UUID(answer.pop("id")).version == 4
        moment = answer.pop("timestamp")
        assert moment.endswith("Z")
        assert datetime.fromisoformat(moment).utcoffset() == timedelta(0)
        assert answer["payload"].pop("metadata")["duration"] >= 0
        assert answer == {
            "source": "calculator",
            "type": "tool.response",
            "correlationId": "r-1",
            "payload": {
                "success": True,
                "result": {"expression": "10 * (5 + 3)", "answer": 80},
            },
        }


@pytest.mark.req("NA-4", "NA-10")
@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"", "request"),
        (b"\xff\xfe", "UTF-8"),
        (b"{", "request"),
        (b"[]", "an object"),
        (b'{"id": "1", "id": "2", "payload": {}}', "request"),
        (b"[" * 100_000, "request"),
        (b" " * 5_000_000, "bytes"),
        (b'{"id": "1"}', "payload"),
        (b'{"payload": {}}', "id"),
        (b'{"id": "", "payload": {}}', "id"),
        (b'{"id": 5, "payload": {}}', "id"),
        (b'{"id": "1", "payload": []}', "payload"),
        (b'{"id": "1", "payload": {"sessionId": "s", "expression": "1"}}', "payload.callId"),
        (b'{"id": "1", "payload": {"callId": "c", "expression": "1"}}', "payload.sessionId"),
        (b'{"id": "1", "payload": {"callId": "c", "sessionId": 1}}', "payload.sessionId"),
        ({"id": "x" * 10_000, "payload": {}}, "id"),
        ({"id": "\ud800", "payload": {}}, "id"),
        ({**request(expression="1"), "type": "tool.response"}, "type"),
        (request(), "expression"),
        (request(expression=5), "expression"),
        (request(expression="evil()"), "numbers and operators"),
        (None, "an object"),
        (7, "an object"),
    ],
)
async def test_a_request_that_is_none_is_refused_with_what_is_wrong(
    runner: ToolRunner, sent: Any, words: str
) -> None:
    answer = await runner.handle(sent)
    assert answer["type"] == "tool.response"
    payload = answer["payload"]
    assert (payload["success"], payload["error"]["code"]) == (False, "VALIDATION_ERROR")
    assert words in payload["error"]["message"]
    assert len(json.dumps(answer)) < 2000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    st.binary()
    | JSON
    | st.dictionaries(st.sampled_from(("id", "type", "payload")), JSON)
    | st.fixed_dictionaries(
        {
            "id": st.text(),
            "payload": st.dictionaries(
                st.sampled_from(("sessionId", "callId", "expression")), st.text() | JSON
            ),
        }
    )
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_whatever_is_sent_is_answered(runner: ToolRunner, sent: Any) -> None:
    answer = await runner.handle(sent)
    payload = answer["payload"]
    assert payload["success"] is True or payload["error"]["code"] in (
        "VALIDATION_ERROR",
        "EXECUTION_ERROR",
    )


async def test_a_mapping_that_breaks_is_answered_without_internals(runner: ToolRunner) -> None:
    class Broken(dict[str, Any]):
        def get(self, *args: Any) -> Any:
            raise RuntimeError("/srv/private")

    answer = await runner.handle(Broken())
    assert answer["payload"]["error"] == {
        "code": "INTERNAL_ERROR",
        "message": "Internal tool error. See logs for details.",
    }


@pytest.mark.req("NA-4", "NA-10", "NA-12")
async def test_every_request_is_on_record_whatever_became_of_it(tmp_path: Path) -> None:
    echo = Echo()
    dangerous = Echo()
    dangerous.tool_id, dangerous.security_tier = "dangerous", SecurityTier.DANGEROUS
    config = Config.of({}, base=tmp_path)
    async with Runtime(config, tools=tools(echo, dangerous)) as runtime:
        runners = [ToolRunner(name, runtime) for name in ("echo", "dangerous", "nobody")]
        sent = [
            (runners[0], request(say=1)),
            (runners[0], request(say="nonsense")),
            (runners[1], request(say=1)),
            (runners[2], request()),
        ]
        answers = [(await runner.handle(one, OWNER))["payload"] for runner, one in sent]
    async with Runtime(config) as again:
        kept = [one async for one in calls(lines_of(again.store))]
    codes = ["OK", "VALIDATION_ERROR", "POLICY_DENIED", "NOT_FOUND"]
    assert [one.get("error", {}).get("code", "OK") for one in answers] == codes
    assert [(one.asked.tool, one.code) for one in kept] == list(
        zip(("echo", "echo", "dangerous", "nobody"), codes, strict=True)
    )
    assert len({one.asked.call_id for one in kept}) == 4, "one callId, and yet four calls"
    assert echo.seen == [{"say": 1, **IDS}], "the ids of the envelope reach the tool"
    assert dangerous.seen == []


@pytest.mark.req("NA-10")
async def test_who_sends_is_who_the_transport_says_and_not_the_envelope(tmp_path: Path) -> None:
    echo = Echo()
    echo.security_tier = SecurityTier.ELEVATED
    async with Runtime(Config.of({}, base=tmp_path), tools=tools(echo)) as runtime:
        runner = ToolRunner("echo", runtime)
        forged = {**request(say=1), "source": "owner", "caller": {"owner": True}}
        refused = await runner.handle(forged, Caller("agent-7", agent="agent-7"))
        anybody = await runner.handle(request(say=1))
        owner = await runner.handle(request(say=1), OWNER)
    for one in (refused, anybody):
        assert one["payload"]["error"]["code"] in ("POLICY_DENIED", "UNAUTHORIZED", "NOT_FOUND")
    assert owner["payload"]["success"]
    assert len(echo.seen) == 1


@pytest.mark.req("NA-1")
async def test_a_runner_tells_the_health_of_its_tool(tmp_path: Path) -> None:
    async with ToolRunner.open(Echo(), ToolConfig(base=tmp_path)) as runner:
        assert (await runner.health()).to_dict() == {
            "healthy": False,
            "error": "not at all well",
        }


PAGE = (
    "<title>Tea</title><h1>Tea &amp; cake</h1><p id=late></p><script>late.textContent=6*7</script>"
)


@pytest.mark.req("NA-8")
async def test_the_browser_navigates_takes_pictures_and_extracts() -> None:
    try:
        chromium(None)
    except Unavailable:
        pytest.skip("Chromium is not installed; as root, .ci/system-packages installs it")
    tool = BrowserTool()
    assert not tool.validate({**IDS, "url": "x", "action": "buy"}).valid
    async with serving(lambda _: Reply(PAGE, type="text/html")) as site:
        await tool.initialize(ToolConfig({"egress": [site.authority]}))
        try:
            assert (await tool.health_check()).healthy

            async def done(action: str, **more: Any) -> Any:
                given = {**IDS, "url": f"{site.url}/", "action": action, **more}
                result = await tool.execute(given)
                assert result.success, result.error
                return json.loads(json.dumps(result.to_dict()))["result"]

            opened = await done("navigate")
            assert opened == {"url": f"{site.url}/", "title": "Tea", "status": 200}
            found = await done("extract", selector="h1, #late")
            assert [one["text"] for one in found["items"]] == ["Tea & cake", "42"]
            assert "Tea & cake" in (await done("extract"))["items"][0]["text"]
            picture = await done("screenshot")
            assert (picture["width"], picture["height"]) == (1280, 800)
            assert picture["parts"][0]["data"].startswith("iVBOR")
            elsewhere = {**IDS, "url": "http://127.0.0.1:1/", "action": "navigate"}
            refused = (await tool.execute(elsewhere)).error
            assert refused is not None and refused.code == "POLICY_DENIED"
        finally:
            await tool.close()
