"""A folder that cannot be written to: what only looks works as ever, what has to be kept says where
it cannot be and what to do, and nobody sees a traceback.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, environment, toolpost

_CAPBSET_DROP = 24
_DAC_OVERRIDE = 1


@pytest.fixture
def locked(project: Path) -> Iterator[Path]:
    project.chmod(0o555)
    yield project
    project.chmod(0o755)


def _like_anybody() -> None:
    """Even root obeys the rights of files without this capability."""
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(_CAPBSET_DROP, _DAC_OVERRIDE, 0, 0, 0):
        raise OSError("root cannot be kept from writing here")


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words],
        cwd=cwd,
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=_like_anybody,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["list"],
        ["list", "--json"],
        ["show", "add"],
        ["config"],
        ["plugins"],
        ["policy", "explain", "add", "a=1"],
    ],
)
def test_who_only_looks_needs_no_folder_and_makes_none(locked: Path, words: list[str]) -> None:
    before = set(locked.iterdir())
    done = run(*words, cwd=locked)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert set(locked.iterdir()) == before


@pytest.mark.parametrize("words", [["list"], ["show", "add"], ["config"], ["doctor"]])
def test_nothing_is_made_by_looking_where_it_could_be(project: Path, words: list[str]) -> None:
    assert toolpost(*words, cwd=project).returncode == 0
    assert not (project / ".toolpost").exists()


def test_the_doctor_says_where_nothing_can_be_kept_and_what_to_do(locked: Path) -> None:
    done = run("doctor", "--json", cwd=locked)
    found = {one["check"]: one for one in json.loads(done.stdout)}
    assert (done.returncode, found["store"]["verdict"]) == (1, "fail")
    assert f"nothing can be kept in {locked}/.toolpost" in found["store"]["found"]
    assert 'state = "…"' in found["store"]["found"]
    assert found["tools"]["verdict"] == "ok"
    assert not (locked / ".toolpost").exists()


def test_a_harmless_call_runs_and_says_that_it_is_not_on_record(locked: Path) -> None:
    done = run("call", "add", "a=1", cwd=locked)
    assert (done.returncode, done.stdout) == (0, "11\n")
    assert f"warning: extension audit: nothing can be kept in {locked}/.toolpost" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_call_that_must_be_on_record_is_refused(locked: Path) -> None:
    done = run("call", "refuse", cwd=locked)
    assert (done.returncode, done.stdout) == (16, "")
    assert "UNAVAILABLE" in done.stderr and 'store = { kind = "memory" }' in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["approvals", "list"], ["audit", "tail"]])
def test_what_reads_what_is_kept_says_why_it_cannot(locked: Path, words: list[str]) -> None:
    done = run(*words, cwd=locked)
    assert (done.returncode, done.stdout) == (78, "")
    assert f"error: nothing can be kept in {locked}/.toolpost" in done.stderr


def test_with_a_store_in_memory_everything_runs(project: Path) -> None:
    config = project / "toolpost.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text('store = { kind = "memory" }\n' + text, encoding="utf-8")
    project.chmod(0o555)
    try:
        done = run("call", "refuse", cwd=project)
    finally:
        project.chmod(0o755)
    assert (done.returncode, "EXECUTION_ERROR" in done.stderr) == (1, True)
    assert "warning" not in done.stderr


HEAVY = "{'sqlite3', 'opentelemetry', 'cryptography', 'asyncpg', 'prometheus_client'}"


@pytest.mark.parametrize("words", [["--help"], ["list"]])
def test_looking_loads_nothing_that_only_calls_need(project: Path, words: list[str]) -> None:
    program = (
        f"import sys; from toolpost.cli.main import status; status({words!r});"
        f"print('loaded', *sorted({HEAVY} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "loaded"
