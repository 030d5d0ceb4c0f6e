"""A source that has no tools is never called ok: every command that loads it says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import toolpost

EMPTY = '[[sources]]\nkind = "modules"\nmodules = ["nothing_here"]\n'


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    (tmp_path / "toolpost.toml").write_text(EMPTY, encoding="utf-8")
    (tmp_path / "nothing_here.py").write_text("number = 5\n", encoding="utf-8")
    return tmp_path


def test_doctor_warns_of_it(empty: Path) -> None:
    done = toolpost("doctor", "--probe", "none", "--json", cwd=empty)
    found = {one["check"]: one for one in json.loads(done.stdout)}
    assert found["source 1 (modules)"]["verdict"] == "warn"
    assert "nothing_here" in found["source 1 (modules)"]["todo"]
    assert found["sources"]["verdict"] == "warn"
    assert found["sources"]["found"] == "0 loaded, 0 tools"


@pytest.mark.parametrize("words", [("check",), ("list",)])
def test_commands_that_load_it_warn_of_it(empty: Path, words: tuple[str, ...]) -> None:
    done = toolpost(*words, cwd=empty)
    assert "warning: source 1 (modules): it has no tools:" in done.stderr
    assert "nothing_here" in done.stderr and "@tool" in done.stderr


def test_it_is_warned_of_beside_a_source_that_has_tools(empty: Path) -> None:
    with (empty / "toolpost.toml").open("a", encoding="utf-8") as file:
        file.write('[[sources]]\nkind = "builtin"\n')
    done = toolpost("check", cwd=empty)
    assert "warning: source 1 (modules): it has no tools:" in done.stderr
    done = toolpost("doctor", "--probe", "none", "--json", cwd=empty)
    found = {one["check"]: one for one in json.loads(done.stdout)}
    assert found["source 1 (modules)"]["verdict"] == "warn"
    assert found["sources"]["found"].startswith("1 loaded, ")
