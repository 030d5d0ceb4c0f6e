"""The source ``openapi``: a file or an address, watched, and the last good version kept."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.sources.endpoint import Endpoint, serving
from tests.sources.openapi.documents import document, operation, parameter
from toolpost import Config, ConfigError, Runtime, SourceError
from toolpost.contracts import Source
from toolpost.sources.openapi.source import OpenApiSource

pytestmark = pytest.mark.anyio

YAML = """
openapi: 3.0.3
info: {title: Pets, version: "1"}
servers: [{url: https://api.example.com}]
paths:
  /pets:
    get:
      operationId: list_pets
      responses:
        200:
          description: Numbers may be keys.
          content: {application/json: {schema: {type: array, items: {type: string}}}}
"""


@pytest.fixture
def served() -> Iterator[Endpoint]:
    with serving() as endpoint:
        give(endpoint, "one")
        yield endpoint


def give(endpoint: Endpoint, *names: str, **headers: str) -> None:
    """Let the address describe operations of these names; they are at the address as well."""
    paths = {
        f"/{name}": {"get": operation(operationId=name, parameters=[parameter("name")])}
        for name in names
    }
    endpoint.body = json.dumps(document(paths, servers=[{"url": "/"}])).encode()
    endpoint.headers = headers


def source(base: Path, **options: Any) -> OpenApiSource:
    return OpenApiSource.from_config(options, base)


async def names(one: Source) -> list[str]:
    return [spec.name for spec in await one.load(lambda done, total: None)]  # type: ignore[union-attr]


def config(base: Path, **about: Any) -> Config:
    table = {"kind": "openapi", **about}
    return Config.of(
        {"sources": [table], "observers": [], "guards": [], "store": {"kind": "memory"}}, base=base
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


async def next_of(changes: AsyncIterator[None]) -> None:
    async with asyncio.timeout(30):
        await anext(changes)


async def test_a_yaml_file_with_numbers_for_keys_is_read(tmp_path: Path) -> None:
    (tmp_path / "pets.yaml").write_text(YAML)
    (spec,) = await source(tmp_path, document="pets.yaml").load(lambda done, total: None)
    assert spec.name == "list_pets"
    assert spec.output_schema == {"type": "array", "items": {"type": "string"}}


@pytest.mark.req("UX-2")
async def test_a_file_that_changes_is_loaded_again_and_a_broken_one_changes_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pets.yaml"
    file.write_text(YAML)
    async with Runtime.open(config(tmp_path, document="pets.yaml")) as runtime:
        assert "list_pets" in runtime.registry
        file.write_text(YAML.replace("list_pets", "all_pets"))
        await until(lambda: "all_pets" in runtime.registry)
        assert "list_pets" not in runtime.registry
        file.write_text("openapi: 3.0.3\npaths: [")
        await until(lambda: bool(runtime.problems))
        assert "pets.yaml:2:" in next(iter(runtime.problems.values()))
        assert "all_pets" in runtime.registry
        file.unlink()
        await until(lambda: "cannot be read" in str(runtime.problems))
        file.write_text(YAML)
        await until(lambda: "list_pets" in runtime.registry and not runtime.problems)


@pytest.mark.req("UX-2", "UX-3")
async def test_tools_of_an_address_are_called_where_it_is(served: Endpoint, tmp_path: Path) -> None:
    give(served, "greet")
    async with Runtime.open(config(tmp_path, document=served.url)) as runtime:
        result = await runtime.execute("greet", {"name": "Ada"})
    assert result.output == "hello Ada", result.error


async def test_an_address_is_asked_again_and_the_last_good_version_kept(
    served: Endpoint, tmp_path: Path
) -> None:
    options = config(tmp_path, document=served.url, interval=0.1, required=True)
    async with Runtime.open(options) as runtime:
        assert "one" in runtime.registry
        give(served, "two", ETag='"2"')
        await until(lambda: "two" in runtime.registry)
        served.status, served.headers = 500, {}
        await until(lambda: "answered 500" in str(runtime.problems))
        assert "two" in runtime.registry
        served.status, served.headers = 200, {"ETag": '"2"'}
        await until(lambda: not runtime.problems)
        asked = len(served.asked)
        await until(lambda: len(served.asked) > asked + 2)
        assert served.asked[-1]["if-none-match"] == '"2"'
        assert "two" in runtime.registry


async def test_an_address_that_is_down_stops_nobody_unless_it_is_required(
    served: Endpoint, tmp_path: Path
) -> None:
    served.status = 503
    table = {"document": served.url, "interval": 0.1}
    async with Runtime.open(config(tmp_path, **table)) as runtime:
        assert "answered 503" in str(runtime.problems)
        served.status = 200
        await until(lambda: "one" in runtime.registry and not runtime.problems)
    served.status = 503
    with pytest.raises(SourceError, match="answered 503"):
        async with Runtime.open(config(tmp_path, **table, required=True)):
            pass


async def test_the_same_document_is_not_converted_twice(served: Endpoint, tmp_path: Path) -> None:
    one = source(tmp_path, document=served.url, interval=0.1)
    first = await one.load(lambda done, total: None)
    assert await one.load(lambda done, total: None) is first  # no ETag: by its digest
    give(served, "one", ETag='"a"')
    assert await one.load(lambda done, total: None) is first
    give(served, "other")
    async with aclosing(one.changes()) as changes:
        await next_of(changes)
        assert await names(one) == ["other"]


async def test_what_is_left_out_is_told_once_and_by_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = {f"/{n}": {"trace": operation(operationId=f"o{n}")} for n in range(3)}
    data = document({**paths, "/ok": {"get": operation()}})
    (tmp_path / "doc.json").write_text(json.dumps(data))
    one = source(tmp_path, document="doc.json")
    with caplog.at_level(logging.WARNING, logger="toolpost.openapi"):
        assert await names(one) == ["it"]
        assert await names(one) == ["it"]
    (record,) = caplog.records
    assert record.message.endswith("3 of 4 operations left out: the method TRACE is not done here")
    assert one.left_out == {f"TRACE /{n}": "the method TRACE is not done here" for n in range(3)}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xff\xfe", "not UTF-8, at byte 0"),
        (b'{"openapi": ', "not valid JSON"),
        (b"a: [", "not valid YAML"),
        (b"<html></html>", "no OpenAPI document"),
    ],
)
async def test_what_an_address_sends_is_refused_with_its_place(
    served: Endpoint, tmp_path: Path, body: bytes, why: str
) -> None:
    served.body = body
    with pytest.raises(SourceError, match=f"{served.url}.*{why}"):
        await names(source(tmp_path, document=served.url))


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://api.example.com/openapi.json?key=secret", "use https://"),
        ("ftp://example.com/x", "begins with https://"),
        ("https://user@example.com/x", "no place in a URL"),
        ("file:///etc/passwd", "begins with https://"),
        ("http://127.0.0.1:9/openapi.json", "There is no connection to 127.0.0.1"),
    ],
)
async def test_an_address_that_cannot_be_asked_is_refused(
    tmp_path: Path, address: str, why: str
) -> None:
    with pytest.raises(SourceError, match=why) as refused:
        await names(source(tmp_path, document=address))
    assert "key=secret" not in str(refused.value)


async def test_a_redirect_does_not_lead_into_the_inner_network(
    served: Endpoint, tmp_path: Path
) -> None:
    served.status, served.body = 302, b""
    served.headers = {"Location": "http://169.254.169.254/latest"}
    with pytest.raises(SourceError, match=r": 169\.254\.169\.254 is not a public address$"):
        await names(source(tmp_path, document=served.url))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"interval": 0}, "interval is at least"),
        ({"prefix": "a b"}, "no prefix"),
        ({"base_url": "nowhere"}, "base_url"),
        ({"auth": "TOKEN"}, "auth"),
    ],
)
def test_a_wrong_setting_is_met_when_the_config_is_read(
    tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        source(tmp_path, document="doc.json", **options)


async def test_auth_of_the_config_that_is_none_costs_every_tool(tmp_path: Path) -> None:
    (tmp_path / "doc.json").write_text(json.dumps(document({"/it": {"get": operation()}})))
    with pytest.raises(SourceError, match="auth is one of bearer, basic and api_key"):
        await names(source(tmp_path, document="doc.json", auth={}))
