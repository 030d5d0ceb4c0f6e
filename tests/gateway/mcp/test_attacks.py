"""Attacks on ``/mcp`` of a real ``toolpost serve`` whose callers have keys, by their numbers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.mcp.running import HANDSHAKE, call_of, envelope, gateway, headers_for, post
from tests.gateway.program import CONFIG, Program, program, until
from tests.gateway.running import Answer
from tests.gateway.test_attacks import running

pytestmark = pytest.mark.anyio
MORE = """
[[sources]]
kind = "modules"
modules = ["tests.gateway.mcp.asking_tools"]

[gateway.auth]
keys = true

[gateway.mcp]
patience = 30
"""
FORMS = {"elicitation": {"form": {}}}
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": HANDSHAKE,
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
EARLIER = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": HANDSHAKE,
}
LATE = 0.5
Header = dict[str, str]


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Program]:
    folder = tmp_path_factory.mktemp("attacks")
    gateway = {"body_time": LATE, "access_log": False, "calls_each": 1000, "half_open": 1000}
    async with program(folder, config=CONFIG + MORE, **gateway) as made:
        yield made


def later(method: str, name: str) -> Header:
    """The headers of a request of the later revision."""
    return {key.lower(): value for key, value in headers_for(method, name).items()}


async def ask(
    served: Program, method: str, name: str, params: Any, key: Header, can: Any = None
) -> Answer:
    message = {"jsonrpc": "2.0", "id": 1, "method": method}
    message["params"] = {**params, "_meta": envelope(can)}
    return await served.post("/mcp", message, {**later(method, name), **key})


async def call(
    served: Program, name: str, given: Any, key: Header, can: Any = None, **more: Any
) -> Answer:
    params = {**call_of(name, given)["params"], **more}
    return await ask(served, "tools/call", name, params, key, can)


def told(answer: Answer) -> Any:
    """Of a call that failed: what the error says."""
    return answer.data["result"]["_meta"]["toolpost/error"]


async def test_attack_8_a_flood_of_calls_admits_110_and_nobody_is_left_without_an_answer(
    served: Program,
) -> None:
    key, codes = await served.key("flood"), Counter[str]()
    many, admitted = 300, 110

    async def one(number: int) -> None:
        answer = await call(served, "held", {"number": number}, key)
        assert "result" in answer.data, answer
        failed = "isError" in answer.data["result"]
        codes[told(answer)["code"] if failed else "ok"] += 1
        if codes.total() == many - admitted:
            assert set(codes) == {"QUEUE_FULL"}
            (served.folder / "go").touch()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(many):
            group.create_task(one(number))
    assert codes == {"ok": admitted, "QUEUE_FULL": many - admitted}


async def test_attack_9_who_does_not_send_what_was_promised_holds_up_nobody(
    served: Program,
) -> None:
    key = await served.key("slow")
    headers = {**later("tools/call", "echo"), **key, "host": served.host}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST /mcp HTTP/1.1\r\n{lines}Content-Length: 1000\r\n\r\n{{".encode()
    slow = [await asyncio.open_connection(served.host, served.port) for _ in range(50)]
    for _, writer in slow:
        writer.write(head)
    assert "isError" not in (await call(served, "echo", {"value": 1}, key)).data["result"]
    async with asyncio.timeout(20):
        for reader, writer in slow:
            assert b" 408 " in await reader.read()
            writer.close()


@pytest.mark.parametrize("way", ["by hand", "by the SDK", "in a session"])
async def test_attack_10_a_client_goes_and_the_processes_of_its_call_go_with_it(
    served: Program, way: str
) -> None:
    key = await served.key("leaver")
    seconds = 80 + len(way) + 0.125
    message = call_of("sleep", {"seconds": seconds})
    headers = later("tools/call", "sleep")
    if way == "by the SDK":
        headers["accept"] = "*/*"
    elif way == "in a session":
        headers = {**EARLIER, **await _session(served, key)}
        message["params"].pop("_meta")
    asked = asyncio.create_task(served.post("/mcp", message, {**headers, **key}))
    mark = f"sleep\0{seconds}"
    await until(lambda: running(mark))
    asked.cancel()  # closes the connection
    await asyncio.wait([asked])
    await until(lambda: not running(mark), 10)


async def _session(served: Program, key: Header) -> Header:
    opened = await served.post("/mcp", GREETING, {**EARLIER, **key})
    assert opened.status == 200
    return {"mcp-session-id": opened.headers["mcp-session-id"]}


DEEP = '{"a":' * 5_000 + "1" + "}" * 5_000
BOMBS = {
    "deep": DEEP,
    "deep arguments": json.dumps(call_of("echo", {"value": 0})).replace('"value": 0', DEEP[1:-1]),
    "wide": "[" * 200_000,
    "long number": '{"id":' + "9" * 100_000 + "}",
    "exponent": '{"jsonrpc":"2.0","id":1e999999,"method":"ping"}',
    "nan": '{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
    "twice": '{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}',
    "half a character": '{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
    "batch": json.dumps([call_of("echo", {"value": 1})] * 1000),
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_attack_20_a_bomb_of_json_is_refused_and_breaks_nothing(
    served: Program, bomb: str
) -> None:
    key = await served.key("bomber")
    for headers in (later("tools/call", "echo"), EARLIER):
        answer = await served.post("/mcp", BOMBS[bomb].encode(), {**headers, **key})
        assert 400 <= answer.status < 500
        assert answer.data["error"]["message"]
    assert (await call(served, "echo", {"value": 1}, key)).status == 200


async def test_attack_28_a_state_or_a_yes_is_for_one_call_of_one_caller_once(
    served: Program,
) -> None:
    mine, other = await served.key("mine", user="ann"), await served.key("other", user="eve")
    said = {"inputResponses": {"name": {"action": "accept", "content": {"name": "Ann"}}}}
    first = (await call(served, "greet", {}, mine, FORMS)).data["result"]
    state = first["requestState"]
    body, _, seal = state.partition(".")
    spelt = [f"{body}.{seal}\n", f"{body}.{seal.rstrip('=')}", f" {state}", f"{body}=.{seal}"]
    for stolen, key in ((state, other), *((one, mine) for one in spelt)):
        refused = await call(served, "greet", {}, key, FORMS, requestState=stolen, **said)
        assert (refused.status, refused.data["error"]["code"]) == (400, -32602)
    used = await call(served, "greet", {}, mine, FORMS, requestState=state, **said)
    assert used.data["result"]["content"][0]["text"].startswith("Hello, Ann")
    replayed = await call(served, "greet", {}, mine, FORMS, requestState=state, **said)
    assert replayed.data["error"]["data"] == {"reason": "invalid_request_state"}

    asked = (await call(served, "wire", {"amount": 7}, mine, FORMS)).data["result"]
    yes = {"inputResponses": {"approval": {"action": "accept", "content": {"approve": True}}}}
    later = {"requestState": asked["requestState"], **yes}
    for amount, key in ((7, other), (8, mine)):
        refused = await call(served, "wire", {"amount": amount}, key, FORMS, **later)
        assert refused.data["error"]["code"] == -32602
    no = {"inputResponses": {"approval": {"action": "decline"}}}
    taken = await call(
        served, "wire", {"amount": 7}, mine, FORMS, requestState=asked["requestState"], **no
    )
    assert told(taken)["code"] == "APPROVAL_DENIED"
    late = await call(served, "wire", {"amount": 7}, mine, FORMS, **later)
    assert told(late)["code"] == "APPROVAL_DENIED"
    assert "wired 7" not in served.done


async def test_attack_29_what_is_another_s_is_not_there_and_both_are_on_record(
    served: Program,
) -> None:
    mine, other = await served.key("owner", user="bob"), await served.key("nosy", user="eve")
    session = await _session(served, mine)
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    for key, status in ((other, 404), (mine, 200)):
        found = await served.post("/mcp", listing, {**EARLIER, **session, **key})
        assert found.status == status
    begun = (await call(served, "sign", {}, mine, {**FORMS, **TASKS})).data["result"]
    task = {"taskId": begun["taskId"]}
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        refused = await ask(served, method, begun["taskId"], task, other, TASKS)
        assert refused.data["error"]["code"] == -32602
        assert "bob" not in refused.body.decode()
    still = await ask(served, "tasks/get", begun["taskId"], task, mine, TASKS)
    assert still.data["result"]["status"] in ("working", "input_required")
    await ask(served, "tasks/cancel", begun["taskId"], task, mine, TASKS)
    on_record = str([one for one in await served.audited() if begun["taskId"] in str(one)])
    assert "eve" in on_record
    assert "bob" in on_record


@pytest.mark.req("NA-3")
async def test_attack_29_without_a_key_that_is_good_there_is_nothing(served: Program) -> None:
    good = await served.key("good")
    fired = await served.key("fired")
    scoped = await served.key("scoped", tools=["echo"])
    assert (await call(served, "echo", {"value": 1}, fired)).status == 200
    await served.revoke(fired)
    secret = good["authorization"]
    session = await _session(served, good)
    bad = [{}, {"authorization": secret[:-1]}, {"authorization": f"{secret}x"}, fired]
    async with asyncio.timeout(20):  # a key that is revoked elsewhere is forgotten in seconds
        while (await call(served, "echo", {}, fired)).status != 401:
            await asyncio.sleep(0.1)
    for key in bad:
        for method, headers in (("POST", EARLIER), ("GET", EARLIER), ("DELETE", EARLIER)):
            body = json.dumps(GREETING).encode() if method == "POST" else None
            answer = await served.ask(method, "/mcp", body, {**headers, **session, **key})
            assert (answer.status, answer.data["code"]) == (401, "UNAUTHORIZED")
        assert (await call(served, "echo", {}, key)).status == 401
    hidden = await call(served, "where", {}, scoped)
    assert hidden.data["error"]["code"] == -31004
    assert secret.split(" ")[1] not in (served.folder / "stderr").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{}", '"jsonrpc" must be "2.0"'),
        (b"null", "it must be a JSON object"),
        (b'{"jsonrpc": "2.0", "id": 1}', '"method" is missing'),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', '"method" must be a text'),
    ],
)
async def test_what_is_no_message_of_mcp_is_told_what_one_looks_like(
    tmp_path: Path, body: bytes, why: str
) -> None:
    async with gateway([], tmp_path) as served:
        answer = await post(served.url, body, {"Content-Type": "application/json"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == -32600
    assert error["message"].startswith(f"This is not a message of MCP: {why}. Clients of MCP send")
    assert "/v1/tools/NAME:call" in error["message"]
