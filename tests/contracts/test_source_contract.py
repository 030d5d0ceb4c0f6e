"""What every source does, whatever it reads from."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import servers
from tests.sources import endpoint
from tests.sources.packages import TOOLS, forgotten, install
from tests.specs import WRITERS
from toolpost import ConfigError, Executor, Registry, SourceError, ToolSpec
from toolpost.backends.mcp.backend import McpBackend
from toolpost.contracts import Backend, Closes, Draws, Registered, Services, Source
from toolpost.plugins import BUILT_IN, load
from toolpost.registry import as_entry
from toolpost.sources.entrypoints import GROUP

pytestmark = pytest.mark.anyio


class Occupant(NamedTuple):
    """A source that offers ``add`` and ``greet``, and the same with nothing to be found."""

    kind: str
    options: Mapping[str, Any]
    lost: Mapping[str, Any]
    base: Path
    backends: Mapping[str, Backend] = {}
    """Those that it draws its tools from."""
    sum: object = 3
    more: Mapping[str, Any] = {}
    """What it has to be granted besides."""
    open: ExitStack = ExitStack()
    made: list[Source] = []

    @property
    def needed(self) -> str:
        """The option that it cannot do without."""
        (option,) = self.options
        return option

    def make(self, options: Mapping[str, Any] | None = None) -> Source:
        given = {**self.options, **self.more} if options is None else options
        source: Source = load("sources", self.kind).from_config(given, self.base)
        self.made.append(source)
        if isinstance(source, Draws):
            source.draw(self.backends.__getitem__)
        return source


PLAIN = """
def add(a: int, b: int) -> int:
    return a + b

def greet(name: str) -> str:
    return f"hello {name}"
"""


def files(suffix: str) -> Callable[[Path], Occupant]:
    def occupant(base: Path) -> Occupant:
        (base / "contract_functions.py").write_text(PLAIN)
        tools = [
            {
                "name": name,
                "description": f"The tool {name}.",
                "input_schema": {"type": "object", "properties": {p: {} for p in parameters}},
                "binding": {"module": "contract_functions", "function": name},
            }
            for name, parameters in (("add", "ab"), ("greet", ("name",)))
        ]
        (base / f"tools.{suffix}").write_text(WRITERS[suffix](tools))
        return Occupant("files", {"paths": [f"tools.{suffix}"]}, {"paths": ["none.json"]}, base)

    return occupant


def modules(base: Path) -> Occupant:
    (base / "contract_tools.py").write_text(TOOLS)
    return Occupant("modules", {"modules": ["contract_tools"]}, {"modules": ["not_there"]}, base)


def entrypoints(base: Path) -> Occupant:
    points = {GROUP: {"tools": "contract_package"}}
    install(base, "contract-package", points=points, contract_package=TOOLS)
    return Occupant(
        "entrypoints", {"packages": ["contract-package"]}, {"packages": ["not-there"]}, base
    )


def mcp(base: Path) -> Occupant:
    """A server says everything in words, the sum as well."""
    servers.need()
    about = servers.odd(base, prefix="")
    about["command"] += ["add", "greet"]
    backend = McpBackend(Services(settings={"mcp": {"servers": {"odd": about}}}))
    return Occupant(
        "mcp", {"servers": ["odd"]}, {"servers": ["not_there"]}, base, {"mcp": backend}, "3"
    )


def http(base: Path) -> Occupant:
    """An address, and tools that are asked there."""
    stack = ExitStack()
    served = stack.enter_context(endpoint.serving())
    grants = {"egress": [served.authority]}
    lost = {"url": "http://127.0.0.1:9/none.json"}
    return Occupant("http", {"url": served.url}, lost, base, more=grants, open=stack)


def database(base: Path) -> Occupant:
    """A table of one's own making, with the tools of an address."""
    stack = ExitStack()
    served = stack.enter_context(endpoint.serving())
    with sqlite3.connect(base / "tools.db") as db:
        db.execute("CREATE TABLE toolpost_tools (name, spec, digest, enabled)")
        rows = [(tool["name"], json.dumps(tool)) for tool in served.tools]
        db.executemany("INSERT INTO toolpost_tools VALUES (?, ?, NULL, 1)", rows)
    db.close()
    url, lost = {"url": "sqlite:///tools.db"}, {"url": "sqlite:///none.db"}
    grants = {"egress": [served.authority]}
    return Occupant("database", url, lost, base, more=grants, open=stack)


