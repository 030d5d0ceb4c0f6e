"""What goes on the wire: arguments in their places, encoded for them, and nowhere else."""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.http.service import Reply, call, http, schema, serving
from toolpost import Caller, ToolSpec
from toolpost.backends.http.binding import endpoint_of
from toolpost.backends.http.filling import request_from
from toolpost.errors import InvalidArguments
from toolpost.net.client import Request

pytestmark = pytest.mark.anyio
ANY: dict[str, Any] = {}
BASE = "https://api.test"


def filled(arguments: dict[str, Any], url: str = BASE, **binding: Any) -> Request:
    """The request of a tool whose parameters are those that its binding mentions."""
    binding.setdefault("query", {})
    names = re.findall(r"(?<!{){(\w+)}", f"{url} {binding}")
    properties = {name: ANY for name in names if name in (*arguments, "absent")}
    spec = http(url, input_schema={"type": "object", "properties": properties}, **binding)
    return request_from(endpoint_of(spec), arguments)


@pytest.mark.req("FM-7", "UX-3")
async def test_a_tool_asks_its_service_and_gives_back_what_it_says() -> None:
    async with serving(lambda _: Reply('{"degrees": 21, "sky": "clear"}')) as service:
        spec = http(
            service.url + "/v1/cities/{city}/weather",
            service,
            input_schema=schema("city", units={"type": "string"}),
            query={"units": "{units}", "lang": "en"},
            headers={"X-Trace": "for {city}"},
        )
        result = await call(spec, {"city": "San José", "units": "C&F"})
        assert result.output == {"degrees": 21, "sky": "clear"}, result.error
    (asked,) = service.asked
    assert asked.method == "GET"
    assert asked.target == "/v1/cities/San%20Jos%C3%A9/weather?units=C%26F&lang=en"
    assert asked.header("X-Trace") == "for San José".encode().decode()
    assert asked.header("Host") == service.authority
    assert asked.header("User-Agent") == "toolpost"


# --- the path ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "value", "expected"),
    [
        ("{v}", "a/b?c#d%e", "a%2Fb%3Fc%23d%25e"),
        ("{v}", 5, "5"),
        ("{v}", 1.5, "1.5"),
        ("{v}", 3.0, "3"),
        ("{v}", True, "true"),
        ("{v}", ["a", "b,c"], "a,b%2Cc"),
        ("{v}", {"x": 1, "y": 2}, "x,1,y,2"),
        ({"value": "{v}", "explode": True}, {"x": 1, "y": 2}, "x=1,y=2"),
        ({"value": "{v}", "style": "label"}, "blue", ".blue"),
        ({"value": "{v}", "style": "label"}, ["a", "b"], ".a,b"),
        ({"value": "{v}", "style": "label", "explode": True}, ["a", "b"], ".a.b"),
        ({"value": "{v}", "style": "label", "explode": True}, {"x": 1}, ".x=1"),
        ({"value": "{v}", "style": "matrix"}, "blue", ";id=blue"),
        ({"value": "{v}", "style": "matrix"}, ["a", "b"], ";id=a,b"),
        ({"value": "{v}", "style": "matrix", "explode": True}, ["a", "b"], ";id=a;id=b"),
        ({"value": "{v}", "style": "matrix", "explode": True}, {"x": 1, "y": 2}, ";x=1;y=2"),
        ({"value": "{v}", "style": "matrix"}, {"x": 1}, ";id=x,1"),
        ({"value": "{v}", "style": "json"}, {"x": [1]}, "%7B%22x%22%3A%5B1%5D%7D"),
        ({"value": "{v}", "allow_reserved": True}, "a/b?c", "a/b%3Fc"),
        ("v-{v}", "1", "v-1"),
    ],
)
def test_a_value_fills_its_place_in_the_path(entry: Any, value: Any, expected: str) -> None:
    request = filled({"v": value}, f"{BASE}/p/{{id}}/q", path={"id": entry})
    assert request.url.target == f"/p/{expected}/q"


