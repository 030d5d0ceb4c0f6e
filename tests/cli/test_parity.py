"""``toolpost parity``: old tools and new ones, wherever they are, called alike and compared."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import inside
from tests.gateway.gateway_tools import ALL
from tests.gateway.running import serving

CALLS = """\
{"tool": "add", "arguments": {"a": 1, "b": 2}}
{"tool": "add", "arguments": {"a": "x"}}
{"old": "joined", "new": "join", "arguments": {"words": ["a", "b"]}}
"""
OLD = """
def add(a: int, b: int = 10) -> int:
    return a + b

def joined(words: list[str]) -> str:
    return "-".join(words)
"""


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """What one test imports from its folder is not there for the next."""
    path, modules = [*sys.path], set(sys.modules)
    yield
    sys.path[:] = path
    for name in ("old_ways", "brought_old_ways", "added_anew", "brought_added_anew"):
        if name not in modules:
            sys.modules.pop(name, None)


@pytest.fixture
def moving(project: Path) -> Path:
    """The project of the command line's tests, and what there was before it."""
    (project / "old_ways.py").write_text(OLD, encoding="utf-8")
    (project / "calls.jsonl").write_text(CALLS, encoding="utf-8")
    return project


@pytest.mark.req("UX-9")
def test_a_python_file_is_compared_with_a_spec_file(moving: Path) -> None:
    done = inside("parity", "old_ways.py", "tools.yaml", "--calls", "calls.jsonl", cwd=moving)
    assert done.returncode == 1, done.stderr
    head, _, *rows = done.stdout.splitlines()
    assert head.split() == ["tool", "calls", "same", "old", "p50", "new", "p50", "ratio"]
    assert [row.split()[:3] for row in rows[:2]] == [["add", "2", "2"], ["join", "1", "0"]]
    assert rows[2:] == ["calls.jsonl:3: join", '  output: "a-b" → "a b"', "3 calls: 1 differs"]
    assert "join: may change something" in done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.req("UX-9")
def test_a_module_is_compared_with_a_config_as_json(moving: Path) -> None:
    done = inside(
        "parity", "old_ways", ".", "--calls", "calls.jsonl", "--only", "read", "--repeat", "2",
        "--json", cwd=moving,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["same"] is True
    assert (said["tools"]["add"]["calls"], said["tools"]["add"]["ratio"] > 0) == (4, True)
    assert [one["skipped"] for one in said["calls"]][-1] == "it may change something"


def test_how_often_something_may_be_changed_is_told_before(moving: Path) -> None:
    words = ("parity", "old_ways.py", "tools.yaml", "--calls", "calls.jsonl")
    done = inside(*words, cwd=moving)
    assert "join: may change something, and every call is made twice, once on each" in done.stderr
    done = inside(*words, "--repeat", "3", cwd=moving)
    assert "every call is made 6 times, 3 on each side" in done.stderr


def test_what_is_ignored_is_no_difference(moving: Path) -> None:
    (moving / "calls.jsonl").write_text('{"tool": "add", "arguments": {"a": 1, "b": 2}}\n')
    words = ("parity", "tools.yaml", "old_ways.py", "--calls", "calls.jsonl", "--ignore", "x")
    done = inside(*words, cwd=moving)
    assert (done.returncode, "1 call: none differ" in done.stdout) == (0, True)


@pytest.mark.req("UX-9")
@pytest.mark.anyio
async def test_a_gateway_is_compared_with_a_file(moving: Path) -> None:
    (moving / "calls.jsonl").write_text('{"tool": "add", "arguments": {"a": 1, "b": 2}}\n')
    async with serving(moving, *ALL) as running:
        words = ("parity", running.url, "old_ways.py", "--calls", "calls.jsonl")
        done = await asyncio.to_thread(inside, *words, cwd=moving)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("nothing.py", "nothing.py"),
        ("no_such_module_at_all", "cannot be imported"),
        ("empty_tools.py", "there is no tool in it"),
        ("missing.yaml", "missing.yaml"),
    ],
)
def test_a_side_that_has_no_tools_says_so(moving: Path, old: str, said: str) -> None:
    (moving / "empty_tools.py").write_text("", encoding="utf-8")
    done = inside("parity", old, "tools.yaml", "--calls", "calls.jsonl", cwd=moving)
    assert done.returncode not in (0, 1, 70)
    assert said in done.stderr
