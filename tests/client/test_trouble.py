"""The client where something is wrong: no gateway, a dead one, a slow one, and what is none."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, environment
from toolpost.client import Client
from toolpost.errors import Unavailable
from toolpost.jobs import Job
from toolpost.result import Failure

pytestmark = pytest.mark.anyio
KEY = "tpk_" + "x7" * 30
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server of our own: its URL, and the heads of the requests that it got."""
    got: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            got.append(await reader.readuntil(b"\r\n\r\n"))
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", got
    finally:
        server.close()


def answering(answer: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    return serve


async def failed(url: str, *, listen: bool = False, timeout: float | None = None) -> Failure:
    async with Client(url, key=KEY) as tools, asyncio.timeout(30):
        hear = (lambda report: None) if listen else None
        result = await tools.execute("pay", {"amount": 1}, timeout=timeout, on_progress=hear)
    assert result.error is not None
    assert KEY not in repr(result)
    return result.error


async def test_where_nobody_listens_nothing_was_done() -> None:
    async with listening(answering(b"")) as (url, _):
        pass
    error = await failed(url)
    assert (error.code, error.effects, error.remedy) == ("UNAVAILABLE", "none", "wait")
    assert error.message.startswith(f"The gateway at {url} cannot be used: there is no connection")
    async with Client(url) as tools:
        plan = await tools.execute("pay", {"amount": 1}, dry_run=True)
        with pytest.raises(Unavailable):
            await tools.list()
    assert plan.error is not None
    assert plan.error.effects == "none"


def _json(status: bytes, body: bytes, kind: bytes = b"application/json") -> bytes:
    return (
        b"HTTP/1.1 %b\r\ncontent-type: %b\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
        % (status, kind, len(body), body)
    )


_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
_FINE = b'{"success":true,"output":1,"parts":[],"error":null,"metadata":{"call_id":"c"}}'


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\xff garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{",
        _json(b"200 OK", b"not json"),
        _json(b"200 OK", b"{}"),
        _json(b"200 OK", b"[" * 100_000),
        _json(b"200 OK", b'{"success":true}'),
        _json(b"200 OK", _FINE.replace(b"true", b"false")),
        _json(b"200 OK", b'{"success":false,"error":{"code":"NEW"},"metadata":{}}'),
        _json(b"200 OK", b"<html>", b"text/html"),
        _json(b"502 Bad Gateway", b"<html>", b"text/html"),
        _json(b"404 Not Found", b'{"detail":"no"}'),
        _json(b"302 Found\r\nlocation: http://127.0.0.1:1/", b""),
        _json(b"200 OK\r\ncontent-encoding: gzip", b"not packed"),
        _STREAM,
        _STREAM + b"event: result\ndata: not json\n\n",
        _STREAM + b"event: result\ndata: {}\n\n",
        _STREAM + b"event: progress\ndata: {}\n\n",
    ],
)
@pytest.mark.parametrize("listen", [False, True])
async def test_what_no_gateway_says_is_no_result(answer: bytes, listen: bool) -> None:
    async with listening(answering(answer)) as (url, got):
        error = await failed(url, listen=listen)
    assert (error.code, error.effects, error.remedy) == ("UNAVAILABLE", "unknown", "stop")
    assert len(got) == 1  # nothing is tried again


@pytest.mark.parametrize("said", [b"null", b"[]", b'{"tools":5}', b'{"tools":[{"name":5}]}'])
async def test_what_no_gateway_lists_is_no_list(said: bytes) -> None:
    async with listening(answering(_json(b"200 OK", said))) as (url, _), Client(url) as tools:
        with pytest.raises(Unavailable, match="is not what a gateway says"):
            await tools.list()


async def test_a_stream_in_other_pieces_than_it_was_sent_in_is_the_same() -> None:
    sent = b": hello\r\n\r\nevent: result\r\ndata: " + _FINE + b"\r\n\r\n"

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_STREAM)
        for byte in sent:
            writer.write(bytes([byte]))
            await writer.drain()

    async with listening(drip) as (url, _), Client(url) as tools:
        assert (await tools.execute("x", on_progress=print)).output == 1


async def test_news_of_a_job_that_end_before_it_does_are_told() -> None:
    job = (
        b'event: job\ndata: {"id":"jb-1","tool":"x","caller":{"id":"c"},"state":"running",'
        b'"created":1.0,"effects":"read"}\n\n'
    )
    async with listening(answering(_STREAM + job)) as (url, _), Client(url) as tools:
        following = tools.jobs.follow("jb-1")
        first = await anext(following)
        assert isinstance(first, Job)
        assert first.state == "running"
        with pytest.raises(Unavailable, match="stopped telling") as told:
            await anext(following)
    assert told.value.retryable


async def test_a_key_goes_nowhere_else() -> None:
    async with listening(answering(_json(b"200 OK", _FINE))) as (elsewhere, theirs):
        moved = _json(b"307 Temporary Redirect\r\nlocation: " + elsewhere.encode(), b"")
        async with listening(answering(moved)) as (url, ours):
            error = await failed(url)
    assert (error.code, error.effects) == ("UNAVAILABLE", "none")
    assert "redirects" in error.message
    assert KEY.encode() in ours[0]
    assert theirs == []


async def test_a_gateway_that_does_not_answer_is_not_waited_for_longer_than_the_call() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client has gone

    async with listening(hang) as (url, got):
        error = await failed(url, timeout=0.01)
    assert (error.code, error.effects) == ("TIMEOUT", "unknown")
    assert len(got) == 1


TOOLS = '''
import asyncio
import pathlib

from toolpost import tool


@tool(timeout=60)
async def slow(mark: str) -> None:
    """Take long."""
    pathlib.Path(mark).touch()
    await asyncio.sleep(60)
'''
CONFIG = '[[sources]]\nkind = "modules"\nmodules = ["slow_tools"]\n'


async def test_a_gateway_that_is_killed_in_a_call_leaves_it_unknown(tmp_path: Path) -> None:
    (tmp_path / "slow_tools.py").write_text(TOOLS, encoding="utf-8")
    (tmp_path / "toolpost.toml").write_text(CONFIG, encoding="utf-8")
    gateway = await asyncio.create_subprocess_exec(
        *(*PROGRAM, "serve", "--port", "0"),
        cwd=tmp_path,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=sys.stderr,
    )
    assert gateway.stdout is not None
    try:
        async with asyncio.timeout(60):
            first = (await gateway.stdout.readline()).decode()
            url = first.split(" on ")[1].split()[0]
            async with Client(url) as tools:
                both = asyncio.gather(
                    tools.execute("slow", {"mark": "one"}),
                    tools.execute("slow", {"mark": "two"}, on_progress=print),
                )
                while not ((tmp_path / "one").exists() and (tmp_path / "two").exists()):
                    assert not both.done(), both.result()
                    await asyncio.sleep(0.01)
                os.kill(gateway.pid, signal.SIGKILL)
                results = await both
    finally:
        with suppress(ProcessLookupError):
            gateway.kill()
        await gateway.wait()
        gateway._transport.close()  # type: ignore[attr-defined]
    for result in results:
        assert result.error is not None
        assert (result.error.code, result.error.effects) == ("UNAVAILABLE", "unknown")
        assert "find out before" in result.error.message