@pytest.mark.parametrize("value", ["", ".", "..", "../x", "x/..", "..\\x", "./x", None, [], {}])
@pytest.mark.parametrize("reserved", [False, True])
def test_a_value_does_not_lead_to_another_path(value: Any, reserved: bool) -> None:
    path = {"v": {"value": "{v}", "allow_reserved": reserved}}
    with pytest.raises(InvalidArguments, match=r"^/v: "):
        filled({"v": value}, f"{BASE}/p/{{v}}", path=path)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ({"value": "{v}"}, [""]),
        ({"value": "{v}", "style": "label"}, [""]),
        ({"value": "{v}", "style": "label", "explode": True}, ["", ""]),
        ({"value": "{v}", "style": "label", "allow_reserved": True}, "/x"),
        (
            {"value": "{v}", "style": "label", "explode": True, "allow_reserved": True},
            ["a/", "", "/b"],
        ),
    ],
)
def test_what_is_put_between_values_does_not_lead_to_another_path(entry: Any, value: Any) -> None:
    with pytest.raises(InvalidArguments, match=r"^/v: must not come to nothing, '.' or '..'"):
        filled({"v": value}, f"{BASE}/p/q/{{v}}/x", path={"v": entry})


@pytest.mark.parametrize("arguments", [{"a": ".", "b": "."}, {"a": "x", "b": ".."}])
def test_two_values_do_not_make_a_step_up_together(arguments: Any) -> None:
    with pytest.raises(InvalidArguments):
        filled(arguments, BASE + "/p/{a}{b}")
    with pytest.raises(InvalidArguments, match="/a"):
        filled({"a": "."}, BASE + "/p/.{a}/x")


@settings(max_examples=200)
@given(st.text(min_size=1, max_size=30))
def test_whatever_the_value_the_path_has_as_many_steps_and_the_host_is_the_same(text: str) -> None:
    try:
        request = filled({"v": text}, BASE + "/p/{v}/q?fixed=1")
    except InvalidArguments:
        return
    assert request.url.origin == ("https", "api.test", 443)
    assert re.fullmatch(r"/p/[^/?#]+/q\?fixed=1", request.url.target)
    assert unquote(request.url.target.split("/")[2]) == text


# --- the query ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "value", "expected"),
    [
        ("{v}", "a b&c=d+e", "n=a%20b%26c%3Dd%2Be"),
        ("{v}", "", "n="),
        ("{v}", False, "n=false"),
        ("{v}", ["a", "b"], "n=a&n=b"),
        ("{v}", {"x": 1, "y": "z"}, "x=1&y=z"),
        ("{v}", [], ""),
        ("{v}", None, ""),
        ("{absent}", 1, ""),
        ("x {absent}", 1, ""),
        ("x {v}", 1, "n=x%201"),
        ("{{v}}", 1, "n=%7Bv%7D"),
        (5, 1, "n=5"),
        (True, 1, "n=true"),
        ({"value": "{v}", "explode": False}, ["a", "b,c"], "n=a,b%2Cc"),
        ({"value": "{v}", "explode": False}, {"x": 1, "y": 2}, "n=x,1,y,2"),
        ({"value": "{v}", "style": "spaceDelimited"}, ["a", "b"], "n=a%20b"),
        ({"value": "{v}", "style": "pipeDelimited"}, ["a", "b"], "n=a%7Cb"),
        ({"value": "{v}", "style": "pipeDelimited", "explode": True}, ["a", "b"], "n=a&n=b"),
        ({"value": "{v}", "style": "deepObject"}, {"a": 1, "b": {"c": [2, 3]}},
         "n[a]=1&n[b][c]=2&n[b][c]=3"),
        ({"value": "{v}", "style": "json"}, {"a": [1]}, "n=%7B%22a%22%3A%5B1%5D%7D"),
        ({"value": "{v}", "allow_reserved": True}, "a/b:c&d;e#f+g", "n=a/b:c%26d%3Be%23f%2Bg"),
    ],
)  # fmt: skip
def test_a_value_stands_in_the_query_as_its_style_says(
    entry: Any, value: Any, expected: str
) -> None:
    request = filled({"v": value}, query={"n": entry})
    assert request.url.target.partition("?")[2] == expected


