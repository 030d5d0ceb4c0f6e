"""The default chain: what a runtime does with nothing configured, what it keeps, and what happens
where nothing can be kept.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from toolpost import Executor, Health, MissingPart, Registry, Result, Runtime, tool
from toolpost.config import GUARDS, OBSERVERS, Config, Settings
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import calls
from toolpost.testing import sample_runtime

pytestmark = pytest.mark.anyio
FENCE = 60


@tool(tier=1, effects="read")
async def look(text: str) -> str:
    """Give back the text."""
    return text


@tool(tier=1)
async def note(text: str) -> str:
    """Write it down."""
    return text


@tool(tier=2)
async def send(text: str) -> str:
    """Send it."""
    return text


@tool(tier=3)
async def erase(text: str) -> str:
    """Erase it."""
    return text


@tool(tier=4)
async def wipe(text: str) -> str:
    """Wipe everything."""
    return text


TOOLS = (look, note, send, erase, wipe)
TEXT = {"text": "a"}


def runtime(folder: Path, **settings: object) -> Runtime:
    chosen = msgspec.structs.replace(Settings(watch=False), **settings)
    made = Runtime(Config(chosen, folder))
    made.registry.add(*TOOLS)
    return made


def code(result: Result) -> str | None:
    return None if result.error is None else result.error.code


async def test_every_ring_is_there_and_in_order_without_a_word_in_the_config(
    tmp_path: Path,
) -> None:
    async with runtime(tmp_path) as tools:
        executor = tools.executor
        assert [one.name for one in executor.observers] == list(OBSERVERS)
        assert [one.name for one in executor.guards] == list(GUARDS)
        for name in ("look", "erase"):
            rings = executor.bound(name).rings
            assert "audit" in rings and "slots" in rings
            order = [one for one in (*OBSERVERS, *GUARDS) if one in rings]
            assert list(rings) == order


async def test_a_bare_executor_has_no_rings() -> None:
    async with Executor(Registry(TOOLS)) as executor:
        assert executor.bound("wipe").rings == ()
        assert not (await executor.execute("wipe", TEXT)).metadata.trail


async def test_without_a_config_what_is_dangerous_is_asked_about_or_denied(tmp_path: Path) -> None:
    async with runtime(tmp_path) as tools:
        codes = [code(await tools.execute(one.spec.name, TEXT)) for one in TOOLS]
    assert codes == [None, None, None, "APPROVAL_REQUIRED", "POLICY_DENIED"]


async def test_every_call_is_on_record_when_the_runtime_is_closed(tmp_path: Path) -> None:
    async with runtime(tmp_path) as tools:
        for one in (look, note, wipe):
            await tools.execute(one.spec.name, TEXT)
    async with runtime(tmp_path, observers=()) as again:
        found = [call async for call in calls(lines_of(again.store))]
    assert sorted((one.asked.tool, one.code) for one in found) == [
        ("look", "OK"),
        ("note", "OK"),
        ("wipe", "POLICY_DENIED"),
    ]


async def test_a_shorter_list_is_the_whole_list(tmp_path: Path) -> None:
    async with runtime(tmp_path, observers=("log",), guards=("slots",)) as tools:
        assert tools.executor.bound("wipe").rings == ("log", "slots")
        assert code(await tools.execute("wipe", TEXT)) is None
    assert not (tmp_path / ".toolpost").exists()


async def test_nothing_is_made_until_something_is_called(tmp_path: Path) -> None:
    async with runtime(tmp_path) as tools:
        assert len(tools.list()) == len(TOOLS)
        assert tools.executor.bound("send").rings
        assert {part: one.healthy for part, one in (await tools.health()).items()} == {
            "store": True,
            "lock": True,
            "extension policy": True,
            "extension audit": True,
        }
    assert list(tmp_path.iterdir()) == []
    async with runtime(tmp_path) as tools:
        await tools.execute("note", TEXT)
        assert (tmp_path / ".toolpost" / "store.db").exists()


async def test_first_calls_at_once_open_one_store_and_one_chain(tmp_path: Path) -> None:
    async with runtime(tmp_path) as tools:
        async with asyncio.timeout(FENCE):
            results = await asyncio.gather(*(tools.execute("note", TEXT) for _ in range(20)))
        assert {code(one) for one in results} == {None}
        writers = {line.writer for line in await tools.store.read()}
    assert len(writers) == 1


# --- an extra that is not installed ------------------------------------------------------------

WITHOUT_OTEL = """
import sys
sys.modules["opentelemetry"] = None
from pathlib import Path
from toolpost.config import Config, Settings
from toolpost.errors import MissingPart
from toolpost.runtime import Runtime

print(*(one.name for one in Runtime(Config(Settings(), Path.cwd())).executor.observers))
try:
    Runtime(Config(Settings(observers=("trace", "log")), Path.cwd()))
except MissingPart as fault:
    print(fault)
