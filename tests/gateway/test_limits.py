"""How much the server takes from a client, and how long it waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tests.gateway.gateway_tools import ALL, MARKS, until
from tests.gateway.running import Running, answer_from, request, serving
from toolpost.gateway import unheard
from toolpost.gateway.rest import streaming
from toolpost.gateway.unheard import household

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with serving(
        tmp_path_factory.mktemp("limits"),
        *ALL,
        body=10_000,
        header=2048,
        connections=250,
        head_time=0.6,
        body_time=0.6,
        idle_time=0.6,
        write_time=0.6,
    ) as running:
        yield running


async def said(served: Running, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Everything that comes back to these bytes until the server closes, which may be in the middle
    of them.
    """
    reader, writer = await asyncio.open_connection(served.host, served.port)
    heard = bytearray()

    async def hear() -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                heard.extend(data)

    try:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            group.create_task(hear())
            with suppress(ConnectionError):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(pause)
    finally:
        writer.close()
    return bytes(heard)


async def fine(served: Running) -> None:
    assert (await served.call("add", {"a": 1, "b": 2})).data["output"] == 3


def head(served: Running, *more: str) -> bytes:
    lines = ["POST /v1/tools/add:call HTTP/1.1", f"host: {served.host}:{served.port}", *more]
    return ("\r\n".join(lines) + "\r\n").encode()


JSON = "content-type: application/json"


async def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not(
    served: Running,
) -> None:
    big = b'{"arguments": {"value": "' + b"x" * 20_000 + b'"}}'
    answer = await served.post("/v1/tools/echo:call", big)
    assert answer.status == 413
    assert "more than 10,000 bytes" in answer.data["detail"]
    chunk = f"{len(big):x}\r\n".encode() + big + b"\r\n0\r\n\r\n"
    sent = head(served, JSON, "transfer-encoding: chunked") + b"\r\n" + chunk
    assert (await said(served, sent)).startswith(b"HTTP/1.1 413 ")
    for path in ("/v1/approvals/x:approve", "/v1/audit:verify", "/v1/tools/echo:plan"):
        assert (await served.post(path, big)).status == 413
    await fine(served)


@pytest.mark.parametrize("ended", [True, False])
async def test_a_head_that_is_too_large_is_refused(served: Running, ended: bool) -> None:
    sent = head(served, f"x-large: {'y' * 4000}") + (b"\r\n" if ended else b"")
    answer = await said(served, sent)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"application/problem+json" in answer
    await fine(served)


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ((b"",), b""),
        ((b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ",), b"HTTP/1.1 408 "),
        ((b"GET /heal", b"thz HTTP", b"/1.1\r\n", b"a: b\r\n", b"c: d\r\n"), b"HTTP/1.1 408 "),
    ],
)
async def test_a_head_that_does_not_come_is_not_waited_for(
    served: Running, pieces: tuple[bytes, ...], told: bytes
) -> None:
    answer = await said(served, *pieces, pause=0.1)
    assert answer[: len(told)] == told
    assert told or not answer


async def test_a_body_that_does_not_come_is_not_waited_for(served: Running) -> None:
    sent = head(served, JSON, "content-length: 100") + b"\r\n" + b'{"arguments"'
    answer = await said(served, sent)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"body of the request took too long" in answer


async def test_a_connection_between_two_requests_is_kept_and_then_closed(served: Running) -> None:
    reader, writer = await asyncio.open_connection(served.host, served.port)
    try:
        host = {"host": f"{served.host}:{served.port}"}
        for _ in range(3):
            writer.write(request("GET", "/healthz", None, host, close=False))
            assert (await answer_from(reader)).status == 200
        async with asyncio.timeout(20):
            assert await reader.read() == b""
    finally:
        writer.close()


async def test_two_hundred_idle_connections_are_in_nobody_s_way(served: Running) -> None:
    idle = [await asyncio.open_connection(served.host, served.port) for _ in range(200)]
    try:
        for _ in range(20):
            await fine(served)
        async with asyncio.timeout(30):
            assert await asyncio.gather(*(reader.read() for reader, _ in idle)) == [b""] * 200
    finally:
        for _, writer in idle:
            writer.close()


# --- connections ---------------------------------------------------------------------------------

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ELSEWHERE = "127.0.0.2"


class Lines:
    """Connections from chosen addresses, closed at the end."""

    def __init__(self, served: Running) -> None:
        self.served, self._open = served, list[Pair]()

    async def open(self, sent: bytes = b"", *, address: str = "127.0.0.1") -> Pair:
        """One that the server has seen, and has had these bytes."""
        place = (self.served.host, self.served.port)
        pair = await asyncio.open_connection(*place, local_addr=(address, 0))
        self._open.append(pair)
        pair[1].write(sent)
        ours = pair[1].get_extra_info("sockname")
        async with asyncio.timeout(20):
            while not any(one.client == ours for one in self.served.server._connections()):
                await asyncio.sleep(0.001)
        return pair

    def close(self) -> None:
        for _, writer in self._open:
            writer.close()


