"""Lists and calls, for clients of both eras, over HTTP and stdio, by hand and by the SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import jsonschema_rs
import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client, MCPError
from mcp_types import methods

from tests.gateway.mcp.running import Running, call, call_of, envelope, headers_for, post, serving
from toolpost import Caller, ToolFailed, tool
from toolpost.gateway.mcp.answers import answer_of
from toolpost.gateway.mcp.definitions import definition_of
from toolpost.gateway.mcp.settings import McpSettings
from toolpost.result import Audio, Image, Output, Resource, Result, Text
from toolpost.spec import ToolSpec

pytestmark = pytest.mark.anyio
Way = Callable[[Running], AbstractAsyncContextManager[Client]]


@tool(tier=0, effects="read", title="Sum")
async def add(a: int, b: int = 10) -> int:
    """Add two numbers."""
    return a + b


@tool(tier=3, effects="once")
async def describe(name: str) -> dict[str, Any]:
    """Describe somebody."""
    return {"name": name, "age": None}


@tool
async def greet(name: str):
    """Greet."""
    return f"Hello, {name}!"


@tool
async def fail(why: str) -> str:
    """Fail."""
    raise ToolFailed(why, details={"because": why})


@tool
async def pieces() -> Output:
    """Every kind of content."""
    return Output(
        parts=(
            Text("Look:"),
            Image(b"\x89PNG"),
            Audio(b"RIFF"),
            Resource("memo://1", "text/plain", "a memo"),
            Resource("memo://2", None, None, b"\0\1"),
            Resource("https://example.org/far", "text/html", name="far", description="Far away."),
        )
    )


TOOLS = [add, describe, greet, fail, pieces]


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with serving(TOOLS, tmp_path_factory.mktemp("tools")) as running:
        yield running


def over(mode: Literal["auto", "legacy"]) -> Way:
    @asynccontextmanager
    async def connected(running: Running) -> AsyncIterator[Client]:
        async with Client(running.url, mode=mode) as client:
            yield client

    return connected


@pytest.fixture(params=["auto", "legacy"])
async def client(request: pytest.FixtureRequest, running: Running) -> AsyncIterator[Client]:
    async with over(request.param)(running) as client:
        yield client


@pytest.mark.req("NA-1", "UX-2")
async def test_tools_are_listed_by_name_with_what_is_known_of_them(client: Client) -> None:
    listed = await client.list_tools()
    assert [one.name for one in listed.tools] == ["add", "describe", "fail", "greet", "pieces"]
    added, described, *_ = listed.tools
    assert (added.title, added.description) == ("Sum", "Add two numbers.")
    assert added.annotations == types.ToolAnnotations(
        title="Sum",
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=False,
    )
    assert added.input_schema["properties"]["b"] == {"type": "integer", "default": 10}
    assert added.output_schema == {
        "type": "object",
        "properties": {"result": {"type": "integer"}},
        "required": ["result"],
    }
    assert described.annotations is not None
    assert described.annotations.destructive_hint is True
    assert described.annotations.idempotent_hint is False


async def test_a_call_gives_text_and_structured_content(client: Client) -> None:
    added = await client.call_tool("add", {"a": 1, "b": 2})
    assert (added.is_error, added.structured_content) == (False, {"result": 3})
    assert added.content == [types.TextContent(text="3")]
    described = await client.call_tool("describe", {"name": "Ada"})
    assert described.structured_content == {"name": "Ada", "age": None}
    greeted = await client.call_tool("greet", {"name": "Ada"})
    assert greeted.content == [types.TextContent(text="Hello, Ada!")]
    assert greeted.structured_content is None
    assert (greeted.meta or {})["toolpost/call_id"]


async def test_every_kind_of_content_arrives(client: Client) -> None:
    result = await client.call_tool("pieces", {})
    assert [one.type for one in result.content] == [
        "text", "image", "audio", "resource", "resource", "resource_link",
    ]  # fmt: skip
    link = result.content[-1]
    assert isinstance(link, types.ResourceLink)
    assert (link.uri, link.name, link.mime_type) == ("https://example.org/far", "far", "text/html")


async def test_what_a_tool_fails_with_is_a_result_that_a_model_can_act_on(client: Client) -> None:
    failed = await client.call_tool("fail", {"why": "It is too late."})
    assert failed.is_error
    assert isinstance(failed.content[0], types.TextContent)
    assert failed.content[0].text.startswith("It is too late.")
    assert "remedy: fix_args" in failed.content[0].text
    told = (failed.meta or {})["toolpost/error"]
    assert told["code"] == "EXECUTION_ERROR"
    assert told["details"] == {"because": "It is too late."}
    wrong = await client.call_tool("add", {"a": "one"})
    assert wrong.is_error
    assert (wrong.meta or {})["toolpost/error"]["code"] == "VALIDATION_ERROR"


async def test_a_tool_that_is_not_there_is_an_error_of_the_protocol(client: Client) -> None:
    with pytest.raises(MCPError, match="did you mean 'add'") as caught:
        await client.call_tool("addd", {})
    assert caught.value.code == -31004
    assert caught.value.error.data["code"] == "NOT_FOUND"


BODIES: list[tuple[str, Any, dict[str, Any]]] = [
    ("add", {"a": 1, "b": 2}, {}),
    ("add", {"a": 1.5}, {}),
    ("describe", {"name": "Zoë ☃"}, {}),
    ("greet", {"name": ""}, {}),
    ("greet", None, {}),
    ("fail", {"why": "no"}, {}),
    ("pieces", {}, {}),
    ("nothing", {}, {}),
    ("add", {"a": 2**53}, {}),
]


@pytest.mark.parametrize(("name", "arguments", "params"), BODIES)
async def test_the_way_by_hand_says_what_the_sdk_says(
    running: Running, name: str, arguments: Any, params: dict[str, Any]
) -> None:
    quick = await call(running.url, name, arguments, **params)
    slow = await call(running.url, name, arguments, slowly=True, **params)
    for answer in (quick, slow):
        about = answer.get("result", {}).get("_meta", {})
        if about:
            assert about.pop("toolpost/call_id")
    assert quick == slow


ODD: list[tuple[str, Any, dict[str, str], int, int | None]] = [
    ("not JSON", b"{", {}, 400, -32700),
    ("a key twice", b'{"jsonrpc": "2.0", "id": 1, "id": 2}', {}, 400, -32700),
    ("not a number", b'{"jsonrpc": "2.0", "id": NaN}', {}, 400, -32700),
    ("a batch", [call_of("add", {"a": 1})], {}, 400, -32600),
    ("no envelope", {**call_of("add"), "params": {"name": "add"}}, {}, 400, -32602),
    ("another method", {**call_of("add"), "method": "tools/list"}, {}, 400, -32020),
    ("another name", call_of("greet"), {}, 400, -32020),
    ("arguments in a list", call_of("add", [1]), {}, 400, -32602),
    ("an id that is a list", {**call_of("add"), "id": [1]}, {}, 400, -32600),
    ("no such method", {**call_of("add"), "method": "x"}, {"Mcp-Method": "x"}, 404, -32601),
    ("an unknown revision", call_of("add"), {"MCP-Protocol-Version": "2099-01-01"}, 400, -32020),
    ("not said to be JSON", call_of("add"), {"Content-Type": "text/plain"}, 415, -32700),
    ("nothing acceptable", call_of("add"), {"Accept": "text/html"}, 406, None),
    ("a state that is none", call_of("add", {"a": 1}, requestState="x"), {}, 400, -32602),
]


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"), [one[1:] for one in ODD], ids=[o[0] for o in ODD]
)
async def test_what_is_not_in_the_protocol_is_refused_with_the_reason(
    running: Running, body: Any, headers: dict[str, str], status: int, code: int | None
) -> None:
    answer = await post(running.url, body, headers_for("tools/call", "add") | headers)
    assert answer.status_code == status, answer.text
    if code is not None:
        assert answer.json()["error"]["code"] == code
        said = answer.json()["error"]["message"]
        assert said and "pydantic" not in said and "\n" not in said


async def test_without_a_caller_nothing_is_answered(running: Running) -> None:
    try:
        running.caller = None
        answer = await post(running.url, call_of("add", {"a": 1}), headers_for("tools/call", "add"))
    finally:
        running.caller = Caller(id="local", owner=True)
    assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED")


def test_a_schema_that_refers_to_itself_still_does_inside_its_wrap() -> None:
    schema = {
        "type": "array",
        "items": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"$ref": "#"}]},
        "$defs": {"leaf": {"type": "integer"}},
    }
    shown = definition_of(ToolSpec(name="t", description="d", output_schema=schema)).shown
    valid = jsonschema_rs.validator_for(shown["outputSchema"]).is_valid
    assert valid({"result": [1, [2, [3]]]})
    assert not valid({"result": [1, ["x"]]})


async def test_lists_come_in_pages_that_go_on_where_the_last_ended(tmp_path: Path) -> None:
    async with (
        serving(TOOLS, tmp_path, settings=McpSettings(page=2)) as running,
        Client(running.url) as client,
    ):
        first = await client.list_tools()
        assert [one.name for one in first.tools] == ["add", "describe"]
        assert (first.ttl_ms, first.cache_scope) == (60_000, "private")
        running.runtime.registry.remove("add", "describe")
        second = await client.list_tools(cursor=first.next_cursor)
        assert [one.name for one in second.tools] == ["fail", "greet"]
        last = await client.list_tools(cursor=second.next_cursor)
        assert ([one.name for one in last.tools], last.next_cursor) == (["pieces"], None)
        with pytest.raises(MCPError, match="none of ours"):
            await client.list_tools(cursor="?")


async def test_a_caller_sees_its_own_tools_and_calls_no_others(tmp_path: Path) -> None:
    async with serving([add, greet], tmp_path) as running:
        running.caller = Caller(id="bob", tools=("add",))
        async with Client(running.url) as client:
            assert [one.name for one in (await client.list_tools()).tools] == ["add"]
        answers = [await call(running.url, "greet", slowly=slowly) for slowly in (False, True)]
        assert [one["error"]["code"] for one in answers] == [-31004, -31004]


async def test_a_large_output_is_kept_and_read_in_pieces_by_its_caller(tmp_path: Path) -> None:
    @tool
    async def much():
        """Give much."""
        return "abcdefghij" * 20_000

    @tool
    async def promised() -> dict[str, str]:
        """Give much, in a form that was promised."""
        return {"a": "b" * 200_000}

    options = {"artifacts": {"soft": 100_000}}
    async with serving(
        [much, promised], tmp_path, guards=["artifacts"], extensions=options
    ) as running:
        async with Client(running.url) as client:
            large = await client.call_tool("promised", {})
            assert large.is_error, "without structured content clients refuse it altogether"
            assert (large.meta or {})["toolpost/artifacts"][0]["size"] > 200_000
            result = await client.call_tool("much", {})
            (link,) = [one for one in result.content if isinstance(one, types.ResourceLink)]
            read = await client.read_resource(f"{link.uri}?offset=100003&length=4")
            (piece,) = read.contents
            assert isinstance(piece, types.TextResourceContents)
            assert (piece.text, read.cache_scope) == ("defg", "private")
            templates = (await client.list_resource_templates()).resource_templates
            assert [one.name for one in templates] == ["artifact"]
        running.caller = Caller(id="mallory")
        async with Client(running.url) as client:
            for uri in (link.uri, f"{link.uri}?offset=x", "file:///etc/passwd"):
                with pytest.raises(MCPError) as caught:
                    await client.read_resource(uri)
                assert caught.value.error.data == {"uri": uri}


async def test_pieces_of_a_large_text_have_whole_characters_and_say_which_they_are(
    tmp_path: Path,
) -> None:
    text = "a€😀é" * 15_000

    @tool
    async def much() -> str:
        """Give much."""
        return text

    options = {"artifacts": {"soft": 100_000}}
    async with (
        serving([much], tmp_path, guards=["artifacts"], extensions=options) as running,
        Client(running.url) as client,
    ):
        result = await client.call_tool("much", {})
        (link,) = [one for one in result.content if isinstance(one, types.ResourceLink)]
        whole, after = "", 0
        for offset in range(0, 40, 3):
            read = await client.read_resource(f"{link.uri}?offset={offset}&length=3")
            (piece,) = read.contents
            assert isinstance(piece, types.TextResourceContents)
            place = (piece.meta or {})["toolpost/piece"]
            assert (place["offset"], place["size"]) == (after, len(text.encode()))
            whole, after = whole + piece.text, after + place["length"]
        assert text.startswith(whole) and len(whole.encode()) == after >= 40


async def test_a_tool_may_need_a_client_that_can_do_something(tmp_path: Path) -> None:
    @tool(labels={"mcp.client": "sampling, elicitation"})
    async def wants() -> int:
        """Want much."""
        return 1

    async with serving([wants], tmp_path) as running:
        refused = await call(running.url, "wants", _meta=envelope({"elicitation": {}}))
        assert refused["error"]["code"] == -32021
        assert refused["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}
        able = envelope({"elicitation": {}, "sampling": {}})
        assert (await call(running.url, "wants", _meta=able))["result"]["content"]


def test_what_an_old_revision_does_not_know_is_said_in_another_way() -> None:
    parts = (Audio(b"RIFF"), Resource("https://example.org/far", name="far"))
    result = Result(parts=parts)
    old = answer_of(result, None, "2024-11-05")["content"]
    assert [one["type"] for one in old] == ["resource", "text"]
    assert old[1]["text"] == "far: https://example.org/far"
    new = answer_of(result, None, "2025-06-18")["content"]
    assert [one["type"] for one in new] == ["audio", "resource_link"]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_revision_of_the_handshake_is_spoken(running: Running, revision: str) -> None:
    hello = {
        "protocolVersion": revision,
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    headers = {"Accept": "*/*", "Content-Type": "application/json"}
    answer = await post(running.url, body, headers)
    said = json.loads(answer.text.partition("data: ")[2].splitlines()[0])["result"]
    assert said["protocolVersion"] == revision
    assert said["capabilities"]["tools"] == {"listChanged": True}
    session = {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": revision}
    done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await post(running.url, done, headers | session)).status_code == 202
    params = {"name": "add", "arguments": {"a": 1}}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    answer = await post(running.url, body, headers | session)
    said = json.loads(answer.text.partition("data: ")[2].splitlines()[0])["result"]
    assert said["content"] == [{"type": "text", "text": "11"}]


async def test_sessions_are_so_many_and_the_idle_ones_are_forgotten(tmp_path: Path) -> None:
    few = McpSettings(sessions=1, session_idle=0.3)
    async with serving([add], tmp_path, settings=few) as running:
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        headers = {"Accept": "*/*", "Content-Type": "application/json"}
        statuses = [(await post(running.url, body, headers)).status_code for _ in range(2)]
        assert statuses[0] == 200

        async def again() -> bool:
            return (await post(running.url, body, headers)).status_code == 200

        async with asyncio.timeout(20):
            while not await again():
                await asyncio.sleep(0.05)
        assert 503 in statuses or statuses == [200, 200]  # on a slow machine the first has gone


WORDS = st.text() | st.sampled_from(["\u202e", "\0", "\ud7ff", "<script>", "=?base64?QQ==?="])
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=25)
@given(VALUES)
def test_whatever_is_given_comes_back_the_same_by_hand_and_by_the_sdk(value: Any) -> None:
    """The two ways in one process each, without a network."""
    result = Result(output=value)
    answer = answer_of(result, None, "2026-07-28")
    if isinstance(value, dict):
        assert answer["structuredContent"] == value
    elif isinstance(value, str):
        assert answer["content"][0]["text"] == value
    elif value is not None:
        assert json.loads(answer["content"][0]["text"]) == value
    shaped = methods.serialize_server_result("tools/call", "2026-07-28", answer)
    assert {key: shaped.get(key) for key in answer} == answer
