"""One table of bad JSON, held against every interface that parses what others have written."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.bus.house import bus
from tests.bus.test_door import door
from tests.gateway.gateway_tools import ALL
from tests.gateway.mcp.running import headers_for
from tests.gateway.program import CONFIG, program
from tests.gateway.running import Running, serving
from toolpost.backends.nats.calling import _answer_in, _opened
from toolpost.bridges.nachos.runner import _message, _Unfit
from toolpost.bus.embedded import Embedded
from toolpost.bus.ticket import _read
from toolpost.client.events import _event
from toolpost.document.strict import NotStrictJson, StrictDecoder, strict_json
from toolpost.errors import CallError, InvalidArguments, Unavailable
from toolpost.gateway.identity.credential import Rejected
from toolpost.gateway.identity.tokens import looked_at
from toolpost.loop.content import parse as parse_arguments
from toolpost.worker.reading import read_request

DEEP = b"[" * 100 + b"]" * 100
BAD_VALUES = {
    "a key twice": b'{"a": 1, "a": 2}',
    "a key twice, compactly": b'{"a":1,"a":1}',
    "a key twice, once escaped": b'{"a":1,"\\u0061":1}',
    "a key twice, far inside": b'[[{"b":{"a" :1,"c":":","a":2}}]]',
    "too deep": DEEP,
    "so deep that a parser gives up": b"[" * 50_000 + b"]" * 50_000,
    "not a number": b"NaN",
    "infinity": b"-Infinity",
    "a number out of range": b"1e999",
    "an integer too long": b"9" * 700,
    "half of a surrogate pair": b'"\\ud800"',
    "no UTF-8": b'"\xff"',
    "a surrogate in UTF-8": b'"\xed\xa0\x80"',
    "a control character": b'"a\nb"',
    "no value": b"",
    "a comma too many": b"[1,]",
    "single quotes": b"{'a': 1}",
    "a comment": b"1 // one",
}
"""What stands in the place of a value."""
BAD_WHOLES = {
    "nothing": b"",
    "another encoding": '{"a": 1}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "two values": b"{} {}",
    "a bracket that is not closed": b'{"a": [1',
}
ENVELOPE = b'{"id":"1","timestamp":"t","source":"s","type":"%b","correlationId":null,"payload":%b}'


def bodies(around: bytes) -> list[Any]:
    """Every bad body; a bad value stands where ``around`` has a ``%b``."""
    whole = [pytest.param(body, id=name) for name, body in BAD_WHOLES.items()]
    return whole + [pytest.param(around % value, id=name) for name, value in BAD_VALUES.items()]


@pytest.mark.parametrize("body", bodies(b'{"x":%b}'))
def test_the_parser_refuses_it_and_says_what_is_wrong(body: bytes) -> None:
    with pytest.raises(NotStrictJson) as refused:
        strict_json(body, "letter")
    assert str(refused.value).startswith("The letter ") and str(refused.value).endswith(".")
    for kind in (Any, dict[str, Any]):
        with pytest.raises(NotStrictJson):
            StrictDecoder[Any](kind).decode(body)


@pytest.mark.parametrize(
    "value",
    [2**64, -(10**638), 1.5, "\U0001f600", [], {}, {"a:b": ':":'}],
)
def test_what_is_right_is_exact(value: Any) -> None:
    for separators in ((",", ":"), (", ", " : ")):
        text = json.dumps({"x": value}, separators=separators).encode()
        assert strict_json(text) == {"x": value}
        assert StrictDecoder[Any](dict[str, Any]).decode(text) == {"x": value}


REQUEST = ENVELOPE % (
    b"tool.request",
    b'{"tool":"t","callId":"c","arguments":{"x":%b},"timeout":1.0}',
)


@pytest.mark.parametrize("body", bodies(REQUEST))
def test_a_worker_refuses_it(body: bytes) -> None:
    with pytest.raises(InvalidArguments, match="This is no request"):
        read_request(body, "t")


@pytest.mark.parametrize("body", bodies(ENVELOPE % (b"tool.response", b'{"output":%b}')))
def test_a_gateway_refuses_it_from_a_worker(body: bytes) -> None:
    assert _answer_in(body) is None
    with pytest.raises(Unavailable, match="unreadable"):
        _opened(body)


@pytest.mark.parametrize("body", bodies(b'{"x":%b}'))
def test_it_is_no_ticket_no_token_and_no_event(body: bytes) -> None:
    part = base64.urlsafe_b64encode(body).rstrip(b"=").decode()
    with pytest.raises(CallError, match="cannot be read"):
        _read(part)
    with pytest.raises(Rejected):
        looked_at(f"{part}.{part}.x")
    if b"\n" not in body and body:
        with pytest.raises(ValueError):
            _event(b"data: " + body)


@pytest.mark.parametrize("body", bodies(b'{"x":%b}'))
def test_the_bridge_on_the_bus_and_the_loop_refuse_it(body: bytes) -> None:
    with pytest.raises(_Unfit):
        _message(body)
    text = body.decode("utf-8", "surrogateescape")
    if text.strip():
        with pytest.raises(InvalidArguments):
            parse_arguments(text)


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with serving(tmp_path_factory.mktemp("strict"), *ALL) as running:
        yield running


@pytest.mark.anyio
@pytest.mark.parametrize("body", bodies(b'{"arguments":{"value":%b}}'))
async def test_rest_refuses_it(served: Running, body: bytes) -> None:
    answer = await served.post("/v1/tools/echo:call", body)
    assert (answer.status, answer.data["code"]) == (400, "VALIDATION_ERROR")


CALL = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"value":%b},'
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
)


@pytest.mark.anyio
async def test_mcp_refuses_it_over_http_and_on_stdio(tmp_path: Path) -> None:
    async with program(tmp_path, config=CONFIG) as served:
        for slow in ({}, {"accept": "*/*"}):
            for case in bodies(CALL):
                headers = {**headers_for("tools/call", "echo"), **slow}
                answer = await served.ask("POST", "/mcp", case.values[0], headers)
                assert answer.status == 400, case.id
                assert answer.data["error"]["code"] == -32700, case.id
    command = (sys.executable, "-m", "toolpost.cli.main", "mcp")
    child = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, stdin=-1, stdout=-1, stderr=-1,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        limit=2**22,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    try:
        async with asyncio.timeout(60):
            for case in bodies(CALL):
                if b"\n" in case.values[0] or not case.values[0]:
                    continue  # a line is a message
                child.stdin.write(case.values[0] + b"\n")
                told = json.loads(await child.stdout.readline())
                assert told["error"]["code"] == -32700, case.id
    finally:
        child.kill()
        await child.communicate()


@pytest.mark.anyio
async def test_nats_refuses_it(nats: Embedded, prefix: str, tmp_path: Path) -> None:
    async with door(nats, prefix, tmp_path) as (_, key, _), bus(nats, prefix) as client:
        connection = await client.client()
        headers = {"Authorization": f"Bearer {key}"}
        around = ENVELOPE % (b"call.request", b'{"tool":"who","arguments":{"x":%b}}')
        for case in bodies(around):
            answer = await connection.request(
                client.subjects.call, case.values[0], timeout=20, headers=headers
            )
            error = json.loads(answer.data)["payload"]["error"]
            assert error["code"] == "VALIDATION_ERROR", case.id
            assert "This is no call. The message " in error["message"], case.id