def openapi(base: Path) -> Occupant:
    """A description of the tools at an address."""
    stack = ExitStack()
    served = stack.enter_context(endpoint.serving())
    paths = {
        f"/{tool['name']}": {
            "get": {
                "operationId": tool["name"],
                "parameters": [
                    {"name": one, "in": "query"} for one in tool["input_schema"]["properties"]
                ],
            }
        }
        for tool in served.tools
    }
    (base / "api.json").write_text(json.dumps({"openapi": "3.1.0", "paths": paths}))
    more = {"base_url": f"http://{served.authority}"}
    lost = {"document": "none.json"}
    return Occupant("openapi", {"document": "api.json"}, lost, base, more=more, open=stack)


OCCUPANTS = {
    "files-yaml": files("yaml"),
    "files-json": files("json"),
    "files-toml": files("toml"),
    "modules": modules,
    "entrypoints": entrypoints,
    "mcp": mcp,
    "http": http,
    "database": database,
    "openapi": openapi,
}


@pytest.fixture(params=OCCUPANTS)
async def occupant(
    request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str
) -> AsyncIterator[Occupant]:
    with forgotten(tmp_path):
        sys.path.insert(0, str(tmp_path))
        made = OCCUPANTS[request.param](tmp_path)._replace(made=[])
        with made.open:
            yield made
            for one in (*made.made, *made.backends.values()):
                if isinstance(one, Closes):
                    await one.close()


def ignore(done: int, total: int) -> None:
    pass


def test_every_built_in_source_is_under_contract() -> None:
    kinds = {name.partition("-")[0] for name in OCCUPANTS}
    elsewhere = {"builtin", "nats"}  # has its own tools only; has what workers offer: tests/bus
    assert kinds | elsewhere == {name for socket, name in BUILT_IN if socket == "sources"}


async def test_a_source_gives_its_tools(occupant: Occupant) -> None:
    found = list(await occupant.make().load(ignore))
    assert all(isinstance(one, Registered | ToolSpec) for one in found)
    assert [as_entry(one).spec.name for one in found] == ["add", "greet"]


async def test_loading_again_gives_the_same(occupant: Occupant) -> None:
    source = occupant.make()
    digests = [[as_entry(i).spec.digest for i in await source.load(ignore)] for _ in range(2)]
    assert digests[0] == digests[1]


@pytest.mark.req("UX-2", "UX-3")
async def test_its_tools_can_be_registered_and_called(occupant: Occupant) -> None:
    registry = Registry(await occupant.make().load(ignore))
    backends = occupant.backends
    async with Executor(registry, backends=backends) as executor, asyncio.timeout(60):
        added = await executor.execute("add", {"a": 1, "b": 2})
        greeted = await executor.execute("greet", {"name": "Ada"})
    assert (added.output, greeted.output) == (occupant.sum, "hello Ada"), (
        added.error,
        greeted.error,
    )


async def test_a_long_load_tells_how_far_it_is(occupant: Occupant) -> None:
    told: list[tuple[int, int]] = []
    await occupant.make().load(lambda done, total: told.append((done, total)))
    assert told
    assert all(0 <= done <= total for done, total in told)
    assert told == sorted(told)


async def test_what_cannot_be_found_is_named(occupant: Occupant) -> None:
    (sought,) = occupant.lost.values()
    sought = sought if isinstance(sought, str) else sought[0]
    with pytest.raises(SourceError, match=sought):
        await occupant.make(occupant.lost).load(ignore)


def test_an_unknown_option_is_met_with_what_the_source_takes(occupant: Occupant) -> None:
    option = occupant.needed
    with pytest.raises(ConfigError, match=f"source {occupant.kind} has no setting .*{option}") as e:
        occupant.make({**occupant.options, f"{option}x": 1})
    assert e.value.at == (f"{option}x",)


def test_an_option_of_the_wrong_type_is_named(occupant: Occupant) -> None:
    option = occupant.needed
    wrong, right = (1, "str") if isinstance(occupant.options[option], str) else ("text", "array")
    with pytest.raises(ConfigError, match=f"source {occupant.kind} {option}: expected `{right}"):
        occupant.make({option: wrong})


def test_a_source_says_what_it_cannot_do_without(occupant: Occupant) -> None:
    needs = f"missing required field `{occupant.needed}`|needs {occupant.needed}"
    with pytest.raises(ConfigError, match=needs):
        load("sources", occupant.kind).from_config({}, occupant.base)


async def test_watching_can_be_given_up_at_any_time(occupant: Occupant) -> None:
    source = occupant.make()
    await source.load(ignore)
    changes: AsyncIterator[None] = source.changes()

    async def watch() -> None:
        async for _ in changes:
            raise AssertionError("nothing has changed")

    async with asyncio.timeout(10):
        watching = asyncio.create_task(watch())
        await asyncio.sleep(0)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert watching.done()
