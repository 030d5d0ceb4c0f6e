"""A request in flight ends with its credential: revoked by whomever, or expired."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateway_tools import ALL, until
from tests.gateway.identity.issuing import issuing
from tests.gateway.mcp.running import HANDSHAKE, call_of, envelope, headers_for
from tests.gateway.program import CONFIG, program
from tests.gateway.running import JSON, Answer, Client, answer_from, events, request, serving
from toolpost.clock import SystemClock
from toolpost.gateway.identity.keys import Keys

pytestmark = pytest.mark.anyio
KEYS = f"{CONFIG}\n[gateway.auth]\nkeys = true\n"
SSE = {"accept": "text/event-stream"}
LONG = 55
"""Seconds that a tool naps: far longer than any of this takes."""
FENCE = 30.0


class Stream:
    """A request whose answer comes bit by bit; ``end`` is the whole of it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.head = b""

    @classmethod
    async def opened(
        cls,
        client: Client,
        method: str,
        path: str,
        headers: Mapping[str, str],
        data: Any = None,
        *,
        begun: bool = True,
    ) -> Stream:
        """``begun``: wait for the status line and the headers."""
        reader, writer = await asyncio.open_connection(client.host, client.port)
        body = None if data is None else json.dumps(data).encode()
        host = {"host": f"{client.host}:{client.port}"}
        writer.write(request(method, path, body, {**host, **headers}, close=False))
        stream = cls(reader, writer)
        if begun:
            async with asyncio.timeout(FENCE):
                stream.head = await reader.readuntil(b"\r\n\r\n")
            assert stream.head.startswith(b"HTTP/1.1 200"), stream.head
        return stream

    async def end(self) -> Answer:
        """What came of it, once the gateway has ended it in good order."""
        try:
            whole = asyncio.StreamReader()
            whole.feed_data(self.head)

            async def copy() -> None:
                while data := await self._reader.read(65_536):
                    whole.feed_data(data)
                whole.feed_eof()

            copying = asyncio.create_task(copy())
            async with asyncio.timeout(FENCE):
                answer = await answer_from(whole)
            copying.cancel()
            return answer
        finally:
            self._writer.close()


async def every_stream(client: Client, key: dict[str, str]) -> dict[str, Stream]:
    """One of each kind that a client can have open."""
    opened = Stream.opened
    call = "/v1/tools/nap:call"

    def nap(mark: str) -> dict[str, Any]:
        return {"arguments": {"seconds": LONG, "mark": mark}}

    plain = await opened(client, "POST", call, {**key, **JSON}, nap("plain"), begun=False)
    told = await opened(client, "POST", call, {**key, **JSON, **SSE}, nap("told"))
    job = (await client.post(call, nap("job"), {**key, "prefer": "respond-async"})).headers[
        "location"
    ]
    followed = await opened(client, "GET", job, {**key, **SSE})
    modern = headers_for("tools/call", "nap")
    message = call_of("nap", nap("mcp")["arguments"])
    fast = await opened(client, "POST", "/mcp", {**key, **modern}, message, begun=False)
    listen = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "subscriptions/listen",
        "params": {"notifications": {"toolsListChanged": True}, "_meta": envelope()},
    }
    heard = await opened(
        client, "POST", "/mcp", {**key, **headers_for("subscriptions/listen")}, listen
    )
    session = await session_of(client, key)
    stream = await opened(client, "GET", "/mcp", {**session, **SSE})
    slow = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "nap", "arguments": {"seconds": LONG, "mark": "session"}},
    }
    both = {"accept": "application/json, text/event-stream"}
    asked = await opened(client, "POST", "/mcp", {**session, **JSON, **both}, slow)
    return {
        "plain": plain,
        "told": told,
        "job": followed,
        "mcp": fast,
        "listen": heard,
        "stream": stream,
        "session": asked,
    }


