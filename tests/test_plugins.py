"""Parts by name: built in or installed, loaded when wanted, and a word of help when not there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.packages import forgotten, install
from toolpost import ConfigError, Executor, MissingPart, Registry, ToolSpec
from toolpost.contracts import Handle, Health, Services
from toolpost.exporters import Form
from toolpost.plugins import BUILT_IN, Backends, installed, load
from toolpost.sources.files import FilesSource

pytestmark = pytest.mark.anyio

ECHO = '''
from toolpost.contracts import Health

class Echo:
    """A kind of tool that gives its arguments back."""

    def __init__(self, services):
        self.prefix = services.settings.get("echo", {}).get("prefix", "")

    def bind(self, spec, target):
        return Handle(self.prefix + spec.binding["word"])

    async def close(self):
        pass

class Handle:
    def __init__(self, word):
        self.word = word

    async def run(self, call):
        return {self.word: call.arguments}

    async def health(self):
        return Health(True)

    async def close(self):
        pass
'''


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    with forgotten(tmp_path):
        sys.path.insert(0, str(tmp_path))
        yield tmp_path


@pytest.mark.parametrize(("socket", "name"), BUILT_IN, ids="-".join)
def test_every_built_in_part_is_there(socket: str, name: str) -> None:
    assert isinstance(load(socket, name), Form if socket == "exporters" else type)


def test_a_built_in_part_is_loaded_only_when_wanted() -> None:
    program = (
        "import sys, toolpost; print('toolpost.sources.files' in sys.modules)\n"
        "from toolpost.plugins import load; load('sources', 'files')\n"
        "print('toolpost.sources.files' in sys.modules, 'toolpost.sources.modules' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["False", "True", "False"]


@pytest.mark.req("UX-10", "FG-8")
async def test_a_package_adds_a_kind_of_tool_by_one_class(site: Path) -> None:
    points = {"toolpost.backends": {"echo": "echo_kind:Echo"}}
    install(site, "echo-kind", points=points, echo_kind=ECHO)
    spec = ToolSpec(
        name="say",
        description="Say it.",
        kind="echo",
        input_schema={"type": "object"},
        binding={"word": "said"},
    )
    settings = {"echo": {"prefix": "i_"}}
    async with Executor(Registry([spec]), settings=settings) as executor, asyncio.timeout(30):
        result = await executor.execute("say", {"x": 1})
        assert await executor.health("say") == Health(True)
    assert result.output == {"i_said": {"x": 1}}


def test_an_installed_part_is_found_by_its_name(site: Path) -> None:
    points = {"toolpost.sources": {"mine": "my_source:Mine"}}
    install(site, "my-source", points=points, my_source="class Mine: pass")
    assert load("sources", "mine").__name__ == "Mine"
    assert [p.name for p in installed("sources") if p.value.startswith("my_source")] == ["mine"]


def test_a_built_in_part_cannot_be_taken_over(site: Path) -> None:
    points = {"toolpost.sources": {"files": "impostor:Files"}}
    install(site, "impostor", points=points, impostor="class Files: pass")
    assert load("sources", "files") is FilesSource


def test_two_packages_that_offer_one_name_are_both_named(site: Path) -> None:
    for package in ("one", "two"):
        install(site, package, points={"toolpost.sources": {"mine": f"{package}:Mine"}})
    with pytest.raises(ConfigError, match="the source 'mine' is offered by one and two"):
        load("sources", "mine")


@pytest.mark.parametrize(
    ("socket", "name", "told"),
    [
        ("sources", "filez", "no source 'filez' is installed; did you mean 'files'?"),
        ("sources", "zzz", "no source 'zzz' is installed (installed: "),
        ("backends", "pyhton", "no kind of tool 'pyhton' is installed; did you mean 'python'?"),
        ("extensions", "nothing", "no extension 'nothing' is installed"),
        ("sources", "x\x1b", "no source 'x�' is installed"),
    ],
)
def test_a_part_that_is_not_there_is_met_with_the_nearest_name(
    socket: str, name: str, told: str
) -> None:
    with pytest.raises(MissingPart) as caught:
        load(socket, name)
    assert caught.value.message.startswith(told)
    assert f"in the group toolpost.{socket}." in caught.value.message


BROKEN = "source 'mine' is installed but cannot be loaded from 'broken:Mine': "


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "import not_installed.inner",
            "source 'mine' needs 'not_installed'. Install it with: pip install not_installed",
        ),
        ("raise OSError('no disk')", f"{BROKEN}OSError: no disk"),
        ("x = 1", f"{BROKEN}AttributeError"),
        ("syntax error", f"{BROKEN}SyntaxError"),
    ],
    ids=["import", "raises", "has no such name", "is no Python"],
)
def test_a_part_that_cannot_be_loaded_says_why(site: Path, source: str, told: str) -> None:
    install(site, "broken", points={"toolpost.sources": {"mine": "broken:Mine"}}, broken=source)
    with pytest.raises(MissingPart) as caught:
        load("sources", "mine")
    assert caught.value.message.startswith(told)


def test_a_missing_import_of_our_own_names_the_extra(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.plugins._EXTRAS", {"not_installed": "nats"})
    points = {"toolpost.sources": {"mine": "ours:Mine"}}
    install(site, "ours", points=points, ours="import not_installed")
    with pytest.raises(MissingPart, match=r'Install it with: pip install "toolpost\[nats\]"'):
        load("sources", "mine")


class Given:
    def __init__(self, closed: list[str], name: str) -> None:
        self.closed, self.name = closed, name

    def bind(self, spec: ToolSpec, target: object | None) -> Handle:
        raise NotImplementedError

    async def close(self) -> None:
        self.closed.append(self.name)
        if self.name == "ill":
            raise OSError("cannot close")


async def test_a_given_backend_wins_and_one_that_fails_to_close_keeps_none_open() -> None:
    closed: list[str] = []
    given = {name: Given(closed, name) for name in ("python", "ill", "last")}
    backends = Backends(given, Services())
    assert backends["python"] is given["python"]
    with pytest.raises(OSError, match="cannot close"):
        await backends.close()
    assert sorted(closed) == ["ill", "last", "python"]


async def test_a_backend_is_made_once() -> None:
    backends = Backends({}, Services())
    assert backends["python"] is backends["python"]
    await backends.close()


async def test_a_tool_of_an_unknown_kind_says_what_is_missing() -> None:
    spec = ToolSpec(name="a", description="d", kind="carrier-pigeon")
    async with Executor(Registry([spec])) as executor:
        result = await executor.execute("a")
    assert result.error is not None
    assert result.error.message.startswith("no kind of tool 'carrier-pigeon' is installed")
