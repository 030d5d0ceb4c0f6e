"""Answers in one piece: they are what they would be in two, and keep their order."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.gateway.running import JSON, answer_from, request, serving
from toolpost import tool

pytestmark = pytest.mark.anyio


@tool(tier=0, effects="read")
async def again(text: str) -> str:
    """Give it back."""
    return text


async def test_requests_that_come_at_once_are_answered_in_their_order(tmp_path: Path) -> None:
    async with serving(tmp_path, again) as served, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(served.host, served.port)
        headers = {"host": f"{served.host}:{served.port}", **JSON}
        for text in "abcd":
            body = json.dumps({"arguments": {"text": text}}).encode()
            path = "/v1/tools/again:call"
            writer.write(request("POST", path, body, headers, close=text == "d"))
        answers = [await answer_from(reader) for _ in "abcd"]
        assert await reader.read() == b""
        writer.close()
    assert [answer.data["output"] for answer in answers] == list("abcd")
    assert {answer.headers["content-type"] for answer in answers} == {"application/json"}
    assert [answer.headers.get("connection") for answer in answers] == [None, None, None, "close"]


async def test_a_page_that_may_ask_may_read_the_answer(tmp_path: Path) -> None:
    page = "https://app.example.com"
    async with serving(tmp_path, again, origins=[page]) as served:
        answer = await served.call("again", {"text": "x"}, {"origin": page})
    assert answer.headers["access-control-allow-origin"] == page
