"""Every way to write a parameter or a body, called: what arrives is what the document describes."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.backends.http.service import Asked, Reply, Service, call, serving
from tests.sources.openapi.documents import (
    body,
    document,
    operation,
    parameter,
    tools_of,
)

pytestmark = pytest.mark.anyio

LIST = {"type": "array", "items": {"type": "string"}}
OBJECT = {"type": "object", "additionalProperties": {"type": "string"}}
TEXT = {"type": "string"}


@pytest.fixture
async def service(anyio_backend: str) -> AsyncIterator[Service]:
    async with serving(lambda _: Reply('{"done": true}')) as made:
        yield made


async def sent(
    service: Service, about: dict[str, Any], arguments: dict[str, Any], **more: Any
) -> Asked:
    """What arrives when the one operation of a document is called."""
    path, method = more.pop("path", "/it"), more.pop("method", "get")
    secrets, choices = more.pop("secrets", {}), more.pop("choices", {})
    data = document({path: {method: about}}, **more)
    (spec,) = tools_of(data, base_url=f"{service.url}/v1", **choices).values()
    result = await call(spec, arguments, secrets=secrets)
    assert result.error is None, result.error
    return service.asked[-1]


COLOURS = ["blue", "black", "a,b&c"]
RGB = {"R": "100", "G": "2 0"}


@pytest.mark.req("FM-7", "UX-3")
@pytest.mark.parametrize(
    ("about", "value", "expected"),
    [
        ({}, "a b&c=d/ü", "p=a%20b%26c%3Dd%2F%C3%BC"),
        ({"schema": {"type": "integer"}}, 5, "p=5"),
        ({"schema": {"type": "boolean"}}, False, "p=false"),
        ({"schema": LIST}, COLOURS, "p=blue&p=black&p=a%2Cb%26c"),
        ({"schema": LIST, "explode": False}, COLOURS, "p=blue,black,a%2Cb%26c"),
        ({"schema": LIST, "style": "form", "explode": True}, ["a"], "p=a"),
        ({"schema": LIST, "style": "spaceDelimited", "explode": False}, ["a", "b"], "p=a%20b"),
        ({"schema": LIST, "style": "pipeDelimited", "explode": False}, ["a", "b"], "p=a%7Cb"),
        ({"schema": LIST, "style": "pipeDelimited", "explode": True}, ["a", "b"], "p=a&p=b"),
        ({"schema": OBJECT}, RGB, "R=100&G=2%200"),
        ({"schema": OBJECT, "explode": False}, RGB, "p=R,100,G,2%200"),
        ({"schema": OBJECT, "style": "deepObject"}, RGB, "p[R]=100&p[G]=2%200"),
        (
            {"schema": {"type": "array", "items": OBJECT}, "style": "deepObject"},
            [{"a": "1"}, {"a": "2", "b": "3"}],
            "p[0][a]=1&p[1][a]=2&p[1][b]=3",
        ),
        ({"allowReserved": True}, "/a:b@c", "p=/a:b@c"),
    ],
)
async def test_a_parameter_in_the_query(
    service: Service, about: dict[str, Any], value: Any, expected: str
) -> None:
    asked = await sent(service, operation(parameters=[parameter("p", **about)]), {"p": value})
    assert (asked.method, asked.target) == ("GET", f"/v1/it?{expected}")


@pytest.mark.parametrize(
    ("about", "value", "expected"),
    [
        ({}, "a/b c", "a%2Fb%20c"),
        ({"schema": LIST}, ["a", "b"], "a,b"),
        ({"schema": OBJECT, "explode": True}, RGB, "R=100,G=2%200"),
        ({"style": "label"}, "blue", ".blue"),
        ({"style": "label", "schema": LIST, "explode": True}, ["a", "b"], ".a.b"),
        ({"style": "matrix"}, "blue", ";p=blue"),
        ({"style": "matrix", "schema": LIST, "explode": True}, ["a", "b"], ";p=a;p=b"),
        ({"style": "matrix", "schema": OBJECT}, {"R": "1"}, ";p=R,1"),
    ],
)
async def test_a_parameter_in_the_path(
    service: Service, about: dict[str, Any], value: Any, expected: str
) -> None:
    given = operation(parameters=[parameter("p", "path", required=True, **about)])
    asked = await sent(service, given, {"p": value}, path="/its/{p}/x")
    assert asked.target == f"/v1/its/{expected}/x"


@pytest.mark.parametrize(
    ("about", "value", "expected"),
    [
        ({}, "a, b", "a, b"),
        ({"schema": LIST}, ["a", "b"], "a,b"),
        ({"schema": OBJECT}, {"R": "1"}, "R,1"),
        ({"schema": OBJECT, "explode": True}, {"R": "1", "G": "2"}, "R=1,G=2"),
    ],
)
async def test_a_parameter_in_a_header(
    service: Service, about: dict[str, Any], value: Any, expected: str
) -> None:
    given = operation(parameters=[parameter("X-Own", "header", **about)])
    assert (await sent(service, given, {"X-Own": value})).header("X-Own") == expected


async def test_a_parameter_in_a_cookie(service: Service) -> None:
    given = operation(parameters=[parameter("sid", "cookie"), parameter("lang", "cookie")])
    asked = await sent(service, given, {"sid": "a;b", "lang": "it"})
    assert asked.header("Cookie") == "sid=a%3Bb; lang=it"


async def test_a_parameter_that_is_a_document_of_its_own(service: Service) -> None:
    content = {"application/json": {"schema": {"type": "object"}}}
    given = operation(parameters=[{"name": "q", "in": "query", "content": content}])
    asked = await sent(service, given, {"q": {"a": [1]}})
    assert asked.target == "/v1/it?q=%7B%22a%22%3A%5B1%5D%7D"


async def test_an_argument_that_is_not_given_is_not_sent(service: Service) -> None:
    given = operation(
        parameters=[parameter("p"), parameter("X-Own", "header"), parameter("c", "cookie")],
        requestBody=body({"type": "object", "properties": {"a": TEXT}}),
    )
    asked = await sent(service, given, {}, method="post")
    assert (asked.target, asked.body) == ("/v1/it", b"")
    assert asked.header("X-Own") is asked.header("Cookie") is asked.header("Content-Type") is None


SCHEMA = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "weird[name]": TEXT,
        "tags": LIST,
        "deep": {"type": "object", "properties": {"x": {"type": "integer"}}},
        "gone": {"type": "string", "nullable": True},
    },
    "required": ["name"],
}
VALUES = {"name": "Ü b", "weird_name": "w", "tags": ["a", "b"], "deep": {"x": 1}, "gone": None}


async def test_a_json_body(service: Service) -> None:
    asked = await sent(
        service, operation(requestBody=body(SCHEMA, required=True)), VALUES, method="put"
    )
    assert asked.header("Content-Type") == "application/json"
    assert json.loads(asked.body) == {
        "name": "Ü b",
        "weird[name]": "w",
        "tags": ["a", "b"],
        "deep": {"x": 1},
        "gone": None,
    }


async def test_a_body_that_is_one_argument(service: Service) -> None:
    given = operation(requestBody=body(LIST, "application/vnd.x+json", required=True))
    asked = await sent(service, given, {"body": ["a"]}, method="patch")
    assert (asked.method, asked.body) == ("PATCH", b'["a"]')
    assert asked.header("Content-Type") == "application/vnd.x+json"


async def test_a_form(service: Service) -> None:
    media = "application/x-www-form-urlencoded"
    encoding = {"tags": {"explode": False}, "deep": {"style": "deepObject"}}
    request = body(SCHEMA, media, media={"encoding": encoding}, required=True)
    values = {**VALUES, "gone": None}
    asked = await sent(service, operation(requestBody=request), values, method="post")
    assert asked.header("Content-Type") == media
    assert asked.body == b"name=%C3%9C+b&weird[name]=w&tags=a,b&deep[x]=1"


async def test_a_form_with_fields_that_nobody_named(service: Service) -> None:
    request = body(OBJECT, "application/x-www-form-urlencoded", required=True)
    asked = await sent(
        service, operation(requestBody=request), {"body": {"a": "1", "b": "x y"}}, method="post"
    )
    assert asked.body == b"a=1&b=x+y"


async def test_parts_and_files(service: Service) -> None:
    schema = {
        "type": "object",
        "properties": {"note": TEXT, "file": {"type": "string", "format": "binary"}},
    }
    request = body(
        schema, "multipart/form-data", media={"encoding": {"file": {"contentType": "image/png"}}}
    )
    packed = base64.b64encode(b"\x89PNG").decode()
    asked = await sent(
        service, operation(requestBody=request), {"note": "ü", "file": packed}, method="post"
    )
    kind = asked.header("Content-Type") or ""
    boundary = kind.partition("boundary=")[2].encode()
    assert asked.body == (
        b'--%s\r\nContent-Disposition: form-data; name="note"\r\n\r\n\xc3\xbc\r\n'
        b'--%s\r\nContent-Disposition: form-data; name="file"; filename="file"\r\n'
        b"Content-Type: image/png\r\n\r\n\x89PNG\r\n--%s--\r\n"
    ) % (boundary, boundary, boundary)


async def test_texts_and_bytes(service: Service) -> None:
    text = operation(requestBody=body(TEXT, "text/csv", required=True))
    asked = await sent(service, text, {"body": "a;b\n"}, method="post")
    assert (asked.header("Content-Type"), asked.body) == ("text/csv", b"a;b\n")
    data = operation(requestBody=body({}, "application/zip", required=True))
    asked = await sent(service, data, {"body": "AAE="}, method="post")
    assert (asked.header("Content-Type"), asked.body) == ("application/zip", b"\x00\x01")


async def test_credentials(service: Service) -> None:
    schemes = {
        "token": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "query", "name": "api_key"},
        "sid": {"type": "apiKey", "in": "cookie", "name": "sid"},
    }
    asked = await sent(
        service,
        operation(security=[{"token": [], "key": [], "sid": []}]),
        {},
        components={"securitySchemes": schemes},
        choices={"secrets": {"token": "T", "key": "K", "sid": "S"}},
        secrets={"T": "correct-horse", "K": "battery-staple", "S": "some-session"},
    )
    assert asked.header("Authorization") == "Bearer correct-horse"
    assert asked.target == "/v1/it?api_key=battery-staple"
    assert asked.header("Cookie") == "sid=some-session"


async def test_an_answer_is_held_against_its_schema(service: Service) -> None:
    content = {"application/json": {"schema": {"type": "object", "required": ["name"]}}}
    data = document({"/it": {"get": operation(responses={"200": {"content": content}})}})
    (spec,) = tools_of(data, base_url=service.url).values()
    result = await call(spec)
    assert result.error is not None
    assert result.error.code == "OUTPUT_INVALID"
    assert service.asked[-1].header("Accept") == "application/json"


async def test_a_recursive_argument_travels(service: Service) -> None:
    tree = {
        "type": "object",
        "properties": {
            "name": TEXT,
            "kids": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
        },
        "required": ["name"],
    }
    request = body({"$ref": "#/components/schemas/Tree"}, required=True)
    value = {"name": "a", "kids": [{"name": "b", "kids": [{"name": "c"}]}]}
    asked = await sent(
        service,
        operation(requestBody=request),
        value,
        method="post",
        components={"schemas": {"Tree": tree}},
    )
    assert json.loads(asked.body) == value
