"""Artifacts: what is large is kept for its caller, and read piece by piece; on every store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.stores.server import running_server
from toolpost import Audio, Caller, Image, Output, Resource, Runtime, Text, tool
from toolpost.config import Config
from toolpost.errors import ConfigError, InvalidArguments, ToolNotFound, Unavailable
from toolpost.extensions.artifacts import MOST_READ, Artifacts
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import calls

pytestmark = pytest.mark.anyio
server = pytest.fixture(scope="module")(running_server)
ANN, EVE, ROOT = Caller("ann"), Caller("eve"), Caller("owner", owner=True)


@tool(tier=0, effects="read", cache={"ttl": 60})
async def text(size: int) -> str:
    """A text with every sort of character."""
    return ("äß€🙂 0123456789\n" * size)[:size]


@tool(tier=0, effects="read")
async def rows(count: int) -> list[dict[str, int]]:
    """Many rows."""
    return [{"row": number} for number in range(count)]


@tool(tier=0, effects="read")
async def parts(size: int) -> Output:
    """Whatever is not JSON."""
    return Output(
        {"few": 1},
        (
            Image(b"\x89PNG" * size),
            Audio(b"RIFF"),
            Text("long " * size),
            Resource("file:///x", mime="text/html", text="<p>" * size),
            Resource("file:///y", data=b"\0" * size),
        ),
    )


@tool(tier=1, effects="once")
async def once(size: int) -> str:
    """A text, once."""
    return "x" * size


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[tuple[Runtime, Artifacts]]:
    given = {"watch": False, "store": {"kind": "memory"}, **settings}
    mine = {"soft": 100_000, **given.get("extensions", {}).get("artifacts", {})}
    given["extensions"] = {"artifacts": mine}
    runtime = Runtime(Config.of(given, base=folder), tools=[text, rows, parts, once])
    async with runtime:
        yield runtime, runtime.extension("artifacts")


async def whole(artifacts: Artifacts, handle: str, caller: Caller = ANN, step: int = 7) -> bytes:
    about = await artifacts.about(handle, caller=caller)
    length = max(1, about.size // step)
    read = b""
    while piece := await artifacts.read(handle, caller=caller, offset=len(read), length=length):
        read += piece
    return read


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_a_large_output_is_kept_and_read_in_pieces(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = {"kind": kind}
    if kind == "postgres":
        store["dsn"] = request.getfixturevalue("server").database()
    async with opened(tmp_path, store=store) as (tools, artifacts):
        for name, arguments in (("text", {"size": 300_000}), ("rows", {"count": 50_000})):
            spec_output = await {"text": text, "rows": rows}[name](**arguments)
            result = await tools.execute(name, arguments, caller=ANN)
            assert result.success and result.output is None
            (kept,), (ends, link) = result.metadata.artifacts, result.parts
            assert isinstance(ends, Text) and isinstance(link, Resource)
            assert link.uri == f"toolpost://artifacts/{kept.handle}" and link.mime == kept.mime
            read = await whole(artifacts, kept.handle)
            assert len(read) == kept.size
            told = read.decode() if name == "text" else json.loads(read)
            assert told == spec_output
            head, tail = ends.text.split("[…")[0], ends.text.split("…]\n")[1]
            assert read.startswith(head.rstrip("\n").encode()) and read.endswith(tail.encode())
            assert len(head) > 500 and len(tail) > 250 and f"{kept.size:,} bytes" in ends.text
            again = await tools.execute(name, arguments, caller=ANN)
            assert again.metadata.artifacts[0].handle == kept.handle, "the same is not kept twice"


async def test_a_small_output_is_as_it_was(tmp_path: Path) -> None:
    async with opened(tmp_path) as (tools, _):
        result = await tools.execute("text", {"size": 30_000}, caller=ANN)
        assert result.output == await text(30_000) and result.metadata.artifacts == ()
        assert await tools.store.scan("artifacts") == []


async def test_every_large_part_is_kept_as_what_it_is(tmp_path: Path) -> None:
    async with opened(tmp_path) as (tools, artifacts):
        result = await tools.execute("parts", {"size": 120_000}, caller=ANN)
        assert result.output == {"few": 1}
        assert [type(part).__name__ for part in result.parts] == [
            "Resource", "Audio", "Text", "Resource", "Text", "Resource", "Resource"
        ]  # fmt: skip
        kept = {one.mime: one.handle for one in result.metadata.artifacts}
        assert await whole(artifacts, kept["image/png"]) == b"\x89PNG" * 120_000
        assert await whole(artifacts, kept["text/html"]) == b"<p>" * 120_000
        assert await whole(artifacts, kept["application/octet-stream"]) == b"\0" * 120_000
        assert await whole(artifacts, kept["text/plain; charset=utf-8"]) == b"long " * 120_000


async def test_what_is_served_again_is_kept_as_well(tmp_path: Path) -> None:
    async with opened(tmp_path) as (tools, artifacts):
        first = await tools.execute("text", {"size": 150_000}, caller=ANN)
        cached = await tools.execute("text", {"size": 150_000}, caller=ANN)
        assert cached.metadata.cached and cached.output is None
        assert cached.metadata.artifacts[0].handle == first.metadata.artifacts[0].handle
        keyed = [await tools.execute("once", {"size": 150_000}, caller=ANN, key="k")]
        keyed.append(await tools.execute("once", {"size": 150_000}, caller=ANN, key="k"))
        joined = (tools.execute("once", {"size": 160_000}, caller=ANN, key="j") for _ in range(3))
        keyed += await asyncio.gather(*joined)
        assert [(one.success, one.output) for one in keyed] == [(True, None)] * 5
        assert len({one.metadata.artifacts[0].handle for one in keyed}) == 2
        assert await whole(artifacts, keyed[1].metadata.artifacts[0].handle) == b"x" * 150_000


@pytest.mark.req("NA-12")
async def test_the_artifact_of_another_is_not_found_and_both_are_on_record(tmp_path: Path) -> None:
    async with opened(tmp_path) as (tools, artifacts):
        result = await tools.execute("text", {"size": 150_000}, caller=ANN)
        handle = result.metadata.artifacts[0].handle
        for work in (artifacts.about, artifacts.read):
            with pytest.raises(ToolNotFound, match="There is no artifact"):
                await work(handle, caller=EVE)
        theirs = await tools.execute("text", {"size": 150_000}, caller=EVE)
        assert theirs.metadata.artifacts[0].handle != handle
        assert await whole(artifacts, handle, ROOT) == await whole(artifacts, handle)
        await tools.extension("audit").close()
        found = [one async for one in calls(lines_of(tools.store)) if one.code == "NOT_FOUND"]
        assert [(one.asked.caller.id, one.asked.details["of"]["id"]) for one in found] == [
            ("eve", "ann")
        ] * 2


@pytest.mark.parametrize(
    "handle",
    ["", "ar-", "../../etc/passwd", "ar-../../../../etc/pw", "ar-" + "0" * 20, "ar-" + "G" * 20,
     "ar-" + "0" * 20 + "/00000000", "ar-\0" + "0" * 19, "ar-" + "0" * 5000, "\ud800"],
)  # fmt: skip
async def test_a_handle_that_is_none_leads_nowhere(tmp_path: Path, handle: str) -> None:
    async with opened(tmp_path) as (_, artifacts):
        for work in (artifacts.about, artifacts.read):
            with pytest.raises(ToolNotFound):
                await work(handle, caller=ROOT)


async def test_a_range_is_inside_or_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as (tools, artifacts):
        result = await tools.execute("once", {"size": 150_000}, caller=ANN)
        handle = result.metadata.artifacts[0].handle

        async def read(offset: int, length: int) -> int:
            return len(await artifacts.read(handle, caller=ANN, offset=offset, length=length))

        assert [await read(0, 1), await read(49_151, 2), await read(149_999, 10)] == [1, 2, 1]
        assert [await read(150_000, 10), await read(10**18, MOST_READ)] == [0, 0]
        assert await read(0, MOST_READ) == 150_000
        for offset, length in ((-1, 10), (0, 0), (0, -1), (0, MOST_READ + 1)):
            with pytest.raises(InvalidArguments):
                await read(offset, length)


async def test_an_artifact_is_kept_for_a_while(tmp_path: Path) -> None:
    async with opened(tmp_path, extensions={"artifacts": {"ttl": 0.2}}) as (tools, artifacts):
        result = await tools.execute("once", {"size": 150_000}, caller=ANN)
        handle = result.metadata.artifacts[0].handle
        async with asyncio.timeout(20):
            with pytest.raises(ToolNotFound, match="no longer"):
                while await artifacts.read(handle, caller=ANN):
                    await asyncio.sleep(0.02)


async def test_beyond_what_one_caller_may_have_the_oldest_goes(tmp_path: Path) -> None:
    async with opened(tmp_path, extensions={"artifacts": {"most": 400_000}}) as (tools, artifacts):
        handles = []
        for size in (150_000, 150_001, 150_002):
            result = await tools.execute("once", {"size": size}, caller=ANN)
            handles.append(result.metadata.artifacts[0].handle)
        with pytest.raises(ToolNotFound):
            await artifacts.about(handles[0], caller=ANN)
        assert [len(await whole(artifacts, handle)) for handle in handles[1:]] == [150_001, 150_002]
        left = {key.partition("/")[0] for key, _ in await tools.store.scan("artifacts.pieces")}
        assert left == set(handles[1:])


async def test_what_cannot_be_kept_is_handed_over_whole(tmp_path: Path) -> None:
    async with opened(tmp_path) as (tools, _):

        async def away(*_: Any, **__: Any) -> None:
            raise Unavailable("The store is away.")

        tools.store.put = away  # type: ignore[method-assign, assignment]
        result = await tools.execute("rows", {"count": 50_000}, caller=ANN)
        assert result.output == await rows(50_000) and result.metadata.artifacts == ()
        assert "could not be kept" in result.metadata.warnings[-1]


async def test_what_leaves_the_sanitizer_is_what_is_kept(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9

    @tool(tier=0, effects="read", labels={"external": "true"})
    async def fetch() -> str:
        """Fetch something from outside."""
        return "x " * 400_000 + secret

    given = {"watch": False, "store": {"kind": "memory"}}
    async with Runtime(Config.of(given, base=tmp_path), tools=[fetch]) as tools:
        result = await tools.execute("fetch", caller=ANN)
        handle = result.metadata.artifacts[0].handle
        read = await whole(tools.extension("artifacts"), handle)
        assert b"[redacted" in read and secret.encode() not in read


@pytest.mark.parametrize(
    "options",
    [{"soft": 10}, {"head": -1}, {"head": 400_000, "tail": 400_000}, {"ttl": 0}, {"most": 0}],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    given = {"extensions": {"artifacts": options}}
    with pytest.raises(ConfigError, match="extension artifacts"):
        Runtime(Config.of(given, base=tmp_path))
