"""Documents that mean harm: refused, or left out with place and reason, and nothing is fetched."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.openapi.documents import (
    body,
    converted,
    document,
    found,
    operation,
    parameter,
    tool_of,
    tools_of,
)
from toolpost import SourceError
from toolpost.document import as_yaml, parse
from toolpost.plugins import verify_binding
from toolpost.registry import Registry
from toolpost.sources.openapi.converting import Choices, imported
from toolpost.sources.openapi.fetching import file_in, read_file
from toolpost.verified import verified

LONG = 20.0
"""Seconds: a fence for what takes milliseconds here, and would take for ever if it went wrong."""
TEXT = {"type": "string"}


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("it looked at the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def with_ok(about: Any, **more: Any) -> dict[str, Any]:
    return document({"/bad": {"post": about}, "/ok": {"get": operation(operationId="ok")}}, **more)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    "reference",
    [
        "file:///etc/passwd",
        "/etc/passwd",
        "../../etc/passwd#/root",
        "http://169.254.169.254/latest/meta-data",
        "https://evil.example/schemas.json#/Pet",
        "other.yaml",
        "#anchor",
        "#",
        "",
    ],
)
@pytest.mark.parametrize("where", ["parameter", "body", "schema", "deep"])
def test_a_reference_out_of_the_document_is_never_followed(reference: str, where: str) -> None:
    outside = {"$ref": reference}
    deep = {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/A"}}}
    about = {
        "parameter": operation(parameters=[outside]),
        "body": operation(requestBody=outside),
        "schema": operation(requestBody=body(outside)),
        "deep": operation(requestBody=body(deep)),
    }[where]
    inner = {"type": "object", "properties": {"b": outside}}
    made = converted(with_ok(about, components={"schemas": {"A": inner}}))
    (left,) = made.left_out
    assert "outside of the document, which is not fetched" in left.why
    assert left.at.startswith("#/components" if where == "deep" else "#/paths/~1bad/post")
    assert [spec.name for spec in made.specs] == ["ok"]


@pytest.mark.parametrize(
    "about",
    [
        {"parameters": [{"$ref": "#/components/parameters/A"}]},
        {"requestBody": {"$ref": "#/components/requestBodies/A"}},
        {"requestBody": body({"$ref": "#/components/schemas/A"})},
    ],
)
def test_references_in_a_circle_end(about: Any) -> None:
    components = {
        kind: {
            "A": {"$ref": f"#/components/{kind}/B"},
            "B": {"$ref": f"#/components/{kind}/A"},
        }
        for kind in ("parameters", "requestBodies", "schemas")
    }
    (left,) = converted(with_ok(operation(**about), components=components)).left_out
    assert "circle" in left.why


def laughs(levels: int, width: int, kind: str) -> dict[str, Any]:
    """Each of the schemas refers to the next one several times."""

    def schema(n: int) -> Any:
        ref = {"$ref": f"#/components/schemas/L{n + 1}"}
        if kind == "properties":
            return {"type": "object", "properties": {f"p{i}": ref for i in range(width)}}
        return {kind: [ref] * width}

    return {f"L{n}": schema(n) for n in range(levels)} | {f"L{levels}": {"type": "object"}}


@pytest.mark.parametrize("kind", ["properties", "allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize(("levels", "width"), [(60, 10), (2000, 2)])
def test_schemas_that_multiply_do_not(kind: str, levels: int, width: int) -> None:
    schemas = laughs(levels, width, kind)
    data = with_ok(
        operation(requestBody=body({"$ref": "#/components/schemas/L0"}, required=True)),
        components={"schemas": schemas},
    )
    begun = time.monotonic()
    made = converted(data)
    assert time.monotonic() - begun < LONG
    for spec in made.specs:
        verified(spec)
        assert len(json.dumps(spec.to_dict())) < 100_000


def test_many_operations_with_dear_schemas_do_not_add_up() -> None:
    branch = {"anyOf": [{"$ref": f"#/components/schemas/L{n}"} for n in range(0, 40, 7)]}
    paths = {
        f"/{n}": {
            "post": operation(
                operationId=f"o{n}", requestBody=body({"allOf": [branch] * (n % 7 + 1)})
            )
        }
        for n in range(300)
    }
    data = document(paths, components={"schemas": laughs(40, 3, "anyOf")})
    begun = time.monotonic()
    made = converted(data)
    assert time.monotonic() - begun < 3 * LONG
    assert len(made.specs) + len(made.left_out) == 300


def test_a_huge_enum_is_not_checked() -> None:
    made = converted(
        with_ok(operation(parameters=[parameter("a", schema={"enum": list(range(100_000))})]))
    )
    assert made.specs[0].input_schema["properties"] == {"a": {}}
    assert made.notes == {
        "#/paths/~1bad/post/parameters/0/schema/enum": "enum cannot be used, and is left out"
    }


@pytest.mark.parametrize("pattern", ["(a+)+$(?=b)", "^(?=(a+)+b)", "(x{1000}){1000}", "[", "\\1"])
def test_a_pattern_that_would_be_too_dear_is_not_checked(pattern: str) -> None:
    begun = time.monotonic()
    made = converted(
        with_ok(operation(parameters=[parameter("a", schema={**TEXT, "pattern": pattern})]))
    )
    assert time.monotonic() - begun < LONG
    for spec in made.specs:
        verified(spec)


def test_nothing_of_a_document_is_obeyed_by_a_terminal_or_hidden_from_a_person() -> None:
    evil = "\x1b]0;title\x07\x1b[31m\u202eevil\u200b\U000e0041"
    spec = tool_of(
        operation(
            operationId=f"a{evil}",
            summary=f"Do it.{evil}",
            description=f"Well.{evil}",
            tags=[f"t{evil}"],
            parameters=[parameter(f"p{evil}", description=f"d{evil}")],
        ),
        method="get",
        info={"version": f"1{evil}"},
    )
    spoken = [spec.name, spec.description, spec.title, *spec.tags, spec.version]
    spoken += [*spec.input_schema["properties"], json.dumps(spec.input_schema)]
    for text in spoken:
        assert text is not None
        assert not any(one in text for one in ("\x1b", "\x07", "\u202e", "\u200b", "\U000e0041"))
    assert "\\u001b" not in json.dumps(spec.input_schema)


def test_a_reason_can_be_printed() -> None:
    data = with_ok(operation(parameters=[{"$ref": "\x1b[31m" * 1000}]))
    (left,) = converted(data).left_out
    assert left.why.isprintable()
    assert len(left.why) < 300


def test_a_stranger_cannot_take_a_parameter_out_of_the_sanitizer() -> None:
    marks = {"x-raw": True, "x-secret": True}
    schema = {"type": "object", "properties": {"a": {**TEXT, **marks}}, **marks}
    spec = tool_of(operation(requestBody=body(schema), **marks))
    assert "x-raw" not in json.dumps(spec.to_dict())
    assert "x-secret" not in json.dumps(spec.to_dict())


def test_a_document_cannot_choose_which_secret_is_sent_to_it() -> None:
    for scheme in ("GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "PATH"):
        spec = tool_of(
            operation(security=[{scheme: []}]),
            components={"securitySchemes": {scheme: {"type": "http", "scheme": "bearer"}}},
            servers=[{"url": "https://evil.example"}],
        )
        assert spec.binding["auth"] == {"bearer": f"EVIL_EXAMPLE__{scheme}"}


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080",
        "https://localhost",
        "http://169.254.169.254",
        "https://10.0.0.1",
        "https://[::1]",
        "https://0x7f000001",
        "https://2130706433",
        "ftp://example.com",
        "file:///etc",
        "https://user:password@example.com",
        "javascript:alert(1)",
        "https://{host}",
    ],
)
def test_a_document_cannot_lead_a_tool_into_the_inner_network(url: str) -> None:
    data = document(
        {
            "/bad": {"get": operation(servers=[{"url": url}])},
            "/ok": {"get": operation(operationId="ok")},
        }
    )
    (left,) = converted(data).left_out
    assert left.operation == "GET /bad"


def test_a_path_cannot_climb_out_of_the_server() -> None:
    data = document(
        {"/../admin": {"get": operation()}, "/ok": {"get": operation(operationId="ok")}}
    )
    (left,) = converted(data).left_out
    assert left.why == "a path has no '.' or '..' in it"


def test_more_operations_than_can_be_told_are_refused() -> None:
    paths = {f"/{n}": {"get": {}} for n in range(20_001)}
    with pytest.raises(SourceError, match="choose some by tags or operations"):
        converted(document(paths))


def test_a_document_file_stays_beneath_the_folder_of_the_config(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "doc.json").write_text("{}")
    (inside / "link.json").symlink_to(tmp_path / "doc.json")
    for path in ("../doc.json", "link.json", "a/../../doc.json"):
        with pytest.raises(SourceError, match="leads out of"):
            file_in(inside, path)
    with pytest.raises(SourceError, match="not a path"):
        file_in(inside, "a\0b")
    assert file_in(inside, str(tmp_path / "doc.json")) == tmp_path / "doc.json"


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a, *a]\n" + "".join(f"c{n}: &c{n} [*b, *b]\n" for n in range(9)),
        "openapi: !!python/object/apply:os.system [id]",
        "[" * 100_000,
        '{"openapi": "3.0.0", "openapi": "3.1.0"}',
    ],
)
def test_a_bomb_is_refused_as_it_is_in_any_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "doc.yaml"
    file.write_text(text)
    with pytest.raises(SourceError, match=r"doc\.yaml"):
        imported(read_file(file), Choices())


# --- anything at all ---------------------------------------------------------------------------

KEYS = st.sampled_from(
    [
        "parameters", "requestBody", "responses", "content", "application/json", "schema", "$ref",
        "type", "properties", "items", "allOf", "oneOf", "security", "servers", "url", "name", "in",
        "tags", "operationId", "get", "post", "200", "description", "required", "enum", "variables",
        "style", "explode", "encoding", "multipart/form-data", "nullable", "default", "x",
        "additionalProperties", "{a}", "/b/{c}", "application/x-www-form-urlencoded", "deprecated",
    ]
)  # fmt: skip
WORDS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from(
        [
            "object", "array", "string", "query", "path", "header", "cookie", "form", "#/paths",
            "#/components/schemas/A", "https://a.example/{x}", "binary", "deepObject", "", "{",
            "a b",
        ]
    ),
    st.text(max_size=8),
)  # fmt: skip
ANYTHING = st.recursive(
    WORDS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=25,
)


@given(
    st.dictionaries(st.sampled_from(["/a", "/b/{c}", "/d?e={f}"]), ANYTHING, max_size=3),
    st.fixed_dictionaries(
        {},
        optional={"get": ANYTHING, "post": ANYTHING, "parameters": ANYTHING, "servers": ANYTHING},
    ),
    ANYTHING,
    ANYTHING,
    st.sampled_from(["3.0.3", "3.1.0"]),
)
def test_whatever_stands_in_a_document_becomes_a_good_tool_or_a_reason(
    paths: Any, item: Any, schema: Any, about: Any, version: str
) -> None:
    typical = operation(
        parameters=[parameter("p", schema=schema), {"name": "q", "in": "query", "x": about}],
        requestBody=body(schema, media={"encoding": about}),
        responses={"200": {"content": {"application/json": {"schema": schema}}}},
        security=about,
    )
    data = document(
        {**paths, "/typical/{p}": {"post": typical, "put": about}, "/item": item},
        version=version,
        components={"schemas": {"A": schema}, "securitySchemes": about},
    )
    try:
        made = converted(data)
    except SourceError:
        return
    Registry(made.specs)
    for spec in made.specs:
        verified(spec)
        verify_binding(spec)
    written = {"tools": [spec.to_dict() for spec in made.specs]}
    assert parse(as_yaml(written), format="yaml", name="y").data == written
    assert all(one.why and one.at.startswith("#") for one in made.left_out)


def test_the_same_document_gives_the_same_tools() -> None:
    data = with_ok(operation(requestBody=body({"$ref": "#/components/schemas/A"})))
    data["components"] = {"schemas": {"A": {"type": "object", "properties": {"a": TEXT}}}}
    first, second = (imported(found(data), Choices()) for _ in range(2))
    assert [one.digest for one in first.specs] == [one.digest for one in second.specs]
    assert list(tools_of(data)) == ["it", "ok"]