@settings(max_examples=100)
@given(st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=20), max_size=4))
def test_whatever_the_values_the_query_holds_exactly_them(values: dict[str, str]) -> None:
    spec = http(BASE, method="GET")
    query = request_from(endpoint_of(spec), values).url.target.partition("?")[2]
    assert dict(parse_qsl(query, keep_blank_values=True)) == values


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
async def test_arguments_without_a_place_go_into_the_query(method: str) -> None:
    async with serving() as service:
        spec = http(service.url + "/{id}?v=1", service, method=method,
                    input_schema=schema("id", q={}, tags={}))  # fmt: skip
        await call(spec, {"id": "7", "q": "a b", "tags": ["x", "y"]})
    (asked,) = service.asked
    assert (asked.target, asked.body) == ("/7?v=1&q=a%20b&tags=x&tags=y", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_arguments_without_a_place_go_into_a_json_body(method: str) -> None:
    async with serving() as service:
        spec = http(service.url + "/{id}", service, method=method,
                    input_schema=schema("id", q={}, tags={}))  # fmt: skip
        await call(spec, {"id": "7", "tags": ["x"], "q": 12345678901234567890123})
        await call(spec, {"id": "7"})
    asked, bare = service.asked
    assert asked.target == "/7"
    assert asked.header("Content-Type") == "application/json"
    assert json.loads(asked.body) == {"q": 12345678901234567890123, "tags": ["x"]}
    assert (bare.body, bare.header("Content-Length")) == (b"", "0")


# --- headers and cookies -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "value", "expected"),
    [
        ("{v}", "text", "text"),
        ("{v}", ["a", 2], "a,2"),
        ("{v}", {"x": 1}, "x,1"),
        ({"value": "{v}", "explode": True}, {"x": 1}, "x=1"),
        ({"value": "{v}", "style": "json"}, {"x": 1}, '{"x":1}'),
        ("{v}", None, None),
        ("{v}", "  text ", "text"),
    ],
)
def test_a_value_stands_in_a_header(entry: Any, value: Any, expected: str | None) -> None:
    request = filled({"v": value}, headers={"X-V": entry})
    assert dict(request.headers).get("X-V") == expected


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", ["a", "b\r\n"]])
def test_a_value_does_not_make_another_header(value: Any) -> None:
    with pytest.raises(InvalidArguments, match="line break"):
        filled({"v": value}, headers={"X-V": "{v}"})


def test_cookies_are_one_header_and_a_value_does_not_make_another_cookie() -> None:
    request = filled({"v": "a;b=c d\r\n"}, cookies={"one": "{v}", "two": 2, "three": "{absent}"})
    assert dict(request.headers)["Cookie"] == "one=a%3Bb%3Dc%20d%0D%0A; two=2"


# --- bodies ------------------------------------------------------------------------------------


def test_a_json_body_keeps_types_and_order_and_leaves_out_what_is_absent() -> None:
    tree = {
        "z": "{n}",
        "a": {"t": "is {n}", "x": "{absent}", "null": "{nil}", "list": ["{l}", "{absent}", 1]},
        "fixed": True,
    }
    request = filled({"n": 1.5, "l": [1, {"k": None}], "nil": None}, body={"json": tree})
    assert request.type == "application/json"
    assert request.body == (
        b'{"z":1.5,"a":{"t":"is 1.5","null":null,"list":[[1,{"k":null}],1]},"fixed":true}'
    )


