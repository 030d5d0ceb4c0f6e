"""Servers that others have written, from npm and PyPI: confined, and the same as without us."""

from __future__ import annotations

import asyncio
import base64
import functools
import http.server
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from tests import servers
from tests.backends.mcp.running import processes, serving, until
from toolpost import Runtime
from toolpost.result import Audio, Image, Part, Resource, Result, Text

pytestmark = [pytest.mark.anyio, servers.needed]

Calls = Sequence[tuple[str, Mapping[str, Any]]]


class Real(NamedTuple):
    """A server, and calls that give the same whenever they are made in this order; the last one
    gives the same whenever it is made.
    """

    about: dict[str, Any]
    calls: Calls
    left_out: frozenset[str] = frozenset()


def everything(folder: Path) -> Real:
    return Real(
        servers.of_npm("everything", "stdio"),
        [
            ("echo", {"message": "hello"}),
            ("get-sum", {"a": 2, "b": 3}),
            ("get-tiny-image", {}),
            ("get-structured-content", {"location": "Chicago"}),
            ("get-resource-links", {"count": 3}),
            ("get-annotated-message", {"messageType": "error", "includeImage": True}),
        ],
        frozenset({"simulate-research-query"}),  # it is a task only
    )


def filesystem(folder: Path) -> Real:
    file = str(folder / "letter.txt")
    return Real(
        servers.of_npm("filesystem", str(folder), write=[str(folder)]),
        [
            ("write_file", {"path": file, "content": "Dear Ada,\n"}),
            ("read_text_file", {"path": file}),
            ("edit_file", {"path": file, "edits": [{"oldText": "Ada", "newText": "Bob"}]}),
            ("list_directory", {"path": str(folder)}),
            ("read_text_file", {"path": "/etc/passwd"}),
            ("list_allowed_directories", {}),
        ],
    )


def memory(folder: Path) -> Real:
    ada = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    where = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    return Real(
        servers.of_npm("memory", write=[str(folder)], environment=where),
        [
            ("create_entities", {"entities": [ada]}),
            ("read_graph", {}),
            ("search_nodes", {"query": "programs"}),
            ("delete_entities", {"entityNames": ["Ada"]}),
            ("read_graph", {}),
        ],
    )


def time(folder: Path) -> Real:
    noon = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    return Real(
        servers.of_pypi("time"),
        [
            ("convert_time", {**noon, "time": "noon"}),
            ("get_current_time", {"timezone": "Nowhere/Land"}),
            ("convert_time", noon),
        ],
    )


def git(folder: Path) -> Real:
    run = functools.partial(subprocess.run, cwd=folder, check=True, capture_output=True)
    who = {"GIT_AUTHOR_DATE": "2026-01-01T12:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T12:00:00Z"}
    run(["git", "init", "-q", "-b", "main"])
    (folder / "a.txt").write_text("one\n")
    run(["git", "add", "."])
    as_ada = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    run(["git", *as_ada, "commit", "-qm", "First"], env={**os.environ, **who})
    (folder / "a.txt").write_text("two\n")
    trusting = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    return Real(
        servers.of_pypi("git", read=[str(folder)], environment=trusting),
        [
            ("git_diff_unstaged", {"repo_path": str(folder)}),
            ("git_log", {"repo_path": str(folder), "max_count": 1}),
            ("git_status", {"repo_path": "/nowhere"}),
            ("git_status", {"repo_path": str(folder)}),
        ],
    )


def fetch(folder: Path) -> Real:
    """The page is on this machine; the sandbox lets the server go there and nowhere else."""
    (folder / "page.html").write_text("<html><body><h1>Title</h1><p>A page.</p></body></html>")
    page = (folder / "port").read_text()
    return Real(
        servers.of_pypi("fetch", "--ignore-robots-txt", "--allow-private-ips", egress=[page]),
        [
            ("fetch", {"url": f"http://{page}/page.html", "raw": True, "max_length": 20}),
            ("fetch", {"url": f"http://{page}/missing.html"}),
            ("fetch", {"url": f"http://{page}/page.html", "raw": True}),
        ],
    )


