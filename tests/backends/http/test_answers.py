"""What becomes of an answer: an output, parts, or an error that says what to do next."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import zlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from tests.backends.http.service import Asked, Reply, Writer, call, forever, head, http, serving
from toolpost import Audio, Executor, Image, Limits, Progress, Registry, Resource
from toolpost.backends.http.answering import retry_after
from toolpost.backends.http.backend import HttpBackend
from toolpost.contracts import Services
from toolpost.errors import ConfigError

pytestmark = pytest.mark.anyio


async def answered(reply: Any, **options: Any) -> Any:
    """The result of one call that is answered so."""
    given = {k: options.pop(k) for k in ("on_progress", "secrets") if k in options}
    async with serving(lambda _: reply) as service:
        return await call(http(service.url + "/x?key=1", service, **options), {}, **given)


# --- output ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "response", "expected"),
    [
        (Reply('{"a": [1, 2.5, null]}'), {}, {"a": [1, 2.5, None]}),
        (Reply("12345678901234567890123"), {}, 12345678901234567890123),
        (Reply('{"a": 1}', type="application/problem+json; charset=utf-8"), {}, {"a": 1}),
        (Reply('{"a": 1}', type="text/plain"), {}, '{"a": 1}'),
        (Reply('{"a": 1}', type="text/plain"), {"as": "json"}, {"a": 1}),
        (Reply('{"a": 1}'), {"as": "text"}, '{"a": 1}'),
        (Reply('{"a": 1}', type=None), {}, {"a": 1}),
        (Reply("words", type=None), {}, "words"),
        (Reply(b"\xef\xbb\xbf[1]"), {}, [1]),
        (Reply("gr\u00fc\u00df".encode("latin-1"), type="text/plain; charset=latin-1"), {}, "grüß"),
        (Reply(b"a\xff", type="text/plain; charset=nonsense"), {}, "a\ufffd"),
        (Reply("<a/>", type="application/atom+xml"), {}, "<a/>"),
        (Reply("a\r\nb\n", type="text/plain"), {"as": "lines"}, ["a", "b"]),
        (Reply('{"a": 1}\n{"a": 2}\n\n', type="application/x-ndjson"), {}, [{"a": 1}, {"a": 2}]),
        (Reply("", status=204, type=None), {}, None),
        (Reply("", type="application/json"), {}, None),
        (Reply("", type="text/plain"), {}, ""),
        (Reply("", type="text/plain"), {"as": "lines"}, []),
        (Reply('{"data": {"items": [1]}}'), {"pointer": "/data/items"}, [1]),
        (Reply('{"a/b": {"~": [5, 6]}}'), {"pointer": "/a~1b/~0/1"}, 6),
        (Reply('{"": 1}'), {"pointer": "/"}, 1),
        (Reply("[1]"), {"pointer": ""}, [1]),
    ],
)
async def test_an_answer_becomes_an_output(reply: Reply, response: Any, expected: Any) -> None:
    result = await answered(reply, response=response)
    assert result.error is None, result.error
    assert result.output == expected


async def test_what_is_no_text_comes_back_as_a_part() -> None:
    for kind, part in (
        ("image/png", Image(b"\x89\xff", "image/png")),
        ("audio/ogg", Audio(b"\x89\xff", "audio/ogg")),
    ):
        assert (await answered(Reply(b"\x89\xff", type=kind))).parts == (part,)
    for kind, mime in (("application/pdf", "application/pdf"), (None, "application/octet-stream")):
        (found,) = (await answered(Reply(b"\x89\xff", type=kind))).parts
        assert isinstance(found, Resource)
        assert (found.mime, found.data) == (mime, b"\x89\xff")
        assert found.uri.endswith("/x"), "the query may hold a key"


async def test_the_headers_can_be_what_is_wanted() -> None:
    reply = Reply("{}", headers={"ETag": "abc", "Set-Cookie": "secret"})
    for options in ({"method": "HEAD"}, {"response": {"as": "headers"}}):
        output = (await answered(reply, **options)).output
        assert output["etag"] == "abc"
        assert "set-cookie" not in output


@pytest.mark.parametrize(
    ("reply", "response", "said"),
    [
        (Reply("<html>"), {}, "is not JSON"),
        (Reply("NaN"), {}, "is not JSON"),
        (Reply(b'{"a": "\xff"}'), {}, "not UTF-8"),
        (Reply('{"a": 1, "a": 2}'), {}, "is not JSON"),
        (Reply("[" * 100_000), {}, "is not JSON"),
        (Reply('{"a": [1]}'), {"pointer": "/a/1"}, "nothing at /a/1"),
        (Reply('{"a": [1]}'), {"pointer": "/b"}, "nothing at /b"),
        (Reply('{"a": [1]}'), {"pointer": "/a/-1"}, "nothing at"),
        (Reply(b"x", headers={"Content-Encoding": "br"}), {}, "not asked for"),
        (Reply(b"no gzip", headers={"Content-Encoding": "gzip"}), {}, "not packed the way"),
        (
            Reply(gzip.compress(b"[1, 2, 3]")[:-9], headers={"Content-Encoding": "gzip"}),
            {},
            "breaks off",
        ),
    ],
)
async def test_an_answer_that_cannot_be_read_says_so(
    reply: Reply, response: Any, said: str
) -> None:
    error = (await answered(reply, response=response)).error
    assert (error.code, error.effects) == ("OUTPUT_INVALID", "done")
    assert said in error.message


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("GZIP", lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:])),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("identity", bytes),
    ],
)
async def test_a_packed_answer_is_unpacked(encoding: str, pack: Any) -> None:
    data = json.dumps(list(range(20_000))).encode()
    reply = Reply(pack(data), headers={"Content-Encoding": encoding})
    assert (await answered(reply)).output == list(range(20_000))


@pytest.mark.req("FM-10")
async def test_an_answer_is_held_against_the_output_schema() -> None:
    error = (await answered(Reply('{"a": 1}'), output_schema={"type": "array"})).error
    assert error.code == "OUTPUT_INVALID"


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.req("FM-10")
@pytest.mark.parametrize(
    ("status", "code", "remedy", "retryable", "effects"),
    [
        (400, "VALIDATION_ERROR", "fix_args", False, "none"),
        (401, "UNAUTHORIZED", "reauth", False, "none"),
        (402, "EXECUTION_ERROR", "stop", False, "none"),
        (403, "UNAUTHORIZED", "reauth", False, "none"),
        (404, "NOT_FOUND", "fix_args", False, "none"),
        (405, "EXECUTION_ERROR", "other_tool", False, "none"),
        (408, "UNAVAILABLE", "wait", True, "none"),
        (409, "CONFLICT", "stop", False, "none"),
        (410, "NOT_FOUND", "fix_args", False, "none"),
        (413, "VALIDATION_ERROR", "fix_args", False, "none"),
        (418, "EXECUTION_ERROR", "other_tool", False, "none"),
        (422, "VALIDATION_ERROR", "fix_args", False, "none"),
        (429, "RATE_LIMITED", "wait", True, "none"),
        (500, "EXECUTION_ERROR", "other_tool", True, "unknown"),
        (501, "EXECUTION_ERROR", "other_tool", False, "none"),
        (502, "UNAVAILABLE", "wait", True, "unknown"),
        (503, "UNAVAILABLE", "wait", True, "unknown"),
        (504, "UNAVAILABLE", "wait", True, "unknown"),
        (599, "UNAVAILABLE", "wait", True, "unknown"),
        (304, "EXECUTION_ERROR", "other_tool", False, "unknown"),
    ],
)
async def test_a_status_means_an_error_that_says_what_to_do(
    status: int, code: str, remedy: str, retryable: bool, effects: str
) -> None:
    error = (await answered(Reply("", status=status), effects="idempotent")).error
    assert (error.code, error.remedy, error.retryable, error.effects) == (
        code, remedy, retryable, effects,
    )  # fmt: skip
    assert error.message.startswith(f"127.0.0.1 answered {status}")
    assert error.details == {"status": status}


async def test_a_spec_says_what_a_status_means_to_it() -> None:
    errors = {
        "404": {"ok": True},
        "202": {"error": "UNAVAILABLE", "effects": "done"},
        "409": "RATE_LIMITED",
        "4xx": {"error": "CONFLICT", "message": "Choose another.", "effects": "done"},
        "503": {"error": "EXECUTION_ERROR", "retryable": False, "effects": "none"},
    }
    body = '{"message": "gone"}'
    assert (await answered(Reply(body, 404), errors=errors)).output == {"message": "gone"}
    error = (await answered(Reply(body, 202), errors=errors)).error
    assert (error.code, error.effects) == ("UNAVAILABLE", "done")
    error = (await answered(Reply(body, 409), errors=errors)).error
    assert (error.code, error.effects, error.retryable) == ("RATE_LIMITED", "none", True)
    error = (await answered(Reply(body, 418), errors=errors)).error
    assert (error.code, error.message, error.effects) == ("CONFLICT", "Choose another.", "done")
    assert error.details == {"status": 418, "said": "gone"}
    error = (await answered(Reply(body, 503), errors=errors)).error
    assert (error.code, error.effects, error.retryable) == ("EXECUTION_ERROR", "none", False)


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ('{"message": "No such city."}', "application/json", "No such city."),
        ('{"error": {"code": 7, "message": "Bad."}}', "application/json", "Bad."),
        ('{"errors": [{"detail": "a"}, {"detail": "b"}]}', "application/json", "a; b"),
        ('{"title": "T", "detail": "D"}', "application/problem+json", "D"),
        ("plain words", "text/plain", "plain words"),
        ("<html><b>page</b></html>", "text/html", None),
        ("{broken", "application/json", None),
        (b"\xff\xfe", "text/plain", None),
        ("a\x1b[31m\u202eb\n\nc", "text/plain", "ab c"),
        ("x" * 5000, "text/plain", "x" * 499 + "…"),
    ],
)
async def test_what_a_service_says_is_quoted_if_it_is_said_in_words(
    body: Any, kind: str, said: str | None
) -> None:
    error = (await answered(Reply(body, status=400, type=kind))).error
    expected = "127.0.0.1 answered 400 (Bad Request)" + (f": {said}" if said else ".")
    assert error.message == expected


async def test_a_secret_that_a_service_repeats_is_not_quoted() -> None:
    token = "tok-9f8e7d6c5b4a"
    async with serving(lambda asked: Reply(str(asked.headers), 401, "text/plain")) as service:
        spec = http(service.url, service, auth={"basic": {"user": "me", "password": "TOKEN"}})
        result = await call(spec, {}, secrets={"TOKEN": token})
    sent = service.asked[0].header("Authorization")
    assert sent is not None
    assert sent.split()[1] not in str(result)
    assert token not in str(result)


@pytest.mark.req("FM-10", "FM-11")
async def test_how_long_to_wait_is_told_in_seconds_or_as_a_date() -> None:
    later = datetime.now(UTC) + timedelta(seconds=90)
    for said, least, most in (("7", 7, 7), (format_datetime(later, usegmt=True), 60, 90)):
        for status in (429, 503):
            error = (await answered(Reply("", status, headers={"Retry-After": said}))).error
            assert least <= error.retry_after <= most


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", 1.5),
        ("9" * 9, 7 * 24 * 3600.0),
        ("9" * 400, None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 7 * 24 * 3600.0),
        ("Fri, 99 Dec 2026 23:59:59 GMT", None),
    ],
)
def test_a_wait_that_cannot_be_meant_is_none(said: str | None, seconds: float | None) -> None:
    assert retry_after(said) == seconds


async def test_a_404_of_the_service_is_told_from_a_tool_that_is_not_there() -> None:
    reply = Reply('{"message": "no such user"}', status=404)
    error = (await answered(reply)).error
    assert error.message.startswith("127.0.0.1 answered 404 (Not Found): no such user. The tool is")
    assert "check the arguments" in error.message


# --- while it runs -----------------------------------------------------------------------------


def streamed(kind: str, *chunks: bytes) -> Any:
    """An answer in chunks, each sent when the one before it has been heard."""
    heard = asyncio.Semaphore(1)

    async def stream(writer: Writer) -> None:
        writer.write(head(200, {"Content-Type": kind, "Transfer-Encoding": "chunked"}))
        for chunk in chunks:
            await heard.acquire()
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
        await heard.acquire()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        await forever(writer)

    return stream, heard


@pytest.mark.parametrize(
    ("kind", "chunks", "told", "output"),
    [
        ("text/plain", [b"one\n", b"two\nthr", b"ee\n"], ["one\n", "two\n", "three\n"],
         "one\ntwo\nthree\n"),
        ("application/x-ndjson", [b'{"n": 1}\n', b'{"n": 2}\n'], ['{"n": 1}\n', '{"n": 2}\n'],
         [{"n": 1}, {"n": 2}]),
        (
            "text/event-stream",
            [
                b": hello\nevent: add\nid: 1\ndata: {\"n\": 1}\n\n",
                b"data: a\r\ndata: b\r\n\r\n",
                b"retry: 5\n\ndata: [DONE]\n\n",
            ],
            ['{"n": 1}\n', "a\nb\n", "[DONE]\n"],
            [{"event": "add", "id": "1", "data": {"n": 1}}, {"data": "a\nb"}, {"data": "[DONE]"}],
        ),
    ],
)  # fmt: skip
async def test_what_comes_bit_by_bit_is_told_while_it_comes(
    kind: str, chunks: list[bytes], told: list[str], output: Any
) -> None:
    stream, heard = streamed(kind, *chunks)
    pieces: list[Any] = []

    def listen(progress: Progress) -> None:
        pieces.append(progress.partial)
        heard.release()

    result = await answered(stream, on_progress=listen)
    assert result.error is None, result.error
    assert pieces == told
    assert result.output == output


async def test_nobody_has_to_listen_and_a_listener_that_fails_ends_nothing() -> None:
    for listen in (None, lambda progress: 1 / 0):
        result = await answered(Reply("a\nb\n", type="text/plain"), on_progress=listen)
        assert result.output == "a\nb\n"


# --- on the way --------------------------------------------------------------------------------


@pytest.mark.req("UX-3")
async def test_the_time_limit_closes_the_connection() -> None:
    async def slowly(writer: Writer) -> None:
        writer.write(head(200, {"Content-Length": "1000000"}))
        writer.write(b" ")
        await writer.drain()
        await forever(writer)

    for answer in (slowly, forever):
        async with serving(lambda _: answer) as service:  # noqa: B023 - called before the next
            began = time.monotonic()
            result = await call(http(service.url, service, timeout=0.5), {})
            assert result.error.code == "TIMEOUT"
            assert result.error.effects == "unknown"
            assert time.monotonic() - began < 20
            await asyncio.wait_for(service.gone.wait(), 20)


async def test_a_cancelled_call_closes_the_connection() -> None:
    begun = asyncio.Event()

    async def never(writer: Writer) -> None:
        begun.set()
        await forever(writer)

    async with serving(lambda _: never) as service:
        running = asyncio.ensure_future(call(http(service.url, service), {}))
        await asyncio.wait_for(begun.wait(), 20)
        running.cancel()
        await asyncio.wait((running,), timeout=20)
        assert running.cancelled()
        await asyncio.wait_for(service.gone.wait(), 20)


async def test_a_request_that_was_never_sent_had_no_effects() -> None:
    async with serving() as service:
        spec = http(service.url, service, method="POST")
    error = (await call(spec, {})).error
    assert (error.code, error.effects, error.retryable) == ("UNAVAILABLE", "none", True)
    assert "no connection to 127.0.0.1" in error.message


@pytest.mark.parametrize(
    ("said", "code", "message"),
    [
        (b"", "UNAVAILABLE", "broke"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "UNAVAILABLE", "broke"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "UNAVAILABLE", "broke"),
        (b"220 smtp.test ESMTP\r\n", "UNAVAILABLE", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000, "UNAVAILABLE", "does not speak HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "UNAVAILABLE",
            "does not speak HTTP",
        ),
    ],
)
async def test_of_a_request_that_was_sent_and_not_answered_nobody_knows(
    said: bytes, code: str, message: str
) -> None:
    async def answer(writer: Writer) -> None:
        writer.write(said)
        await writer.drain()

    error = (await answered(answer, method="POST")).error
    assert (error.code, error.effects) == (code, "unknown")
    assert message in error.message or "It may have been done" in error.message


async def test_connections_are_kept_for_the_next_call_and_a_dead_one_is_replaced() -> None:
    def answers(asked: Asked) -> Reply:
        return Reply("{}", headers={"Connection": "close"} if len(service.asked) == 3 else {})

    async with (
        serving(answers) as service,
        Executor(Registry([http(service.url, service)])) as executor,
    ):
        for _ in range(5):
            assert (await executor.execute("it")).success
    assert service.connections == 2


async def test_so_many_connections_go_to_one_host_at_a_time() -> None:
    async with serving() as service:
        waiting: list[Any] = []

        def answers(_: Asked) -> Any:
            async def later(writer: Writer) -> None:
                done = asyncio.get_running_loop().create_future()
                waiting.append(done)
                if len(waiting) == 2:
                    asyncio.get_running_loop().call_later(0.05, release)
                await done
                writer.write(head(200, {"Content-Length": "0", "Connection": "close"}))
                await writer.drain()
                await forever(writer)

            return later

        def release() -> None:
            for one in waiting:
                one.cancelled() or one.set_result(None)
            waiting.clear()

        service.answers = answers
        specs = [
            http(service.url, service, name=f"it_{n}", limits=Limits(concurrency=10), timeout=60)
            for n in range(2)
        ]
        async with Executor(Registry(specs), settings={"http": {"connections": 2}}) as executor:
            calls = [executor.execute(f"it_{n % 2}") for n in range(8)]
            results = await asyncio.wait_for(asyncio.gather(*calls), 60)
        assert all(result.success for result in results), results
        assert service.most_open == 2


async def test_who_waits_too_long_for_a_connection_is_told_that_nothing_was_sent() -> None:
    asked = asyncio.Event()

    def answers(_: Asked) -> Any:
        asked.set()
        return forever

    async with serving(answers) as it:
        spec = http(it.url, it, timeout=2)
        async with Executor(Registry([spec]), settings={"http": {"connections": 1}}) as executor:
            first = asyncio.ensure_future(executor.execute("it"))
            await asyncio.wait_for(asked.wait(), 20)
            second = await executor.execute("it")
            first.cancel()
            await asyncio.wait((first,), timeout=20)
    assert (second.error.code, second.error.effects) == ("UNAVAILABLE", "none")
    assert "Too many requests" in second.error.message


async def test_health_looks_at_the_secret_and_at_the_name_without_asking_the_service() -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        return [] if host == "no.test" else ["10.0.0.1"]

    secrets = {"TOKEN": "tok-9f8e7d6c5b4a"}
    backend = HttpBackend(Services(secret=secrets.get), resolve=nowhere)
    async with serving() as service:
        for spec, healthy, said in (
            (http(service.url, service), True, None),
            (http(service.url, service, auth={"bearer": "TOKEN"}), True, None),
            (http(service.url, service, auth={"bearer": "NONE"}), False, "secret NONE is not set"),
            (http("https://no.test/"), False, "no.test cannot be found"),
            (http("https://inside.test/"), False, "not public"),
        ):
            health = await backend.bind(spec, None).health()
            assert health.healthy is healthy
            assert said is None or said in (health.error or "")
        assert service.connections == 0
    await backend.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"connections": 0}, "at least 1"),
        ({"proxy": "proxy:3128"}, "begins with https"),
        ({"ca_file": "/nonexistent/ca.pem"}, "no file"),
        ({"conections": 1}, "did you mean 'connections'?"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(settings: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        HttpBackend(Services(settings={"http": settings}))
    assert said in refused.value.message


async def test_a_proxy_is_used_where_the_config_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(lambda _: Reply('"by proxy"')) as proxy, serving() as ignored:
        monkeypatch.setenv("HTTP_PROXY", ignored.url)
        monkeypatch.setenv("http_proxy", ignored.url)
        monkeypatch.setenv("ALL_PROXY", ignored.url)
        settings = {"http": {"proxy": proxy.url, "proxy_user": "me", "proxy_password": "PW"}}
        spec = http("http://api.test/x")
        secrets = {"PW": "pass-0123456789"}
        result = await call(spec, {}, settings=settings, secrets=secrets)
        assert result.output == "by proxy", result.error
        denied = await call(http("http://api.test", egress=("b.test:80",)), {}, settings=settings)
        assert denied.error is not None, "the secret is not there"
        assert ignored.connections == 0
    assert proxy.asked[0].target == "http://api.test/x"
    assert (proxy.asked[0].header("Proxy-Authorization") or "").startswith("Basic ")