"""


def test_a_default_ring_whose_extra_is_missing_is_left_out_one_that_is_named_is_told(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_OTEL],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=FENCE,
        check=True,
    )
    listed, told = done.stdout.splitlines()
    assert listed.split() == ["log", "metrics", "audit"]
    assert 'pip install "toolpost[otel]"' in told


def test_a_default_ring_that_is_no_part_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingPart, match="did you mean 'log'"):
        Runtime(Config(Settings(observers=("logg",)), tmp_path))


# --- where nothing can be kept -----------------------------------------------------------------


@pytest.fixture
def shut(tmp_path: Path) -> str:
    """A state folder that nobody can make, whoever runs the test."""
    (tmp_path / "file").touch()
    return "file/state"


@pytest.mark.parametrize(
    ("mode", "codes"),
    [
        ("standard", [None, None, "UNAVAILABLE"]),
        ("permissive", [None, None, "UNAVAILABLE"]),
        ("strict", ["UNAVAILABLE", "UNAVAILABLE", "UNAVAILABLE"]),
    ],
)
async def test_without_a_record_only_low_tiers_run_and_in_strict_mode_none(
    tmp_path: Path, shut: str, mode: str, codes: list[str | None]
) -> None:
    async with runtime(tmp_path, state=shut, mode=mode) as tools:
        await tools.execute("note", TEXT)  # the first to find out
        found = [await tools.execute(one.spec.name, TEXT) for one in (look, note, send)]
        assert [code(one) for one in found] == codes
        for one in found:  # a model hears nothing of paths and settings
            assert one.error is None or str(tmp_path) not in one.error.message
        for part in ("store", "extension audit"):
            assert str(tmp_path / shut) in tools.problems[part]
            assert 'state = "…"' in tools.problems[part]
        health = await tools.health()
        assert (health["store"].healthy, health["extension audit"].healthy) == (False, False)


async def test_it_goes_on_as_soon_as_the_folder_can_be_made(tmp_path: Path, shut: str) -> None:
    async with runtime(tmp_path, state=shut) as tools:
        assert code(await tools.execute("send", TEXT)) == "UNAVAILABLE"
        (tmp_path / "file").unlink()
        assert code(await tools.execute("send", TEXT)) is None
        assert tools.problems == {}


async def test_a_store_that_is_gone_is_no_longer_healthy(tmp_path: Path) -> None:
    async with runtime(tmp_path) as tools:
        await tools.execute("send", TEXT)
        assert (await tools.health())["store"] == Health(True)
        (tmp_path / ".toolpost").rename(tmp_path / "elsewhere")
        assert "its file is gone" in str((await tools.health())["store"].error)
        assert code(await tools.execute("send", TEXT)) == "UNAVAILABLE"


PROGRAM = """
import asyncio
from toolpost import Runtime, tool

@tool(tier=2)
async def send() -> str:
    '''Send it.'''
    return "sent"

async def main():
    async with Runtime.open() as tools:
        tools.registry.add(send)
        print((await tools.execute("send")).error.code)

asyncio.run(main())
"""


def test_a_program_that_has_set_up_no_log_sees_a_sentence_and_no_traceback(
    tmp_path: Path, shut: str
) -> None:
    (tmp_path / "toolpost.toml").write_text(f'state = "{shut}"\n', encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=FENCE,
        check=True,
    )
    assert done.stdout == "UNAVAILABLE\n"
    assert str(tmp_path / shut) in done.stderr and "Traceback" not in done.stderr


# --- how things are, as data -------------------------------------------------------------------


async def test_a_policy_and_a_source_that_broke_are_told_with_the_part_that_has_it(
    tmp_path: Path,
) -> None:
    specs, rules = tmp_path / "tools.json", tmp_path / "policy.toml"
    specs.write_text(json.dumps({"tools": []}), encoding="utf-8")
    rules.write_text('[[rules]]\nid = "all"\ndecision = "allow"\n', encoding="utf-8")
    made = runtime(
        tmp_path,
        sources=({"kind": "files", "paths": ["tools.json"]},),
        extensions={"policy": {"file": "policy.toml"}},
    )
    async with made as tools:
        assert all(one.healthy for one in (await tools.health()).values())
        specs.write_text("{", encoding="utf-8")
        rules.unlink()
        await tools.reload()
        async with asyncio.timeout(FENCE):
            while "extension policy" not in tools.problems:  # it looks again while calls come in
                await tools.execute("look", TEXT)
        assert set(tools.problems) == {"source 1 (files)", "extension policy"}
        health = await tools.health()
    assert [part for part, one in health.items() if not one.healthy] == [
        "source 1 (files)",
        "extension policy",
    ]
    assert "policy.toml" in str(health["extension policy"].error)


async def test_what_a_dead_process_left_open_is_closed_at_the_start(tmp_path: Path) -> None:
    program = PROGRAM.replace('return "sent"', "import os; os._exit(0)")
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, timeout=FENCE, check=True)
    async with runtime(tmp_path) as tools:
        found = [call async for call in calls(lines_of(tools.store))]
    assert [(one.asked.tool, one.code) for one in found] == [("send", "UNKNOWN")]


# --- for tests ---------------------------------------------------------------------------------


async def test_the_runtime_for_tests_has_the_chain_and_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with sample_runtime(*TOOLS, settings=Settings(mode="strict")) as tools:
        assert (await tools.execute("echo", TEXT)).output == "a"
        assert code(await tools.execute("send", TEXT)) == "APPROVAL_REQUIRED"
        assert code(await tools.execute("wipe", TEXT)) == "POLICY_DENIED"
        assert tools.problems == {}
    assert list(tmp_path.iterdir()) == []