REAL = {one.__name__: one for one in (everything, filesystem, memory, time, git, fetch)}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for the server, and a page on this machine."""
    place = tmp_path / "place"
    place.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(place))
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=web.serve_forever, daemon=True)
    thread.start()
    (place / "port").write_text(f"127.0.0.1:{web.server_port}")
    yield place
    web.shutdown()
    web.server_close()
    thread.join(10)


@asynccontextmanager
async def direct(about: Mapping[str, Any]) -> AsyncIterator[Client]:
    """The server as the SDK alone runs it: with everything that is here."""
    first, *rest = about["command"]
    path = os.pathsep.join([*about.get("path", ()), os.environ["PATH"]])
    environment = {"PATH": path, **about.get("environment", {})}
    program = StdioServerParameters(command=first, args=rest, env=environment)
    async with Client(program, cache=None) as client:
        yield client


@pytest.mark.req("FM-7", "UX-3", "UX-6", "FG-8")
@pytest.mark.parametrize("name", REAL)
async def test_a_server_is_confined_and_gives_what_it_gives_the_sdk(
    name: str, folder: Path, tmp_path: Path
) -> None:
    real = REAL[name](folder)
    async with asyncio.timeout(60), direct(real.about) as client:
        listed = (await client.list_tools()).tools
        expected = [await _answer(client, tool, arguments) for tool, arguments in real.calls]
    for left in folder.glob("*.jsonl"):
        left.unlink()
    (folder / "letter.txt").unlink(missing_ok=True)
    async with serving({name: real.about}, tmp_path) as runtime:
        specs = {spec.binding["tool"]: spec for spec in runtime.registry}
        given = [
            await runtime.execute(f"{name}.{tool}", arguments) for tool, arguments in real.calls
        ]
        plan = await runtime.execute(f"{name}.{real.calls[0][0]}", real.calls[0][1], dry_run=True)
    tools = {tool.name: tool for tool in listed if tool.name not in real.left_out}
    assert {tool: spec.name for tool, spec in specs.items()} == {t: f"{name}.{t}" for t in tools}
    for tool, spec in specs.items():
        assert spec.description == (tools[tool].description or "").strip()
        assert spec.input_schema == tools[tool].input_schema
        assert spec.output_schema == tools[tool].output_schema
        assert (spec.tier, spec.effects) == (2, "once")
    assert [*map(_comparable, given)] == expected
    assert plan.metadata.plan is not None
    assert plan.metadata.plan["isolation"] == "sandbox"
    assert {"namespaces", "seccomp"} <= {*plan.metadata.plan["layers"]}


@pytest.mark.req("UX-6")
@pytest.mark.parametrize("name", REAL)
async def test_a_killed_server_is_a_typed_error_and_a_new_session(
    name: str, folder: Path, tmp_path: Path
) -> None:
    real = REAL[name](folder)
    tool, arguments = real.calls[-1]
    async with serving({name: real.about}, tmp_path) as runtime:
        before = await runtime.execute(f"{name}.{tool}", arguments)
        (server,) = [one for one in processes(f"server-{name}") if not one.children()]
        server.suspend()
        calling = asyncio.create_task(runtime.execute(f"{name}.{tool}", arguments, timeout=30))
        await until(lambda: _under_way(runtime, name))  # and nobody answers
        server.kill()
        died = await calling
        again = await runtime.execute(f"{name}.{tool}", arguments)
        now = [one.pid for one in processes(f"server-{name}")]
    assert before.success, before.error
    assert died.error is not None
    assert (died.error.code, died.error.effects) == ("UNAVAILABLE", "unknown")
    assert again.output == before.output
    assert now
    assert server.pid not in now
    await until(lambda: not processes(f"server-{name}"))


@pytest.mark.req("NA-7")
async def test_a_confined_server_sees_what_it_was_granted_and_no_more(
    folder: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hidden")
    page = (folder / "port").read_text()
    about = {
        "files": servers.of_npm("filesystem", "/", write=[str(folder)]),
        "fetch": servers.of_pypi("fetch", "--ignore-robots-txt", "--allow-private-ips"),
        "everything": servers.of_npm("everything"),
    }
    async with serving(about, tmp_path) as runtime:
        read = await runtime.execute("files.read_text_file", {"path": str(secret)})
        passwords = await runtime.execute("files.read_text_file", {"path": "/etc/passwd"})
        fetched = await runtime.execute("fetch.fetch", {"url": f"http://{page}/port"})
        environment = await runtime.execute("everything.get-env", {})
    assert read.error is not None
    assert "ENOENT" in read.error.message
    assert "root:x:0:0::/:" in passwords.output["content"], "the sandbox's own"
    assert fetched.error is not None
    assert os.environ["PATH"] not in environment.output


def _under_way(runtime: Runtime, name: str) -> bool:
    backend: Any = runtime.executor.backends["mcp"]
    (kept,) = backend.server(name)._kept.values()
    return bool(kept.live._calls)


async def _answer(client: Client, tool: str, arguments: Mapping[str, Any]) -> Any:
    result = await client.call_tool(tool, dict(arguments))
    if result.is_error:
        return "".join(one.text for one in result.content if isinstance(one, types.TextContent))
    parts, data = tuple(map(_part, result.content)), result.structured_content
    if len(parts) == 1 and isinstance(parts[0], Text):
        text = parts[0].text
        if data is None:
            return text, ()
        if text in data.values() or text.startswith("{"):  # the data once more
            return data, ()
    return data, parts


def _comparable(result: Result) -> Any:
    if result.error is not None:
        return result.error.message
    return result.output, result.parts


def _part(block: types.ContentBlock) -> Part:
    match block:
        case types.TextContent():
            return Text(block.text)
        case types.ImageContent():
            return Image(base64.b64decode(block.data), block.mime_type)
        case types.AudioContent():
            return Audio(base64.b64decode(block.data), block.mime_type)
        case types.ResourceLink():
            name = block.title or block.name
            return Resource(block.uri, block.mime_type, name=name, description=block.description)
        case types.EmbeddedResource(resource=types.TextResourceContents() as inside):
            return Resource(inside.uri, inside.mime_type, inside.text)
        case types.EmbeddedResource(resource=types.BlobResourceContents() as inside):
            return Resource(inside.uri, inside.mime_type, None, base64.b64decode(inside.blob))
