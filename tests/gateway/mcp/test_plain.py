"""The plainest calls are read in one go; whatever is odd about one is seen, all the same."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway.mcp.running import Running, call_of, gateway, headers_for
from toolpost import tool

pytestmark = pytest.mark.anyio
CALL_ID = "toolpost/call_id"


@tool(tier=0, effects="read")
async def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


@tool(tier=0, effects="read")
async def fail() -> int:
    """Fail."""
    raise ValueError("no such luck")


@tool(tier=0, effects="read")
async def echo(value: Any) -> Any:
    """Give it back."""
    return value


@tool(tier=0, effects="read")
async def listed(value: list[str]) -> list[str]:
    """Give a list back: it has a schema, and is no object."""
    return value


@tool(tier=0, effects="read")
async def table(value: dict[str, int]) -> dict[str, int]:
    """Give a table back: it has a schema, and is an object."""
    return value


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Running]:
    async with gateway([add, fail, echo, listed, table], tmp_path) as running:
        yield running


async def posted(served: Running, body: Any, *more: tuple[str, str], name: str = "add") -> Any:
    text = body if isinstance(body, str) else json.dumps(body)
    headers = headers_for("tools/call", name).items()
    async with httpx2.AsyncClient(timeout=30, trust_env=False) as client:
        return await client.post(served.url, content=text, headers=[*headers, *more])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("add", {"a": 2, "b": 3}),
        ("add", {"a": "two"}),
        ("add", {"c": {"d": [1]}}),
        ("fail", {}),
        *(
            ("echo", {"value": value})
            for value in (
                "",
                'a "text"\n\u2028 ä ß',
                1.5,
                True,
                None,
                [],
                {},
                {"a": {"b": [None]}},
            )
        ),
        ("listed", {"value": ['"', "ä"]}),
        ("table", {"value": {"ä": 1, "\n": 2}}),
    ],
)
async def test_a_plain_call_is_answered_as_one_that_wants_a_closer_look(
    served: Running, name: str, arguments: dict[str, Any]
) -> None:
    body = call_of(name, arguments)
    plain = await posted(served, body, name=name)
    other = await posted(served, body, ("x-unusual", "1"), name=name)
    assert (plain.status_code, other.status_code) == (200, 200)
    first, second = plain.json(), other.json()
    ids = {one["result"]["_meta"].pop(CALL_ID) for one in (first, second)}
    assert len(ids) == 2
    assert json.dumps(first).replace(*sorted(ids)) == json.dumps(second).replace(*sorted(ids))


@pytest.mark.parametrize("twice", ['"a": 2, "a": 3', '"a": 2, "b": 1, "b": 3'])
async def test_a_key_that_is_there_twice_is_refused(served: Running, twice: str) -> None:
    text = json.dumps(call_of("add", {"a": 2})).replace('"a": 2', twice)
    answer = await posted(served, text)
    assert answer.status_code == 400, answer.text
    text = json.dumps(call_of("add", {"a": 2})).replace('"jsonrpc"', '"id": 7, "jsonrpc"')
    assert (await posted(served, text)).status_code == 400


async def test_a_text_with_colons_is_no_key(served: Running) -> None:
    answer = await posted(served, call_of("add", {"a": 2, "b": 3}))
    assert answer.json()["result"]["structuredContent"] == {"result": 5}
    answer = await posted(served, call_of("add", {"a": "x: y"}))
    assert answer.json()["result"]["isError"] is True


async def test_headers_that_name_another_tool_or_two_are_refused(served: Running) -> None:
    body = call_of("add", {"a": 2})
    assert (await posted(served, body, name="fail")).status_code == 400
    assert (await posted(served, body, ("mcp-name", "fail"))).status_code == 400