async def session_of(client: Client, key: dict[str, str]) -> dict[str, str]:
    """The headers of a session of the revisions with a handshake."""
    params = {
        "protocolVersion": HANDSHAKE,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    greeting = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    both = {"accept": "application/json, text/event-stream", **key}
    answer = await client.post("/mcp", greeting, both)
    assert answer.status == 200, answer.body
    session = {**key, "mcp-session-id": answer.headers["mcp-session-id"]}
    session["mcp-protocol-version"] = HANDSHAKE
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    await client.post("/mcp", ready, {**both, **session})
    return session


@pytest.mark.parametrize("processes", [1, 2])
async def test_every_open_stream_ends_when_its_key_is_revoked_by_another_process(
    tmp_path: Path, processes: int
) -> None:
    several = ("--processes", str(processes))
    async with program(tmp_path, *several, config=KEYS, drain_time=1) as served:
        key, other = await served.key("agent"), await served.key("other")
        streams = await every_stream(served, key)
        unharmed = await Stream.opened(
            served,
            "POST",
            "/v1/tools/nap:call",
            {**other, **JSON},
            {"arguments": {"seconds": 8, "mark": "unharmed"}},
            begun=False,
        )
        for mark in ("plain", "told", "job", "mcp", "session", "unharmed"):
            await served.until_done(f"{mark} began")
        await served.revoke(key)
        answers = {name: await stream.end() for name, stream in streams.items()}
        for name in ("plain", "mcp"):
            assert answers[name].status == 401, name
            assert answers[name].headers["www-authenticate"].startswith("Bearer")
            assert "has been revoked or has expired" in answers[name].data["detail"]
        last, result = events(answers["told"].body)[-1]
        assert (last, result["error"]["code"]) == ("result", "UNAUTHORIZED")
        for name in ("job", "listen", "stream", "session"):
            assert answers[name].status == 200, name
            assert b'"result"' not in answers[name].body.replace(b'"resultType"', b"")
        for mark in ("plain", "told", "mcp", "session"):
            await served.until_done(f"{mark} was cancelled")
        assert (await unharmed.end()).data["output"] == "unharmed"
        assert "job was cancelled" not in served.done, "a job goes on, as jobs do"
        assert "Traceback" not in (tmp_path / "stderr").read_text()


async def test_a_request_ends_when_its_key_expires(tmp_path: Path) -> None:
    async with serving(tmp_path, *ALL, auth={"keys": True}) as served:
        keys = Keys(served.runtime.store, clock=SystemClock())
        _, text = await keys.create("brief", seconds=2.0)
        header = {"authorization": f"Bearer {text}"}
        answer = await served.call("wait", {"mark": "expires"}, header)
        assert (answer.status, answer.data["code"]) == (401, "UNAUTHORIZED")
        assert answer.data["effects"] == "none", "the tool only reads"
        await until("expires was cancelled")


async def test_a_request_ends_when_its_token_expires(tmp_path: Path) -> None:
    async with issuing() as issuer:
        table = {"issuer": issuer.url, "audience": "toolpost", "leeway": 0.0}
        auth = {"issuers": {"corp": table}}
        async with serving(tmp_path, *ALL, auth=auth) as served:
            now = time.time()
            token = issuer.token(iat=now - 5, exp=now + 2).decode()
            answer = await served.call("wait", {"mark": "token"}, {"authorization": token})
            assert (answer.status, answer.data["code"]) == (401, "UNAUTHORIZED")
            await until("token was cancelled")


async def test_a_store_that_is_away_ends_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, *ALL, auth={"keys": True}) as served:
        keys = Keys(served.runtime.store, clock=SystemClock())
        _, text = await keys.create("steady")
        asked = asyncio.Event()

        async def away(*args: Any) -> Any:
            asked.set()
            raise OSError("the disk is gone")

        header = {"authorization": f"Bearer {text}"}
        call = asyncio.create_task(served.call("wait", {"mark": "away", "seconds": 6}, header))
        await until("away began")
        monkeypatch.setattr(Keys, "verified", away)
        answer = await call
        assert asked.is_set() and answer.data["output"] == "away"


async def test_a_request_that_has_ended_is_not_remembered(tmp_path: Path) -> None:
    async with serving(tmp_path, *ALL, auth={"keys": True}) as served:
        keys = Keys(served.runtime.store, clock=SystemClock())
        _, text = await keys.create("brisk")
        for _ in range(3):
            await served.call("add", {"a": 1, "b": 1}, {"authorization": f"Bearer {text}"})
        assert len(served.gateway._watch) == 0
