"""A binding that cannot be meant is refused when it is loaded, with its place."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.backends.http.service import http, schema
from toolpost.backends.http.binding import verify
from toolpost.errors import InvalidSpec

BASE = "https://api.test/x"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("api.test/x", "begins with https://"),
        ("ftp://api.test/", "begins with https://"),
        ("https://{host}/x", "host cannot come from a parameter"),
        ("https://api.test:{port}/x", "host cannot come from a parameter"),
        ("{scheme}://api.test/x", "host cannot come from a parameter"),
        ("https://api.test{path}", "host cannot come from a parameter"),
        ("https://me:pw@api.test/", "user or a password"),
        ("https://api.test/x#y", "behind a '#'"),
        ("https://api.test/a/../b", "'.' or '..'"),
        ("https://api.test/{x", "names no parameter"),
        ("https://api.test/{}", "names no parameter"),
        ("https://api.test/{nobody}", "{nobody} is no parameter"),
        ("https://api.test/?q={nobody}", "{nobody} is no parameter"),
        ("https://b\u00fccher.test/", "beyond ASCII"),
        ("http://127.0.0.1:8080/", "add '127.0.0.1:8080' to 'egress'"),
        ("http://localhost/", "add 'localhost:80' to 'egress'"),
        ("http://169.254.169.254/latest/meta-data", "not a public address"),
        ("http://[::ffff:10.0.0.1]/", "not a public address"),
        ("http://2130706433/", "neither a name nor an ordinary address"),
        ("http://0x7f.1/", "neither a name nor an ordinary address"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str, message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        verify(http(url))
    assert message in refused.value.message
    assert refused.value.at == ("binding", "url")


REFUSED: list[tuple[dict[str, Any], tuple[str | int, ...], str]] = [
    ({"methud": "GET"}, ("methud",), "did you mean 'method'?"),
    ({"method": "get"}, ("method",), "use one of GET"),
    ({"method": "TRACE"}, ("method",), "use one of GET"),
    ({"path": {"id": "{a}"}}, ("path", "id"), "the url has no {id}"),
    ({"query": {"q": "{nobody}"}}, ("query", "q"), "no parameter"),
    ({"query": {"q": "{aa}"}}, ("query", "q"), "did you mean 'a'?"),
    ({"query": {"q": {"value": "{a}", "style": "label"}}}, ("query", "q", "style"), "one of form"),
    ({"query": {"q": {"value": "{a}", "base64": True}}}, ("query", "q", "base64"), "multipart"),
    ({"query": {}}, (), "'a' goes nowhere"),
    ({"headers": {"X Y": "1"}}, ("headers", "X Y"), "no name for headers"),
    ({"headers": {"X\r\nY": "1"}}, ("headers", "X\r\nY"), "no name for headers"),
    ({"headers": {"Host": "evil.test"}}, ("headers", "Host"), "belongs to the connection"),
    ({"headers": {"transfer-encoding": "x"}}, ("headers", "transfer-encoding"), "connection"),
    ({"headers": {"Authorization": "Bearer {a}"}}, ("headers", "Authorization"), "'auth'"),
    ({"headers": {"Cookie": "{a}"}}, ("headers", "Cookie"), "'cookies'"),
    ({"headers": {"Content-Type": "x/y"}}, ("headers", "Content-Type"), "'type' of the body"),
    ({"headers": {"X": "a\r\nb"}}, ("headers", "X"), "control character"),
    ({"cookies": {"a b": "1"}}, ("cookies", "a b"), "no name for cookies"),
    ({"body": {}}, ("body",), "one of json"),
    ({"body": {"json": 1, "text": "x"}}, ("body",), "one of json"),
    ({"body": {"json": "{nobody}"}}, ("body", "json"), "no parameter"),
    ({"body": {"json": {"a": ["{a}", "{nobody}"]}}}, ("body", "json", "a", 1), "no parameter"),
    ({"body": {"json": {"a": "{"}}}, ("body", "json", "a"), "names no parameter"),
    ({"body": {"text": "{a}", "type": "nonsense"}}, ("body", "type"), "no media type"),
    ({"body": {"text": "{a}", "type": "a/b\r\nX: y"}}, ("body", "type"), "no media type"),
    ({"body": {"form": {"a": "{a}"}, "type": "a/b"}}, ("body", "type"), "its own"),
    (
        {"body": {"multipart": {"a": {"value": "{a}", "type": "x"}}}},
        ("body", "multipart", "a", "type"),
        "no media type",
    ),
    ({"auth": {}}, ("auth",), "one of bearer"),
    ({"auth": {"bearer": "A", "basic": {"user": "x"}}}, ("auth",), "one of bearer"),
    ({"auth": {"bearer": "not a name"}}, ("auth",), "name of a secret"),
    ({"auth": [{"bearer": "A"}, {"bearer": "sk-123"}]}, ("auth", 1), "name of a secret"),
    ({"auth": {"basic": {}}}, ("auth", "basic"), "user_secret"),
    ({"auth": {"api_key": {"secret": "A", "name": "x y"}}}, ("auth", "api_key", "name"), "no name"),
    ({"auth": {"api_key": {"secret": "A", "name": "Host"}}}, ("auth", "api_key", "name"), "cannot"),
    ({"response": {"pointer": "data"}}, ("response", "pointer"), "begins with '/'"),
    ({"response": {"pointer": "/a", "as": "text"}}, ("response", "pointer"), "leads into JSON"),
    ({"response": {"as": "yaml"}}, ("response", "as"), "use one of auto"),
    ({"response": {"max_bytes": 0}}, ("response", "max_bytes"), "at least 1"),
    ({"errors": {"forty": "NOT_FOUND"}}, ("errors", "forty"), "no status"),
    ({"errors": {"404": "NOTFOUND"}}, ("errors", "404"), "did you mean 'NOT_FOUND'?"),
    ({"errors": {"404": {"error": "POLICY_DENIED"}}}, ("errors", "404"), "cannot mean"),
    ({"redirects": 21}, ("redirects",), "0 to 20"),
    ({"key_header": "Host"}, ("key_header",), "no name for a header"),
    ({"url": "https://api.test/?q=1", "query": {"q": "{a}"}}, ("query",), "twice"),
    ({"url": "http://api.test/", "auth": {"bearer": "A"}}, ("url",), "in the clear"),
]


@pytest.mark.parametrize(("binding", "at", "message"), REFUSED)
def test_a_binding_that_cannot_be_meant_is_refused_with_its_place(
    binding: dict[str, Any], at: tuple[str | int, ...], message: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        verify(http(binding.pop("url", BASE), input_schema=schema("a"), **binding))
    assert message in refused.value.message
    assert refused.value.at == ("binding", *at)


def test_isolation_has_no_meaning_for_a_tool_that_runs_elsewhere() -> None:
    with pytest.raises(InvalidSpec, match="isolation") as refused:
        verify(http(BASE, isolation="sandbox"))
    assert refused.value.at == ("isolation",)


def test_a_private_host_is_meant_where_the_spec_names_it() -> None:
    for url, egress in (
        ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
        ("http://[::1]:8080/", "[::1]:8080"),
        ("http://localhost/", "localhost:80"),
    ):
        verify(http(url, egress=(egress,), auth={"bearer": "A"}))


def test_a_binding_is_verified_without_the_extra() -> None:
    program = (
        "import sys\nsys.modules['httpcore2'] = None\n"
        "from toolpost import ToolSpec\nfrom toolpost.errors import MissingPart\n"
        "from toolpost.plugins import load, verify_binding\n"
        "verify_binding(ToolSpec(name='a', description='b', kind='http', "
        "binding={'url': 'https://api.test/'}))\n"
        "try:\n    load('backends', 'http')\n"
        "except MissingPart as missing:\n    print(missing.message)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert 'pip install "toolpost[http]"' in done.stdout
