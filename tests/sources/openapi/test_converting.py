"""From an operation to a spec: name, arguments, binding, effects, and why there is none."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.openapi.documents import (
    OK,
    SERVER,
    body,
    converted,
    document,
    found,
    operation,
    parameter,
    reason,
    tool_of,
    tools_of,
)
from toolpost import ConfigError, SourceError, ToolSpec
from toolpost.registry import Registry
from toolpost.sources.openapi.converting import Choices, imported

TEXT = {"type": "string"}


@pytest.mark.req("FM-7", "UX-2")
def test_an_operation_is_an_http_tool() -> None:
    spec = tool_of(
        operation(
            operationId="pets/find-by-id",
            summary="Find a pet.",
            description="By its id,\r\nwhatever it is.",
            tags=["pets", "search"],
            parameters=[
                parameter("id", "path", required=True, description="Which one."),
                parameter("lang"),
            ],
            responses={
                "200": {
                    "description": "A pet.",
                    "content": {"application/json": {"schema": {"type": "object"}}},
                }
            },
        ),
        path="/pets/{id}",
        method="get",
    )
    assert spec.to_dict() == {
        "name": "pets_find-by-id",
        "title": "Find a pet.",
        "description": "Find a pet.\n\nBy its id,\nwhatever it is.",
        "kind": "http",
        "category": "http",
        "version": "1.0",
        "tags": ["pets", "search"],
        "effects": "read",
        "input_schema": {
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "Which one."},
                "lang": {"type": "string"},
            },
            "required": ["id"],
            "additionalProperties": False,
        },
        "output_schema": {"type": "object"},
        "binding": {
            "method": "GET",
            "url": f"{SERVER}/pets/{{id}}",
            "query": {"lang": "{lang}"},
            "headers": {"Accept": "application/json"},
        },
    }


@pytest.mark.parametrize(
    ("method", "effects", "tier"),
    [
        ("get", "read", 1),
        ("head", "read", 1),
        ("options", "read", 1),
        ("put", "idempotent", 2),
        ("delete", "idempotent", 3),
        ("post", "once", 2),
        ("patch", "once", 2),
    ],
)
def test_the_method_says_what_may_be_repeated_and_who_may_call(
    method: str, effects: str, tier: int
) -> None:
    spec = tool_of(operation(), method=method)
    assert (spec.effects, spec.tier, spec.binding["method"]) == (effects, tier, method.upper())


def test_a_method_that_cannot_be_called_is_left_out() -> None:
    data = document({"/it": {"trace": operation(), "get": operation(operationId="other")}})
    assert reason(data) == ("the method TRACE is not done here", "#/paths/~1it/trace")


def test_what_is_deprecated_says_so() -> None:
    spec = tool_of(operation(deprecated=True))
    assert spec.description == "Deprecated. Do it."
    assert spec.labels == {"deprecated": "true"}


def test_a_long_description_is_cut_and_one_that_is_not_there_is_made() -> None:
    long = tool_of(operation(description="word " * 1000))
    assert len(long.description) == 1500
    nameless = tool_of({"responses": {}}, path="/a/{b}", method="get")
    assert nameless.description == "GET /a/{b}"


# --- names -------------------------------------------------------------------------------------


def named(*operations: tuple[str, str, str | None], **choices: Any) -> list[str]:
    paths: dict[str, Any] = {}
    for method, path, given_id in operations:
        about = operation(operationId=given_id)
        if given_id is None:
            del about["operationId"]
        paths.setdefault(path, {})[method] = about
    return list(tools_of(document(paths), **choices))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("listPets", "listPets"),
        ("pets/list all", "pets_list_all"),
        ("pets.list-all", "pets.list-all"),
        ("__a__b__", "a_b"),
        ("\x1b[31mred\x1b[0m", "31mred_0m"),
        ("日本", "get"),
        (None, "get_pets_id_toys"),
    ],
)
def test_the_name_is_the_operation_id_made_legal(given: str | None, name: str) -> None:
    assert named(("get", "/pets/{id}/toys", given)) == [name]


def test_a_long_name_is_cut_and_marked() -> None:
    (name,) = named(("get", "/it", "x" * 100))
    assert re.fullmatch(r"x{55}_[0-9a-f]{8}", name)


def test_names_that_look_alike_are_told_apart_and_the_first_keeps_its_own() -> None:
    names = named(("get", "/a", "list-pets"), ("get", "/b", "List_Pets"), ("get", "/c", "listpets"))
    assert names[0] == "list-pets"
    assert re.fullmatch(r"List_Pets_[0-9a-f]{8}", names[1])
    assert names[2] == "listpets"


def test_a_name_does_not_depend_on_what_else_is_chosen() -> None:
    operations = (("get", "/a", "twin"), ("get", "/b", "twin"))
    assert named(*operations, operations=("GET /b",)) == named(*operations)[1:]


def test_a_prefix_stands_before_every_name() -> None:
    assert named(("get", "/a", "one"), prefix="shop") == ["shop.one"]
    with pytest.raises(ConfigError, match="no prefix"):
        Choices(prefix="a b")


ID = st.one_of(st.none(), st.text(max_size=80), st.sampled_from(["a", "A", "a-", "a_", "list"]))


@pytest.mark.req("FM-7")
@given(st.lists(ID, min_size=1, max_size=12), st.sampled_from(["", "p", "x" * 31]))
def test_whatever_operations_are_called_their_tools_can_be_registered(
    ids: list[str | None], prefix: str
) -> None:
    paths = {}
    for number, one in enumerate(ids):
        about = operation(operationId=one)
        paths[f"/{number}/{(one or '')[:5].replace('{', '').replace('}', '')}"] = {"get": about}
    made = converted(document(paths), prefix=prefix)
    assert len(made.specs) + len(made.left_out) == len(ids)
    names = [spec.name for spec in made.specs]
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", name) for name in names)
    Registry(made.specs)


# --- filters -----------------------------------------------------------------------------------

SHOP = document(
    {
        "/pets": {
            "get": operation(operationId="pets/list", tags=["pets"]),
            "post": operation(operationId="pets/add", tags=["pets", "admin"]),
        },
        "/users": {"get": operation(operationId="users/list", tags=["users"])},
        "/ping": {"get": operation(operationId="ping")},
    }
)


@pytest.mark.parametrize(
    ("choices", "names"),
    [
        ({"tags": ("pets",)}, ["pets_list", "pets_add"]),
        ({"tags": ("pets", "!admin")}, ["pets_list"]),
        ({"tags": ("!admin",)}, ["pets_list", "users_list", "ping"]),
        ({"tags": ("p*", "u?ers")}, ["pets_list", "pets_add", "users_list"]),
        ({"operations": ("*/list",)}, ["pets_list", "users_list"]),
        ({"operations": ("pets_*",)}, ["pets_list", "pets_add"]),
        ({"operations": ("GET *", "!GET /ping")}, ["pets_list", "users_list"]),
        ({"operations": ("GET *",), "tags": ("users",)}, ["users_list"]),
    ],
)
def test_operations_are_chosen_by_tag_and_by_pattern(
    choices: dict[str, Any], names: list[str]
) -> None:
    assert list(tools_of(SHOP, **choices)) == names


def test_choosing_nothing_is_a_mistake_that_is_told() -> None:
    with pytest.raises(SourceError, match="no operation that these patterns choose"):
        converted(SHOP, tags=("cats",))
    with pytest.raises(SourceError, match="no operations"):
        converted(document({}))


# --- parameters --------------------------------------------------------------------------------


def test_parameters_of_the_path_hold_for_all_of_its_methods_unless_one_says_otherwise() -> None:
    data = document(
        {
            "/pets/{id}": {
                "parameters": [
                    parameter("id", "path", required=True, schema={"type": "integer"}),
                    parameter("lang", description="Of the path."),
                ],
                "get": operation(parameters=[parameter("lang", description="Of the method.")]),
            }
        }
    )
    (spec,) = tools_of(data).values()
    assert spec.input_schema["properties"] == {
        "id": {"type": "integer"},
        "lang": {"type": "string", "description": "Of the method."},
    }


def test_names_that_meet_are_told_apart_by_where_they_go() -> None:
    spec = tool_of(
        operation(
            parameters=[
                parameter("id", "path", required=True),
                parameter("id", "query"),
                parameter("id", "header"),
                parameter("id", "cookie"),
            ],
            requestBody=body({"type": "object", "properties": {"id": TEXT}}, required=True),
        ),
        path="/pets/{id}",
    )
    assert list(spec.input_schema["properties"]) == [
        "id", "query_id", "header_id", "cookie_id", "body_id",
    ]  # fmt: skip
    assert spec.binding == {
        "method": "POST",
        "url": f"{SERVER}/pets/{{id}}",
        "query": {"id": "{query_id}"},
        "headers": {"id": "{header_id}"},
        "cookies": {"id": "{cookie_id}"},
        "body": {"json": {"id": "{body_id}"}},
    }


def test_arguments_have_names_that_every_vendor_takes() -> None:
    names = ["filter[name]", "$top", "@type", "a b", "x" * 80, "日本", "{odd}", "$", "日"]
    spec = tool_of(operation(parameters=[parameter(name) for name in names]), method="get")
    properties = list(spec.input_schema["properties"])
    assert properties == [
        "filter_name", "top", "type", "a_b", "x" * 64, "query", "odd", "query_query",
        "query_query_2",
    ]  # fmt: skip
    assert spec.binding["query"] == dict(
        zip(names, (f"{{{one}}}" for one in properties), strict=True)
    )


def test_a_hole_of_the_path_that_nobody_describes_is_a_text() -> None:
    spec = tool_of(operation(), path="/pets/{id}", method="get")
    assert spec.input_schema["properties"] == {"id": TEXT}
    assert spec.input_schema["required"] == ["id"]


def test_a_parameter_of_the_path_that_has_no_hole_is_forgotten() -> None:
    spec = tool_of(operation(parameters=[parameter("gone", "path", required=True)]))
    assert spec.input_schema["properties"] == {}


def test_what_the_protocol_decides_is_no_argument() -> None:
    headers = ["Accept", "Content-Type", "Authorization", "Host", "X-Own"]
    spec = tool_of(operation(parameters=[parameter(one, "header") for one in headers]))
    assert list(spec.input_schema["properties"]) == ["X-Own"]


def test_a_query_in_the_path_is_sent_as_it_stands() -> None:
    spec = tool_of(
        operation(parameters=[parameter("q", "query"), parameter("term", "path")]),
        path="/search?kind=pets&t={term}&q=1#part",
        method="get",
    )
    assert spec.binding["url"] == f"{SERVER}/search"
    assert spec.binding["query"] == {"kind": "pets", "t": "{t}", "q": "{q}"}


def test_a_parameter_as_it_was_written_before_openapi_3_is_understood() -> None:
    spec = tool_of(operation(parameters=[{"name": "n", "in": "query", "type": "integer"}]))
    assert spec.input_schema["properties"] == {"n": {"type": "integer"}}


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"parameters": [5]}, "expected a mapping"),
        ({"parameters": "x"}, "parameters are a list"),
        ({"parameters": [{"name": "a", "in": "body"}]}, "a parameter has a name"),
        ({"parameters": [parameter("a", style="matrix")]}, "no style for a parameter in query"),
        ({"parameters": [{"name": "a", "in": "query", "content": {"text/xml": {}}}]}, "written as"),
        ({"parameters": [parameter("a b", "header", required=True)]}, "no name for a header"),
        ({"requestBody": {"content": {"": {}}}}, "its body can only be"),
        ({"requestBody": {"content": {"application/json": 5}}}, "expected a mapping"),
        ({"requestBody": body({}, "multipart/form-data")}, "parts of its body have no names"),
    ],
)
def test_what_cannot_be_sent_as_described_is_left_out_with_the_reason(
    about: dict[str, Any], why: str
) -> None:
    data = document({"/it": {"post": operation(**about)}, "/ok": {"get": operation()}})
    said, at = reason(data)
    assert why in said
    assert at.startswith("#/paths/~1it/post")


# --- bodies ------------------------------------------------------------------------------------


def test_the_fields_of_a_body_are_arguments() -> None:
    schema = {
        "type": "object",
        "properties": {"name": TEXT, "age": {"type": "integer"}},
        "required": ["name"],
    }
    spec = tool_of(operation(requestBody=body(schema, required=True)))
    assert spec.input_schema == {
        "type": "object",
        "properties": {"name": TEXT, "age": {"type": "integer"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    assert spec.binding["body"] == {"json": {"name": "{name}", "age": "{age}"}}


def test_a_body_that_may_be_left_out_is_whole_or_not_there() -> None:
    schema = {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["a"]}
    spec = tool_of(operation(requestBody=body(schema)))
    assert "required" not in spec.input_schema
    assert spec.input_schema["dependentRequired"] == {"b": ["a"]}
    assert spec.binding["body"] == {"json": {"a": "{a}", "b": "{b}"}, "optional": True}


def test_fields_that_come_from_several_schemas_stand_side_by_side() -> None:
    components = {
        "schemas": {
            "Named": {"type": "object", "properties": {"name": TEXT}, "required": ["name"]},
            "Aged": {"allOf": [{"$ref": "#/components/schemas/Named"}, {"required": ["age"]}]},
        }
    }
    schema = {
        "allOf": [
            {"$ref": "#/components/schemas/Aged"},
            {"type": "object", "properties": {"age": {"type": "integer"}}},
        ]
    }
    spec = tool_of(operation(requestBody=body(schema, required=True)), components=components)
    assert spec.input_schema["properties"] == {"name": TEXT, "age": {"type": "integer"}}
    assert sorted(spec.input_schema["required"]) == ["age", "name"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": TEXT},
        {"oneOf": [{"type": "object", "properties": {"a": TEXT}}, TEXT]},
        {"type": "object", "additionalProperties": TEXT},
        {"type": "object", "properties": {"a": TEXT}, "additionalProperties": True},
        {"type": "object", "properties": {"a": TEXT}, "nullable": True},
        {"type": "object", "properties": {"a": TEXT}, "minProperties": 1},
        {"type": "object"},
        {
            "allOf": [
                {"type": "object", "properties": {"a": TEXT}},
                {"type": "object", "properties": {"a": {"type": "string", "maxLength": 1}}},
            ]
        },
    ],
)
def test_a_body_that_is_more_than_its_fields_is_one_argument(schema: Any) -> None:
    spec = tool_of(operation(requestBody=body(schema, required=True, description="All of it.")))
    assert list(spec.input_schema["properties"]) == ["body"]
    assert spec.input_schema["properties"]["body"]["description"] == "All of it."
    assert spec.input_schema["required"] == ["body"]
    assert spec.binding["body"] == {"json": "{body}"}


def test_a_body_that_has_no_fields_is_not_sent() -> None:
    empty = {"type": "object", "properties": {}, "additionalProperties": False}
    assert "body" not in tool_of(operation(requestBody=body(empty))).binding
    needed = tool_of(operation(requestBody=body(empty, required=True)))
    assert needed.binding["body"] == {"json": {}}


def test_what_the_service_alone_sets_is_not_asked_for() -> None:
    components = {"schemas": {"Id": {"type": "string", "readOnly": True}}}
    schema = {
        "type": "object",
        "properties": {
            "id": {"$ref": "#/components/schemas/Id"},
            "made": {"type": "string", "readOnly": True},
            "name": TEXT,
            "inner": {
                "type": "object",
                "properties": {"id": {"type": "string", "readOnly": True}, "x": TEXT},
                "required": ["id", "x"],
            },
        },
        "required": ["id", "name"],
    }
    spec = tool_of(operation(requestBody=body(schema, required=True)), components=components)
    assert spec.input_schema["properties"] == {
        "name": TEXT,
        "inner": {"type": "object", "properties": {"x": TEXT}, "required": ["x"]},
    }
    assert spec.input_schema["required"] == ["name"]


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        (["text/plain", "application/json"], {"json": "{body}"}),
        (
            ["multipart/form-data", "application/merge-patch+json"],
            {"json": "{body}", "type": "application/merge-patch+json"},
        ),
        (["application/xml"], {"text": "{body}", "type": "application/xml"}),
        (["text/csv"], {"text": "{body}", "type": "text/csv"}),
        (["image/png"], {"bytes": "{body}", "type": "image/png"}),
        (["application/octet-stream"], {"bytes": "{body}", "type": "application/octet-stream"}),
        (["*/*"], {"json": "{body}"}),
        (["application/json; charset=utf-8"], {"json": "{body}"}),
    ],
)
def test_the_best_of_several_media_types_is_sent(kinds: list[str], chosen: dict[str, Any]) -> None:
    content = {kind: {"schema": {"type": "array", "items": TEXT}} for kind in kinds}
    spec = tool_of(operation(requestBody={"content": content, "required": True}))
    assert spec.binding["body"] == chosen


def test_a_form_is_written_as_the_document_says() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": TEXT,
            "list": {"type": "array", "items": TEXT},
            "pipes": {"type": "array", "items": TEXT},
            "deep": {"type": "object"},
            "json": {"type": "object"},
        },
        "required": ["a"],
    }
    encoding = {
        "pipes": {"style": "pipeDelimited", "explode": False},
        "deep": {"style": "deepObject", "explode": True},
    }
    media = "application/x-www-form-urlencoded"
    request = body(schema, media, media={"encoding": encoding}, required=True)
    spec = tool_of(operation(requestBody=request))
    assert spec.binding["body"] == {
        "form": {
            "a": "{a}",
            "list": "{list}",
            "pipes": {"value": "{pipes}", "style": "pipeDelimited"},
            "deep": {"value": "{deep}", "style": "deepObject"},
            "json": {"value": "{json}", "style": "json"},
        }
    }


def test_a_form_whose_fields_are_not_told_is_an_object() -> None:
    schema = {"type": "object", "additionalProperties": TEXT}
    media = "application/x-www-form-urlencoded"
    spec = tool_of(operation(requestBody=body(schema, media)))
    assert spec.binding["body"] == {"form": {"body": "{body}"}, "optional": True}


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_files_are_told_as_base64(version: str) -> None:
    file: dict[str, Any] = {"type": "string", "format": "binary"}
    if version == "3.1.0":
        file = {"contentMediaType": "application/octet-stream"}
    schema = {
        "type": "object",
        "properties": {
            "name": TEXT,
            "file": {**file, "description": "The picture."},
            "more": {"type": "array", "items": file},
            "meta": {"type": "object"},
        },
    }
    encoding = {"file": {"contentType": "image/png"}}
    request = body(schema, "multipart/form-data", media={"encoding": encoding}, required=True)
    spec = tool_of(operation(requestBody=request), version=version)
    packed = {"type": "string", "contentEncoding": "base64"}
    assert spec.input_schema["properties"]["file"] == {**packed, "description": "The picture."}
    assert spec.input_schema["properties"]["more"]["items"] == packed
    assert spec.binding["body"] == {
        "multipart": {
            "name": "{name}",
            "file": {"value": "{file}", "base64": True, "type": "image/png"},
            "more": {"value": "{more}", "base64": True},
            "meta": "{meta}",
        }
    }


# --- answers -----------------------------------------------------------------------------------


def answering(**responses: Any) -> Any:
    said = {
        f"{status.strip('_')}": {"description": "", "content": content}
        for status, content in responses.items()
    }
    return tool_of(operation(responses=said), method="get")


JSON = {"application/json": {"schema": {"type": "array", "items": TEXT}}}


@pytest.mark.parametrize(
    ("responses", "schema", "accept"),
    [
        ({"_200": JSON}, {"type": "array", "items": TEXT}, "application/json"),
        ({"_2XX": JSON}, {"type": "array", "items": TEXT}, "application/json"),
        ({"default": JSON}, {"type": "array", "items": TEXT}, "application/json"),
        ({"_404": JSON}, None, None),
        ({"_200": JSON, "_204": {}}, None, "application/json"),
        (
            {"_200": JSON, "_202": {"application/json": {"schema": {"type": "object"}}}},
            {"anyOf": [{"type": "array", "items": TEXT}, {"type": "object"}]},
            "application/json",
        ),
        ({"_200": JSON, "_201": JSON}, {"type": "array", "items": TEXT}, "application/json"),
        ({"_200": {"text/csv": {}}}, None, None),
        ({"_200": {"text/xml": {}, "application/x+json": {}}}, None, "application/x+json"),
        ({"_200": {"application/json": {"schema": {}}}}, None, "application/json"),
    ],
)
def test_what_every_good_answer_fits_is_the_output_schema(
    responses: Any, schema: Any, accept: str | None
) -> None:
    spec = answering(**responses)
    assert spec.output_schema == schema
    assert spec.binding.get("headers", {}).get("Accept") == accept


def test_outputs_can_be_left_unchecked() -> None:
    data = document({"/it": {"get": operation(responses={"200": {"content": JSON}})}})
    (spec,) = tools_of(data, outputs=False).values()
    assert spec.output_schema is None


def test_answers_that_cannot_be_described_cost_no_tool() -> None:
    bad = {"application/json": {"schema": {"$ref": "other.yaml#/Pet"}}}
    data = document({"/it": {"get": operation(responses={"200": {"content": bad}})}})
    made = converted(data)
    assert made.specs[0].output_schema is None
    assert "not fetched" in next(iter(made.notes.values()))


# --- documents ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([], "no OpenAPI document"),
        ({"tools": []}, "no OpenAPI document"),
        ({"swagger": "2.0", "paths": {}}, "OpenAPI 2.0 is not read"),
        ({"openapi": 3.0}, "OpenAPI 3.0 is not read"),
        ({"openapi": "4.0.0"}, "OpenAPI 4.0.0 is not read"),
        ({"openapi": "3.0.0", "paths": []}, "paths are a mapping"),
    ],
)
def test_what_is_no_openapi_document_is_refused_with_its_place(data: Any, why: str) -> None:
    with pytest.raises(SourceError, match=f"^doc.json:1:.*{why}"):
        converted(data)


@pytest.mark.parametrize("version", ["3.0.0", "3.0.4", "3.1.0", "3.1.2", "3.2.0"])
def test_these_versions_are_read(version: str) -> None:
    assert tool_of(operation(), version=version).name == "it"


def test_a_path_may_stand_elsewhere_in_the_document() -> None:
    data = document(
        {"/it": {"$ref": "#/components/pathItems/it"}, "/bad": {"$ref": "#/nowhere"}, "/x": 5},
        version="3.1.0",
        components={"pathItems": {"it": {"get": operation()}}},
    )
    made = converted(data)
    assert [spec.name for spec in made.specs] == ["it"]
    assert [(one.operation, one.at) for one in made.left_out] == [
        ("* /bad", "#/paths/~1bad"),
        ("* /x", "#/paths/~1x"),
    ]


def test_a_document_of_which_nothing_can_be_called_is_refused() -> None:
    data = document({"/it": {"get": operation()}}, servers=[{"url": "/v1"}])
    with pytest.raises(SourceError, match="none of its 1 operations can be called; GET /it: its"):
        converted(data)


def test_one_bad_operation_does_not_hold_up_the_others() -> None:
    data = document({"/a": {"get": 5}, "/b": {"get": operation()}})
    assert reason(data) == ("expected a mapping", "#/paths/~1a/get")


def test_how_far_it_is_is_told() -> None:
    data = document({f"/{n}": {"get": operation(operationId=f"o{n}")} for n in range(60)})
    told: list[tuple[int, int]] = []
    imported(found(data), Choices(), tell=lambda done, total: told.append((done, total)))
    assert told == [(0, 60), (25, 60), (50, 60), (60, 60)]


def test_a_spec_made_here_is_one_that_can_be_written_down_and_read_again() -> None:
    for spec in tools_of(SHOP).values():
        assert ToolSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_nothing_is_said_twice_of_an_operation_without_responses() -> None:
    assert tool_of({"operationId": "it", "responses": dict(OK)}).output_schema is None