@pytest.fixture(scope="module")
async def small(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder = tmp_path_factory.mktemp("small")
    async with serving(folder, *ALL, connections=6, half_open=3, drain_time=0.1) as running:
        yield running


@pytest.fixture
async def lines(small: Running, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lines]:
    monkeypatch.setattr(unheard, "GRACE", 0.0)  # nobody has time
    made = Lines(small)
    yield made
    made.close()
    async with asyncio.timeout(20):
        while small.server.server_state.connections:
            await asyncio.sleep(0.005)


async def asked(lines: Lines, pair: Pair, path: str = "/healthz") -> int:
    host = {"host": f"{lines.served.host}:{lines.served.port}"}
    pair[1].write(request("GET", path, None, host, close=False))
    async with asyncio.timeout(20):
        return (await answer_from(pair[0])).status


async def ended(pair: Pair) -> bytes:
    async with asyncio.timeout(20):
        return await pair[0].read()


@pytest.mark.parametrize("part", ["nothing", "half a head", "half a body"])
async def test_who_does_not_send_a_request_makes_room_for_others_of_the_same_address(
    lines: Lines, part: str
) -> None:
    body = head(lines.served, JSON, "content-length: 100") + b"\r\n{"
    sent = {"nothing": b"", "half a head": head(lines.served), "half a body": body}[part]
    mine = await lines.open(sent)
    theirs = [await lines.open(sent, address=ELSEWHERE) for _ in range(4)]
    first = await ended(theirs[0])
    assert first.startswith(b"HTTP/1.1 503 ") and b"have not sent a whole request" in first
    await lines.open(sent, address=ELSEWHERE)
    assert b"503" in await ended(theirs[1]), "the oldest goes first"
    assert not mine[0].at_eof(), "another address has its own"
    fresh = await lines.open(address=ELSEWHERE)
    assert await asked(lines, fresh) == 200
    if part == "nothing":
        assert await asked(lines, mine) == 200


async def test_of_a_crowd_that_comes_at_once_nobody_is_sent_away_unheard(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unheard, "GRACE", 60.0)
    crowd = [await lines.open(address=ELSEWHERE) for _ in range(6)]
    assert [await asked(lines, one) for one in crowd] == [200] * 6


def test_a_whole_house_of_addresses_is_one() -> None:
    assert household("2001:db8:1:2::a") == household("2001:db8:1:2:ffff::b%eth0")
    assert household("2001:db8:1:2::a") != household("2001:db8:1:3::a")
    assert household("192.0.2.1") == "192.0.2.1"


async def test_where_all_connections_are_taken_those_go_for_which_nothing_is_done(
    lines: Lines,
) -> None:
    headers = {
        "host": f"{lines.served.host}:{lines.served.port}",
        "content-type": "application/json",
    }
    call = b'{"arguments": {"mark": "busy"}}'
    busy = request("POST", "/v1/tools/wait:call", call, headers, close=False)
    MARKS.clear()
    for _ in range(4):
        await lines.open(busy)
    idle = await lines.open()
    assert await asked(lines, idle) == 200
    silent = await lines.open()
    async with asyncio.timeout(20):
        while MARKS.count("busy began") < 4:
            await asyncio.sleep(0.005)
    late = await lines.open()
    assert b"503" in await ended(silent), "who has said nothing is the first"
    assert await asked(lines, late) == 200
    later = await lines.open(busy)
    assert await ended(idle) == b"", "then who has nothing to say"
    last = await lines.open(busy)
    assert await ended(late) == b""
    refused = await said(lines.served)
    assert refused.startswith(b"HTTP/1.1 503 ") and b"QUEUE_FULL" in refused
    assert not later[0].at_eof() and not last[0].at_eof(), "nobody is cut off in a call"


async def test_a_client_that_does_not_read_is_cut_off_and_its_call_is_cancelled(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "SILENCE", b": " + b"x" * 4_000_000 + b"\n\n")
    monkeypatch.setattr(streaming, "_PATIENCE", 0.01)
    monkeypatch.setattr(streaming, "HEARTBEAT", 0.01)
    _, writer = await asyncio.open_connection(served.host, served.port)
    body = b'{"arguments": {"mark": "deaf"}}'
    headers = {
        "host": f"{served.host}:{served.port}",
        "accept": "text/event-stream",
        "content-type": "application/json",
    }
    writer.write(request("POST", "/v1/tools/wait:call", body, headers))
    try:
        await until("deaf was cancelled")
    finally:
        writer.close()


async def test_a_client_that_leaves_before_its_request_was_begun_leaves_nothing_behind(
    served: Running,
) -> None:
    before = set(served.server.server_state.connections)
    _, writer = await asyncio.open_connection(served.host, served.port)
    state = served.server.server_state
    async with asyncio.timeout(20):
        while not (new := set(state.connections) - before):
            await asyncio.sleep(0)
        (connection,) = new
        headers = {"host": f"{served.host}:{served.port}"}
        connection.data_received(request("GET", "/healthz", None, headers))  # type: ignore[attr-defined]
        assert state.tasks
        connection.transport.abort()
        connection.connection_lost(None)  # type: ignore[attr-defined]  # before the task has its turn
        while state.tasks:
            await asyncio.sleep(0)
    writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/9.9\r\nhost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n",
    ],
)
async def test_what_is_no_http_gets_a_problem_and_harms_nobody(
    served: Running, sent: bytes
) -> None:
    answer = await said(served, sent)
    assert answer.startswith(b"HTTP/1.1 4")
    assert b"application/problem+json" in answer
    await fine(served)


