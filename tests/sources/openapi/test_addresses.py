"""Where a tool goes, and how it proves who asks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.openapi.documents import (
    converted,
    document,
    found,
    operation,
    parameter,
    tool_of,
    tools_of,
)
from toolpost import ConfigError
from toolpost.net.url import url_from
from toolpost.sources.openapi.converting import Choices, imported
from toolpost.sources.openapi.security import secret_name

# --- servers -----------------------------------------------------------------------------------


def url(servers: Any, **more: Any) -> str:
    spec = tool_of(operation(), path="/it", servers=servers, **more)
    address: str = spec.binding["url"]
    return address


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ([{"url": "https://a.example"}], "https://a.example/it"),
        ([{"url": "https://a.example/v1/"}], "https://a.example/v1/it"),
        ([{"url": "https://a.example/v1?x=1#y"}], "https://a.example/v1/it"),
        ([{"url": "http://a.example"}, {"url": "https://b.example"}], "https://b.example/it"),
        ([{"url": "http://a.example"}, {"url": "http://b.example"}], "http://a.example/it"),
        ([{"url": "/relative"}, {"url": "https://b.example"}], "https://b.example/it"),
        (
            [{"url": "https://{who}.example:{port}/{v}", "variables": {
                "who": {"default": "a"}, "port": {"default": 8443}, "v": {"default": "v2"}}}],
            "https://a.example:8443/v2/it",
        ),
    ],
)  # fmt: skip
def test_the_server_is_the_first_that_can_be_used(servers: Any, expected: str) -> None:
    assert url(servers) == expected


def test_the_nearest_list_of_servers_counts() -> None:
    nearest = [{"url": "https://nearest.example"}]
    data = document(
        {
            "/a": {"servers": [{"url": "https://path.example"}], "get": operation()},
            "/b": {"get": operation(operationId="b", servers=nearest)},
        }
    )
    assert [spec.binding["url"] for spec in tools_of(data).values()] == [
        "https://path.example/a",
        "https://nearest.example/b",
    ]


def test_the_config_has_the_last_word_and_may_name_a_private_address() -> None:
    data = document({"/it": {"get": operation(servers=[{"url": "https://x.example"}])}})
    (spec,) = tools_of(data, base_url="http://127.0.0.1:8080/v9/").values()
    assert spec.binding["url"] == "http://127.0.0.1:8080/v9/it"
    assert spec.egress == ("127.0.0.1:8080",)


@pytest.mark.parametrize(
    ("servers", "why"),
    [
        ([{"url": "/v1"}], "its server '/v1' is relative: say with base_url where it is"),
        ([{"url": "https://{a}.example"}], "the server's {a} has no default"),
        ([{"url": "https://{a}.example", "variables": {"a": {"default": ""}}}], "no default"),
        ([{"url": "https://a b.example"}], "is no server"),
        ([{}], "a server has a url"),
        ([5], "a server has a url"),
        ([{"url": "http://localhost"}], "localhost is not a public address: say with base_url"),
    ],
)
def test_a_server_that_cannot_be_reached_costs_the_operation(servers: Any, why: str) -> None:
    data = document(
        {"/it": {"get": operation(servers=servers)}, "/ok": {"get": operation(operationId="ok")}}
    )
    (left,) = converted(data).left_out
    assert why in left.why


def test_a_relative_server_is_where_the_document_came_from() -> None:
    data = document({"/it": {"get": operation()}}, servers=[{"url": "../v2"}])
    home = "https://docs.example/api/openapi.json"
    made = imported(found(data, home=home, named="docs.example:443"), Choices())
    assert made.specs[0].binding["url"] == "https://docs.example/v2/it"
    assert made.specs[0].egress == ("docs.example:443",)
    without = document({"/it": {"get": operation()}})
    del without["servers"]
    made = imported(found(without, home=home, named="docs.example:443"), Choices())
    assert made.specs[0].binding["url"] == "https://docs.example/it"


def test_a_host_that_a_redirect_led_to_was_named_by_nobody() -> None:
    data = document({"/it": {"get": operation()}}, servers=[{"url": "/"}])
    made = imported(
        found(data, home="https://other.example/d", named="docs.example:443"), Choices()
    )
    assert made.specs[0].egress == ()


@pytest.mark.parametrize("address", ["example.com", "ftp://a", "https://a b"])
def test_a_base_url_is_checked_before_anything_is_read(address: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        Choices(base_url=address)


# --- security ----------------------------------------------------------------------------------

SCHEMES = {
    "token": {"type": "http", "scheme": "Bearer"},
    "login": {"type": "http", "scheme": "basic"},
    "appKey": {"type": "apiKey", "in": "header", "name": "X-App-Key"},
    "inQuery": {"type": "apiKey", "in": "query", "name": "key"},
    "inCookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "oauth": {"type": "oauth2", "flows": {}},
    "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://x.example"},
    "digest": {"type": "http", "scheme": "digest"},
    "tls": {"type": "mutualTLS"},
    "odd": {"type": "apiKey"},
    "linked": {"$ref": "#/components/securitySchemes/token"},
}


def secured(security: Any, **choices: Any) -> Any:
    data = document(
        {"/it": {"get": operation()}}, security=security, components={"securitySchemes": SCHEMES}
    )
    (spec,) = tools_of(data, **choices).values()
    return spec.binding.get("auth")


HOST = "API_EXAMPLE_COM"


@pytest.mark.parametrize(
    ("security", "auth"),
    [
        ([{"token": []}], {"bearer": f"{HOST}__TOKEN"}),
        (
            [{"login": []}],
            {
                "basic": {
                    "user_secret": f"{HOST}__LOGIN_USER",
                    "password": f"{HOST}__LOGIN_PASSWORD",
                }
            },
        ),
        (
            [{"appKey": []}],
            {"api_key": {"secret": f"{HOST}__APP_KEY", "in": "header", "name": "X-App-Key"}},
        ),
        (
            [{"inQuery": []}],
            {"api_key": {"secret": f"{HOST}__IN_QUERY", "in": "query", "name": "key"}},
        ),
        (
            [{"inCookie": []}],
            {"api_key": {"secret": f"{HOST}__IN_COOKIE", "in": "cookie", "name": "sid"}},
        ),
        ([{"oauth": ["read"]}], {"bearer": f"{HOST}__OAUTH"}),
        ([{"oidc": []}], {"bearer": f"{HOST}__OIDC"}),
        ([{"linked": []}], {"bearer": f"{HOST}__LINKED"}),
        ([{"digest": []}, {"token": []}], {"bearer": f"{HOST}__TOKEN"}),
        (
            [{"token": [], "appKey": []}],
            [
                {"bearer": f"{HOST}__TOKEN"},
                {"api_key": {"secret": f"{HOST}__APP_KEY", "in": "header", "name": "X-App-Key"}},
            ],
        ),
        ([{}], None),
        ([], None),
        ([{}, {"token": []}], None),
    ],
)
def test_a_security_scheme_is_a_credential_named_for_the_host(security: Any, auth: Any) -> None:
    assert secured(security) == auth


def test_the_config_can_name_the_secrets_and_by_that_choose_the_way() -> None:
    assert secured([{"token": []}], secrets={"token": "MY_TOKEN"}) == {"bearer": "MY_TOKEN"}
    chosen = secured([{}, {"appKey": []}, {"token": []}], secrets={"token": "MY_TOKEN"})
    assert chosen == {"bearer": "MY_TOKEN"}


def test_the_config_can_say_it_all_itself() -> None:
    assert secured([{"digest": []}], auth={"bearer": "MINE"}) == {"bearer": "MINE"}
    both = [{"bearer": "A"}, {"api_key": {"secret": "B", "in": "query", "name": "k"}}]
    assert secured([], auth=both) == both


@pytest.mark.parametrize(
    ("security", "why"),
    [
        ([{"digest": []}], "'digest' is 'http digest', which is not done here"),
        ([{"tls": []}], "'tls' is 'mutualTLS', which is not done here"),
        ([{"odd": []}], "'odd' is 'apiKey'"),
        ([{"nobody": []}], "there is no security scheme 'nobody'"),
        ([5], "a mapping of schemes"),
    ],
)
def test_what_cannot_be_proved_here_is_left_out(security: Any, why: str) -> None:
    data = document(
        {
            "/it": {"get": operation(security=security)},
            "/ok": {"get": operation(operationId="ok", security=[])},
        },
        components={"securitySchemes": SCHEMES},
    )
    (left,) = converted(data).left_out
    assert why in left.why


def test_an_operation_may_need_less_than_the_others() -> None:
    data = document(
        {"/it": {"get": operation(security=[])}},
        security=[{"token": []}],
        components={"securitySchemes": SCHEMES},
    )
    (spec,) = tools_of(data).values()
    assert "auth" not in spec.binding


def test_a_credential_is_no_argument() -> None:
    data = document(
        {
            "/it": {
                "get": operation(parameters=[parameter("KEY"), parameter("X-App-Key", "header")])
            }
        },
        security=[{"inQuery": [], "appKey": []}],
        components={"securitySchemes": SCHEMES},
    )
    (spec,) = tools_of(data).values()
    assert spec.input_schema["properties"] == {}


def test_a_secret_does_not_travel_in_the_clear() -> None:
    data = document(
        {"/it": {"get": operation(security=[{"token": []}])}, "/ok": {"get": operation()}},
        servers=[{"url": "http://api.example.com"}],
        components={"securitySchemes": SCHEMES},
    )
    (left,) = converted(data).left_out
    assert left.why == (
        "with http a secret would travel in the clear: say with base_url where the service is"
    )


@pytest.mark.parametrize(
    ("address", "scheme", "name"),
    [
        ("https://api.example.com", "bearerAuth", "API_EXAMPLE_COM__BEARER_AUTH"),
        ("https://api-example.com", "bearerAuth", "API___EXAMPLE_COM__BEARER_AUTH"),
        ("https://a.example:8443", "key", "A_EXAMPLE_8443__KEY"),
        ("https://10.0.0.1", "key", "HOST_10_0_0_1__KEY"),
        ("https://a.example", "日本", "A_EXAMPLE__KEY"),
        ("https://a.example", "api_key", "A_EXAMPLE__API_KEY"),
    ],
)
def test_the_name_of_a_secret_says_whose_it_is(address: str, scheme: str, name: str) -> None:
    assert secret_name(url_from(address), scheme) == name


LABEL = st.from_regex(r"[a-z]([a-z-]{0,3}[a-z])?", fullmatch=True)
HOSTS = st.lists(LABEL, min_size=1, max_size=3).map(".".join)


@given(HOSTS, st.text(max_size=8), HOSTS, st.text(max_size=8))
def test_two_hosts_never_share_a_secret(one: str, his: str, other: str, hers: str) -> None:
    names = [secret_name(url_from(f"https://{h}"), s) for h, s in ((one, his), (other, hers))]
    assert one == other or names[0] != names[1]