def test_a_whole_argument_can_be_the_body_or_there_is_none() -> None:
    kind = "application/merge-patch+json"
    request = filled({"v": [1, "ü"]}, body={"json": "{v}", "type": kind})
    assert (request.type, request.body) == (kind, '[1,"ü"]'.encode())
    assert filled({}, body={"json": "{absent}"}).body is None
    assert filled({}, body={"json": {"a": "{absent}"}}).body == b"{}"
    assert filled({}, body={"json": {"a": "{absent}"}, "optional": True}).body is None
    assert filled({}, body={"json": None}).body == b"null"
    assert filled({}, body={"form": {"a": "{absent}"}, "optional": True}).body is None
    assert filled({}, body={"text": "{absent}"}).body is None


def test_a_form_is_written_like_a_query() -> None:
    body = {"form": {"a": "{v}", "b": {"value": "{l}", "explode": False}}}
    request = filled({"v": "x y&z+", "l": [1, 2]}, body=body)
    assert request.type == "application/x-www-form-urlencoded"
    assert request.body == b"a=x+y%26z%2B&b=1,2"


def test_text_and_bytes_go_as_they_are() -> None:
    request = filled({"v": "ü"}, body={"text": "<{v}>", "type": "text/csv"})
    assert (request.type, request.body) == ("text/csv", "<ü>".encode())
    request = filled({"v": base64.b64encode(b"\x00\xff").decode()}, body={"bytes": "{v}"})
    assert (request.type, request.body) == ("application/octet-stream", b"\x00\xff")
    with pytest.raises(InvalidArguments, match="/v: must be base64"):
        filled({"v": "not base64!"}, body={"bytes": "{v}"})


def test_the_parts_of_a_multipart_body_have_names_types_and_files() -> None:
    body = {
        "multipart": {
            "title": "{t}",
            'q"uote': 1,
            "meta": "{m}",
            "tags": "{l}",
            "gone": "{absent}",
            "file": {"value": "{f}", "base64": True, "filename": "a.bin", "type": "image/png"},
        }
    }
    data = base64.b64encode(b"\x89PNG\r\n--x").decode()
    arguments = {"t": "a\r\n--b", "m": {"k": 1}, "l": ["x", "y"], "f": data}
    request = filled(arguments, body=body)
    kind, _, boundary = (request.type or "").partition("; boundary=")
    assert kind == "multipart/form-data"
    parts = (request.body or b"").split(b"--" + boundary.encode())
    assert parts[0] == b""
    assert parts[-1] == b"--\r\n"
    shown = [part.removeprefix(b"\r\n").removesuffix(b"\r\n") for part in parts[1:-1]]
    form = b"Content-Disposition: form-data; name="
    assert shown == [
        form + b'"title"\r\n\r\na\r\n--b',
        form + b'"q%22uote"\r\n\r\n1',
        form + b'"meta"\r\nContent-Type: application/json\r\n\r\n{"k":1}',
        form + b'"tags"\r\n\r\nx',
        form + b'"tags"\r\n\r\ny',
        form + b'"file"; filename="a.bin"\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n--x',
    ]


def test_half_a_character_is_refused_wherever_it_would_go() -> None:
    for binding in (
        {"query": {"v": "{v}"}},
        {"headers": {"v": "{v}"}},
        {"body": {"text": "{v}"}},
        {"body": {"multipart": {"v": "{v}"}}},
    ):
        with pytest.raises(InvalidArguments, match="surrogate"):
            filled({"v": "\ud800"}, **binding)


# --- who asks ----------------------------------------------------------------------------------

