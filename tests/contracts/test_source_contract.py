"""What every source does, whatever it reads from."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.sources.packages import TOOLS, forgotten, install
from tests.specs import WRITERS
from toolpost import ConfigError, Executor, Registry, SourceError
from toolpost.contracts import Registered, Source
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

    def make(self, options: Mapping[str, Any] | None = None) -> Source:
        source: Source = load("sources", self.kind).from_config(options or self.options, self.base)
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


OCCUPANTS = {
    "files-yaml": files("yaml"),
    "files-json": files("json"),
    "files-toml": files("toml"),
    "modules": modules,
    "entrypoints": entrypoints,
}


@pytest.fixture(params=OCCUPANTS)
def occupant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Occupant]:
    with forgotten(tmp_path):
        sys.path.insert(0, str(tmp_path))
        yield OCCUPANTS[request.param](tmp_path)


def ignore(done: int, total: int) -> None:
    pass


def test_every_built_in_source_is_under_contract() -> None:
    kinds = {name.partition("-")[0] for name in OCCUPANTS}
    assert kinds == {name for socket, name in BUILT_IN if socket == "sources"}


async def test_a_source_gives_its_tools(occupant: Occupant) -> None:
    found = list(await occupant.make().load(ignore))
    assert all(isinstance(one, Registered) for one in found)
    assert [as_entry(one).spec.name for one in found] == ["add", "greet"]


async def test_loading_again_gives_the_same(occupant: Occupant) -> None:
    source = occupant.make()
    digests = [[as_entry(i).spec.digest for i in await source.load(ignore)] for _ in range(2)]
    assert digests[0] == digests[1]


@pytest.mark.req("UX-2", "UX-3")
async def test_its_tools_can_be_registered_and_called(occupant: Occupant) -> None:
    registry = Registry(await occupant.make().load(ignore))
    async with Executor(registry) as executor, asyncio.timeout(60):
        added = await executor.execute("add", {"a": 1, "b": 2})
        greeted = await executor.execute("greet", {"name": "Ada"})
    assert (added.output, greeted.output) == (3, "hello Ada"), (added.error, greeted.error)


async def test_a_long_load_tells_how_far_it_is(occupant: Occupant) -> None:
    told: list[tuple[int, int]] = []
    await occupant.make().load(lambda done, total: told.append((done, total)))
    assert told
    assert all(0 <= done <= total for done, total in told)
    assert told == sorted(told)


async def test_what_cannot_be_found_is_named(occupant: Occupant) -> None:
    (sought,) = next(iter(occupant.lost.values()))
    with pytest.raises(SourceError, match=sought):
        await occupant.make(occupant.lost).load(ignore)


def test_an_unknown_option_is_met_with_what_the_source_takes(occupant: Occupant) -> None:
    (option,) = occupant.options
    with pytest.raises(ConfigError, match=f"source {occupant.kind} has no setting .*{option}") as e:
        occupant.make({**occupant.options, f"{option}x": 1})
    assert e.value.at == (f"{option}x",)


def test_an_option_of_the_wrong_type_is_named(occupant: Occupant) -> None:
    (option,) = occupant.options
    with pytest.raises(ConfigError, match=f"source {occupant.kind} {option}: expected `array`"):
        occupant.make({option: "text"})


def test_a_source_says_what_it_cannot_do_without(occupant: Occupant) -> None:
    (option,) = occupant.options
    with pytest.raises(ConfigError, match=f"missing required field `{option}`"):
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
