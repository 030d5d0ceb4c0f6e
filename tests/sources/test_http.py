"""Specs from a web address: asked for again, pinned, held to what a file is, and trusted little."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources.endpoint import Endpoint, serving
from toolpost import Config, ConfigError, Runtime, SourceError, ToolSpec
from toolpost.sources.http import HttpSource

pytestmark = pytest.mark.anyio
FENCE = 60


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as made:
        yield made


def ignore(done: int, total: int) -> None:
    pass


def source(endpoint: Endpoint, **options: Any) -> HttpSource:
    given = {"url": endpoint.url, "egress": [endpoint.authority], "interval": 0.1, **options}
    return HttpSource.from_config(given, Path())


async def names(one: HttpSource) -> list[str]:
    return [spec.name for spec in await one.load(ignore)]


def runtime(endpoint: Endpoint, *more: dict[str, Any], base: Path, **options: Any) -> Runtime:
    """One with this source and others, and nothing around its calls."""
    given = {
        "kind": "http",
        "url": endpoint.url,
        "egress": [endpoint.authority],
        "interval": 0.1,
        **options,
    }
    settings = {"sources": [given, *more], "observers": [], "guards": []}
    return Runtime.open(Config.of(settings, base=base))


async def until(holds: Any) -> None:
    """The runtime looks by itself; nobody tells when it has."""
    async with asyncio.timeout(FENCE):
        while not holds():
            await asyncio.sleep(0.02)


@pytest.mark.req("UX-2")
async def test_a_changed_document_takes_the_place_of_the_old_one_by_itself(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    async with runtime(endpoint, base=tmp_path) as tools:
        assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3
        endpoint.tools = [endpoint.tool("greet", "name"), endpoint.tool("add2", "a", "b")]
        await until(lambda: tools.registry.get("add2") is not None)
        assert [spec.name for spec in tools.list()] == ["add2", "greet"]
        assert tools.problems == {}


@pytest.mark.req("UX-2")
async def test_a_bad_version_changes_nothing_and_is_a_problem_until_it_is_mended(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    async with runtime(endpoint, base=tmp_path) as tools:
        endpoint.body = b'[\n  {"name": "add", "description": "x",\n   "effects": "reed"}]'
        await until(lambda: tools.problems)
        (problem,) = tools.problems.values()
        assert problem.startswith(f"{endpoint.url}:3:15: effects: use one of read"), problem
        health = await tools.health()
        assert health["source 1 (http)"].error == problem
        assert (await tools.execute("greet", {"name": "Ada"})).output == "hello Ada"
        endpoint.body = None
        await until(lambda: not tools.problems)
        assert [spec.name for spec in tools.list()] == ["add", "greet"]


@pytest.mark.req("UX-2")
async def test_an_endpoint_that_is_down_at_the_start_hides_nobody_and_comes_by_itself(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    local = {"name": "local", "description": "Here.", "binding": {"module": "m", "function": "f"}}
    (tmp_path / "tools.json").write_text(json.dumps([local]))
    files = {"kind": "files", "paths": ["tools.json"]}
    endpoint.status = 503
    async with runtime(endpoint, files, base=tmp_path) as tools:
        assert [spec.name for spec in tools.list()] == ["local"]
        assert tools.problems == {
            "source 1 (http)": f"{endpoint.url}: answered 503; expected a document"
        }
        endpoint.status = 200
        await until(lambda: not tools.problems)
        assert [spec.name for spec in tools.list()] == ["add", "greet", "local"]


async def test_one_that_is_required_stops_the_start(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.status = 404
    with pytest.raises(SourceError, match="answered 404"):
        async with runtime(endpoint, base=tmp_path, required=True):
            pass


async def test_a_name_that_is_taken_here_cannot_be_taken_from_afar(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    """Nor does who tries keep anything from starting, though its source stands first."""
    local = {"name": "add", "description": "Mine.", "binding": {"module": "m", "function": "f"}}
    (tmp_path / "tools.json").write_text(json.dumps([local]))
    files = {"kind": "files", "paths": ["tools.json"]}
    async with runtime(endpoint, files, base=tmp_path) as tools:
        assert [spec.description for spec in tools.list()] == ["Mine.", "The tool greet."]
        assert tools.problems == {}
        assert tools.left_out == {
            "source 1 (http)": {"add": "another source has a tool of this name, which stays"}
        }


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("greet", "another source has a tool of this name, which stays"),
        ("Greet", "it looks like 'Greet', which stays"),
    ],
)
async def test_a_name_that_comes_up_here_is_given_back_from_afar(
    endpoint: Endpoint, tmp_path: Path, name: str, why: str
) -> None:
    """Nobody from afar keeps a file from being changed."""

    def declare(*names: str) -> None:
        binding = {"module": "m", "function": "f"}
        mine = [{"name": one, "description": "Mine.", "binding": binding} for one in names]
        (tmp_path / "tools.json").write_text(json.dumps(mine))

    declare("local")
    files = {"kind": "files", "paths": ["tools.json"]}
    async with runtime(endpoint, files, base=tmp_path) as tools:
        declare("local", name)
        assert await tools.reload() == {}
        said = {spec.name: spec.description for spec in tools.list()}
        assert said == {"add": "The tool add.", "local": "Mine.", name: "Mine."}
        assert tools.left_out == {"source 1 (http)": {"greet": why}}
        declare("local")
        for _ in range(2):  # the file stands behind who may have the name again
            assert await tools.reload() == {}
        assert [spec.name for spec in tools.list()] == ["add", "greet", "local"]
        assert tools.left_out == {}


async def test_a_name_that_looks_like_another_costs_that_tool_only(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    """Whoever was there first stays, wherever the other one stands."""
    async with runtime(endpoint, base=tmp_path) as tools:
        endpoint.tools = [endpoint.tool(one, "a") for one in ("Add", "add", "greet", "sing")]
        await until(lambda: "sing" in tools.registry)
        assert [spec.name for spec in tools.list()] == ["add", "greet", "sing"]
        assert tools.left_out == {"source 1 (http)": {"Add": "it looks like 'add', which stays"}}
        tools.registry.add(ToolSpec(name="SHOUT", description="Mine."))
        endpoint.tools = [endpoint.tool(one, "a") for one in ("Add", "shout")]
        await until(lambda: "Add" in tools.registry)
        assert [spec.name for spec in tools.list()] == ["Add", "SHOUT"]
        assert tools.problems == {}


async def test_what_has_not_changed_is_not_sent_again(endpoint: Endpoint) -> None:
    for header, asked in (
        ({"ETag": '"v1"'}, ("if-none-match", '"v1"')),
        (
            {"Last-Modified": "Mon, 16 Nov 2026 08:00:00 GMT"},
            ("if-modified-since", "Mon, 16 Nov 2026 08:00:00 GMT"),
        ),
    ):
        endpoint.headers = header
        one = source(endpoint)
        first = await one.load(ignore)
        assert await one.load(ignore) == first
        assert asked[0] not in endpoint.asked[-2]
        assert endpoint.asked[-1][asked[0]] == asked[1]
        await one.close()


async def test_a_version_that_was_wrong_is_not_sent_again_either(endpoint: Endpoint) -> None:
    endpoint.headers, endpoint.body = {"ETag": '"bad"'}, b"[{}]"
    one = source(endpoint)
    for _ in range(2):
        with pytest.raises(SourceError, match="this tool has no name"):
            await one.load(ignore)
    assert endpoint.asked[-1]["if-none-match"] == '"bad"'
    await one.close()


async def test_watching_says_nothing_while_nothing_changes(endpoint: Endpoint) -> None:
    endpoint.headers = {"ETag": '"v1"'}
    one = source(endpoint)
    await one.load(ignore)
    changes: AsyncIterator[None] = one.changes()
    change = asyncio.ensure_future(anext(changes))
    await until(lambda: len(endpoint.asked) > 4)
    assert not change.done()
    endpoint.status, endpoint.headers = 500, {}
    async with asyncio.timeout(FENCE):
        await change
    asked = len(endpoint.asked)
    with pytest.raises(SourceError, match="answered 500"):
        await one.load(ignore)
    assert len(endpoint.asked) == asked, "what watching found is what is loaded"
    await one.close()


@pytest.mark.req("UX-2")
async def test_nothing_but_the_pinned_document_is_taken(endpoint: Endpoint) -> None:
    pinned = f"sha256:{hashlib.sha256(endpoint.document()).hexdigest()}"
    one = source(endpoint, digest=pinned)
    assert await names(one) == ["add", "greet"]
    endpoint.tools = endpoint.tools[:1]
    other = hashlib.sha256(endpoint.document()).hexdigest()
    with pytest.raises(SourceError, match=f"not the pinned document: .*sha256:{other}"):
        await one.load(ignore)
    await one.close()


async def test_the_pin_is_that_of_the_document_however_it_is_packed(endpoint: Endpoint) -> None:
    plain = endpoint.document()
    endpoint.body, endpoint.headers = gzip.compress(plain), {"Content-Encoding": "gzip"}
    one = source(endpoint, digest=f"sha256:{hashlib.sha256(plain).hexdigest()}")
    assert await names(one) == ["add", "greet"]
    await one.close()


FLOW = '{"name": "a", "description": "b", "kind": "http", "binding": {"url": "U"}}'
TOML = '[[tools]]\nname="a"\ndescription="b"\nkind="http"\nbinding={url="U"}'


@pytest.mark.parametrize(
    ("kind", "text", "path"),
    [
        ("application/yaml", f"tools:\n- {FLOW}", ""),
        ("text/plain; charset=utf-8", f"- {FLOW}", ""),
        ("application/vnd.acme+json", f"[{FLOW}]", ""),
        (None, f"[{FLOW}]", ""),
        ("application/octet-stream", TOML, "/x.toml"),
    ],
    ids=["yaml", "unsaid", "json of their own", "no type", "by the suffix"],
)
async def test_the_document_is_json_yaml_or_toml(
    endpoint: Endpoint, kind: str | None, text: str, path: str
) -> None:
    endpoint.type, endpoint.body = kind, text.replace("U", "https://api.example.com/").encode()
    one = source(endpoint, url=f"http://{endpoint.authority}{path}")
    assert await names(one) == ["a"]
    await one.close()


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("text/html", b"<html></html>", "expected JSON, YAML or TOML, and this is 'text/html'"),
        ("application/json", b"[\n{,}]", r"/tools.json:2:2: not valid JSON"),
        ("application/json", b"\xff[]", "not UTF-8: byte 0xff at offset 0"),
        ("application/json", b'{"tools": 3}', r"/tools.json:1:11: expected a list of tools"),
        ("application/yaml", b"- !!python/object:os.system {}", "tags are not read"),
        ("application/json", b"[" * 100, "nested more than 64 levels"),
        (
            "application/json",
            b'[{"name":"a","description":"b"},\n {"name":"a","description":"b"}]',
            r":2:2: there is a tool 'a' already, at http.*:1:2: rename",
        ),
        (
            "application/json",
            b'[{"name":"a","description":"b","kind":"http","binding":{"url":"http://10.0.0.5/"}}]',
            "10.0.0.5 is not a public address",
        ),
        (
            "application/json",
            b'[{"name":"a","description":"b","input_schema":{"$ref":"http://10.0.0.5/"}}]',
            "input_schema",
        ),
    ],
)  # fmt: skip
async def test_it_is_held_to_what_a_file_is_held_to(
    endpoint: Endpoint, kind: str, body: bytes, said: str
) -> None:
    endpoint.type, endpoint.body = kind, body
    one = source(endpoint)
    with pytest.raises(SourceError, match=said) as fault:
        await one.load(ignore)
    assert fault.value.message.startswith(endpoint.url)
    await one.close()


async def test_a_document_that_is_too_long_is_not_read_to_its_end(endpoint: Endpoint) -> None:
    endpoint.body = b" " * 5000
    packed = gzip.compress(b" " * 5_000_000)
    one = source(endpoint, max_bytes=4000)
    with pytest.raises(SourceError, match=r"longer than 4,000 bytes$"):
        await one.load(ignore)
    endpoint.body, endpoint.headers = packed, {"Content-Encoding": "gzip"}
    with pytest.raises(SourceError, match=r"longer than 4,000 bytes$"):
        await one.load(ignore)
    await one.close()


async def test_one_that_does_not_answer_is_not_waited_for(endpoint: Endpoint) -> None:
    endpoint.hangs = True
    one = source(endpoint, timeout=0.3)
    async with asyncio.timeout(FENCE):
        with pytest.raises(SourceError, match=r"no answer within 0\.3 s"):
            await one.load(ignore)
    await one.close()


async def test_a_token_is_a_secret_by_its_name_and_goes_to_no_other_host(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    token = "correct-horse-battery-9"
    config = Config.of(
        {"sources": [{"kind": "http", "url": endpoint.url, "token": "REGISTRY", "required": True}]},
        base=tmp_path,
    )
    tools = Runtime.open(config, secret={"REGISTRY": token}.get)
    await tools.load()
    assert endpoint.asked[-1]["authorization"] == f"Bearer {token}"
    with serving() as other:
        endpoint.status = 302
        endpoint.headers = {"Location": f"http://localhost:{other.server_port}/tools.json"}
        with pytest.raises(SourceError, match="not a public address"):
            await tools.load()
        assert other.asked == []
    await tools.close()
    unset = Runtime.open(config, secret=lambda _: None)
    with pytest.raises(SourceError, match="the secret REGISTRY is not set"):
        await unset.load()
    await unset.close()


async def test_what_an_address_carries_behind_a_question_mark_is_not_told(
    endpoint: Endpoint,
) -> None:
    endpoint.status = 403
    one = source(endpoint, url=f"{endpoint.url}?key=hunter2")
    with pytest.raises(SourceError, match="answered 403; name the secret in token") as fault:
        await one.load(ignore)
    assert "hunter2" not in str(fault.value)
    await one.close()


@pytest.mark.req("NA-10")
@pytest.mark.parametrize(
    ("fields", "wanted", "setting"),
    [
        ({"kind": "python", "binding": {"module": "os", "function": "getcwd"}}, "python", "kinds"),
        ({"kind": "shell", "binding": {"command": "id"}}, "shell", "kinds"),
        ({"kind": "mcp", "binding": {"server": "files", "tool": "write"}}, "mcp", "kinds"),
        ({"kind": "quarantined"}, "quarantined", "kinds"),
        ({"egress": ["10.0.0.5:80"]}, "10.0.0.5:80", "egress"),
        ({"egress": ["*", "metadata.internal:80"]}, "metadata.internal:80", "egress"),
        ({"auth": {"bearer": "AWS_KEY"}}, "AWS_KEY", "secrets"),
        ({"auth": {"basic": {"user": "me", "password": "AWS_KEY"}}}, "AWS_KEY", "secrets"),
        ({"auth": {"basic": {"user_secret": "AWS_KEY"}}}, "AWS_KEY", "secrets"),
        ({"auth": [{"api_key": {"secret": "AWS_KEY", "name": "k"}}]}, "AWS_KEY", "secrets"),
    ],
)
async def test_what_a_tool_from_afar_is_not_granted_it_does_not_get(
    endpoint: Endpoint, fields: dict[str, Any], wanted: str, setting: str
) -> None:
    url = "https://api.example.com/"
    auth = {"auth": fields.pop("auth")} if "auth" in fields else {}
    bad = endpoint.tool("bad", **{"egress": [], "binding": {"url": url, **auth}, **fields})
    endpoint.tools = [bad, *endpoint.tools]
    one = source(endpoint)
    assert await names(one) == ["add", "greet"]
    assert one.left_out == {
        "bad": f"it asks for {wanted!r}, and its source is not granted that: if it is meant, add "
        f"it to the source's {setting}"
    }
    await one.close()
    granted = {"egress": [endpoint.authority]}
    granted[setting] = [*granted.get(setting, ["http"] if setting == "kinds" else []), wanted]
    one = source(endpoint, **granted)
    assert await names(one) == ["bad", "add", "greet"]
    assert one.left_out == {}
    await one.close()


@pytest.mark.parametrize(
    ("kind", "binding"),
    [
        ("python", {"module": "m", "function": "f", "env": ["AWS_KEY"]}),
        ("shell", {"command": "id", "secrets": ["AWS_KEY"]}),
    ],
)
async def test_a_kind_that_is_granted_has_no_secrets_with_it(
    endpoint: Endpoint, kind: str, binding: dict[str, Any]
) -> None:
    endpoint.tools = [{"name": "t", "description": "d", "kind": kind, "binding": binding}]
    one = source(endpoint, kinds=["*"])
    assert await names(one) == []
    assert "'AWS_KEY'" in one.left_out["t"]
    await one.close()
    one = source(endpoint, kinds=["*"], secrets=["*"])
    assert await names(one) == ["t"]
    await one.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "ftp://x/y"}, "begins with https:// or http://"),
        ({"url": "https://me:secret@x/y"}, "a user or a password has no place"),
        ({"url": "http://registry.example.com/t.json"}, "can be read and changed on the way"),
        (
            {
                "url": "http://8.8.8.8/t.json",
                "digest": "sha256:" + "0" * 64,
                "token": "T",
            },
            "can be read and changed on the way",
        ),
        ({"url": "https://x/y", "digest": "sha256:abc"}, "64 hexadecimal digits"),
        ({"url": "https://x/y", "interval": 0}, "interval is at least 0.1 seconds"),
        ({"url": "https://x/y", "interval": float("nan")}, "interval is at least 0.1 seconds"),
        ({"url": "https://x/y", "timeout": 0}, "timeout is at least 0.1 seconds"),
        ({"url": "https://x/y", "max_bytes": 10**9}, "max_bytes is 1 to"),
        ({"url": "https://x/y", "egress": ["*"]}, "public addresses are open to tools anyway"),
        ({"url": "https://x/y", "ca_file": "none.pem"}, "there is no file"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        HttpSource.from_config(options, Path())


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://registry.example.com/t.json", "insecure": True},
        {"url": "http://registry.example.com/t.json", "digest": "sha256:" + "0" * 64},
        {"url": "http://localhost:8000/t.json", "token": "T"},
        {"url": "http://10.0.0.5/t.json"},
    ],
)
def test_http_without_tls_is_for_what_is_near_or_pinned_or_meant(options: dict[str, Any]) -> None:
    HttpSource.from_config(options, Path())


async def test_a_name_that_leads_to_a_private_address_is_not_followed_there(
    endpoint: Endpoint,
) -> None:
    endpoint.status = 302
    endpoint.headers = {"Location": "http://169.254.169.254/latest/"}
    one = source(endpoint)
    with pytest.raises(SourceError, match=r"169\.254\.169\.254"):
        await one.load(ignore)
    await one.close()


async def test_how_often_it_is_asked_is_no_matter_for_the_lock(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    one = runtime(endpoint, base=tmp_path, interval=5)
    other = runtime(endpoint, base=tmp_path, interval=6, required=True, timeout=3)
    third = runtime(endpoint, base=tmp_path, kinds=["*"])
    assert one.sources == other.sources != third.sources
    for made in (one, other, third):
        await made.close()