TOKEN = "tok-4f9a8b7c6d5e"
AUTHS: list[tuple[Any, dict[str, str], str]] = [
    ({"bearer": "TOKEN"}, {"authorization": f"Bearer {TOKEN}"}, "/x"),
    (
        {"basic": {"user": "me", "password": "TOKEN"}},
        {"authorization": "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()},
        "/x",
    ),
    (
        {"basic": {"user_secret": "TOKEN"}},
        {"authorization": "Basic " + base64.b64encode(f"{TOKEN}:".encode()).decode()},
        "/x",
    ),
    ({"api_key": {"secret": "TOKEN", "name": "X-Key"}}, {"x-key": TOKEN}, "/x"),
    (
        {"api_key": {"secret": "TOKEN", "name": "Authorization", "prefix": "Token "}},
        {"authorization": f"Token {TOKEN}"},
        "/x",
    ),
    ({"api_key": {"secret": "TOKEN", "name": "k", "in": "query"}}, {}, f"/x?k={TOKEN}"),
    (
        {"api_key": {"secret": "TOKEN", "name": "sid", "in": "cookie"}},
        {"cookie": f"lang=en; sid={TOKEN}"},
        "/x",
    ),
    (
        [{"bearer": "TOKEN"}, {"api_key": {"secret": "OTHER", "name": "X-App"}}],
        {"authorization": f"Bearer {TOKEN}", "x-app": "app-1234567890"},
        "/x",
    ),
]


@pytest.mark.parametrize(("auth", "headers", "target"), AUTHS)
async def test_secrets_prove_who_asks_and_a_dry_run_shows_only_their_names(
    auth: Any, headers: dict[str, str], target: str
) -> None:
    async with serving() as service:
        cookies = {"lang": "en"} if "cookie" in str(auth) else {}
        spec = http(service.url + "/x", service, auth=auth, cookies=cookies)
        secrets = {"TOKEN": f"{TOKEN}\n", "OTHER": "app-1234567890"}
        result = await call(spec, {}, secrets=secrets)
        assert result.success, result.error
        planned = await call(spec, {}, secrets=secrets, dry_run=True)
    (asked,) = service.asked
    assert asked.target == target
    assert {name: asked.header(name) for name in headers} == headers
    plan = str(planned.metadata.plan)
    assert "[secret TOKEN]" in plan
    assert TOKEN not in plan
    assert base64.b64encode(TOKEN.encode()).decode()[:8] not in plan


@pytest.mark.parametrize("value", [None, "", " \n", "two\r\nX-Evil: 1", "ü" * 12])
async def test_a_secret_that_is_missing_or_cannot_be_sent_sends_nothing(value: str | None) -> None:
    async with serving() as service:
        spec = http(service.url, service, auth={"bearer": "TOKEN"})
        result = await call(spec, {}, secrets={"TOKEN": value})
    assert (result.error.code, result.error.remedy) == ("UNAVAILABLE", "other_tool")
    assert result.error.effects == "none" or result.error.effects == "unknown"
    assert "TOKEN" not in result.error.message
    assert service.asked == []


async def test_an_idempotency_key_is_sent_and_no_two_callers_have_the_same() -> None:
    async with serving() as service:
        spec = http(service.url, service, method="POST", retry={"honours_key": True})
        spec = ToolSpec.from_dict(spec.to_dict() | {"retry": {"honours_key": True}})
        for caller in ("ann", "ann", "bob"):
            await call(spec, {}, key="k-1", caller=Caller(caller))
        await call(spec, {})
        own = http(service.url, service, method="POST", key_header="X-Once")
        await call(own, {}, key="k-1", caller=Caller("ann"))
    keys = [asked.header("Idempotency-Key") for asked in service.asked]
    assert keys[0] == keys[1] != keys[2]
    assert keys[3:] == [None, None]
    assert "k-1" not in str(keys)
    assert service.asked[4].header("X-Once") is not None


async def test_the_trace_of_the_caller_goes_along() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with serving() as service:
        await call(http(service.url, service), {}, metadata={"traceparent": parent})
    assert service.asked[0].header("traceparent") == parent


async def test_a_dry_run_shows_the_request_and_sends_nothing() -> None:
    async with serving() as service:
        spec = http(
            service.url + "/v1/{id}",
            service,
            method="PUT",
            input_schema=schema("id", note={}),
            body={"json": {"note": "{note}"}},
            query={},
        )
        result = await call(spec, {"id": "a b", "note": "x"}, dry_run=True)
        assert service.connections == 0
    plan = result.metadata.plan
    assert plan["method"] == "PUT"
    assert plan["url"] == f"{service.url}/v1/a%20b"
    assert plan["body"] == {"note": "x"}
    assert plan["headers"]["Content-Type"] == "application/json"
