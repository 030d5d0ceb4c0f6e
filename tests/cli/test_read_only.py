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
_OVER_RIGHTS = (1, 2)


@pytest.fixture
def locked(project: Path) -> Iterator[Path]:
    project.chmod(0o555)
    yield project
    project.chmod(0o755)


def _like_anybody() -> None:
    """Even root obeys the rights of files without these capabilities."""
    for one in _OVER_RIGHTS if os.geteuid() == 0 else ():
        if ctypes.CDLL(None).prctl(_CAPBSET_DROP, one, 0, 0, 0):
            raise OSError("root cannot be kept from files here")


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
    done = run("doctor", "--probe", "none", "--json", cwd=locked)
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


@pytest.fixture
def called(project: Path) -> Path:
    """A project whose audit has something to read."""
    assert toolpost("call", "add", "a=1", cwd=project).returncode == 0
    return project


READING = [
    ["audit", "tail"],
    ["audit", "search", "--tool", "add"],
    ["audit", "export"],
    ["audit", "verify"],
    ["approvals", "list"],
]


@pytest.mark.parametrize("words", READING)
def test_what_was_kept_can_be_read_where_nothing_can_be_written(
    called: Path, words: list[str]
) -> None:
    well = run(*words, cwd=called)
    kept = called / ".toolpost"
    kept.chmod(0o555)
    try:
        done = run(*words, cwd=called)
    finally:
        kept.chmod(0o700)
    assert (done.returncode, done.stdout) == (0, well.stdout)
    assert f"warning: the store can only be read now: {kept}/store.db" in done.stderr
    assert "it may not be written to" in done.stderr


def test_a_store_that_may_not_even_be_read_is_named_with_the_reason(called: Path) -> None:
    file = called / ".toolpost" / "store.db"
    file.chmod(0)
    try:
        done = run("audit", "tail", cwd=called)
        examined = run("doctor", "--probe", "none", "--json", cwd=called)
    finally:
        file.chmod(0o600)
    assert (done.returncode, done.stdout) == (16, "")
    assert f"{file}: " in done.stderr and "it may not be opened" in done.stderr
    found = {one["check"]: one for one in json.loads(examined.stdout)}
    assert found["store"]["todo"].startswith("give this user the right to read and write the file")
    assert found["extension audit"]["todo"].startswith("give this user the right")


FULL_DISK = """
set -e
mount -t tmpfs -o size=1m none "$1"
cp -r "$2/." "$1"
cat /dev/zero > "$1/ballast" 2>/dev/null || true
cd "$1"
shift 2
exec "$@"
"""


@pytest.mark.parametrize("words", [*READING, ["doctor", "--probe", "none", "--json"]])
def test_a_full_disk_is_named_and_what_is_on_it_can_be_read(
    called: Path, tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    well = run(*words, cwd=called)
    done = _on_a_full_disk(called, tmp_path_factory.mktemp("disk"), words)
    if words[0] == "doctor":
        found = {one["check"]: one for one in json.loads(done.stdout)}
        assert "the disk is full" in found["store"]["found"]
        assert found["store"]["todo"].startswith("free some space")
        assert found["extension audit"]["todo"].startswith("free some space")
        return
    assert (done.returncode, done.stdout) == (0, well.stdout)
    assert "the disk is full" in done.stderr


def _on_a_full_disk(
    project: Path, disk: Path, words: list[str]
) -> subprocess.CompletedProcess[str]:
    """A disk of the child's own: it goes with its mount namespace."""
    namespace = ["--mount"] if os.geteuid() == 0 else ["--mount", "--user", "--map-root-user"]
    before = ["unshare", *namespace, "bash", "-c", FULL_DISK, "bash", str(disk), str(project)]
    return subprocess.run(
        [*before, *PROGRAM, *words],
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


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
