"""http_get and http_request: any request, to the hosts that the config names, and nothing more."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.backends.http.service import Asked, Reply, Service, serving
from toolpost import Executor, Registry, Result
from toolpost.builtin import web
from toolpost.builtin.web_request import HttpGet, HttpRequest
from toolpost.extensions.sanitize import UNTRUSTED, Sanitize

pytestmark = pytest.mark.anyio


def requesting(*services: Service, **more: Any) -> Executor:
    given = web.Settings(egress=tuple(one.authority for one in services) or ("*",), **more)
    return Executor(Registry(web.tools(given, Path())), guards=[Sanitize()])


async def ask(service: Service, name: str = "http_get", **arguments: Any) -> Result:
    async with requesting(service) as executor:
        given = {"url": service.url + "/it?a=1", **arguments}
        return await executor.execute(name, given)


async def test_status_headers_and_body_come_back() -> None:
    def answers(_: Asked) -> Reply:
        return Reply('{"a": [1, 2]}', 203, headers={"X-One": "1", "Set-Cookie": "session=1"})

    async with serving(answers) as service:
        result = await ask(service, headers={"X-Mine": "ü"})
    assert result.output == {
        "status": 203,
        "url": service.url + "/it?a=1",
        "headers": {"content-length": "13", "x-one": "1", "content-type": "application/json"},
        "body": {"a": [1, 2]},
        "encoding": "json",
    }
    assert UNTRUSTED in result.metadata.warnings
    (asked,) = service.asked
    assert (asked.method, asked.target, asked.header("X-Mine")) == ("GET", "/it?a=1", "ü")
    assert (asked.header("User-Agent") or "").startswith("toolpost/")


@pytest.mark.parametrize(
    ("kind", "body", "wanted", "encoding"),
    [
        ("text/plain", "tea", "tea", "text"),
        ("text/plain; charset=latin-1", b"caf\xe9", "café", "text"),
        ("text/plain; charset=no-such", b"caf\xe9", "caf\ufffd", "text"),
        ("text/csv", "a,b", "a,b", "text"),
        ("application/xml", "<a/>", "<a/>", "text"),
        (None, "tea", "tea", "text"),
        ("application/problem+json", '{"a": 1}', {"a": 1}, "json"),
        ("application/json", "{not json", "{not json", "text"),
        ("application/json", "", "", "text"),
        ("image/png", b"\x89PNG", base64.b64encode(b"\x89PNG").decode(), "base64"),
    ],
)
async def test_a_body_is_given_as_what_it_is(
    kind: str | None, body: Any, wanted: Any, encoding: str
) -> None:
    async with serving(lambda _: Reply(body, type=kind)) as service:
        result = await ask(service)
    assert (result.output["body"], result.output["encoding"]) == (wanted, encoding)


async def test_a_failure_of_the_service_is_an_answer_too() -> None:
    async with serving(lambda _: Reply('{"why": "no"}', 404)) as service:
        result = await ask(service)
    assert (result.output["status"], result.output["body"]) == (404, {"why": "no"})


@pytest.mark.parametrize(
    ("body", "headers", "sent", "kind"),
    [
        ({"a": "ü"}, {}, '{"a":"ü"}', "application/json"),
        ([1, None], {}, "[1,null]", "application/json"),
        ("tëxt", {}, "tëxt", "text/plain; charset=utf-8"),
        ("a,b", {"content-type": "text/csv"}, "a,b", "text/csv"),
        (None, {}, "", None),
    ],
)
async def test_a_body_is_sent_as_it_was_given(
    body: Any, headers: dict[str, str], sent: str, kind: str | None
) -> None:
    async with serving() as service:
        result = await ask(service, "http_request", body=body, headers=headers)
    assert result.error is None, result.error
    (asked,) = service.asked
    assert (asked.method, asked.body.decode(), asked.header("Content-Type")) == ("POST", sent, kind)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
async def test_every_method_is_sent(method: str) -> None:
    async with serving() as service:
        result = await ask(service, "http_request", method=method)
    assert result.error is None
    assert service.asked[0].method == method


async def test_reading_and_changing_are_two_tools_with_two_tiers() -> None:
    assert (HttpGet.spec.tier, HttpGet.spec.effects) == (1, "read")
    assert (HttpRequest.spec.tier, HttpRequest.spec.effects) == (2, "once")
    assert "method" not in HttpGet.spec.input_schema["properties"]


def test_without_an_egress_there_are_no_such_tools() -> None:
    names = {one.spec.name for one in web.tools(web.Settings(), Path())}
    assert names == {"web_search"}
    granted = web.tools(web.Settings(egress=("api.example.com:443",)), Path())
    assert {one.spec.name: one.spec.egress for one in granted if one.spec.name != "web_search"} == {
        "http_get": ("api.example.com:443",),
        "http_request": ("api.example.com:443",),
    }


async def test_a_host_that_the_config_does_not_name_is_not_connected_to() -> None:
    async with serving() as other, serving() as service, requesting(service) as executor:
        for name in ("http_get", "http_request"):
            result = await executor.execute(name, {"url": other.url})
            assert result.error is not None
            assert (result.error.code, result.error.effects) == ("POLICY_DENIED", "none")
    assert other.connections == 0


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Host": "other"}, "belongs to the connection"),
        ({"content-length": "5"}, "belongs to the connection"),
        ({"Transfer-Encoding": "chunked"}, "belongs to the connection"),
        ({"Connection": "upgrade"}, "belongs to the connection"),
        ({"Authorization": "Basic eDp5"}, "credentials"),
        ({"Cookie": "a=b"}, "credentials"),
        ({"X-A": "a\r\nX-B: b"}, "line breaks"),
        ({"X-A": "a\nb"}, "line breaks"),
        ({"X-A": "a\x00"}, "line breaks"),
        ({"X A": "a"}, "letters"),
        ({"X-A:": "a"}, "letters"),
        ({"": "a"}, "letters"),
        ({"Content-Type": "a\r\nX-B: b"}, "cannot be sent"),
    ],
)
async def test_headers_that_are_not_a_callers_to_set_are_refused(
    headers: dict[str, str], said: str
) -> None:
    async with serving() as service:
        result = await ask(service, "http_request", headers=headers)
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("VALIDATION_ERROR", "none")
    assert said in result.error.message
    assert service.connections == 0


async def test_an_answer_longer_than_it_may_be_is_not_read() -> None:
    long = Reply("x" * 5000, type="text/plain")
    async with serving(lambda _: long) as service, requesting(service, max_bytes=4999) as executor:
        result = await executor.execute("http_get", {"url": service.url})
    assert result.error is not None
    assert result.error.code == "OUTPUT_TOO_LARGE"


def test_a_spec_is_plain_data() -> None:
    for kind in (HttpGet, HttpRequest, web.WebSearch):
        assert (
            msgspec.json.decode(msgspec.json.encode(kind.spec), type=type(kind.spec)) == kind.spec
        )


async def test_half_a_character_in_a_url_is_refused() -> None:
    async with serving(lambda asked: Reply("{}")) as service:
        result = await ask(service, url=service.url + "/\ud800")
    assert result.error is not None
    assert result.error.message == "/url: there is half a character in it"
    assert service.asked == []