async def test_an_upgrade_is_not_taken_and_harms_nobody(served: Running) -> None:
    host = {"host": f"{served.host}:{served.port}"}
    upgrade = {**host, "connection": "upgrade", "upgrade": "websocket"}
    answer = await said(served, request("GET", "/healthz", None, upgrade, close=False))
    assert answer.startswith(b"HTTP/1.1 200 ")
    await fine(served)


async def test_requests_on_one_connection_are_answered_in_their_order(served: Running) -> None:
    host = {"host": f"{served.host}:{served.port}", "content-type": "application/json"}
    bodies = [b'{"arguments": {"a": %d, "b": 0}}' % n for n in range(5)]
    path = "/v1/tools/add:call"
    reader, writer = await asyncio.open_connection(served.host, served.port)
    try:
        writer.write(b"".join(request("POST", path, one, host, close=False) for one in bodies))
        async with asyncio.timeout(20):
            answers = [await answer_from(reader) for _ in bodies]
        assert [one.data["output"] for one in answers] == [0, 1, 2, 3, 4]
    finally:
        writer.close()


async def test_who_sends_requests_without_end_and_reads_nothing_is_cut_off(
    served: Running,
) -> None:
    one = f"GET /healthz HTTP/1.1\r\nhost: {served.host}:{served.port}\r\n\r\n".encode()
    answers = await said(served, one * 5000)
    assert answers.count(b"HTTP/1.1 200 ") <= 100
    assert answers == b"" or b"Read the answers before you send more" in answers
    await fine(served)


async def test_what_comes_behind_a_body_is_no_header(served: Running) -> None:
    body = b'{"arguments": {"a": 1, "b": 2}}'
    chunks = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n"
    sent = head(served, "transfer-encoding: chunked", "connection: close") + b"\r\n" + chunks
    answer = await said(served, sent + f"{JSON}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 415 "), "a content type that was said too late"
    sent = head(served, JSON, "transfer-encoding: chunked", "connection: close") + b"\r\n" + chunks
    answer = await said(served, sent + b"origin: https://evil.example\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_what_is_beside_a_body_is_bounded_and_many_small_chunks_are_not(
    served: Running,
) -> None:
    start = head(served, JSON, "transfer-encoding: chunked", "connection: close") + b"\r\n"
    body = b'{"arguments": {"a": 1, "b": 2}' + b" " * 2000 + b"}"
    small = [b"1\r\n%c\r\n" % byte for byte in body]
    answer = await said(served, start, b"".join(small[:900]), b"".join(small[900:]), b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    for trailers in (b"x: y\r\n" * 2000, b"x: " + b"y" * 100_000):
        answer = await said(served, start, b"2\r\n{}\r\n0\r\n", *[trailers] * 5, pause=0.02)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 422 "))
    await fine(served)


async def test_a_header_that_must_be_there_once_is_not_there_twice(served: Running) -> None:
    for doubled in ("authorization: Bearer x", "host: other", JSON, "idempotency-key: a"):
        sent = head(served, JSON, "authorization: Bearer x", "idempotency-key: b", doubled)
        answer = await said(served, sent + b"content-length: 2\r\nconnection: close\r\n\r\n{}")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"is there twice" in answer


async def test_pages_and_names_that_are_not_expected_are_refused(served: Running) -> None:
    for headers in (
        {"host": "evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"host": "evil.example", "origin": "http://evil.example"},
    ):
        answer = await served.call("pay", {"amount": 666}, headers)
        assert (answer.status, answer.data["code"]) == (403, "POLICY_DENIED")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = await served.call("pay", {"amount": 666}, {"content-type": kind})
        assert answer.status == 415
    assert "paid 666" not in MARKS
